"""Copies files that a tracker reads later: meanwhile the program may change or remove its own."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path


class KeptFiles:
    """A copy, in the directory of this machine's temporary files, of a file or of the files of a directory.

    It is removed with this object, or at the end of this process. Links to files are followed and links to directories
    are not, as in MLflow. What is no regular file is left out.

    Args:
        original: a path.
        max_bytes: the copy may have.

    Attributes:
        path: of the copy, with the name of the original.
        num_bytes: of all its files.

    Raises:
        FilesTooLarge: the files have more bytes.
        OSError: there are none, or they cannot be copied.
    """

    def __init__(self, original: str, max_bytes: int) -> None:
        source = Path(os.path.abspath(original))  # noqa: PTH100 -- resolve() would give a link the name of its target
        source.stat()
        files = [Path(folder, name) for folder, _, names in os.walk(source) for name in names]
        files = [file for file in (files if source.is_dir() else [source]) if file.is_file()]
        self.num_bytes = sum(file.stat().st_size for file in files)
        if self.num_bytes > max_bytes:
            raise FilesTooLarge
        folder = tempfile.mkdtemp(prefix="legato-files-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = Path(folder, source.name or "files")
        if source.is_dir():
            self.path.mkdir()
        for file in files:
            copy = self.path / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


class FilesTooLarge(Exception):
    """The files have more bytes than may wait."""
