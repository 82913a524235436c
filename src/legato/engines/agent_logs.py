"""Writes the logs that agents send into the job's files. Bytes that an agent no longer has are counted and reported.

A log is sent by offsets in the agent's file. Where the agent has dropped bytes, a line in the driver's file says how
many are missing, and later bytes are written at other offsets than in the agent's file: by `NodeRecord.shifts`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from legato.core.agent_messages import LogBytes, TookLog

_RETRY_S: Final = 2.0


class Taken(NamedTuple):
    """What became of a piece: the answer to the agent, and how many bytes before the piece are lost."""

    answer: TookLog
    num_missing: int = 0


class LogWriter:
    """Writes the logs of one machine's workers.

    Args:
        log_path: the path of a worker's log.
        shifts: worker → offset in the agent's file minus offset in the driver's; of all workers whose logs are taken.
            Workers may be removed while this writes in another thread.
        keep: writes ``shifts`` to the disk. Called before the bytes after a gap are written.
    """

    def __init__(self, log_path: Callable[[int], Path], shifts: dict[int, int], keep: Callable[[], None]) -> None:
        self._log_path = log_path
        self._shifts = shifts
        self._keep = keep

    def take(self, piece: LogBytes) -> Taken:
        """Write a piece. A repeated piece does no harm; one of a worker of another machine is ignored.

        Raises:
            OSError: it cannot be written.
        """
        worker, end = piece.worker, piece.offset + len(piece.data)
        shift = self._shifts.get(worker)
        if shift is None:
            return Taken(TookLog(worker=worker, num_bytes=end))
        path = self._log_path(worker)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            at = piece.offset - shift
            num_missing = at - size
            if num_missing > piece.num_lost:
                # Pieces before this one could not be written.
                return Taken(TookLog(worker=worker, num_bytes=size + shift, again=True))
            if num_missing <= 0:
                if at >= 0:
                    _write(descriptor, piece.data, at)
                return Taken(TookLog(worker=worker, num_bytes=end))
            told = f"\n[legato] {num_missing} bytes of this log are missing here: the worker's machine dropped them.\n"
            line = told.encode()
            self._shifts[worker] = piece.offset - size - len(line)
            self._keep()
            _write(descriptor, line + piece.data, size)
            return Taken(TookLog(worker=worker, num_bytes=end), num_missing)
        finally:
            os.close(descriptor)

    def find_end(self, worker: int) -> TookLog:
        """Return the request to send a log again from the first byte that is not there. Raises OSError."""
        try:
            size = self._log_path(worker).stat().st_size
        except FileNotFoundError:
            size = 0
        return TookLog(worker=worker, num_bytes=size + self._shifts.get(worker, 0), again=True)


class LogIntake:
    """Takes the logs of one machine: asks again for what could not be written, and reports what is lost.

    Args:
        node: name of the machine.
        writer: of its logs.
        warn: reports a sentence, without its period, to the job's user.
    """

    def __init__(self, node: str, writer: LogWriter, warn: Callable[[str], None]) -> None:
        self._node = node
        self._writer = writer
        self._warn = warn
        self._retries: dict[int, float] = {}  # worker → when to ask for its log again
        self._num_missing: dict[int, int] = {}  # worker → bytes of its log that are lost

    async def take(self, piece: LogBytes, now: float) -> TookLog | None:
        """Write a piece. Returns the answer to the agent; None: it is asked again later."""
        worker = piece.worker
        try:
            answer, num_missing = await asyncio.to_thread(self._writer.take, piece)
        except OSError as error:
            if not self._retries:
                told = f"the log of worker {worker} on {self._node} cannot be written here: {error}"
                self._warn(f"{told}. Training goes on; it is tried again, and the machine keeps the newest bytes")
            self._retries.setdefault(worker, now + _RETRY_S)
            return None
        if answer.again and worker in self._retries:
            return None
        self._retries.pop(worker, None)
        before = self._num_missing.get(worker, 0)
        self._num_missing[worker] = total = before + num_missing
        if before.bit_length() != total.bit_length():
            # Only when the number has doubled: a slow link may lose bytes all the time.
            self._warn(
                f"{total} bytes of the log of worker {worker} are missing: the machine {self._node} dropped them, "
                "because the driver did not take them in time"
            )
        return answer

    async def list_due(self, now: float) -> list[TookLog]:
        """Return the requests for logs that could not be written here before."""
        found = []
        for worker, retry_at in tuple(self._retries.items()):
            if now >= retry_at:
                self._retries[worker] = now + _RETRY_S
                with contextlib.suppress(OSError):
                    found.append(await asyncio.to_thread(self._writer.find_end, worker))
        return found


def _write(descriptor: int, data: bytes, at: int) -> None:
    while data:
        num = os.pwrite(descriptor, data, at)
        data, at = data[num:], at + num
