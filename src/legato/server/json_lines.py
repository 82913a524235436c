"""Lines of JSON in growing files, from a number on: lines of earlier reads are not read again.

Of each stretch of a file its place and the highest number in it are remembered, so those who follow a file read its end
alone, and where lines are out of order none is missed. Writes nothing; a line that a crash cut off is left out.
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
_MAX_LINE_BYTES: Final = 2**24  # what is longer is no line of ours
_MAX_FILES: Final = 1_000


class _Stretch(NamedTuple):
    """Whole lines from one byte up to another; ``highest``: the highest number in them, None if there is none."""

    first: int
    end: int
    highest: int | None


class _Known(NamedTuple):
    file: tuple[int, int]  # its device and number there: another file of the same name is another
    stretches: tuple[_Stretch, ...]

    @property
    def end(self) -> int:
        return self.stretches[-1].end if self.stretches else 0


class Lines(Generic[T]):
    """Reads lines of one kind, of any number of files, for any number of threads.

    Args:
        kind: of a line. What is no such line is skipped.
        number_of: the number of a line.
    """

    def __init__(self, kind: type[T], number_of: Callable[[T], int]) -> None:
        self._decoder = decoder_of(kind)
        self._number_of = number_of
        self._known: OrderedDict[Path, _Known] = OrderedDict()
        self._turn = threading.Lock()

    def read(self, path: Path, after: int | None = None) -> Iterator[T]:
        """Yield the lines of a file as they stand there; of a file that is not there, none.

        Args:
            path: of the file; what a link leads to is not read.
            after: only those with a higher number. None: all.
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
                    # The end of the file: it is read again, and then there may be more of it.
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
            # Also where the reader stops early.
            self._remember(path, _Known(known.file, tuple(stretches)))

    def _choose(self, lines: list[T], after: int | None) -> list[T]:
        return lines if after is None else [line for line in lines if self._number_of(line) > after]

    def _decode(self, content: bytes) -> list[T]:
        try:
            return self._decoder.decode_lines(content)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return list(self._decode_singly(content))

    def _decode_singly(self, content: bytes) -> Iterator[T]:
        for line in content.split(b"\n"):
            try:
                yield self._decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue

    def _recall(self, path: Path, file: BinaryIO) -> _Known:
        about = os.fstat(file.fileno())
        this = (about.st_dev, about.st_ino)
        with self._turn:
            known = self._known.get(path)
        return known if known is not None and known.file == this and known.end <= about.st_size else _Known(this, ())

    def _remember(self, path: Path, known: _Known) -> None:
        with self._turn:
            self._known[path] = known
            self._known.move_to_end(path)
            if len(self._known) > _MAX_FILES:
                self._known.popitem(last=False)
