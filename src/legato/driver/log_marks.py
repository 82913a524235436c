"""The lengths of each worker's log over time, so that lines of several logs can be put in order. Reads no log.

The driver checks once a second and writes a line about the logs that have grown. For long jobs it checks less often, to
limit the number of lines. Output between two checks has the same time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from legato.core.clock import Clock
from legato.driver.journal import JobDirectory
from legato.system.decoding import decode

MARKS_FILE: Final = "marks.jsonl"
_FIRST_PAUSE_S: Final = 1.0
_PAUSE_PER_AGE: Final = 1e-4  # a job of one day is checked every 9 s, and has some 30,000 lines at most
# The program may have put a link or a pipe there. Do not follow the link, and do not wait for the pipe.
_APPENDING: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MAX_LINE_BYTES: Final = 2**20
_MAX_STRETCHES: Final = 500_000  # for the job of one day with 16 workers that write all the time


class Mark(msgspec.Struct, frozen=True):
    """Lengths of logs at one time.

    Args:
        time: seconds since 1970.
        ends: length in bytes of each log that has grown since the previous mark, by worker.
    """

    time: float
    ends: dict[int, int]


class Stretch(NamedTuple):
    """A part of a worker's log that ends before the byte ``end`` and was written before all later stretches."""

    worker: int
    end: int


class LogMarks:
    """Writes marks.

    Args:
        directory: of the job.
        clock: monotonic seconds.
        wall_clock: seconds since 1970.
    """

    def __init__(self, directory: JobDirectory, clock: Clock, wall_clock: Callable[[], float]) -> None:
        self._logs = directory.logs
        self._clock = clock
        self._wall_clock = wall_clock
        self._began_at = clock()
        self._ends: Mapping[int, int] = {}

    async def write_forever(self) -> None:
        """Check repeatedly until cancelled."""
        while True:
            await asyncio.to_thread(self.write)
            await asyncio.sleep(max(_FIRST_PAUSE_S, (self._clock() - self._began_at) * _PAUSE_PER_AGE))

    def write(self) -> None:
        """Check once. Raises nothing: without marks, logs are shown one after the other."""
        try:
            ends = dict(_measure(self._logs))
            grown = {worker: end for worker, end in sorted(ends.items()) if end != self._ends.get(worker, 0)}
            if grown:
                with os.fdopen(os.open(self._logs / MARKS_FILE, _APPENDING, 0o666), "ab") as file:
                    file.write(msgspec.json.encode(Mark(self._wall_clock(), grown)) + b"\n")
            self._ends = ends
        except OSError:
            return


def read_marks(lines: Iterable[bytes]) -> tuple[Stretch, ...]:
    r"""Return the stretches in order of time. Lines that cannot be read, such as an incomplete one, are skipped.

    The job's program may have written anything into this file, so very long and very many lines are left out.

    >>> read_marks([b'{"time": 1, "ends": {"0": 10}}\n', b'{"time": 2, "ends": {"0": 20, "1": 5}}\n', b'{"ti'])
    (Stretch(worker=0, end=20), Stretch(worker=1, end=5))
    """
    stretches: list[Stretch] = []
    known: dict[int, int] = {}
    begun: dict[int, int] = {}
    for line in lines:
        if len(stretches) >= _MAX_STRETCHES:
            break
        mark = _read_mark(line)
        for worker, end in mark.ends.items() if mark is not None else ():
            if end == known.get(worker):
                continue
            if stretches and stretches[-1].worker == worker:
                stretches.pop()
            if end < known.get(worker, 0):
                # The file was truncated, so its earlier content is gone.
                begun[worker] = len(stretches)
            known[worker] = end
            stretches.append(Stretch(worker, end))
    return tuple(one for index, one in enumerate(stretches) if index >= begun.get(one.worker, 0))


class LogEnd(NamedTuple):
    """The length of a log at a time (seconds since 1970)."""

    time: float
    end: int


def read_ends(lines: Iterable[bytes], worker: int) -> tuple[LogEnd, ...]:
    r"""Return the lengths of one worker's log over time, since the log was last cut to nothing; both only grow.

    >>> lines = [b'{"time": 1, "ends": {"0": 10, "1": 4}}', b'{"time": 3, "ends": {"0": 12}}']
    >>> read_ends(lines, 0)
    (LogEnd(time=1.0, end=10), LogEnd(time=3.0, end=12))
    """
    found: list[LogEnd] = []
    for line in lines:
        mark = _read_mark(line)
        end = None if mark is None else mark.ends.get(worker)
        if mark is None or end is None:
            continue
        if found and end < found[-1].end:
            found.clear()
        # After a clock was set back, a line is not older than the lines before it.
        time = max(mark.time, found[-1].time) if found else mark.time
        if not found or end > found[-1].end:
            found.append(LogEnd(time, end))
        if len(found) >= _MAX_STRETCHES:
            break
    return tuple(found)


def _read_mark(line: bytes) -> Mark | None:
    if len(line) > _MAX_LINE_BYTES:
        return None
    try:
        return decode(line, Mark)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _measure(logs: os.PathLike[str]) -> Iterator[tuple[int, int]]:
    """Yield the worker and the length of each log."""
    try:
        with os.scandir(logs) as entries:
            for entry in entries:
                number = entry.name.removeprefix("worker-").removesuffix(".log")
                if entry.name == f"worker-{number}.log" and number.isascii() and number.isdecimal():
                    yield int(number), entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return
