"""Suggests what a user may have meant by an unknown name. Knows no names itself."""

from __future__ import annotations

from collections.abc import Iterable


def find_near(said: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to the given one, ignoring case; None if none is similar enough.

    >>> find_near("Mnsit", ["bert", "mnist"]), find_near("bret", ["mnist"])
    ('mnist', None)
    """
    from difflib import get_close_matches  # only who mistyped waits for it

    folded = {name.lower(): name for name in known}
    close = get_close_matches(said.lower(), folded, n=1)
    return folded[close[0]] if close else None


def ask_whether(said: str, known: Iterable[str]) -> str:
    """Return ``Did you mean 'NAME'?`` with a space before it; "" if no known name is similar.

    >>> ask_whether("defalt", ["default", "night"]), ask_whether("day", ["default", "night"])
    (" Did you mean 'default'?", '')
    """
    near = find_near(said, known)
    return "" if near is None else f" Did you mean '{near}'?"
