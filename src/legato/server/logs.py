"""Reads logs of a job: the list of logs, parts of a log, and new lines."""

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
# Maximum number of logs in the id of a message, so that it fits into a header that proxies accept, of about 8 KiB.
_MAX_NAMED: Final = 350
_SILENT_S: Final = 60.0
MAX_MARKS_BYTES: Final = 16 * 2**20


class Piece(NamedTuple):
    """The bytes of a log from ``first`` to ``end``, without the byte at ``end``."""

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
    """Return the name of a worker's log."""
    return f"worker-{worker}"


def read_worker(log: str) -> int:
    """Return the number of the worker that a log belongs to."""
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
            continue  # the job has not started yet
        for entry in entries:
            log = entry.path.removeprefix("logs/").removesuffix(".log")
            if entry.path.startswith(pattern) and entry.path.endswith(".log") and is_log(log):
                found.append(Log(log, entry.num_bytes, entry.modified_at))
    return tuple(sorted(found, key=lambda one: (is_of_worker(one.log), len(one.log), one.log)))


def read_piece(root: Path, log: str, *, offset: int, tail: int | None, max_bytes: int) -> Piece:
    """Read a part of a log.

    Args:
        root: the job's directory.
        log: name of the log.
        offset: position of the first byte. If Legato has dropped this byte, the part begins with the oldest one that it
            still has. Not used if ``tail`` is given.
        tail: number of lines from the end. None: begin at ``offset``.
        max_bytes: maximum number of bytes.

    Raises:
        NotFound: there is no such log.
    """
    with open_log(root, log) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        first = max(offset, find_begin(file.fileno())) if tail is None else find_tail(file, tail, max_bytes)
        file.seek(min(first, num_bytes))
        content = file.read(min(max_bytes, max(num_bytes - first, 0)))
        if first + len(content) < num_bytes:
            content = _cut_incomplete_character(content)
        return Piece(content, first, first + len(content))


def find_tail(file: BinaryIO, num_lines: int, max_bytes: int) -> int:
    """Return where the last ``num_lines`` lines of a file begin, but at most ``max_bytes`` before its end."""
    end = os.fstat(file.fileno()).st_size
    first = max(end - max_bytes, find_begin(file.fileno()))
    file.seek(first)
    content = file.read(end - first)
    # The line break at the end of the file does not begin another line.
    place = max(len(content) - 1, 0) if num_lines else len(content) - 1
    for _ in range(num_lines):
        place = content.rfind(b"\n", 0, place)
        if place < 0:
            return first
    return first + place + 1


class Addition(NamedTuple):
    """Text that was added to a log. ``end``: position of the byte after it."""

    log: str
    text: str
    end: int


class Place(NamedTuple):
    """How far the logs of a job were sent.

    Args:
        positions: position of the next byte to send, by log.
        quiet_until: a log that is not in ``positions`` was sent to its end if it was last written at or before this
            time, in seconds since 1970 by the clock of the file system. None: logs not in ``positions`` were not sent.
    """

    positions: Mapping[str, int]
    quiet_until: float | None = None


class Reader:
    """Reads what is added to the logs of a job, and keeps how far it has read.

    Lines that exist already come in order of time, as exactly as the job's driver has noted it.

    Args:
        root: the job's directory.
        chosen: logs to read. Empty: those of all workers, including workers that join later.
        place: how far the logs were sent before.
        is_bounded: read only what exists at the first call of `read`.
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
        """How far the logs were sent. Leaves out logs that are covered by `Place.quiet_until`."""
        named = {log: at for log, at in self._positions.items() if log not in self._quiet}
        return Place(named, self._quiet_until)

    def skip_to_tail(self, num_lines: int) -> None:
        """Begin with the last ``num_lines`` lines of each log that exists now."""
        for found in self._list():
            with open_log(self._root, found.log) as file:
                self._positions[found.log] = find_tail(file, num_lines, MAX_BYTES)

    def read(self, *, is_last: bool) -> list[Addition]:
        """Return new text of the logs: from each log at most a part of it. Empty: there is nothing new.

        The caller must call `note` with each addition that it has sent.

        Args:
            is_last: the logs will not grow any more, so also return an incomplete last line.
        """
        listed = self._list()
        self._forget_quiet(listed)
        added = self._read_past(listed)
        if added:
            return added
        for found in listed:
            addition = self._read_one(found.log, self._find_position(found), found.num_bytes, is_last=is_last)
            if addition is not None:
                added.append(addition)
        return added

    def _read_past(self, listed: list[Log]) -> list[Addition]:
        """Return the next part of what existed at the first call, in order of time. Empty: all of it was read."""
        if self._past is None:
            self._past = deque(_read_past(self._root))
        there = {found.log: found for found in listed}
        added: list[Addition] = []
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
                added.append(addition)
                upto[found.log] = addition.end
                num_chars += len(addition.text)
            if addition is None or addition.end >= end:
                self._past.popleft()
        return added

    def _read_one(self, log: str, at: int, end: int, *, is_last: bool) -> Addition | None:
        """Return the text of a log from the byte ``at`` to ``end``, or the first part of it. None: no whole line."""
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
            lines = _cut_incomplete_character(content)
        elif not lines and is_last:
            lines = content
        return Addition(log, lines.decode(errors="replace"), at + len(lines)) if lines else None

    def note(self, addition: Addition) -> None:
        """Note that an addition was sent."""
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
        """If `place` names too many logs, leave out those that were sent to their end and grew last the longest ago."""
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
    """Return a place as the id of a message.

    >>> render_place(Place({"worker-0": 12, "worker-1": 0}))
    'worker-0=12,worker-1=0'
    >>> render_place(Place({"worker-7": 3}, quiet_until=1800000000.5))
    'quiet=1800000000.5,worker-7=3'
    """
    parts = [] if place.quiet_until is None else [f"{_QUIET}={place.quiet_until!r}"]
    return ",".join((*parts, *(f"{log}={position}" for log, position in place.positions.items())))


def read_place(text: str) -> Place:
    """Read a place that `render_place` wrote.

    Raises:
        Problem: the text is not such a place.
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
    """Return the parts of the workers' logs in the order in which they were written, as the driver noted it."""
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
    """Return whether a path of a job's file is that of a log.

    >>> is_log_file("logs/worker-0.log"), is_log_file("driver.log"), is_log_file("work/logs/worker-0.log")
    (True, True, False)
    """
    return path.endswith(".log") and is_log(path.removeprefix("logs/").removesuffix(".log"))


def shorten(root: Path, entry: Entry) -> Entry:
    """Return the entry of a file with the number of bytes that a download has: that of a log without dropped bytes."""
    if not is_log_file(entry.path):
        return entry
    try:
        with open_file(root, tuple(entry.path.split("/"))) as file:
            return msgspec.structs.replace(entry, num_bytes=max(entry.num_bytes - find_begin(file.fileno()), 0))
    except NotFound:
        return entry


def _cut_incomplete_character(content: bytes) -> bytes:
    """Cut an incomplete UTF-8 character off the end, unless the content is nothing else."""
    for length in range(1, min(4, len(content)) + 1):
        byte = content[-length]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return content[:-length] if length < needed and length < len(content) else content
    return content
