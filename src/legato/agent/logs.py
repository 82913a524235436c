"""Sends the workers' logs of this machine to the driver, piece by piece. Training never waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from legato.core.agent_messages import MAX_LOG_BYTES, LogBytes
from legato.driver.log_caps import find_begin

_LOOK_EVERY_S: Final = 0.15
_WINDOW_BYTES: Final = 4 * MAX_LOG_BYTES
_MAX_NUMBER_LENGTH: Final = 9


class LogSender:
    """Sends what is new in the logs of a folder.

    Args:
        folder: with the files ``worker-N.log``.
        say: sends a message; returns False without a connection.
    """

    def __init__(self, folder: Path, say: Callable[[LogBytes], bool]) -> None:
        self._folder = folder
        self._say = say
        self._sent: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self._woken = asyncio.Event()
        self._progress = asyncio.Event()

    def begin_again(self) -> None:
        """Send again what the driver has not confirmed, because the connection is new."""
        self._sent = dict(self._taken)
        self._woken.set()

    def note_taken(self, worker: int, num_bytes: int) -> None:
        """The driver has the first bytes of a log on its disk."""
        self._taken[worker] = max(num_bytes, self._taken.get(worker, 0))
        self._woken.set()
        self._progress.set()

    async def send_forever(self) -> None:
        """Send what is new, several times a second."""
        while True:
            for piece in await asyncio.to_thread(self._read_new):
                if self._say(piece):
                    self._sent[piece.worker] = piece.offset + len(piece.data)
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._woken.wait()

    async def flush(self, worker: int | None, limit_s: float) -> None:
        """Wait until the driver has a worker's log, or all logs, but no longer than ``limit_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while any(
                    self._taken.get(each, 0) < path.stat().st_size
                    for each, path in self._list().items()
                    if worker in (None, each)
                ):
                    self._progress.clear()
                    self._woken.set()
                    await self._progress.wait()

    def _list(self) -> dict[int, Path]:
        found = {}
        for path in self._folder.glob("worker-*.log"):
            number = path.stem.removeprefix("worker-")
            if number.isascii() and number.isdecimal() and len(number) <= _MAX_NUMBER_LENGTH:
                found[int(number)] = path
        return found

    def _read_new(self) -> list[LogBytes]:
        found: list[LogBytes] = []
        for worker, path in self._list().items():
            with contextlib.suppress(OSError):
                found += self._read_log(worker, path)
        return found

    def _read_log(self, worker: int, path: Path) -> list[LogBytes]:
        found: list[LogBytes] = []
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            size = os.fstat(descriptor).st_size
            at = self._sent.get(worker, 0)
            if at < size:
                at = max(at, find_begin(descriptor))  # the oldest part may have been dropped
            if worker not in self._sent:
                found.append(LogBytes(worker=worker, offset=0, data=b""))  # an empty log is a file too
            end = min(size, self._taken.get(worker, 0) + _WINDOW_BYTES)
            while at < end and (data := os.pread(descriptor, min(MAX_LOG_BYTES, end - at), at)):
                found.append(LogBytes(worker=worker, offset=at, data=data))
                at += len(data)
        finally:
            os.close(descriptor)
        return found
