"""Which installed packages a program will import. Reads its text; runs nothing of it."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path


def imported_packages(program: Path) -> tuple[str, ...]:
    """Return the installed modules that a script names in its imports, each once; none if it cannot be read.

    Modules that lie beside the script are left out: they may be edited while the job runs.
    """
    try:
        tree = ast.parse(program.read_bytes())
    except (OSError, SyntaxError, ValueError):
        # The worker meets the same error and says it where the user looks.
        return ()
    return tuple(dict.fromkeys(name for name in _names(tree) if _is_installed(name.partition(".")[0])))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _is_installed(package: str) -> bool:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    where = Path(spec.origin) if spec is not None and spec.origin else Path()
    return bool({"site-packages", "dist-packages"} & set(where.parts))
