"""Shares answers among equal requests: each answer is computed once, and given to other requests for a moment.

The caller chooses the key, which must include what the user may see, and the version, which must grow with each change.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

T = TypeVar("T")


class _Computation(NamedTuple):
    version: Any
    task: asyncio.Task[Any]


class SharedAnswers:
    """Shares answers of one kind. Only for the thread of the event loop.

    Args:
        keep_s: seconds for which an answer is shared after it was computed, if nothing has changed.
        num_at_once: maximum number of answers that are computed at once, each in a thread. Others wait without one.
    """

    def __init__(self, keep_s: float, num_at_once: int) -> None:
        self._keep_s = keep_s
        self._turn = asyncio.Semaphore(num_at_once)
        self._computations: dict[Hashable, _Computation] = {}

    async def get(self, key: Hashable, version: Any, compute: Callable[[], T]) -> T:
        """Return an answer, computed now or a moment ago. No two answers with one key are computed at once.

        Args:
            key: equal only for equal answers: it contains the whole request, and what the asker may see.
            version: version of the data that the answer depends on; grows with each change. An answer whose
                computation began with a lower version is not returned.
            compute: returns the answer; called in a thread. All requests that wait for the answer get its errors, later
                requests do not.
        """
        while (known := self._computations.get(key)) is not None and known.version < version and not known.task.done():
            await asyncio.wait([known.task])
        if known is None or known.version < version:
            known = _Computation(version, asyncio.create_task(self._compute(compute)))
            self._computations[key] = known
            known.task.add_done_callback(lambda _: self._keep(key, known))
        # If this request is cancelled, the computation continues for the others.
        answer: T = await asyncio.shield(known.task)
        return answer

    async def _compute(self, compute: Callable[[], T]) -> T:
        async with self._turn:
            return await run_in_threadpool(compute)

    def _keep(self, key: Hashable, computation: _Computation) -> None:
        if computation.task.cancelled() or computation.task.exception() is not None:
            self._drop(key, computation)
        else:
            asyncio.get_running_loop().call_later(self._keep_s, self._drop, key, computation)

    def _drop(self, key: Hashable, computation: _Computation) -> None:
        if self._computations.get(key) is computation:
            del self._computations[key]


class Turns:
    """One lock per key: only one request with the same key works at a time. The others wait without a thread."""

    def __init__(self) -> None:
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """Return the lock of a key. It exists as long as a task holds it or waits for it."""
        return self._turns.setdefault(key, asyncio.Lock())
