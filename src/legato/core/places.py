"""Paths that are stored in files, and must stay valid after their folder was moved. Pure.

Code that stores paths also stores the folders of that time, such as the home. Code that reads the paths later replaces
these folders by the present ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A match must not continue another path, and must not be the beginning of a longer name.
_BEFORE = r"(?:(?<![\w./~-])|(?<=://))"
_AFTER = r"(?![\w.~-])"


def move_paths(value: Any, moves: Mapping[str, str]) -> Any:
    """Return a plain value in which paths below moved folders are replaced by the present paths.

    Args:
        value: text, or lists and mappings of such; other values stay as they are.
        moves: old folder → new folder, both absolute. Folders that have not moved are skipped.

    >>> move_paths({"data": "/old/data", "path": "/lib:/old/x", "n": 3, "other": "/older"}, {"/old": "/new"})
    {'data': '/new/data', 'path': '/lib:/new/x', 'n': 3, 'other': '/older'}
    """
    moved = {old.rstrip("/"): new.rstrip("/") for old, new in moves.items() if old.rstrip("/") != new.rstrip("/")}
    moved.pop("", None)
    if not moved:
        return value
    # The longest folder first, because one folder may be inside another.
    names = "|".join(re.escape(old) for old in sorted(moved, key=len, reverse=True))
    return _move(value, re.compile(f"{_BEFORE}(?:{names}){_AFTER}"), moved)


def _move(value: Any, pattern: re.Pattern[str], moved: Mapping[str, str]) -> Any:
    match value:
        case str():
            return pattern.sub(lambda found: moved[found[0]], value)
        case dict():
            return {key: _move(inner, pattern, moved) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(_move(inner, pattern, moved) for inner in value)
        case _:
            return value
