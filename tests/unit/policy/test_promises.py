"""What must hold, for any pool, any jobs and every policy."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.world import EAGER, carry_out, counts, make_job, make_slots, settle, wanted, with_job
from tests.unit.policy.worlds import any_jobs, any_queues, any_rules, any_snapshots, for_any

from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import fit_size, largest_size, next_size, smallest_size
from legato.policy.snapshot import JobDemand, Queue, Snapshot, Standing

BY_JOB = Rules(fair_by=FairBy.JOB)


def held(snapshot: Snapshot) -> Counter[str | None]:
    return Counter(slot.holder for slot in snapshot.slots if slot.usable and not slot.leaving)


def make_eager(rules: Rules) -> Rules:
    """Return the same rules without patience."""
    return msgspec.structs.replace(
        rules, **{name: getattr(EAGER, name) for name in ("stability_s", "cooldown_factor", "gather_s")}
    )


def capacity(snapshot: Snapshot) -> int:
    return sum(slot.usable for slot in snapshot.slots)


def used_by_queue(snapshot: Snapshot, sizes: dict[str, int]) -> Counter[str]:
    used: Counter[str] = Counter()
    for job in snapshot.jobs:
        used[job.queue] += sizes[job.id]
    return used


@for_any(any_snapshots(), any_rules())
def test_no_slot_is_given_twice_and_only_free_ones_are_given(snapshot: Snapshot, rules: Rules) -> None:
    slots = {slot.id: slot for slot in snapshot.slots}
    given_to: dict[str, str] = {}
    for decision in decide(snapshot, rules).decisions:
        for name in decision.slots:
            assert name not in given_to
            given_to[name] = decision.job
            slot = slots[name]
            assert slot.usable and not slot.leaving
            assert slot.holder in (None, decision.job)


@for_any(any_snapshots(), any_rules())
def test_the_sum_never_exceeds_the_pool(snapshot: Snapshot, rules: Rules) -> None:
    decisions = decide(snapshot, rules)
    assert sum(wanted(decisions).values()) <= capacity(snapshot)
    leaving = sum(slot.usable and slot.holder is not None and slot.leaving for slot in snapshot.slots)
    assert sum(counts(decisions).values()) + leaving <= capacity(snapshot)


@for_any(any_snapshots(), any_rules())
def test_bounds_hold(snapshot: Snapshot, rules: Rules) -> None:
    had = held(snapshot)
    for job, decision in zip(
        sorted(snapshot.jobs, key=lambda job: (job.submitted_at, job.id)),
        decide(snapshot, rules).decisions,
        strict=True,
    ):
        assert decision.job == job.id
        size = len(decision.slots)
        # Fewer than the minimum only if it lost slots, and not on purpose.
        assert size in (0, had[job.id]) or smallest_size(job) <= size <= job.max_workers
        assert decision.wanted == fit_size(job, decision.wanted)


@for_any(any_snapshots(), any_rules())
def test_no_job_has_a_slot_that_cannot_help_it(snapshot: Snapshot, rules: Rules) -> None:
    decisions = decide(snapshot, rules)
    for job in snapshot.jobs:
        decision = decisions.of(job.id)
        assert decision.wanted <= largest_size(job)
        # A change of its workers that is under way comes first; otherwise a surplus goes back without any delay.
        if job.standing is not Standing.RESIZING:
            assert len(decision.slots) <= largest_size(job)
            assert decision.wanted >= len(decision.slots) or len(decision.slots) == fit_size(job, len(decision.slots))


@for_any(any_jobs(min_jobs=1), any_queues(), st.integers(1, 16), any_rules(), st.integers(1, 8), st.booleans())
def test_a_job_whose_micro_batches_become_known_gives_the_surplus_back_once(
    jobs: list[JobDemand],
    queues: list[Queue],
    num_slots: int,
    rules: Rules,
    num_micro_batches: int,
    shares_freely: bool,
) -> None:
    first, *others = jobs
    unknown = msgspec.structs.replace(first, num_micro_batches=None)
    start = Snapshot(now=0.0, slots=make_slots(num_slots), jobs=(unknown, *others), queues=tuple(queues))
    snapshot, before = settle(start, make_eager(rules))
    at_rest = next(job for job in snapshot.jobs if job.id == first.id)
    known = msgspec.structs.replace(at_rest, num_micro_batches=num_micro_batches, shares_freely=shares_freely)
    rest = tuple(job for job in snapshot.jobs if job.id != first.id)
    snapshot = msgspec.structs.replace(snapshot, jobs=(known, *rest))
    sizes = [counts(before)[first.id]]
    for _ in range(30):
        # With the patience that the rules have: a surplus does not wait for it.
        decisions = decide(snapshot, rules)
        sizes.append(counts(decisions)[first.id])
        snapshot = carry_out(snapshot, decisions)
    assert sizes[1] <= largest_size(known)
    assert len(set(sizes[2:])) <= 2 and sizes[-1] == sizes[-2], sizes


@for_any(any_snapshots(), any_rules())
def test_ceilings_hold(snapshot: Snapshot, rules: Rules) -> None:
    used = used_by_queue(snapshot, wanted(decide(snapshot, rules)))
    for queue in snapshot.queues:
        assert queue.ceiling is None or used[queue.name] <= queue.ceiling


def check_that_nothing_useful_is_idle(snapshot: Snapshot, rules: Rules) -> None:
    sizes = wanted(decide(snapshot, rules))
    idle = capacity(snapshot) - sum(sizes.values())
    used = used_by_queue(snapshot, sizes)
    ceilings = {queue.name: queue.ceiling for queue in snapshot.queues if queue.ceiling is not None}
    for job in snapshot.jobs:
        larger = next_size(job, sizes[job.id])
        if larger is not None:
            room = min(idle, ceilings.get(job.queue, 1000) - used[job.queue])
            assert larger - sizes[job.id] > room, job.id


@for_any(any_snapshots(), any_rules())
def test_no_useful_slot_is_idle_while_a_job_could_use_it(snapshot: Snapshot, rules: Rules) -> None:
    check_that_nothing_useful_is_idle(snapshot, rules)


@for_any(any_snapshots(), any_rules())
def test_no_useful_slot_stays_idle(snapshot: Snapshot, rules: Rules) -> None:
    after, _ = settle(snapshot, make_eager(rules))
    check_that_nothing_useful_is_idle(after, rules)


@for_any(any_snapshots(), any_rules(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(snapshot: Snapshot, rules: Rules, random: object) -> None:
    def shuffled(things: tuple[object, ...]) -> tuple[object, ...]:
        mixed = list(things)
        random.shuffle(mixed)  # type: ignore[attr-defined]
        return tuple(mixed)

    mixed = Snapshot(
        now=snapshot.now,
        slots=shuffled(snapshot.slots),  # type: ignore[arg-type]
        jobs=shuffled(snapshot.jobs),  # type: ignore[arg-type]
        queues=shuffled(snapshot.queues),  # type: ignore[arg-type]
    )
    assert decide(mixed, rules) == decide(snapshot, rules)


@for_any(any_snapshots(), any_rules())
def test_deciding_twice_changes_nothing(snapshot: Snapshot, rules: Rules) -> None:
    decisions = decide(snapshot, rules)
    assert decide(snapshot, rules) == decisions
    # Nor is anything else wanted when the slots have changed hands and nothing else has happened.
    after = carry_out(snapshot, decisions, after_s=0.0, slow=True)
    assert wanted(decide(after, rules)) == wanted(decisions)


@for_any(any_snapshots(plain=True), st.sampled_from([None, 10.0]))
def test_no_job_is_a_whole_slot_away_from_the_exact_share(snapshot: Snapshot, ageing_s: float | None) -> None:
    for decision in decide(snapshot, Rules(ageing_s=ageing_s)).decisions:
        assert abs(decision.wanted - decision.share) < 1


@for_any(any_jobs(plain=True, min_jobs=1), any_queues(), st.integers(0, 12))
def test_a_new_job_raises_no_other_job_of_its_queue(jobs: list[JobDemand], queues: list[Queue], spare: int) -> None:
    # Minimums are all or nothing: one that did not fit any more would leave more than the new one takes. So all fit.
    *others, new = jobs
    least = sum(job.min_workers for job in jobs)
    roomy = [queue for queue in queues if queue.ceiling is None or queue.ceiling >= least]
    snapshot = Snapshot(now=0.0, slots=make_slots(least + spare), jobs=tuple(others), queues=tuple(roomy))
    before, after = decide(snapshot, BY_JOB), decide(with_job(snapshot, new), BY_JOB)
    for job in others:
        if job.queue == new.queue:
            old, now = before.of(job.id), after.of(job.id)
            assert now.share <= old.share + 1e-9
            assert now.wanted < old.share + 1


@for_any(any_snapshots(), any_rules())
def test_all_comes_to_rest(snapshot: Snapshot, rules: Rules) -> None:
    """A round is a second, and each growth of a job may wait for more than a hundred of them."""
    for patience in (rules, make_eager(rules)):
        after, decisions = settle(snapshot, patience, rounds=1000)
        for decision, job in zip(
            decisions.decisions, sorted(after.jobs, key=lambda job: (job.submitted_at, job.id)), strict=True
        ):
            assert len(decision.slots) == decision.wanted, decision
            assert decision.wanted_since is None
            assert (job.standing is Standing.RUNNING) == (decision.wanted > 0)


@for_any(any_jobs(), any_queues(), st.integers(0, 16), any_rules())
def test_no_job_goes_back_and_forth(jobs: list[JobDemand], queues: list[Queue], num_slots: int, rules: Rules) -> None:
    """Jobs come one after the other; each change that this brings goes one way."""
    snapshot = Snapshot(now=0.0, slots=make_slots(num_slots), jobs=(), queues=tuple(queues))
    for job in jobs:
        snapshot = with_job(snapshot, job)
        paths: dict[str, list[int]] = {job.id: [] for job in snapshot.jobs}
        for _ in range(20):
            decisions = decide(snapshot, rules)
            for decision in decisions.decisions:
                paths[decision.job].append(len(decision.slots))
            snapshot = carry_out(snapshot, decisions, after_s=4.0)
        for path in paths.values():
            assert path in (sorted(path), sorted(path, reverse=True)), paths


@for_any(any_snapshots(), any_rules())
def test_who_keeps_its_number_keeps_its_slots(snapshot: Snapshot, rules: Rules) -> None:
    own: dict[str, set[str]] = {job.id: set() for job in snapshot.jobs}
    for slot in snapshot.slots:
        if slot.holder in own and slot.usable and not slot.leaving:
            own[slot.holder].add(slot.id)
    for decision in decide(snapshot, rules).decisions:
        before, now = own[decision.job], set(decision.slots)
        # Least movement: it only gains, or only loses.
        assert before <= now or now <= before


@for_any(any_snapshots(), any_rules())
def test_every_decision_has_a_sentence_and_known_causes(snapshot: Snapshot, rules: Rules) -> None:
    known = {job.id for job in snapshot.jobs}
    for decision in decide(snapshot, rules).decisions:
        assert decision.reason and "None" not in decision.reason and "  " not in decision.reason
        assert set(decision.because) <= known - {decision.job}
        assert len(decision.because) <= 5 and len(set(decision.because)) == len(decision.because)


@pytest.mark.parametrize("policy", [Policy.PRIORITY, Policy.FIFO])
@for_any(snapshot=any_snapshots(used=False))
def test_a_job_that_goes_first_is_never_below_its_minimum_while_later_jobs_have_slots(
    policy: Policy, snapshot: Snapshot
) -> None:
    """Strictly: with all that the jobs behind it have, it could not have more."""
    one_queue = [msgspec.structs.replace(job, queue="all") for job in snapshot.jobs]
    sizes = wanted(decide(Snapshot(now=100.0, slots=snapshot.slots, jobs=tuple(one_queue)), Rules(policy=policy)))

    def rank(job: JobDemand) -> tuple[float, ...]:
        return (-job.priority,) if policy is Policy.PRIORITY else (job.submitted_at, int(job.id[1:]))

    for job in one_queue:
        before = sum(sizes[other.id] for other in one_queue if rank(other) <= rank(job))
        larger = next_size(job, sizes[job.id])
        if larger is not None:
            assert larger - sizes[job.id] > len(snapshot.slots) - before


@for_any(any_snapshots(used=False))
def test_whose_minimum_does_not_fit_is_not_overtaken(snapshot: Snapshot) -> None:
    """In one queue, among equals: it does not fit beside the minimums of those that came before it."""
    jobs = [msgspec.structs.replace(job, queue="all", priority=5000) for job in snapshot.jobs]
    sizes = wanted(decide(Snapshot(now=100.0, slots=snapshot.slots, jobs=tuple(jobs)), BY_JOB))
    left = len(snapshot.slots)
    for job in sorted(jobs, key=lambda job: (job.submitted_at, job.id)):
        fits = smallest_size(job) <= left
        assert (sizes[job.id] > 0) == fits
        left -= smallest_size(job) if fits else 0


def test_a_job_of_an_undescribed_queue_runs() -> None:
    snapshot = Snapshot(now=0.0, slots=make_slots(4), jobs=(make_job("anna/a", queue="unknown"),))
    assert counts(decide(snapshot, Rules())) == {"a": 4}
