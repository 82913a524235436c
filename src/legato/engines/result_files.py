"""Lists, opens and places the files of a program's working directory. The program can put anything there meanwhile.

Each folder of a path is opened relative to the one before it, and no link is followed. So neither a program nor the
other side of a transfer can redirect a path to a file outside of the working directory.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from legato.core.agent_messages import LeftOut, OfferedFile
from legato.core.errors import LegatoError
from legato.core.job_user import JobUser

MAX_FILES: Final = 10_000
"""Files of one machine that travel."""

MAX_BYTES: Final = 2**36
"""Of all these files together: 64 GiB."""

MAX_EARLIER_BYTES: Final = 2**31
"""Of the files of earlier attempts that a machine gets before its first worker: 2 GiB."""

MAX_DEPTH: Final = 32
_MAX_ENTRIES: Final = 100_000
_MAX_PATH_BYTES: Final = 1000
_MAX_NAME_BYTES: Final = 255
_MAX_NAMED: Final = 50
_MAX_ASIDE: Final = 100
_CACHES: Final = "__pycache__"
_HASH_BYTES: Final = 2**22
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER: Final = _READ | os.O_DIRECTORY


class Stamp(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a file: its size, its time of change (ns; no program can set it) and its SHA-256."""

    num_bytes: int
    changed_ns: int
    sha256: str = ""

    def is_same(self, other: Stamp | None) -> bool:
        """Whether the file has not changed, as far as size and time say."""
        return other is not None and (self.num_bytes, self.changed_ns) == (other.num_bytes, other.changed_ns)


class Listing(msgspec.Struct):
    """The files of a folder.

    Args:
        found: path → stamp, without SHA-256.
        left_out: the first files that cannot travel, with the reasons.
        num_left_out: of all these files.
        odd: the first paths at which there is no plain file, such as links.
        num_odd: of all these.
    """

    found: dict[str, Stamp] = {}
    left_out: list[LeftOut] = []
    num_left_out: int = 0
    odd: list[str] = []
    num_odd: int = 0

    def leave_out(self, path: str, reason: str) -> None:
        """Note a file that does not travel."""
        self.num_left_out += 1
        if len(self.left_out) < _MAX_NAMED:
            self.left_out.append(LeftOut(_show(path), reason))

    def note_odd(self, path: str) -> None:
        """Note something that is not a plain file."""
        self.num_odd += 1
        if len(self.odd) < _MAX_NAMED:
            self.odd.append(_show(path))


def split(path: str) -> tuple[str, ...]:
    """Return the parts of a file's path below the working directory.

    Raises:
        LegatoError: no file of this path may travel.

    >>> split("out/model.pt")
    ('out', 'model.pt')
    """
    parts = tuple(path.split("/"))
    reason = None
    if not path.isprintable():
        reason = "its name has characters that cannot be shown"
    elif any(part in ("", ".", "..") for part in parts):
        reason = "it is not below the working directory"
    elif len(path.encode()) > _MAX_PATH_BYTES or any(len(part.encode()) > _MAX_NAME_BYTES for part in parts):
        reason = f"its path is longer than {_MAX_PATH_BYTES} bytes, or a part of it than {_MAX_NAME_BYTES}"
    elif len(parts) > MAX_DEPTH:
        reason = f"it is in more than {MAX_DEPTH - 1} folders"
    elif _CACHES in parts:
        reason = f"it is in a folder {_CACHES}"
    if reason is not None:
        raise LegatoError(reason)
    return parts


def list_files(root: Path, user: JobUser | None = None) -> Listing:
    """List the plain files of a working directory. Blocks.

    Args:
        root: the working directory; empty if it does not exist.
        user: the system user of the job, whose files may travel. None: files of any user may.
    """
    listing = Listing()
    num_entries = 0
    for folder, folders, names, at in os.fwalk(root, follow_symlinks=False):
        inside = os.path.relpath(folder, root)
        above = () if inside == "." else tuple(inside.split("/"))
        links = {name for name in folders if _is_link(name, at)}
        folders[:] = sorted(name for name in folders if name != _CACHES and name not in links)
        if len(above) + 1 >= MAX_DEPTH:
            for name in folders:
                listing.leave_out("/".join((*above, name)), f"it is in more than {MAX_DEPTH - 1} folders")
            folders.clear()
        num_entries += len(folders) + len(names)
        if num_entries > _MAX_ENTRIES:
            listing.leave_out("/".join(above) or ".", f"there are more than {_MAX_ENTRIES} files and folders")
            break
        for name in sorted({*names, *links}):
            with contextlib.suppress(FileNotFoundError):
                _list_one(listing, "/".join((*above, name)), os.stat(name, dir_fd=at, follow_symlinks=False), user)
    return listing


def _is_link(name: str, folder: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def _list_one(listing: Listing, path: str, about: os.stat_result, user: JobUser | None) -> None:
    if not stat.S_ISREG(about.st_mode):
        listing.note_odd(path)
        return
    try:
        split(path)
        _check(about, user)
    except LegatoError as error:
        listing.leave_out(path, str(error))
    else:
        listing.found[path] = Stamp(about.st_size, about.st_ctime_ns)


def _show(path: str) -> str:
    return (path if path.isprintable() else ascii(path))[:_MAX_PATH_BYTES]


def _check(about: os.stat_result, user: JobUser | None) -> None:
    """Check that a file may travel. This process may read files of other users. Raises LegatoError."""
    if not stat.S_ISREG(about.st_mode):
        raise LegatoError("it is not a plain file")
    if user is not None and about.st_uid != user.uid:
        raise LegatoError("it belongs to another system user")
    if user is not None and about.st_nlink != 1:
        raise LegatoError("it has a second name")


def select(listing: Listing, paths: Iterable[str], max_bytes: int) -> list[str]:
    """Return those of the files that travel, small ones first; leave out what is beyond the limits."""
    chosen: list[str] = []
    total = 0
    for path in sorted(paths, key=lambda path: (listing.found[path].num_bytes, path)):
        num_bytes = listing.found[path].num_bytes
        if len(chosen) >= MAX_FILES:
            listing.leave_out(path, f"there are more than {MAX_FILES} files")
        elif total + num_bytes > max_bytes:
            listing.leave_out(path, f"it has {num_bytes} bytes, and all files together may have {max_bytes}")
        else:
            chosen.append(path)
            total += num_bytes
    return chosen


def open_file(root: Path, path: str, user: JobUser | None = None) -> int:
    """Open a file that may travel, and return its descriptor.

    Raises:
        LegatoError: it may not travel.
        OSError: it cannot be opened.
    """
    parts = split(path)
    folder = _open_folder(root, parts[:-1])
    try:
        descriptor = os.open(parts[-1], _READ, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _check(os.fstat(descriptor), user)
    except LegatoError:
        os.close(descriptor)
        raise
    return descriptor


def stamp(root: Path, path: str, user: JobUser | None = None) -> Stamp:
    """Return the stamp of a file with its SHA-256. Blocks. Raises as `open_file`."""
    descriptor = open_file(root, path, user)
    try:
        about = os.fstat(descriptor)
        digest, at = hashlib.sha256(), 0
        while at < about.st_size and (data := os.pread(descriptor, min(_HASH_BYTES, about.st_size - at), at)):
            digest.update(data)
            at += len(data)
        return Stamp(about.st_size, about.st_ctime_ns, digest.hexdigest())
    finally:
        os.close(descriptor)


def stamp_all(root: Path, user: JobUser | None = None) -> dict[str, Stamp]:
    """Return the stamps of all files of a working directory with their SHA-256. Blocks."""
    found = {}
    for path, seen in list_files(root, user).found.items():
        if seen.num_bytes <= MAX_BYTES:
            with contextlib.suppress(LegatoError, OSError):  # it is as unknown as a file that the program makes later
                found[path] = stamp(root, path, user)
    return found


# ---------------------------------------------------------------- what comes


class Standing(enum.Enum):
    """What a machine is for the job when its files come."""

    FIRST = "rank 0 runs there, or was the last there"
    EARLIER = "rank 0 ran there, and then on another machine"
    OTHER = "rank 0 never ran there"


class Choice(enum.Enum):
    """What becomes of an offered file."""

    SAME = "the job has it"
    TAKE = "it comes, and replaces the version with which the machine began"
    DISPLACE = "it comes, and the other version gets another name"
    ASIDE = "it comes under another name"
    REFUSE = "it does not come"


def choose(offered: OfferedFile, here: str, standing: Standing) -> Choice:
    """Decide what becomes of an offered file. No version that is not known to be older is lost without a word.

    Args:
        offered: the file.
        here: SHA-256 of the job's file of this path; "": it has none.
        standing: of the machine that offers it.
    """
    if here == offered.sha256:
        return Choice.SAME
    if here in ("", offered.base):
        return Choice.TAKE
    return {Standing.FIRST: Choice.DISPLACE, Standing.EARLIER: Choice.ASIDE, Standing.OTHER: Choice.REFUSE}[standing]


def find_sha256(root: Path, path: str, offered: OfferedFile) -> str:
    """Return the SHA-256 of the job's file at a path; "": there is none; "?": it differs from all that is offered.

    Raises:
        LegatoError: no file of this path may travel, or something that is not a plain file has it.
        OSError: it cannot be read.
    """
    split(path)
    try:
        descriptor = open_file(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except LegatoError as error:
        raise LegatoError(f"the job has something of this name, and {error}") from error
    try:
        num_bytes = os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)
    if num_bytes != offered.num_bytes and (not offered.base or num_bytes > MAX_BYTES):
        return "?"
    return stamp(root, path).sha256


def place(root: Path, path: str, staged: Path, user: JobUser | None = None, *, keep: str = "", own: str = "") -> str:
    """Move a file that has come to its path; folders are made. Returns the path at which it, or the earlier one, is.

    Args:
        root: the working directory; made if it does not exist.
        path: of the file.
        staged: the file, on the same disk, in a folder that the job cannot change.
        user: the system user who gets the file and the new folders. None: the user of this process.
        keep: the earlier file of this path is kept with this ending; "": it is replaced.
        own: the file that has come gets this ending.

    Raises:
        LegatoError: no file may be there.
        OSError: it cannot be moved.
    """
    parts = split(path)
    with contextlib.suppress(FileExistsError):  # another machine's file may make it at the same moment
        root.mkdir(mode=0o700)
        if user is not None:
            os.chown(root, user.uid, user.gid)
    folder = _open_folder(root, parts[:-1], user, makes=True)
    name = parts[-1]
    try:
        if user is not None:
            os.chown(staged, user.uid, user.gid, follow_symlinks=False)
        if keep:
            kept = _find_free(folder, name, keep)
            os.rename(name, kept, src_dir_fd=folder, dst_dir_fd=folder)
        elif own:
            kept = name = _find_free(folder, name, own)
        else:
            kept = name
        os.rename(staged, name, dst_dir_fd=folder)
    finally:
        os.close(folder)
    return "/".join((*parts[:-1], kept))


def _find_free(folder: int, name: str, ending: str) -> str:
    for number in range(1, _MAX_ASIDE):
        found = f"{name}.{ending}" if number == 1 else f"{name}.{ending}-{number}"
        try:
            os.stat(found, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return found
    raise LegatoError(f"there are {_MAX_ASIDE} other versions of it already")


def _open_folder(root: Path, parts: tuple[str, ...], user: JobUser | None = None, *, makes: bool = False) -> int:
    descriptor = os.open(root, _FOLDER)
    try:
        for part in parts:
            is_new = False
            if makes:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=descriptor)
                    is_new = True
            inner = os.open(part, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
            if is_new and user is not None:
                os.fchown(descriptor, user.uid, user.gid)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
