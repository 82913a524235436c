"""How a file is packed, by its first bytes. Unpacks nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Final

_KINDS: Final[Mapping[bytes, str]] = {
    b"PK\x03\x04": "a zip file",
    b"PK\x05\x06": "a zip file",
    b"BZh": "packed with bzip2",
    b"\xfd7zXZ": "packed with xz",
    b"(\xb5/\xfd": "packed with zstd",
    b"7z\xbc\xaf": "a 7z file",
    b"Rar!": "a rar file",
}
INSTEAD: Final = "Send a tar file, gzip or not: tar -czf NAME.modelDir.tar FOLDER"


def tell_packing(content: IO[bytes]) -> str | None:
    r"""Return what a file is that is packed otherwise than model directories are; None: it is no such file.

    Args:
        content: of the file; stands at its beginning afterwards.

    >>> import io
    >>> tell_packing(io.BytesIO(b"PK\x03\x04...")), tell_packing(io.BytesIO(b"import torch"))
    ('a zip file', None)
    """
    content.seek(0)
    start = content.read(max(map(len, _KINDS)))
    content.seek(0)
    return next((kind for magic, kind in _KINDS.items() if start.startswith(magic)), None)
