"""Who has had less than its share for long goes first; turns become longer; no job gains by asking for more."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from tests.unit.policy.world import carry_out, make_job, make_snapshot
from tests.unit.policy.worlds import any_snapshots, for_any

from legato.policy.ageing import MAX_BEHIND, find_behind
from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.snapshot import Snapshot

PATIENCE_S = 60.0
RULES = Rules(fair_finish_s=PATIENCE_S)


def with_time(snapshot: Snapshot, rules: Rules, seconds: float) -> Snapshot:
    """Return the pool after its decisions held for that long, with that counted."""
    decisions = decide(snapshot, rules)
    after = carry_out(snapshot, decisions, after_s=seconds)
    jobs = []
    for job in after.jobs:
        decision = decisions.of(job.id)
        jobs.append(
            msgspec.structs.replace(
                job,
                due_slot_s=job.due_slot_s + decision.due * seconds,
                served_slot_s=job.served_slot_s + len(decision.slots) * seconds,
                behind=decision.behind,
            )
        )
    return msgspec.structs.replace(after, jobs=tuple(jobs))


def test_without_the_rule_nothing_is_due_and_no_job_is_behind() -> None:
    late = make_job("ann/late", due_slot_s=1e6, priority=5000)
    for rules in (
        Rules(),
        Rules(policy=Policy.PRIORITY, fair_finish_s=1.0),
        Rules(policy=Policy.FIFO, fair_finish_s=1.0),
    ):
        decision = decide(make_snapshot(4, [late]), rules).of("late")
        assert (decision.due, decision.behind) == (0.0, 0)


def test_who_is_behind_goes_before_a_higher_priority() -> None:
    urgent = make_job("ann/urgent", 4, min_workers=4, priority=9000)
    patient = make_job("ben/patient", 4, min_workers=4, priority=5000)
    assert decide(make_snapshot(4, [urgent, patient]), RULES).of("urgent").slots
    waited = msgspec.structs.replace(patient, due_slot_s=4 * PATIENCE_S + 1)
    decisions = decide(make_snapshot(4, [urgent, waited]), RULES)
    assert decisions.of("patient").slots and decisions.of("patient").behind == 1
    assert not decisions.of("urgent").slots


def test_two_that_want_all_take_turns_that_become_longer() -> None:
    both = [make_job(f"ann/{name}", 4, min_workers=4, at=number) for number, name in enumerate("ab")]
    snapshot = make_snapshot(4, both)
    turns: list[tuple[str, float]] = []
    for _ in range(4000):
        snapshot = with_time(snapshot, RULES, 5.0)
        holder = next((slot.holder for slot in snapshot.slots if slot.holder is not None), None)
        if holder is not None and (not turns or turns[-1][0] != holder):
            turns.append((holder, snapshot.now))
    names = [name for name, _ in turns]
    assert names == ["a", "b"] * (len(names) // 2) + ["a"] * (len(names) % 2)
    lengths = [later - earlier for (_, earlier), (_, later) in zip(turns, turns[1:], strict=False)]
    assert all(later >= earlier for earlier, later in zip(lengths[1:], lengths[3:], strict=False)), lengths
    # 20,000 s: with turns of one length there would be hundreds.
    assert 6 <= len(turns) <= 20
    served = sorted(job.served_slot_s for job in snapshot.jobs)
    assert served[0] > 0.3 * served[1]


def test_to_ask_for_more_than_the_share_makes_nothing_more_due() -> None:
    for most in (2, 4, 8):
        greedy = make_job("ann/greedy", most)
        others = [make_job(f"ann/{number}", 8, at=1.0) for number in range(3)]
        assert decide(make_snapshot(8, [greedy, *others]), RULES).of("greedy").due == 2.0


@for_any(any_snapshots())
def test_what_is_due_adds_up_to_no_more_than_there_is(snapshot: Snapshot) -> None:
    decisions = decide(snapshot, RULES).decisions
    assert sum(decision.due for decision in decisions) <= sum(slot.usable for slot in snapshot.slots) + 1e-6
    for decision in decisions:
        assert decision.due >= 0 and 0 <= decision.behind <= MAX_BEHIND


@for_any(st.floats(0, 1e9), st.floats(0, 1e9), st.integers(0, MAX_BEHIND), st.integers(1, 64))
def test_how_far_behind_settles_at_once(due: float, served: float, before: int, least: int) -> None:
    job = make_job("ann/a", 64, due_slot_s=due, served_slot_s=served, behind=before)
    level = find_behind(job, least, PATIENCE_S)
    again = find_behind(msgspec.structs.replace(job, behind=level), least, PATIENCE_S)
    assert again == level
