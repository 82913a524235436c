"""A short memory of the store's answers about tokens, so that not every request asks it. Keeps no secret.

A right of a token may outlive its removal by one second at most. A removal on this server is announced, and the right
is gone at once; what was taken away on another server of the same store is gone within that second.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, Generic, TypeVar

T = TypeVar("T")

KEPT_S: Final = 1.0
_MAX_TOKENS: Final = 1_000
_MAX_PROVEN: Final = 10_000


class Recognized(Generic[T]):
    """What was found of the tokens of the last second, for any number of threads.

    A look at the store takes time, in which a token may be revoked: `begin` before it, and what it found is kept only
    if nothing was forgotten since.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[T, float]] = OrderedDict()
        self._num_forgotten = 0
        self._turn = threading.Lock()

    def find(self, key: str, now: float) -> T | None:
        """Return what was found of a token; None: the store must be asked.

        Args:
            key: of the token; its hash.
            now: seconds since 1970.
        """
        with self._turn:
            found, at = self._known.get(key, (None, now))
            # A clock that was set back makes nothing last longer.
            return found if 0 <= now - at < KEPT_S else None

    def begin(self) -> int:
        """Return what is to be given to `keep`; called before the store is asked."""
        return self._num_forgotten

    def keep(self, key: str, found: T, now: float, begun: int) -> None:
        """Keep what the store has answered.

        >>> from legato.control.roles import Asker, Role
        >>> known, ann = Recognized[Asker](), Asker("ann", Role.USER)
        >>> known.keep("a", ann, 5.0, known.begin())
        >>> [known.find("a", now) is ann for now in (5.0, 5.9, 6.0, 4.9)]
        [True, True, False, False]
        >>> begun = known.begin()
        >>> known.forget()
        >>> known.keep("a", ann, 5.0, begun)
        >>> known.find("a", 5.0) is None
        True
        """
        with self._turn:
            if begun != self._num_forgotten:
                return
            self._known[key] = (found, now)
            self._known.move_to_end(key)
            if len(self._known) > _MAX_TOKENS:
                self._known.popitem(last=False)

    def forget(self) -> None:
        """Forget all: a token, a user or a role has changed."""
        with self._turn:
            self._num_forgotten += 1
            self._known.clear()


class Proven:
    """Tokens that were good when the store was last asked; their owners are not kept waiting by those who guess.

    Keeps hashes, and of the ten thousand that came last. For the thread of the event loop.
    """

    def __init__(self) -> None:
        self._keys: OrderedDict[str, None] = OrderedDict()

    def has(self, key: str) -> bool:
        """Return whether a token was good."""
        return key in self._keys

    def add(self, key: str) -> None:
        """Note that a token is good."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > _MAX_PROVEN:
            self._keys.popitem(last=False)

    def forget(self, key: str) -> None:
        """Note that a token is good no more."""
        self._keys.pop(key, None)
