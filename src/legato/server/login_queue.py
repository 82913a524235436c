"""The order in which passwords are hashed: a hash takes long and 64 MiB, so few are computed at once.

Attempts that are known (from a device or an address from which the user has logged in before) go first. The others take
turns by address, so a log-in waits for one hash of each address that guesses, not for all of its guesses.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections import Counter
from collections.abc import AsyncIterator


class LoginQueue:
    """For the thread of the event loop.

    Args:
        most: hashes at once.
    """

    def __init__(self, most: int) -> None:
        self._num_free = most
        self._waiting: list[tuple[bool, int, int, asyncio.Future[None]]] = []
        self._num_of: Counter[str] = Counter()
        self._arrivals = itertools.count()

    @contextlib.asynccontextmanager
    async def turn(self, source: str, *, is_known: bool = False) -> AsyncIterator[None]:
        """Wait for the turn of an attempt, and have it during the block.

        Args:
            source: the address or user who asks.
            is_known: the user has logged in from there before.
        """
        self._num_of[source] += 1
        try:
            await self._wait(self._num_of[source], is_known=is_known)
            try:
                yield
            finally:
                self._num_free += 1
                self._begin_next()
        finally:
            self._num_of[source] -= 1
            if not self._num_of[source]:
                del self._num_of[source]

    async def _wait(self, place: int, *, is_known: bool) -> None:
        begun = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (not is_known, place, next(self._arrivals), begun))
        self._begin_next()
        try:
            await begun
        except asyncio.CancelledError:
            if not begun.cancelled():
                # It was its turn at this moment.
                self._num_free += 1
                self._begin_next()
            raise

    def _begin_next(self) -> None:
        while self._num_free and self._waiting:
            *_, begun = heapq.heappop(self._waiting)
            if not begun.cancelled():
                self._num_free -= 1
                begun.set_result(None)
