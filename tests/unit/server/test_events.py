"""Events: as pages, with waiting, and as streams that continue after an interruption."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
import uvicorn
from tests.unit.server.platform import ADMIN, LIMIT_S, NOW, Messages, Platform, check_problem, wait_for_memory

from legato.control.records import JobPatch, Queue
from legato.control.roles import Role
from legato.control.stages import Stage
from legato.control.store.jobs import MAX_NOTES
from legato.core.errors import StoreError
from legato.server import event_feed as feed_module
from legato.server import streams
from legato.server.event_feed import Feed


def take(messages: Messages, number: int) -> list[dict[str, str]]:
    return [next(messages) for _ in range(number)]


def reasons(items: list[dict[str, Any]]) -> list[str]:
    return [item["reason"] for item in items]


def test_pages_of_events(platform: Platform) -> None:
    job = platform.submit()
    platform.ask("POST", f"jobs/{job}/pause")
    told = platform.get("events")
    assert told["items"][0] == {
        "seq": 1,
        "time": NOW,
        "kind": "stage",
        "reason": "submitted by 'ann'",
        "job": job,
        "attempt": None,
        "detail": {"from": None, "to": "queued"},
    }
    assert told["items"][1]["detail"] == {"from": "queued", "to": "paused", "by": "ann"}
    assert told["after"] == 2
    assert platform.get("events?limit=1")["after"] == 1
    assert platform.get("events?after=1")["items"] == told["items"][1:]
    assert platform.get("events?after=2") == {"items": [], "after": 2}
    assert platform.get("events?after=now")["items"] == []
    for query in ("after=x", "after=-1", "limit=0", "limit=1001", "wait=61", "wait=-1", "wait=nan"):
        check_problem(platform.ask("GET", f"events?{query}"), 422, "invalid")
    for odd in ("x", "-1", "1.5", "9" * 30):
        check_problem(platform.ask("GET", "events", Last_Event_ID=odd), 400, "bad-request", "Last-Event-ID")


def test_an_empty_answer_is_held_back_until_there_is_something(platform: Platform) -> None:
    platform.submit()
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(platform.get("events?after=1&wait=30")))
    asking.start()
    platform.submit(name="second")
    asking.join(30)
    assert reasons(answers[0]["items"]) == ["submitted by 'ann'"]
    assert answers[0]["after"] == 2
    assert platform.get("events?after=2&wait=0.01") == {"items": [], "after": 2}


def test_hidden_events_are_not_sent_and_end_no_wait(platform: Platform) -> None:
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    after = platform.get("events?wait=30", who="eye")["after"]
    hidden = platform.submit("ben", queue="closed", name="hidden")
    # Now the server has it in memory, for all followers.
    wait_for_memory(platform)
    assert platform.get(f"events?after={after}&wait=30", who="eye")["items"][0]["job"] == hidden
    after = platform.get("events", who="eye")["after"]
    assert platform.get(f"events?after={after}") == {"items": [], "after": after}
    hidden = platform.submit("ben", queue="closed", name="hidden")
    wait_for_memory(platform)
    assert platform.get(f"events?after={after}") == {"items": [], "after": after + 1}
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(platform.get(f"events?after={after}&wait=30")))
    asking.start()
    seen = platform.submit(name="seen")
    asking.join(30)
    assert [item["job"] for item in answers[0]["items"]] == [seen]
    kinds = {item["kind"] for item in platform.get("events")["items"]}
    assert kinds == {"stage"}, "only the members of a closed queue hear of it"
    assert hidden not in json.dumps(platform.get("events"))
    assert hidden in json.dumps(platform.get("events", who="eye"))
    check_problem(platform.ask("GET", f"jobs/{hidden}/events"), 404, "not-found")


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_members_of_a_closed_queue_hear_of_it(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, is_in_memory: bool
) -> None:
    secret = Queue(name="secret-project", weight=7.5, floor=1, ceiling=2, is_open=False, members=("ben",))
    for name, is_open in (("gone", False), ("everybody", True)):
        platform.store.queues.put(Queue(name=name, is_open=is_open), ADMIN, NOW)
        platform.store.queues.delete(name, ADMIN, NOW)
    platform.store.queues.put(secret, ADMIN, NOW)
    platform.store.queues.put(Queue(name="open", weight=2.5), ADMIN, NOW)
    platform.submit()
    wait_for_memory(platform)
    if not is_in_memory:
        monkeypatch.setattr(platform.services.feed, "_recent", [])

    def told(who: str) -> list[str]:
        events = platform.get("events", who=who)["items"]
        return [event["detail"]["queue"] for event in events if event["kind"] == "queue"]

    assert told("ann") == ["everybody", "everybody", "open"]
    assert "secret" not in str(platform.get("events")) and "7.5" not in str(platform.get("events"))
    assert told("ben") == ["everybody", "everybody", "secret-project", "open"]
    assert told("eye") == ["gone", "gone", "everybody", "everybody", "secret-project", "open"]


def test_followers_of_few_jobs_cost_no_reading_of_all(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    for number in range(3):
        platform.submit("ben", queue="closed", name=f"hidden-{number}")
    wait_for_memory(platform)
    after = platform.services.feed._recent[-1].seq
    hidden, seen = platform.submit("ben", queue="closed", name="hidden"), platform.submit(name="seen")
    wait_for_memory(platform)
    asked: list[Any] = []
    which_visible = platform.store.jobs.which_visible

    def note(these: Any, sees_only: str | None) -> Any:
        asked.append(set(these))
        return which_visible(these, sees_only)

    def refuse(*_given: Any, **_more: Any) -> Any:
        raise AssertionError("the store is read")

    monkeypatch.setattr(platform.store.jobs, "which_visible", note)
    monkeypatch.setattr(platform.store.events, "read_after", refuse)
    told = platform.get(f"events?after={after}")
    assert [one["job"] for one in told["items"]] == [seen]
    assert asked == [{hidden, seen}]
    assert told["after"] == after + 2


def test_a_page_from_memory_is_empty_only_where_there_is_no_more(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_NUM_READ", 2)
    platform.store.queues.put(Queue(name="closed", is_open=False, members=("ben",)), ADMIN, NOW)
    platform.submit("ben", queue="closed", name="first")
    wait_for_memory(platform)
    after = platform.services.feed._recent[-1].seq
    for number in range(5):
        platform.submit("ben", queue="closed", name=f"hidden-{number}")
    seen = [platform.submit(name=f"seen-{number}") for number in range(3)]
    wait_for_memory(platform)
    first = platform.get(f"events?after={after}&limit=2")
    assert [one["job"] for one in first["items"]] == seen[:2]
    assert first["after"] == after + 7
    assert [one["job"] for one in platform.get(f"events?after={first['after']}")["items"]] == seen[2:]


def test_a_stream_sends_all_events_in_order_and_resumes_where_it_was_cut_off(platform: Platform) -> None:
    jobs = [platform.submit(name=f"job-{number}") for number in range(3)]
    with platform.stream("events") as messages:
        first = take(messages, 2)
    assert [message["id"] for message in first] == ["1", "2"]
    assert {message["event"] for message in first} == {"stage"}
    assert json.loads(first[0]["data"])["job"] == jobs[0]
    with platform.stream("events?after=now", Last_Event_ID="2") as messages:
        assert json.loads(next(messages)["data"])["job"] == jobs[2], "Last-Event-ID wins over after"
        jobs.append(platform.submit(name="live"))
        message = next(messages)
        assert (message["id"], json.loads(message["data"])["job"]) == ("4", jobs[3])
    with platform.stream("events?after=now") as messages:
        platform.submit(name="next")
        assert next(messages)["id"] == "5"


def test_the_stream_of_a_job_ends_when_the_job_has_ended_and_all_is_sent(platform: Platform) -> None:
    platform.lead()
    job = platform.submit()
    with platform.stream(f"jobs/{job}/events") as messages:
        assert json.loads(next(messages)["data"])["detail"]["to"] == "queued"
        platform.submit(name="another")
        platform.start(job, "node/0")
        platform.end(job, Stage.FAILED)
        told = list(messages)
    assert told[-1] == {"event": "end", "data": "{}"}
    moves = [json.loads(message["data"])["detail"]["to"] for message in told[:-1] if message["event"] == "stage"]
    assert moves == ["starting", "running", "failed"]
    with platform.stream(f"jobs/{job}/events") as messages:
        again = list(messages)
    assert len(again) == len(told) + 1 and again[-1]["event"] == "end"
    with platform.stream(f"jobs/{job}/events", Last_Event_ID=again[-2]["id"]) as messages:
        assert [message["event"] for message in messages] == ["end"]


def test_the_end_of_a_job_is_sent_last_when_the_feed_is_late(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.lead()
    job = platform.submit()

    async def hear_nothing(_last: int) -> None:
        """The feed is late."""

    with platform.stream(f"jobs/{job}/events") as messages:
        assert json.loads(next(messages)["data"])["detail"]["to"] == "queued"
        platform.start(job, "node/0")
        while json.loads((message := next(messages))["data"])["detail"].get("to") != "running":
            pass
        wait_for_memory(platform)
        known = str(platform.services.feed._recent[-1].seq)
        assert int(known) >= int(message["id"])
        monkeypatch.setattr(platform.services.feed, "_read_new", hear_nothing)
        platform.end(job)
        with platform.stream(f"jobs/{job}/events", Last_Event_ID=known) as others:
            told = list(others)
    assert told[-1]["event"] == "end"
    assert json.loads(told[-2]["data"])["detail"]["to"] == "succeeded"


def test_a_stream_ends_with_its_token(platform: Platform, monkeypatch: Any) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    mine = platform.store.tokens.create("ann", "short", ADMIN, NOW, expires_at=NOW + 1e7)
    platform.secrets["short"] = mine.secret
    with platform.stream("events", who="short") as messages:
        platform.submit()
        assert next(messages)["event"] == "stage"
        platform.store.tokens.revoke(mine.token.id, ADMIN, NOW)
        assert list(messages) == []
    check_problem(platform.ask("GET", "events", who="short"), 401, "unauthenticated")


def test_a_stream_sees_what_its_reader_may_see_by_now(platform: Platform, monkeypatch: Any) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_S", 0.05)
    closed = Queue(name="closed", is_open=False, members=("ann", "ben"))
    platform.store.queues.put(closed, ADMIN, NOW)
    platform.store.accounts.create("boss", Role.ADMIN, ADMIN, NOW)
    platform.secrets["boss"] = platform.store.tokens.create("boss", "t", ADMIN, NOW, expires_at=NOW + 1e7).secret
    job = platform.submit("ben", queue="closed", name="hidden")
    platform.lead()
    platform.start(job, "node/0")
    (platform.directory(job) / "logs" / "worker-0.log").write_text("seen\n")
    with (
        platform.stream("events?after=now", who="boss") as all_events,
        platform.stream(f"jobs/{job}/events") as events,
        platform.stream(f"jobs/{job}/logs") as logs,
    ):
        assert next(events)["event"] == "stage" and json.loads(next(logs)["data"])["text"] == "seen\n"
        platform.store.accounts.change("boss", ADMIN, NOW, role=Role.USER)
        platform.store.queues.put(msgspec.structs.replace(closed, members=("ben",)), ADMIN, NOW)
        assert [message["event"] for message in logs] == [], "it ends, without saying that the job has ended"
        assert "end" not in [message["event"] for message in events]
        time_is_over(platform, all_events)
        platform.store.jobs.change(job, JobPatch(priority=1), ADMIN, NOW)
        open_job = platform.submit("ben", name="open")
        told = itertools.takewhile(lambda message: json.loads(message["data"])["job"] != open_job, all_events)
        assert [message["event"] for message in told if message["event"] != "queue"] == []
    check_problem(platform.ask("GET", f"jobs/{job}/events"), 404, "not-found")


def time_is_over(platform: Platform, messages: Messages) -> None:
    """Wait until the token of a stream was looked at again: it says so by a sign of life."""
    seen = 0
    for line in messages._lines:
        seen += line.startswith(":")
        if seen == 2:
            return


def test_the_number_of_streams_of_one_token_is_limited(new_platform: Callable[..., Platform]) -> None:
    platform = new_platform(max_streams=2)
    job = platform.submit()
    with platform.stream("events"), platform.stream(f"jobs/{job}/logs"):
        for path in ("events", f"jobs/{job}/events", f"jobs/{job}/logs"):
            answer = platform.ask("GET", path, Accept="text/event-stream")
            check_problem(answer, 429, "too-many-requests", "'ann' follows 2 streams at once")
            assert int(answer.headers["retry-after"]) > 0
        with platform.stream("events", who="ben"):
            assert platform.get("events")["items"], "what is no stream is not counted"
    deadline = threading.Event()
    for _ in range(600):
        if not platform.services.authenticator._streams._num:
            break
        deadline.wait(0.05)
    with platform.stream("events"), platform.stream("events"):
        pass


def test_streams_end_when_the_server_stops(platform: Platform) -> None:
    with platform.stream("events") as messages:
        platform.submit()
        next(messages)
        platform._running.call_soon_threadsafe(platform.services.feed.close)
        assert list(messages) == []


def test_followers_are_counted(platform: Platform) -> None:
    platform.submit()
    with platform.stream("events") as messages, platform.stream("events") as others:
        next(messages), next(others)
        assert platform.services.feed.num_followers == 2


def note_sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list to which the parts are added that streams of events send."""
    sent: list[bytes] = []

    async def note(messages: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for message in messages:
            sent.append(message)
            yield message

    monkeypatch.setattr("legato.server.routes.events.stream", lambda told, *rest: streams.stream(note(told), *rest))
    return sent


def test_events_that_are_there_together_are_sent_together(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = note_sent(monkeypatch)
    for number in range(3):
        platform.submit(name=f"job-{number}")
    wait_for_memory(platform)
    last = platform.store.events.read_last_seq()
    with platform.stream("events") as messages:
        assert [int(message["id"]) for message in take(messages, last)] == list(range(1, last + 1))
    assert [message.count(b"data: ") for message in sent] == [last]


def test_a_slow_client_gets_long_events_in_small_parts(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = note_sent(monkeypatch)
    job = platform.submit()
    for number in range(8):
        # Four bytes for each character.
        platform.store.jobs.change(job, JobPatch(notes=f"{number}".rjust(MAX_NOTES, "\U0001f642")), ADMIN, NOW)
    wait_for_memory(platform)
    last = platform.store.events.read_last_seq()
    with platform.stream("events") as messages:
        assert [int(message["id"]) for message in take(messages, last)] == list(range(1, last + 1))
    assert [message.count(b"data: ") for message in sent] == [5, 4, 1]


def test_the_feed_forgets_followers_that_wait_no_longer(platform: Platform) -> None:
    asyncio.run(_wait_in_vain(Feed(platform.store, ThreadPoolExecutor(1))))


async def _wait_in_vain(feed: Feed) -> None:
    assert not await feed.wait_beyond(0, 0.001)
    gone, others = asyncio.create_task(feed.wait_beyond(0, 60)), asyncio.create_task(feed.wait_beyond(0, 60))
    await asyncio.sleep(0)
    gone.cancel()
    assert isinstance((await asyncio.gather(gone, return_exceptions=True))[0], asyncio.CancelledError)
    assert len(feed._waiting) == 1
    feed.close()
    assert not await others
    assert not feed._waiting


def test_a_follower_that_was_away_for_long_reads_from_the_store(platform: Platform, monkeypatch: Any) -> None:
    from legato.server import event_feed

    monkeypatch.setattr(event_feed, "_NUM_KEPT", 2)
    for number in range(6):
        platform.submit(name=f"job-{number}")
    with platform.stream("events") as messages:
        assert [message["id"] for message in take(messages, 6)] == ["1", "2", "3", "4", "5", "6"]


def test_a_store_that_is_away_for_a_while_ends_streams_and_costs_no_event(platform: Platform, monkeypatch: Any) -> None:
    read_after, is_away = platform.store.events.read_after, threading.Event()

    def read(*given: Any, **more: Any) -> Any:
        if is_away.is_set():
            raise StoreError("Cannot use the store: it is away.")
        return read_after(*given, **more)

    monkeypatch.setattr(platform.store.events, "read_after", read)
    platform.submit()
    with platform.stream("events") as messages:
        last = next(messages)["id"]
        is_away.set()
        job = platform.submit(name="unseen")
        check_problem(platform.ask("GET", f"events?after={last}"), 503, "unavailable")
        is_away.clear()
        # Either it had not noticed, or it ended; what it tells is right in any case.
        assert [json.loads(message["data"])["job"] for message in itertools.islice(messages, 1)] in ([], [job])
    with platform.stream("events", Last_Event_ID=last) as messages:
        assert json.loads(next(messages)["data"])["job"] == job


def test_a_reader_that_goes_away_is_noticed_before_all_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise asyncio complains of each message that it cannot send."""
    num_told = asyncio.run(_tell_one_who_goes(2_000))
    assert num_told < 100
    assert [record.message for record in caplog.records if record.name == "asyncio"] == []


async def _tell_one_who_goes(num_messages: int) -> int:
    is_begun, is_gone, told = asyncio.Event(), asyncio.Event(), 0

    async def tell() -> AsyncIterator[bytes]:
        nonlocal told
        yield b": here\n\n"
        is_begun.set()
        await is_gone.wait()
        for told in range(1, num_messages + 1):  # noqa: B007
            yield b"data: 0\n\n"

    answer = streams._Stream(streams._until_store_fails(tell()), lambda: None)
    listening = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(answer, log_config=None, lifespan="off"))
    # Signals are the tests' own.
    serving = asyncio.create_task(web._serve([listening]))
    with socket.create_connection(listening.getsockname()) as reader:
        reader.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        await is_begun.wait()
        # What it has not read is thrown away, so the server's next message is answered with a reset.
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    is_gone.set()
    web.should_exit = True
    await asyncio.wait_for(serving, LIMIT_S)
    return told
