"""The queue of password hashes. A hash takes long and needs 64 MiB, so only a few are computed at once.

Known attempts go first: those from a device or an address from which the user has logged in before. The others are in
rounds: each address has one attempt per round. So a log-in waits for at most one guess of each other address, not for
all guesses of an attacker. Users who share an address wait one more round for each attempt of it before theirs.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections.abc import AsyncIterator
from typing import Final

_MAX_SOURCES: Final = 1000


class LoginQueue:
    """Lets a limited number of log-ins compute hashes at once. Only for the thread of the event loop.

    Args:
        most: maximum number of hashes at once.
    """

    def __init__(self, most: int) -> None:
        self._num_free = most
        self._waiting: list[tuple[bool, int, int, asyncio.Future[None]]] = []
        self._num_begun = 0
        self._round = {True: 0, False: 0}  # round of the hash that began last: of known attempts, and of others
        self._next_round: dict[tuple[bool, str], int] = {}
        self._arrivals = itertools.count()

    @contextlib.asynccontextmanager
    async def turn(self, source: str, *, is_known: bool = False) -> AsyncIterator[None]:
        """Wait until an attempt may compute its hash. The block computes it.

        Args:
            source: the address of an attempt to log in, or the user who sets a password.
            is_known: the user has logged in from this device or address before.
        """
        begun = asyncio.get_running_loop().create_future()
        place = self._choose_round(source, is_known=is_known)
        heapq.heappush(self._waiting, (not is_known, place, next(self._arrivals), begun))
        self._begin_next()
        try:
            await begun
        except asyncio.CancelledError:
            if not begun.cancelled():
                # The turn came at the same moment, so end it.
                self._end()
            raise
        try:
            yield
        finally:
            self._end()

    def _choose_round(self, source: str, *, is_known: bool) -> int:
        if len(self._next_round) > _MAX_SOURCES:
            self._next_round = {key: after for key, after in self._next_round.items() if after > self._round[key[0]]}
        key = is_known, source
        place = max(self._round[is_known], self._next_round.get(key, 0))
        self._next_round[key] = place + 1
        return place

    def _end(self) -> None:
        self._num_free += 1
        self._num_begun -= 1
        self._begin_next()
        if not self._num_begun:
            # No hash is being computed and no attempt waits, so no round has to be remembered.
            self._next_round.clear()

    def _begin_next(self) -> None:
        while self._num_free and self._waiting:
            is_unknown, place, _, begun = heapq.heappop(self._waiting)
            if not begun.cancelled():
                self._round[not is_unknown] = place
                self._num_free -= 1
                self._num_begun += 1
                begun.set_result(None)
