"""Sends checkpoints between a driver and an agent in pieces. A transfer that breaks goes on where it ended.

Both sides use it: the agent sends what its workers saved, and the driver sends what a worker resumes from.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from legato.core.agent_messages import MAX_PIECE_BYTES, FilePiece, FileTaken
from legato.core.errors import CheckpointError
from legato.core.job_user import JobUser

_NAME: Final = re.compile(r"step-[0-9]{1,18}\.legato")
_WINDOW_BYTES: Final = 16 * MAX_PIECE_BYTES
_OF_A_JOB: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a job can put a link or a pipe there


def check_file_name(name: str) -> str:
    """Return the name of a checkpoint's file. Raises CheckpointError if it has another form."""
    if not _NAME.fullmatch(name):
        raise CheckpointError(f"'{name[:100]}' is not the name of a checkpoint.")
    return name


def find_newest(folder: Path) -> Path | None:
    """Return the newest checkpoint of a folder by its name; None if there is none."""
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        return max(found, key=lambda path: int(path.name[5:-7]), default=None)
    return None


class PieceSender:
    """Sends files over one connection.

    Args:
        say: sends a message; returns False without a connection.
    """

    def __init__(self, say: Callable[[FilePiece], bool]) -> None:
        self._say = say
        self._taken: dict[str, int] = {}
        self._progress = asyncio.Event()

    def note_taken(self, message: FileTaken) -> None:
        """Note what the other side has on its disk."""
        self._taken[message.name] = message.num_bytes
        self._progress.set()

    async def send(self, path: Path, offset: int, user: JobUser | None = None) -> bool:
        """Send a file from ``offset`` on; returns False if the connection was lost.

        Args:
            path: of the file.
            offset: in bytes.
            user: the only system user whose file is sent. None: any file is.

        Raises:
            OSError: the file cannot be read, or is no plain file of the user.
        """
        descriptor = await asyncio.to_thread(os.open, path, os.O_RDONLY | _OF_A_JOB)
        try:
            _check_owner(descriptor, path, user)
            size = os.fstat(descriptor).st_size
            self._taken[path.name] = at = min(offset, size)
            while at < size or at == offset == 0:
                data = await asyncio.to_thread(os.pread, descriptor, MAX_PIECE_BYTES, at)
                if not self._say(FilePiece(name=path.name, offset=at, data=data, num_bytes=size)):
                    return False
                at += len(data)
                while at - self._taken[path.name] > _WINDOW_BYTES:
                    self._progress.clear()
                    await self._progress.wait()
                if not data:
                    break
            return True
        finally:
            os.close(descriptor)


class PieceReceiver:
    """Receives files into a folder: a file has its name only when it is complete and on the disk.

    Args:
        folder: of the files; made if it does not exist.
        user: the system user who can write into the folder, and gets the files. None: the user of this process.
    """

    def __init__(self, folder: Path, user: JobUser | None = None) -> None:
        self._folder = folder
        self.user = user

    def num_bytes_of(self, name: str) -> int:
        """Return how many bytes of an incomplete file are there."""
        try:
            return self._part_of(name).lstat().st_size
        except FileNotFoundError:
            return 0

    def take(self, piece: FilePiece) -> Path | None:
        """Write a piece. Returns the path of the file when it is complete, else None.

        Raises:
            CheckpointError: the name has another form, or a piece is missing before this one.
            OSError: it cannot be written, or something that is no plain file of the user is in its place.
        """
        part = self._part_of(piece.name)
        if piece.offset > self.num_bytes_of(piece.name):
            raise CheckpointError(f"A piece of {piece.name} is missing.")
        self._folder.mkdir(parents=True, exist_ok=True)
        descriptor = self._open(part)
        try:
            os.pwrite(descriptor, piece.data, piece.offset)
            end = piece.offset + len(piece.data)
            os.ftruncate(descriptor, end)
            if end < piece.num_bytes:
                return None
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        whole = self._folder / piece.name
        part.replace(whole)
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return whole

    def _open(self, part: Path) -> int:
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OF_A_JOB, 0o600)
        except FileExistsError:
            descriptor = os.open(part, os.O_WRONLY | _OF_A_JOB)
        else:
            if self.user is not None:
                os.fchown(descriptor, self.user.uid, self.user.gid)
        try:
            _check_owner(descriptor, part, self.user)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def prune(self, keep: int) -> None:
        """Delete all but the newest ``keep`` files, and older incomplete ones."""
        found = sorted(
            (path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)),
            key=lambda path: int(path.name[5:-7]),
        )
        for path in found[: max(len(found) - keep, 0)]:
            path.unlink(missing_ok=True)
            self._part_of(path.name).unlink(missing_ok=True)

    def _part_of(self, name: str) -> Path:
        return self._folder / f".{check_file_name(name)}.part"


def _check_owner(descriptor: int, path: Path, user: JobUser | None) -> None:
    """Check that an open file has content of a job's user only. This process may read and write files of others."""
    about = os.fstat(descriptor)
    is_own = user is None or (about.st_uid == user.uid and about.st_nlink == 1)
    if not stat.S_ISREG(about.st_mode) or not is_own:
        raise OSError(f"{path} is no plain file of the job's user")
