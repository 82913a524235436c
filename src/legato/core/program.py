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
        module: the name by which it is imported; "" for the script.
        path: relative to the program's folder.
        content: of the file when the job began.
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
        folder: of the script, absolute.
        sources: the script first.
    """

    folder: str
    sources: tuple[Source, ...]
