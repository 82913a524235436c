"""Logs of a job: their list, pieces of them, and new lines. Writes nothing; waits for nothing."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from legato.api.outputs import Log
from legato.core.errors import NotFound
from legato.driver.log_caps import find_begin
from legato.driver.log_marks import MARKS_FILE, Stretch, read_marks
from legato.server.job_files import Entry, list_files, open_file
from legato.server.problems import Problem

MAX_BYTES: Final = 4 * 2**20
_CHUNK_BYTES: Final = 2**16
_DRIVER: Final = "driver"
_WORKER: Final = re.compile(r"worker-(0|[1-9][0-9]{0,8})")
_MAX_OFFSET: Final = 2**53
_QUIET: Final = "quiet"
_SECONDS: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})?")
# So many fit into a header that servers and proxies take: some 8 KiB.
_MAX_NAMED: Final = 350
_SILENT_S: Final = 60.0
MAX_MARKS_BYTES: Final = 16 * 2**20


class Piece(NamedTuple):
    """Bytes of a log from ``first`` up to, and without, ``end``."""

    content: bytes
    first: int
    end: int


def is_log(log: str) -> bool:
    """Return whether a log may have this name.

    >>> is_log("worker-3"), is_log("driver"), is_log("worker-../driver")
    (True, True, False)
    """
    return log == _DRIVER or _WORKER.fullmatch(log) is not None


def name_log(worker: int) -> str:
    """Return what the log of a worker is called."""
    return f"worker-{worker}"


def read_worker(log: str) -> int:
    """Return the number of the worker whose log it is."""
    return int(log.removeprefix("worker-"))


def is_of_worker(log: str) -> bool:
    """Return whether a log is a worker's."""
    return log != _DRIVER


def list_logs(root: Path) -> tuple[Log, ...]:
    """Return the logs of a job, the driver's first, then by number of the worker."""
    found = []
    for folder, pattern in ((), "driver.log"), (("logs",), "logs/"):
        try:
            entries = list_files(root, folder, is_recursive=False).items
        except NotFound:
            continue  # it has not begun
        for entry in entries:
            log = entry.path.removeprefix("logs/").removesuffix(".log")
            if entry.path.startswith(pattern) and entry.path.endswith(".log") and is_log(log):
                found.append(Log(log, entry.num_bytes, entry.modified_at))
    return tuple(sorted(found, key=lambda one: (is_of_worker(one.log), len(one.log), one.log)))


def read_piece(root: Path, log: str, *, offset: int, tail: int | None, max_bytes: int) -> Piece:
    """Read a piece of a log.

    Args:
        root: the job's directory.
        log: its name.
        offset: of the first byte, or of one that was dropped meanwhile; counts unless ``tail`` is given.
        tail: so many lines from the end.
        max_bytes: at most so many.

    Raises:
        NotFound: there is no such log.
    """
    with open_log(root, log) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        first = max(offset, find_begin(file.fileno())) if tail is None else find_tail(file, tail, max_bytes)
        file.seek(min(first, num_bytes))
        content = file.read(min(max_bytes, max(num_bytes - first, 0)))
        if first + len(content) < num_bytes:
            content = _whole_letters(content)
        return Piece(content, first, first + len(content))


def find_tail(file: BinaryIO, num_lines: int, max_bytes: int) -> int:
    """Return where the last lines of a file begin, at most so many bytes before its end."""
    end = os.fstat(file.fileno()).st_size
    first = max(end - max_bytes, find_begin(file.fileno()))
    file.seek(first)
    content = file.read(end - first)
    # The end of the last line does not begin another one.
    place = max(len(content) - 1, 0) if num_lines else len(content) - 1
    for _ in range(num_lines):
        place = content.rfind(b"\n", 0, place)
        if place < 0:
            return first
    return first + place + 1


class Addition(NamedTuple):
    """What was added to a log, up to, and without, the byte ``end``."""

    log: str
    text: str
    end: int


class Place(NamedTuple):
    """How far the logs of a job were sent.

    Args:
        positions: by log.
        quiet_until: what is not named, and was last written at or before this, was sent to its end. Seconds since 1970,
            by the clock of the files. None: what is not named was not told.
    """

    positions: Mapping[str, int]
    quiet_until: float | None = None


class Reader:
    """Reads what is added to the logs of a job; keeps how far it is.

    What is there already comes in order of time, as far as the job's driver has noted that.

    Args:
        root: the job's directory.
        chosen: logs to read. Empty: those of all workers, also of those that come later.
        place: how far they were sent before.
        is_bounded: what is added after the first look is left out.
    """

    def __init__(self, root: Path, chosen: Collection[str], place: Place, *, is_bounded: bool = False) -> None:
        self._past: deque[Stretch] | None = None
        self._bounds: dict[str, int] | None = None
        self._is_bounded = is_bounded
        self._root = root
        self._chosen = frozenset(chosen)
        self._positions = dict(place.positions)
        self._quiet_until = place.quiet_until
        self._quiet: set[str] = set()

    @property
    def place(self) -> Place:
        """How far the logs were sent; as short as possible, however many workers there were."""
        named = {log: at for log, at in self._positions.items() if log not in self._quiet}
        return Place(named, self._quiet_until)

    def skip_to_tail(self, num_lines: int) -> None:
        """Begin with the last lines of each log that there is now."""
        for found in self._list():
            with open_log(self._root, found.log) as file:
                self._positions[found.log] = find_tail(file, num_lines, MAX_BYTES)

    def read(self, *, is_last: bool) -> list[Addition]:
        """Return what is new, a part of each log at most; empty if there is nothing. Each is to be given to `note`.

        Args:
            is_last: nothing will be added any more, so lines without an end count too.
        """
        told = []
        listed = self._list()
        self._forget_quiet(listed)
        told = self._read_past(listed)
        if told:
            return told
        for found in listed:
            addition = self._read_one(found.log, self._find_position(found), found.num_bytes, is_last=is_last)
            if addition is not None:
                told.append(addition)
        return told

    def _read_past(self, listed: list[Log]) -> list[Addition]:
        """Return what comes next of what was there at the first look, in order of time; empty if nothing is left."""
        if self._past is None:
            self._past = deque(_read_past(self._root))
        there = {found.log: found for found in listed}
        told: list[Addition] = []
        upto: dict[str, int] = {}
        num_chars = 0
        while self._past and num_chars < _CHUNK_BYTES:
            stretch = self._past[0]
            found = there.get(name_log(stretch.worker))
            if found is None:
                self._past.popleft()
                continue
            at = upto.get(found.log, self._find_position(found))
            end = min(stretch.end, found.num_bytes)
            addition = self._read_one(found.log, at, end, is_last=False)
            if addition is not None:
                told.append(addition)
                upto[found.log] = addition.end
                num_chars += len(addition.text)
            if addition is None or addition.end >= end:
                self._past.popleft()
        return told

    def _read_one(self, log: str, at: int, end: int, *, is_last: bool) -> Addition | None:
        """Return what is in a log from one byte up to another, at most a part of it; None if nothing is to tell."""
        if end <= at:
            return None
        try:
            with open_log(self._root, log) as file:
                at = max(at, find_begin(file.fileno()))
                if end <= at:
                    return None
                file.seek(at)
                content = file.read(min(_CHUNK_BYTES, end - at))
        except NotFound:
            return None
        lines = content[: content.rfind(b"\n") + 1]
        if not lines and len(content) == _CHUNK_BYTES:
            lines = _whole_letters(content)
        elif not lines and is_last:
            lines = content
        return Addition(log, lines.decode(errors="replace"), at + len(lines)) if lines else None

    def note(self, addition: Addition) -> None:
        """Note that this is sent."""
        self._positions[addition.log] = addition.end
        self._quiet.discard(addition.log)

    def _list(self) -> list[Log]:
        found = list_logs(self._root)
        listed = [one for one in found if (one.log in self._chosen if self._chosen else is_of_worker(one.log))]
        if not self._is_bounded:
            return listed
        if self._bounds is None:
            self._bounds = {one.log: one.num_bytes for one in listed}
        bounds = self._bounds
        return [
            msgspec.structs.replace(one, num_bytes=min(one.num_bytes, bounds[one.log]))
            for one in listed
            if one.log in bounds
        ]

    def _find_position(self, found: Log) -> int:
        at = self._positions.get(found.log)
        if at is None:
            is_quiet = self._quiet_until is not None and found.modified_at <= self._quiet_until
            at = self._positions[found.log] = found.num_bytes if is_quiet else 0
            if is_quiet:
                self._quiet.add(found.log)
        return at

    def _forget_quiet(self, listed: list[Log]) -> None:
        """Name no more, where there are many, the logs that were sent to their end and are silent for longest."""
        num_named = len(self._positions) - len(self._quiet)
        if num_named <= _MAX_NAMED:
            return
        newest = max((found.modified_at for found in listed), default=0.0)
        silent = [
            found
            for found in listed
            if found.log not in self._quiet
            and found.modified_at < newest - _SILENT_S
            and self._find_position(found) >= found.num_bytes
        ]
        silent.sort(key=lambda found: found.modified_at)
        for found in silent[: num_named - _MAX_NAMED]:
            self._quiet.add(found.log)
            self._quiet_until = max(self._quiet_until or 0.0, found.modified_at)


def render_place(place: Place) -> str:
    """Return how far logs were sent as the id of a message.

    >>> render_place(Place({"worker-0": 12, "worker-1": 0}))
    'worker-0=12,worker-1=0'
    >>> render_place(Place({"worker-7": 3}, quiet_until=1800000000.5))
    'quiet=1800000000.5,worker-7=3'
    """
    parts = [] if place.quiet_until is None else [f"{_QUIET}={place.quiet_until!r}"]
    return ",".join((*parts, *(f"{log}={position}" for log, position in place.positions.items())))


def read_place(text: str) -> Place:
    """Read what `render_place` wrote.

    Raises:
        Problem: it is something else.
    """
    positions = {}
    quiet_until = None
    for part in text.split(","):
        log, _, number = part.partition("=")
        if log == _QUIET and quiet_until is None and _SECONDS.fullmatch(number):
            quiet_until = float(number)
        elif is_log(log) and number.isascii() and number.isdecimal() and int(number) <= _MAX_OFFSET:
            positions[log] = int(number)
        else:
            raise Problem("bad-request", "Cannot read 'Last-Event-ID': send the id of a message unchanged.")
    return Place(positions, quiet_until)


def _read_past(root: Path) -> tuple[Stretch, ...]:
    """Return in which order logs were written, as far as that was noted."""
    try:
        with open_file(root, ("logs", MARKS_FILE)) as file:
            return read_marks(file.read(MAX_MARKS_BYTES).splitlines())
    except NotFound:
        return ()


def open_log(root: Path, log: str) -> BinaryIO:
    """Open a log of a job.

    Raises:
        NotFound: there is no such log.
    """
    if not is_log(log):
        raise NotFound(f"There is no log '{log[:100]}'. Logs are called 'driver' and 'worker-N'.")
    try:
        return open_file(root, ("driver.log",) if log == _DRIVER else ("logs", f"{log}.log"))
    except NotFound:
        raise NotFound(
            f"The job has no log '{log}', or it does not exist yet. List its logs to see which there are."
        ) from None


def is_log_file(path: str) -> bool:
    """Return whether a path of a job's files is a log's.

    >>> is_log_file("logs/worker-0.log"), is_log_file("driver.log"), is_log_file("work/logs/worker-0.log")
    (True, True, False)
    """
    return path.endswith(".log") and is_log(path.removeprefix("logs/").removesuffix(".log"))


def shorten(root: Path, entry: Entry) -> Entry:
    """Return an entry with the bytes that are sent of the file: of a log, those that were not dropped."""
    if not is_log_file(entry.path):
        return entry
    try:
        with open_file(root, tuple(entry.path.split("/"))) as file:
            return msgspec.structs.replace(entry, num_bytes=max(entry.num_bytes - find_begin(file.fileno()), 0))
    except NotFound:
        return entry


def _whole_letters(content: bytes) -> bytes:
    """Leave out the beginning of a letter at the end, unless nothing else is there."""
    for length in range(1, min(4, len(content)) + 1):
        byte = content[-length]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return content[:-length] if length < needed and length < len(content) else content
    return content
