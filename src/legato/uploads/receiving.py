"""Limits how many long bodies are received at once, and the time until the next byte of a body arrives."""

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
    """Counts bodies that are being received. For one thread.

    Args:
        what: name of the bodies in errors, such as ``uploads``.
        most: maximum of all users together.
        most_of_one: maximum of one user.
    """

    def __init__(self, what: str, most: int = _MAX_OPEN, most_of_one: int = _MAX_OPEN_OF_ONE) -> None:
        self._what = what
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    @contextlib.contextmanager
    def counted(self, user: str) -> Iterator[None]:
        """Count one body during the block.

        Raises:
            HTTPException: the maximum is reached; 429 if it is the user's, else 503.
        """
        if self._open[user] >= self._most_of_one:
            message = f"'{user}' is already sending {self._open[user]} {self._what} at once. Wait until one has ended."
            raise HTTPException(429, message, _AGAIN)
        if self._open.total() >= self._most:
            message = f"The server already receives {self._most} {self._what} at once. Try again in a moment."
            raise HTTPException(503, message, _AGAIN)
        self._open[user] += 1
        try:
            yield
        finally:
            self._open[user] -= 1
            self._open += Counter()  # drops users without any


async def read_promptly(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body as they come.

    Raises:
        HTTPException: 408: no chunk came within the time limit.
    """
    while True:
        try:
            async with asyncio.timeout(IDLE_LIMIT_S):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError:
            message = f"The client sent no byte for {IDLE_LIMIT_S:g} s. Check the connection, and send it again."
            raise HTTPException(408, message, {"Connection": "close"}) from None
        yield chunk
