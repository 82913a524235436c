"""Lets the job leave machines: brings the files that its program wrote there, those of rank 0's machine first."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from legato.engines.agent_node import AgentNode
from legato.engines.base import EngineEvent, Noted
from legato.engines.result_files import Standing

IDLE_LIMIT_S: Final = 60.0
"""A machine that the job does not use for so long keeps nothing for it any more."""

CLOSE_LIMIT_S: Final = 30.0
_AWAY_LIMIT_S: Final = 30.0
"""The end of a job waits so long for a lost machine on which rank 0 has run."""


class Departures:
    """Lets the job leave machines that it does not use any more, and all of them when it ends.

    Args:
        changed: set when a machine connects.
        forget: called when the job has left a machine.
        put: lets the driver receive an event.
    """

    def __init__(
        self, changed: asyncio.Event, forget: Callable[[AgentNode], None], put: Callable[[EngineEvent], None]
    ) -> None:
        self._changed = changed
        self._forget = forget
        self._put = put
        self._leaving: set[asyncio.Task[None]] = set()
        self._bringing: asyncio.Task[None] | None = None
        self.wanted: frozenset[str] | None = None
        """The machines that the job is to use. None: not known yet."""
        self._idle_since: dict[str, float] = {}

    def find_idle(self, nodes: Collection[AgentNode], store: AgentNode | None, now: float) -> list[AgentNode]:
        """Return the machines that the job has not used for `IDLE_LIMIT_S`.

        Args:
            nodes: all machines of the job.
            store: that with the store, which stays as long as no other one can have the store.
            now: monotonic seconds.
        """
        if self.wanted is None:
            return []
        unused = [
            node
            for node in nodes
            if node.is_open and not (node.is_leaving or node.record.workers or node.launches)
            if node.spec.name not in self.wanted
        ]
        since = {node.spec.name: self._idle_since.get(node.spec.name, now) for node in unused}
        self._idle_since = since
        idle = [node for node in unused if now - since[node.spec.name] >= IDLE_LIMIT_S]
        others = [node for node in nodes if node.is_open and node not in idle]
        return [node for node in idle if node is not store or others]

    def leave_idle(self, nodes: Mapping[str, AgentNode], store: AgentNode | None, rank_0: str, now: float) -> None:
        """End the job's agents on machines that it does not use, while the job goes on; arguments as in `find_idle`."""
        is_urgent = not any(node.record.workers for node in nodes.values())
        for node in self.find_idle(nodes.values(), store, now):
            node.is_leaving, node.had_files = True, node.has_files
            leaving = self._leave(node, find_standing(node, rank_0), is_urgent=is_urgent)
            task = asyncio.create_task(leaving, name=f"legato-leave-{node.spec.name}")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _leave(self, node: AgentNode, standing: Standing, *, is_urgent: bool) -> None:
        try:
            node.send(node.results.close_request(node.record))
            if node.had_files:
                for told in await node.results.bring(standing, node.record.work, self._note, is_urgent=is_urgent):
                    self._put(Noted(told))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_LIMIT_S):
                    await node.closed.wait()
            self._forget(node)
        finally:
            node.left.set()

    def note_end(self, node: AgentNode, reason: str) -> None:
        """Tell the driver which files did not come from a machine that has ended; the reason is a clause."""
        if node.has_files:
            told = (
                f"files that the program may have written on {node.spec.name} in {node.record.work} did not come, "
                f"because {reason}. Let programs write on a volume what the job needs"
            )
            self._put(Noted(told, is_warning=node.record.had_rank_0))

    def _note(self, told: str) -> None:
        self._put(Noted(told, is_warning=False))

    async def stop(self) -> None:
        """Leave no more machines, because the job ends, or another driver takes it over."""
        leaving = tuple(self._leaving)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    def abandon(self) -> None:
        """Bring no more files."""
        if self._bringing is not None:
            self._bringing.cancel()

    async def bring_all(self, nodes: Sequence[AgentNode], rank_0: str, note: Callable[[str], None]) -> list[str]:
        """Bring the files of all machines that were asked to close; returns warnings, without their periods.

        Args:
            nodes: the machines.
            rank_0: name of the one with rank 0. "": unknown.
            note: called with sentences about what comes.
        """
        left = [(find_standing(node, rank_0), node) for node in nodes if node.has_files]
        left.sort(key=lambda each: list(Standing).index(each[0]))
        told = [_explain_old(node) for node in nodes if node.deletes_files]
        self._bringing = asyncio.create_task(self._bring_each(left, note, told))
        try:
            await asyncio.wait([self._bringing])
        finally:
            self._bringing.cancel()
        if not self._bringing.cancelled():
            self._bringing.result()
        for _, node in left:
            node.results.give_up()
            told.append(_explain_left(node, "the job must end now"))
        return told

    async def _bring_each(
        self, left: list[tuple[Standing, AgentNode]], note: Callable[[str], None], told: list[str]
    ) -> None:
        while left:
            standing, node = left[0]
            # A machine whose lease is over has been away for minutes.
            may_return = not node.is_lost or node.lease_ends is not None
            if node.connection is None and may_return and standing is not Standing.OTHER:
                await self._await_return(node)
            if node.connection is None:
                told.append(_explain_left(node, "the machine is lost"))
            else:
                told += await node.results.bring(standing, node.record.work, note, is_urgent=True)
            del left[0]

    async def _await_return(self, node: AgentNode) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AWAY_LIMIT_S):
                while node.connection is None:
                    self._changed.clear()
                    await self._changed.wait()


def find_standing(node: AgentNode, rank_0: str) -> Standing:
    """Return what a machine is for the job. Without ranks, as in a plain program, no file is more right than others."""
    if node.spec.name == rank_0:
        return Standing.FIRST
    return Standing.EARLIER if node.record.had_rank_0 or not rank_0 else Standing.OTHER


def _explain_old(node: AgentNode) -> str:
    return (
        f"files that the program wrote on {node.spec.name} are deleted, because its agent is of an earlier release, "
        "which does not send them. Install this release there"
    )


def _explain_left(node: AgentNode, why: str) -> str:
    return (
        f"files that the program wrote on {node.spec.name} did not come, because {why}. They stay on "
        f"{node.spec.name} in {node.record.work}: copy them from there"
    )
