"""Reads tar files from untrusted users: regular files and folders, one by one, plain or gzipped, nothing else.

Reads a stream without seeking: an entry is read only after the caller has accepted the previous ones. The caller must
check names and count bytes. One read unpacks no more bytes than requested. Other compressions are refused by name,
because Python's bz2 and lzma may unpack much more at once. Writes nothing.
"""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Iterator, Mapping
from typing import IO, Final, NoReturn, Self, cast

from legato.core.errors import UnpackingError

_DESCRIPTIONS: Final = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_MAX_DESCRIPTION_BYTES: Final = 2**16
_MAX_SHOWN: Final = 200
_GZIP: Final = b"\x1f\x8b"
_PACKINGS: Final[Mapping[bytes, str]] = {
    b"PK\x03\x04": "a zip file",
    b"PK\x05\x06": "a zip file",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ": "packed with xz",
    b"\x5d\x00\x00": "packed with lzma",
    b"LZIP": "packed with lzip",
    b"\x04\x22\x4d\x18": "packed with lz4",
    b"\x1f\x9d": "packed with compress",
    b"(\xb5/\xfd": "packed with zstd",
    b"7z\xbc\xaf": "a 7z file",
    b"Rar!": "a rar file",
}


def read_plain_tar(file: IO[bytes], what: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the entries of a tar file, plain or packed by gzip, and the content of those that are files.

    Args:
        file: seekable; read from its beginning.
        what: the upload's name in messages.

    Raises:
        UnpackingError: the file has another format, or an entry is refused.
        tarfile.TarError: the file is no tar file, or is damaged; zlib's errors, EOFError and RecursionError mean the
            same.
    """
    refusal = f"Cannot unpack {what}"
    packing = find_packing(file)
    if packing is not None:
        raise UnpackingError(
            f"{refusal}: it is {packing}, which Legato does not unpack. Pack a tar file, with gzip or without: "
            "tar -czf NAME.tar.gz FOLDER"
        )
    is_packed = file.read(len(_GZIP)) == _GZIP
    file.seek(0)
    plain = cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb")) if is_packed else file
    try:
        with tarfile.open(fileobj=plain, mode="r|", errorlevel=2, tarinfo=_PlainInfo) as tar:
            for entry in tar:
                if not (entry.isreg() or entry.isdir()) or entry.issparse():
                    raise UnpackingError(
                        f"{refusal}: the entry {entry.name[:_MAX_SHOWN]!a} is a link or another special file. "
                        "Pack regular files and folders only (tar --dereference)."
                    )
                yield entry, tar.extractfile(entry) if entry.isreg() else None
    except _Refused as refused:
        raise UnpackingError(f"{refusal}: {refused}") from None
    except gzip.BadGzipFile as error:
        raise tarfile.ReadError(str(error)) from error


def find_packing(content: IO[bytes]) -> str | None:
    r"""Return the format of a file that is no tar file; None: a tar file, plain or with gzip, or unknown.

    Args:
        content: the open file, which is at its beginning afterwards.

    >>> import io
    >>> find_packing(io.BytesIO(b"PK\x03\x04...")), find_packing(io.BytesIO(b"import torch"))
    ('a zip file', None)
    """
    content.seek(0)
    start = content.read(max(map(len, _PACKINGS)))
    content.seek(0)
    return next((kind for magic, kind in _PACKINGS.items() if start.startswith(magic)), None)


class _Refused(Exception):
    """The error of an entry that has not been yielded yet."""


class _PlainInfo(tarfile.TarInfo):
    """An entry with a limited header, because headers are read into memory before any check."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _DESCRIPTIONS and found.size > _MAX_DESCRIPTION_BYTES:
            raise _Refused(f"an entry has an extended header of more than {_MAX_DESCRIPTION_BYTES} bytes.")
        return found

    def _refuse_holes(self, *_: object) -> NoReturn:
        raise _Refused(
            "a file in it is sparse, and the list of its holes may have any length. Pack it without --sparse."
        )

    # Called for entries of each format with such lists, before the lists are read.
    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_holes
