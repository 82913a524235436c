"""Checks the directories and the program of a job; run as a script, it checks with the rights of its user.

``python -I -S places.py DIRECTORY PROGRAM DATA`` prints which of these is missing and exits with 1. Imports nothing of
Legato, so it starts in milliseconds.
"""

from __future__ import annotations

import os
import sys

MISSING = ("directory", "program", "data")


def find_missing(directory: str, program: str, data: str) -> str | None:
    """Return which of these does not exist or is not visible to this user; None: all exist.

    Args:
        directory: of the program; "": it needs none.
        program: its file, in that directory; "": unknown.
        data: a directory; "": it needs none.

    >>> find_missing("/", "", ""), find_missing("/", "no-such-file", ""), find_missing("", "", "/no-such-folder")
    (None, 'program', 'data')
    """
    if directory and not os.path.isdir(directory):  # noqa: PTH112 -- this program starts without pathlib
        return "directory"
    if directory and program and not os.path.isfile(os.path.join(directory, program)):  # noqa: PTH113, PTH118
        return "program"
    if data and not os.path.isdir(data):  # noqa: PTH112
        return "data"
    return None


if __name__ == "__main__":
    found = find_missing(*sys.argv[1:4])
    if found is not None:
        sys.stdout.write(found)
        sys.exit(1)
