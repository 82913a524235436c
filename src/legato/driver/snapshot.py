"""Keeps the sources of a job at its start, so that a worker that joins later runs the same program.

It reads the script, the modules beside it that its import statements name, and their imports in turn. Modules that a
program imports in other ways are compared when a worker joins.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from legato.core.program import ProgramSnapshot, Source

MAX_BYTES: Final = 16 << 20
MAX_FILES: Final = 2000


def take_snapshot(script: Path) -> ProgramSnapshot | None:
    """Return the sources of a program; None if its script is not a readable Python file.

    Files beyond 2000, or beyond 16 MiB together, are left out.
    """
    script = script.resolve()
    folder = script.parent
    found: dict[str, Source] = {}
    waiting = [("", script.name)]
    num_bytes = 0
    while waiting and len(found) < MAX_FILES:
        module, path = waiting.pop()
        if path in found:
            continue
        try:
            content = (folder / path).read_bytes()
        except OSError:
            continue
        num_bytes += len(content)
        if num_bytes > MAX_BYTES:
            break
        source = found[path] = Source(module, path, content)
        waiting += [(name, file) for name in _imported_names(source) for file in _files_of(folder, name)]
    script_is_read = script.name in found and script.suffix in (".py", ".pyw")
    return ProgramSnapshot(str(folder), tuple(found.values())) if script_is_read else None


def _imported_names(source: Source) -> Iterator[str]:
    """Yield the absolute names of possible modules and of their packages."""
    try:
        tree = ast.parse(source.content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    package = source.module if source.is_package else source.module.rpartition(".")[0]
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*filter(None, above), *filter(None, [node.module])])
            names = [origin, *(f"{origin}.{alias.name}".lstrip(".") for alias in node.names)]
        for name in filter(None, names):
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _files_of(folder: Path, module: str) -> Iterator[str]:
    """Yield the file of a module in a program's folder, if there is one; a package has precedence over a module."""
    path = module.replace(".", "/")
    for file in (f"{path}/__init__.py", f"{path}.py"):
        if os.path.isfile(folder / file):  # noqa: PTH113 -- False also where the folder cannot be entered
            yield file
            return
