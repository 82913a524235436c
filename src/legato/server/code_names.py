"""Caches the names of the files of uploaded code, which never change."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Final

_MAX_KEPT: Final = 200_000  # names; they take some tens of MiB


class CodeNames:
    """Lists the names of the files of uploaded code, and caches those of recently used code.

    Args:
        path: the folder of all code, with one folder per SHA-256. Code is renamed before it is deleted.
        max_kept: maximum number of names in the cache.
    """

    def __init__(self, path: Path, max_kept: int = _MAX_KEPT) -> None:
        self._path = path
        self._max_kept = max_kept
        self._known: OrderedDict[str, tuple[int, tuple[str, ...]]] = OrderedDict()
        self._num_kept = 0
        self._lock = threading.Lock()

    def list(self, sha256: str) -> tuple[str, ...]:
        """Return the paths of the files of code, relative to its folder. Empty: the code is not stored."""
        top = self._path / sha256
        folder = _find_number(top)
        with self._lock:
            known = self._known.get(sha256)
            if known is not None and known[0] == folder:
                self._known.move_to_end(sha256)
                return known[1]
            self._drop(sha256)
        names = _walk(top)
        # If the same folder is still there, it was complete while its names were read.
        if folder is not None and _find_number(top) == folder:
            self._keep(sha256, folder, names)
        return names

    def _keep(self, sha256: str, folder: int, names: tuple[str, ...]) -> None:
        with self._lock:
            self._drop(sha256)
            self._known[sha256] = (folder, names)
            self._num_kept += len(names)
            while self._num_kept > self._max_kept:
                self._drop(next(iter(self._known)))

    def _drop(self, sha256: str) -> None:
        known = self._known.pop(sha256, None)
        self._num_kept -= 0 if known is None else len(known[1])


def _find_number(folder: Path) -> int | None:
    """Return the inode number of a folder. None: it does not exist."""
    try:
        return folder.stat().st_ino
    except OSError:
        return None


def _walk(top: Path) -> tuple[str, ...]:
    return tuple(
        os.path.relpath(os.path.join(folder, name), top)  # noqa: PTH118 -- there are many files, and pathlib is slow
        for folder, _, names in os.walk(top)
        for name in names
    )
