"""What users ask of jobs and see of them."""

from __future__ import annotations

import re
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ADMIN, ANN, BEN, EYE, NOW, make_job, make_people, make_pool, start, write
from tests.tiers import examples

from legato.control.records import JobFilter, JobPatch, Queue, RequestKey
from legato.control.roles import Asker, Role, check_may_submit
from legato.control.stages import Stage
from legato.control.store import Store
from legato.control.store.idempotency import claim_key
from legato.control.store.schema import code_holders
from legato.control.store.transactions import writing
from legato.core.errors import (
    Conflict,
    Forbidden,
    InFlight,
    KeyReused,
    LayoutError,
    NotFound,
    StaleVersion,
    UsageError,
)
from legato.policy.snapshot import TEST_LABEL


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)


def test_a_job_is_kept_as_submitted(store: Store) -> None:
    new = make_job(
        labels={"team": "vision", "a.b/c-d": "x"}, priority=7000, spec={"program": ["a", "ü"], "n": [1.5, None]}
    )
    job = store.jobs.submit(new, ANN, NOW).job
    assert store.jobs.get(job.id) == job
    assert (job.stage, job.attempt, job.version, job.owner, job.priority) == (Stage.QUEUED, 0, 1, "ann", 7000)
    assert (job.submitted_at, job.labels) == (NOW, new.labels)
    assert store.jobs.read_spec(job.id) == new.spec
    assert [event.reason for event in store.events.read_after(0, job=job.id)] == ["submitted by 'ann'"]
    assert (store.audit.read_before()[0].action, store.audit.read_before()[0].target) == ("job.submit", job.id)


@pytest.mark.parametrize(
    ("changes", "error", "told"),
    [
        ({"name": "a b"}, UsageError, "Cannot name a job 'a b'"),
        ({"min_workers": 0}, LayoutError, "min_workers=0 is below 1"),
        ({"min_workers": 5}, LayoutError, "min_workers=5 is above max_workers=4"),
        ({"max_workers": 10**9}, LayoutError, "above 100000"),
        ({"is_elastic": False}, LayoutError, "it is static"),
        ({"priority": 0}, UsageError, "outside 1..10000"),
        ({"priority": 10001}, UsageError, "outside 1..10000"),
        ({"max_retries": -1}, UsageError, "max_retries=-1"),
        ({"labels": {'"': "x"}}, UsageError, "is not a valid name of a label"),
        ({"labels": {"a": "x" * 256}}, UsageError, "more than 255"),
        ({"labels": {str(n): "" for n in range(65)}}, UsageError, "more than 64"),
        ({"queue": "nowhere"}, NotFound, "there is no queue 'nowhere'. 'legato queues'"),
        ({"queue": "Defalt"}, NotFound, "there is no queue 'Defalt'. Did you mean 'default'?"),
        ({"code": "0" * 64}, NotFound, "Upload it first"),
    ],
)
def test_a_job_that_cannot_be_is_refused(store: Store, changes: dict[str, Any], error: type, told: str) -> None:
    with pytest.raises(error, match=told):
        store.jobs.submit(make_job(**changes), ANN, NOW, RequestKey("k", "a"))
    assert store.jobs.count() == 0
    # The key is free again: the request was not answered.
    assert store.jobs.submit(make_job(), ANN, NOW, RequestKey("k", "b")).is_new


def test_a_viewer_submits_nothing(store: Store) -> None:
    with pytest.raises(Forbidden, match="cannot change anything"):
        store.jobs.submit(make_job(), check_may_submit(EYE), NOW)


def test_a_closed_queue_is_for_its_members(store: Store) -> None:
    store.queues.put(Queue(name="lab", is_open=False, members=("ben",)), ADMIN, NOW)
    with pytest.raises(Forbidden, match="closed to 'ann'"):
        store.jobs.submit(make_job(queue="lab"), ANN, NOW)
    job = store.jobs.submit(make_job(queue="lab"), BEN, NOW).job
    other = store.jobs.submit(make_job(queue="lab"), ADMIN, NOW).job
    assert store.jobs.list(sees_only="ann").items == ()
    assert {seen.id for seen in store.jobs.list(sees_only="ben").items} == {job.id, other.id}
    for ask in (store.jobs.pause, store.jobs.stop, store.jobs.resume):
        with pytest.raises(NotFound, match="that you may see"):
            ask(job.id, ANN, NOW)
    with pytest.raises(Forbidden, match="belongs to 'admin', not to 'ben'"):
        store.jobs.stop(other.id, BEN, NOW)
    assert [queue.name for queue in store.queues.list("ann")] == ["default"]
    with pytest.raises(NotFound, match=re.escape("there is no queue 'lib'. 'legato queues'")):
        store.jobs.submit(make_job(queue="lib"), ANN, NOW)  # what is closed to her is not offered
    with pytest.raises(NotFound, match=re.escape("there is no queue 'lib'. Did you mean 'lab'?")):
        store.jobs.submit(make_job(queue="lib"), BEN, NOW)
    with pytest.raises(NotFound, match=re.escape("there is no such queue. Did you mean 'lab'?")):
        store.queues.delete("lib", ADMIN, NOW)
    with pytest.raises(NotFound, match=re.escape("There is no job 'nothing'. 'legato ps --all' lists all.")):
        store.jobs.find("nothing", ADMIN)


def test_ids_are_in_order_of_submission_even_if_the_clock_goes_back(store: Store) -> None:
    times = [NOW, NOW, NOW - 1000, NOW + 5, 0.0, NOW + 5]
    ids = [store.jobs.submit(make_job(), ANN, time).job.id for time in times]
    assert ids == sorted(set(ids))
    assert all(len(made) == 12 and made.startswith("j-") for made in ids)


def test_a_name_means_the_newest_job_of_ones_own_else_the_newest_that_one_may_see(store: Store) -> None:
    store.queues.put(Queue(name="lab", is_open=False, members=("ben",)), ADMIN, NOW)
    second = store.jobs.submit(make_job(), BEN, NOW).job
    hidden = store.jobs.submit(make_job(queue="lab"), BEN, NOW).job
    assert store.jobs.find("mnist", EYE).id == store.jobs.find("mnist", ADMIN).id == hidden.id
    assert store.jobs.find("mnist", ANN).id == second.id, "of another, because there is none of her own"
    own = [store.jobs.submit(make_job(), ANN, NOW).job.id for _ in range(2)]
    newest = store.jobs.submit(make_job(), BEN, NOW).job
    assert store.jobs.find("mnist", ANN).id == own[1]
    assert store.jobs.find("mnist", EYE).id == newest.id
    for job in (own[0], newest.id):
        assert store.jobs.find(job, ANN).id == job
    admins = store.jobs.submit(make_job(), ADMIN, NOW).job
    store.jobs.submit(make_job(), BEN, NOW)
    assert store.jobs.find("mnist", ADMIN).id == admins.id
    # A name may look like an id.
    named = store.jobs.submit(make_job(name="j-0000000000"), ANN, NOW).job
    store.jobs.submit(make_job(name=newest.id), ANN, NOW)
    assert store.jobs.find("j-0000000000", ADMIN).id == named.id
    assert store.jobs.find(newest.id, ANN).id == newest.id
    for ref in ("mnis", "MNIST", hidden.id):
        with pytest.raises(NotFound, match=ref):
            store.jobs.find(ref, ANN)


# ---------------------------------------------------------------- code


def test_code_is_for_those_who_sent_it_or_have_a_job_with_it(store: Store) -> None:
    sha256 = "a" * 64
    store.uploads.note(sha256, 10, ANN, NOW)
    with pytest.raises(NotFound, match=r"You have not uploaded the code .*\. Upload it first"):
        store.jobs.submit(make_job(code=sha256), BEN, NOW)
    with pytest.raises(NotFound, match=r"You have not uploaded the code .*\. Upload it first"):
        store.uploads.get(sha256, BEN)
    assert store.uploads.get(sha256, ADMIN).used_at == NOW, "who may not use it does not keep it from being purged"
    lent = store.jobs.submit(make_job(code=sha256), ADMIN, NOW).job
    assert store.jobs.submit(make_job(code=sha256), ANN, NOW).job.code == lent.code == sha256
    assert store.uploads.note(sha256, 10, BEN, NOW).uploaded_by == "ann"
    assert store.jobs.submit(make_job(code=sha256), BEN, NOW).is_new, "who has the bytes may use them"


def test_code_of_a_job_of_ones_own_may_be_used_again(store: Store) -> None:
    sha256 = "a" * 64
    store.uploads.note(sha256, 10, ADMIN, NOW)
    # As an admin would leave it behind who was a user later.
    boss = Asker("admin", Role.USER)
    with store._database.writing() as connection:
        connection.execute(delete(code_holders))
    with pytest.raises(NotFound):
        store.uploads.get(sha256, boss)
    store.jobs.submit(make_job(code=sha256), ADMIN, NOW)
    assert store.uploads.get(sha256, boss).sha256 == sha256
    assert store.jobs.submit(make_job(code=sha256), boss, NOW).is_new
    with pytest.raises(NotFound):
        store.uploads.get(sha256, ANN)


def test_uploads_of_one_user_have_a_bound(store: Store) -> None:
    store.uploads.note("a" * 64, 60, ANN, NOW)
    store.uploads.note("b" * 64, 60, BEN, NOW)
    store.uploads.check_room("c" * 64, 40, ANN, 100)
    store.uploads.check_room("a" * 64, 60, ANN, 100)
    store.uploads.check_room("c" * 64, 10**9, ANN, None)
    store.uploads.check_room("c" * 64, 10**9, ADMIN, 100)
    with pytest.raises(Conflict, match=r"41 bytes: 'ann' has 60 bytes .* may have 100.*upload_quota_bytes"):
        store.uploads.check_room("c" * 64, 41, ANN, 100)
    store.uploads.note("b" * 64, 60, ANN, NOW)
    with pytest.raises(Conflict, match="'ann' has 120 bytes"):
        store.uploads.check_room("c" * 64, 1, ANN, 100)


# ---------------------------------------------------------------- idempotency


def test_the_same_request_makes_one_job(store: Store) -> None:
    first = store.jobs.submit(make_job(), ANN, NOW, RequestKey("k", "a"))
    again = store.jobs.submit(make_job(), ANN, NOW + 9, RequestKey("k", "a"))
    assert (first.is_new, again.is_new, again.job) == (True, False, first.job)
    with pytest.raises(KeyReused, match="was used for another request"):
        store.jobs.submit(make_job(), ANN, NOW, RequestKey("k", "b"))
    # Keys are each user's own.
    assert store.jobs.submit(make_job(), BEN, NOW, RequestKey("k", "a")).is_new
    assert store.jobs.count() == 2


def test_a_request_in_flight_is_not_begun_again(store: Store) -> None:
    key = RequestKey("k", "a")
    with writing(store._database, NOW) as transaction:
        assert claim_key(transaction, "ann", key, 60.0) is None
    with pytest.raises(InFlight, match="is still in progress"):
        store.jobs.submit(make_job(), ANN, NOW + 59, key)
    with pytest.raises(KeyReused):
        store.jobs.submit(make_job(), ANN, NOW + 59, RequestKey("k", "b"))
    # The server that had it is dead.
    made = store.jobs.submit(make_job(), ANN, NOW + 61, key)
    assert made.is_new
    assert store.jobs.submit(make_job(), ANN, NOW + 62, key).job == made.job
    assert store.requests.find_answer("ann", key) == made.job.id


@pytest.mark.parametrize("key", ["", "x" * 256])
def test_a_key_has_a_length(store: Store, key: str) -> None:
    with pytest.raises(UsageError, match="Give 1 to 255"):
        store.jobs.submit(make_job(), ANN, NOW, RequestKey(key, "a"))


def test_twenty_threads_with_one_key_make_one_job(store: Store) -> None:
    barrier = threading.Barrier(20)
    answers: list[Any] = []

    def submit() -> None:
        barrier.wait()
        answers.append(store.jobs.submit(make_job(), ANN, NOW, RequestKey("k", "a")))

    threads = [threading.Thread(target=submit) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 20
    assert {answer.job.id for answer in answers} == {store.jobs.list().items[0].id}
    assert sum(answer.is_new for answer in answers) == 1
    assert store.jobs.count() == 1


def test_threads_with_keys_of_their_own_make_a_job_each(store: Store) -> None:
    def submit(thread: int) -> None:
        for number in range(10):
            store.jobs.submit(make_job(), ANN, NOW, RequestKey(f"{thread}-{number}", "a"))

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.jobs.count() == 80
    events = store.events.read_after(0)
    # One sequence without gaps, and ids from many threads at the same millisecond.
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len({event.job for event in events if event.job}) == 80


# ---------------------------------------------------------------- verbs


def test_pause_resume_and_stop(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    paused = store.jobs.pause(job.id, ANN, NOW + 1)
    assert (paused.stage, paused.version, paused.reason) == (Stage.PAUSED, 2, "'ann' asked to pause it")
    with pytest.raises(Conflict, match=r"Cannot pause job 'mnist': it is paused\. Resume it first"):
        store.jobs.pause(job.id, ANN, NOW)
    assert store.jobs.resume(job.id, ANN, NOW + 2).stage is Stage.QUEUED
    running = start(store, lease.fence, store.jobs.get(job.id), (slots[0],), NOW + 3)
    with pytest.raises(Conflict, match=r"Cannot resume job 'mnist': it is running\. Only a paused job can be resumed"):
        store.jobs.resume(job.id, ANN, NOW)
    assert (running.attempt, running.started_at, running.num_slots) == (1, NOW + 3, 1)
    pausing = store.jobs.pause(job.id, ADMIN, NOW + 4)
    assert pausing.stage is Stage.PAUSING
    first = store.jobs.stop(job.id, ANN, NOW + 5)
    assert (first.stage, first.stop_now) == (Stage.STOPPING, False)
    assert store.jobs.stop(job.id, ANN, NOW + 5) == first
    stopping = store.jobs.stop(job.id, ANN, NOW + 5, stop_now=True)
    assert (stopping.stage, stopping.stop_now, stopping.version) == (Stage.STOPPING, True, first.version + 1)
    for at_once in (True, False):
        assert store.jobs.stop(job.id, ANN, NOW + 5, stop_now=at_once) == stopping
    with pytest.raises(StaleVersion):
        store.jobs.stop(job.id, ANN, NOW + 5, version=first.version, stop_now=True)
    with pytest.raises(Forbidden):
        store.jobs.stop(job.id, EYE, NOW + 5, stop_now=True)
    stopped = write(store, lease.fence, stopping, NOW + 6, stage=Stage.STOPPED, reason="as asked", closed=(slots[0],))
    assert (stopped.ended_at, stopped.num_slots) == (NOW + 6, 0)
    with pytest.raises(Conflict, match="It has already ended"):
        store.jobs.stop(job.id, ANN, NOW)
    (attempt,) = store.jobs.read_attempts(job.id)
    assert (attempt.started_at, attempt.ended_at, attempt.outcome, attempt.reason) == (
        NOW + 3,
        NOW + 6,
        Stage.STOPPED,
        "as asked",
    )
    moves = [event.detail for event in store.events.read_after(0, job=job.id) if event.kind == "stage"]
    assert [move["to"] for move in moves if move] == [
        *("queued", "paused", "queued", "starting", "running", "pausing", "stopping", "stopped"),
    ]


def test_what_a_job_may_have_changes_live(store: Store) -> None:
    store.queues.put(Queue(name="lab", is_open=False), ADMIN, NOW)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    patch = JobPatch(min_workers=2, max_workers=8, priority=9000, labels={"a": "b"})
    changed = store.jobs.change(job.id, patch, ANN, NOW, version=1)
    assert (changed.min_workers, changed.max_workers, changed.priority, changed.version) == (2, 8, 9000, 2)
    assert changed.labels == {"a": "b"}
    assert store.jobs.change(job.id, patch, ANN, NOW).version == 2
    with pytest.raises(StaleVersion, match="it has version 2, and you gave 1"):
        store.jobs.change(job.id, JobPatch(priority=1), ANN, NOW, version=1)
    with pytest.raises(LayoutError, match="min_workers=9 is above max_workers=8"):
        store.jobs.change(job.id, JobPatch(min_workers=9), ANN, NOW)
    with pytest.raises(Forbidden, match="queue 'lab' is closed"):
        store.jobs.change(job.id, JobPatch(queue="lab"), ANN, NOW)
    with pytest.raises(Forbidden, match="belongs to 'ann'"):
        store.jobs.change(job.id, JobPatch(priority=1), BEN, NOW)
    with pytest.raises(Forbidden):
        store.jobs.change(job.id, JobPatch(), BEN, NOW)
    assert store.jobs.change(job.id, JobPatch(queue="lab"), ADMIN, NOW).queue == "lab"
    store.jobs.stop(job.id, ANN, NOW)
    with pytest.raises(Conflict, match=r"it was stopped\. A job that has ended cannot be changed"):
        store.jobs.change(job.id, JobPatch(priority=1), ANN, NOW)
    assert store.jobs.change(job.id, JobPatch(labels={}), ANN, NOW).labels == {}


def test_of_two_admins_who_race_one_wins(store: Store) -> None:
    job = store.jobs.submit(make_job(), ANN, NOW).job
    barrier = threading.Barrier(2)
    outcomes: list[str] = []

    def change(priority: int) -> None:
        barrier.wait()
        try:
            store.jobs.change(job.id, JobPatch(priority=priority), ADMIN, NOW, version=job.version)
            outcomes.append("won")
        except StaleVersion:
            outcomes.append("stale")

    threads = [threading.Thread(target=change, args=(priority,)) for priority in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["stale", "won"]
    assert store.jobs.get(job.id).version == 2


# ---------------------------------------------------------------- lists


def test_filters(store: Store) -> None:
    store.queues.put(Queue(name="lab"), ADMIN, NOW)
    one = store.jobs.submit(make_job(name="bert-1", labels={"team": "a", "x": "1"}), ANN, NOW).job
    two = store.jobs.submit(make_job(name="bert_2", queue="lab", labels={"team": "b"}), BEN, NOW).job
    three = store.jobs.submit(make_job(name="Bert-3"), BEN, NOW).job
    store.jobs.pause(three.id, BEN, NOW)

    def ids(**wanted: Any) -> list[str]:
        assert store.jobs.count(JobFilter(**wanted)) == len(store.jobs.list(JobFilter(**wanted)).items)
        return [job.id for job in store.jobs.list(JobFilter(**wanted)).items]

    assert ids() == [three.id, two.id, one.id]
    assert ids(stages=frozenset({Stage.PAUSED})) == [three.id]
    assert ids(stages=frozenset({Stage.PAUSED, Stage.QUEUED})) == [three.id, two.id, one.id]
    assert ids(owner="ann") == [one.id]
    assert ids(queue="lab") == [two.id]
    assert ids(labels={"team": "a"}) == [one.id]
    assert ids(labels={"team": "a", "x": "1"}) == [one.id]
    assert ids(labels={"team": "a", "x": "2"}) == []
    assert ids(name_prefix="bert") == [two.id, one.id]
    assert ids(name_prefix="bert_") == [two.id]
    assert ids(name_prefix="%") == []
    assert ids(search="BERT") == ids(search="") == [three.id, two.id, one.id]
    assert ids(search="t_") == [two.id], "no wildcard"
    assert [ids(search=text) for text in ("%", "t-_", "e.t", "/", "\\", "t\\_2", "'")] == [[]] * 7
    assert ids(search="ERT-3") == [three.id]
    assert ids(search=two.id.upper()) == ids(search=two.id[3:]) == [two.id]
    assert ids(search="bert", owner="ann") == [one.id]
    with pytest.raises(UsageError, match="is not a valid name of a label"):
        ids(labels={"'": ""})


@given(data=st.data())
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pages_are_whole_while_jobs_are_added(new_url: NewUrl, data: st.DataObject) -> None:
    with open_quickly(new_url()) as store:
        make_people(store)
        limit = data.draw(st.integers(1, 5), "limit")
        oldest_first = data.draw(st.booleans(), "oldest first")
        before = [store.jobs.submit(make_job(), ANN, NOW).job.id for _ in range(data.draw(st.integers(0, 12), "jobs"))]
        seen: list[str] = []
        after = None
        while True:
            page = store.jobs.list(after=after, limit=limit, oldest_first=oldest_first)
            assert len(page.items) <= limit
            seen += [job.id for job in page.items]
            after = page.after
            if after is None:
                break
            if len(seen) < 30:
                for _ in range(data.draw(st.integers(0, 2), "added")):
                    store.jobs.submit(make_job(), BEN, NOW)
        assert seen == sorted(set(seen), reverse=not oldest_first)
        assert set(before) <= set(seen)


def test_events_are_followed_and_seen_by_those_who_may(store: Store) -> None:
    store.queues.put(Queue(name="lab", is_open=False), ADMIN, NOW)
    begin = store.events.read_last_seq()
    job = store.jobs.submit(make_job(), ANN, NOW).job
    hidden = store.jobs.submit(make_job(queue="lab"), ADMIN, NOW).job
    store.events.append("hint", "a word", NOW + 1, detail={"a": 1})
    told = store.events.read_after(begin)
    assert [(event.seq, event.job) for event in told] == [
        (begin + 1, job.id),
        (begin + 2, hidden.id),
        (begin + 3, None),
    ]
    assert store.events.read_after(begin, limit=1) == told[:1]
    assert store.events.read_after(begin + 1, limit=1) == told[1:2]
    assert store.events.read_after(begin, sees_only="ben") == (told[0], told[2])
    assert store.events.read_after(begin, job=hidden.id, sees_only="ben") == ()
    assert store.events.read_last_seq() == begin + 3


def test_who_follows_events_misses_none(store: Store) -> None:
    """A reader that continues from the last number it saw, while many write, sees every number once and in order."""
    begin = store.events.read_last_seq()
    done = threading.Event()
    seen: list[int] = []

    def follow() -> None:
        last = begin
        while True:
            finished = done.is_set()
            for event in store.events.read_after(last, limit=7):
                seen.append(event.seq)
                last = event.seq
            if finished and last == store.events.read_last_seq():
                return

    def speak() -> None:
        for number in range(25):
            store.events.append("word", str(number), NOW)

    follower = threading.Thread(target=follow)
    speakers = [threading.Thread(target=speak) for _ in range(4)]
    for thread in (follower, *speakers):
        thread.start()
    for thread in speakers:
        thread.join()
    done.set()
    follower.join()
    assert seen == list(range(begin + 1, begin + 101))


def test_a_test_of_a_cluster_is_known_by_the_machine_that_it_asks_for(store: Store) -> None:
    labelled = msgspec.structs.replace(make_job(), labels={TEST_LABEL: "slurm"})
    store.jobs.submit(labelled, ANN, NOW)
    assert store.jobs.find_test("slurm") is None
    asked = {"program": ["a"], "node_labels": {TEST_LABEL: "slurm"}}
    test = store.jobs.submit(msgspec.structs.replace(labelled, spec=asked), ADMIN, NOW).job
    assert (store.jobs.find_test("slurm"), store.jobs.find_test("kubernetes")) == (test.id, None)
    with pytest.raises(UsageError, match=r"only tests of clusters have the label legato\.test, and they keep it"):
        store.jobs.change(test.id, JobPatch(labels={}), ADMIN, NOW)
    store.jobs.stop(test.id, ADMIN, NOW, stop_now=True)
    assert store.jobs.find_test("slurm") is None


def test_of_admins_who_test_a_cluster_at_once_one_wins(store: Store) -> None:
    test = msgspec.structs.replace(make_job(), spec={"program": ["a"], "node_labels": {TEST_LABEL: "slurm"}})
    barrier = threading.Barrier(8)
    outcomes: list[str] = []

    def submit() -> None:
        barrier.wait()
        try:
            outcomes.append(store.jobs.submit(test, ADMIN, NOW, test_of="slurm").job.id)
        except Conflict as error:
            outcomes.append(str(error))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (job,) = store.jobs.list().items
    refusal = f"Cannot test cluster 'slurm': job {job.id} tests it already. Wait, or stop that job."
    assert sorted(outcomes) == sorted([job.id, *[refusal] * 7])
