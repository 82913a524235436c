"""Finds the installed packages that a program imports. Reads its text and runs nothing of it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from legato.system.plain_files import read_plain_file

_MAX_BYTES: Final = 16 * 2**20


def imported_packages(program: Path, *, python: str | None = None) -> tuple[str, ...]:
    """Return the installed modules that a script imports, without duplicates; none if it cannot be read.

    Modules beside the script are left out, because they may be edited while the job runs. Installed modules of the same
    names are left out too, because the script does not import them.

    Args:
        program: the script.
        python: the interpreter that runs it. The result then has modules that are not installed there too, which the
            engine leaves out. None: that of this process.
    """
    try:
        tree = ast.parse(read_plain_file(program.resolve(), _MAX_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, RuntimeError):
        # The worker will raise the same error and write it to its log.
        return ()
    packages = ((name, name.partition(".")[0]) for name in _names(tree))
    meant = (
        name for name, package in packages if not _is_beside(program, package) and (python or _is_installed(package))
    )
    return tuple(dict.fromkeys(meant))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _is_beside(program: Path, package: str) -> bool:
    # A package or a module, including extension modules. Other folders, such as data, hide no installed module.
    here = program.parent
    if (here / package / "__init__.py").is_file() or (here / f"{package}.py").is_file():
        return True
    return any(here.glob(f"{package}.*so"))


def _is_installed(package: str) -> bool:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    where = Path(spec.origin) if spec is not None and spec.origin else Path()
    return bool({"site-packages", "dist-packages"} & set(where.parts))
