"""Lists and opens files of a job for users. The job's program may have created any file, so links are never followed.

Each folder of a path is opened relative to the one before, so that a program cannot redirect the path by replacing a
folder by a link meanwhile. Files are opened without blocking, so that a named pipe does not stop the server.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, Literal

from legato.api import outputs
from legato.core.errors import NotFound

SHOWN: Final = (
    *("work", "checkpoints", "logs"),
    *("events.jsonl", "metrics.jsonl", "losses.jsonl", "ledger.jsonl", "system.jsonl", "driver.log"),
)
"""The entries of a job's directory that users may see. The other ones are for the platform and its drivers."""

_MAX_ENTRIES: Final = 10_000
_MAX_DEPTH: Final = 64
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NOT_THERE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG, errno.EACCES)


class Entry(outputs.File, frozen=True):
    """A file or folder of a job. ``path``: relative to the job's directory; ``modified_at``: seconds since 1970."""

    kind: Literal["file", "folder"]


class Files(outputs.Files, frozen=True):
    """Files of a job. ``is_complete``: false if there are too many, or if a name is not UTF-8."""

    items: tuple[Entry, ...]


def split_path(path: str) -> tuple[str, ...]:
    """Return the parts of a path of a job's file. Empty: the path is that of the job's directory.

    Raises:
        NotFound: users may not see this path.

    >>> split_path("work/out/a.png"), split_path("logs/"), split_path("")
    (('work', 'out', 'a.png'), ('logs',), ())
    """
    if not path:
        return ()
    parts = tuple(path.removesuffix("/").split("/"))
    if parts[0] not in SHOWN or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise _missing(path)
    return parts


def open_file(root: Path, parts: tuple[str, ...]) -> BinaryIO:
    """Open a file for reading.

    Args:
        root: the job's directory.
        parts: of the path below it.

    Raises:
        NotFound: the file does not exist, or is not a regular file.
    """
    with _opened(root, parts, _FLAGS) as descriptor:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _missing("/".join(parts))
        return os.fdopen(os.dup(descriptor), "rb")


def list_files(root: Path, parts: tuple[str, ...], *, is_recursive: bool) -> Files:
    """List the entries of a folder, sorted by path. The list of a file contains the file.

    Args:
        root: the job's directory.
        parts: of the path below it.
        is_recursive: also list the folders in it.

    Raises:
        NotFound: there is no file and no folder at this path.
    """
    found: list[Entry] = []
    is_complete = True
    waiting = [parts]
    while waiting and len(found) < _MAX_ENTRIES:
        folder = waiting.pop()
        try:
            entries, is_whole = _list_one(root, folder)
        except NotFound:
            if folder == parts:
                raise
            continue  # deleted meanwhile
        is_complete &= is_whole
        found.extend(entries)
        if is_recursive:
            inner = [tuple(entry.path.split("/")) for entry in entries if entry.kind == "folder"]
            is_complete &= not inner or len(folder) < _MAX_DEPTH
            waiting.extend(inner if len(folder) < _MAX_DEPTH else ())
    is_complete &= not waiting and len(found) <= _MAX_ENTRIES
    return Files(tuple(sorted(found[:_MAX_ENTRIES], key=lambda entry: entry.path.split("/"))), is_complete)


def _list_one(root: Path, parts: tuple[str, ...]) -> tuple[list[Entry], bool]:
    with _opened(root, parts, _FLAGS) as descriptor:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return [_describe("/".join(parts), os.fstat(descriptor))], True
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise _missing("/".join(parts))
        found: list[Entry] = []
        is_complete = True
        with os.scandir(descriptor) as names:
            for item in names:
                if not parts and item.name not in SHOWN:
                    continue
                if len(found) > _MAX_ENTRIES or not _is_text(item.name):
                    is_complete = False
                    continue
                with contextlib.suppress(FileNotFoundError):
                    about = item.stat(follow_symlinks=False)
                    if stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode):
                        found.append(_describe("/".join((*parts, item.name)), about))
        return found, is_complete


def _describe(path: str, about: os.stat_result) -> Entry:
    is_folder = stat.S_ISDIR(about.st_mode)
    return Entry(path, "folder" if is_folder else "file", 0 if is_folder else about.st_size, about.st_mtime)


@contextlib.contextmanager
def _opened(root: Path, parts: tuple[str, ...], flags: int) -> Iterator[int]:
    """Open the file or folder at a path, with these flags of `os.open`, during the block."""
    descriptor = -1
    try:
        try:
            descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            for part in parts:
                inner = os.open(part, flags, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
        except OSError as error:
            if error.errno in _NOT_THERE:
                raise _missing("/".join(parts)) from error
            raise
        yield descriptor
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _missing(path: str) -> NotFound:
    shown = path[:200] or "no directory yet"
    return NotFound(
        f"The job has no file '{shown}' that you may see, or it was deleted. List its files to see which it has."
    )
