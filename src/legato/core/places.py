"""Paths that are stored in files, and must hold after their folder was moved. Pure.

What keeps paths keeps beside them where the folders were, such as the home; who reads them later moves the paths to
where these folders are now.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A path begins where no other one continues, and a folder's name ends where no longer name begins.
_BEFORE = r"(?:(?<![\w./~-])|(?<=://))"
_AFTER = r"(?![\w.~-])"


def move_paths(value: Any, moves: Mapping[str, str]) -> Any:
    """Return a plain value in which the paths below folders that were moved are those of today.

    Args:
        value: text, or lists and mappings of such; other values stay as they are.
        moves: old folder → new folder, both absolute. Those that have not moved are skipped.

    >>> move_paths({"data": "/old/data", "path": "/lib:/old/x", "n": 3, "other": "/older"}, {"/old": "/new"})
    {'data': '/new/data', 'path': '/lib:/new/x', 'n': 3, 'other': '/older'}
    """
    moved = {old.rstrip("/"): new.rstrip("/") for old, new in moves.items() if old.rstrip("/") != new.rstrip("/")}
    moved.pop("", None)
    if not moved:
        return value
    # The longest first: one folder may be inside of another one.
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
