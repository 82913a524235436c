"""Responses that many consoles share: computed once for each change, never given to users who see less."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.unit.server.platform import ADMIN, NOW, Platform, check_problem

from legato.api import API
from legato.control.records import Queue
from legato.control.roles import Asker, Role
from legato.control.store import Store
from legato.control.store.jobs import Jobs
from legato.server.shared_responses import SharedResponses, _is_shared

_WHO = ("admin", "ann", "ben", "eye")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often routes have read what."""
    found: Counter[str] = Counter()

    def count(name: str) -> None:
        method = getattr(Jobs, name)

        def counted(self: Jobs, *args: Any, **options: Any) -> Any:
            found[name] += 1
            return method(self, *args, **options)

        monkeypatch.setattr(Jobs, name, counted)

    for name in ("list", "find", "count_by_stage"):
        count(name)
    return found


def add_viewers(store: Store, number: int) -> dict[str, str]:
    secrets = {}
    for index in range(number):
        store.accounts.create(f"eye-{index}", Role.VIEWER, ADMIN, NOW)
        made = store.tokens.create(f"eye-{index}", "test", ADMIN, NOW, expires_at=NOW + 1e7)
        secrets[f"eye-{index}"] = made.secret
    return secrets


@pytest.mark.parametrize(
    ("path", "name"), [("jobs?limit=50&stage=queued", "list"), ("pool", "count_by_stage"), ("jobs/JOB", "find")]
)
def test_a_change_is_computed_once_for_all_who_see_the_same(
    platform: Platform, calls: Counter[str], path: str, name: str
) -> None:
    platform.secrets |= add_viewers(platform.store, 10)
    for number in range(3):
        path = path.replace("JOB", platform.submit(name=f"n{number}"))
        calls.clear()
        with ThreadPoolExecutor(10) as asking:
            asked = [asking.submit(platform.ask, "GET", path, who=f"eye-{index % 10}") for index in range(40)]
        told = [each.result() for each in asked]
        assert {answer.status_code for answer in told} == {200}
        assert len({answer.content for answer in told}) == 1
        assert len({answer.headers["x-request-id"] for answer in told}) == 40, "requests keep their ids"
        assert {answer.headers["content-type"] for answer in told} == {"application/json"}
        assert calls[name] == 1


def test_nothing_is_shared_with_users_who_see_less(platform: Platform) -> None:
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    job = platform.submit("ben", queue="closed")
    for _ in range(2):
        seen = {who: len(platform.get("jobs", who=who)["items"]) for who in _WHO}
        assert seen == {"admin": 1, "ann": 0, "ben": 1, "eye": 1}
        counted = {who: platform.get("pool", who=who)["jobs"]["queued"] for who in _WHO}
        assert counted == {"admin": 1, "ann": 0, "ben": 1, "eye": 1}
        names = {who: [queue["name"] for queue in platform.get("queues", who=who)["items"]] for who in _WHO}
        assert {who for who in _WHO if "closed" in names[who]} == {"admin", "ben", "eye"}
        assert [platform.ask("GET", f"jobs/{job}", who=who).status_code for who in _WHO] == [200, 404, 200, 200]
        check_problem(platform.ask("GET", f"jobs/{job}", who="ann"), 404, "not-found")
    platform.store.queues.put(Queue(name="closed", is_open=False), ADMIN, NOW)
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ann",)), ADMIN, NOW)
    assert len(platform.get("jobs", who="ann")["items"]) == 1, "a new member sees it with the next request"


def test_a_name_means_the_job_or_project_of_each_user(platform: Platform) -> None:
    jobs = {who: platform.submit(who, name="mine") for who in ("ann", "ben")}
    looks = platform.submit("ann", name="j-0123456789")
    own = platform.submit("ben", name="j-0123456789")
    for _ in range(2):
        assert {who: platform.get("jobs/mine", who=who)["id"] for who in jobs} == jobs
        assert platform.get("jobs/j-0123456789", who="ann")["id"] == looks
        assert platform.get("jobs/j-0123456789", who="ben")["id"] == own
    assert _is_shared("/api/v1/jobs", b"owner=ann&limit=5")
    for query in (b"project=same", b"pro%6Aect=same", b"limit=5&experiment=", b"definition=a"):
        assert not _is_shared("/api/v1/jobs", query), "users may mean different projects of one name"


def test_a_job_that_trains_is_never_answered_with_304(platform: Platform) -> None:
    job = platform.submit()
    tag = platform.ask("GET", f"jobs/{job}").headers["etag"]
    assert platform.ask("GET", f"jobs/{job}", If_None_Match=tag).status_code == 200


def test_problems_are_not_kept(platform: Platform) -> None:
    for _ in range(2):
        check_problem(platform.ask("GET", "jobs?limit=0"), 422, "invalid")
        check_problem(platform.ask("GET", "pool?limit=1"), 422, "invalid")
        check_problem(platform.ask("GET", "jobs", who=None), 401, "unauthenticated")
    metrics = platform.http.get("/metrics").text
    assert 'legato_requests_total{method="GET",route="/api/v1/jobs",status="422"} 2.0' in metrics


class Route:
    """An application with one answer of ``size`` bytes. ``go_on``: it answers when this is set."""

    def __init__(self, size: int) -> None:
        self.size, self.calls, self.working, self.most = size, 0, 0, 0
        self.go_on = asyncio.Event()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        self.calls += 1
        self.working += 1
        self.most = max(self.most, self.working)
        await self.go_on.wait()
        self.working -= 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * self.size})


async def ask(shared: SharedResponses, send: Send) -> None:
    async def receive() -> Message:
        return {"type": "http.request"}

    state = {"asker": Asker("eye", Role.VIEWER)}
    scope = {"type": "http", "method": "GET", "path": f"{API}/pool", "query_string": b"", "headers": [], "state": state}
    await shared(scope, receive, send)


def share(route: Route) -> SharedResponses:
    return SharedResponses(route, lambda: (1,), lambda: None)


def test_a_client_that_reads_nothing_holds_up_no_other() -> None:
    async def play() -> int:
        route = Route(10)
        route.go_on.set()
        shared, parts, stuck = share(route), list[Message](), asyncio.Event()

        async def never(_message: Message) -> None:
            stuck.set()
            await asyncio.Event().wait()

        async def take(message: Message) -> None:
            parts.append(message)

        first = asyncio.create_task(ask(shared, never))
        await stuck.wait()
        async with asyncio.timeout(30):
            await ask(shared, take)
        first.cancel()
        assert parts[-1]["body"] == b"x" * 10
        return route.calls

    assert asyncio.run(play()) == 1


def test_responses_that_are_too_large_to_keep_are_not_made_one_after_the_other() -> None:
    async def take(_message: Message) -> None: ...

    async def play() -> tuple[int, int]:
        route = Route(2**20 + 1)
        shared = share(route)
        route.go_on.set()
        await ask(shared, take)
        route.go_on.clear()
        tasks = [asyncio.create_task(ask(shared, take)) for _ in range(3)]
        for _ in range(20):  # turns of the event loop: enough for all three to come to the route
            await asyncio.sleep(0)
        route.go_on.set()
        await asyncio.gather(*tasks)
        return route.calls, route.most

    assert asyncio.run(play()) == (4, 3)
