"""What an engine does beside its connections: tasks whose errors are reported, and slow work in its order."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from legato.core.errors import LegatoError

_log = logging.getLogger(__name__)

_AFTER_FAULT_S: Final = 1.0
_MAX_BYTES: Final = 16 * 2**20
_BYTES_PER_ENTRY: Final = 1024
"""The memory of a waiting entry, without its data."""


class TaskSet:
    """Tasks that run until `cancel`. An error of one is reported, because nothing waits for their results.

    Args:
        fail: called with the error.
    """

    def __init__(self, fail: Callable[[LegatoError], None]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        """Begin a task, and return it; it may be cancelled."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._note_end)
        return task

    async def cancel(self) -> None:
        """End all tasks, and wait for their ends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("The task %s failed", task.get_name(), exc_info=error)
            self._fail(LegatoError(f"This driver cannot serve the job's machines any more: {error!r}."))


class WorkQueue:
    """Work that waits for a disk, one piece after another. The loop that reads a connection goes on meanwhile.

    Without it, a slow disk of this machine would look like a silent peer, whose messages are not read.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[[], Awaitable[None]], int]] = deque()
        self._num_bytes = 0
        self._changed = asyncio.Event()

    async def put(self, work: Callable[[], Awaitable[None]], data: bytes = b"") -> None:
        """Do something after what waits. This waits itself only while `_MAX_BYTES` of data wait.

        Args:
            work: what to do; an error ends `run`.
            data: that the work keeps in memory.
        """
        while self._num_bytes >= _MAX_BYTES:
            self._changed.clear()
            await self._changed.wait()
        num_bytes = len(data) + _BYTES_PER_ENTRY
        self._waiting.append((work, num_bytes))
        self._num_bytes += num_bytes
        self._changed.set()

    def drop(self) -> None:
        """Forget what waits, because its connection is lost: the peer sends it again. What is being done goes on."""
        self._waiting.clear()
        self._num_bytes = 0
        self._changed.set()

    async def run(self) -> None:
        """Do the work, until cancelled."""
        while True:
            while not self._waiting:
                self._changed.clear()
                await self._changed.wait()
            work, num_bytes = self._waiting.popleft()
            self._num_bytes -= num_bytes
            self._changed.set()
            await work()


async def persist(work: Callable[[], Awaitable[None]]) -> None:
    """Do something without end. It begins again after an error of the system: a disk may be full for a while."""
    while True:
        try:
            await work()
        except OSError:
            _log.exception("Work failed, and begins again in %g s", _AFTER_FAULT_S)
        await asyncio.sleep(_AFTER_FAULT_S)
