"""Limits of a JSON body: values and depth, counted in its bytes, before it is decoded.

A million empty lists are two megabytes, and take a hundred times as much memory and time when each becomes an object.
Knows no field.
"""

from __future__ import annotations

import re
from typing import Final

from legato.server.problems import Problem

MAX_VALUES: Final = 20_000
"""In one body: 1000 queues with all their fields are 8000, and a queue may have 10,000 members."""
MAX_DEPTH: Final = 20
"""Lists and objects inside one another. No body needs half as many."""
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_OPENING: Final = (b"[", b"{")


def check_json(content: bytes, max_values: int = MAX_VALUES) -> None:
    """Look at a body that should be JSON; whether it is, is found out later.

    Args:
        content: of the body.
        max_values: items of lists and fields of objects, all together.

    Raises:
        Problem: it has too many values, or they lie too deep inside one another.

    >>> check_json(b'{"name": "[[[[,,,,", "a": [1, 2, 3]}', 6)
    >>> check_json(b'{"name": "a", "a": [1, 2, 3]}', 4)
    Traceback (most recent call last):
    legato.server.problems.Problem: The body has more than 4 values. Send less at once.
    """
    if _count(content) <= max_values and _count_opening(content) <= MAX_DEPTH:
        return
    # Commas and brackets in texts are no values.
    bare = _TEXT.sub(b'""', content)
    if _count(bare) > max_values:
        raise Problem("too-large", f"The body has more than {max_values} values. Send less at once.")
    depth = 0
    for bracket in _BRACKET.finditer(bare):
        depth += 1 if bracket.group() in _OPENING else -1
        if depth > MAX_DEPTH:
            raise Problem(
                "invalid",
                f"Cannot use the request: lists and objects are nested more than {MAX_DEPTH} levels deep in its "
                "body; none need to.",
            )


def _count(content: bytes) -> int:
    # A value has a comma before it, unless it is the first one in its brackets.
    return content.count(b",") + _count_opening(content)


def _count_opening(content: bytes) -> int:
    return content.count(b"[") + content.count(b"{")
