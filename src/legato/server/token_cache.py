"""Caches the store's answers about tokens for a second, so that not every request reads the store. Caches no secret.

A change on this server clears the cache, so it takes effect at once. A change by another server of the same store takes
effect within that second.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Generic, TypeVar

T = TypeVar("T")

KEPT_S: Final = 1.0
_MAX_TOKENS: Final = 1_000
_MAX_VALID: Final = 10_000


class TokenCache(Generic[T]):
    """What the store answered about tokens in the last second. Any number of threads may use it.

    A token may be revoked while a thread reads the store. So call `begin` before the store is read: `keep` ignores the
    answer if `forget` was called since.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[T, float]] = OrderedDict()
        self._num_forgotten = 0
        self._lock = threading.Lock()

    def find(self, key: str, now: float) -> T | None:
        """Return the cached answer about a token. None: read the store.

        Args:
            key: hash of the token.
            now: seconds since 1970.
        """
        with self._lock:
            found, at = self._known.get(key, (None, now))
            # If the clock was set back, the answer is not used, so that it never lasts longer.
            return found if 0 <= now - at < KEPT_S else None

    def begin(self) -> int:
        """Return the argument ``begun`` of `keep`. Call this before the store is read."""
        return self._num_forgotten

    def keep(self, key: str, found: T, now: float, begun: int) -> None:
        """Cache an answer of the store.

        Args:
            key: hash of the token.
            found: the answer.
            now: seconds since 1970, when the store was read.
            begun: the result of `begin`.

        >>> from legato.control.roles import Asker, Role
        >>> known, ann = TokenCache[Asker](), Asker("ann", Role.USER)
        >>> known.keep("a", ann, 5.0, known.begin())
        >>> [known.find("a", now) is ann for now in (5.0, 5.9, 6.0, 4.9)]
        [True, True, False, False]
        >>> begun = known.begin()
        >>> known.forget()
        >>> known.keep("a", ann, 5.0, begun)
        >>> known.find("a", 5.0) is None
        True
        """
        with self._lock:
            if begun != self._num_forgotten:
                return
            self._known[key] = (found, now)
            self._known.move_to_end(key)
            if len(self._known) > _MAX_TOKENS:
                self._known.popitem(last=False)

    def forget(self) -> None:
        """Clear the cache, because a token, a user or a role has changed."""
        with self._lock:
            self._num_forgotten += 1
            self._known.clear()


class ValidTokens:
    """Tokens that were valid when the store was last read. Limits on wrong tokens of an address do not apply to them.

    Keeps the hashes of the last ten thousand. Only for the thread of the event loop.
    """

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()

    def has(self, key: str) -> bool:
        """Return whether a token was valid."""
        return key in self._keys

    def add(self, key: str) -> None:
        """Note that a token is valid."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > _MAX_VALID:
            self._keys.popitem(last=False)

    def forget(self, key: str) -> None:
        """Note that a token is no longer valid."""
        self._keys.pop(key, None)
