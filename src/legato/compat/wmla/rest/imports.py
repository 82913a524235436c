r"""Finds the modules that a program imports, so that the warm parent can load them before it starts workers.

The source is not trusted, so this module does not parse it, but searches for lines that look like imports. A wrong
match only means that an installed module is loaded unnecessarily; a missed import is loaded later. Pure.

>>> find_imports("import os, torchvision as tv\nfrom sklearn.svm import SVC  # a comment\nimport mine\n", {"mine"})
('os', 'torchvision', 'sklearn.svm')
>>> print(make_launcher(["torchvision"]).decode().splitlines()[-1])
    import torchvision
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Collection, Sequence
from typing import Final

from legato.compat.wmla.names import LAUNCHER_SOURCE

_LINE: Final = re.compile(
    r"^[ \t]*(?:import[ \t]+(?P<names>[^#;\n]+)|from[ \t]+(?P<name>\S+)[ \t]+import\b)", re.MULTILINE
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")
_MAX_IMPORTS: Final = 100
_MAX_NAME_LENGTH: Final = 200

# Not loaded early: the launcher must set variables for them first, or provides them itself.
_LATE: Final = re.compile(
    r"(?:tensorflow|tf_|keras|fabric_model|callbacks|emetrics|elog|edtcallback|pyedt|pth_parameter_mgr)\w*"
)
_NEVER_RUN: Final = "\nif False:  # Never run: by this it is known what the program imports.\n"  # in the hashed code


def find_imports(text: str, beside: Collection[str] = ()) -> tuple[str, ...]:
    """Return the modules that a program seems to import, each once.

    Args:
        text: source of the program.
        beside: names of modules in the upload; the program imports these, not installed ones of the same name.
    """
    found: dict[str, None] = {}
    for line in _LINE.finditer(text):
        imported = [line["name"]] if line["names"] is None else line["names"].split(",")
        words = (one.strip().partition(" ")[0].strip("()\\") for one in imported)
        found |= dict.fromkeys(word for word in words if _can_preload(word, beside))
    return tuple(found)[:_MAX_IMPORTS]


def make_launcher(imports: Sequence[str]) -> bytes:
    """Return the source of the launcher for a program that imports these modules."""
    if not imports:
        return LAUNCHER_SOURCE
    lines = "".join(f"    import {name}\n" for name in imports)
    return LAUNCHER_SOURCE + (_NEVER_RUN + lines).encode()


def _can_preload(name: str, beside: Collection[str]) -> bool:
    if len(name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        return False
    parts = name.split(".")
    is_late = _LATE.fullmatch(parts[0]) is not None
    return parts[0] not in beside and not is_late and not any(keyword.iskeyword(part) for part in parts)
