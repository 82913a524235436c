"""Trials under the policy throughput: jobs measure a second number of workers, once, and in bounds."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.tiers import examples
from tests.unit.policy.test_throughput import BY_JOB, RULES, curve, sizes
from tests.unit.policy.world import EAGER, carry_out, make_job, make_snapshot, make_speed, settle, without_job
from tests.unit.policy.worlds import any_snapshots, for_any, mixed_snapshots

from legato.policy import trials
from legato.policy.kinds import divide
from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.scarce import decide_all
from legato.policy.sizes import largest_size, smallest_size
from legato.policy.snapshot import Decisions, Node, Queue, Snapshot
from legato.policy.speeds import find_slowdown

REAL = Rules(policy=Policy.THROUGHPUT)
FIFO = Rules(policy=Policy.FIFO, stability_s=0.0)


def told(decisions: Decisions) -> dict[str, str]:
    return {decision.job: decision.reason for decision in decisions.decisions}


def measure(snapshot: Snapshot, ratios: Mapping[str, float], noise: random.Random | None = None) -> Snapshot:
    """Let each job measure its speed with the number of workers that it has."""
    jobs = []
    for job in snapshot.jobs:
        num_slots = sum(slot.holder == job.id and not slot.leaving for slot in snapshot.slots)
        held = num_slots // job.gpus_per_worker
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
        "flat": "shrinks 4 → 3: it tries 3 workers, and ann/steep 5, to measure their speeds",
    }
    snapshot = carry_out(snapshot, decisions)
    snapshot = carry_out(snapshot, decide(snapshot, RULES))
    decisions = decide(snapshot, RULES)
    assert told(decisions)["steep"] == "grows 4 → 5: it tries 5 workers, and ann/flat 3, to measure their speeds"
    snapshot, decisions = settle_trial(snapshot)
    assert told(decisions) == {
        "steep": "5 of up to 8 slots: it tries 5 workers, and ann/flat 3, to measure their speeds",
        "flat": "3 of up to 8 slots: it tries 3 workers, and ann/steep 5, to measure their speeds",
    }
    assert decisions.of("flat").because == ("steep",)
    snapshot = measure(snapshot, ratios)
    snapshot, decisions = settle(snapshot, RULES)
    assert sizes(decisions) == {"steep": 6, "flat": 2}
    assert {job.num_trials for job in snapshot.jobs} == {1}
    snapshot, decisions = settle(measure(snapshot, ratios), RULES)
    assert sizes(decisions) == {"steep": 6, "flat": 2}
    assert not any(decision.trial for decision in decisions.decisions)


def test_before_the_resize_the_reason_names_the_trial_and_not_a_share() -> None:
    snapshot = measure(settle(make_pair(), RULES)[0], {"a": 0.0, "b": 0.0})
    decisions = decide(snapshot, REAL)
    assert told(decisions) == {
        "a": "4 of up to 8 slots: will grow to 5 if nothing changes for 3 s",
        "b": "4 of up to 8 slots, until it tries 3 workers, and ann/a 5, to measure their speeds",
    }
    assert [decision.num_trials for decision in decisions.decisions] == [0, 0]


def make_pair(num_slots: int = 8, **fields: object) -> Snapshot:
    jobs = [make_job("ann/a", num_slots, **fields), make_job("ann/b", num_slots, at=1.0, **fields)]  # type: ignore[arg-type]
    return make_snapshot(num_slots * jobs[0].gpus_per_worker, jobs)


def settle_trial(snapshot: Snapshot, rounds: int = 6) -> tuple[Snapshot, Decisions]:
    """Carry decisions out for a few seconds, because the decision changes later when the trial is over."""
    for _ in range(rounds):
        snapshot = carry_out(snapshot, decide(snapshot, RULES))
    return snapshot, decide(snapshot, RULES)


def start_trial(snapshot: Snapshot, **ratios: float) -> Snapshot:
    """Return the pool in which a trial holds."""
    return settle_trial(measure(settle(snapshot, RULES)[0], ratios))[0]


def measure_only(snapshot: Snapshot, name: str, ratio: float = 0.0) -> Snapshot:
    after = measure(snapshot, {job.id: ratio for job in snapshot.jobs})
    jobs = tuple(new if new.id == name else old for old, new in zip(snapshot.jobs, after.jobs, strict=True))
    return msgspec.structs.replace(snapshot, jobs=jobs)


@pytest.mark.parametrize("first", ["a", "b"])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 2.0, 60.0])
def test_a_pair_keeps_its_numbers_until_both_have_measured_whatever_the_first_one_finds(
    first: str, ratio: float
) -> None:
    snapshot = start_trial(make_pair(), a=0.0, b=0.0)
    snapshot, decisions = settle_trial(measure_only(snapshot, first, ratio))
    assert sizes(decisions) == {"a": 5, "b": 3}
    snapshot, decisions = settle(measure(snapshot, {"a": 0.0, "b": 0.0}), RULES)
    assert not any(decision.trial for decision in decisions.decisions)
    assert [job.num_trials for job in snapshot.jobs] == [1, 1]


def test_a_job_that_never_measures_ends_its_trial_after_a_while_and_begins_no_other() -> None:
    snapshot = measure_only(start_trial(make_pair(), a=0.0, b=0.0), "a")
    began = min(job.trial.since for job in snapshot.jobs if job.trial)
    assert decide(snapshot, RULES).decide_again_at == began + trials.MAX_TRIAL_S
    snapshot = msgspec.structs.replace(snapshot, now=began + trials.MAX_TRIAL_S - 1)
    assert sizes(decide(snapshot, RULES)) == {"a": 5, "b": 3}
    snapshot, decisions = settle(msgspec.structs.replace(snapshot, now=began + trials.MAX_TRIAL_S), RULES)
    assert sizes(decisions) == {"a": 4, "b": 4}
    assert [job.num_trials for job in snapshot.jobs] == [1, trials.MAX_TRIALS]


def test_a_trial_that_never_began_costs_no_try() -> None:
    snapshot = measure(settle(make_pair(), RULES)[0], {"a": 0.0, "b": 0.0})
    for _ in range(2):
        decisions = decide(snapshot, REAL)
        jobs = tuple(
            msgspec.structs.replace(job, trial=decisions.of(job.id).trial, num_trials=decisions.of(job.id).num_trials)
            for job in snapshot.jobs
        )
        snapshot = msgspec.structs.replace(snapshot, jobs=jobs, now=snapshot.now + trials.MAX_TRIAL_S)
    assert any(job.trial for job in snapshot.jobs)
    assert [job.num_trials for job in snapshot.jobs] == [0, 0]


def test_a_trial_is_not_displaced_before_its_first_resize_and_counts_with_it() -> None:
    names = "edcba"
    jobs = [make_job(f"ann/{name}", 20, at=float(at)) for at, name in enumerate(sorted(names))]
    snapshot, _ = settle(make_snapshot(20, jobs), RULES)
    for name in names:
        snapshot = measure_only(snapshot, name)
        for _ in range(2):  # less than the 3 s after which jobs are resized
            decisions = decide(snapshot, REAL)
            snapshot = carry_out(snapshot, decisions, after_s=1.0)
    trying = {decision.job: decision.num_trials for decision in decisions.decisions if decision.trial}
    assert trying == {"d": 1, "e": 1}
    assert sum(decision.num_trials for decision in decisions.decisions) == 2


def test_the_reason_of_another_user_who_gives_slots_names_no_trial() -> None:
    """A trial needs two jobs that hold their targets, so slots of another user are never the cause."""
    queues = [Queue(name="all", weight=1.0), Queue(name="other", weight=1.0)]
    jobs = [make_job("ann/a", 16, speeds=curve(0.0, 4)), make_job("ann/b", 16, at=1.0, speeds=curve(0.0, 4))]
    snapshot = make_snapshot(16, [*jobs, make_job("ben/x", 16, at=2.0, queue="other")], queues)
    owners = ["a"] * 2 + ["b"] * 2 + ["x"] * 12
    slots = tuple(msgspec.structs.replace(slot, holder=name) for slot, name in zip(snapshot.slots, owners, strict=True))
    snapshot = msgspec.structs.replace(snapshot, slots=slots)
    tried = False
    for _ in range(8):
        decisions = decide(snapshot, RULES)
        assert "tries" not in decisions.of("x").reason and "measure" not in decisions.of("x").reason
        tried |= decisions.of("a").trial is not None
        snapshot = carry_out(snapshot, decisions)
    assert tried


@pytest.mark.parametrize("fields", [{"gpus_per_worker": 2}, {"labels": {"disk": "ssd"}}])
def test_a_trial_is_the_same_with_several_gpus_per_worker_and_with_labels(fields: dict[str, object]) -> None:
    snapshot = make_pair(8, **fields)
    nodes = tuple(Node(name=name, labels={"disk": "ssd"}) for name in sorted({slot.node for slot in snapshot.slots}))
    each = snapshot.jobs[0].gpus_per_worker
    snapshot = start_trial(msgspec.structs.replace(snapshot, nodes=nodes), a=0.0, b=1.0)
    decisions = decide(snapshot, RULES)
    assert sizes(decisions) == {"a": 5 * each, "b": 3 * each}
    assert [job.num_trials for job in snapshot.jobs] == [1, 1]
    assert told(decisions)["a"].endswith("it tries 5 workers, and ann/b 3, to measure their speeds")
    snapshot, decisions = settle(measure(snapshot, {"a": 0.0, "b": 1.0}), RULES)
    assert decisions.of("a").wanted > 4 * each


def test_parts_of_a_pool_are_divided_without_trials() -> None:
    """Else the number that a job tries would become its limit."""
    snapshot = measure(settle(make_pair(8, gpus_per_worker=2), RULES)[0], {"a": 0.0, "b": 0.0})
    (pool,) = divide(snapshot, RULES)
    decide_all(pool, RULES)
    assert [claim.hi for claim in pool.claims] == [8, 8]


@pytest.mark.parametrize(
    ("num_slots", "priority", "want"),
    [(8, 10_000, (5, 3)), (32, 10_000, (20, 12)), (9, 10_000, (6, 3)), (24, 4000, (16, 8)), (32, 1000, (28, 4))],
)
def test_a_trial_lasts_until_both_have_measured(num_slots: int, priority: int, want: tuple[int, int]) -> None:
    """The job with more workers lends some if a quarter of its own would be more than half of the other's."""
    jobs = [make_job("ann/a", 32, priority=10_000), make_job("ann/b", 32, at=1.0, priority=priority)]
    snapshot, _ = settle(make_snapshot(num_slots, jobs), RULES)
    snapshot, decisions = settle_trial(measure(snapshot, {"a": 0.0, "b": 0.0}))
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
    snapshot = measure_only(measure_only(snapshot, "j1"), "j3")
    snapshot, decisions = settle_trial(snapshot)
    assert sizes(decisions) == {"j0": 4, "j1": 5, "j2": 4, "j3": 3}
    snapshot = measure_only(measure_only(snapshot, "j0"), "j2")
    assert sizes(decide(snapshot, RULES)) == sizes(decisions)


def test_a_job_without_a_partner_tries_nothing() -> None:
    known = make_job("ann/known", 8, speeds=curve(0.25, 1, 2, 4))
    snapshot, before = settle(make_snapshot(8, [known, make_job("ann/new", 8, at=1.0)]), RULES)
    assert sizes(before) == {"known": 3, "new": 5}
    assert sizes(decide(measure(snapshot, {"known": 0.25, "new": 1.0}), RULES)) == sizes(before)


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
        snapshot, decisions = settle_trial(snapshot)
        began += sizes(decisions) == {"a": 5, "b": 3}
        visitor = make_job("ann/visitor", 8, at=9.0)
        both = msgspec.structs.replace(snapshot, jobs=(*snapshot.jobs, visitor))
        both, decisions = settle(both, RULES)
        assert decisions.of("a").trial is None
        slots = tuple(
            msgspec.structs.replace(slot, holder=None) if slot.holder == "visitor" else slot for slot in both.slots
        )
        jobs = tuple(job for job in both.jobs if job.id != "visitor")
        snapshot = msgspec.structs.replace(both, slots=slots, jobs=jobs)
    assert began == trials.MAX_TRIALS


@for_any(any_snapshots() | mixed_snapshots(), st.sampled_from([RULES, BY_JOB, REAL, EAGER, FIFO]), st.data())
def test_a_trial_is_small_and_moves_only_slots_of_jobs_that_share_by_speed(
    snapshot: Snapshot, rules: Rules, data: st.DataObject
) -> None:
    for _ in range(3):
        snapshot = carry_out(snapshot, decide(snapshot, rules))
    jobs = tuple(
        msgspec.structs.replace(job, num_trials=data.draw(st.integers(0, trials.MAX_TRIALS)))
        for job in measure(snapshot, {job.id: 0.0 for job in snapshot.jobs}).jobs
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
        assert decision.num_trials <= max(job.num_trials, trials.MAX_TRIALS)
        if decision.trial is None:
            assert decision.wanted == usual.wanted
            assert decision.num_trials == job.num_trials
            continue
        assert rules.policy is Policy.THROUGHPUT
        assert job.elastic and job.num_trials < trials.MAX_TRIALS
        assert smallest_size(job) <= decision.wanted <= largest_size(job)
        assert decision.wanted % job.gpus_per_worker == 0
        assert {speed.num_workers * job.gpus_per_worker for speed in job.speeds} == {usual.wanted}
        assert decision.wanted != usual.wanted and decision.wanted * 2 >= usual.wanted
        assert (decision.trial.usual, decision.trial.tried) == (usual.wanted, decision.wanted)
        partner = found.of(decision.trial.partner)
        assert partner.trial is not None and partner.trial.partner == job.id
    for group in groups.values():
        trying = [found.of(job) for job in group if found.of(job).trial]
        assert len(trying) in (0, 2) or len({decision.machine_kind for decision in trying}) > 1
        assert sum(found.of(job).wanted for job in group) == sum(before.of(job).wanted for job in group)


@settings(deadline=None, max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.02, 0.1, 0.5, 2.0]), st.integers(1, 12), st.sampled_from([60, 75, 140, None])
        ),
        min_size=2,
        max_size=5,
    ),
    st.integers(4, 24),
    st.integers(0, 1000),
    st.sampled_from([1, 1, 2]),
)
@example([(2.0, 11, 140), (2.0, 11, 140)], 17, 11, 1)  # their measured numbers say little about the curves
def test_no_job_goes_back_and_forth_though_measurements_are_noisy(
    drawn: list[tuple[float, int, int | None]], num_workers: int, seed: int, each: int
) -> None:
    """Jobs measure each number of workers after a time of their own, and some measure only their first number."""
    ratios = {f"j{index}": ratio for index, (ratio, _, _) in enumerate(drawn)}
    times = {f"j{index}": time_s for index, (_, _, time_s) in enumerate(drawn)}
    jobs = [
        make_job(f"ann/j{index}", most, at=float(index), gpus_per_worker=each)
        for index, (_, most, _) in enumerate(drawn)
    ]
    snapshot = make_snapshot(num_workers * each, jobs, per_node=4)
    noise = random.Random(seed)
    trained: Counter[tuple[str, int]] = Counter()
    tried: dict[tuple[str, float], set[tuple[int, int]]] = {}
    history = []
    for _ in range(160):
        decisions = decide(snapshot, REAL)
        for decision in decisions.decisions:
            assert decision.num_trials <= trials.MAX_TRIALS
            if decision.trial is not None and decision.trial.has_begun:
                assert decision.trial.since <= snapshot.now < decision.trial.since + trials.MAX_TRIAL_S
                tried.setdefault((decision.job, decision.trial.since), set()).add(
                    (decision.trial.usual, decision.wanted)
                )
        assert sum(decision.trial is not None for decision in decisions.decisions) in (0, 2)
        snapshot = carry_out(snapshot, decisions, after_s=15.0)
        history.append(sizes(decisions))
        after = measure(snapshot, ratios, noise)
        found = []
        for job, new in zip(snapshot.jobs, after.jobs, strict=True):
            held = sum(slot.holder == job.id and not slot.leaving for slot in snapshot.slots)
            trained[job.id, held] += 15
            time_s = times[job.id]
            is_due = trained[job.id, held] >= (60 if time_s is None else time_s)
            found.append(new if is_due and (time_s is not None or not job.speeds) else job)
        snapshot = msgspec.structs.replace(snapshot, jobs=tuple(found))
    assert all(len(numbers) == 1 for numbers in tried.values()), "a job changes direction in a trial"
    assert Counter(job for job, _ in tried) == {
        job.id: job.num_trials for job in snapshot.jobs if job.num_trials
    } or any(time_s is None for time_s in times.values())
    for name in ratios:
        had = [sizes_then[name] for sizes_then in history]
        num_changes = sum(before != after for before, after in zip(had, had[1:], strict=False))
        assert num_changes <= 8 + 4 * len(drawn), had
    assert all(sizes_then == history[-1] for sizes_then in history[-10:]), history


@st.composite
def any_events(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Draw what happens to a pool: jobs come, leave, measure or forget their trial, or nothing happens."""
    kinds = ["come", "come", "leave", "measure", "measure", "measure", "forget", "resize", "nothing"]
    return draw(
        st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 6), st.integers(1, 8)), min_size=8, max_size=40)
    )


@for_any(any_events(), st.integers(4, 16), st.sampled_from([RULES, BY_JOB, REAL]), st.sampled_from([1, 1, 2]))
def test_whatever_happens_trials_are_few_and_short_and_their_reasons_are_true(
    events: list[tuple[str, int, int]], num_workers: int, rules: Rules, each: int
) -> None:
    snapshot = make_snapshot(num_workers * each, [make_job(f"ann/first{n}", 8, gpus_per_worker=each) for n in range(2)])
    tried: dict[tuple[str, float], set[int]] = {}
    for index, (kind, which, number) in enumerate(events):
        jobs = list(snapshot.jobs)
        if kind == "come":
            owner = "ann" if which % 3 else "ben"
            fields: dict[str, Any] = {"min_workers": 1 + which % 2} if number > 2 else {}
            jobs.append(make_job(f"{owner}/j{index}", number, at=float(index), gpus_per_worker=each, **fields))
        elif kind == "leave" and jobs:
            gone = jobs[which % len(jobs)].id
            snapshot = without_job(snapshot, gone)
            jobs = list(snapshot.jobs)
        elif kind == "measure" and jobs:
            jobs = list(measure_only(snapshot, jobs[which % len(jobs)].id, ratio=0.1 * number).jobs)
        elif kind in ("forget", "resize") and jobs:
            at = which % len(jobs)
            changes = {"trial": None} if kind == "forget" else {"max_workers": max(number, jobs[at].min_workers)}
            jobs[at] = msgspec.structs.replace(jobs[at], **changes)
        snapshot = msgspec.structs.replace(snapshot, jobs=tuple(jobs))
        for _ in range(6):
            decisions = decide(snapshot, rules)
            _check_trials(snapshot, decisions, rules)
            for decision in decisions.decisions:
                if decision.trial is not None and decision.trial.has_begun:
                    assert 0 <= snapshot.now - decision.trial.since < trials.MAX_TRIAL_S
                    tried.setdefault((decision.job, decision.trial.since), set()).add(decision.wanted)
            snapshot = carry_out(snapshot, decisions, after_s=7.0)
    assert all(len(numbers) == 1 for numbers in tried.values()), "a job changes direction in a trial"
    begun = Counter(job for job, _ in tried)
    assert max(begun.values(), default=0) <= trials.MAX_TRIALS
    assert all(begun[job.id] <= job.num_trials <= trials.MAX_TRIALS for job in snapshot.jobs)


def _check_trials(snapshot: Snapshot, decisions: Decisions, rules: Rules) -> None:
    """Check one decision: each trial is a pair that shares by speed, and only they, or those who give, read of it."""
    by_id = {job.id: job for job in snapshot.jobs}
    by_title = {job.title: job for job in snapshot.jobs}
    for decision in decisions.decisions:
        job = by_id[decision.job]
        found = re.search(r"it tries (\d+) workers?, and ([^ ]+) (\d+), to measure their speeds", decision.reason)
        assert ("tries" in decision.reason) is (found is not None)
        if decision.trial is not None:
            other = by_id[decision.trial.partner]
            theirs = decisions.of(other.id)
            assert theirs.trial is not None and theirs.trial.partner == job.id
            assert job.queue == other.queue and (rules is BY_JOB or job.owner == other.owner)
            change = decision.trial.tried - decision.trial.usual
            assert change == theirs.trial.usual - theirs.trial.tried != 0
            assert smallest_size(job) <= decision.wanted == decision.trial.tried <= job.max_slots
        if found is not None:
            assert decision.trial is not None
            numbers = [one.wanted // by_id[one.job].gpus_per_worker for one in (decision, theirs)]
            assert (int(found[1]), found[2], int(found[3])) == (numbers[0], other.title, numbers[1])
        for title in re.findall(r"([^ ]+) grows to \d+ and measures its speed", decision.reason):
            gainer = by_title[title]
            assert decisions.of(gainer.id).trial is not None
            assert gainer.queue == job.queue and (rules is BY_JOB or gainer.owner == job.owner)
