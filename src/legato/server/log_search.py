"""Finds lines in a job's log by text, level and time. Reads a bounded part at once; keeps nothing, writes nothing."""

from __future__ import annotations

import bisect
import enum
import operator
import os
import re
import time as clock
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from legato.core.errors import NotFound
from legato.driver.log_caps import find_begin
from legato.driver.log_marks import MARKS_FILE, LogEnd, read_ends
from legato.server.job_files import open_file
from legato.server.logs import MAX_MARKS_BYTES, is_of_worker, open_log, read_worker

MAX_READ_BYTES: Final = 8 * 2**20
_MAX_TOLD_BYTES: Final = 4 * 2**20
_MAX_GAP_BYTES: Final = 2**18
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
_BETWEEN: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
_RAISED_LAST: Final = re.compile(r"(?!(?:DEBUG|INFO|WARNING|WARN)\b)[^\W\d][\w.<>]*(?::|$)")
_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3}) ")


class Level(enum.StrEnum):
    """How much a line matters, as far as that is in it."""

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
        level: None: none is in it.
        text: as it was written, without its end; what is beyond 4000 characters is left out.
    """

    offset: int
    time: float | None
    level: Level | None
    text: str


class FoundLines(msgspec.Struct, frozen=True):
    """Lines of a log. ``after``: continue from this byte, also where nothing was found; None: its end was reached."""

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
    found: list[FoundLine] = []
    num_told = 0
    with open_log(root, log) as file:
        end = after = max(after, find_begin(file.fileno()))
        find_time = _read_times(root, log)
        judge = _judge_before(file, after)
        for line in _read_lines(file, after):
            if len(found) == limit or end - after > MAX_READ_BYTES or num_told > _MAX_TOLD_BYTES:
                return FoundLines(tuple(found), line.offset, line.offset)
            end = line.end
            text = line.content.decode(errors="replace").rstrip("\r\n")
            plain = _strip(text)
            is_of = judge.judge(plain)
            if wanted and wanted not in plain.casefold():
                continue
            if level is None or (is_of is not None and _ORDER[is_of] >= _ORDER[level]):
                found.append(FoundLine(line.offset, find_time(line), is_of, text[:_MAX_TOLD_CHARS]))
                num_told += min(len(line.content), _MAX_TOLD_CHARS)
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
        begin = find_begin(file.fileno())
        if not is_of_worker(log):
            return _find_stamped(file, time, begin)
        ends = _read_ends(root, log)
        place = bisect.bisect_right(ends, time, key=operator.attrgetter("time"))
        if place == 0:
            return LogPlace(begin, ends[0].time if ends else None)
        written_at = ends[place].time if place < len(ends) else ends[place - 1].time
        return LogPlace(max(_begin_line(file, ends[place - 1].end), begin), written_at)


class _Judge:
    """Says of one line after the other how much it matters; the lines of a traceback matter as its first one does."""

    def __init__(self) -> None:
        self._of_traceback: Level | None = None  # in which the line before is

    def judge(self, text: str) -> Level | None:
        level = self._of_traceback
        if level is not None:
            if text[:1] in (" ", "\t", ""):
                return level
            self._of_traceback = None
            # The error itself ends it. What is no error was written in between, or the traceback was cut off.
            if _RAISED_LAST.match(text):
                return level
        head = text[:_HEAD_CHARS]
        found = _find_level(head)
        if _TRACEBACK in head:
            self._of_traceback = found
        return found


def _find_level(head: str) -> Level | None:
    named = _NAMED.search(head)
    if named is not None and named.lastindex is not None:
        return tuple(Level)[(named.lastindex - 1) % len(Level)]
    return Level.ERROR if _RAISED.match(head) or head.startswith(_BETWEEN) else None


def _judge_before(file: BinaryIO, after: int) -> _Judge:
    """Return the judge for the lines from a byte on: whether they are of a traceback is in those before."""
    judge = _Judge()
    first = max(after - _MAX_LINE_BYTES, 0)
    file.seek(first)
    lines = file.read(after - first).split(b"\n")[:-1]
    for line in lines[1:] if first else lines:
        judge.judge(_strip(line.decode(errors="replace").rstrip("\r")))
    return judge


def _strip(text: str) -> str:
    """Return a line without its colours."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


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


def _find_stamped(file: BinaryIO, time: float, begin: int) -> LogPlace:
    """Return the last line that was written until then, or else the first one that has a time.

    The log is halved again and again, since it was written in order of time: of the longest one few pieces are read.
    Where long stretches have no times, it may be a line before the last one.
    """
    high = os.fstat(file.fileno()).st_size
    found = _find_stamp(file, begin, high)
    if found is None:
        return LogPlace(begin, None)
    place, written_at = found
    low = place
    while high - low > _MAX_LINE_BYTES:
        middle = (low + high) // 2
        found = _find_stamp(file, _begin_line(file, middle), high)
        if found is None or found[1] > time:
            high = middle
        else:
            place, written_at = found
            low = max(place, middle)
    for line in _read_lines(file, _begin_line(file, low)):
        stamp = _read_stamp(line.content)
        if line.offset >= high or (stamp is not None and stamp > time):
            break
        if stamp is not None:
            place, written_at = line.offset, stamp
    return LogPlace(place, written_at)


def _find_stamp(file: BinaryIO, first: int, end: int) -> tuple[int, float] | None:
    """Return the first line from a byte on that has a time, and that; None: there is none, or not before long."""
    for line in _read_lines(file, first):
        if line.offset >= min(end, first + _MAX_GAP_BYTES):
            return None
        stamp = _read_stamp(line.content)
        if stamp is not None:
            return line.offset, stamp
    return None


def _begin_line(file: BinaryIO, offset: int) -> int:
    """Return where the line begins that has this byte."""
    first = max(offset - _MAX_LINE_BYTES, 0)
    file.seek(first)
    place = file.read(offset - first).rfind(b"\n")
    return first + place + 1 if place >= 0 or first == 0 else offset
