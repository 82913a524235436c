"""Finds the Python executable of an environment; run as a script, it searches with the rights of the job's user.

``python -I -S interpreter_search.py PATH NAME…`` prints the result. Imports nothing of Legato, so it starts in
milliseconds.
"""

from __future__ import annotations

import os
import sys


def search(path: str, names: list[str] | tuple[str, ...]) -> tuple[str, str]:
    """Return ``found`` and the executable; or why there is none: ``missing``, ``folder`` or ``closed``, and the path.

    Args:
        path: of an executable, or of the folder of an environment.
        names: of executables in that folder.

    >>> search("/no/such/file", ["bin/python"]), search("/", ["no/such/python"])
    (('missing', '/no/such/file'), ('folder', '/'))
    """
    if os.path.isdir(path):  # noqa: PTH112 -- this program starts without pathlib
        inside = (os.path.join(path, name) for name in names)  # noqa: PTH118
        found = next((one for one in inside if os.path.isfile(one)), None)  # noqa: PTH113
        if found is None:
            return "folder", path
        path = found
    if not os.path.exists(path):  # noqa: PTH110
        return "missing", path
    is_program = os.path.isfile(path) and os.access(path, os.X_OK)  # noqa: PTH113
    return ("found" if is_program else "closed"), path


if __name__ == "__main__":
    sys.stdout.write(" ".join(search(sys.argv[1], sys.argv[2:])))
