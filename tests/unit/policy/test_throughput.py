"""The policy throughput: each slot goes where it makes training faster by most, and the reason has true numbers."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.truth import Truth
from tests.unit.policy.world import EAGER, carry_out, make_job, make_snapshot, make_speed
from tests.unit.policy.worlds import any_snapshots, for_any

from legato.core.speed import Speed
from legato.policy.curves import find_gain, find_ratio
from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import largest_size, next_size
from legato.policy.snapshot import Decisions, Snapshot

RULES = msgspec.structs.replace(EAGER, policy=Policy.THROUGHPUT)
BY_JOB = msgspec.structs.replace(RULES, fair_by=FairBy.JOB)


def curve(ratio: float, *numbers: int, noise: float = 1.0) -> tuple[Speed, ...]:
    """Return the measured speeds of a job whose step takes 1 / W + ratio."""
    return tuple(make_speed(number, noise / (1 / number + ratio)) for number in numbers)


def sizes(decisions: Decisions) -> dict[str, int]:
    return {decision.job: decision.wanted for decision in decisions.decisions}


def test_a_slot_goes_to_the_job_of_the_user_that_gains_more_and_other_users_notice_nothing() -> None:
    flat = make_job("ann/flat", 8, speeds=curve(0.25, 1, 2, 4))
    jobs = [flat, make_job("ann/steep", 8, at=1.0), make_job("ben/other", 8, at=2.0)]
    snapshot = make_snapshot(12, jobs)
    assert sizes(decide(snapshot, EAGER)) == {"flat": 3, "steep": 3, "other": 6}
    decisions = decide(snapshot, RULES)
    assert sizes(decisions) == {"flat": 2, "steep": 4, "other": 6}
    assert decisions.of("flat").reason == (
        "starts with 2 of up to 8 slots: one more worker would make it 29 % faster; ann/steep gains at most 33 % from "
        "its last one; user ann has 6 slots, an equal share with user ben"
    )
    assert decisions.of("flat").because[0] == "steep"
    everywhere = decide(snapshot, BY_JOB)
    assert sizes(everywhere) == {"flat": 3, "steep": 5, "other": 4}


def test_a_priority_weighs_what_a_job_gains() -> None:
    jobs = [make_job("ann/low", 8, priority=5000), make_job("ann/high", 8, priority=10_000)]
    found = decide(make_snapshot(9, jobs), RULES)
    assert sizes(found) == {"low": 3, "high": 6}
    assert "ann/high, with its priority 10000, gains at most 20 % from its last one" in found.of("low").reason


def test_a_job_that_loses_a_slot_reads_why() -> None:
    snapshot = make_snapshot(6, [make_job("ann/flat", 6, speeds=curve(0.5, 1, 2, 4, 6))])
    snapshot = carry_out(snapshot, decide(snapshot, RULES))
    steep = make_job("ann/steep", 6, at=101.0)
    decisions = decide(msgspec.structs.replace(snapshot, jobs=(*snapshot.jobs, steep)), RULES)
    assert decisions.of("flat").reason == "shrinks 6 → 2: ann/steep was submitted and has a share by speed"


@pytest.mark.parametrize("ratio", [0.0, 0.02, 0.25, 1.0])
def test_the_ratio_is_that_of_the_curve_though_measurements_are_noisy(ratio: float) -> None:
    speeds = (*curve(ratio, 1, 4, noise=1.003), *curve(ratio, 2, 8, noise=0.997))
    found = find_ratio(make_job("a/j", 8, speeds=speeds))
    assert found == pytest.approx(ratio, rel=0.2, abs=0.006)
    rounds = tuple(make_speed(number, 1 / (1 / useful + ratio)) for number, useful in [(1, 1), (3, 2), (4, 4)])
    assert find_ratio(make_job("a/j", 4, num_micro_batches=4, speeds=rounds)) == pytest.approx(ratio, rel=0.1)


def test_one_measured_number_of_workers_says_nothing() -> None:
    assert find_ratio(make_job("a/j", 8, speeds=curve(1.0, 4))) == 0.0
    assert find_ratio(make_job("a/j", 8, speeds=(make_speed(4, 1.0), make_speed(4, 2.0, num_nodes=2)))) == 0.0


@for_any(st.lists(st.tuples(st.integers(1, 64), st.floats(1e-6, 1e9)), max_size=8), st.none() | st.integers(1, 64))
def test_any_speeds_give_a_gain_that_is_finite(found: list[tuple[int, float]], total: int | None) -> None:
    speeds = tuple(make_speed(number, speed) for number, speed in found)
    job = make_job("a/j", 64, num_micro_batches=total, speeds=speeds)
    ratio = find_ratio(job)
    assert math.isfinite(ratio)
    assert ratio >= 0
    for size in range(1, largest_size(job)):
        larger = next_size(job, size)
        assert larger is None or 1 <= find_gain(job, ratio, size, larger) <= larger + 1e-9


@for_any(any_snapshots(), st.sampled_from([RULES, BY_JOB]))
def test_the_numbers_of_a_reason_are_those_of_the_jobs(snapshot: Snapshot, rules: Rules) -> None:
    Truth(snapshot, rules, decide(snapshot, rules)).check_all()


@for_any(st.lists(st.tuples(st.sampled_from([0.0, 0.05, 0.3]), st.integers(1, 8)), min_size=1, max_size=5), st.data())
def test_noise_moves_no_slots(drawn: list[tuple[float, int]], data: st.DataObject) -> None:
    jobs = [
        make_job(f"ann/j{index}", most, at=float(index), speeds=curve(ratio, 1, 2, 4))
        for index, (ratio, most) in enumerate(drawn)
    ]
    snapshot = make_snapshot(8, jobs)
    for _ in range(4):
        snapshot = carry_out(snapshot, decide(snapshot, RULES))
    before = sizes(decide(snapshot, RULES))
    noisy = tuple(
        msgspec.structs.replace(
            job,
            speeds=tuple(
                msgspec.structs.replace(one, samples_per_s=one.samples_per_s * data.draw(st.floats(0.998, 1.002)))
                for one in job.speeds
            ),
        )
        for job in snapshot.jobs
    )
    assert sizes(decide(msgspec.structs.replace(snapshot, jobs=noisy), RULES)) == before


def test_jobs_that_have_their_minimums_only_are_named_without_a_comparison() -> None:
    jobs = [make_job("ann/big", 8, speeds=curve(0.0, 1, 2)), make_job("ann/flat", 8, speeds=curve(1.0, 1, 2))]
    found = decide(make_snapshot(6, jobs), RULES)
    assert sizes(found) == {"big": 4, "flat": 2}
    jobs[1] = make_job("ann/flat", 8, speeds=curve(8.0, 1, 2))
    found = decide(make_snapshot(6, jobs), RULES)
    assert sizes(found) == {"big": 5, "flat": 1}
    assert found.of("big").reason == "starts with 5 of up to 8 slots: a share by speed with ann/flat"


def test_a_useful_size_behind_a_less_useful_one_is_seen() -> None:
    """With 6 micro-batches, 2 → 3 workers make 1.5 times as fast, 3 → 6 twice as fast: 2 → 6 is worth its slots."""
    jobs = [make_job("ann/steps", 6, num_micro_batches=6), make_job("ann/flat", 8, speeds=curve(0.25, 1, 2, 4, 8))]
    found = decide(make_snapshot(9, jobs), RULES)
    assert sizes(found) == {"steps": 6, "flat": 3}
