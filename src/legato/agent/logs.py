"""Sends the workers' logs of this machine to the driver, piece by piece. Training never waits for it.

The logs on this machine's disk are only a buffer: what the driver has confirmed is dropped from the disk, and the log
of a worker that has ended is deleted when the driver has all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from legato.core.agent_messages import MAX_LOG_BYTES, LogBytes, TookLog
from legato.driver.log_caps import drop_first, find_begin, is_not_supported

_LOOK_EVERY_S: Final = 0.15
_WINDOW_BYTES: Final = 4 * MAX_LOG_BYTES
_MAX_NUMBER_LENGTH: Final = 9
_DROP_BYTES: Final = 2**20
"""So many confirmed bytes are dropped from the disk at once."""

_BLOCK_OF_STAT: Final = 512

Echo = Callable[[bytes], None]
"""Takes what workers print."""


class LogSender:
    """Sends what is new in the logs of a folder.

    Args:
        folder: with the files ``worker-N.log``.
        say: sends a message; returns False without a connection.
        echo: gets what is sent, each byte once; None: nothing does.
    """

    def __init__(self, folder: Path, say: Callable[[LogBytes], bool], echo: Echo | None = None) -> None:
        self._folder = folder
        self._say = say
        self._echo = echo
        self._echoed: dict[int, int] = {}
        self._sent: dict[int, int] = {}
        self._taken: dict[int, int] = {}  # what the driver has confirmed
        self._dropped: dict[int, int] = {}  # from this machine's disk, of what the driver has confirmed
        self._ended: set[int] = set()
        self._can_drop, self._is_over = True, False
        self._woken = asyncio.Event()
        self._progress = asyncio.Event()

    def begin_again(self) -> None:
        """Send again what the driver has not confirmed, because the connection is new."""
        self._sent = dict(self._taken)
        self._woken.set()

    def note_taken(self, message: TookLog) -> None:
        """Note which part of a log the driver has on its disk."""
        worker, num_bytes = message.worker, message.num_bytes
        if message.again:
            self._taken[worker] = self._sent[worker] = num_bytes
        else:
            self._taken[worker] = max(num_bytes, self._taken.get(worker, 0))
        self._woken.set()
        self._progress.set()

    def note_ended(self, workers: Iterable[int]) -> None:
        """Delete the logs of these workers when the driver has all of them: they write no more."""
        self._ended.update(workers)

    async def send_forever(self) -> None:
        """Send what is new, several times a second."""
        while True:
            for piece in await asyncio.to_thread(self._read_new):
                if self._is_over:
                    return
                if self._say(piece):
                    self._sent[piece.worker] = piece.offset + len(piece.data)
                    self._echo_new(piece)
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._woken.wait()

    def _echo_new(self, piece: LogBytes) -> None:
        """Echo a piece, unless it is sent again."""
        echoed, end = self._echoed.get(piece.worker, 0), piece.offset + len(piece.data)
        if self._echo is not None and end > echoed:
            self._echo(piece.data[max(echoed - piece.offset, 0) :])
            self._echoed[piece.worker] = end

    async def flush(self, worker: int | None, limit_s: float) -> None:
        """Wait until the driver has a worker's log, or all logs, but no longer than ``limit_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.num_unsent(worker):
                    self._progress.clear()
                    self._woken.set()
                    await self._progress.wait()

    def give_up(self) -> None:
        """Send nothing more, and tell the driver how many bytes of each log it will not get."""
        self._is_over = True
        for worker, path in self.list_logs().items():
            with contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                if num_bytes := max(size - self._sent.get(worker, 0), 0):
                    self._say(LogBytes(worker=worker, offset=size, data=b"", num_lost=num_bytes))

    def num_unsent(self, worker: int | None = None) -> int:
        """Return how many bytes of a worker's log, or of all logs, the driver has not confirmed."""
        num_bytes = 0
        for each, path in self.list_logs().items():
            with contextlib.suppress(FileNotFoundError):
                if worker in (None, each):
                    num_bytes += max(path.stat().st_size - self._taken.get(each, 0), 0)
        return num_bytes

    def list_logs(self) -> dict[int, Path]:
        """Return worker → path of the logs in the folder."""
        found = {}
        for path in self._folder.glob("worker-*.log"):
            number = path.stem.removeprefix("worker-")
            if number.isascii() and number.isdecimal() and len(number) <= _MAX_NUMBER_LENGTH:
                found[int(number)] = path
        return found

    def drop_ended(self, max_bytes: int) -> None:
        """Drop unsent bytes of workers that have ended, those of the first workers first.

        Args:
            max_bytes: of all these logs together, on the disk.

        Raises:
            OSError: this file system cannot drop parts of files.
        """
        logs = self.list_logs()
        total = 0
        for worker in sorted(self._ended & set(logs), reverse=True):
            with contextlib.suppress(FileNotFoundError):
                about = logs[worker].stat()
                total += about.st_blocks * _BLOCK_OF_STAT
                if total > max_bytes:
                    drop_first(logs[worker], about.st_size)

    # ------------------------------------------------------------ in a thread

    def _read_new(self) -> list[LogBytes]:
        found: list[LogBytes] = []
        for worker, path in self.list_logs().items():
            with contextlib.suppress(OSError):
                found += self._read_log(worker, path)
        return found

    def _read_log(self, worker: int, path: Path) -> list[LogBytes]:
        found: list[LogBytes] = []
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            size = os.fstat(descriptor).st_size
            begin = find_begin(descriptor)
            taken = self._taken.get(worker)
            if taken is not None and self._free(worker, path, size, taken):
                return found
            at = sent = self._sent.get(worker, begin)
            if at < size:
                at = max(at, begin)  # the oldest part may have been dropped
            if worker not in self._sent or at > sent:
                # An empty log is a file too, and the driver must know of what is lost.
                found.append(LogBytes(worker=worker, offset=at, data=b"", num_lost=at - sent))
            end = min(size, max(begin, taken or 0) + _WINDOW_BYTES)
            while at < end and (data := os.pread(descriptor, min(MAX_LOG_BYTES, end - at), at)):
                found.append(LogBytes(worker=worker, offset=at, data=data))
                at += len(data)
        finally:
            os.close(descriptor)
        return found

    def _free(self, worker: int, path: Path, size: int, taken: int) -> bool:
        """Free the space of what the driver has. Returns whether the log is deleted."""
        if worker in self._ended and taken >= size:
            path.unlink(missing_ok=True)
            self._ended.discard(worker)
            for known in (self._sent, self._taken, self._dropped):
                known.pop(worker, None)
            return True
        if self._can_drop and taken - self._dropped.get(worker, 0) >= _DROP_BYTES:
            try:
                drop_first(path, taken)
            except OSError as error:
                if not is_not_supported(error):
                    raise
                self._can_drop = False  # the log is deleted when its worker has ended
            self._dropped[worker] = taken
        return False
