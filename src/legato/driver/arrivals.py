"""Checkpoints that are still on their way from another machine: they count as saved when they have arrived.

What ends the worker that saved one waits meanwhile, so that the job does not end before its last checkpoint is here.
Everything else is handled at once: training never waits for a transfer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from legato.core import wire
from legato.driver import events
from legato.engines.base import Engine, Exited

_ENDINGS = wire.Leaving | wire.Finished | wire.Failed


class Arrivals:
    """The checkpoints on their way, and the events that wait for them.

    Args:
        engine: brings checkpoints.
        feed: handles an event.
        warn: records a warning for the user.
    """

    def __init__(self, engine: Engine, feed: Callable[[events.Event], None], warn: Callable[[str], None]) -> None:
        self._engine = engine
        self._feed = feed
        self._warn = warn
        self._coming: dict[int, int] = {}
        self._waiting: dict[int, list[events.Event]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def pass_on(self, worker: int, event: events.Event) -> None:
        """Handle an event of a worker; one that ends the worker waits for the worker's checkpoints."""
        is_end = isinstance(event, Exited) or (isinstance(event, events.Heard) and isinstance(event.message, _ENDINGS))
        if is_end and self._coming.get(worker):
            self._waiting.setdefault(worker, []).append(event)
        else:
            self._feed(event)

    def await_checkpoint(self, worker: int, saved: wire.Saved) -> None:
        """Handle `Saved` when the checkpoint is on this machine."""
        self._coming[worker] = self._coming.get(worker, 0) + 1
        task = asyncio.create_task(self._bring(worker, saved))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up what has not arrived."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _bring(self, worker: int, saved: wire.Saved) -> None:
        try:
            path = await self._engine.bring(worker, saved.path)
            self._feed(events.Heard(worker, msgspec.structs.replace(saved, path=path)))
        except Exception as error:  # noqa: BLE001 -- what waits for the checkpoint must go on
            self._warn(f"{Path(saved.path).name} does not count as saved: {error}")
        self._coming[worker] -= 1
        if not self._coming[worker]:
            for event in self._waiting.pop(worker, []):
                self._feed(event)
