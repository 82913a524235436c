"""Copies of what a program writes to its standard streams: in files of its process, and in those of the driver.

WMLA's driver ran the program too, so what it printed stood in the driver's files, among the driver's own lines. Here
the one process that speaks for the driver has its program's words copied there, those before it spoke as well. A
program that fails reports the reason to the driver, in each process. A failing copy harms no other.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO

from legato.compat.wmla import names

KEPT_CHARS: Final = 2**20
"""How much of what was written is remembered for the driver's files."""

_TAIL_BYTES: Final = 2**20


class CopiedStream(io.TextIOBase):
    """A stream whose text also goes to a file, at the end of each line.

    Args:
        stream: the one that is copied.
        path: of the copy; its directory exists.
    """

    def __init__(self, stream: TextIO, path: Path) -> None:
        self._stream = stream
        self._copies: list[TextIO] = [_open(path)]
        self._driver: TextIO | None = None
        self._told: Path | None = None
        self._kept: deque[str] = deque()
        self._num_kept = 0
        self.is_apart = False

    def write(self, text: str) -> int:
        """Write to all."""
        length = self._stream.write(text)
        for copy in tuple(self._copies):
            if copy is not self._driver or not self.is_apart:
                self._try(copy, copy.write, text)
        if self._told is not None:
            self._tell(self._told, text)
        elif not self.is_apart:
            self._keep(text)
        return length

    def flush(self) -> None:
        """Flush all."""
        self._stream.flush()
        for copy in tuple(self._copies):
            self._try(copy, copy.flush)

    def close(self) -> None:
        """End the copies; the stream itself stays open."""
        copies, self._copies = self._copies, []
        for copy in copies:
            with contextlib.suppress(OSError):
                copy.close()

    def speak(self, path: Path) -> None:
        """Have what was written so far, and all that follows, in a file of the driver's as well."""
        self._hush()
        try:
            self._driver = _open(path)
        except OSError as error:
            self._complain(error)
            return
        self._copies.append(self._driver)
        self._try(self._driver, self._driver.write, "".join(self._kept))

    def tell_once(self, path: Path) -> None:
        """Have what follows in a file of the driver's unless it is there already, from any process."""
        self._hush()
        self._told = path

    def writable(self) -> bool:
        """Tell that it can be written to."""
        return True

    def isatty(self) -> bool:
        """Tell whether the copied stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the copied stream: what C libraries write has no copy."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class has none, but a place for one
        """The encoding of the copied stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # as above
        """What the copied stream does with what it cannot encode."""
        return self._stream.errors

    def __getattr__(self, name: str) -> Any:
        # Such as `buffer` and `reconfigure`.
        return getattr(self._stream, name)

    # ------------------------------------------------------------ inside

    def _keep(self, text: str) -> None:
        self._kept.append(text)
        self._num_kept += len(text)
        while self._num_kept > KEPT_CHARS:
            self._num_kept -= len(self._kept.popleft())

    def _tell(self, path: Path, text: str) -> None:
        try:
            add_once(path, text, before="".join(self._kept))
        except OSError as error:
            self._told = None
            self._complain(error)

    def _hush(self) -> None:
        copy, self._driver = self._driver, None
        if copy is not None:
            self._copies = [other for other in self._copies if other is not copy]
            with contextlib.suppress(OSError):
                copy.close()

    def _try(self, copy: TextIO, act: Any, *arguments: str) -> None:
        try:
            act(*arguments)
        except OSError as error:
            self._copies = [other for other in self._copies if other is not copy]
            with contextlib.suppress(OSError):
                copy.close()
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        self._stream.write(f"legato: Legato no longer copies the output of this process: {error}\n")


_streams: list[tuple[str, CopiedStream]] = []


def copy_streams(log_dir: Path) -> None:
    """Have what this process writes to its standard streams copied into its log directory."""
    out = CopiedStream(sys.stdout, log_dir / names.OUT_FILE)
    err = CopiedStream(sys.stderr, log_dir / names.ERR_FILE)
    sys.stdout, sys.stderr = out, err
    _streams[:] = [(names.OUT_FILE, out), (names.ERR_FILE, err)]


def speak_for_driver(directory: Path) -> None:
    """Have what this process has written, and will write, in the driver's files too; nothing where it is not copied."""
    for name, stream in _streams:
        stream.speak(directory / name)


def tell_driver_of_failure(directory: Path) -> None:
    """Have what this process writes to its error stream from now on in the driver's, once from all that fail alike."""
    for name, stream in _streams:
        if name == names.ERR_FILE:
            stream.tell_once(directory / name)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Keep what is written meanwhile out of the driver's files: it is this process's own."""
    for _, stream in _streams:
        stream.is_apart = True
    try:
        yield
    finally:
        for _, stream in _streams:
            stream.is_apart = False


def add_once(path: Path, text: str, *, before: str = "") -> None:
    """Append a text to a file, unless it stands near its end; several processes may do so at once.

    Args:
        path: of the file.
        text: what is added.
        before: written before it if the file is empty.
    """
    with path.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        num_bytes = file.seek(0, io.SEEK_END)
        file.seek(max(num_bytes - _TAIL_BYTES, 0))
        known = file.read()
        added = text.encode(errors="backslashreplace")
        if added not in known:
            file.write(added if num_bytes else before.encode(errors="backslashreplace") + added)


def _open(path: Path) -> TextIO:
    return path.open("a", buffering=1, errors="backslashreplace")
