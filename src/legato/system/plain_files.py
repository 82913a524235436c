"""Reads and makes files in folders that a job can write. Follows no link and waits for no pipe."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from legato.core.errors import LegatoError
from legato.core.job_user import JobUser

_AS_IT_IS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY


def read_plain_file(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file.

    Args:
        path: of the file; its folder is trusted.
        max_bytes: a larger file is refused.

    Raises:
        OSError: the file does not exist, is a link, a pipe or a folder, or is too large.
    """
    with os.fdopen(os.open(path, _AS_IT_IS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a plain file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(f"{path} has more than {max_bytes} bytes")
    return content


def replace_for(path: Path, content: bytes, user: JobUser) -> None:
    """Write a file atomically that only one user may read, in a folder that the user can write.

    Raises:
        OSError: it cannot be written.
        LegatoError: it cannot be given to the user.
    """
    # In a new file: the user may have made anything at the path.
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            _give(file.fileno(), path, user.uid, user.gid)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def make_log(path: Path, user: JobUser) -> None:
    """Make a file that only one user may read and write, in a folder that the user does not own.

    Raises:
        LegatoError: it cannot be given to the user.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _give(descriptor, path, user.uid, user.gid)
    finally:
        os.close(descriptor)


def make_folder_for(path: Path, user: JobUser) -> None:
    """Make a folder that only one user can access; give an existing folder and its content to the user.

    Files of another user's job in it are given to the user too. No process of that job may run.

    Args:
        path: of the folder; the user does not own its parent.
        user: the new owner.

    Raises:
        LegatoError: it cannot be given to the user.
    """
    path.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path, _FOLDER)
    try:
        if os.fstat(descriptor).st_uid != user.uid:
            _give(descriptor, path, os.geteuid(), os.getegid())  # only its owner changes its mode
            os.fchmod(descriptor, 0o700)
            _give_all(descriptor, path, user)
            _give(descriptor, path, user.uid, user.gid)
    finally:
        os.close(descriptor)


def take_back(path: Path) -> None:
    """Give a folder and all folders in it to the user of this process, so that they can be deleted.

    Raises:
        OSError: the owner or mode cannot be changed.
    """
    for _, _, _, at in os.fwalk(path, follow_symlinks=False):
        if os.fstat(at).st_uid != os.geteuid():
            os.fchown(at, os.geteuid(), -1)
            os.fchmod(at, 0o700)


def open_to(path: Path, user: JobUser, mode: int) -> None:
    """Give a file or folder to a user's group, which may use it as its mode allows. Its owner stays.

    Raises:
        LegatoError: it cannot be done.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        _give(descriptor, path, os.geteuid(), user.gid)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _give_all(folder: int, path: Path, user: JobUser) -> None:
    for inside, folders, names, at in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        for name in (*folders, *names):
            about = os.stat(name, dir_fd=at, follow_symlinks=False)
            if not stat.S_ISDIR(about.st_mode) and about.st_nlink > 1:
                # The file has another name somewhere, which may be a file of the system.
                raise LegatoError(
                    f"Cannot give {path / inside / name} to user {user.uid}: it is a hard link. Remove it, or copy it."
                )
            try:
                os.chown(name, user.uid, user.gid, dir_fd=at, follow_symlinks=False)
            except OSError as error:
                raise _refused(path / inside / name, user.uid, error) from error


def _give(descriptor: int, path: Path, uid: int, gid: int) -> None:
    try:
        os.fchown(descriptor, uid, gid)
    except OSError as error:
        raise _refused(path, uid, error) from error


def _refused(path: Path, uid: int, error: OSError) -> LegatoError:
    return LegatoError(
        f"Cannot give {path} to user {uid}: {error.strerror or error}. Run the server as root, or with the capability "
        "CHOWN."
    )
