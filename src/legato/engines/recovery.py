"""Checkpoints that workers have saved while no driver led them: brought before the next workers start."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from legato.core.errors import CheckpointError
from legato.engines.agent_node import AgentNode
from legato.engines.file_pieces import check_file_name, find_newest, step_of

_log = logging.getLogger(__name__)

_LIMIT_S: Final = 600.0
"""Workers wait no longer, and then resume from an older checkpoint."""


class Recovery:
    """The checkpoints of all machines that are newer than those of the driver.

    Args:
        folder: the job's directory of checkpoints on this machine. None: it has none.
        note: called with a sentence, without its period, about a checkpoint that does not come.
    """

    def __init__(self, folder: Path | None, note: Callable[[str], None]) -> None:
        self._folder = folder
        self._note = note
        self._coming: dict[asyncio.Future[str], tuple[AgentNode, str]] = {}
        self._waiting: asyncio.Task[None] | None = None

    async def look(self, node: AgentNode, name: str) -> None:
        """Bring the newest checkpoint of a machine if the driver has none that is as new."""
        if self._folder is None:
            return
        try:
            step = step_of(check_file_name(name))
        except CheckpointError as error:
            _log.warning("The agent of %s names a checkpoint that cannot be brought: %s", node.spec.name, error)
            return
        newest = await asyncio.to_thread(find_newest, self._folder)
        if newest is not None and step_of(newest.name) >= step:
            return
        self._coming[node.incoming.add(name)] = node, name

    async def wait(self, *, is_urgent: bool) -> None:
        """Wait until what comes is here, no longer than some minutes.

        Args:
            is_urgent: nothing trains meanwhile.
        """
        if is_urgent:
            for node, _ in self._coming.values():
                node.incoming.hasten()
        while self._coming:
            # All workers that start wait for the same.
            if self._waiting is None:
                self._waiting = asyncio.create_task(self._wait())
            await asyncio.shield(self._waiting)

    async def _wait(self) -> None:
        coming = dict(self._coming)
        await asyncio.wait(coming, timeout=_LIMIT_S)
        for arrival, (node, name) in coming.items():
            del self._coming[arrival]
            error = arrival.exception() if arrival.done() else f"not all of it has come within {_LIMIT_S:g} s"
            if error is not None:
                told = f"workers resume from an older checkpoint than {name}, which {node.spec.name} has: {error}"
                self._note(told.rstrip("."))
        self._waiting = None
