"""Answers that many users ask for at once: computed once, and shared for a moment.

Knows nothing of what is asked: who may see what is for the key to say, and what has changed since for the version.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

T = TypeVar("T")


class _Asked(NamedTuple):
    version: Any
    task: asyncio.Task[Any]


class Shared:
    """Shares answers of one kind. For the thread of the event loop.

    Args:
        keep_s: how long an answer is given to others after it was computed, if nothing has changed.
        num_at_once: so many are computed at once, each in a thread; who waits for its turn holds none.
    """

    def __init__(self, keep_s: float, num_at_once: int) -> None:
        self._keep_s = keep_s
        self._turn = asyncio.Semaphore(num_at_once)
        self._asked: dict[Hashable, _Asked] = {}

    async def get(self, key: Hashable, version: Any, compute: Callable[[], T]) -> T:
        """Return an answer, computed now or a moment ago. No two of one key are ever computed at once.

        Args:
            key: the same for the same answer alone: all that was asked, and whatever the asker may see.
            version: of all that the answer is made of, as the asker knows it; grows with each change. An answer that
                was begun with a lower one is not given.
            compute: returns the answer; called in a thread. Errors are raised to all present waiters, and not to later
            ones.
        """
        while (known := self._asked.get(key)) is not None and known.version < version and not known.task.done():
            await asyncio.wait([known.task])
        if known is None or known.version < version:
            known = _Asked(version, asyncio.create_task(self._compute(compute)))
            self._asked[key] = known
            known.task.add_done_callback(lambda _: self._keep(key, known))
        # Who goes away ends nothing for the others.
        answer: T = await asyncio.shield(known.task)
        return answer

    async def _compute(self, compute: Callable[[], T]) -> T:
        async with self._turn:
            return await run_in_threadpool(compute)

    def _keep(self, key: Hashable, asked: _Asked) -> None:
        if asked.task.cancelled() or asked.task.exception() is not None:
            self._drop(key, asked)
        else:
            asyncio.get_running_loop().call_later(self._keep_s, self._drop, key, asked)

    def _drop(self, key: Hashable, asked: _Asked) -> None:
        if self._asked.get(key) is asked:
            del self._asked[key]


class Turns:
    """One turn per key: of those with the same key one is at work at a time, and the others wait without a thread."""

    def __init__(self) -> None:
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """Return the turn of a key; it exists as long as a task has it or waits for it."""
        return self._turns.setdefault(key, asyncio.Lock())
