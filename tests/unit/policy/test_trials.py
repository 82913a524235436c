"""Trials under the policy throughput: jobs measure a second number of workers, once, and in bounds."""

from __future__ import annotations

import random
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.test_throughput import BY_JOB, RULES, curve, sizes
from tests.unit.policy.world import carry_out, make_job, make_snapshot, make_speed, settle
from tests.unit.policy.worlds import any_snapshots, for_any

from legato.policy import trials
from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.sizes import largest_size, smallest_size
from legato.policy.snapshot import Decisions, Snapshot
from legato.policy.speeds import find_slowdown

REAL = Rules(policy=Policy.THROUGHPUT)
MEASURED_S = 60.0


def told(decisions: Decisions) -> dict[str, str]:
    return {decision.job: decision.reason for decision in decisions.decisions}


def measure(snapshot: Snapshot, ratios: Mapping[str, float], noise: random.Random | None = None) -> Snapshot:
    """Let each job measure its speed with the number of workers that it has."""
    jobs = []
    for job in snapshot.jobs:
        held = sum(slot.holder == job.id and not slot.leaving for slot in snapshot.slots)
        if held:
            factor = noise.uniform(0.998, 1.002) if noise is not None else 1.0
            now = make_speed(held, factor / (1 / held + ratios[job.id]))
            speeds = (
                *(one for one in job.speeds if one.num_workers != held),
                msgspec.structs.replace(now, at=snapshot.now),
            )
            slowdown = find_slowdown(speeds, job.min_workers, snapshot.now)
            jobs.append(msgspec.structs.replace(job, speeds=speeds, slowdown=slowdown))
        else:
            jobs.append(job)
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


def test_two_jobs_that_share_equally_measure_a_second_number_each_and_then_share_by_speed() -> None:
    ratios = {"steep": 0.0, "flat": 1.0}
    snapshot, _ = settle(make_snapshot(8, [make_job("ann/steep", 8), make_job("ann/flat", 8, at=1.0)]), RULES)
    snapshot = measure(snapshot, ratios)
    decisions = decide(snapshot, RULES)
    assert told(decisions) == {
        "steep": "4 of up to 8 slots: will grow to 5 when ann/flat has freed the slots",
        "flat": "shrinks 4 → 3: it tries 3 workers to measure its speed; ann/steep grows to 5 and measures its speed "
        "with that many workers",
    }
    snapshot = carry_out(snapshot, decisions)
    snapshot = carry_out(snapshot, decide(snapshot, RULES))
    decisions = decide(snapshot, RULES)
    assert told(decisions)["steep"] == "grows 4 → 5: it tries 5 workers to measure its speed"
    snapshot, decisions = settle(snapshot, RULES)
    assert told(decisions) == {
        "steep": "5 of up to 8 slots: it tries 5 workers to measure its speed",
        "flat": "3 of up to 8 slots: it tries 3 workers to measure its speed",
    }
    snapshot = measure(snapshot, ratios)
    snapshot, decisions = settle(snapshot, RULES)
    assert sizes(decisions) == {"steep": 6, "flat": 2}
    assert {job.num_trials for job in snapshot.jobs} == {1}
    snapshot, decisions = settle(measure(snapshot, ratios), RULES)
    assert sizes(decisions) == {"steep": 6, "flat": 2}
    assert not any(decision.is_trial for decision in decisions.decisions)


@pytest.mark.parametrize(
    ("num_slots", "priority", "want"),
    [(8, 10_000, (5, 3)), (32, 10_000, (20, 12)), (9, 10_000, (6, 3)), (24, 4000, (16, 8)), (32, 1000, (28, 4))],
)
def test_a_trial_lasts_until_both_have_measured(num_slots: int, priority: int, want: tuple[int, int]) -> None:
    """The job with more workers lends some if a quarter of its own would be more than half of the other's."""
    jobs = [make_job("ann/a", 32, priority=10_000), make_job("ann/b", 32, at=1.0, priority=priority)]
    snapshot, _ = settle(make_snapshot(num_slots, jobs), RULES)
    snapshot, decisions = settle(measure(snapshot, {"a": 0.0, "b": 0.0}), RULES)
    assert tuple(sizes(decisions).values()) == want
    for _ in range(5):
        decisions = decide(snapshot, RULES)
        assert tuple(sizes(decisions).values()) == want
        assert {job.num_trials for job in snapshot.jobs} == {1}
        snapshot = carry_out(snapshot, decisions, after_s=3.0)


def test_a_trial_goes_on_when_another_job_could_begin_one() -> None:
    ratios = {"j0": 0.0, "j1": 0.0, "j2": 0.0, "j3": 0.0}
    jobs = [make_job(f"ann/{name}", 16, at=float(at)) for at, name in enumerate(ratios)]
    snapshot, _ = settle(make_snapshot(16, jobs), RULES)
    measured = measure(snapshot, ratios)
    late = {"j0", "j2"}
    jobs = [old if old.id in late else new for old, new in zip(snapshot.jobs, measured.jobs, strict=True)]
    snapshot, decisions = settle(msgspec.structs.replace(snapshot, jobs=tuple(jobs)), RULES)
    assert sizes(decisions) == {"j0": 4, "j1": 5, "j2": 4, "j3": 3}
    jobs = [msgspec.structs.replace(job, speeds=curve(0.0, 4)) if job.id in late else job for job in snapshot.jobs]
    assert sizes(decide(msgspec.structs.replace(snapshot, jobs=tuple(jobs)), RULES)) == sizes(decisions)


def test_a_job_tries_fewer_workers_if_the_others_have_measured_and_can_use_its_slots() -> None:
    known = make_job("ann/known", 8, speeds=curve(0.25, 1, 2, 4))
    snapshot, decisions = settle(make_snapshot(8, [known, make_job("ann/new", 8, at=1.0)]), RULES)
    assert sizes(decisions) == {"known": 3, "new": 5}
    ratios = {"known": 0.25, "new": 1.0}
    snapshot, decisions = settle(measure(snapshot, ratios), RULES)
    assert sizes(decisions) == {"known": 4, "new": 4}
    assert told(decisions)["new"] == "4 of up to 8 slots: it tries 4 workers to measure its speed"
    _, decisions = settle(measure(snapshot, ratios), RULES)
    assert sizes(decisions)["new"] < 4


@pytest.mark.parametrize("job", [make_job("ben/b", 8), make_job("ann/b", 4, elastic=False), make_job("ann/b", 1)])
def test_nothing_is_tried_where_no_job_of_the_user_could_use_the_slots(job: object) -> None:
    snapshot, before = settle(make_snapshot(8, [make_job("ann/a", 8), job]), RULES)  # type: ignore[list-item]
    snapshot = measure(snapshot, {"a": 0.5, "b": 0.5})
    assert sizes(decide(snapshot, RULES)) == sizes(before)


def test_an_interrupted_trial_is_repeated_a_few_times_only() -> None:
    snapshot, _ = settle(make_snapshot(8, [make_job("ann/a", 8), make_job("ann/b", 8, at=1.0)]), RULES)
    snapshot = measure(snapshot, {"a": 0.0, "b": 0.0})
    began = 0
    for _ in range(6):
        snapshot, decisions = settle(snapshot, RULES)
        began += sizes(decisions) == {"a": 5, "b": 3}
        visitor = make_job("ann/visitor", 8, at=9.0)
        both = msgspec.structs.replace(snapshot, jobs=(*snapshot.jobs, visitor))
        both, decisions = settle(both, RULES)
        assert not decisions.of("a").is_trial
        slots = tuple(
            msgspec.structs.replace(slot, holder=None) if slot.holder == "visitor" else slot for slot in both.slots
        )
        jobs = tuple(job for job in both.jobs if job.id != "visitor")
        snapshot = msgspec.structs.replace(both, slots=slots, jobs=jobs)
    assert began == trials.MAX_TRIALS


@for_any(any_snapshots(), st.sampled_from([RULES, BY_JOB, REAL]), st.data())
def test_a_trial_is_small_and_moves_only_slots_of_jobs_that_share_by_speed(
    snapshot: Snapshot, rules: Rules, data: st.DataObject
) -> None:
    jobs = tuple(
        msgspec.structs.replace(job, num_trials=data.draw(st.integers(0, trials.MAX_TRIALS)))
        if job.speeds or data.draw(st.booleans())
        else _with_own_speed(snapshot, job.id)
        for job in snapshot.jobs
    )
    snapshot = msgspec.structs.replace(snapshot, jobs=jobs)
    found = decide(snapshot, rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, "MAX_TRIALS", -1)
        before = decide(snapshot, rules)
    groups: dict[tuple[str, str], list[str]] = {}
    by_user = rules is not BY_JOB and len({job.owner for job in snapshot.jobs}) > 1
    for job in snapshot.jobs:
        groups.setdefault((job.queue, job.owner if by_user else ""), []).append(job.id)
        decision, usual = found.of(job.id), before.of(job.id)
        assert decision.num_trials <= max(job.num_trials + decision.is_trial, job.num_trials)
        if not decision.is_trial:
            continue
        assert job.num_trials < trials.MAX_TRIALS
        assert job.elastic
        assert smallest_size(job) <= decision.wanted <= largest_size(job)
        assert usual.wanted in {speed.num_workers for speed in job.speeds}
        assert decision.wanted not in {speed.num_workers for speed in job.speeds}
        assert decision.wanted * 2 >= usual.wanted
    for group in groups.values():
        assert sum(found.of(job).wanted for job in group) == sum(before.of(job).wanted for job in group)
        assert sum(found.of(job).is_trial for job in group) <= 2
        if not any(found.of(job).is_trial for job in group):
            assert [found.of(job).wanted for job in group] == [before.of(job).wanted for job in group]


def _with_own_speed(snapshot: Snapshot, name: str) -> object:
    job = next(job for job in snapshot.jobs if job.id == name)
    held = sum(slot.holder == name and not slot.leaving for slot in snapshot.slots)
    return msgspec.structs.replace(job, speeds=(make_speed(held, 1.0),)) if held else job


@for_any(
    st.lists(st.tuples(st.sampled_from([0.0, 0.02, 0.1, 0.5, 2.0]), st.integers(1, 12)), min_size=2, max_size=5),
    st.integers(4, 24),
    st.integers(0, 1000),
)
def test_no_job_goes_back_and_forth_though_measurements_are_noisy(
    drawn: list[tuple[float, int]], num_slots: int, seed: int
) -> None:
    ratios = {f"j{index}": ratio for index, (ratio, _) in enumerate(drawn)}
    jobs = [make_job(f"ann/j{index}", most, at=float(index)) for index, (_, most) in enumerate(drawn)]
    snapshot = make_snapshot(num_slots, jobs)
    noise = random.Random(seed)
    history = []
    for _ in range(16):
        for _ in range(4):  # a minute with decisions
            decisions = decide(snapshot, REAL)
            snapshot = carry_out(snapshot, decisions, after_s=MEASURED_S / 4)
        history.append(sizes(decisions))
        snapshot = measure(snapshot, ratios, noise)
    assert all(job.num_trials <= 1 for job in snapshot.jobs)
    for job in ratios:
        had = [found[job] for found in history]
        num_changes = sum(before != after for before, after in zip(had, had[1:], strict=False))
        assert num_changes <= 8, had
    assert all(found == history[-1] for found in history[-6:]), history
