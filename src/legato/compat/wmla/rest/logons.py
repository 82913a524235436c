"""Tokens that logons have made and that are not over: how many a user has, and which goes first. Keeps no secret."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final, NamedTuple

MOST_OF_ONE: Final = 100
"""A user has so many at once; a user who logs on and never off loses none that is in use."""


class _Logon(NamedTuple):
    user: str
    id: str
    expires_at: float


class Logons:
    """Remembers the tokens that were made here, the one that was not used for longest first.

    Of another run of the server, or another server, it knows none; those end by themselves.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Logon] = OrderedDict()

    def add(self, secret: str, user: str, token: str, expires_at: float, now: float) -> list[str]:
        """Remember a token, and return the ids of those that are too many of its user's now: they are to be revoked.

        Args:
            secret: of the token.
            user: whose it is.
            token: its id.
            expires_at: seconds since 1970.
            now: likewise.

        >>> logons = Logons()
        >>> for number in range(MOST_OF_ONE):
        ...     assert logons.add(f"secret {number}", "ann", f"t-{number}", 8.0, 0.0) == []
        >>> logons.use("secret 0")
        >>> logons.add("another", "ben", "t-ben", 8.0, 0.0), logons.add("one more", "ann", "t-more", 8.0, 0.0)
        ([], ['t-1'])
        >>> logons.add("later", "ann", "t-later", 16.0, 8.0), len(logons)
        ([], 1)
        """
        self._known = OrderedDict((key, one) for key, one in self._known.items() if one.expires_at > now)
        self._known[_hash(secret)] = _Logon(user, token, expires_at)
        own = [key for key, one in self._known.items() if one.user == user]
        return [self._known.pop(key).id for key in own[:-MOST_OF_ONE]]

    def use(self, secret: str) -> None:
        """Note that a token is shown."""
        if (key := _hash(secret)) in self._known:
            self._known.move_to_end(key)

    def end(self, secret: str) -> None:
        """Forget a token that is over."""
        self._known.pop(_hash(secret), None)

    def __len__(self) -> int:
        return len(self._known)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
