"""Packs uploaded code into one zip file for downloads."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path
from typing import BinaryIO, Final

_FIRST_DAY: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip file can contain


def pack_code(folder: Path) -> BinaryIO:
    """Return a zip file of a folder with code, as an open temporary file. The same files give the same bytes.

    Raises:
        FileNotFoundError: a file of the code was deleted meanwhile.
    """
    packed = tempfile.TemporaryFile()  # noqa: SIM115 -- the sender closes it
    try:
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(Path(top, name) for top, _, names in os.walk(folder) for name in names):
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _FIRST_DAY)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = (stat.S_IFREG | stat.S_IMODE(path.stat().st_mode)) << 16
                with path.open("rb") as content, archive.open(entry, "w", force_zip64=True) as into:
                    shutil.copyfileobj(content, into)
    except BaseException:
        packed.close()
        raise
    return packed
