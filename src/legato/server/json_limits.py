"""Limits the values and the depth of a JSON body. Counts them in its bytes, before the body is decoded.

A million empty lists are two megabytes of JSON, but decoding them takes a hundred times as much memory and time.
"""

from __future__ import annotations

import re
from typing import Final

from legato.server.problems import Problem

MAX_VALUES: Final = 20_000
"""Maximum number of values in a body. 1000 queues with all fields have 8000; a queue may have 10,000 members."""
MAX_DEPTH: Final = 20
"""Maximum nesting of lists and objects. No valid body needs half of it."""
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_BRACKET: Final = re.compile(rb"[\[\]{}]")
_OPENING: Final = (b"[", b"{")


def check_json(content: bytes, max_values: int = MAX_VALUES) -> None:
    """Check the number of values and the nesting of a body. Does not check whether it is valid JSON.

    Args:
        content: the body.
        max_values: maximum number of items of lists and fields of objects together.

    Raises:
        Problem: the body has too many values, or they are nested too deeply.

    >>> check_json(b'{"name": "[[[[,,,,", "a": [1, 2, 3]}', 6)
    >>> check_json(b'{"name": "a", "a": [1, 2, 3]}', 4)
    Traceback (most recent call last):
    legato.server.problems.Problem: The body has more than 4 values. Send less at once.
    """
    if _count(content) <= max_values and _count_opening(content) <= MAX_DEPTH:
        return
    # Commas and brackets in strings do not count.
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
    # Each value has a comma before it, except for the first in its brackets.
    return content.count(b",") + _count_opening(content)


def _count_opening(content: bytes) -> int:
    return content.count(b"[") + content.count(b"{")
