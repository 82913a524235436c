"""Reads the last value of each metric of many jobs, for tables: each time only what was added to the file."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec
import structlog

from legato.core.errors import NotFound
from legato.server.job_files import open_file
from legato.system.decoding import decoder_of

MAX_NAMES: Final = 200
"""Metrics of one job, those that it logged first. Tables do not show more columns."""
MAX_NAME_CHARS: Final = 255
"""Metrics with longer names are left out."""
MAX_READ_BYTES: Final = 2**25
"""What one request reads, so that it takes less than a second. The next request goes on from there."""
_PART_BYTES: Final = 2**20
_MAX_LINE_BYTES: Final = 2**18  # longer ones are left out: unfinished lines are read each time
_MAX_FILES: Final = 5_000
_NUM_LOCKS: Final = 64

_log = structlog.get_logger(__name__)


class _Line(msgspec.Struct, frozen=True):
    values: dict[str, float | None]


class _Known(NamedTuple):
    file: tuple[int, int]  # device and inode, to notice that the file was replaced
    end: int  # of the last whole line that was read
    values: dict[str, float | None]


class Last(NamedTuple):
    """The last values in a file.

    Args:
        values: by the name of the metric. None: it was not finite.
        is_complete: false if the request may read no more, so that newer values follow with the next one.
    """

    values: dict[str, float | None]
    is_complete: bool


class LastValues:
    """The last values in any number of files with metrics. Any number of threads may use it."""

    def __init__(self) -> None:
        self._decoder = decoder_of(_Line)
        self._known: OrderedDict[Path, _Known] = OrderedDict()
        self._lock = threading.Lock()
        # Of the files, so that no two threads read the same lines.
        self._locks = tuple(threading.Lock() for _ in range(_NUM_LOCKS))

    def read(self, paths: Iterable[Path]) -> Iterator[Last]:
        """Yield for each file the last value of each metric.

        A file that does not exist or cannot be read has no values. All files together are read for at most
        `MAX_READ_BYTES`; beyond that, the values are those up to there.
        """
        left = MAX_READ_BYTES
        for path in paths:
            with self._locks[hash(path) % _NUM_LOCKS]:
                try:
                    found, num_read = self._read_file(path, left)
                except NotFound:
                    found, num_read = Last({}, is_complete=True), 0
                except OSError as error:
                    _log.warning("the metrics of a job cannot be read", file=str(path), error=str(error))
                    found, num_read = Last({}, is_complete=True), 0
            left -= num_read
            yield found

    def _read_file(self, path: Path, most: int) -> tuple[Last, int]:
        """Read at most so many more bytes of a file; return what is known then, and how many bytes were read."""
        num_read, is_complete = 0, True
        with open_file(path.parent, (path.name,)) as file:
            about = os.fstat(file.fileno())
            this = (about.st_dev, about.st_ino)
            with self._lock:
                known = self._known.get(path)
            if known is None or known.file != this or known.end > about.st_size:
                known = _Known(this, 0, {})
            if known.end < about.st_size:
                first = known.end
                known, num_read = self._read_new(file, known, most)
                is_complete = first + num_read >= about.st_size
        with self._lock:
            self._known[path] = known
            self._known.move_to_end(path)
            if len(self._known) > _MAX_FILES:
                self._known.popitem(last=False)
        return Last(known.values, is_complete), num_read

    def _read_new(self, file: BinaryIO, known: _Known, most: int) -> tuple[_Known, int]:
        values, end, rest, num_read = dict(known.values), known.end, b"", 0
        file.seek(end)
        while num_read < most and (part := file.read(_PART_BYTES)):
            num_read += len(part)
            content = rest + part
            num_whole = content.rfind(b"\n") + 1
            for line in content[:num_whole].split(b"\n"):
                self._note(line, values)
            end += num_whole
            rest = content[num_whole:]
            if len(rest) > _MAX_LINE_BYTES:
                end, rest = end + len(rest), b""
        return _Known(known.file, end, values), num_read

    def _note(self, line: bytes, into: dict[str, float | None]) -> None:
        try:
            found = self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return
        for name, value in found.values.items():
            if name in into or (len(into) < MAX_NAMES and len(name) <= MAX_NAME_CHARS):
                into[name] = value
