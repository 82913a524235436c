"""Unpacks uploaded code, which is not trusted: regular files and folders, within limits, and nothing else.

Legato extracts files itself, because filters of libraries had security holes. It refuses links, devices and other
special files, absolute names, ``..``, and names that are equal on some file system. Limits apply to the unpacked bytes,
while they are unpacked. A refused upload leaves no files. Never runs, imports or interprets the files.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tarfile
import tempfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple, NoReturn

import msgspec

from legato.core.errors import UnpackingError
from legato.uploads.tar_reader import read_plain_tar

_CHUNK_BYTES: Final = 2**20
_MAX_NAME_BYTES: Final = 255
_ZIP_END: Final = struct.Struct("<4s4H2LH")
_ZIP_END_MARK: Final = b"PK\005\006"
_MAX_ZIP_COMMENT_BYTES: Final = 2**16
_MAX_ZIP_ENTRY_BYTES: Final = 2**10
"""Maximum average size of an entry in the list of a zip file. A name has at most 255 bytes."""
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_METHOD_NAMES: Final = {9: "deflate64", 12: "bzip2", 14: "lzma", 20: "zstd", 93: "zstd", 95: "xz", 98: "ppmd"}
_MIN_MEASURED_BYTES: Final = 2**20
"""The ratio is checked only above this number of unpacked bytes, because small files can have a very high ratio."""


class Caps(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of an upload.

    Args:
        num_entries: maximum number of files and folders.
        file_bytes: maximum bytes of one file.
        total_bytes: maximum bytes of all files.
        depth: maximum nesting of folders.
        ratio: maximum of unpacked bytes per packed byte.
    """

    num_entries: int
    file_bytes: int
    total_bytes: int
    depth: int
    ratio: float


class _Entry(NamedTuple):
    """One unchecked entry of an archive. ``content`` None: a folder."""

    name: str
    content: IO[bytes] | None
    is_executable: bool


def unpack(archive: Path, target: Path, caps: Caps) -> int:
    """Unpack a ``.tar``, ``.tar.gz`` or ``.zip`` file into a folder that does not exist yet.

    The folder appears complete or not at all. Members of a zip must be stored or deflated, because only these can be
    unpacked in pieces of a bounded size.

    Args:
        archive: the uploaded file; its first bytes show its format.
        target: its parent must exist.
        caps: its limits.

    Returns:
        Number of bytes of all files.

    Raises:
        UnpackingError: the file has another format, or contains a refused entry.
    """
    scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        writer = _Writer(scratch, caps, archive.stat().st_size)
        try:
            for entry in _entries(archive, caps):
                writer.write(entry)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise UnpackingError(
                f"Cannot unpack the upload: it is damaged or encrypted ({error}). Pack it again."
            ) from error
        if writer.num_files == 0:
            raise UnpackingError("Cannot unpack the upload: it contains no file. Pack the folder of your program.")
        scratch.rename(target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return writer.total_bytes


class _Writer:
    def __init__(self, root: Path, caps: Caps, packed_bytes: int) -> None:
        self._root = root
        self._caps = caps
        self._packed_bytes = max(packed_bytes, 1)
        self._num_entries = 0
        # All names so far, in lower case and with normalised accents, as some file systems compare them.
        self._is_folder: dict[str, bool] = {}
        self._spelled: dict[str, str] = {}
        self.num_files = 0
        self.total_bytes = 0

    def write(self, entry: _Entry) -> None:
        self._num_entries += 1
        if self._num_entries > self._caps.num_entries:
            self._refuse(entry.name, f"there are more than {self._caps.num_entries} files and folders")
        parts = self._check_name(entry.name)
        if not parts:
            return
        for end in range(1, len(parts)):
            self._take("/".join(parts[:end]), entry.name, is_folder=True)
        self._take("/".join(parts), entry.name, is_folder=entry.content is None)
        path = self._root.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.content is None:
            path.mkdir(exist_ok=True)
            return
        self.num_files += 1
        mode = 0o755 if entry.is_executable else 0o644
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            self._copy(entry, entry.content, file)

    def _copy(self, entry: _Entry, content: IO[bytes], file: IO[bytes]) -> None:
        num_bytes = 0
        while chunk := content.read(_CHUNK_BYTES):
            num_bytes += len(chunk)
            self.total_bytes += len(chunk)
            if num_bytes > self._caps.file_bytes:
                self._refuse(
                    entry.name, f"it is larger than {self._caps.file_bytes} bytes; keep data outside of the upload"
                )
            if self.total_bytes > self._caps.total_bytes:
                self._refuse(entry.name, f"all files together are larger than {self._caps.total_bytes} bytes")
            if self.total_bytes > max(self._caps.ratio * self._packed_bytes, _MIN_MEASURED_BYTES):
                self._refuse(entry.name, f"the upload unpacks to more than {self._caps.ratio:g} times its size")
            file.write(chunk)

    def _check_name(self, name: str) -> list[str]:
        if name.startswith(("/", "\\")) or "\\" in name or "\0" in name or name[1:2] == ":":
            self._refuse(name, "its name is absolute, or has the form of another system")
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts:
            self._refuse(name, "its name leads out of the folder")
        if len(parts) > self._caps.depth:
            self._refuse(name, f"folders are nested more than {self._caps.depth} deep")
        for part in parts:
            try:
                too_long = len(part.encode()) > _MAX_NAME_BYTES
            except UnicodeEncodeError:
                self._refuse(name, "its name is not readable text")
            if too_long or any(unicodedata.category(letter) == "Cc" for letter in part):
                self._refuse(name, "its name is too long, or holds control characters")
        return parts

    def _take(self, path: str, name: str, *, is_folder: bool) -> None:
        """Claim a name unless another entry has it; folders may be repeated."""
        folded = unicodedata.normalize("NFKC", path).casefold()
        known = self._spelled.setdefault(folded, path)
        if known != path:
            self._refuse(name, f"'{known}' differs from it only in case or accents")
        if folded in self._is_folder and not (is_folder and self._is_folder[folded]):
            self._refuse(name, "there are two entries of this name")
        self._is_folder[folded] = is_folder

    def _refuse(self, name: str, why: str) -> NoReturn:
        shown = ascii(name if len(name) <= _MAX_NAME_BYTES else name[:_MAX_NAME_BYTES] + "…")
        raise UnpackingError(f"Cannot unpack the upload: at the entry {shown}, {why}.")


def _entries(archive: Path, caps: Caps) -> Iterator[_Entry]:
    with archive.open("rb") as file:
        if file.read(4).startswith(b"PK"):
            yield from _zip_entries(archive, caps)
            return
        file.seek(0)
        for found, content in read_plain_tar(file, "the upload"):
            yield _Entry(found.name, content, bool(found.mode & stat.S_IXUSR))


def _check_zip_directory(archive: Path, caps: Caps) -> None:
    """Refuse a zip file whose list of entries is too long to be read into memory."""
    with archive.open("rb") as file:
        file.seek(max(archive.stat().st_size - _ZIP_END.size - _MAX_ZIP_COMMENT_BYTES, 0))
        tail = file.read()
    place = tail.rfind(_ZIP_END_MARK, 0, max(len(tail) - _ZIP_END.size + len(_ZIP_END_MARK), 0))
    if place < 0:
        raise UnpackingError("Cannot unpack the upload: the zip file is incomplete. Upload it again.")
    num_bytes = _ZIP_END.unpack_from(tail, place)[5]
    if num_bytes > caps.num_entries * _MAX_ZIP_ENTRY_BYTES:
        raise UnpackingError(f"Cannot unpack the upload: there are more than {caps.num_entries} files and folders.")


def _zip_entries(archive: Path, caps: Caps) -> Iterator[_Entry]:
    _check_zip_directory(archive, caps)
    with zipfile.ZipFile(archive) as packed:
        for member in packed.infolist():
            mode = member.external_attr >> 16
            kind = stat.S_IFMT(mode)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise UnpackingError(
                    f"Cannot unpack the upload: the entry {member.filename!a} is a link or another special file. "
                    "Pack regular files and folders only."
                )
            if member.is_dir() or kind == stat.S_IFDIR:
                yield _Entry(member.filename, None, is_executable=False)
                continue
            if member.compress_type not in _METHODS:
                method = _METHOD_NAMES.get(member.compress_type, f"method {member.compress_type}")
                raise UnpackingError(
                    f"Cannot unpack the upload: the entry {member.filename[:_MAX_NAME_BYTES]!a} is packed with "
                    f"{method}. Pack it stored or with deflate, as 'zip -r' does."
                )
            with packed.open(member) as content:
                yield _Entry(member.filename, content, bool(mode & stat.S_IXUSR))
