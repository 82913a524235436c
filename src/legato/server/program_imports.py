"""Reads which modules an uploaded program imports, with those of its own modules. Runs nothing of it."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from legato.system.plain_files import read_plain_file

_IMPORT: Final = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import|import[ \t]+(.+))", re.MULTILINE)
# Of all files together. Ten hostile files of 1 MiB each took 2.9 s of CPU time and 255 MB of memory.
_MAX_BYTES: Final = 2**21
_MAX_FILES: Final = 100


def find_main(words: Sequence[str], files: Collection[str]) -> str | None:
    """Return the Python file in the code that a command runs. None: the command shows none.

    >>> find_main(["python3", "train.py", "--lr", "1"], ["mnist/train.py", "mnist/net.py"])
    'mnist/train.py'
    >>> find_main(["bash", "train.sh"], ["train.sh"]) is None
    True
    """
    named = next((posixpath.normpath(word) for word in words[:2] if word.endswith(".py")), None)
    if named is None or named in files:
        return named
    return min((file for file in files if file.endswith(f"/{named}")), key=len, default=None)


def read_imports(folder: Path, main: str, files: Collection[str]) -> frozenset[str]:
    """Return the names of the modules, without what follows a dot, that a program and its own modules import.

    Args:
        folder: with the code.
        main: the program, relative to ``folder``.
        files: of the code, relative to ``folder``.
    """
    known, found = set(files), set()
    waiting, read = [main], set[str]()
    num_left = _MAX_BYTES
    while waiting and len(read) < _MAX_FILES:
        file = waiting.pop()
        if file in read:
            continue
        read.add(file)
        with contextlib.suppress(OSError):
            content = read_plain_file(folder / file, num_left)
            num_left -= len(content)
            for name in set(_list_imports(content.decode(errors="replace"))):
                found.add(name.partition(".")[0])
                waiting += [near for near in _find_own(name, posixpath.dirname(file)) if near in known]
    return frozenset(found - {""})


def _list_imports(source: str) -> list[str]:
    r"""Return the full names of imported modules.

    >>> _list_imports("import os, torch.nn as nn\nfrom fabric_model import FabricModel\n    import json # data")
    ['os', 'torch.nn', 'fabric_model', 'json']
    """
    found = []
    for origin, names in _IMPORT.findall(source):
        listed = [origin] if origin else names.partition("#")[0].split(",")
        found += [name.split()[0].strip(";") for name in listed if name.strip()]
    return found


def _find_own(module: str, folder: str) -> list[str]:
    """Return the files in which a module of the program may be, for a file in ``folder``."""
    path = module.strip(".").replace(".", "/")
    return [posixpath.join(folder, f"{path}{end}") for end in (".py", "/__init__.py")] if path else []
