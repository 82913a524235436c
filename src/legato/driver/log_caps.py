"""Drops the oldest part of logs that are too long, so that they do not fill the disk.

Processes keep their logs open and readers remember offsets, so a log is never cut or renamed. Instead, a hole is
punched at its beginning: its length and all offsets stay, its oldest part uses no disk space, and a line in the log
says so. Readers begin at `find_begin`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from legato.driver.journal import JobDirectory

_LOOK_EVERY_S: Final = 1.0
_KEEP_SIZE_AND_PUNCH_HOLE: Final = 0x01 | 0x02
_BLOCK: Final = 4096
_BLOCK_OF_STAT: Final = 512
_LINE_BYTES: Final = 2**16
_OPENED: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def find_begin(descriptor: int) -> int:
    """Return the offset of the first remaining byte of a log; 0 if nothing was dropped.

    The position of the file does not change.
    """
    about = os.fstat(descriptor)
    if about.st_blocks * _BLOCK_OF_STAT >= about.st_size:
        return 0
    at = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        begin = os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError as error:
        # The whole file is a hole, or the file system has no holes.
        return about.st_size if error.errno == errno.ENXIO else 0
    finally:
        os.lseek(descriptor, at, os.SEEK_SET)
    if not begin:
        return 0
    # Holes end at a block boundary; the line that reports them may begin within the next block.
    block = os.pread(descriptor, 2 * _BLOCK, begin)
    return begin + len(block) - len(block.lstrip(b"\0"))


def drop_first(path: Path, num_bytes: int) -> None:
    """Free the disk space of the first bytes of a log, up to the beginning of a block. Its length does not change.

    A link is not followed, and a file with a second name is not changed, because it may not belong to the job.

    Raises:
        OSError: the file cannot be changed; `is_not_supported` tells whether its file system cannot do that at all.
    """
    descriptor = os.open(path, os.O_RDWR | _OPENED)
    try:
        about = os.fstat(descriptor)
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 1 and num_bytes >= _BLOCK:
            _punch(descriptor, num_bytes // _BLOCK * _BLOCK)
    finally:
        os.close(descriptor)


def is_not_supported(error: OSError) -> bool:
    """Return whether an error says that the file system cannot drop parts of files."""
    return error.errno in (errno.EOPNOTSUPP, errno.ENOSYS)


class LogCaps:
    """Drops the oldest parts of a job's logs.

    Args:
        directory: of the job.
        max_bytes: of each log.
        warn: called once with a sentence if the file system cannot punch holes.
        says: whether a line in a worker's log says what was dropped.

    Attributes:
        max_bytes: may be changed.
    """

    def __init__(
        self, directory: JobDirectory, max_bytes: int, warn: Callable[[str], None], *, says: bool = True
    ) -> None:
        self._directory = directory
        self.max_bytes = max_bytes
        self._warn = warn
        self._says = says
        self._is_possible = True
        self._linked: set[Path] = set()

    async def watch_forever(self) -> None:
        """Check once a second until cancelled."""
        told: set[Path] = set()
        while self._is_possible:
            complaint = await asyncio.to_thread(self.drop)
            if complaint is not None:
                self._is_possible = False
                self._warn(complaint)
            for path in sorted(self._linked - told):
                self._warn(
                    f"{path} has a second name elsewhere (a hard link), so Legato does not shorten it and it may grow "
                    f"beyond log_max_bytes={self.max_bytes}; remove the other name"
                )
            told |= self._linked
            await asyncio.sleep(_LOOK_EVERY_S)
        await asyncio.Event().wait()

    def drop(self) -> str | None:
        """Check once. Returns a sentence if this file system cannot drop parts of files."""
        for path in self._list():
            try:
                about = path.lstat()
                # The number of blocks does not include holes, so dropped parts do not count again.
                is_long = stat.S_ISREG(about.st_mode) and about.st_blocks * _BLOCK_OF_STAT > self.max_bytes
                if is_long and not _shorten(path, self.max_bytes, about, says=self._says):
                    self._linked.add(path)
            except OSError as error:
                if is_not_supported(error):
                    return (
                        f"cannot drop the oldest part of {path}: its file system cannot punch holes. Logs of this job "
                        f"grow beyond log_max_bytes={self.max_bytes}; put the home on ext4, XFS or Btrfs"
                    )
        return None

    def _list(self) -> Iterator[Path]:
        yield from (self._directory.path / name for name in ("driver.log", "warm-parent.log", "agent.log"))
        with contextlib.suppress(OSError):
            yield from self._directory.logs.glob("worker-*.log")


def _shorten(path: Path, max_bytes: int, seen: os.stat_result, *, says: bool) -> bool:
    """Drop the oldest part of a log up to the end of a line, and write a line that says so in its place.

    Args:
        path: of the log; a link is not followed.
        max_bytes: of the log.
        seen: the file that was found before; another file is not changed.
        says: whether to write that line.

    Returns:
        False if the file has a second name, because it may not belong to the job.

    Raises:
        OSError: the file cannot be opened or changed.
    """
    descriptor = os.open(path, os.O_RDWR | _OPENED)
    try:
        about = os.fstat(descriptor)
        is_same = (about.st_dev, about.st_ino, about.st_uid) == (seen.st_dev, seen.st_ino, seen.st_uid)
        if not is_same or not stat.S_ISREG(about.st_mode):
            return True  # the file was replaced meanwhile; the next check handles it
        if about.st_nlink != 1:
            return False
        # Drops more than necessary, so that the next drop is not needed at once.
        kept = max_bytes - max_bytes // 8
        end = about.st_size - kept
        end += os.pread(descriptor, _LINE_BYTES, end).find(b"\n") + 1
        told = (
            f"[legato] The first {end} bytes of this log were dropped: a log is kept to {max_bytes} bytes "
            "(log_max_bytes).\n"
        ).encode() * says
        begin = end - len(told)
        _punch(descriptor, begin)
        os.pwrite(descriptor, told, begin)
        return True
    finally:
        os.close(descriptor)


def _punch(descriptor: int, num_bytes: int) -> None:
    """Free the disk space of the first bytes of a file, which then read as zeros. Its length does not change."""
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(descriptor, _KEEP_SIZE_AND_PUNCH_HOLE, 0, num_bytes):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
