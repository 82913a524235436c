"""Reads tar files that nobody here has seen before: regular files and folders, one by one, and nothing else.

As a stream: nothing is sought, and no entry is looked at before those before it were accepted. Believes no name and
counts no bytes; that is for who reads. Writes nothing.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, Final, NoReturn, Self

from legato.core.errors import UnpackingError

_DESCRIPTIONS: Final = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
_MAX_DESCRIPTION_BYTES: Final = 2**16
_MAX_SHOWN: Final = 200


def read_plain_tar(file: IO[bytes], what: str) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield the entries of a tar file, packed or not, and the content of those that are files.

    Args:
        file: stands at its beginning.
        what: it is, for messages.

    Raises:
        UnpackingError: an entry is refused.
        tarfile.TarError: it is no tar file, or damaged; zlib's errors, EOFError and RecursionError mean the same.
    """
    told = f"Cannot unpack {what}"
    try:
        with tarfile.open(fileobj=file, mode="r|*", errorlevel=2, tarinfo=_PlainInfo) as tar:
            for entry in tar:
                if not (entry.isreg() or entry.isdir()) or entry.issparse():
                    raise UnpackingError(
                        f"{told}: the entry {entry.name[:_MAX_SHOWN]!a} is a link or another special file. "
                        "Pack regular files and folders only (tar --dereference)."
                    )
                yield entry, tar.extractfile(entry) if entry.isreg() else None
    except _Refused as refused:
        raise UnpackingError(f"{told}: {refused}") from None


class _Refused(Exception):
    """What is wrong with an entry that nobody has seen yet."""


class _PlainInfo(tarfile.TarInfo):
    """An entry whose description is short: it is read into memory before anybody sees it."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _DESCRIPTIONS and found.size > _MAX_DESCRIPTION_BYTES:
            raise _Refused("an entry has a description larger than any name.")
        return found

    def _refuse_holes(self, *_: object) -> NoReturn:
        raise _Refused("a file in it is stored with holes, whose list may have any length. Pack it without --sparse.")

    # Called for entries of each format in which there are such lists, before they are read.
    _proc_sparse = _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_holes
