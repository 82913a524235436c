"""Answers that are shared by equal requests."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, LIMIT_S, NOW, Platform

from legato.control.records import Queue
from legato.control.store.queues import Queues
from legato.core.errors import UsageError
from legato.server import services
from legato.server.routes import pool
from legato.server.shared_answers import Batches, SharedAnswers


class Work:
    """Computes when it is let, and knows how often, and how many at once."""

    def __init__(self) -> None:
        self.num_begun = 0
        self.num_at_once = 0
        self.most_at_once = 0
        self.may_end = threading.Event()
        self._turn = threading.Lock()

    def compute(self) -> int:
        with self._turn:
            self.num_begun += 1
            number = self.num_begun
            self.num_at_once += 1
            self.most_at_once = max(self.most_at_once, self.num_at_once)
        assert self.may_end.wait(LIMIT_S)
        with self._turn:
            self.num_at_once -= 1
        return number


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 -- what a thread does tells no event
            await asyncio.sleep(0)


def test_simultaneous_requests_share_an_answer_that_is_kept_for_a_while() -> None:
    async def ask() -> None:
        shared, work = SharedAnswers(keep_s=0.0, num_at_once=9), Work()
        asking = [asyncio.create_task(shared.get("a", 1, work.compute)) for _ in range(20)]
        await wait_until(lambda: work.num_begun == 1)
        asking[0].cancel()
        work.may_end.set()
        assert await asyncio.gather(*asking[1:]) == [1] * 19, "who goes away ends nothing"
        await wait_until(lambda: not shared._computations)
        assert await shared.get("a", 1, work.compute) == 2
        kept = SharedAnswers(keep_s=LIMIT_S, num_at_once=9)
        assert [await kept.get("a", 1, work.compute) for _ in range(3)] == [3, 3, 3]
        assert await kept.get("b", 1, work.compute) == 4
        assert await kept.get("a", 2, work.compute) == 5, "something has changed"
        assert await kept.get("a", 1, work.compute) == 5, "newer than asked for is good"

    asyncio.run(ask())


def test_a_request_after_a_change_waits_for_the_old_answer_and_gets_a_new_one() -> None:
    async def ask() -> None:
        shared, work = SharedAnswers(keep_s=LIMIT_S, num_at_once=9), Work()
        old = asyncio.create_task(shared.get("a", 1, work.compute))
        await wait_until(lambda: work.num_begun == 1)
        new = [asyncio.create_task(shared.get("a", 2, work.compute)) for _ in range(5)]
        work.may_end.set()
        assert await asyncio.gather(old, *new) == [1, 2, 2, 2, 2, 2]
        assert work.most_at_once == 1

    asyncio.run(ask())


def test_the_number_of_answers_computed_at_once_is_limited() -> None:
    async def ask() -> None:
        shared, work = SharedAnswers(keep_s=LIMIT_S, num_at_once=2), Work()
        asking = [asyncio.create_task(shared.get(number, 1, work.compute)) for number in range(8)]
        await wait_until(lambda: work.num_at_once == 2)
        work.may_end.set()
        assert sorted(await asyncio.gather(*asking)) == list(range(1, 9))
        assert work.most_at_once == 2

    asyncio.run(ask())


def test_waiting_users_get_an_error_and_it_is_not_kept() -> None:
    async def ask() -> None:
        shared = SharedAnswers(keep_s=LIMIT_S, num_at_once=2)

        def fail() -> int:
            raise UsageError("No.")

        found = await asyncio.gather(*(shared.get("a", 1, fail) for _ in range(3)), return_exceptions=True)
        assert [type(one) for one in found] == [UsageError] * 3
        assert await shared.get("a", 1, lambda: 7) == 7

    asyncio.run(ask())


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was drawn: for whom."""
    monkeypatch.setattr(services, "POOL_VIEWS_S", LIMIT_S)
    found: list[Any] = []
    draw = pool.draw_timeline

    def note(store: Any, asker: Any, *args: Any, **options: Any) -> Any:
        found.append(asker.sees_only)
        return draw(store, asker, *args, **options)

    monkeypatch.setattr(pool, "draw_timeline", note)
    return found


def test_users_who_see_the_same_share_one_timeline(drawn: list[Any], platform: Platform) -> None:
    asyncio.run(wait_until(lambda: platform.services.feed.last == platform.store.events.read_last_seq()))
    with ThreadPoolExecutor(8) as asking:
        told = list(asking.map(lambda who: platform.get("timeline", who=who), ["admin", "eye"] * 8))
    assert drawn == [None] and all(one == told[0] for one in told)
    platform.get("timeline")
    platform.get("timeline", who="ben")
    assert drawn == [None, "ann", "ben"], "they see something else"
    for query in ("by=owner", "points=9", f"until={NOW}", f"since={NOW - 9}"):
        platform.get(f"timeline?{query}", who="eye")
    assert len(drawn) == 7
    platform.get("timeline", who="eye")
    assert len(drawn) == 7


def test_after_an_event_the_picture_is_a_new_one(drawn: list[Any], platform: Platform) -> None:
    platform.lead()
    job = platform.submit("admin")
    with platform.stream("events?after=now", who="admin") as messages:
        assert platform.get("timeline", who="admin")["items"] == []
        platform.start(job, "node/0")
        while next(messages)["event"] != "granted":
            pass
        platform.now += 1
        assert [one["key"] for one in platform.get("timeline", who="admin")["items"]] == [job]


def test_shares_are_counted_once_for_all(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    monkeypatch.setattr(platform.services.pool_views, "_keep_s", LIMIT_S)
    with platform.stream("events?after=now", who="admin") as messages:
        platform.submit()
        next(messages)
        measured: list[Queues] = []
        measure = Queues.measure
        monkeypatch.setattr(Queues, "measure", lambda self: (measured.append(self), measure(self))[1])
        told = {who: platform.get("pool/shares", who=who)["items"] for who in ("admin", "eye", "ann", "ben")}
    assert len(measured) == 1
    assert {who: len(items) for who, items in told.items()} == {"admin": 2, "eye": 2, "ann": 1, "ben": 2}


def test_questions_that_wait_are_answered_by_one_batch_that_begins_after_them() -> None:
    batches: list[tuple[str, ...]] = []
    may_end = threading.Event()

    def answer(questions: Sequence[str]) -> dict[str, int]:
        batches.append(tuple(questions))
        assert may_end.wait(LIMIT_S)
        if "bad" in questions:
            raise UsageError("no")
        return dict.fromkeys(questions, len(batches))

    async def ask() -> None:
        shared = Batches(answer)
        first = asyncio.create_task(shared.get("a"))
        await wait_until(lambda: len(batches) == 1)
        later = [asyncio.create_task(shared.get(question)) for question in "aab" * 100]
        gone = asyncio.create_task(shared.get("c"))
        await asyncio.sleep(0)
        gone.cancel()
        may_end.set()
        assert await first == 1
        assert await asyncio.gather(*later) == [2] * 300, "no answer from before the question"
        assert batches == [("a",), ("a", "b", "c")]
        asking = [shared.get("bad"), shared.get("a")]
        assert [type(error) for error in await asyncio.gather(*asking, return_exceptions=True)] == [UsageError] * 2
        assert await shared.get("a") == 4

    asyncio.run(ask())
