"""Lists of jobs that clients poll."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.unit.server.platform import ADMIN, LIMIT_S, NOW, Platform
from tests.unit.server.test_projects import upload

from legato.api.jobs import Progress
from legato.control.records import Queue
from legato.control.store.jobs import Jobs


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Whose lists were read from the store."""
    found: list[Any] = []
    list_jobs = Jobs.list

    def note(self: Jobs, *args: Any, **options: Any) -> Any:
        found.append(options["sees_only"])
        return list_jobs(self, *args, **options)

    monkeypatch.setattr(Jobs, "list", note)
    return found


def tag_of(platform: Platform, query: str = "", who: str = "ann") -> str:
    answer = platform.ask("GET", f"jobs?{query}", who=who)
    assert answer.status_code == 200
    tag: str = answer.headers["etag"]
    assert tag.startswith('W/"'), "no version of a job"
    return tag


def test_a_client_with_the_newest_list_gets_304_and_nothing_is_read(platform: Platform, read: list[Any]) -> None:
    platform.lead()
    job = platform.submit()
    tag = tag_of(platform)
    num_read = len(read)
    for known in (tag, f'"other", {tag}', tag.removeprefix("W/")):
        answer = platform.ask("GET", "jobs", If_None_Match=known)
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert answer.headers["cache-control"] == "no-store"
    assert len(read) == num_read
    platform.start(job, "node/0")
    assert platform.ask("GET", "jobs", If_None_Match=tag).json()["items"][0]["stage"] == "running"
    tag = tag_of(platform)
    platform.write(job, progress=Progress(time=NOW, num_workers=1, step=7))
    assert platform.ask("GET", "jobs", If_None_Match=tag).json()["items"][0]["progress"]["step"] == 7


def test_the_tag_depends_on_the_query_and_the_user(platform: Platform) -> None:
    platform.submit(labels={"a": "b"})
    queries = ("", "limit=5", "order=oldest", "stage=queued", "label=a=b", "owner=ann", "search=mni", "name=mn")
    tags = {tag_of(platform, query, who) for query in queries for who in ("ann", "ben", "eye", "admin")}
    assert len(tags) == len(queries) * 4
    assert tag_of(platform, "stage=queued&stage=running") == tag_of(platform, "stage=running&stage=queued")


def test_users_who_see_the_same_jobs_share_a_list(platform: Platform, read: list[Any]) -> None:
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    platform.submit("ben", queue="closed")
    code = upload(platform)
    platform.submit(directory=None, code=code)
    platform.get("jobs", who="admin")
    read.clear()
    platform.services.lists._keep_s = LIMIT_S
    with ThreadPoolExecutor(8) as asking:
        told = list(asking.map(lambda who: platform.get("jobs", who=who), ["admin", "ann", "eye", "ben"] * 6))
    assert len(read) <= 4
    sees = {"admin": [code, None], "ann": [code], "eye": [None, None], "ben": [None, None]}
    for place, who in enumerate(["admin", "ann", "eye", "ben"] * 6):
        assert [job["code"] for job in told[place]["items"]] == sees[who]


def test_users_see_their_own_change_at_once(platform: Platform) -> None:
    for number in range(5):
        job = platform.submit(name=f"n{number}")
        assert platform.get("jobs")["items"][0]["id"] == job
        platform.ask("PATCH", f"jobs/{job}", {"priority": 7})
        assert platform.get("jobs")["items"][0]["priority"] == 7
