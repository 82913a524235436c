"""The built files of the console in the package: one page, and assets whose names change with their content.

It reads only files of its own folder, whose names are plain and have a known suffix.
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
_PACKED: Final = frozenset({".png", ".woff2"})  # gzip does not make these smaller
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
_MIN_BYTES: Final = 1024
_MAX_KEPT: Final = 256


class ConsoleFile(NamedTuple):
    """A file of the console. ``kind``: media type; ``packed``: content with gzip, None if that is not shorter."""

    kind: str
    content: bytes
    packed: bytes | None


def read_page(folder: Path = FOLDER) -> ConsoleFile | None:
    """Return the page. None: the console was not built."""
    return _read(folder / PAGE)


def read_asset(name: str, folder: Path = FOLDER) -> ConsoleFile | None:
    """Return an asset. None: there is no asset of this name."""
    return _read(folder / ASSETS / name) if _NAME.fullmatch(name) else None


def _read(file: Path) -> ConsoleFile | None:
    kind = _KINDS.get(file.suffix)
    if kind is None or not file.is_file():
        return None
    # Read the file again if the console was rebuilt while the server runs.
    state = file.stat()
    return _pack(file, kind, (state.st_mtime_ns, state.st_size))


@functools.lru_cache(maxsize=_MAX_KEPT)
def _pack(file: Path, kind: str, _version: tuple[int, int]) -> ConsoleFile:
    content = file.read_bytes()
    if file.suffix in _PACKED or len(content) < _MIN_BYTES:
        return ConsoleFile(kind, content, None)
    packed = gzip.compress(content, mtime=0)
    return ConsoleFile(kind, content, packed if len(packed) < len(content) else None)
