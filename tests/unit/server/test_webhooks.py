"""Webhooks: what they report once, and to whom; a loop that neither loses nor invents a message wherever it dies."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.conftest import NewPlatform
from tests.unit.server.platform import ADMIN, Platform, check_problem
from tests.unit.server.receivers import receiving

from legato.control.records import NewJob, Verdict
from legato.control.roles import Role, Submitter
from legato.control.stages import Stage
from legato.control.store import check_new_job
from legato.control.webhook_records import RETRY_S, News, Outcome, Parcel
from legato.core.errors import StoreError
from legato.server import webhooks
from legato.server.webhook_sending import WebhookSender
from legato.server.webhooks import NUM_AT_ONCE, NUM_OF_OWNER, WebhookLoop

URL = "https://example.org/hook"
LINK = "https://legato.example.org"
Message = dict[str, Any]


class StandInSender:
    """Notes messages instead of sending them, and returns the outcomes that a test wants, the last one for good."""

    def __init__(self) -> None:
        self.sent: list[Parcel] = []
        self.outcomes = [Outcome(200, None)]
        self.go_on: asyncio.Event | None = None  # messages wait for it

    async def send(self, parcel: Parcel) -> Outcome:
        self.sent.append(parcel)
        if self.go_on is not None:
            await self.go_on.wait()
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def refuse_literal(self, _host: str) -> str | None:
        return None


class Bench:
    """A platform with a loop of webhooks, one round after the other."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self.sender = StandInSender()
        platform.lead(8)
        self.restart()

    def restart(self) -> None:
        """Go on as another process would: only the store remembers."""
        sender: Any = self.sender
        services = dataclasses.replace(self.platform.services, webhook_sender=sender, url=LINK)
        self.loop = WebhookLoop(services)

    def add(self, who: str = "ann", **fields: Any) -> str:
        answer = self.platform.ask("POST", "webhooks", {"url": URL} | fields, who=who)
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["webhook"]["id"]
        return made

    def submit(self, **fields: Any) -> str:
        """Submit a job of ann's with what requests cannot give."""
        values = {"name": "mnist", "spec": {"program": ["train.py"]}, "min_workers": 1, "max_workers": 4}
        new = check_new_job(NewJob(**{**values, **fields}))
        return self.platform.store.jobs.submit(new, Submitter("ann", Role.USER), self.platform.now).job.id

    def round(self) -> list[Message]:
        """Run rounds until nothing more is sent, and return the new messages."""
        before = len(self.sender.sent)
        self.platform.store.loop.take_lease(self.platform.loop.owner, self.platform.now, 10.0)

        async def run() -> None:
            num = -1
            while num < len(self.sender.sent):
                num = len(self.sender.sent)
                await self.loop.round()
                await self.loop.drain()

        asyncio.run(run())
        return [json.loads(parcel.body) for parcel in self.sender.sent[before:]]

    def decide(self, job: str, slots: int) -> None:
        self.platform.write(job, verdict=Verdict(slots, f"its share is {slots}."))

    def deliveries(self, webhook: str) -> list[Message]:
        found: list[Message] = self.platform.get(f"webhooks/{webhook}", who="admin")["deliveries"]
        return found


@pytest.fixture
def bench(platform: Platform) -> Bench:
    return Bench(platform)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds; the caller limits the time."""
    while True:
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.01)


def told(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message["event"], message["job"]["name"]) for message in messages]


# ---------------------------------------------------------------- what webhooks report


def test_an_end_is_reported_once_with_its_reason(bench: Bench) -> None:
    bench.add(on=["ended"])
    job = bench.platform.submit(name="digits", max_workers=4)
    bench.platform.start(job, "node/0")
    assert bench.round() == []
    bench.platform.end(job, Stage.FAILED)
    (message,) = bench.round()
    assert message["event"] == "ended"
    assert message["text"] == f"Job ann/digits has failed: it ended. {LINK}/#/jobs/{job}"
    assert message["url"] == f"{LINK}/#/jobs/{job}"
    assert message["reason"] == "it ended"
    assert message["time"] == bench.platform.now
    assert message["job"] == {
        "id": job,
        "name": "digits",
        "owner": "ann",
        "queue": "default",
        "project": None,
        "stage": "failed",
        "min_workers": 1,
        "max_workers": 4,
        "workers": 0,
    }
    assert message["id"] == bench.sender.sent[0].id
    assert bench.round() == []


def test_a_webhook_for_failures_is_not_called_for_other_ends(bench: Bench) -> None:
    bench.add(on=["failed"])
    bench.add(on=["ended", "failed"])
    for name, stage in (("good", Stage.SUCCEEDED), ("bad", Stage.FAILED)):
        job = bench.platform.submit(name=name)
        bench.platform.start(job)
        bench.platform.end(job, stage)
    assert sorted(told(bench.round())) == [("ended", "good"), ("failed", "bad"), ("failed", "bad")]


def test_jobs_of_others_and_earlier_ends_are_not_reported(bench: Bench) -> None:
    earlier, later, other = bench.platform.submit(), bench.platform.submit(name="later"), bench.platform.submit("ben")
    for job in (earlier, later, other):
        bench.platform.start(job)
    bench.platform.end(earlier)
    bench.add(on=["ended"])
    bench.add("admin", on=["ended"])  # for the admin's own jobs, of which there are none
    bench.platform.end(later)
    bench.platform.end(other)
    assert told(bench.round()) == [("ended", "later")]


def test_what_slack_gives_a_meaning_is_written_otherwise(bench: Bench) -> None:
    bench.add(on=["ended"])
    job = bench.platform.submit()
    bench.platform.start(job)
    bench.platform.write(job, stage=Stage.FAILED, reason="<!channel> a & b.", exit_code=1)
    (message,) = bench.round()
    assert "has failed: &lt;!channel&gt; a &amp; b. https" in message["text"]
    assert message["reason"] == "<!channel> a & b"


def test_a_shrink_is_reported_once_for_each_crossing(bench: Bench) -> None:
    bench.add(below_workers=3)
    job = bench.platform.submit(name="digits", max_workers=8)
    bench.decide(job, 0)
    bench.platform.write(job, stage=Stage.STARTING, verdict=Verdict(2, "its share"), reason="starts")
    bench.platform.write(job, stage=Stage.RUNNING, reason="trains")
    assert bench.round() == []  # it has never had 3
    found = []
    for slots in (4, 3, 2, 1, 2, 1, 5, 0):
        bench.decide(job, slots)
        found.append([message["job"]["workers"] for message in bench.round()])
    assert found == [[], [], [2], [], [], [], [], [0]]
    first, last = (json.loads(parcel.body) for parcel in bench.sender.sent)
    assert first["text"].startswith("Job ann/digits has 2 workers instead of 3, fewer than 3: its share is 2. http")
    assert (first["workers_before"], first["below_workers"], first["reason"]) == (3, 3, "its share is 2")
    assert last["text"].startswith("Job ann/digits has no workers instead of 5, fewer than 3: ")


def test_crossings_in_one_round_are_all_reported_and_count_whole_workers(bench: Bench) -> None:
    bench.add(below_workers=2)
    bench.add(below_workers=1)
    job = bench.submit(gpus_per_worker=2)
    bench.platform.start(job)
    for slots in (4, 2, 4, 2, 0):
        bench.decide(job, slots)
    found = sorted((message["below_workers"], message["job"]["workers"]) for message in bench.round())
    assert found == [(1, 0), (2, 1), (2, 1)]


def test_a_pause_by_a_user_is_no_shrink(bench: Bench) -> None:
    bench.add(below_workers=2)
    job = bench.platform.submit(max_workers=4)
    bench.platform.start(job)
    bench.decide(job, 4)
    assert bench.platform.ask("POST", f"jobs/{job}/pause").status_code == 200
    bench.platform.write(job, stage=Stage.PAUSED, reason="is paused")
    assert bench.platform.ask("POST", f"jobs/{job}/resume").status_code == 200
    bench.decide(job, 0)
    assert bench.round() == []


def test_a_wait_is_reported_once(bench: Bench) -> None:
    bench.add(waiting_s=1800)
    job = bench.platform.submit(name="digits")
    bench.decide(job, 0)
    for seconds, number in ((1799, 0), (1, 1), (1, 0), (100_000, 0)):
        bench.platform.now += seconds
        assert len(bench.round()) == number, seconds
    (message,) = (json.loads(parcel.body) for parcel in bench.sender.sent)
    assert message["event"] == "waiting"
    assert message["text"].startswith(
        "Job ann/digits has waited in queue default for longer than 30 min: its share is 0. http"
    )
    assert (message["waiting_s"], message["reason"]) == (1800, "its share is 0")
    # The next wait is another one.
    bench.platform.start(job)
    bench.platform.write(job, stage=Stage.QUEUED, reason="a worker failed", is_retry=True)
    assert bench.round() == []
    bench.platform.now += 1800
    assert told(bench.round()) == [("waiting", "digits")]


def test_all_servers_together_report_a_wait_once(bench: Bench) -> None:
    bench.platform.submit(name="early")
    bench.platform.now += 100
    bench.add(waiting_s=60)
    bench.platform.submit(name="told")
    bench.platform.now += 61
    assert told(bench.round()) == [("waiting", "told")]  # the other one had waited too long before
    bench.restart()
    assert bench.round() == []
    bench.platform.submit(name="in-between")
    bench.platform.now += 1000
    bench.restart()
    assert told(bench.round()) == [("waiting", "in-between")]
    bench.platform.now -= 500  # the clock is set back
    assert bench.round() == []
    bench.platform.submit(name="set-back")
    bench.platform.now += 61
    assert told(bench.round()) == [("waiting", "set-back")]
    bench.platform.now += 439
    assert bench.round() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_changed_webhook_reports_only_waits_that_get_too_long_after_the_change(bench: Bench, restarts: bool) -> None:
    hook = bench.add(on=["ended"])
    bench.platform.submit(name="early")
    bench.round()
    bench.platform.now += 3600
    bench.platform.submit(name="later")
    bench.round()
    assert bench.platform.ask("PATCH", f"webhooks/{hook}", {"waiting_s": 600}).status_code == 200
    if restarts:
        bench.restart()
    assert bench.round() == []
    bench.platform.now += 601
    assert told(bench.round()) == [("waiting", "later")]


def test_messages_about_a_project_end_when_the_webhook_leaves_it(bench: Bench) -> None:
    platform = bench.platform
    project = platform.ask("POST", "projects", {"name": "secret"}).json()["id"]
    assert platform.ask("PATCH", f"projects/{project}", {"members": ["ben"]}).status_code == 200
    hook = bench.add("ben", on=["ended"], project=project)
    job = bench.submit(project=project)
    platform.start(job, "node/0")
    platform.end(job, Stage.FAILED)
    bench.sender.outcomes = [Outcome(500, "it answered with status 500"), Outcome(200, None)]
    assert len(bench.round()) == 1
    assert platform.ask("PATCH", f"projects/{project}", {"members": []}).status_code == 200
    assert platform.ask("PATCH", f"webhooks/{hook}", {"project": None}, who="ben").status_code == 200
    platform.now += 21_600
    assert bench.round() == []


def test_a_webhook_does_not_report_what_happened_before_it_was_added(bench: Bench) -> None:
    bench.add(on=["ended"])
    end_one(bench, "earlier")
    bench.add(on=["ended"])  # before the server has looked
    end_one(bench, "later")
    assert sorted(told(bench.round())) == [("ended", "earlier"), ("ended", "later"), ("ended", "later")]


def test_a_project_reports_to_its_members_only(bench: Bench) -> None:
    platform = bench.platform
    project = platform.ask("POST", "projects", {"name": "Digits"}).json()["id"]
    check_problem(
        platform.ask("POST", "webhooks", {"url": URL, "on": ["ended"], "project": project}, who="ben"), 404, "not-found"
    )
    members = platform.ask("PATCH", f"projects/{project}", {"members": ["ben"]})
    assert members.status_code == 200, members.text
    hook = bench.add("ben", on=["ended"], project="Digits")

    def end_one(name: str) -> None:
        job = bench.submit(name=name, project=project)
        platform.start(job)
        platform.end(job)

    end_one("seen")
    assert told(bench.round()) == [("ended", "seen")]
    assert platform.ask("PATCH", f"projects/{project}", {"members": []}).status_code == 200
    end_one("hidden")
    assert bench.round() == []
    assert len(bench.deliveries(hook)) == 1, "nothing about it was written"


def test_a_disabled_user_gets_nothing_also_not_later(bench: Bench) -> None:
    bench.add(on=["ended"])
    job = bench.platform.submit()
    bench.platform.store.accounts.change("ann", ADMIN, bench.platform.now, is_disabled=True)
    bench.platform.start(job)
    bench.platform.end(job)
    assert bench.round() == []
    bench.platform.store.accounts.change("ann", ADMIN, bench.platform.now, is_disabled=False)
    assert bench.round() == []


# ---------------------------------------------------------------- servers that die, receivers that fail


def end_one(bench: Bench, name: str = "digits", who: str = "ann") -> None:
    job = bench.platform.submit(who, name=name)
    bench.platform.start(job)
    bench.platform.end(job)


def test_a_message_is_sent_again_with_growing_pauses_and_then_given_up(bench: Bench) -> None:
    hook = bench.add(on=["ended"])
    bench.sender.outcomes = [Outcome(500, "it answered with status 500")]
    end_one(bench)
    ids, pauses, last = set(), [], bench.platform.now
    for _ in range(100_000):
        for message in bench.round():
            ids.add(message["id"])
            pauses.append(bench.platform.now - last)
            last = bench.platform.now
        (delivery,) = bench.deliveries(hook)
        if delivery["next_at"] is None:
            break
        assert delivery["state"] == "pending"
        bench.platform.now = delivery["next_at"] - 0.5
        assert bench.round() == []
        bench.platform.now += 0.5
    assert pauses == [0.0, *RETRY_S]
    assert len(ids) == 1
    assert (delivery["state"], delivery["num_tries"], delivery["status"]) == ("failed", 7, 500)
    assert delivery["error"] == "it answered with status 500"
    bench.platform.now += 1e6
    assert bench.round() == []
    assert bench.platform.get("webhooks")["items"][0]["num_failed"] == 1


def test_a_receiver_that_is_gone_is_not_tried_again(bench: Bench) -> None:
    hook = bench.add(on=["ended"])
    bench.sender.outcomes = [Outcome(410, "it answered with status 410")]
    end_one(bench)
    bench.round()
    assert [one["state"] for one in bench.deliveries(hook)] == ["failed"]


def test_a_message_that_fails_holds_up_no_other(bench: Bench) -> None:
    hook = bench.add(on=["ended"])
    bench.sender.outcomes = [Outcome(None, "no answer"), Outcome(200, None)]
    end_one(bench, "first")
    end_one(bench, "second")
    assert told(bench.round()) == [("ended", "first")]
    assert [one["state"] for one in bench.deliveries(hook)] == ["pending", "pending"]
    bench.platform.now += RETRY_S[0]
    assert sorted(told(bench.round())) == [("ended", "first"), ("ended", "second")]
    assert [one["state"] for one in bench.deliveries(hook)] == ["delivered", "delivered"]


def test_a_user_who_has_left_a_project_gets_no_message_that_was_written_before(bench: Bench) -> None:
    project = bench.platform.ask("POST", "projects", {"name": "Digits", "members": ["ben"]}).json()["id"]
    hook = bench.add("ben", on=["ended"], project="Digits")
    job = bench.submit(project=project)
    bench.platform.start(job)
    bench.platform.end(job)
    bench.sender.outcomes = [Outcome(None, "no answer"), Outcome(200, None)]
    assert len(bench.round()) == 1
    assert bench.platform.ask("PATCH", f"projects/{project}", {"members": []}).status_code == 200
    bench.platform.now += RETRY_S[0]
    assert bench.round() == []
    (shown,) = bench.deliveries(hook)
    assert (shown["state"], shown["error"]) == ("failed", "its owner does not see the project any more")


def test_a_damaged_job_keeps_no_other_from_being_reported(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add(on=["ended"])
    end_one(bench, "damaged")
    end_one(bench, "good")
    describe = webhooks.describe_end

    def fail(job: Any, *rest: Any) -> Any:
        return 1 // 0 if job.name == "damaged" else describe(job, *rest)

    monkeypatch.setattr(webhooks, "describe_end", fail)
    assert told(bench.round()) == [("ended", "good")]


def test_many_messages_are_written_in_several_transactions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_NUM_AT_A_TIME", 2)
    bench.add(on=["ended"])
    for number in range(5):
        end_one(bench, f"j{number}")
    store, sizes = bench.platform.store.webhooks, list[tuple[int, bool]]()
    add = store.add

    def note(new: Any, upto: Any, *rest: Any) -> int:
        sizes.append((len(new), upto is not None))
        return add(new, upto, *rest)

    monkeypatch.setattr(store, "add", note)
    assert len(bench.round()) == 5
    assert sizes == [(2, False), (2, False), (1, True)]


def test_a_server_that_dies_before_it_sends_leaves_the_message_to_the_next(bench: Bench) -> None:
    bench.add(on=["ended"])
    end_one(bench)
    assert bench.loop.find(bench.platform.lead(8).fence) == 1
    bench.restart()
    assert told(bench.round()) == [("ended", "digits")]
    bench.restart()
    assert bench.round() == []


def test_a_server_that_dies_after_it_has_sent_repeats_the_message_with_its_id(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.add(on=["ended"])
    end_one(bench)
    monkeypatch.setattr(webhooks, "_PAUSE_S", 0.0)

    def fail(*_given: Any) -> None:
        raise StoreError("the disk is full")

    async def run() -> None:
        await bench.loop.round()
        await bench.loop.drain()

    with monkeypatch.context() as broken:
        broken.setattr(bench.platform.store.webhooks, "record", fail)
        asyncio.run(run())
    bench.restart()
    (again,) = bench.round()
    assert [parcel.id for parcel in bench.sender.sent] == [again["id"]] * 2
    assert bench.round() == []


def test_events_are_considered_once_wherever_a_server_dies(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server dies in the write of each round: the next one finds each end, and none twice."""
    monkeypatch.setattr(webhooks, "_NUM_EVENTS", 3)
    bench.add(on=["ended"])
    names = [f"digits-{number}" for number in range(6)]
    for name in names:
        end_one(bench, name)
    store, add = bench.platform.store.webhooks, bench.platform.store.webhooks.add
    fence, num = bench.platform.lead(8).fence, 0

    def die(*given: Any) -> int:
        nonlocal num
        num += 1
        if num % 2:
            raise StoreError("killed before the write")
        add(*given)
        raise StoreError("killed after the write")

    with monkeypatch.context() as broken:
        broken.setattr(store, "add", die)
        for _ in range(9):
            with pytest.raises(StoreError):
                bench.loop.find(fence)
            bench.restart()
    assert sorted(told(bench.round())) == [("ended", name) for name in names]


def test_a_server_that_does_not_lead_sends_nothing(bench: Bench) -> None:
    bench.add(on=["ended"])
    end_one(bench)
    bench.platform.store.loop.end_lease(bench.platform.now)
    assert bench.platform.store.loop.take_lease("another", bench.platform.now + 1, 10.0) is not None

    asyncio.run(bench.loop.round())
    assert bench.sender.sent == []


def test_one_user_cannot_hold_up_the_messages_of_others(bench: Bench) -> None:
    async def run() -> list[str]:
        bench.sender.go_on = asyncio.Event()
        await bench.loop.round()
        await bench.loop.round()
        async with asyncio.timeout(30):
            await until(lambda: len(bench.sender.sent) > NUM_OF_OWNER)
        owners = sorted(owner for owner, _ in bench.loop._sending.values())
        bench.sender.go_on.set()
        await bench.loop.drain()
        return owners

    assert NUM_OF_OWNER + 1 < NUM_AT_ONCE
    for _ in range(5):
        bench.add(on=["ended"])
    end_one(bench, "first")
    end_one(bench, "second")
    bench.add("ben", on=["ended"])
    end_one(bench, "third", "ben")
    assert asyncio.run(run()) == ["ann"] * NUM_OF_OWNER + ["ben"]
    bench.sender.go_on = None
    bench.round()
    assert len(bench.sender.sent) == 5 * 2 + 1


# ---------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"on": ["ended"]}, 422, "url"),
        ({"url": URL}, 422, "never called"),
        ({"url": URL, "on": ["started"]}, 422, "'ended' or 'failed'"),
        ({"url": URL, "below_workers": 0}, 422, "must be 1 to"),
        ({"url": URL, "waiting_s": 0}, 422, "must be 1 to"),
        ({"url": URL, "waiting_s": 1e12}, 422, "must be 1 to"),
        ({"url": "gopher://example.org", "on": ["ended"]}, 422, "must begin with https"),
        ({"url": "http://127.0.0.1/", "on": ["ended"]}, 422, "it is a loopback address"),
        ({"url": "http://[::ffff:10.0.0.1]/", "on": ["ended"]}, 422, "webhook_networks"),
        ({"url": URL, "on": ["ended"], "project": "None"}, 404, "project"),
    ],
)
def test_what_cannot_be_added_is_refused(shared: Platform, body: Any, status: int, told: str) -> None:
    answer = shared.ask("POST", "webhooks", body)
    assert answer.status_code == status, answer.text
    assert told in answer.text


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"on": []}, 422, "never called"),
        ({"on": ["started"]}, 422, "'ended' or 'failed'"),
        ({"below_workers": 0}, 422, "must be 1 to"),
        ({"waiting_s": 1e12}, 422, "must be 1 to"),
        ({"url": None}, 422, "url"),
        ({"url": ""}, 422, "must begin with https"),
        ({"url": "http://127.0.0.1/"}, 422, "it is a loopback address"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, 422, "webhook_networks"),
        ({"project": "None"}, 404, "project"),
        ({"secret": "x"}, 422, "is not known"),
    ],
)
def test_what_a_webhook_cannot_become_is_refused(shared: Platform, body: Any, status: int, told: str) -> None:
    made = shared.ask("POST", "webhooks", {"url": URL, "on": ["ended"]}).json()["webhook"]
    try:
        answer = shared.ask("PATCH", f"webhooks/{made['id']}", body)
        assert answer.status_code == status, answer.text
        assert told in answer.text
        assert shared.get(f"webhooks/{made['id']}") == made | {"deliveries": []}
    finally:
        shared.ask("DELETE", f"webhooks/{made['id']}")


def test_a_webhook_is_changed_by_its_owner_and_admins(platform: Platform) -> None:
    made = platform.ask("POST", "webhooks", {"url": URL, "on": ["ended"], "waiting_s": 60}).json()["webhook"]
    path = f"webhooks/{made['id']}"
    changed = platform.ask("PATCH", path, {"on": ["failed"], "waiting_s": None, "below_workers": 2})
    assert changed.status_code == 200, changed.text
    assert changed.json() == made | {"on": ["failed"], "waiting_s": None, "below_workers": 2}
    assert platform.ask("PATCH", path, {"url": f"{URL}/2"}, who="admin").json()["url"] == f"{URL}/2"
    check_problem(platform.ask("PATCH", path, {"url": URL}, who="ben"), 404, "not-found", "no webhook")
    assert platform.ask("PATCH", path, {"url": URL}, who="eye").status_code == 403


def test_a_webhook_is_added_shown_tested_and_removed(new_platform: NewPlatform) -> None:
    with receiving() as receiver:
        platform: Platform = new_platform(webhook_networks=("127.0.0.1/32",))
        url = f"http://127.0.0.1:{receiver.port}/hook"
        answer = platform.ask("POST", "webhooks", {"url": url, "on": ["failed", "failed"], "waiting_s": 60})
        assert answer.status_code == 201, answer.text
        made = answer.json()
        hook = made["webhook"]["id"]
        assert answer.headers["location"] == f"/api/v1/webhooks/{hook}"
        assert (made["webhook"]["on"], made["webhook"]["waiting_s"]) == (["failed"], 60.0)
        assert made["secret"].startswith("lgw_")
        assert made["secret"] not in json.dumps([platform.get("webhooks"), platform.get(f"webhooks/{hook}")])
        tested = platform.ask("POST", f"webhooks/{hook}/test").json()
        assert (tested["event"], tested["state"], tested["status"], tested["error"]) == ("test", "delivered", 200, None)
        assert len(receiver.got) == 1
        receiver.status = 500
        assert platform.ask("POST", f"webhooks/{hook}/test").json()["state"] == "failed"
        assert {one["state"] for one in platform.get(f"webhooks/{hook}")["deliveries"]} == {"delivered", "failed"}
        assert platform.get("webhooks")["items"][0]["num_failed"] == 0  # a test is not a message that was given up
        for method, path in (("GET", ""), ("POST", "/test"), ("DELETE", "")):
            check_problem(platform.ask(method, f"webhooks/{hook}{path}", who="ben"), 404, "not-found", "no webhook")
        assert platform.ask("DELETE", f"webhooks/{hook}").status_code == 204
        check_problem(platform.ask("POST", f"webhooks/{hook}/test"), 404, "not-found")


def test_the_loop_serves_a_real_receiver(new_platform: NewPlatform) -> None:
    """The whole way: an event of the store, the running loop, a signed request, a refusal, and a second try."""
    with receiving() as receiver:
        platform: Platform = new_platform(webhook_networks=("127.0.0.1/32",))
        bench = Bench(platform)
        loop = WebhookLoop(platform.services)
        url = f"http://127.0.0.1:{receiver.port}/"
        made = platform.ask("POST", "webhooks", {"url": url, "on": ["ended"]}).json()
        end_one(bench)
        receiver.status = 503

        def tries() -> int:
            found = platform.get(f"webhooks/{made['webhook']['id']}")["deliveries"]
            return found[0]["num_tries"] if found else 0

        async def run() -> None:
            running = asyncio.create_task(loop.run())
            async with asyncio.timeout(30):
                await until(lambda: tries() == 1)
                receiver.status = 200
                platform.now += RETRY_S[0]
                await asyncio.to_thread(platform.store.loop.take_lease, platform.loop.owner, platform.now, 10.0)
                await until(lambda: tries() == 2)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

        asyncio.run(run())
        first, second = receiver.got
        assert first[2] == second[2]
        assert json.loads(first[2])["job"]["name"] == "digits"
        assert first[1]["legato-delivery"] == second[1]["legato-delivery"]
        assert first[1]["legato-signature"] != second[1]["legato-signature"]  # of the time of sending


def test_the_receiver_of_the_docs_checks_the_signature() -> None:
    """The program in docs/webhooks.md, as it is: it accepts what the server signs, and refuses all else."""
    page = (Path(__file__).parents[3] / "docs/webhooks.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environment = {**os.environ, "SECRET": "lgw_7", "PORT": str(port)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as process:
        try:
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert time.monotonic() < deadline
                time.sleep(0.02)

            def send(secret: str, body: str, now: float) -> int | None:
                url = f"http://127.0.0.1:{port}/"
                parcel = Parcel(
                    id="m",
                    webhook="h",
                    event=News.ENDED,
                    url=url,
                    secret=secret,
                    body=body,
                    num_tries=0,
                    created_at=now,
                    owner="ann",
                    role=Role.USER,
                )
                return asyncio.run(WebhookSender(("127.0.0.1/32",), lambda: now).send(parcel)).status

            now = time.time()
            assert send("lgw_8", '{"text": "forged"}', now) == 401
            assert send("lgw_7", '{"text": "old"}', now - 3600) == 401
            assert send("lgw_7", '{"text": "good"}', now) == 200
        finally:
            process.terminate()
        assert process.stdout is not None
        assert process.stdout.read().decode().split() == ["good"]
