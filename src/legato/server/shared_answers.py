"""Shares answers among requests: equal ones get one answer, and those that wait together are answered together.

The caller chooses the key, which must include what the user may see, and the version, which must grow with each change.
"""

from __future__ import annotations

import asyncio
import itertools
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

_MAX_BATCH: Final = 500  # databases have a limit of some ten thousand values in one query

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


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


class Batches(Generic[K, T]):
    """Answers questions in batches, one batch at once: those that come meanwhile wait for the next one.

    So an answer is computed after its question came, and thousands of questions need few queries. Only for the thread
    of the event loop.

    Args:
        answer: answers a batch of different questions; called in a thread.
    """

    def __init__(self, answer: Callable[[Sequence[K]], Mapping[K, T]]) -> None:
        self._answer = answer
        self._waiting: dict[K, asyncio.Future[T]] = {}
        self._working: asyncio.Task[None] | None = None

    async def get(self, question: K) -> T:
        """Return the answer. All questions of a batch get its errors, later ones do not."""
        waiting = self._waiting.get(question)
        if waiting is None:
            waiting = self._waiting[question] = asyncio.get_running_loop().create_future()
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        # If this caller is cancelled, others may still wait for the answer.
        return await asyncio.shield(waiting)

    async def _work(self) -> None:
        try:
            while self._waiting:
                batch = dict(itertools.islice(self._waiting.items(), _MAX_BATCH))
                for question in batch:
                    del self._waiting[question]
                await self._answer_batch(batch)
        finally:
            self._working = None

    async def _answer_batch(self, batch: Mapping[K, asyncio.Future[T]]) -> None:
        try:
            answers = await run_in_threadpool(self._answer, tuple(batch))
        except Exception as error:  # noqa: BLE001 -- each caller raises it
            for waiting in batch.values():
                waiting.set_exception(error)
                waiting.exception()  # its caller may be gone
        else:
            for question, waiting in batch.items():
                waiting.set_result(answers[question])


class Turns:
    """One lock per key: only one request with the same key works at a time. The others wait without a thread."""

    def __init__(self) -> None:
        self._turns: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """Return the lock of a key. It exists as long as a task holds it or waits for it."""
        return self._turns.setdefault(key, asyncio.Lock())
