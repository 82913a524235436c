"""The events of the agents' workers on their way to the driver: each once, and acknowledged when it is handled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator

from websockets.asyncio.server import ServerConnection

from legato.core import agent_messages as messages
from legato.engines.agent_node import AgentNode
from legato.engines.base import EngineEvent, Exited, Noted, Started


class Receipt:
    """Tells an agent that the driver has handled an event.

    Args:
        node: the agent's machine.
        connection: on which the event has come last. On a later one the agent may count its events from 1 again, so the
            number would acknowledge another event; the agent repeats this one there.
        number: of the event; 0: it is not from the agent.
    """

    def __init__(self, node: AgentNode, connection: ServerConnection | None, number: int) -> None:
        self._node = node
        self.connection = connection
        self.number = number
        self.is_handled = False

    def send(self) -> None:
        """Send the acknowledgement, if the connection is still there."""
        if self.number and self.connection is self._node.connection:
            self._node.send(messages.Acknowledge(number=self.number))


class EventQueue:
    """The events that wait for the driver."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[EngineEvent, Receipt | None] | None] = asyncio.Queue()
        self._reported: dict[tuple[type[EngineEvent], int], Receipt] = {}

    @property
    def is_fresh(self) -> bool:
        """Whether no worker was reported yet."""
        return not self._reported

    def has(self, kind: type[Started | Exited], worker: int) -> bool:
        """Whether such an event of a worker was reported."""
        return (kind, worker) in self._reported

    def put(self, event: EngineEvent, receipt: Receipt | None = None) -> None:
        """Let the driver receive an event."""
        self._waiting.put_nowait((event, receipt))

    def report(self, event: Started | Exited, node: AgentNode, number: int) -> bool:
        """Let the driver receive an event of a worker, unless this is a copy; returns whether it is none."""
        receipt = self._reported.get((type(event), event.worker))
        if receipt is not None:
            # Its first one may still wait to be handled.
            receipt.connection, receipt.number = node.connection, number
            if receipt.is_handled:
                receipt.send()
            return False
        receipt = self._reported[type(event), event.worker] = Receipt(node, node.connection, number)
        self.put(event, receipt)
        return True

    def forget(self, workers: Iterable[int]) -> None:
        """Forget what was reported of workers."""
        for worker in workers:
            self._reported.pop((Started, worker), None)
            self._reported.pop((Exited, worker), None)

    def end(self) -> None:
        """Let `receive` end after the events that wait."""
        self._waiting.put_nowait(None)

    async def receive(self) -> AsyncIterator[EngineEvent]:
        """Yield events until `end`. An event counts as handled when the next one is asked for."""
        while (entry := await self._waiting.get()) is not None:
            event, receipt = entry
            yield event
            if receipt is not None:
                receipt.is_handled = True
                receipt.send()
        self.end()

    def take_remarks(self) -> Iterator[str]:
        """Take the remarks out of the events that no driver has received."""
        for _ in range(self._waiting.qsize()):
            entry = self._waiting.get_nowait()
            if entry is not None and isinstance(entry[0], Noted):
                yield entry[0].told
            else:
                self._waiting.put_nowait(entry)
