"""Checkpoints that are still on their way from another machine: they count as saved when they have arrived.

If the worker that saved one says that it ends, its word and its end wait meanwhile, so that the job does not end before
its last checkpoint is here. The worker does not count as late then. Everything else is handled at once, also the error
or the death of such a worker: training never waits for a transfer. Only the end of the job does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from legato.core import wire
from legato.driver import events
from legato.engines.base import Engine, Exited
from legato.engines.incoming import NewerCheckpoint

_REMIND_EVERY_S: Final = 0.5
_TELL_AFTER_S: Final = 5.0
_FAREWELLS = wire.Leaving | wire.Finished


class _Coming(NamedTuple):
    step: int
    task: asyncio.Task[None]


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
        self._coming: dict[int, dict[str, _Coming]] = {}  # worker → by their paths on its machine
        self._waiting: dict[int, list[events.Event]] = {}  # of workers for whose checkpoints something waits
        self._num_skipped = 0
        self._reminding: asyncio.Task[None] | None = None

    def pass_on(self, worker: int, event: events.Event) -> None:
        """Handle an event of a worker; a worker that has said that it ends waits for its checkpoints."""
        said = event.message if isinstance(event, events.Heard) else None
        is_farewell = isinstance(said, _FAREWELLS) and worker in self._coming
        is_end = isinstance(event, Exited) or isinstance(said, wire.Failed)
        if is_farewell or (is_end and worker in self._waiting):
            self._hasten(worker).append(event)
        else:
            self._feed(event)

    def await_checkpoint(self, worker: int, saved: wire.Saved) -> None:
        """Handle `Saved` when the checkpoint is on this machine. A worker repeats it on each connection."""
        coming = self._coming.setdefault(worker, {})
        if saved.path not in coming:
            coming[saved.path] = _Coming(saved.step, asyncio.create_task(self._bring(worker, saved)))

    async def recover(self, worker: int) -> None:
        """Wait until the checkpoints are here from which a new worker may resume; it is not late meanwhile."""
        recovering = asyncio.ensure_future(self._engine.recover())
        try:
            while not (await asyncio.wait([recovering], timeout=_REMIND_EVERY_S))[0]:
                self._feed(events.Bringing(worker))
            recovering.result()
        finally:
            recovering.cancel()

    async def finish(self, saved_step: int) -> None:
        """Wait for checkpoints of later steps than ``saved_step``: the job has ended, and a next one continues it."""
        later = []
        for worker, coming in self._coming.items():
            tasks = [each.task for each in coming.values() if each.step > saved_step]
            if tasks:
                self._hasten(worker)
                later += tasks
        if later:
            await asyncio.wait(later)

    def give_up(self) -> None:
        """Give up what has not arrived: nothing waits for it any more."""
        for task in self._list_tasks():
            task.cancel()
        waiting, self._waiting = self._waiting, {}
        self._coming.clear()
        for worker_events in waiting.values():
            for event in worker_events:
                self._feed(event)

    async def close(self) -> None:
        """End, and handle nothing more."""
        tasks = [*self._list_tasks(), *([] if self._reminding is None else [self._reminding])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _list_tasks(self) -> list[asyncio.Task[None]]:
        return [each.task for coming in self._coming.values() for each in coming.values()]

    def _hasten(self, worker: int) -> list[events.Event]:
        """Bring the checkpoints of a worker faster; returns the events that wait for them."""
        self._engine.hasten(worker)
        if self._reminding is None:
            self._reminding = asyncio.create_task(self._remind())
        return self._waiting.setdefault(worker, [])

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
        del coming[saved.path]
        if not coming:
            del self._coming[worker]
            for event in self._waiting.pop(worker, []):
                self._feed(event)
