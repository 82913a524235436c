"""What the engine of agents knows of one machine and sends to it, and what makes agents exist. Decides nothing."""

from __future__ import annotations

import asyncio
import hmac
import http
import logging
import math
import platform
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import msgspec
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from legato.core import agent_messages as messages
from legato.core.errors import Superseded
from legato.core.job_user import JobUser
from legato.core.slots import make_slot, split_slot
from legato.core.system_metrics import MEASURE_EVERY_S, SystemSample
from legato.engines.agent_logs import LogIntake
from legato.engines.agents_record import NodeRecord
from legato.engines.file_pieces import CONTENT, PieceSender, find_newest
from legato.engines.incoming import Incoming
from legato.engines.result_intake import ResultIntake
from legato.engines.side_work import TaskSet, WorkQueue

_log = logging.getLogger(__name__)

_BEARER: Final = "Bearer "
_FIRST_DELAY_S: Final = 1.0
_MAX_DELAY_S: Final = 30.0  # well below a lease, which is not renewed meanwhile
_IMPORT_LIMIT_S: Final = 480.0  # below the time after which a server kills a driver that starts
_NUM_ENDED: Final = 1000
"""Of so many workers that have ended, late logs and checkpoints are still taken."""

_SOUND_S: Final = 60.0
"""A machine that has been open for so long begins with the first delay again."""


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
            refuse: called with a sentence when the machine cannot be used; the task then ends, or tries again.
        """
        ...


class AgentNode:
    """What the engine knows of one machine."""

    def __init__(self, spec: NodeSpec, record: NodeRecord, logs: LogIntake) -> None:
        self.spec = spec
        self.record = record
        self.logs = logs
        self._log_work = WorkQueue()
        self._file_work = WorkQueue()
        self.connection: ServerConnection | None = None
        self.waiting: asyncio.Queue[messages.AgentRequest] = asyncio.Queue()
        self.is_open = False
        self.is_lost = False
        self.is_leaving = self.had_files = False
        self.left = asyncio.Event()
        """The job has left the machine: this object is not used any more."""
        self.trouble: str | None = None
        self._sample: tuple[float, SystemSample] | None = None  # with the time when it came
        self.lost_at = 0.0
        self.rendezvous = ""
        self.last_heard = 0.0
        self.num_looks = 0
        """How often the engine has looked since it last heard the agent."""
        self.lease_ends: float | None = None
        self.opened_at = 0.0
        self.came_at = float("-inf")
        """When its present agent first connected to this driver; minus infinity if an earlier driver knew it."""
        self.num_failures = 0
        """How often it has refused the job soon after it was open."""
        self.used_from = 0.0
        """It is not used again before then."""
        self.launches: dict[int, messages.StartOne] = {}
        self.forced: dict[int, bool] = {}
        self.shares_checkpoints = True
        self.incoming: Incoming  # set by the engine
        self.results: ResultIntake  # too
        self.sends_results = False
        self.sender = PieceSender(self.say)
        self.sending: asyncio.Task[None] | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.closed = asyncio.Event()

    def hear_beat(self, beat: messages.Beat, *, may_renew: bool, now: float) -> None:
        """Keep the sample of a beat, and answer it if the driver may renew leases."""
        if beat.sample is not None:
            self._sample = now, beat.sample
        if may_renew:
            self.send(messages.Beat(sent_s=beat.sent_s))

    def read_sample(self, now: float) -> SystemSample | None:
        """Return the newest sample of its machine; None: there is none, or it is old."""
        is_new = self._sample is not None and now - self._sample[0] < 2 * MEASURE_EVERY_S
        return self._sample[1] if self._sample is not None and is_new else None

    def note_heard(self, now: float) -> None:
        """Note that the agent has sent something, or that its silence counts from now."""
        self.last_heard, self.num_looks = now, 0

    def note_hello(self, hello: messages.AgentHello, now: float) -> bool:
        """Note which agent has connected, and its devices unless workers use the known ones.

        Args:
            hello: of the agent.
            now: monotonic seconds.

        Returns:
            Whether the record has changed.
        """
        self.sends_results = hello.sends_results
        known = self.record.identity, self.record.devices
        if self.record.identity != hello.identity:
            self.came_at = now
        self.record.identity = hello.identity
        if not self.record.workers:
            self.record.devices = hello.devices[: self.spec.num_slots]
        return known != (self.record.identity, self.record.devices)

    def is_taken(self, hello: messages.AgentHello, has_ended: Callable[[int], bool]) -> bool:
        """Whether an agent must wait because another one, with the same name, may still run workers.

        It knows nothing of these workers, so its word does not end them: the other agent's, or its lease, does.

        Args:
            hello: of the agent.
            has_ended: whether a worker has certainly ended.
        """
        if self.record.identity in ("", hello.identity) or all(map(has_ended, self.record.workers)):
            return False
        self.trouble = "another agent has connected for it, and waits until workers of the previous one have ended"
        return True

    def delay_return(self, now: float) -> None:
        """Use a machine that fails again and again less and less often, and do not repeat what it failed at."""
        self.num_failures = 1 if now - self.opened_at >= _SOUND_S else self.num_failures + 1
        self.used_from = now + min(_FIRST_DELAY_S * 2 ** min(self.num_failures - 1, 10), _MAX_DELAY_S)
        self.launches.clear()  # when the agent is back, it says which of these workers it has

    def explain(self, waited_s: float) -> str:
        """Return why the machine cannot be used, after the driver has waited for it; a clause without its period."""
        if self.trouble is not None or self.connection is None:
            return self.trouble or f"its agent has not connected within {waited_s:.1f} s"
        return (
            f"its agent has connected, but could not get ready for workers within {waited_s:.1f} s: it imports torch, "
            "which takes long on a slow disk or an overloaded machine"
        )

    @property
    def missing(self) -> str:
        """Why a file of the machine cannot come if the machine is lost; a clause without its period."""
        return f"it is only on the machine {self.spec.name}, which is lost"

    @property
    def has_files(self) -> bool:
        """Whether the program may have written files that only this machine has."""
        return bool(self.record.work and self.record.shifts) and not self.results.is_done

    @property
    def deletes_files(self) -> bool:
        """Whether the agent deletes the program's files with the job: it is of an earlier release."""
        return not (self.sends_results or self.shares_checkpoints) and bool(self.record.shifts)

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

    def forget(self, worker: int) -> list[int]:
        """Note that a worker has ended. Returns the workers of which nothing needs to be known any more."""
        del self.record.workers[worker]
        old = sorted(set(self.record.shifts) - set(self.record.workers))[:-_NUM_ENDED]
        for each in old:
            del self.record.shifts[each]
        return old

    def has_had(self, worker: int) -> bool:
        """Return whether a worker runs or has run there."""
        return worker in self.record.workers or worker in self.record.shifts

    def begin(self, tasks: TaskSet) -> None:
        """Begin to write what the agent sends, beside its connection."""
        self.tasks += [
            tasks.begin(self._log_work.run(), f"legato-logs-{self.spec.name}"),
            tasks.begin(self._file_work.run(), f"legato-files-{self.spec.name}"),
        ]

    def end(self) -> None:
        """End what is done for this machine, because the job has left it."""
        for task in self.tasks:
            task.cancel()

    async def keep_agent(self, starter: Starter, secret: str, refuse: Callable[[str], None]) -> None:
        """Let an agent exist on the machine, as `Starter.keep` does. An error is a reason to refuse the machine."""
        try:
            await starter.keep(self.spec.name, secret, refuse)
        except Exception as error:  # noqa: BLE001 -- one machine must not stop the job
            _log.exception("Cannot keep the agent of %s", self.spec.name)
            refuse(f"its agent cannot be started: {error!r}")

    async def put_log(self, piece: messages.LogBytes, now: float) -> None:
        """Write a piece of a log soon, and confirm it then."""
        await self._log_work.put(partial(self._take_log, piece, now), piece.data)

    async def put_piece(self, piece: messages.FilePiece) -> None:
        """Write a piece of a checkpoint, or of a file of the program, soon, and confirm it then."""
        receiver = self.results.fetcher if CONTENT.fullmatch(piece.name) else self.incoming
        await self._file_work.put(partial(receiver.take, piece), piece.data)

    async def put_end(self) -> None:
        """Note that the agent has ended the job, after the logs are written that it sent before."""
        await self._log_work.put(self._note_closed)

    async def _take_log(self, piece: messages.LogBytes, now: float) -> None:
        if (taken := await self.logs.take(piece, now)) is not None:
            self.send(taken)

    async def _note_closed(self) -> None:
        self.closed.set()

    async def tend(self, now: float) -> None:
        """Ask again for what could not be written, and for checkpoints that do not come."""
        for request in await self.logs.list_due(now):
            self.send(request)
        if self.is_open:
            self.incoming.check_progress(now)

    def begin_to_send(
        self,
        asked: messages.WantCheckpoint,
        directory: Path | None,
        user: JobUser | None,
        note: Callable[[str], None],
    ) -> None:
        """Send the newest checkpoint instead of what is being sent.

        Args:
            asked: what the agent has of it.
            directory: of the checkpoints; None: there are none.
            user: the system user who can read them; None: this process.
            note: called with a sentence if the checkpoint cannot be sent.
        """
        if self.sending is not None:
            self.sending.cancel()
        self.sending = asyncio.create_task(self._send_newest(asked, directory, user, note))

    async def _send_newest(
        self,
        asked: messages.WantCheckpoint,
        directory: Path | None,
        user: JobUser | None,
        note: Callable[[str], None],
    ) -> None:
        newest = None if directory is None else await asyncio.to_thread(find_newest, directory)
        if newest is None:
            self.send(messages.NoCheckpoint())
            return
        try:
            offset = asked.num_bytes if asked.name == newest.name else 0
            await self.sender.send(newest, offset, user, is_urgent=True)
        except OSError as error:
            told = f"the checkpoint {newest.name} cannot be sent to {self.spec.name}: {error}"
            note(told)
            self.send(messages.NoCheckpoint(error=told))

    def send_open_requests(self) -> None:
        """Send the starts and stops that the agent has not confirmed."""
        for launch in self.launches.values():
            self.send(launch)
        for worker, force in self.forced.items():
            self.send(messages.StopOne(worker=worker, force=force))

    def say(self, message: messages.AgentRequest) -> bool:
        """Send a message; returns False without a connection."""
        self.send(message)
        return self.connection is not None

    def cut(self) -> None:
        """End the connection to the agent."""
        if self.sending is not None:
            self.sending.cancel()
            self.sending = None
        self._log_work.drop()
        self._file_work.drop()
        self.results.stop()
        if self.connection is not None:
            self.connection.transport.abort()
            self.connection = None


def refuse_stranger(secret: str, connection: ServerConnection, request: Request) -> Response | None:
    """Return the answer to a request that does not show the token of the job; None if it does."""
    shown = request.headers.get("Authorization", "")
    if not hmac.compare_digest(shown.encode(), f"{_BEARER}{secret}".encode()):
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, "The token is wrong or missing.\n")
    return None


def find_obstacle(hello: messages.AgentHello, user: str) -> str | None:
    """Return why an agent cannot run the job of a driver of this release; None if it can.

    Args:
        hello: what the agent says of itself.
        user: the system user of the job's processes; empty: they run as the user of their agent.

    Raises:
        Superseded: workers train under the agent, which would kill them if it was refused.
    """
    obstacle = None
    if abs(hello.protocol - messages.AGENT_PROTOCOL) > 1:
        obstacle = (
            f"its Legato speaks protocol {hello.protocol} with drivers, and this driver {messages.AGENT_PROTOCOL}: "
            "install the same release of Legato on both machines"
        )
    elif user and not hello.switches_users and hello.runs_as != user:
        obstacle = (
            f"its agent cannot run jobs as the system user '{user}': run this release of 'legato agent' there as root, "
            "or as this user"
        )
    if obstacle is not None and hello.workers:
        raise Superseded(
            f"Workers of the job train on {hello.node}, which this driver cannot use: {obstacle}. They train on "
            "without a driver for away_limit_s, then they write a checkpoint and end. Continue from that checkpoint, "
            "or let the release that started them adopt them before that."
        )
    return obstacle


def find_late_limit(nodes: Collection[AgentNode], began_at: float, gather_limit_s: float) -> float:
    """Return until when a driver waits for agents that have shown that they are alive, beyond its limit for the others.

    An agent that is connected may import torch for long, as long as no other machine can be used, and no worker runs:
    these end without a driver.

    Args:
        nodes: all machines of the job; at least one is not known yet.
        began_at: when the driver began to wait for them.
        gather_limit_s: after an agent has asked for files of the program, which takes it time.
    """
    asked_at = max(node.results.asked_at for node in nodes if not node.is_known)
    is_first = not any(node.is_open or node.record.workers for node in nodes)
    imports = is_first and any(node.connection is not None for node in nodes)
    return max(asked_at + gather_limit_s, began_at + _IMPORT_LIMIT_S if imports else -math.inf)


def list_for_store(
    nodes: Collection[AgentNode], store: AgentNode | None, wanted: frozenset[str] | None, rank_0: str
) -> list[AgentNode]:
    """Return the machines that can have the store, the best one first.

    Machines of the other address family than those that train may not reach the store, and cannot train with them.

    Args:
        nodes: all machines of the job.
        store: that with the store, which keeps it if it can. None: there is none.
        wanted: names of the machines that the job is to use. None: not known yet.
        rank_0: name of the machine with rank 0: all members have addresses of its family. "": there is none yet, and
            the family of most machines counts.
    """
    able = [node for node in nodes if node.is_open and node.rendezvous and not node.is_leaving]
    able.sort(key=lambda node: node is not store)
    training = [node for node in able if wanted is None or node.spec.name in wanted]
    first = [node for node in training if node.spec.name == rank_0]
    counted = Counter(_has_ipv6(node) for node in first or training)
    if counted:
        usual = counted.most_common(1)[0][0]  # of equal numbers, the first: that of the store
        able.sort(key=lambda node: _has_ipv6(node) is not usual)
    return able


def _has_ipv6(node: AgentNode) -> bool:
    return ":" in node.rendezvous.rpartition(":")[0]


def explain_absence(waited_s: float, port: int) -> str:
    """Return why a machine cannot be used whose agent has not connected to a port of the driver for some time."""
    return (
        f"its agent has not connected within {waited_s:g} s. Let the machine reach port {port} of the driver's machine "
        f"{platform.node()} (the setting driver_ports limits the ports); agent.log in the agent's folder of the job "
        "says what it tried"
    )


async def send_forever(connection: ServerConnection, waiting: asyncio.Queue[messages.AgentRequest]) -> None:
    """Send the messages to an agent as they come, until cancelled."""
    while True:
        await connection.send(messages.encode_agent_frame(await waiting.get()))


def read_attempt(driver_file: str | None) -> str:
    """Return the attempt in a driver's file; empty if there is none."""
    if driver_file is None:
        return ""
    found: Mapping[str, str] = msgspec.json.decode(Path(driver_file).read_bytes())
    return found.get("attempt", "")
