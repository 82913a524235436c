"""Long jobs are served one after the other, if the setting says so, and the reasons name the one that comes first."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.policy.world import EAGER, carry_out, make_job, make_snapshot, make_speed
from tests.unit.policy.worlds import any_snapshots, for_any

from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.snapshot import Decisions, JobDemand, Snapshot

LIMIT = 28_800.0
LONG = msgspec.structs.replace(EAGER, long_job_slot_s=LIMIT)
BY_JOB = msgspec.structs.replace(LONG, fair_by=FairBy.JOB)


def long_job(title: str, at: float, most: int = 8, used: float = LIMIT) -> JobDemand:
    return msgspec.structs.replace(make_job(title, most, at=at), used_slot_s=used)


def sizes(decisions: Decisions) -> dict[str, int]:
    return {decision.job: decision.wanted for decision in decisions.decisions}


def test_the_first_long_job_has_most_and_the_others_follow_in_order() -> None:
    jobs = [long_job("ann/first", 0.0, 12), long_job("ann/second", 1.0, 12), long_job("ann/third", 2.0, 12)]
    snapshot = make_snapshot(24, [*jobs, make_job("ann/short", 6, at=3.0)])
    assert sizes(decide(snapshot, EAGER)) == {"first": 6, "second": 6, "third": 6, "short": 6}
    decisions = decide(snapshot, LONG)
    assert sizes(decisions) == {"first": 12, "second": 5, "third": 1, "short": 6}
    assert decisions.of("second").reason == (
        "starts with 5 of up to 12 slots: it is a long job that comes after ann/first"
    )
    assert decisions.of("second").because == ("first",)


def test_a_short_job_shares_with_the_first_long_one_alike() -> None:
    snapshot = make_snapshot(
        9, [long_job("ann/first", 0.0), long_job("ann/second", 1.0), make_job("ann/short", 8, at=2)]
    )
    decisions = decide(snapshot, LONG)
    assert sizes(decisions) == {"first": 4, "second": 1, "short": 4}
    assert decisions.of("short").reason == (
        "starts with 4 of up to 8 slots: a share by weight (later long jobs weigh less) with ann/first and ann/second"
    )


def test_a_late_long_job_does_not_become_the_first_by_being_behind() -> None:
    rules = msgspec.structs.replace(LONG, fair_finish_s=20.0)
    first = msgspec.structs.replace(long_job("ann/first", 0.0, 8), served_slot_s=1e4, due_slot_s=1e4)
    late = msgspec.structs.replace(long_job("ann/late", 1.0, 8), served_slot_s=0.0, due_slot_s=1e4, behind=3)
    decisions = decide(make_snapshot(8, [first, late]), rules)
    assert sizes(decisions) == {"first": 7, "late": 1}
    assert decisions.of("late").due < 1.0, "what is due to it follows its weight"


def test_the_priority_comes_before_the_submission() -> None:
    high = msgspec.structs.replace(long_job("ann/high", 1.0), priority=6000)
    assert sizes(decide(make_snapshot(8, [long_job("ann/old", 0.0), high]), LONG)) == {"old": 1, "high": 7}


def test_it_changes_nothing_between_users_unless_jobs_share_directly() -> None:
    snapshot = make_snapshot(8, [long_job("ann/old", 0.0), long_job("ben/new", 1.0)])
    assert sizes(decide(snapshot, LONG)) == {"old": 4, "new": 4}
    assert sizes(decide(snapshot, BY_JOB)) == {"old": 7, "new": 1}


def test_a_job_that_becomes_long_second_shrinks_and_reads_why() -> None:
    snapshot = make_snapshot(8, [long_job("ann/a", 0.0), long_job("ann/b", 1.0, used=LIMIT - 1)])
    assert sizes(decide(snapshot, LONG)) == {"a": 4, "b": 4}
    snapshot = carry_out(snapshot, decide(snapshot, LONG))
    jobs = tuple(msgspec.structs.replace(job, used_slot_s=LIMIT) for job in snapshot.jobs)
    decisions = decide(msgspec.structs.replace(snapshot, jobs=jobs), LONG)
    assert decisions.of("b").reason == (
        "shrinks 4 → 1: ann/a grows to 7 and goes first, because ann/b is a long job that comes after ann/a"
    )


def test_throughput_weighs_long_jobs_too() -> None:
    rules = msgspec.structs.replace(LONG, policy=Policy.THROUGHPUT)
    curve = tuple(make_speed(number, 1 / (1 / number + 0.01)) for number in (1, 2, 4))
    jobs = [msgspec.structs.replace(long_job(f"ann/{name}", at), speeds=curve) for name, at in (("a", 0.0), ("b", 1.0))]
    assert sizes(decide(make_snapshot(8, jobs), rules)) == {"a": 7, "b": 1}


@pytest.mark.parametrize("policy", [Policy.PRIORITY, Policy.FIFO])
def test_strict_policies_do_not_look_at_it(policy: Policy) -> None:
    snapshot = make_snapshot(12, [long_job("ann/a", 0.0), long_job("ann/b", 1.0)])
    rules = msgspec.structs.replace(EAGER, policy=policy)
    assert decide(snapshot, msgspec.structs.replace(rules, long_job_slot_s=LIMIT)) == decide(snapshot, rules)


@for_any(any_snapshots())
def test_without_two_long_jobs_that_share_nothing_changes(snapshot: Snapshot) -> None:
    seen: set[str] = set()
    jobs = []
    for job in snapshot.jobs:
        jobs.append(msgspec.structs.replace(job, used_slot_s=0.0 if job.queue in seen else job.used_slot_s))
        seen.add(job.queue)
    snapshot = msgspec.structs.replace(snapshot, jobs=tuple(jobs))
    rules = Rules(fair_by=FairBy.JOB)
    assert decide(snapshot, msgspec.structs.replace(rules, long_job_slot_s=1e4)) == decide(snapshot, rules)
