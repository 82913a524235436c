"""Logs of a job: which there are, pieces of them, and what was added since. Writes nothing; waits for nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from legato.core.errors import NotFound
from legato.server.job_files import list_files, open_file
from legato.server.problems import Problem

MAX_BYTES: Final = 4 * 2**20
_CHUNK_BYTES: Final = 2**16
_DRIVER: Final = "driver"
_WORKER: Final = re.compile(r"worker-(0|[1-9][0-9]{0,8})")
_MAX_OFFSET: Final = 2**53


class Log(msgspec.Struct, frozen=True):
    """A log of a job: ``driver`` or ``worker-N``."""

    log: str
    num_bytes: int
    modified_at: float


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
        offset: of the first byte; counts unless ``tail`` is given.
        tail: so many lines from the end.
        max_bytes: at most so many.

    Raises:
        NotFound: there is no such log.
    """
    with _open(root, log) as file:
        num_bytes = os.fstat(file.fileno()).st_size
        first = offset if tail is None else find_tail(file, tail, max_bytes)
        file.seek(min(first, num_bytes))
        content = file.read(min(max_bytes, max(num_bytes - first, 0)))
        if first + len(content) < num_bytes:
            content = _whole_letters(content)
        return Piece(content, first, first + len(content))


def find_tail(file: BinaryIO, num_lines: int, max_bytes: int) -> int:
    """Return where the last lines of a file begin, at most so many bytes before its end."""
    end = os.fstat(file.fileno()).st_size
    first = max(end - max_bytes, 0)
    file.seek(first)
    content = file.read(end - first)
    # The end of the last line does not begin another one.
    place = max(len(content) - 1, 0) if num_lines else len(content) - 1
    for _ in range(num_lines):
        place = content.rfind(b"\n", 0, place)
        if place < 0:
            return first
    return first + place + 1


class Reader:
    """Reads what is added to the logs of a job; keeps how far it is.

    Args:
        root: the job's directory.
        chosen: logs to read. Empty: those of all workers, also of those that come later.
        positions: how far it was read before, by log.
    """

    def __init__(self, root: Path, chosen: Collection[str], positions: Mapping[str, int]) -> None:
        self._root = root
        self._chosen = frozenset(chosen)
        self.positions = dict(positions)

    def skip_to_tail(self, num_lines: int) -> None:
        """Begin with the last lines of each log that there is now."""
        for found in self._list():
            with _open(self._root, found.log) as file:
                self.positions[found.log] = find_tail(file, num_lines, MAX_BYTES)

    def read(self, *, is_last: bool) -> list[tuple[str, str]]:
        """Return what is new, a part of each log at most; empty if there is nothing.

        Args:
            is_last: nothing will be added any more, so lines without an end count too.
        """
        told = []
        for found in self._list():
            at = self.positions.get(found.log, 0)
            if found.num_bytes <= at:
                continue
            try:
                with _open(self._root, found.log) as file:
                    file.seek(at)
                    content = file.read(_CHUNK_BYTES)
            except NotFound:
                continue
            lines = content[: content.rfind(b"\n") + 1]
            if not lines and len(content) == _CHUNK_BYTES:
                lines = _whole_letters(content)
            elif not lines and is_last:
                lines = content
            if lines:
                self.positions[found.log] = at + len(lines)
                told.append((found.log, lines.decode(errors="replace")))
        return told

    def _list(self) -> list[Log]:
        found = list_logs(self._root)
        return [one for one in found if (one.log in self._chosen if self._chosen else is_of_worker(one.log))]


def render_positions(positions: Mapping[str, int]) -> str:
    """Return how far logs were read as the id of a message.

    >>> render_positions({"worker-0": 12, "worker-1": 0})
    'worker-0=12,worker-1=0'
    """
    return ",".join(f"{log}={position}" for log, position in positions.items())


def read_positions(text: str) -> dict[str, int]:
    """Read what `render_positions` wrote.

    Raises:
        Problem: it is something else.
    """
    positions = {}
    for part in text.split(","):
        log, _, number = part.partition("=")
        if not (is_log(log) and number.isascii() and number.isdecimal()) or int(number) > _MAX_OFFSET:
            raise Problem("bad-request", "Cannot read 'Last-Event-ID': give the id of a message as it came.")
        positions[log] = int(number)
    return positions


def _open(root: Path, log: str) -> BinaryIO:
    if not is_log(log):
        raise NotFound(f"There is no log '{log[:100]}'. Logs are called 'driver' and 'worker-N'.")
    try:
        return open_file(root, ("driver.log",) if log == _DRIVER else ("logs", f"{log}.log"))
    except NotFound:
        raise NotFound(
            f"There is no log '{log}' of this job, or not yet. List its logs to see which there are."
        ) from None


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
