"""Reads, makes and deletes files in folders that a job can write. Follows no link and waits for no pipe."""

from __future__ import annotations

import contextlib
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


def delete_tree(path: Path) -> str | None:
    """Delete a folder with all that is in it; return what cannot be deleted first, and why. None: nothing is left.

    A job may have made the content. So no link is followed, and folders may be nested as deeply as a disk allows:
    nothing here recurses, and only one folder is open. A folder of another user is taken from its owner first.
    """
    failures: list[str] = []
    try:
        at = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    except OSError as error:
        return str(error)
    # The folders from the first one to the present one: each with its identity, and the names in it that are left.
    way = [(_identify(at), [path.name])]
    try:
        while way[0][1]:
            names = way[-1][1]
            if names:
                try:
                    inner = os.open(names[-1], _FOLDER, dir_fd=at)
                except OSError as error:
                    _note_failure(failures, names.pop(), error)
                    continue
                os.close(at)
                at = inner
                way.append((_identify(at), _empty(at, failures)))
                continue
            way.pop()
            above = os.open("..", os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = above
            if _identify(at) != way[-1][0]:
                raise OSError("a folder in it was moved meanwhile")
            name = way[-1][1].pop()
            try:
                os.rmdir(name, dir_fd=at)
            except OSError as error:
                _note_failure(failures, name, error)
    except OSError as error:
        _note_failure(failures, str(path), error)
    finally:
        os.close(at)
    return next(iter(failures), None)


def _identify(folder: int) -> tuple[int, int]:
    about = os.fstat(folder)
    return about.st_dev, about.st_ino


def _empty(folder: int, failures: list[str]) -> list[str]:
    """Delete all files of an open folder; return the names of the folders in it."""
    if os.fstat(folder).st_uid != os.geteuid():
        with contextlib.suppress(OSError):
            os.fchown(folder, os.geteuid(), -1)
            os.fchmod(folder, 0o700)
    folders: list[str] = []
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
                continue
            try:
                os.unlink(entry.name, dir_fd=folder)
            except OSError as error:
                _note_failure(failures, entry.name, error)
    return folders


def _note_failure(failures: list[str], name: str, error: OSError) -> None:
    if not failures and not isinstance(error, FileNotFoundError):
        failures.append(f"{name}: {error.strerror or error}")


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
