"""Sends files between a driver and an agent in pieces. A transfer that breaks goes on where it ended.

Both sides use it for checkpoints: the agent sends what its workers saved, and the driver sends what a worker resumes
from. `legato.engines.offers` uses it for files that the program wrote. The last piece has the SHA-256 of the file, so
that bytes which have changed on the way, or which belong to another file of the same name, are noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import math
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from legato.core.agent_messages import MAX_PIECE_BYTES, FilePiece, FileTaken
from legato.core.clock import Clock
from legato.core.errors import CheckpointError
from legato.core.job_user import JobUser
from legato.system.plain_files import replace_for

MAX_TRIES: Final = 3
"""So often a file is sent from its beginning before it is given up."""

LINK: Final = ".sending-"
"""A second name of a file that is being sent, which its writer does not delete meanwhile."""

CONTENT: Final = re.compile(r"[0-9a-f]{64}")
"""The names of files that are named by the SHA-256 of their content."""

_NAME: Final = re.compile(r"step-[0-9]{1,18}\.legato")
_PART: Final = ".part"
_WHOLE: Final = re.compile(r"\.(step-[0-9]+\.legato).*")
_OF_A_JOB: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a job can put a link or a pipe there
_MAX_WINDOW_BYTES: Final = 16 * MAX_PIECE_BYTES
_MIN_PIECE_BYTES: Final = 2**14
_PIECES_PER_WINDOW: Final = 4
_TARGET_S: Final = 0.1
"""The bytes on the way take at most about this long, so other messages on the connection wait no longer for them."""

_PAUSE_FACTOR: Final = 3.0
_MAX_PAUSE_S: Final = 2.0

_HASH_BYTES: Final = 2**22


class DamagedFile(CheckpointError):
    """What has come is not the file that was sent. It is deleted, so that the transfer can begin again."""


def check_file_name(name: str) -> str:
    """Return the name of a checkpoint's file. Raises CheckpointError if it has another form."""
    if not _NAME.fullmatch(name):
        raise CheckpointError(f"'{name[:100]}' is not the name of a checkpoint.")
    return name


def find_newest(folder: Path) -> Path | None:
    """Return the newest checkpoint of a folder by its name; None if there is none."""
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
        return max(found, key=lambda path: step_of(path.name), default=None)
    return None


def mark_directory(directory: Path, name: str, user: JobUser | None) -> None:
    """Put a file into a directory of checkpoints, so that an agent sees if it shares the directory.

    Args:
        directory: of the checkpoints; made if it is missing.
        name: of the file.
        user: the system user who can write the directory; None: this process.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if user is None:
        (directory / name).touch()
    else:
        replace_for(directory / name, b"", user)


class Window:
    """How many bytes are on the way at once: as many as need about `_TARGET_S`."""

    def __init__(self) -> None:
        self.num_bytes = _PIECES_PER_WINDOW * MAX_PIECE_BYTES

    @property
    def piece_bytes(self) -> int:
        """The size of the next piece."""
        return min(max(self.num_bytes // _PIECES_PER_WINDOW, _MIN_PIECE_BYTES), MAX_PIECE_BYTES)

    def note(self, took_s: float) -> None:
        """Adapt to the time that so many bytes have needed, without the time of the way."""
        if took_s > _TARGET_S:
            self.num_bytes = max(int(self.num_bytes * max(_TARGET_S / took_s, 0.5)), _MIN_PIECE_BYTES)
        else:
            self.num_bytes = min(self.num_bytes + self.piece_bytes, _MAX_WINDOW_BYTES)


class PieceSender:
    """Sends files over one connection, one at a time.

    Args:
        say: sends a message; returns False without a connection.
        clock: monotonic seconds.

    Attributes:
        name: of the present file, or of the last one.
        is_urgent: False: use a quarter of the time only, because workers train over the same network.
    """

    def __init__(self, say: Callable[[FilePiece], bool], clock: Clock = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self.name = ""
        self.is_urgent = False
        self._taken = 0
        self._way_s = math.inf  # until a single piece is confirmed, at best
        self._window = Window()
        self._progress = asyncio.Event()

    def note_taken(self, message: FileTaken) -> None:
        """Note what the other side has on its disk."""
        if message.name == self.name:
            self._taken = message.num_bytes
            self._progress.set()

    async def send(self, path: Path, offset: int, user: JobUser | None = None, *, is_urgent: bool) -> bool:
        """Send a file from ``offset`` on; returns False if the connection was lost.

        Args:
            path: of the file.
            offset: of the first byte that the other side does not have.
            user: the only system user whose file is sent. None: any file is.
            is_urgent: for the attribute.

        Raises:
            OSError: the file cannot be read, or is no plain file of the user.
        """
        descriptor = await asyncio.to_thread(os.open, path, os.O_RDONLY | _OF_A_JOB)
        try:
            _check_owner(descriptor, path, user)
        except OSError:
            os.close(descriptor)
            raise
        return await self.send_opened(descriptor, path.name.removeprefix(LINK), offset, is_urgent=is_urgent)

    async def send_opened(self, descriptor: int, name: str, offset: int, *, is_urgent: bool) -> bool:
        """Send an open file from ``offset`` on, and close it; returns False if the connection was lost.

        Args:
            descriptor: of the file.
            name: under which it is sent.
            offset: of the first byte that the other side does not have.
            is_urgent: for the attribute.

        Raises:
            OSError: the file cannot be read.
        """
        self.name, self.is_urgent = name, is_urgent
        try:
            size = os.fstat(descriptor).st_size
            self._taken = at = offset if offset <= size else 0
            digest = await asyncio.to_thread(_hash, descriptor, at)
            is_last = False
            while not is_last:
                began, end_of_window = self._clock(), at + self._window.num_bytes
                first_end = 0
                while not is_last and at < end_of_window:
                    data = await asyncio.to_thread(os.pread, descriptor, self._window.piece_bytes, at)
                    digest.update(data)
                    end = at + len(data)
                    is_last = end >= size or not data
                    sha256 = digest.hexdigest() if is_last else ""
                    if not self._say(FilePiece(name=self.name, offset=at, data=data, num_bytes=size, sha256=sha256)):
                        return False
                    at, first_end = end, first_end or end
                await self._wait_for(first_end)
                self._way_s = min(self._way_s, self._clock() - began)
                await self._wait_for(at)
                took_s = max(self._clock() - began - self._way_s, 0.0)
                self._window.note(took_s)
                if not is_last and not self.is_urgent:
                    await asyncio.sleep(min(_PAUSE_FACTOR * took_s, _MAX_PAUSE_S))
            return True
        finally:
            os.close(descriptor)

    async def _wait_for(self, num_bytes: int) -> None:
        while self._taken < num_bytes:
            self._progress.clear()
            await self._progress.wait()


class PieceReceiver:
    """Receives files into a folder: a file has its name only when it is complete, verified and on the disk.

    Args:
        folder: of the files; made if it does not exist.
        user: the system user who can write into the folder, and gets the files. None: the user of this process.
        names: the form of the files' names.
        source: name of the machine from which the files come. Incomplete files have it in their names, because several
            machines may send a file of the same name.
    """

    def __init__(
        self, folder: Path, user: JobUser | None = None, names: re.Pattern[str] = _NAME, source: str = ""
    ) -> None:
        self._folder = folder
        self._part = f".{source}{_PART}" if source else _PART
        self.user = user
        self._names = names
        self._digests: dict[str, tuple[hashlib._Hash, int]] = {}  # of the parts, and of how many bytes
        self._taking = threading.Lock()  # two machines may send the same file

    def of(self, source: str) -> PieceReceiver:
        """Return a receiver for the files of one machine into the same folder."""
        return PieceReceiver(self._folder, self.user, self._names, source)

    def num_bytes_of(self, name: str) -> int:
        """Return from which byte on a file must be sent: its length if it seems to be complete."""
        for path in (self._part_of(name), self._folder / name):
            with contextlib.suppress(OSError):
                return path.lstat().st_size
        return 0

    def find_begun(self) -> str:
        """Return the name of the newest file of which a part is there; if there is none, of the newest file; or ""."""
        with contextlib.suppress(OSError):
            parts = [path.name[1 : -len(_PART)] for path in self._folder.glob(f".step-*{_PART}")]
            begun = [name for name in parts if _NAME.fullmatch(name)]
            if begun:
                return max(begun, key=step_of)
        newest = find_newest(self._folder)
        return "" if newest is None else newest.name

    def take(self, piece: FilePiece) -> Path | None:
        """Write a piece. Returns the path of the file when it is complete, else None. May block for long.

        Raises:
            DamagedFile: the file must be sent from its beginning.
            CheckpointError: the name has another form, or the piece does not fit into the file.
            OSError: it cannot be written, or something that is no plain file of the user is in its place. Nothing of
                the file is left.
        """
        part, whole = self._part_of(piece.name), self._folder / piece.name
        end = piece.offset + len(piece.data)
        if end > piece.num_bytes or (not piece.data and end < piece.num_bytes):
            raise CheckpointError(f"A piece of {piece.name} does not fit into the file.")
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._taking:
            return self._take(piece, part, whole)

    def _take(self, piece: FilePiece, part: Path, whole: Path) -> Path | None:
        known = self._digests.pop(piece.name, None)
        try:
            if not part.exists() and piece.offset and not piece.data and whole.lstat().st_size == piece.num_bytes:
                # The sender thinks that this side has all of it.
                self._verify(whole, piece.sha256)
                return whole
            if piece.offset > (part.lstat().st_size if piece.offset else 0):
                raise DamagedFile(f"A piece of {piece.name} is missing.")
            self._write(part, piece, known)
            if piece.offset + len(piece.data) < piece.num_bytes:
                return None
            part.replace(whole)
        except FileNotFoundError as error:
            raise DamagedFile(f"A piece of {piece.name} is missing.") from error
        except (OSError, DamagedFile):
            part.unlink(missing_ok=True)
            raise
        _sync(self._folder, os.O_DIRECTORY)
        return whole

    def _write(self, part: Path, piece: FilePiece, known: tuple[hashlib._Hash, int] | None) -> None:
        """Write a piece, and compare the file after the last one.

        Args:
            part: path of the incomplete file.
            piece: of it.
            known: the digest of the part's first bytes, and how many these are.
        """
        descriptor = self._open(part)
        try:
            digest = known[0] if known and known[1] == piece.offset else _hash(descriptor, piece.offset)
            os.ftruncate(descriptor, piece.offset)
            about = os.fstatvfs(descriptor)
            free = about.f_bavail * about.f_frsize
            if piece.num_bytes - piece.offset > free:
                told = f"{piece.num_bytes - piece.offset} bytes are to come, and the disk has {free}"
                raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {told}")
            data, at = piece.data, piece.offset
            while data:
                num = os.pwrite(descriptor, data, at)
                data, at = data[num:], at + num
            digest.update(piece.data)
            if at < piece.num_bytes:
                self._digests[piece.name] = digest, at
            else:
                os.fsync(descriptor)
                _compare(part, digest, piece.sha256)
        finally:
            os.close(descriptor)

    def _open(self, part: Path) -> int:
        try:
            descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OF_A_JOB, 0o600)
        except FileExistsError:
            descriptor = os.open(part, os.O_RDWR | _OF_A_JOB)
        else:
            if self.user is not None:
                os.fchown(descriptor, self.user.uid, self.user.gid)
        try:
            _check_owner(descriptor, part, self.user)
            if self.user is not None and os.fstat(descriptor).st_nlink != 1:
                raise OSError(f"{part} has a second name")
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def _verify(self, path: Path, sha256: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | _OF_A_JOB)
        try:
            _check_owner(descriptor, path, self.user)
            os.fsync(descriptor)
            _compare(path, _hash(descriptor, os.fstat(descriptor).st_size), sha256)
        finally:
            os.close(descriptor)

    def prune(self, keep: int, coming: Collection[str] = ()) -> None:
        """Delete all but the newest ``keep`` files, and all incomplete ones but those that are ``coming``."""
        found = sorted(
            (path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)),
            key=lambda path: step_of(path.name),
        )
        for path in found[: max(len(found) - keep, 0)]:
            path.unlink(missing_ok=True)
        self.clear(coming)

    def clear(self, coming: Collection[str] = ()) -> None:
        """Delete all incomplete files but those that are ``coming``."""
        for path in self._folder.glob(f".step-*{_PART}"):
            if _WHOLE.sub(r"\1", path.name) not in coming:
                path.unlink(missing_ok=True)
        for name in set(self._digests) - set(coming):
            self._digests.pop(name, None)

    def _part_of(self, name: str) -> Path:
        if not self._names.fullmatch(name):
            raise CheckpointError(f"'{name[:100]}' is not the name of a file that can come.")
        return self._folder / f".{name}{self._part}"


def _check_owner(descriptor: int, path: Path, user: JobUser | None) -> None:
    """Check that an open file has content of a job's user only. This process may read and write files of others."""
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or (user is not None and about.st_uid != user.uid):
        raise OSError(f"{path} is no plain file of the job's user")


def step_of(name: str) -> int:
    """Return the step of a checkpoint's file."""
    return int(name.removeprefix("step-").removesuffix(".legato"))


def _hash(descriptor: int, num_bytes: int) -> hashlib._Hash:
    """Return the SHA-256 of the first bytes of a file."""
    digest, at = hashlib.sha256(), 0
    while at < num_bytes and (data := os.pread(descriptor, min(_HASH_BYTES, num_bytes - at), at)):
        digest.update(data)
        at += len(data)
    return digest


def _compare(path: Path, digest: hashlib._Hash, sha256: str) -> None:
    if (found := digest.hexdigest()) != sha256:
        raise DamagedFile(f"{path.name} has SHA-256 {found} here, and {sha256} where it comes from.")


def _sync(path: Path, flags: int = 0) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
