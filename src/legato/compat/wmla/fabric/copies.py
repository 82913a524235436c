"""Copies what a program writes to its standard streams into files of its process and of the driver.

WMLA's driver also ran the program, so the driver's files had the program's output among the driver's own lines. Legato
has no such driver: one process, rank 0, also copies its output to the driver's files, including what it wrote before it
became rank 0. In every process, a program that fails writes its error to the driver's error log. If one copy cannot be
written, the others continue.
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
"""Number of characters, the last ones written, that a stream keeps for the driver's files."""

_TAIL_BYTES: Final = 2**20


class CopiedStream(io.TextIOBase):
    """A text stream that also writes to a file, line by line.

    Args:
        stream: the stream that is copied.
        path: of the copy; its directory exists.
    """

    def __init__(self, stream: TextIO, path: Path) -> None:
        self._stream = stream
        self._copies: list[TextIO] = [_open(path)]
        self._driver: TextIO | None = None
        self._failure_path: Path | None = None
        self._kept: deque[str] = deque()
        self._num_kept = 0
        self.skips_driver = False

    def write(self, text: str) -> int:
        """Write to the stream and to all copies."""
        length = self._stream.write(text)
        for copy in tuple(self._copies):
            if copy is not self._driver or not self.skips_driver:
                self._try(copy, copy.write, text)
        if self._failure_path is not None:
            self._append_failure(self._failure_path, text)
        elif not self.skips_driver:
            self._keep(text)
        return length

    def flush(self) -> None:
        """Flush the stream and all copies."""
        self._stream.flush()
        for copy in tuple(self._copies):
            self._try(copy, copy.flush)

    def close(self) -> None:
        """Close the copies; the stream itself stays open."""
        copies, self._copies = self._copies, []
        for copy in copies:
            with contextlib.suppress(OSError):
                copy.close()

    def copy_to(self, path: Path) -> None:
        """Also copy to a file of the driver: the text that was written so far and all later text."""
        self._stop_driver_copy()
        try:
            self._driver = _open(path)
        except OSError as error:
            self._complain(error)
            return
        self._copies.append(self._driver)
        self._try(self._driver, self._driver.write, "".join(self._kept))

    def copy_failure_to(self, path: Path) -> None:
        """Append later text to a file of the driver, unless this or another process has already written it."""
        self._stop_driver_copy()
        self._failure_path = path

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return whether the copied stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor of the copied stream. Output of C libraries goes there and is not copied."""
        return self._stream.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # the base class declares it as an attribute
        """The encoding of the copied stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # as above
        """How the copied stream handles characters that it cannot encode."""
        return self._stream.errors

    def __getattr__(self, name: str) -> Any:
        # For example `buffer` and `reconfigure`.
        return getattr(self._stream, name)

    # ------------------------------------------------------------ inside

    def _keep(self, text: str) -> None:
        self._kept.append(text)
        self._num_kept += len(text)
        while self._num_kept > KEPT_CHARS:
            self._num_kept -= len(self._kept.popleft())

    def _append_failure(self, path: Path, text: str) -> None:
        try:
            add_once(path, text, before="".join(self._kept))
        except OSError as error:
            self._failure_path = None
            self._complain(error)

    def _stop_driver_copy(self) -> None:
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
    """Copy what this process writes to its standard streams into files of its log directory."""
    out = CopiedStream(sys.stdout, log_dir / names.OUT_FILE)
    err = CopiedStream(sys.stderr, log_dir / names.ERR_FILE)
    sys.stdout, sys.stderr = out, err
    _streams[:] = [(names.OUT_FILE, out), (names.ERR_FILE, err)]


def copy_to_driver(directory: Path) -> None:
    """Also copy the output of this process, past and future, to the driver's files.

    This does nothing if `copy_streams` was not called.
    """
    for name, stream in _streams:
        stream.copy_to(directory / name)


def copy_failure_to_driver(directory: Path) -> None:
    """Copy later error output of this process to the driver's error log.

    If several processes fail with the same text, the log gets it once.
    """
    for name, stream in _streams:
        if name == names.ERR_FILE:
            stream.copy_failure_to(directory / name)


@contextlib.contextmanager
def not_for_driver() -> Iterator[None]:
    """Do not copy output to the driver's files while the context is open: it concerns this process alone."""
    for _, stream in _streams:
        stream.skips_driver = True
    try:
        yield
    finally:
        for _, stream in _streams:
            stream.skips_driver = False


def add_once(path: Path, text: str, *, before: str = "") -> None:
    """Append a text to a file, unless the last MiB of the file contains it. Several processes may call this at once.

    Args:
        path: of the file.
        text: to append.
        before: also written, before the text, if the file is empty.
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
