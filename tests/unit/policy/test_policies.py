"""Known answers: what people expect of fair, priority and fifo, of queues, of static jobs and of useful sizes."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.policy.world import (
    EAGER,
    carry_out,
    counts,
    make_job,
    make_snapshot,
    settle,
    wanted,
    with_job,
    without_job,
)

from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.snapshot import DecisionKind, Queue, Standing

PRIORITY = msgspec.structs.replace(EAGER, policy=Policy.PRIORITY)
FIFO = msgspec.structs.replace(EAGER, policy=Policy.FIFO)


# ---------------------------------------------------------------- fair


def test_two_equal_jobs_get_two_and_two_and_the_other_grows_when_one_ends() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    snapshot, decisions = settle(with_job(snapshot, make_job("bob/b", at=1.0)))
    assert counts(decisions) == {"a": 2, "b": 2}
    _, decisions = settle(without_job(snapshot, "a"))
    assert counts(decisions) == {"b": 4}


def test_two_equal_queues_share_equally_however_many_jobs_they_have() -> None:
    jobs = [make_job(f"anna/a{index}", 300, queue="a") for index in range(1)]
    jobs += [make_job(f"bob/b{index}", 300, queue="b") for index in range(5)]
    sizes = wanted(decide(make_snapshot(300, jobs), Rules()))
    assert sizes == {"a0": 150, "b0": 30, "b1": 30, "b2": 30, "b3": 30, "b4": 30}


def test_weights_are_priorities_over_5000() -> None:
    jobs = [make_job("u/a", 150), make_job("u/b", 150), make_job("u/c", 150, priority=10_000)]
    assert wanted(decide(make_snapshot(150, jobs), Rules())) == {"a": 38, "b": 37, "c": 75}
    jobs = [
        make_job("u/a", 150, priority=2000),
        make_job("u/b", 150, priority=2000),
        make_job("u/c", 150, priority=6000),
    ]
    assert wanted(decide(make_snapshot(150, jobs), Rules())) == {"a": 30, "b": 30, "c": 90}


def test_a_share_is_not_by_demand() -> None:
    assert wanted(decide(make_snapshot(8, [make_job("u/a", 10), make_job("u/b", 30)]), Rules())) == {"a": 4, "b": 4}


def test_minimums_come_first_and_the_rest_is_by_weight() -> None:
    jobs = [make_job("u/a", 10, min_workers=4), make_job("u/b", 10), make_job("u/c", 10, priority=10_000)]
    assert wanted(decide(make_snapshot(10, jobs), Rules())) == {"a": 4, "b": 2, "c": 4}


def test_the_queue_with_less_goes_first_then_priority_then_submission() -> None:
    queued = [make_job(f"u/a{index}", 1, at=float(index), queue="a") for index in range(3)]
    snapshot = make_snapshot(2, [*queued, make_job("u/b", 1, at=9.0, queue="b")])
    assert wanted(decide(snapshot, Rules())) == {"a0": 1, "a1": 0, "a2": 0, "b": 1}
    urgent = make_snapshot(2, [*queued, make_job("u/a9", 1, at=9.0, queue="a", priority=5001)])
    assert wanted(decide(urgent, Rules())) == {"a0": 1, "a1": 0, "a2": 0, "a9": 1}


def test_with_ageing_priority_is_a_head_start() -> None:
    old, new = make_job("u/old", 1, at=0.0), make_job("u/new", 1, at=50.0, priority=10_000)
    assert wanted(decide(make_snapshot(1, [old, new]), Rules())) == {"old": 0, "new": 1}
    assert wanted(decide(make_snapshot(1, [old, new]), Rules(ageing_s=40.0))) == {"old": 1, "new": 0}
    assert wanted(decide(make_snapshot(1, [old, new]), Rules(ageing_s=60.0))) == {"old": 0, "new": 1}


# ---------------------------------------------------------------- queues


def test_an_unused_floor_is_lent_and_taken_back_by_shrinking() -> None:
    queues = [Queue(name="a", floor=6), Queue(name="b")]
    snapshot, decisions = settle(make_snapshot(8, [make_job("bob/b", 8, queue="b")], queues))
    assert counts(decisions) == {"b": 8}
    snapshot = with_job(snapshot, make_job("anna/a", 8, at=1.0, queue="a"))
    decisions = decide(snapshot, EAGER)
    assert decisions.of("b").kind is DecisionKind.SHRINK
    _, decisions = settle(snapshot)
    assert counts(decisions) == {"b": 2, "a": 6}


@pytest.mark.parametrize("policy", list(Policy))
def test_a_floor_is_kept_from_all_other_queues(policy: Policy) -> None:
    jobs = [make_job("u/b", 8, queue="b", priority=9000), make_job("u/a", 8, at=1.0, queue="a")]
    sizes = wanted(decide(make_snapshot(8, jobs, [Queue(name="a", floor=3)]), Rules(policy=policy)))
    assert sizes["a"] == (4 if policy.is_fair else 3)
    assert sum(sizes.values()) == 8


@pytest.mark.parametrize("policy", list(Policy))
def test_a_floor_that_does_not_fit_a_minimum_is_lent(policy: Policy) -> None:
    jobs = [make_job("u/b", 8, queue="b", min_workers=6), make_job("u/a", 4, at=1.0, queue="a", elastic=False)]
    sizes = wanted(decide(make_snapshot(8, jobs, [Queue(name="a", floor=2)]), Rules(policy=policy)))
    assert sizes == {"b": 8, "a": 0}


@pytest.mark.parametrize("policy", list(Policy))
def test_a_ceiling_holds_though_slots_are_idle(policy: Policy) -> None:
    jobs = [make_job("u/a1", 8, queue="a"), make_job("u/a2", 8, at=1.0, queue="a")]
    sizes = wanted(decide(make_snapshot(8, jobs, [Queue(name="a", ceiling=5)]), Rules(policy=policy)))
    assert sum(sizes.values()) == 5


def test_a_lowered_ceiling_takes_slots_away() -> None:
    snapshot, _ = settle(make_snapshot(8, [make_job("u/a", 8, queue="a")]))
    _, decisions = settle(msgspec.structs.replace(snapshot, queues=(Queue(name="a", ceiling=3),)))
    assert counts(decisions) == {"a": 3}


def test_a_queue_does_not_lose_a_tie_while_its_slots_change_hands_inside() -> None:
    """Both queues may have 2 or 3 of 5 slots; the one that has 3 keeps them while one of its jobs makes room."""
    first = make_snapshot(5, [make_job("u/b1", 5, queue="b")])
    snapshot, _ = settle(first)
    snapshot, decisions = settle(with_job(snapshot, make_job("u/a1", 5, at=1.0, queue="a")))
    assert counts(decisions) == {"b1": 3, "a1": 2}
    snapshot = with_job(snapshot, make_job("u/b2", 5, at=2.0, queue="b"))
    for _ in range(4):
        decisions = decide(snapshot, EAGER)
        assert wanted(decisions) == {"b1": 2, "a1": 2, "b2": 1}
        snapshot = carry_out(snapshot, decisions)
    assert counts(decisions) == {"b1": 2, "a1": 2, "b2": 1}


def test_floors_of_a_pool_that_shrank_are_shared_out() -> None:
    queues = [Queue(name="a", floor=9), Queue(name="b", floor=3)]
    jobs = [make_job("u/a", 9, queue="a"), make_job("u/b", 9, queue="b"), make_job("u/c", 9, queue="c")]
    assert wanted(decide(make_snapshot(4, jobs, queues), Rules())) == {"a": 3, "b": 1, "c": 0}


# ---------------------------------------------------------------- priority


def test_the_higher_priority_has_its_maximum_and_equals_share() -> None:
    jobs = [make_job("u/low", 8), make_job("u/b", 3, at=1.0, priority=9000), make_job("u/c", 4, at=2.0, priority=9000)]
    assert wanted(decide(make_snapshot(8, jobs), PRIORITY)) == {"low": 1, "b": 3, "c": 4}
    assert wanted(decide(make_snapshot(5, jobs), PRIORITY)) == {"low": 0, "b": 3, "c": 2}


def test_the_lower_priority_shrinks_first_and_pauses_only_when_its_minimum_does_not_fit() -> None:
    snapshot, _ = settle(make_snapshot(8, [make_job("u/low", 8, min_workers=2)]), PRIORITY)
    snapshot, decisions = settle(with_job(snapshot, make_job("u/mid", 6, at=1.0, priority=6000)), PRIORITY)
    assert counts(decisions) == {"low": 2, "mid": 6}
    snapshot, decisions = settle(with_job(snapshot, make_job("u/high", 1, at=2.0, priority=9000)), PRIORITY)
    assert counts(decisions) == {"low": 0, "mid": 6, "high": 1}
    paused = next(job for job in snapshot.jobs if job.id == "low")
    assert paused.standing is Standing.PAUSED
    # It resumes by itself.
    _, decisions = settle(without_job(snapshot, "mid"), PRIORITY)
    assert counts(decisions) == {"low": 7, "high": 1}


def test_raising_a_priority_moves_slots() -> None:
    snapshot, decisions = settle(make_snapshot(4, [make_job("u/a"), make_job("u/b", at=1.0)]), PRIORITY)
    assert counts(decisions) == {"a": 2, "b": 2}
    raised = tuple(msgspec.structs.replace(job, priority=7000 if job.id == "b" else 5000) for job in snapshot.jobs)
    _, decisions = settle(msgspec.structs.replace(snapshot, jobs=raised), PRIORITY)
    assert counts(decisions) == {"a": 0, "b": 4}


# ---------------------------------------------------------------- fifo


def test_fifo_gives_each_its_maximum_in_order_of_submission() -> None:
    jobs = [
        make_job("u/third", 4, at=3.0, priority=9000),
        make_job("u/first", 3, at=1.0),
        make_job("u/second", 4, at=2.0),
    ]
    assert wanted(decide(make_snapshot(8, jobs), FIFO)) == {"first": 3, "second": 4, "third": 1}


def test_fifo_starts_those_behind_one_that_does_not_fit_and_pauses_them_when_it_does() -> None:
    jobs = [make_job("u/first", 3), make_job("u/wide", 4, at=1.0, elastic=False), make_job("u/small", 2, at=2.0)]
    snapshot, decisions = settle(make_snapshot(4, jobs), FIFO)
    assert counts(decisions) == {"first": 3, "wide": 0, "small": 1}
    _, decisions = settle(without_job(snapshot, "first"), FIFO)
    assert counts(decisions) == {"wide": 4, "small": 0}


# ---------------------------------------------------------------- static jobs


def test_a_static_job_drains_elastic_ones() -> None:
    snapshot, _ = settle(make_snapshot(8, [make_job("u/a", 8), make_job("u/b", 8, at=1.0)]))
    snapshot = with_job(snapshot, make_job("u/wide", 6, at=2.0, elastic=False))
    decisions = decide(snapshot, EAGER)
    assert counts(decisions) == {"a": 1, "b": 1, "wide": 0}
    _, decisions = settle(snapshot)
    assert counts(decisions) == {"a": 1, "b": 1, "wide": 6}


@pytest.mark.parametrize("reserve_after_s", [None, 0.0])
@pytest.mark.parametrize("policy", list(Policy))
def test_a_stream_of_small_jobs_does_not_starve_a_static_one(policy: Policy, reserve_after_s: float | None) -> None:
    rules = msgspec.structs.replace(EAGER, policy=policy, reserve_after_s=reserve_after_s)
    snapshot, _ = settle(make_snapshot(4, [make_job("u/s0", 1), make_job("u/s1", 1)]), rules)
    snapshot = with_job(snapshot, make_job("u/wide", 4, at=0.5, elastic=False))
    # Each small one ends after three rounds, and a new one comes in every round.
    began = {"s0": 0, "s1": 0}
    for number in range(2, 20):
        snapshot = with_job(snapshot, make_job(f"u/s{number}", 1, at=float(number)))
        decisions = decide(snapshot, rules)
        if decisions.of("wide").slots:
            break
        snapshot = carry_out(snapshot, decisions)
        for decision in decisions.decisions:
            if decision.slots:
                began.setdefault(decision.job, number)
        for name in [name for name, start in began.items() if number - start >= 3]:
            del began[name]
            snapshot = without_job(snapshot, name)
    assert len(decisions.of("wide").slots) == 4
    assert number <= 8


def test_behind_a_reservation_no_job_is_started_and_none_stopped() -> None:
    rules = msgspec.structs.replace(EAGER, reserve_after_s=60.0)
    running = [make_job("u/a", 1), make_job("u/late", 1, at=80.0)]
    snapshot, _ = settle(make_snapshot(4, running, now=100.0), rules)
    wide = make_job("u/wide", 4, at=50.0, elastic=False)
    new = make_job("u/new", 1, at=90.0)
    young = msgspec.structs.replace(with_job(snapshot, wide, new), now=105.0)
    decisions = decide(young, rules)
    assert wanted(decisions) == {"a": 1, "wide": 0, "late": 1, "new": 1}
    assert decisions.decide_again_at == 110.0
    old = msgspec.structs.replace(young, now=110.0)
    assert wanted(decide(old, rules)) == {"a": 1, "wide": 0, "late": 1, "new": 0}


# ---------------------------------------------------------------- useful sizes


def test_a_slot_that_does_not_help_goes_to_another_job() -> None:
    jobs = [make_job("u/a", 4, num_micro_batches=4), make_job("u/b", 4, at=1.0)]
    # Equal shares of 6 would be 3 and 3, but 4 micro-batches are no faster on 3 workers than on 2.
    assert wanted(decide(make_snapshot(6, jobs), Rules())) == {"a": 2, "b": 4}
    assert wanted(decide(make_snapshot(3, jobs[:1]), Rules())) == {"a": 2}
    assert wanted(decide(make_snapshot(4, jobs[:1]), Rules())) == {"a": 4}


def test_a_slot_that_does_not_help_is_given_back() -> None:
    snapshot, decisions = settle(make_snapshot(3, [make_job("u/a", 4)]))
    assert counts(decisions) == {"a": 3}
    told = msgspec.structs.replace(snapshot.jobs[0], num_micro_batches=4)
    _, decisions = settle(msgspec.structs.replace(snapshot, jobs=(told,)))
    assert counts(decisions) == {"a": 2}


# ---------------------------------------------------------------- what a user changes


def test_a_lowered_maximum_is_obeyed_at_once() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("u/a")]))
    lowered = msgspec.structs.replace(snapshot.jobs[0], max_workers=1)
    decisions = decide(msgspec.structs.replace(snapshot, jobs=(lowered,)), Rules())
    assert counts(decisions) == {"a": 1}


def test_a_job_that_no_pool_could_run_stops_no_other_job() -> None:
    jobs = [make_job("u/huge", 9, elastic=False), make_job("u/a", at=1.0)]
    assert wanted(decide(make_snapshot(4, jobs), Rules(reserve_after_s=0.0))) == {"huge": 0, "a": 4}


def test_a_job_that_was_not_in_the_snapshot_has_no_decision() -> None:
    with pytest.raises(KeyError):
        decide(make_snapshot(4, [make_job("u/a")]), Rules()).of("b")
