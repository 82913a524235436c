"""Finds lines in a job's log by text, level and time. Reads a bounded part at once; keeps nothing, writes nothing."""

from __future__ import annotations

import bisect
import enum
import operator
import re
import time as clock
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from legato.core.errors import NotFound
from legato.driver.log_marks import MARKS_FILE, LogEnd, read_ends
from legato.server.job_files import open_file
from legato.server.logs import MAX_MARKS_BYTES, is_of_worker, open_log, read_worker

MAX_READ_BYTES: Final = 32 * 2**20
_MAX_LINE_BYTES: Final = 2**16
_MAX_TOLD_CHARS: Final = 4000
_HEAD_CHARS: Final = 200
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_NAMED: Final = re.compile(
    r"\b(?:(DEBUG)|(INFO)|(WARN(?:ING)?|\w*Warning:)|(ERROR|CRITICAL|FATAL|Traceback \(most recent call last\)))"
    r"|\blevel[\"']?[=:] ?[\"']?(?:(debug)|(info)|(warn(?:ing)?)|(error|critical|fatal))\b"
)
_RAISED: Final = re.compile(r"[\w.]*(?:Error|Exception|Interrupt|Exit)(?::|$)")
_TRACEBACK: Final = "Traceback (most recent call last)"
_BETWEEN: Final = ("During handling of", "The above exception")
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ")


class Level(enum.StrEnum):
    """How much a line matters, as far as that stands in it."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_ORDER: Final = {level: number for number, level in enumerate(Level)}


class FoundLine(msgspec.Struct, frozen=True):
    """A line of a log.

    Args:
        offset: of its first byte.
        time: when it was written, as far as that was noted; seconds since 1970.
        level: None: none stands in it.
        text: as it was written, without its end; what is beyond 4000 characters is left out.
    """

    offset: int
    time: float | None
    level: Level | None
    text: str


class FoundLines(msgspec.Struct, frozen=True):
    """Lines of a log. ``after``: go on from this byte, also where nothing was found; None: its end was reached."""

    items: tuple[FoundLine, ...]
    after: int | None
    end: int


class LogPlace(msgspec.Struct, frozen=True):
    """Where in a log stands what was written at a moment. ``time``: when that was; None: it is not known."""

    offset: int
    time: float | None


class _Line(NamedTuple):
    offset: int
    end: int
    content: bytes


def search_log(root: Path, log: str, *, contains: str, level: Level | None, after: int, limit: int) -> FoundLines:
    """Find lines, from a byte on.

    Args:
        root: the job's directory.
        log: its name.
        contains: in the line, in small or large letters, colours left out. Empty: every line.
        level: at least this one; lines in which none stands are left out. None: any.
        after: the byte to begin with, which begins a line.
        limit: lines at most.

    Raises:
        NotFound: there is no such log.
    """
    wanted = contains.casefold()
    judge = _Judge()
    found: list[FoundLine] = []
    end = after
    with open_log(root, log) as file:
        find_time = _read_times(root, log)
        for line in _read_lines(file, after):
            if len(found) == limit or end - after > MAX_READ_BYTES:
                return FoundLines(tuple(found), line.offset, line.offset)
            end = line.end
            text = line.content.decode(errors="replace").rstrip("\r\n")
            plain = _ESCAPES.sub("", text) if "\x1b" in text else text
            is_of = judge.judge(plain)
            if wanted and wanted not in plain.casefold():
                continue
            if level is None or (is_of is not None and _ORDER[is_of] >= _ORDER[level]):
                found.append(FoundLine(line.offset, find_time(line), is_of, text[:_MAX_TOLD_CHARS]))
    return FoundLines(tuple(found), None, end)


def find_place(root: Path, log: str, time: float) -> LogPlace:
    """Return where in a log stands what was written at a moment.

    Args:
        root: the job's directory.
        log: its name.
        time: seconds since 1970.

    Raises:
        NotFound: there is no such log.
    """
    with open_log(root, log) as file:
        if not is_of_worker(log):
            return _find_stamped(file, time)
        ends = _read_ends(root, log)
        place = bisect.bisect_right(ends, time, key=operator.attrgetter("time"))
        if place == 0:
            return LogPlace(0, ends[0].time if ends else None)
        written_at = ends[place].time if place < len(ends) else ends[place - 1].time
        return LogPlace(_begin_line(file, ends[place - 1].end), written_at)


class _Judge:
    """Says of one line after the other how much it matters; the lines of a traceback matter as its error does."""

    def __init__(self) -> None:
        self._is_traceback = False

    def judge(self, text: str) -> Level | None:
        if self._is_traceback:
            if text[:1] in (" ", "\t", "") or text.startswith(_BETWEEN):
                return Level.ERROR
            # The error itself ends it; another one may follow, with a beginning of its own.
            self._is_traceback = text.startswith(_TRACEBACK)
            return Level.ERROR
        head = text[:_HEAD_CHARS]
        self._is_traceback = _TRACEBACK in head
        named = _NAMED.search(head)
        if named is not None and named.lastindex is not None:
            return tuple(Level)[(named.lastindex - 1) % len(Level)]
        return Level.ERROR if _RAISED.match(head) else None


def _read_lines(file: BinaryIO, first: int) -> Iterator[_Line]:
    """Yield the lines of a log; a very long one in parts."""
    file.seek(first)
    offset = first
    while content := file.readline(_MAX_LINE_BYTES):
        yield _Line(offset, offset + len(content), content)
        offset += len(content)


def _read_times(root: Path, log: str) -> Callable[[_Line], float | None]:
    """Return what says when a line was written."""
    if not is_of_worker(log):
        return lambda line: _read_stamp(line.content)
    ends = _read_ends(root, log)

    def find(line: _Line) -> float | None:
        place = bisect.bisect_left(ends, line.end, key=operator.attrgetter("end"))
        return ends[place].time if place < len(ends) else None

    return find


def _read_ends(root: Path, log: str) -> Sequence[LogEnd]:
    try:
        with open_file(root, ("logs", MARKS_FILE)) as file:
            return read_ends(file.read(MAX_MARKS_BYTES).splitlines(), read_worker(log))
    except NotFound:
        return ()


def _read_stamp(content: bytes) -> float | None:
    """Return the time with which a line of the driver begins: by the clock of its machine, and in its zone."""
    stamp = _STAMP.match(content)
    if stamp is None:
        return None
    try:
        return clock.mktime(clock.strptime(stamp[1].decode(), "%Y-%m-%d %H:%M:%S")) + int(stamp[2]) / 1000
    except (ValueError, OverflowError):
        return None


def _find_stamped(file: BinaryIO, time: float) -> LogPlace:
    found = LogPlace(0, None)
    for line in _read_lines(file, 0):
        written_at = _read_stamp(line.content)
        if written_at is None:
            continue
        if written_at > time and found.time is not None:
            break
        found = LogPlace(line.offset, written_at)
    return found


def _begin_line(file: BinaryIO, offset: int) -> int:
    """Return where the line begins that has this byte."""
    first = max(offset - _MAX_LINE_BYTES, 0)
    file.seek(first)
    place = file.read(offset - first).rfind(b"\n")
    return first + place + 1 if place >= 0 or first == 0 else offset
