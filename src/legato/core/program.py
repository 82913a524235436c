"""The sources of a program as they were when its job began. Data only."""

from __future__ import annotations

from typing import Final

import msgspec

PROGRAM_VARIABLE: Final = "LEGATO_PROGRAM"
"""Names the file with the snapshot to the workers."""

OF_FILE: Final = "file "
"""Begins the parts of a fingerprint that are digests of a program's files."""


class Source(msgspec.Struct, frozen=True):
    """One file of a program.

    Args:
        module: the name by which it is imported; "" of the script.
        path: from the program's folder on.
        content: as it was on the disk.
    """

    module: str
    path: str
    content: bytes

    @property
    def is_package(self) -> bool:
        return self.path.endswith("__init__.py")


class ProgramSnapshot(msgspec.Struct, frozen=True):
    """The script of a job and the modules beside it that it imports.

    Args:
        folder: where the script lies, absolute.
        sources: the script first.
    """

    folder: str
    sources: tuple[Source, ...]
