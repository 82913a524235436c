"""Checkpoints that are still on their way from another machine: they count as saved when they have arrived.

What ends the worker that saved one waits meanwhile, so that the job does not end before its last checkpoint is here.
The worker does not count as late then. Everything else is handled at once: training never waits for a transfer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from legato.core import wire
from legato.driver import events
from legato.engines.base import Engine, Exited
from legato.engines.incoming import NewerCheckpoint

_REMIND_EVERY_S: Final = 0.5
_TELL_AFTER_S: Final = 5.0
_ENDINGS = wire.Leaving | wire.Finished | wire.Failed


class Arrivals:
    """The checkpoints on their way, and the events that wait for them.

    Args:
        engine: brings checkpoints.
        feed: handles an event.
        warn: records a warning for the user.
        note: records an ordinary event for the user.
    """

    def __init__(
        self,
        engine: Engine,
        feed: Callable[[events.Event], None],
        warn: Callable[[str], None],
        note: Callable[[str], None],
    ) -> None:
        self._engine = engine
        self._feed = feed
        self._warn = warn
        self._note = note
        self._coming: dict[int, set[str]] = {}  # worker → paths on its machine
        self._waiting: dict[int, list[events.Event]] = {}
        self._num_skipped = 0
        self._reminding: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def pass_on(self, worker: int, event: events.Event) -> None:
        """Handle an event of a worker; one that ends the worker waits for the worker's checkpoints."""
        is_end = isinstance(event, Exited) or (isinstance(event, events.Heard) and isinstance(event.message, _ENDINGS))
        if is_end and self._coming.get(worker):
            self._waiting.setdefault(worker, []).append(event)
            self._engine.hasten(worker)
            if self._reminding is None:
                self._reminding = asyncio.create_task(self._remind())
        else:
            self._feed(event)

    def await_checkpoint(self, worker: int, saved: wire.Saved) -> None:
        """Handle `Saved` when the checkpoint is on this machine. A worker repeats it on each connection."""
        coming = self._coming.setdefault(worker, set())
        if saved.path in coming:
            return
        coming.add(saved.path)
        task = asyncio.create_task(self._bring(worker, saved))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def give_up(self) -> None:
        """Give up what has not arrived: nothing waits for it any more."""
        for task in self._tasks:
            task.cancel()
        waiting, self._waiting = self._waiting, {}
        self._coming.clear()
        for worker_events in waiting.values():
            for event in worker_events:
                self._feed(event)

    async def close(self) -> None:
        """End, and handle nothing more."""
        tasks = [*self._tasks, *([] if self._reminding is None else [self._reminding])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _remind(self) -> None:
        """Say again and again which workers are not late, and once to the user what the job waits for."""
        began, is_told = time.monotonic(), False
        while self._waiting:
            for worker in tuple(self._waiting):
                self._feed(events.Bringing(worker))
            if not is_told and time.monotonic() - began > _TELL_AFTER_S:
                is_told = True
                workers = ", ".join(str(worker) for worker in self._waiting)
                self._note(f"waiting until the last checkpoint of worker {workers} is on the driver's machine")
            await asyncio.sleep(_REMIND_EVERY_S)
        self._reminding = None

    async def _bring(self, worker: int, saved: wire.Saved) -> None:
        try:
            path = await self._engine.bring(worker, saved.path)
            self._feed(events.Heard(worker, msgspec.structs.replace(saved, path=path)))
        except NewerCheckpoint as error:
            self._num_skipped += 1
            if self._num_skipped & (self._num_skipped - 1) == 0:  # 1, 2, 4, 8, …
                self._warn(
                    f"{Path(saved.path).name} does not count as saved: {error}. So far that was so of "
                    f"{self._num_skipped} checkpoints: the network is slower than the interval between checkpoints"
                )
        except Exception as error:  # noqa: BLE001 -- what waits for the checkpoint must go on
            self._warn(f"{Path(saved.path).name} does not count as saved: {error}")
        coming = self._coming[worker]
        coming.discard(saved.path)
        if not coming:
            del self._coming[worker]
            for event in self._waiting.pop(worker, []):
                self._feed(event)
