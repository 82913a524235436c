"""Copies of what a program writes to its standard streams, in files of its own. A copy that fails harms nobody."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any, TextIO


class CopiedStream(io.TextIOBase):
    """A stream whose text also goes to a file, at the end of each line.

    Args:
        stream: the one that is copied.
        path: of the copy; its directory exists.
    """

    def __init__(self, stream: TextIO, path: Path) -> None:
        self._stream = stream
        self._copy: TextIO | None = path.open("a", buffering=1, errors="backslashreplace")

    def write(self, text: str) -> int:
        """Write to both."""
        length = self._stream.write(text)
        if self._copy is not None:
            try:
                self._copy.write(text)
            except OSError as error:
                self._give_up(self._copy, error)
        return length

    def flush(self) -> None:
        """Flush both."""
        self._stream.flush()
        if self._copy is not None:
            try:
                self._copy.flush()
            except OSError as error:
                self._give_up(self._copy, error)

    def close(self) -> None:
        """End the copy; the stream itself stays open."""
        copy, self._copy = self._copy, None
        if copy is not None:
            with contextlib.suppress(OSError):
                copy.close()

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

    def _give_up(self, copy: TextIO, error: OSError) -> None:
        self._copy = None
        with contextlib.suppress(OSError):
            copy.close()
        self._stream.write(f"legato: what this process writes is not copied any more: {error}\n")
