"""Users of a queue share before their jobs do: no user gains by many jobs, and the reasons say who shares with whom."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise, product
from pathlib import Path

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.gains import measure_all
from tests.unit.policy.truth import Truth
from tests.unit.policy.world import carry_out, make_job, make_slots, make_snapshot, settle, wanted, with_job
from tests.unit.policy.worlds import QUEUES, USERS, any_queues, any_snapshots, any_speeds, for_any

from legato.core.speed import Speed
from legato.policy.claims import sort_snapshot
from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import fit_size, largest_size, next_size
from legato.policy.snapshot import JobDemand, Queue, Snapshot
from legato.policy.users import list_turns

BY_USER = Rules()
BY_JOB = Rules(fair_by=FairBy.JOB)


def total(snapshot: Snapshot, user: str, queue: str | None = None, rules: Rules = BY_USER) -> int:
    """Return the slots that the jobs of a user get in the end, in one queue or in all."""
    decisions = decide(snapshot, rules)
    return sum(decisions.of(job.id).wanted for job in snapshot.jobs if job.owner == user and queue in (None, job.queue))


def sweep(number: int, **fields: object) -> list[JobDemand]:
    return [make_job(f"ann/s{index}", 1, at=float(index), **fields) for index in range(number)]


# ---------------------------------------------------------------- known answers


def test_a_sweep_gets_as_much_as_one_job_of_another_user() -> None:
    snapshot = make_snapshot(8, [*sweep(8), make_job("ben/b", 8, at=9.0)])
    assert (total(snapshot, "ann"), total(snapshot, "ben")) == (4, 4)
    assert (total(snapshot, "ann", rules=BY_JOB), total(snapshot, "ben", rules=BY_JOB)) == (8, 0)


def test_a_running_sweep_pauses_as_many_jobs_as_the_share_of_a_new_user_needs() -> None:
    snapshot, _ = settle(make_snapshot(8, sweep(8)))
    snapshot, decisions = settle(with_job(snapshot, make_job("ben/b", 8, at=9.0)))
    assert wanted(decisions) == {f"s{index}": int(index < 4) for index in range(8)} | {"b": 4}


def test_priorities_weigh_the_jobs_of_one_user_and_not_those_of_others() -> None:
    jobs = [make_job("ann/a", 12, priority=10_000), make_job("ann/b", 12), make_job("ben/c", 12)]
    assert wanted(decide(make_snapshot(12, jobs), Rules())) == {"a": 4, "b": 2, "c": 6}
    assert wanted(decide(make_snapshot(12, jobs), BY_JOB)) == {"a": 6, "b": 3, "c": 3}


def test_queues_share_first_then_users_then_jobs() -> None:
    jobs = [make_job("ann/a", 12), make_job("ben/b1", 12), make_job("ben/b2", 12), make_job("ben/c", 12, queue="day")]
    assert wanted(decide(make_snapshot(12, jobs), Rules())) == {"a": 3, "b1": 2, "b2": 1, "c": 6}


def test_slots_that_a_user_cannot_use_go_to_the_user_with_the_fewest() -> None:
    jobs = [*sweep(6), make_job("ben/b", 9, at=9.0), make_job("cleo/wide", 20, at=9.5, elastic=False)]
    # Cleo's job does not fit the pool: Ann and Ben get what it cannot use.
    snapshot = make_snapshot(9, jobs)
    assert [total(snapshot, user) for user in USERS] == [5, 4, 0]


def test_a_minimum_above_the_share_is_assigned_in_turn() -> None:
    jobs = [*sweep(4), make_job("ben/wide", 6, at=9.0, elastic=False)]
    snapshot = make_snapshot(8, jobs)
    assert (total(snapshot, "ann"), total(snapshot, "ben")) == (2, 6)


def test_streams_of_small_jobs_do_not_starve_the_first_job_of_a_user() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("ann/s0", 1), make_job("ben/s1", 1)]))
    snapshot = with_job(snapshot, make_job("cleo/wide", 4, at=0.5, elastic=False))
    ages = {"s0": 0, "s1": 0}
    for number in range(2, 20):
        snapshot = with_job(snapshot, make_job(f"{USERS[number % 2]}/s{number}", 1, at=float(number)))
        decisions = decide(snapshot, Rules(stability_s=0.0))
        if decisions.of("wide").slots:
            break
        snapshot = carry_out(snapshot, decisions)
        for decision in decisions.decisions:
            if decision.slots:
                ages.setdefault(decision.job, number)
        for name in [name for name, start in ages.items() if number - start >= 3]:
            del ages[name]
            snapshot = msgspec.structs.replace(
                snapshot,
                slots=tuple(
                    msgspec.structs.replace(slot, holder=None, leaving=False) if slot.holder == name else slot
                    for slot in snapshot.slots
                ),
                jobs=tuple(job for job in snapshot.jobs if job.id != name),
            )
    assert len(decisions.of("wide").slots) == 4


def test_a_queue_with_a_low_weight_gets_its_turn() -> None:
    for num_slots, weight, low in ((2, 4.0, 1), (8, 20.0, 1), (8, 20.0, 3)):
        queues = (Queue(name="prod", weight=weight), Queue(name="dev"))
        jobs = [
            make_job("ann/a", 8, queue="prod"),
            make_job("ben/b", 8, at=1.0, queue="dev", min_workers=low),
        ]
        snapshot = make_snapshot(num_slots, jobs, queues)
        assert wanted(decide(snapshot, Rules())) == {"a": num_slots - low, "b": low} == wanted(decide(snapshot, BY_JOB))


def test_a_queue_whose_minimums_do_not_fit_takes_no_slot_from_others() -> None:
    queues = (Queue(name="prod", weight=20.0), Queue(name="dev"), Queue(name="test", weight=20.0))
    jobs = [
        make_job("ann/a", 8, queue="prod"),
        make_job("ben/b", 20, at=1.0, queue="dev", elastic=False),
        make_job("cleo/c", 8, at=2.0, queue="test"),
    ]
    assert wanted(decide(make_snapshot(8, jobs, queues), Rules())) == {"a": 4, "b": 0, "c": 4}


def test_a_user_who_joins_one_queue_takes_no_last_slot_of_another() -> None:
    queues = (Queue(name="prod", weight=4.0), Queue(name="dev"))
    for num_slots in (2, 3, 8):
        jobs = [make_job("ann/a", 8, queue="prod"), make_job("ann/d", 8, at=1.0, queue="dev")]
        snapshot, decisions = settle(make_snapshot(num_slots, jobs, queues))
        before = wanted(decisions)
        snapshot, decisions = settle(with_job(snapshot, make_job("cleo/c", 8, at=2.0, queue="prod")))
        assert wanted(decisions)["d"] == before["d"] > 0


@st.composite
def one_slot_minimums(draw: st.DrawFn, *, one_job: bool = False) -> Snapshot:
    """Draw jobs with a minimum of 1 in queues of very different weights; ``one_job``: one in each queue."""
    names = [f"q{index}" for index in range(draw(st.integers(1, 6)))]
    weights = st.sampled_from([0.01, 0.5, 1.0, 4.0, 20.0])
    queues = tuple(Queue(name=name, weight=draw(weights), floor=draw(st.sampled_from([0, 0, 0, 2]))) for name in names)
    jobs = []
    for index, name in enumerate(names):
        for number in range(1 if one_job else draw(st.integers(0, 3))):
            user = f"u{index}" if one_job else draw(st.sampled_from(USERS))
            at = 0.0 if one_job else float(draw(st.integers(0, 5)))
            jobs.append(make_job(f"{user}/j{index}-{number}", draw(st.integers(1, 9)), at=at, queue=name))
    return make_snapshot(draw(st.integers(0, 20)), jobs, queues)


@for_any(one_slot_minimums())
def test_no_queue_starves_while_there_is_a_slot_for_each(snapshot: Snapshot) -> None:
    sizes = wanted(decide(snapshot, Rules()))
    by_queue: Counter[str] = Counter()
    for job in snapshot.jobs:
        by_queue[job.queue] += sizes[job.id]
    floors = sum(queue.floor for queue in snapshot.queues if queue.name in by_queue)
    # A floor keeps slots from the other queues, by whichever rule.
    if len(snapshot.slots) >= floors + len(by_queue):
        assert all(by_queue.values())


@for_any(one_slot_minimums(one_job=True))
def test_with_one_job_per_queue_both_ways_are_the_same(snapshot: Snapshot) -> None:
    by_user, by_job = decide(snapshot, Rules()), decide(snapshot, BY_JOB)
    assert wanted(by_user) == wanted(by_job)
    shares = [one.share for one in by_job.decisions]
    assert [one.share for one in by_user.decisions] == pytest.approx(shares)


@for_any(any_snapshots())
def test_with_one_user_both_ways_are_the_same(snapshot: Snapshot) -> None:
    alone = tuple(msgspec.structs.replace(job, owner="ann") for job in snapshot.jobs)
    snapshot = msgspec.structs.replace(snapshot, jobs=alone)
    assert decide(snapshot, Rules()) == decide(snapshot, BY_JOB)


def test_users_take_turns() -> None:
    jobs = [*sweep(3), make_job("ben/b", 9, at=9.0, min_workers=2), make_job("ben/c", 1, at=9.1)]
    claims = sort_snapshot(make_snapshot(4, [*jobs, make_job("cleo/d", 4, at=10.0)]), BY_USER).claims
    assert [claim.job.id for claim in list_turns(claims, {})] == ["s0", "b", "d", "s1", "s2", "c"]
    low = {("all", "ann"): 2}
    assert [claim.job.id for claim in list_turns(claims, low)] == ["s0", "b", "d", "c", "s1", "s2"]


# ---------------------------------------------------------------- nothing gains


@st.composite
def small_minimums(draw: st.DrawFn, *, free: bool = True) -> Snapshot:
    """Draw an idle pool and jobs with a minimum of 1.

    ``free``: every number of workers up to a limit is useful to them.
    """
    jobs = [
        make_job(
            f"{draw(st.sampled_from(USERS))}/j{index}",
            draw(st.integers(1, 12)),
            at=float(draw(st.integers(0, 3))),
            queue=draw(st.sampled_from(QUEUES)),
            priority=draw(st.sampled_from([1000, 5000, 5000, 10_000])),
            num_micro_batches=draw(st.sampled_from([None, None, 2, 5] if free else [None, 4, 8, 12])),
            shares_freely=free,
            used_slot_s=draw(st.sampled_from([0.0, 2.0])),
        )
        for index in range(draw(st.integers(1, 7)))
    ]
    slots = make_slots(draw(st.integers(0, 24)))
    return Snapshot(now=100.0, slots=slots, jobs=tuple(jobs), queues=tuple(draw(any_queues())))


def split(job: JobDemand, sizes: list[int]) -> list[JobDemand]:
    return [
        msgspec.structs.replace(job, id=f"{job.id}-{index}", max_workers=size, submitted_at=job.submitted_at + index)
        for index, size in enumerate(sizes)
    ]


def exchange(snapshot: Snapshot, job: JobDemand, others: list[JobDemand]) -> Snapshot:
    return msgspec.structs.replace(snapshot, jobs=(*(one for one in snapshot.jobs if one is not job), *others))


def cut(draw: st.DrawFn, job: JobDemand) -> list[JobDemand]:
    """Split a job into several that can use as many slots together."""
    most = largest_size(job)
    cuts = sorted(draw(st.sets(st.integers(1, most - 1)))) if most > 1 else []
    return split(job, [high - low for low, high in zip([0, *cuts], [*cuts, most], strict=True)])


def hide(draw: st.DrawFn, job: JobDemand) -> JobDemand:
    """Hide the micro-batches of a job, and perhaps a part of its maximum."""
    return msgspec.structs.replace(job, num_micro_batches=None, max_workers=draw(st.integers(1, job.max_workers)))


def count_useful(snapshot: Snapshot, job: JobDemand, rules: Rules = BY_USER) -> int:
    """Return the slots that help the jobs of a job's user. ``job``: as it is, whatever the snapshot says of it."""
    size = decide(snapshot, rules).of(job.id).wanted
    return total(snapshot, job.owner, rules=rules) - size + fit_size(job, size)


def any_shares_of_users() -> st.SearchStrategy[Rules]:
    return st.sampled_from(
        [
            BY_USER,
            Rules(policy=Policy.THROUGHPUT),
            Rules(ageing_s=10.0, fair_finish_s=60.0),
            Rules(long_job_slot_s=1.0),
        ]
    )


@for_any(small_minimums(), any_shares_of_users(), st.data())
def test_splitting_a_job_gains_no_more_than_a_slot(snapshot: Snapshot, rules: Rules, data: st.DataObject) -> None:
    job = data.draw(st.sampled_from(snapshot.jobs))
    after = exchange(snapshot, job, cut(data.draw, job))
    assert total(after, job.owner, rules=rules) <= total(snapshot, job.owner, rules=rules) + 1


@for_any(small_minimums(free=False), st.data())
def test_splitting_or_hiding_micro_batches_gains_no_more_than_a_useful_step(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    """Where some sizes help no more than smaller ones, the next useful size of a job may be several slots larger."""
    job = data.draw(st.sampled_from(snapshot.jobs))
    step = max((find_largest_step(one) for one in snapshot.jobs), default=1)
    before = total(snapshot, job.owner)
    assert total(exchange(snapshot, job, cut(data.draw, job)), job.owner) <= before + step
    assert count_useful(exchange(snapshot, job, [hide(data.draw, job)]), job) <= before + step


def find_largest_step(job: JobDemand) -> int:
    sizes = [1]
    while (larger := next_size(job, sizes[-1])) is not None:
        sizes.append(larger)
    return max((high - low for low, high in pairwise(sizes)), default=1)


@for_any(small_minimums(), any_speeds(), st.data())
def test_speeds_of_a_job_change_what_no_user_gets(
    snapshot: Snapshot, speeds: tuple[Speed, ...], data: st.DataObject
) -> None:
    job = data.draw(st.sampled_from(snapshot.jobs))
    after = exchange(snapshot, job, [msgspec.structs.replace(job, speeds=speeds)])
    for user, queue in product(USERS, QUEUES):
        before, now = (total(one, user, queue, Rules(policy=Policy.THROUGHPUT)) for one in (snapshot, after))
        assert before == now


@for_any(small_minimums(), st.data())
def test_cloning_gains_no_more_than_a_slot_to_a_user_that_has_its_share(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    job = data.draw(st.sampled_from(snapshot.jobs))
    own = [one for one in snapshot.jobs if (one.owner, one.queue) == (job.owner, job.queue)]
    could_use = sum(min(one.max_workers, one.num_micro_batches or one.max_workers) for one in own)
    before = total(snapshot, job.owner, job.queue)
    clones = split(job, [job.max_workers] * data.draw(st.integers(2, 5)))
    after = total(exchange(snapshot, job, clones), job.owner, job.queue)
    # Below its share it has all that its jobs could use; more jobs use more of it then.
    idle = len(snapshot.slots) == sum(wanted(decide(snapshot, Rules())).values())
    # One user alone gains from no other.
    is_alone = len({one.owner for one in snapshot.jobs}) == 1
    assert after <= before + 1 or before == could_use or not idle or is_alone


@for_any(small_minimums(), any_shares_of_users(), st.data())
def test_hiding_micro_batches_gains_no_more_than_a_useful_slot(
    snapshot: Snapshot, rules: Rules, data: st.DataObject
) -> None:
    job = data.draw(st.sampled_from(snapshot.jobs))
    after = exchange(snapshot, job, [hide(data.draw, job)])
    assert count_useful(after, job, rules) <= total(snapshot, job.owner, rules=rules) + 1


@for_any(small_minimums(), st.data())
def test_a_new_job_raises_the_total_of_no_other_user_of_its_queue(snapshot: Snapshot, data: st.DataObject) -> None:
    new = data.draw(st.sampled_from(snapshot.jobs))
    before = exchange(snapshot, new, [])
    for user in set(USERS) - {new.owner}:
        assert total(snapshot, user, new.queue) <= total(before, user, new.queue) + 1


@for_any(small_minimums())
def test_users_of_a_queue_that_want_more_have_the_same_within_a_slot(snapshot: Snapshot) -> None:
    sizes = wanted(decide(snapshot, Rules()))
    for queue in QUEUES:
        totals: Counter[str] = Counter()
        wants = set()
        for job in snapshot.jobs:
            if job.queue == queue:
                totals[job.owner] += sizes[job.id]
                if sizes[job.id] < min(job.max_workers, job.num_micro_batches or job.max_workers):
                    wants.add(job.owner)
        for user in wants:
            assert totals[user] >= max(totals.values()) - 1


def test_users_do_not_take_the_slots_that_are_left_over_from_one_another_without_end() -> None:
    """Cleo's job cannot run now, so 2 of 6 slots are left over: for one more job of ann, or for one of ben."""
    jobs = [
        make_job("ben/first", 2, min_workers=2),
        make_job("ann/one", 6, min_workers=2),
        make_job("ann/two", 6, min_workers=2),
        make_job("cleo/wide", 6, min_workers=6),
    ]
    snapshot, _ = settle(make_snapshot(6, jobs))
    snapshot, decisions = settle(with_job(snapshot, make_job("ben/last", 1)))
    assert wanted(decisions) == {"first": 2, "one": 2, "two": 2, "wide": 0, "last": 0}


# ---------------------------------------------------------------- reasons


@for_any(small_minimums(), st.sampled_from([0.0, 3.0]))
def test_every_reason_of_users_with_small_minimums_is_true(snapshot: Snapshot, stability_s: float) -> None:
    rules = Rules(stability_s=stability_s)
    Truth(snapshot, rules, decide(snapshot, rules)).check_all()


@for_any(any_snapshots(), st.sampled_from([Rules(policy=Policy.PRIORITY), Rules(policy=Policy.FIFO), BY_JOB]))
def test_other_rules_say_nothing_of_users(snapshot: Snapshot, rules: Rules) -> None:
    assert all(" user" not in decision.reason for decision in decide(snapshot, rules).decisions)


def reasons(num_slots: int, jobs: list[JobDemand], queues: tuple[Queue, ...] = ()) -> dict[str, str]:
    return {decision.job: decision.reason for decision in settle(make_snapshot(num_slots, jobs, queues))[1].decisions}


def test_the_sentences() -> None:
    found = reasons(8, [*sweep(8), make_job("ben/b", 8, at=9.0)])
    assert found["s7"] == "waits: needs 1 slot, but user ann has 4 slots, an equal share with user ben"
    assert found["b"] == "4 of up to 8 slots: an equal share with user ann"
    found = reasons(8, [make_job("ann/a", 8), make_job("ann/b", 8), make_job("ben/c", 2), make_job("cleo/d", 8)])
    assert found["a"] == (
        "2 of up to 8 slots: an equal share with ann/b; user ann has 3 slots, an equal share with user cleo of the "
        "slots that user ben leaves"
    )
    found = reasons(8, [make_job("ann/a", 8, min_workers=6), make_job("ben/b", 8)])
    assert found["a"] == "6 of up to 8 slots: its minimum, next to user ben"
    assert found["b"] == "2 of up to 8 slots: the slots that user ann leaves"
    found = reasons(8, [make_job("ann/a", 8), make_job("ben/b", 8)], (Queue(name="all", ceiling=4),))
    assert (
        found["a"]
        == "2 of up to 8 slots: an equal share with user ben of the 4 slots that queue 'all' can have at most"
    )


def test_slots_that_are_left_over_are_named() -> None:
    jobs = [make_job("ann/a", 9), make_job("ben/b", 8, at=1.0, num_micro_batches=8)]
    assert reasons(10, jobs)["a"] == "6 of up to 9 slots: an equal share with user ben, and 1 more that is left over"
    found = reasons(10, [*jobs, make_job("ann/c", 9, at=2.0)])
    assert found["c"] == (
        "3 of up to 9 slots: an equal share with ann/a; user ann has 6 slots, an equal share with user ben, and 1 more "
        "that is left over"
    )


def test_the_page_says_what_a_user_can_still_gain() -> None:
    page = (Path(__file__).parents[3] / "docs/scheduling.md").read_text()
    found = measure_all()
    for what, text in {
        "minimum": "to its maximum gained its user more than a slot",
        "micro-batches": "hiding the micro-batches gained more than a useful slot",
        "split": "Splitting a job in four gained more than a slot",
    }.items():
        said = re.search(
            text + r" in (\d+) % of the\s+cases(?:, up to (\d+) slots)? \(by job: (\d+) %, up to (\d+)\)", page
        )
        assert said is not None, what
        by_user, by_job = found[what, "user"], found[what, "job"]
        assert (round(by_user.percent), round(by_job.percent)) == (int(said[1]), int(said[3]))
        assert (by_user.most, by_job.most) == (int(said[2] or 0), int(said[4]))
