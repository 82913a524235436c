"""Reads the lines of growing JSON files, from a number on, without reading the whole file each time.

It remembers the highest number in each part of a file, so that a client that follows a file makes it read only the new
end, and so that no line is missed where lines are out of order. A line that a crash cut off is left out.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, Generic, NamedTuple, TypeVar

import msgspec

from legato.core.errors import NotFound
from legato.server.job_files import open_file
from legato.system.decoding import decoder_of

T = TypeVar("T")

_STRETCH_BYTES: Final = 2**17
_MAX_LINE_BYTES: Final = 2**24  # Legato writes no longer lines
_MAX_FILES: Final = 1_000


class _Stretch(NamedTuple):
    """Whole lines from the byte ``first`` to ``end``. ``highest``: the highest number of a line; None: no line."""

    first: int
    end: int
    highest: int | None


class _Known(NamedTuple):
    file: tuple[int, int]  # device and inode, to notice that the file was replaced
    stretches: tuple[_Stretch, ...]

    @property
    def end(self) -> int:
        return self.stretches[-1].end if self.stretches else 0


class Lines(Generic[T]):
    """Reads lines of one type from any number of files. Any number of threads may use it.

    Args:
        kind: type of a line. Lines that cannot be decoded as this type are skipped.
        number_of: returns the number of a line.
    """

    def __init__(self, kind: type[T], number_of: Callable[[T], int]) -> None:
        self._decoder = decoder_of(kind)
        self._number_of = number_of
        self._known: OrderedDict[Path, _Known] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path, after: int | None = None) -> Iterator[T]:
        """Yield the lines of a file in their order. Yields none if the file does not exist.

        Args:
            path: of the file. Symbolic links are not followed.
            after: yield only lines with a higher number. None: all lines.
        """
        try:
            file = open_file(path.parent, (path.name,))
        except NotFound:
            return
        with file:
            known = self._recall(path, file)
            for stretch in known.stretches:
                if after is None or (stretch.highest is not None and stretch.highest > after):
                    file.seek(stretch.first)
                    yield from self._choose(self._decode(file.read(stretch.end - stretch.first)), after)
            yield from self._read_new(path, file, known, after)

    def _read_new(self, path: Path, file: BinaryIO, known: _Known, after: int | None) -> Iterator[T]:
        at, stretches = known.end, list(known.stretches)
        file.seek(at)
        rest = b""
        try:
            while content := file.read(_STRETCH_BYTES):
                content = rest + content
                if len(content) < _STRETCH_BYTES:
                    # The end of the file. It is not remembered, because the file may grow.
                    rest = content
                    break
                num_whole = content.rfind(b"\n") + 1
                rest = content[num_whole:] if len(content) - num_whole <= _MAX_LINE_BYTES else b""
                if not num_whole and rest:
                    continue
                found = self._decode(content[:num_whole])
                end = at + len(content) - len(rest)
                stretches.append(_Stretch(at, end, max(map(self._number_of, found), default=None)))
                at = end
                yield from self._choose(found, after)
            yield from self._choose(self._decode(rest), after)
        finally:
            # Also if the caller stops early.
            self._remember(path, _Known(known.file, tuple(stretches)))

    def _choose(self, lines: list[T], after: int | None) -> list[T]:
        return lines if after is None else [line for line in lines if self._number_of(line) > after]

    def _decode(self, content: bytes) -> list[T]:
        try:
            return self._decoder.decode_lines(content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return list(self._decode_singly(content))

    def _decode_singly(self, content: bytes) -> Iterator[T]:
        for line in content.split(b"\n"):
            try:
                yield self._decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue

    def _recall(self, path: Path, file: BinaryIO) -> _Known:
        about = os.fstat(file.fileno())
        this = (about.st_dev, about.st_ino)
        with self._lock:
            known = self._known.get(path)
        return known if known is not None and known.file == this and known.end <= about.st_size else _Known(this, ())

    def _remember(self, path: Path, known: _Known) -> None:
        with self._lock:
            self._known[path] = known
            self._known.move_to_end(path)
            if len(self._known) > _MAX_FILES:
                self._known.popitem(last=False)
