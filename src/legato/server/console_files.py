"""The files of the console as they were built into the package: one page, and assets whose names change with them.

Reads nothing but its own folder, and from that only plain names with a known ending. Knows not what is on the page.
"""

from __future__ import annotations

import functools
import gzip
import re
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parent / "pages"
PAGE: Final = "index.html"
ASSETS: Final = "assets"

_KINDS: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_PACKED: Final = frozenset({".png", ".woff2"})  # gzip makes these no smaller
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_MIN_BYTES: Final = 1024
_MAX_KEPT: Final = 256


class ConsoleFile(NamedTuple):
    """A file as it is sent. ``packed``: the same with gzip; None where that would not be shorter."""

    kind: str
    content: bytes
    packed: bytes | None


def read_page(folder: Path = FOLDER) -> ConsoleFile | None:
    """Return the one page; None: the console was not built."""
    return _read(folder / PAGE)


def read_asset(name: str, folder: Path = FOLDER) -> ConsoleFile | None:
    """Return an asset; None: there is none of this name."""
    return _read(folder / ASSETS / name) if _NAME.fullmatch(name) else None


def _read(file: Path) -> ConsoleFile | None:
    kind = _KINDS.get(file.suffix)
    if kind is None or not file.is_file():
        return None
    # Rebuilt while the server runs: read the new one.
    state = file.stat()
    return _pack(file, kind, (state.st_mtime_ns, state.st_size))


@functools.lru_cache(maxsize=_MAX_KEPT)
def _pack(file: Path, kind: str, _version: tuple[int, int]) -> ConsoleFile:
    content = file.read_bytes()
    if file.suffix in _PACKED or len(content) < _MIN_BYTES:
        return ConsoleFile(kind, content, None)
    packed = gzip.compress(content, mtime=0)
    return ConsoleFile(kind, content, packed if len(packed) < len(content) else None)
