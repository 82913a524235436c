"""Finds lines in a job's log by text, level and time. Each search reads a bounded part of the log."""

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
_MAX_FOUND_BYTES: Final = 4 * 2**20
_MAX_GAP_BYTES: Final = 2**18
_MAX_LINE_BYTES: Final = 2**16
_MAX_SHOWN_CHARS: Final = 4000
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
    """The level of a line of a log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


_ORDER: Final = {level: number for number, level in enumerate(Level)}


class FoundLine(msgspec.Struct, frozen=True):
    """A line of a log.

    Args:
        offset: position of its first byte in the log.
        time: when it was written, as exactly as the driver noted it; seconds since 1970. Null: not known.
        level: the level that the line or its traceback has. Null: none.
        text: the line as it was written, without its line break; at most 4000 characters.
    """

    offset: int
    time: float | None
    level: Level | None
    text: str


class FoundLines(msgspec.Struct, frozen=True):
    """Lines of a log that a search has found.

    Args:
        items: the lines.
        after: continue the search at this byte, also if nothing was found. Null: the search reached the end of the log.
        end: the byte at which the search ended.
    """

    items: tuple[FoundLine, ...]
    after: int | None
    end: int


class LogPlace(msgspec.Struct, frozen=True):
    """The place in a log that was written at a given time.

    Args:
        offset: position of the first byte of the line.
        time: when that part of the log was written, seconds since 1970. Null: the driver noted no time.
    """

    offset: int
    time: float | None


class _Line(NamedTuple):
    offset: int
    end: int
    content: bytes


def search_log(root: Path, log: str, *, contains: str, level: Level | None, after: int, limit: int) -> FoundLines:
    """Find lines of a log, from a byte on.

    Args:
        root: the job's directory.
        log: name of the log.
        contains: text in the line, regardless of case and without colours. Empty: every line.
        level: minimum level; lines without a level are left out. None: every line.
        after: position of the byte to begin with, which must be the first of a line.
        limit: maximum number of lines.

    Raises:
        NotFound: there is no such log.
    """
    wanted = contains.casefold()
    found: list[FoundLine] = []
    num_found_bytes = 0
    with open_log(root, log) as file:
        end = after = max(after, find_begin(file.fileno()))
        find_time = _read_times(root, log)
        tracker = _track_before(file, after)
        for line in _read_lines(file, after):
            if len(found) == limit or end - after > MAX_READ_BYTES or num_found_bytes > _MAX_FOUND_BYTES:
                return FoundLines(tuple(found), line.offset, line.offset)
            end = line.end
            text = line.content.decode(errors="replace").rstrip("\r\n")
            plain = _strip(text)
            line_level = tracker.find(plain)
            if wanted and wanted not in plain.casefold():
                continue
            if level is None or (line_level is not None and _ORDER[line_level] >= _ORDER[level]):
                found.append(FoundLine(line.offset, find_time(line), line_level, text[:_MAX_SHOWN_CHARS]))
                num_found_bytes += min(len(line.content), _MAX_SHOWN_CHARS)
    return FoundLines(tuple(found), None, end)


def find_place(root: Path, log: str, time: float) -> LogPlace:
    """Return the line of a log that was being written at a given time.

    Args:
        root: the job's directory.
        log: name of the log.
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


class _LevelTracker:
    """Finds the levels of consecutive lines. All lines of a traceback have the level of its first line."""

    def __init__(self) -> None:
        self._of_traceback: Level | None = None  # level of the traceback to which the line before belongs

    def find(self, text: str) -> Level | None:
        """Return the level of the next line."""
        level = self._of_traceback
        if level is not None:
            if text[:1] in (" ", "\t", ""):
                return level
            self._of_traceback = None
            # The line with the error ends a traceback. Any other line means that it was interrupted or cut off.
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


def _track_before(file: BinaryIO, after: int) -> _LevelTracker:
    """Return a tracker for the lines from a byte on. It has read the lines before, which may begin a traceback."""
    tracker = _LevelTracker()
    first = max(after - _MAX_LINE_BYTES, 0)
    file.seek(first)
    lines = file.read(after - first).split(b"\n")[:-1]
    for line in lines[1:] if first else lines:
        tracker.find(_strip(line.decode(errors="replace").rstrip("\r")))
    return tracker


def _strip(text: str) -> str:
    """Return a line without escape sequences of terminals, such as colours."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def _read_lines(file: BinaryIO, first: int) -> Iterator[_Line]:
    """Yield the lines of a log from a byte on. A line of more than 64 KiB comes in parts."""
    file.seek(first)
    offset = first
    while content := file.readline(_MAX_LINE_BYTES):
        yield _Line(offset, offset + len(content), content)
        offset += len(content)


def _read_times(root: Path, log: str) -> Callable[[_Line], float | None]:
    """Return a function that returns when a line was written, in seconds since 1970. None: not known."""
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
    """Return the time at the beginning of a line of the driver, in seconds since 1970.

    The line has the local time of the driver's machine; this function reads it in the time zone of the server.
    """
    stamp = _STAMP.match(content)
    if stamp is None:
        return None
    try:
        return clock.mktime(clock.strptime(stamp[1].decode(), "%Y-%m-%d %H:%M:%S")) + int(stamp[2]) / 1000
    except (ValueError, OverflowError):
        return None


def _find_stamped(file: BinaryIO, time: float, begin: int) -> LogPlace:
    """Return the last line that was written at or before a time. If there is none, return the first line with a time.

    This is a binary search, because lines are in order of time, so it reads only a few parts of a long log. Where long
    parts have no times, it may return an earlier line.
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
    """Return the offset and the time of the first line from a byte on that has a time.

    None: no such line begins before ``end`` and within the next 256 KiB.
    """
    for line in _read_lines(file, first):
        if line.offset >= min(end, first + _MAX_GAP_BYTES):
            return None
        stamp = _read_stamp(line.content)
        if stamp is not None:
            return line.offset, stamp
    return None


def _begin_line(file: BinaryIO, offset: int) -> int:
    """Return where the line with this byte begins. Returns ``offset`` itself if that is more than 64 KiB before it."""
    first = max(offset - _MAX_LINE_BYTES, 0)
    file.seek(first)
    place = file.read(offset - first).rfind(b"\n")
    return first + place + 1 if place >= 0 or first == 0 else offset
