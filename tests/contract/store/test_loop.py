"""What the control loop writes: slots with one owner, moves, decisions, and only under its lease."""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import Any

import pytest
from tests.contract.store.making import (
    ADMIN,
    ANN,
    BEN,
    NOW,
    change,
    make_job,
    make_node,
    make_people,
    make_pool,
    start,
    write,
)

from legato.api.jobs import Progress
from legato.api.pool import Usage
from legato.control.people import TokenKind
from legato.control.records import JobChange, JobPatch, Lease, RequestKey, Verdict
from legato.control.stages import Stage
from legato.control.store import Store
from legato.core.errors import FencedOut, NotFound, SlotTaken, TransitionError, UsageError


@pytest.fixture(autouse=True)
def people(store: Store) -> None:
    make_people(store)


# ---------------------------------------------------------------- lease


def test_one_loop_has_the_lease(store: Store) -> None:
    first = store.loop.take_lease("one", NOW, 10)
    assert first == Lease(owner="one", expires_at=NOW + 10, fence=1)
    assert store.loop.take_lease("two", NOW + 9.9, 10) is None
    renewed = store.loop.take_lease("one", NOW + 9.9, 10)
    assert renewed == Lease(owner="one", expires_at=NOW + 19.9, fence=1)
    second = store.loop.take_lease("two", NOW + 19.9, 10)
    assert second is not None
    assert second.fence == 2
    store.loop.give_up_lease(first, NOW + 20)
    assert store.loop.read_lease() == second
    store.loop.give_up_lease(second, NOW + 20)
    third = store.loop.take_lease("three", NOW + 20, 10)
    assert third is not None
    assert third.fence == 3


def test_of_many_loops_one_is_elected_at_a_time(store: Store) -> None:
    """Threads that take, renew and lose the lease: no two ever have the same fence, and it only grows."""
    owners: dict[int, set[str]] = {}
    lock = threading.Lock()

    def contend(name: str) -> None:
        dice = random.Random(name)
        for step in range(15):
            lease = store.loop.take_lease(name, NOW + step + dice.random(), 1.5)
            if lease is not None:
                with lock:
                    owners.setdefault(lease.fence, set()).add(name)

    threads = [threading.Thread(target=contend, args=(f"loop-{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(len(names) == 1 for names in owners.values())
    last = store.loop.read_lease()
    assert last is not None
    assert set(owners) == set(range(1, last.fence + 1))


def test_a_loop_that_lost_its_lease_changes_nothing(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    store.loop.give_up_lease(lease, NOW)
    other = store.loop.take_lease("other", NOW, 10)
    assert other is not None
    before = (store.loop.read_facts(), store.events.read_last_seq(), store.pool.list_slots())
    granting = change(job, stage=Stage.STARTING, granted=(slots[0],), verdict=Verdict(1, "r"))
    writes: list[Any] = [
        lambda: store.loop.write([granting], lease.fence, NOW),
        lambda: store.loop.write([], lease.fence, NOW),
        lambda: store.pool.declare([make_node(["node/x"])], lease.fence, NOW),
        lambda: store.retention.purge(lease.fence, NOW, jobs_before=NOW, uploads_before=NOW, keys_before=NOW),
    ]
    for stale in writes:
        with pytest.raises(FencedOut, match="other has it, with number 2"):
            stale()
    assert (store.loop.read_facts(), store.events.read_last_seq(), store.pool.list_slots()) == before
    store.loop.write([granting], other.fence, NOW)


def test_without_a_lease_nothing_is_written(store: Store) -> None:
    with pytest.raises(FencedOut, match="no server has it"):
        store.loop.write([], 1, NOW)


# ---------------------------------------------------------------- slots


def test_a_slot_is_released_in_two_steps(store: Store) -> None:
    lease, slots = make_pool(store, 3)
    job = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[0], slots[1]))
    assert job.num_slots == 2
    write(store, lease.fence, job, NOW + 1, released=(slots[1],), reason="a fair share is 1")
    write(store, lease.fence, job, NOW + 2, released=(slots[1],), reason="again")
    leaving = store.pool.list_open()[1]
    assert (leaving.slot, leaving.release_asked_at, leaving.until) == (slots[1], NOW + 1, None)
    other = store.jobs.submit(make_job(), BEN, NOW).job
    with pytest.raises(SlotTaken, match=f"attempt 1 of job {job.id} has not released it"):
        write(store, lease.fence, other, stage=Stage.STARTING, granted=(slots[1],))
    assert store.jobs.get(other.id) == other
    # Closed and given away in one write.
    changes = [change(other, stage=Stage.STARTING, granted=(slots[1],)), change(job, closed=(slots[1],))]
    store.loop.write(changes, lease.fence, NOW + 3)
    assert [(row.slot, row.job) for row in store.pool.list_open()] == [(slots[0], job.id), (slots[1], other.id)]
    told = [event.kind for event in store.events.read_after(0, job=job.id)]
    assert told == ["stage", "stage", "granted", "stage", "released", "left"]
    assert [row.until for row in store.jobs.read_allocations(job.id)] == [None, NOW + 3]


def test_writing_again_changes_nothing(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    job = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[0],))
    again = change(job, granted=(slots[0],), closed=(slots[1],), verdict=Verdict(1, "alone"))
    store.loop.write([again], lease.fence, NOW + 1)
    before = store.loop.read_facts()
    num_decisions = len(store.jobs.read_decisions(job.id))
    store.loop.write([again], lease.fence, NOW + 2)
    assert store.loop.read_facts() == before
    assert len(store.jobs.read_decisions(job.id)) == num_decisions == 1


def test_an_attempt_that_is_over_may_still_hold_slots(store: Store) -> None:
    lease, slots = make_pool(store, 1)
    job = start(store, lease.fence, store.jobs.submit(make_job(max_retries=1), ANN, NOW).job, (slots[0],))
    queued = write(store, lease.fence, job, stage=Stage.QUEUED, reason="exit code 1", is_retry=True)
    assert (queued.num_retries, queued.num_slots, queued.attempt) == (1, 1, 1)
    again = write(store, lease.fence, queued, stage=Stage.STARTING, reason="r")
    assert again.attempt == 2
    with pytest.raises(SlotTaken):
        write(store, lease.fence, again, granted=(slots[0],))
    write(store, lease.fence, again, closed=(slots[0],))
    assert len(store.pool.list_open()) == 1
    write(store, lease.fence, again, closed=(slots[0],), closed_attempt=1)
    write(store, lease.fence, again, granted=(slots[0],))
    assert [(row.attempt, row.until) for row in store.jobs.read_allocations(job.id)] == [(1, NOW), (2, None)]


def test_slots_vanish_and_come_back(store: Store) -> None:
    lease, slots = make_pool(store, 3)
    job = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[2],))
    store.pool.declare([make_node(slots[:2]), make_node(["b/0"], "b")], lease.fence, NOW + 1)
    store.pool.declare([make_node(slots[:2])], lease.fence, NOW + 2)
    unusable = {slot.id: slot.unusable_since for slot in store.pool.list_slots()}
    assert unusable == {"b/0": None, slots[0]: None, slots[1]: None, slots[2]: NOW + 1}
    assert store.jobs.get(job.id).num_slots == 1
    write(store, lease.fence, job, closed=(slots[2],))
    with pytest.raises(SlotTaken, match="it does not exist or is not usable"):
        write(store, lease.fence, job, granted=(slots[2],))
    with pytest.raises(SlotTaken, match="it does not exist or is not usable"):
        write(store, lease.fence, job, granted=("node/nothing",))
    store.pool.declare([make_node(slots)], lease.fence, NOW + 3)
    assert write(store, lease.fence, job, granted=(slots[2],)).num_slots == 1
    told = [event.reason for event in store.events.read_after(0) if event.kind == "slot"]
    assert told[-2:] == [
        f"slot {slots[2]} is not usable any more: its node no longer declares it",
        f"slot {slots[2]} is usable again",
    ]


@pytest.mark.parametrize(
    ("name", "ids", "told"),
    [
        ("node", ["node/a", "node/a"], "declared twice"),
        ("other", ["node/cpu:0"], "belongs to node 'node'"),
        ("node", ["x" * 256], "more than 255"),
        ("", ["a"], "Give 1 to 255"),
    ],
)
def test_nodes_that_cannot_be(store: Store, name: str, ids: list[str], told: str) -> None:
    lease, _ = make_pool(store, 1)
    with pytest.raises(UsageError, match=told):
        store.pool.declare([make_node(ids, name)], lease.fence, NOW)
    assert len(store.pool.list_slots()) == 1


def test_two_writers_with_the_same_fence_never_share_a_slot(store: Store) -> None:
    """Even two loops that both believe in one lease, which is a bug, cannot give a slot to two jobs."""
    lease, slots = make_pool(store, 4)
    pair = [store.jobs.submit(make_job(), ANN, NOW).job for _ in range(2)]
    running = [start(store, lease.fence, job) for job in pair]
    outcomes: Counter[str] = Counter()

    def play(number: int) -> None:
        dice = random.Random(number)
        job = running[number]
        for step in range(30):
            some = tuple(dice.sample(slots, dice.randint(1, 3)))
            verb = dice.choice(["granted", "granted", "released", "closed"])
            try:
                store.loop.write([change(job, **{verb: some})], lease.fence, NOW + step)
                outcomes[verb] += 1
            except SlotTaken:
                outcomes["taken"] += 1

    threads = [threading.Thread(target=play, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes["granted"] and outcomes["closed"] and outcomes["taken"]
    check_one_owner(store)


def check_one_owner(store: Store) -> None:
    """No slot has two owners at any time, by what is written down."""
    owners = Counter(row.slot for row in store.pool.list_open())
    assert all(number == 1 for number in owners.values())
    spans: dict[str, list[tuple[float, float]]] = {}
    for row in store.pool.list_between(0, 1e12):
        spans.setdefault(row.slot, []).append((row.since, row.until if row.until is not None else float("inf")))
    assert sum(len(one) for one in spans.values()) > 0


# ---------------------------------------------------------------- jobs


def test_what_moved_on_meanwhile_is_left_out_whole(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    one, two = (store.jobs.submit(make_job(), ANN, NOW).job for _ in range(2))
    changes = [
        change(job, stage=Stage.STARTING, granted=(slot,), verdict=Verdict(1, "r"), reason="r")
        for job, slot in zip((one, two), slots, strict=True)
    ]
    store.jobs.stop(one.id, ANN, NOW)
    assert store.loop.write(changes, lease.fence, NOW).stale == (one.id,)
    assert store.jobs.get(one.id).stage is Stage.STOPPED
    assert store.jobs.read_decisions(one.id) == ()
    assert [row.job for row in store.pool.list_open()] == [two.id]
    # An older attempt, and a job that is no more.
    old = JobChange(job=two.id, seen_stage=Stage.STARTING, seen_attempt=0, stage=Stage.RUNNING)
    gone = JobChange(job="j-0000000000", seen_stage=Stage.STARTING, seen_attempt=0, stage=Stage.RUNNING)
    assert store.loop.write([old, gone], lease.fence, NOW).stale == ("j-0000000000", two.id)
    assert store.jobs.get(two.id).stage is Stage.STARTING


def test_an_illegal_move_raises_with_the_story_and_writes_nothing(store: Store) -> None:
    lease, slots = make_pool(store, 1)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    other = store.jobs.submit(make_job(), ANN, NOW).job
    changes = [change(other, stage=Stage.STARTING, granted=(slots[0],)), change(job, stage=Stage.SUCCEEDED)]
    with pytest.raises(TransitionError, match=r"from queued to succeeded.*\n.*submitted by 'ann'"):
        store.loop.write(changes, lease.fence, NOW)
    assert store.jobs.get(other.id) == other
    assert store.pool.list_open() == ()


def test_a_change_by_a_user_does_not_hold_the_loop_up(store: Store) -> None:
    lease, _ = make_pool(store, 1)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    store.jobs.change(job.id, JobPatch(priority=1), ANN, NOW)
    moved = write(store, lease.fence, job, stage=Stage.STARTING)
    assert (moved.stage, moved.priority, moved.version) == (Stage.STARTING, 1, 3)


def test_decisions_that_say_the_same_are_kept_once(store: Store) -> None:
    lease, _ = make_pool(store, 1)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    said = [Verdict(0, "waits"), Verdict(0, "waits"), Verdict(2, "2 of 4"), Verdict(0, "waits")]
    for number, verdict in enumerate(said):
        job = write(store, lease.fence, store.jobs.get(job.id), NOW + number, verdict=verdict)
    assert (job.decided_slots, job.decided_reason, job.version) == (0, "waits", 1)
    kept = store.jobs.read_decisions(job.id)
    assert [(decision.time - NOW, decision.num_slots) for decision in kept] == [(3, 0), (2, 2), (0, 0)]
    assert store.jobs.read_decisions(job.id, limit=1) == kept[:1]


def test_a_worker_that_leaves_is_counted(store: Store) -> None:
    lease, slots = make_pool(store, 4)
    job = start(store, lease.fence, store.jobs.submit(make_job(max_workers=4), ANN, NOW).job, tuple(slots[:4]))
    for closed in ((slots[0],), (slots[1], slots[2]), (slots[3],)):
        job = write(store, lease.fence, job, NOW + 1, closed=closed)
    told = [event.reason for event in store.events.read_after(0, limit=100) if event.kind == "left"]
    assert told == ["1 of its 4 workers is gone", "2 of its 3 workers are gone", "its workers are gone"]


def test_what_was_decided_holds_until_a_job_is_paused(store: Store) -> None:
    lease, slots = make_pool(store, 1)
    job = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[0],))
    job = write(store, lease.fence, job, verdict=Verdict(1, "its maximum"))
    paused = store.jobs.pause(job.id, ANN, NOW + 1)
    assert (paused.decided_slots, paused.decided_reason) == (None, None)
    write(store, lease.fence, paused, NOW + 2, stage=Stage.PAUSED, closed=(slots[0],))
    resumed = store.jobs.resume(job.id, ANN, NOW + 3)
    again = write(store, lease.fence, resumed, NOW + 4, verdict=Verdict(1, "its maximum"))
    assert (again.decided_slots, again.decided_reason) == (1, "its maximum")
    assert len(store.jobs.read_decisions(job.id)) == 2


def test_the_same_decision_in_other_words_is_no_event(store: Store) -> None:
    lease, _ = make_pool(store, 1)
    job = store.jobs.submit(make_job(), ANN, NOW).job
    decided = write(store, lease.fence, job, verdict=Verdict(0, "waits for ben/one"))
    last = store.events.read_last_seq()
    reworded = write(store, lease.fence, decided, NOW + 1, verdict=Verdict(0, "waits for ben/two", is_new=False))
    assert (reworded.decided_slots, reworded.decided_reason) == (0, "waits for ben/two")
    assert [decision.reason for decision in store.jobs.read_decisions(job.id)] == ["waits for ben/one"]
    assert store.events.read_last_seq() == last


def test_progress_and_the_end(store: Store) -> None:
    lease, slots = make_pool(store, 1)
    job = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[0],))
    progress = Progress(
        time=NOW, num_workers=1, step=7, epoch=0, loss=0.25, samples_per_s=1e3, step_s=0.1, resize_s=None
    )
    going = write(store, lease.fence, job, progress=progress)
    assert (going.progress, going.version) == (progress, job.version)
    ended = write(
        store, lease.fence, going, NOW + 9, stage=Stage.FAILED, reason="exit code 3", exit_code=3, closed=slots
    )
    assert (ended.exit_code, ended.ended_at, ended.reason, ended.num_slots) == (3, NOW + 9, "exit code 3", 0)
    facts = store.loop.read_facts()
    assert (facts.jobs, facts.allocations, len(facts.slots), facts.queues[0].name) == ((), (), 1, "default")


def test_usage_counts_seconds_of_slots(store: Store) -> None:
    lease, slots = make_pool(store, 3)
    ann = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[0], slots[1]), NOW)
    ben = start(store, lease.fence, store.jobs.submit(make_job(), BEN, NOW).job, (slots[2],), NOW + 5)
    write(store, lease.fence, ann, NOW + 10, closed=(slots[1],))
    assert store.pool.measure_usage(NOW, NOW + 20) == (
        Usage(owner="ann", queue="default", slot_s=30, num_jobs=1),
        Usage(owner="ben", queue="default", slot_s=15, num_jobs=1),
    )
    assert [usage.slot_s for usage in store.pool.measure_usage(NOW + 9, NOW + 11)] == [3, 2]
    assert store.pool.measure_usage(NOW - 9, NOW) == ()
    assert {row.job for row in store.pool.list_between(NOW + 11, NOW + 12)} == {ann.id, ben.id}
    assert len(store.pool.list_between(NOW + 11, NOW + 12)) == 2


# ---------------------------------------------------------------- uploads and retention


def test_what_is_old_goes_with_all_that_belongs_to_it(store: Store) -> None:
    lease, slots = make_pool(store, 2)
    unused, used = "a" * 64, "b" * 64
    for sha256 in (unused, used):
        assert store.uploads.note(sha256, 10, ANN, NOW).uploaded_by == "ann"
    assert store.uploads.note(unused, 10, BEN, NOW + 1).used_at == NOW + 1
    old = start(
        store, lease.fence, store.jobs.submit(make_job(code=used), ANN, NOW, RequestKey("k", "a")).job, (slots[0],)
    )
    write(store, lease.fence, old, NOW + 1, stage=Stage.SUCCEEDED, closed=(slots[0],), verdict=Verdict(0, "r"))
    holding = start(store, lease.fence, store.jobs.submit(make_job(), ANN, NOW).job, (slots[1],))
    write(store, lease.fence, holding, NOW + 1, stage=Stage.SUCCEEDED)
    waiting = store.jobs.submit(make_job(), ANN, NOW).job
    token = store.tokens.create("ann", "old", ANN, NOW, expires_at=NOW + 1).token

    def purge(now: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
        purged = store.retention.purge(
            lease.fence, now, jobs_before=now - 5, uploads_before=now - 5, keys_before=now - 5
        )
        return purged.jobs, purged.uploads

    assert purge(NOW + 5) == ((), ())
    assert store.retention.purge(lease.fence, NOW, jobs_before=None, uploads_before=1e12, keys_before=0).uploads == (
        unused,
    )
    store.uploads.note(unused, 10, BEN, NOW + 1)
    gone, files = purge(NOW + 7)
    assert (gone, sorted(files)) == ((old.id,), [unused, used])
    assert {job.id for job in store.jobs.list().items} == {holding.id, waiting.id}
    assert store.events.read_after(0, job=old.id) == ()
    assert (
        store.jobs.read_attempts(old.id)
        == store.jobs.read_allocations(old.id)
        == store.jobs.read_decisions(old.id)
        == ()
    )
    assert token not in store.tokens.list("ann")
    with pytest.raises(NotFound, match="Upload it first"):
        store.uploads.get(used, ADMIN)
    assert store.jobs.submit(make_job(), ANN, NOW + 7, RequestKey("k", "other")).is_new
    none = store.retention.purge(lease.fence, 1e12, jobs_before=None, uploads_before=None, keys_before=0)
    assert (none.jobs, none.uploads) == ((), ())
    assert any(entry.target == old.id for entry in store.audit.read_before(limit=100))


def test_tokens_of_logins_go_soon_after_their_end_and_others_stay(store: Store) -> None:
    lease, _ = make_pool(store, 1)
    ends = {
        "login": NOW + 8 * 3600,
        "revoked": NOW + 86_400,
        "live": NOW + 86_400,
        "week": NOW + 7 * 86_400,
        "year": NOW + 365 * 86_400,
    }
    made = {
        name: store.tokens.create(
            "ann",
            name,
            ANN,
            NOW,
            expires_at=end,
            kind=TokenKind.TOKEN if name in ("week", "year") else TokenKind.SESSION,
        ).token.id
        for name, end in ends.items()
    }
    store.tokens.revoke(made["revoked"], ANN, NOW + 100)
    store.tokens.revoke(made["week"], ANN, NOW + 100)

    def purge(before: float) -> set[str]:
        store.retention.purge(lease.fence, NOW, jobs_before=None, uploads_before=None, keys_before=before)
        return {one.name for one in store.tokens.list("ann")}

    assert purge(NOW + 100) == set(ends)
    assert purge(NOW + 101) == set(ends) - {"revoked"}
    assert purge(NOW + 8 * 3600 + 1) == {"live", "week", "year"}
    # A user with an old token without an end reads that it was revoked, as long as jobs are kept.
    assert purge(1e12) == {"week", "year"}


@pytest.mark.parametrize("sha256", ["", "A" * 64, "../" + "a" * 61, "a" * 63])
def test_an_upload_is_known_by_its_sha256(store: Store, sha256: str) -> None:
    with pytest.raises(UsageError, match="as a SHA-256"):
        store.uploads.note(sha256, 1, ADMIN, NOW)
    with pytest.raises(UsageError, match="as a SHA-256"):
        store.uploads.get(sha256, ADMIN)
