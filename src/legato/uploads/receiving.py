"""Receives long bodies: limits how much is received at once, and the time to the next byte.

A slow sender delays only itself. Does not interpret the bytes, and writes none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

from starlette.exceptions import HTTPException

IDLE_LIMIT_S: Final = 30.0
_AGAIN: Final = {"Retry-After": "5"}
_MAX_OPEN: Final = 64
_MAX_OPEN_OF_ONE: Final = 8


class Arrivals:
    """Counts what is on its way. Of one thread.

    Args:
        what: is on its way, for errors: ``uploads``.
        most: of all users at once.
        most_of_one: of one user at once.
    """

    def __init__(self, what: str, most: int = _MAX_OPEN, most_of_one: int = _MAX_OPEN_OF_ONE) -> None:
        self._what = what
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self, user: str) -> Iterator[None]:
        """Count one for as long as the block lasts.

        Raises:
            HTTPException: there are so many already; 429 if they are all of this user, else 503.
        """
        if self._open[user] >= self._most_of_one:
            told = f"'{user}' is already sending {self._open[user]} {self._what} at once. Wait until one has ended."
            raise HTTPException(429, told, _AGAIN)
        if self._open.total() >= self._most:
            told = f"The server already receives {self._most} {self._what} at once. Try again in a moment."
            raise HTTPException(503, told, _AGAIN)
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            self._open += Counter()  # drops who has none left


async def read_promptly(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks as they come.

    Raises:
        HTTPException: none came for long, 408. What comes after all is not waited for.
    """
    while True:
        try:
            async with asyncio.timeout(IDLE_LIMIT_S):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            told = f"The client sent no byte for {IDLE_LIMIT_S:g} s. Check the connection, and send it again."
            raise HTTPException(408, told, {"Connection": "close"}) from None
        yield chunk
