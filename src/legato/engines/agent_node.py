"""What the engine of agents knows of one machine, and what makes agents exist. Decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec
from websockets.asyncio.server import ServerConnection

from legato.core import agent_messages as messages
from legato.core.slots import make_slot, split_slot
from legato.engines.agent_logs import LogIntake
from legato.engines.agents_record import NodeRecord
from legato.engines.file_pieces import PieceSender
from legato.engines.incoming import Incoming


class NodeSpec(msgspec.Struct, frozen=True):
    """A machine that the job may use.

    Args:
        name: of the machine.
        num_slots: number of its slots; None: as its agent says.
    """

    name: str
    num_slots: int | None = None


class Starter(Protocol):
    """Makes agents exist on machines, for example by ssh."""

    async def keep(self, node: str, secret: str, refuse: Callable[[str], None]) -> None:
        """Start the agent of a machine, and start it again or connect it again when it is gone, until cancelled.

        Args:
            node: name of the machine.
            secret: the token with which the agent connects.
            refuse: called with a sentence when the machine cannot be used; the task then ends.
        """
        ...


class AgentNode:
    """What the engine knows of one machine."""

    def __init__(self, spec: NodeSpec, record: NodeRecord, logs: LogIntake) -> None:
        self.spec = spec
        self.record = record
        self.logs = logs
        self.connection: ServerConnection | None = None
        self.waiting: asyncio.Queue[messages.AgentRequest] = asyncio.Queue()
        self.is_open = False
        self.is_lost = False
        self.trouble: str | None = None
        self.lost_at = 0.0
        self.rendezvous = ""
        self.last_heard = 0.0
        self.num_looks = 0
        """How often the engine has looked since it last heard the agent."""
        self.lease_ends: float | None = None
        self.opened_at = 0.0
        self.num_failures = 0
        """How often it has refused the job soon after it was open."""
        self.used_from = 0.0
        """It is not used again before then."""
        self.launches: dict[int, messages.StartOne] = {}
        self.forced: dict[int, bool] = {}
        self.shares_checkpoints = True
        self.incoming: Incoming  # set by the engine
        self.sender = PieceSender(self._say_piece)
        self.sending: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()

    def note_heard(self, now: float) -> None:
        """Note that the agent has sent something, or that its silence counts from now."""
        self.last_heard, self.num_looks = now, 0

    @property
    def is_known(self) -> bool:
        """Whether it is clear if the machine can be used."""
        return self.is_open or self.trouble is not None

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of its slots, as far as they are known."""
        return tuple(make_slot(self.spec.name, index) for index in range(len(self.record.devices)))

    def slots_include(self, slot: str) -> bool:
        """Whether the machine has the slot: all slots of a worker with several GPUs."""
        return set(split_slot(slot)) <= set(self.slots)

    def send(self, message: messages.AgentRequest) -> None:
        """Send a message, if the agent is connected."""
        if self.connection is not None:
            self.waiting.put_nowait(message)

    def send_if_open(self, message: messages.AgentRequest) -> None:
        """Send a message, if the agent is connected and has opened the job."""
        if self.is_open:
            self.send(message)

    def _say_piece(self, piece: messages.FilePiece) -> bool:
        self.send(piece)
        return self.connection is not None

    def cut(self) -> None:
        """End the connection to the agent."""
        if self.sending is not None:
            self.sending.cancel()
            self.sending = None
        if self.connection is not None:
            self.connection.transport.abort()
            self.connection = None
