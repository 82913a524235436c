"""Finds out from its source whether a program has an option ``--numWorker``. Reads source files; runs nothing.

The platform reads the ``--numWorker`` of a submission itself. A program with an option of this name would train with
its own default, and so with steps of another size, if the launcher did not pass the number on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

OPTION: Final = "--numWorker"

_DECLARE: Final = frozenset({"add_argument", "add_option", "option", "Option", "Argument"})
_NAME: Final = OPTION.removeprefix("--")
_MAX_FILES: Final = 50


def find_worker_arguments(program: Path, given: Sequence[str], num_workers: str | None) -> list[str]:
    """Return the arguments to append so that a program trains with the requested number of workers.

    Args:
        program: the script. Legato reads it and the modules beside it, but does not run them.
        given: the program's arguments. If they already have the option, nothing is appended.
        num_workers: the number that the submission asked for; None if it gave none.
    """
    is_given = any(word == OPTION or word.startswith(f"{OPTION}=") for word in given)
    if num_workers is None or is_given or not declares_workers(program):
        return []
    return [OPTION, num_workers]


def declares_workers(program: Path) -> bool:
    """Return whether a program, or a module beside it that it imports, declares the option."""
    waiting, seen = [program], {program}
    while waiting and len(seen) <= _MAX_FILES:
        path = waiting.pop()
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if any(_declares(node) for node in ast.walk(tree)):
            return True
        beside = (program.parent / f"{name.replace('.', '/')}.py" for name in _imports(tree))
        found = [one for one in beside if one not in seen and one.is_file()]
        seen.update(found)
        waiting += found
    return False


def _declares(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    texts = [one.value for one in ast.walk(node) if isinstance(one, ast.Constant)]
    if called in _DECLARE:
        first = [one.value for one in node.args if isinstance(one, ast.Constant)]
        return OPTION in first
    # absl's and TensorFlow's flags, and getopt.
    if called.startswith(("DEFINE_", "define")):
        return texts[:1] == [_NAME]
    return called in ("getopt", "gnu_getopt") and f"{_NAME}=" in texts


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
