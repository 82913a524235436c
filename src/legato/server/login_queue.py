"""The order in which passwords are hashed: a hash takes long and 64 MiB, so few are computed at once.

Attempts that are known (from a device or an address from which the user has logged in before) go first. The others take
turns by address, so a log-in waits for one hash of each address that guesses, not for all of its guesses. Each attempt
has a round: the present one, or the one after the last attempt of its address. So several users behind one address wait
some rounds, but not for as long as others guess.
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
    """For the thread of the event loop.

    Args:
        most: hashes at once.
    """

    def __init__(self, most: int) -> None:
        self._num_free = most
        self._waiting: list[tuple[bool, int, int, asyncio.Future[None]]] = []
        self._num_begun = 0
        self._round = {True: 0, False: 0}  # of the newest hash that has begun, by whether it is known
        self._next_round: dict[tuple[bool, str], int] = {}
        self._arrivals = itertools.count()

    @contextlib.asynccontextmanager
    async def turn(self, source: str, *, is_known: bool = False) -> AsyncIterator[None]:
        """Wait for the turn of an attempt, and have it during the block.

        Args:
            source: the address or user who asks.
            is_known: the user has logged in from there before.
        """
        begun = asyncio.get_running_loop().create_future()
        place = self._choose_round(source, is_known=is_known)
        heapq.heappush(self._waiting, (not is_known, place, next(self._arrivals), begun))
        self._begin_next()
        try:
            await begun
        except asyncio.CancelledError:
            if not begun.cancelled():
                # It was its turn at this moment.
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
            # No attempt waits, so no address has to be remembered.
            self._next_round.clear()

    def _begin_next(self) -> None:
        while self._num_free and self._waiting:
            is_unknown, place, _, begun = heapq.heappop(self._waiting)
            if not begun.cancelled():
                self._round[not is_unknown] = place
                self._num_free -= 1
                self._num_begun += 1
                begun.set_result(None)
