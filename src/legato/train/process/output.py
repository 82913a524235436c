"""Lets a program print although its log cannot be written: output is lost and counted, and training goes on.

A full disk would otherwise raise OSError in each `print`. The log says how many bytes are missing as soon as it can be
written again, and the job's user gets an event.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Final, TextIO

_STANDARD: Final = {1: "stdout", 2: "stderr"}


class OutputGuard:
    """Counts what the streams of a worker could not write.

    Args:
        say: sends a message to the job's user: its level and its text. Called by the thread that prints.
    """

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self._say = say
        self._pid = os.getpid()
        self._num_lost = self._num_lost_ever = self._num_outages = 0
        self._reason = ""

    def install(self) -> None:
        """Replace ``sys.stdout`` and ``sys.stderr``, unless something else has replaced them already."""
        for descriptor, name in _STANDARD.items():
            stream: TextIO = getattr(sys, name)
            if not _writes_to(stream, descriptor):
                continue
            stream.flush()
            raw: io.RawIOBase = _LogFile(descriptor, self)
            guarded = io.TextIOWrapper(
                io.BufferedWriter(raw), encoding=stream.encoding, errors=stream.errors, line_buffering=True
            )
            setattr(sys, name, guarded)
            setattr(sys, f"__{name}__", guarded)

    def note_lost(self, num_bytes: int, error: OSError) -> None:
        """Count bytes that could not be written."""
        is_first = not self._num_lost
        self._num_lost += num_bytes
        self._reason = error.strerror or str(error)
        if is_first:
            self._num_outages += 1
            self._tell(
                f"its log cannot be written: {self._reason}. Training goes on, and what the program prints is lost "
                "until the log can be written again"
            )

    def take_lost(self) -> bytes:
        """Return the line that says how many bytes are missing at this place; empty if none are."""
        if not self._num_lost:
            return b""
        return f"\n[legato] {self._num_lost} bytes of output are missing here: {self._reason}.\n".encode()

    def note_written(self) -> None:
        """The line of `take_lost` is in the log."""
        lost, self._num_lost = self._num_lost, 0
        self._num_lost_ever += lost
        self._tell(f"its log is written again; {lost} bytes of output were lost ({self._num_lost_ever} in all)")

    def close(self) -> None:
        """Report what is lost at the end of the program."""
        if self._num_lost:
            self._num_outages = 1  # the last message is not left out
            self._tell(f"the last {self._num_lost} bytes of its output were lost: {self._reason}")

    def _tell(self, text: str) -> None:
        # Only of outages 1, 2, 4, 8, …: a disk may be full again and again. Child processes have no connection.
        if self._num_outages & (self._num_outages - 1) == 0 and os.getpid() == self._pid:
            self._say("warning", text)


class _LogFile(io.FileIO):
    """The log, as the lowest layer of a stream: its writes do not fail."""

    def __init__(self, descriptor: int, guard: OutputGuard) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._guard = guard

    def write(self, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Write bytes, or count them as lost."""
        num_bytes = memoryview(data).nbytes
        try:
            if told := self._guard.take_lost():
                if super().write(told) != len(told):
                    self._guard.note_lost(num_bytes, OSError(0, "the disk is full"))
                    return num_bytes
                self._guard.note_written()
            num_written = super().write(data)
            if num_written is None:
                raise BlockingIOError(errno.EAGAIN, "it is a pipe that is full, and does not let the program wait")
            return num_written
        except OSError as error:
            self._guard.note_lost(num_bytes, error)
            return num_bytes


def _writes_to(stream: TextIO, descriptor: int) -> bool:
    try:
        return stream.fileno() == descriptor
    except io.UnsupportedOperation:
        return False
