r"""What a program will import, for the launcher of its job: the warm parent loads it before it starts workers.

An untrusted text is not parsed here, only searched for lines that look like imports: a word too many is
a module that is loaded early if it is installed, a word too few one that is loaded late. Pure.

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
_MOST: Final = 100
_MAX_NAME_LENGTH: Final = 200

# The launcher has something to say before these are loaded, or brings them itself.
_LATE: Final = re.compile(
    r"(?:tensorflow|tf_|keras|fabric_model|callbacks|emetrics|elog|edtcallback|pyedt|pth_parameter_mgr)\w*"
)
_NEVER_RUN: Final = "\nif False:  # Never run: by this it is known what the program imports.\n"


def find_imports(text: str, beside: Collection[str] = ()) -> tuple[str, ...]:
    """Return the modules that a program seems to import, each once.

    Args:
        text: of the program.
        beside: names of modules that came with it: those of the same name that are installed are not meant.
    """
    found: dict[str, None] = {}
    for line in _LINE.finditer(text):
        said = [line["name"]] if line["names"] is None else line["names"].split(",")
        words = (one.strip().partition(" ")[0].strip("()\\") for one in said)
        found |= dict.fromkeys(word for word in words if _is_meant(word, beside))
    return tuple(found)[:_MOST]


def make_launcher(imports: Sequence[str]) -> bytes:
    """Return the launcher of a job whose program imports these modules."""
    if not imports:
        return LAUNCHER_SOURCE
    lines = "".join(f"    import {name}\n" for name in imports)
    return LAUNCHER_SOURCE + (_NEVER_RUN + lines).encode()


def _is_meant(name: str, beside: Collection[str]) -> bool:
    if len(name) > _MAX_NAME_LENGTH or not _NAME.fullmatch(name):
        return False
    parts = name.split(".")
    is_late = _LATE.fullmatch(parts[0]) is not None
    return parts[0] not in beside and not is_late and not any(keyword.iskeyword(part) for part in parts)
