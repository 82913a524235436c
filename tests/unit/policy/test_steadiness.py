"""What is done at once and what waits; and that a slot is free only when its worker is gone."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.policy.world import EAGER, carry_out, counts, make_job, make_snapshot, settle, with_job, without_job

from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.snapshot import DecisionKind, JobDemand, Snapshot, Standing

RULES = Rules(stability_s=3.0, cooldown_factor=20.0, gather_s=10.0)


def changed(snapshot: Snapshot, name: str, **fields: object) -> Snapshot:
    jobs = tuple(msgspec.structs.replace(job, **fields) if job.id == name else job for job in snapshot.jobs)
    return msgspec.structs.replace(snapshot, jobs=jobs)


def at(snapshot: Snapshot, now: float) -> Snapshot:
    return msgspec.structs.replace(snapshot, now=now)


def two_jobs() -> Snapshot:
    snapshot, decisions = settle(make_snapshot(4, [make_job("anna/a"), make_job("anna/b", at=1.0)], now=0.0))
    assert counts(decisions) == {"a": 2, "b": 2}
    return snapshot


def test_a_job_without_slots_does_not_wait_for_stability_or_cooldown() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    lately = changed(snapshot, "a", last_resized_at=snapshot.now, resize_cost_s=100.0)
    decisions = decide(with_job(lately, make_job("bob/b", at=1.0)), RULES)
    assert counts(decisions) == {"a": 2, "b": 0}
    assert decisions.of("a").kind is DecisionKind.SHRINK


def test_what_is_being_freed_is_not_free() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    snapshot = with_job(snapshot, make_job("bob/b", at=1.0))
    for _ in range(5):
        decisions = decide(snapshot, RULES)
        assert counts(decisions) == {"a": 2, "b": 0}
        assert decisions.of("b").wanted == 2
        snapshot = carry_out(snapshot, decisions, slow=True)
    snapshot = carry_out(snapshot, decide(snapshot, RULES))
    decisions = decide(snapshot, RULES)
    assert counts(decisions) == {"a": 2, "b": 2}
    assert decisions.of("b").kind is DecisionKind.START


def test_growth_waits_until_it_has_been_right_for_a_while() -> None:
    snapshot = at(without_job(two_jobs(), "a"), 50.0)
    decisions = decide(snapshot, RULES)
    assert (counts(decisions), decisions.of("b").wanted, decisions.of("b").wanted_since) == ({"b": 2}, 4, 50.0)
    assert decisions.decide_again_at == 53.0
    snapshot = carry_out(snapshot, decisions, after_s=2.9)
    assert counts(decide(snapshot, RULES)) == {"b": 2}
    assert counts(decide(at(snapshot, 53.0), RULES)) == {"b": 4}


def test_a_wish_that_changes_direction_starts_again() -> None:
    snapshot = changed(at(without_job(two_jobs(), "a"), 50.0), "b", wanted=1, wanted_since=10.0)
    assert decide(snapshot, RULES).of("b").wanted_since == 50.0
    snapshot = changed(snapshot, "b", wanted=3, wanted_since=10.0)
    assert counts(decide(snapshot, RULES)) == {"b": 4}


def test_growth_waits_for_a_multiple_of_the_jobs_own_resize_cost() -> None:
    snapshot = changed(at(without_job(two_jobs(), "a"), 50.0), "b", wanted=4, wanted_since=0.0)
    snapshot = changed(snapshot, "b", last_resized_at=45.0, resize_cost_s=2.0)
    decisions = decide(snapshot, RULES)
    assert (counts(decisions), decisions.decide_again_at) == ({"b": 2}, 85.0)
    assert counts(decide(at(snapshot, 85.0), RULES)) == {"b": 4}


def test_no_job_is_shrunk_for_a_growth_that_must_wait_itself() -> None:
    snapshot = changed(two_jobs(), "b", priority=10_000, last_resized_at=90.0, resize_cost_s=1.0)
    snapshot = changed(at(snapshot, 100.0), "a", last_resized_at=None)
    for now, want in ((100.0, {"a": 2, "b": 2}), (109.9, {"a": 2, "b": 2}), (110.0, {"a": 1, "b": 2})):
        decisions = decide(at(snapshot, now), RULES)
        assert counts(decisions) == want
        snapshot = carry_out(at(snapshot, now), decisions, after_s=0.0)
    # The gain comes in a decision of its own, when the slot is free.
    snapshot = carry_out(snapshot, decide(snapshot, RULES))
    assert counts(decide(snapshot, RULES)) == {"a": 1, "b": 3}


def test_no_job_that_was_resized_lately_is_shrunk_for_a_growth() -> None:
    due = changed(at(two_jobs(), 100.0), "b", priority=10_000, wanted=3, wanted_since=0.0, last_resized_at=None)
    cooling = changed(due, "a", wanted=1, wanted_since=0.0, last_resized_at=90.0, resize_cost_s=1.0)
    decisions = decide(cooling, RULES)
    assert (counts(decisions), decisions.decide_again_at) == ({"a": 2, "b": 2}, 110.0)
    assert decisions.of("b").reason == "2 of up to 4 slots: will grow to 3 when other jobs may be resized again"
    assert counts(decide(at(cooling, 110.0), RULES)) == {"a": 1, "b": 2}


def test_while_a_lost_node_keeps_a_job_from_being_resized_all_that_wait_for_it_say_so() -> None:
    due = changed(at(two_jobs(), 100.0), "b", priority=10_000, wanted=3, wanted_since=0.0, last_resized_at=None)
    lost = changed(due, "a", standing=Standing.RESIZING, lost_nodes=("n7",))
    lease = "a worker may still run on lost node n7 until the lease of its agent is over"
    decisions = decide(lost, RULES)
    assert decisions.of("b").reason == f"2 of up to 4 slots: will grow to 3 when anna/a may be resized again: {lease}"
    assert decisions.of("b").because == ("a",)
    assert decisions.of("a").reason == f"2 of up to 4 slots: {lease}, and it shrinks to 1 afterwards"
    whole = changed(settle(make_snapshot(4, [make_job("anna/a")]))[0], "a", standing=Standing.RESIZING)
    waiting = with_job(changed(whole, "a", lost_nodes=("n7", "n8")), make_job("bob/c", at=5.0))
    assert decide(waiting, RULES).of("c").reason == (
        "waits: needs 1 slot and will get 2; none is free, 2 more can be freed after the resize of anna/a: workers may "
        "still run on lost nodes n7, n8 until the leases of their agents are over"
    )
    assert decide(waiting, RULES).of("c").because == ("a",)
    leaving = tuple(msgspec.structs.replace(slot, leaving=slot.id == "n0/g3") for slot in waiting.slots)
    told = decide(msgspec.structs.replace(waiting, slots=leaving), RULES).of("c").reason
    assert told.endswith(
        "none is free, 1 is being freed by anna/a, 1 more can be freed after the resize of anna/a: workers may still "
        "run on lost nodes n7, n8 until the leases of their agents are over"
    )


@pytest.mark.parametrize(
    ("lost_nodes", "how"),
    [((), "with a checkpoint"), (("n1",), "with a checkpoint"), (("n0", "n1"), "without a new checkpoint")],
    ids=["both drained", "one lost, one drained", "both lost"],
)
def test_a_pause_promises_a_checkpoint_only_if_a_worker_is_left_to_write_it(
    lost_nodes: tuple[str, ...], how: str
) -> None:
    snapshot = hold(make_snapshot(4, [make_job("anna/a")], per_node=2), a=4)
    slots = tuple(msgspec.structs.replace(slot, usable=False) for slot in snapshot.slots)
    snapshot = changed(msgspec.structs.replace(snapshot, slots=slots), "a", lost_nodes=lost_nodes)
    assert decide(snapshot, EAGER).of("a").reason.startswith(f"pauses {how}: 4 of its slots are on nodes n0 ")


def test_no_job_shrinks_for_one_whose_workers_may_still_run_on_a_lost_node() -> None:
    jobs = [make_job("anna/a", 2), make_job("ben/b", 2, at=1.0)]
    snapshot = hold(make_snapshot(4, jobs, per_node=2), a=2, b=2)
    slots = tuple(msgspec.structs.replace(slot, usable=slot.node == "n0") for slot in snapshot.slots)
    crashed = msgspec.structs.replace(snapshot, slots=slots)
    assert counts(decide(crashed, EAGER)) == {"a": 1, "b": 0}  # otherwise a makes room at once
    crashed = changed(crashed, "b", standing=Standing.RESIZING, lost_nodes=("n1",))
    decisions = decide(crashed, EAGER)
    assert counts(decisions) == {"a": 2, "b": 0}
    lease = "a worker may still run on lost node n1 until the lease of its agent is over"
    assert decisions.of("b").reason == (
        "pauses without a new checkpoint: 2 of its slots are on node n1 (down or drained); "
        f"{lease}, and it resumes when 1 slot is available again after that"
    )
    # Another machine comes, but the job cannot use it yet.
    lost = carry_out(crashed, decisions, slow=True)
    slots = tuple(msgspec.structs.replace(slot, id=f"n2/{n}", node="n2") for n, slot in enumerate(lost.slots[:2]))
    slots = tuple(msgspec.structs.replace(slot, holder=None) for slot in slots)
    grown = msgspec.structs.replace(lost, slots=(*lost.slots, *slots))
    decisions = decide(grown, EAGER)
    assert (counts(decisions), decisions.of("b").wanted) == ({"a": 2, "b": 0}, 2)
    assert decisions.of("b").reason == f"waits: {lease}; it gets 2 slots afterwards"
    # The lease is over.
    ended = changed(grown, "b", standing=Standing.PAUSED, lost_nodes=())
    assert counts(decide(ended, EAGER)) == {"a": 2, "b": 2}


def hold(snapshot: Snapshot, **numbers: int) -> Snapshot:
    """Give jobs so many of the first slots, as if they had had them for long."""
    holders = [name for name, number in numbers.items() for _ in range(number)]
    slots = tuple(
        msgspec.structs.replace(slot, holder=holders[index] if index < len(holders) else None)
        for index, slot in enumerate(snapshot.slots)
    )
    for name in numbers:
        snapshot = changed(snapshot, name, standing=Standing.RUNNING)
    return msgspec.structs.replace(snapshot, slots=slots)


def test_no_job_loses_more_than_is_missing() -> None:
    # The share of a is 5, but d, which is to have the rest, may not be resized yet.
    jobs = [make_job("u/a", 16), make_job("u/d", 16, priority=10_000, last_resized_at=99.0, resize_cost_s=9.0)]
    snapshot = hold(make_snapshot(16, [*jobs, make_job("u/new", 1, at=2.0)], now=100.0), a=12, d=4)
    decisions = decide(snapshot, RULES)
    assert counts(decisions) == {"a": 11, "d": 4, "new": 0}
    assert decisions.of("a").wanted == 5


@pytest.mark.parametrize("grows", [True, False])
def test_a_job_that_is_being_resized_is_not_changed_again(grows: bool) -> None:
    snapshot = at(two_jobs(), 500.0)
    snapshot = (
        without_job(snapshot, "a") if grows else with_job(snapshot, make_job("u/c", 4, elastic=False, priority=9999))
    )
    snapshot = changed(snapshot, "b", standing=Standing.RESIZING, wanted=4, wanted_since=0.0)
    assert len(decide(snapshot, RULES).of("b").slots) == 2
    rested = decide(changed(snapshot, "b", standing=Standing.RUNNING), RULES)
    assert len(rested.of("b").slots) == (4 if grows else 0)


def free_some(snapshot: Snapshot, num_free: int) -> Snapshot:
    """Let the workers in some leaving slots be gone."""
    slots, left = [], num_free
    for slot in snapshot.slots:
        gone = slot.leaving and left > 0
        left -= gone
        slots.append(msgspec.structs.replace(slot, holder=None, leaving=False) if gone else slot)
    return msgspec.structs.replace(snapshot, slots=tuple(slots))


def test_a_start_waits_a_while_for_all_of_its_share_and_then_takes_what_is_there() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")], now=0.0))
    snapshot = at(with_job(snapshot, make_job("bob/b", at=1.0)), 50.0)
    snapshot = free_some(carry_out(snapshot, decide(snapshot, RULES), slow=True), 1)
    decisions = decide(snapshot, RULES)
    assert (counts(decisions), decisions.decide_again_at) == ({"a": 2, "b": 0}, 60.0)
    assert counts(decide(at(snapshot, 60.0), RULES)) == {"a": 2, "b": 1}
    assert counts(decide(free_some(snapshot, 1), RULES)) == {"a": 2, "b": 2}


def test_what_is_free_is_kept_for_the_wide_one_that_goes_first() -> None:
    snapshot, _ = settle(make_snapshot(5, [make_job("u/a", 5)], now=0.0))
    jobs = (make_job("u/wide", 3, at=1.0, elastic=False), make_job("u/small", 1, at=2.0))
    snapshot = at(with_job(snapshot, *jobs), 50.0)
    snapshot = carry_out(snapshot, decide(snapshot, RULES), slow=True)
    assert counts(decide(free_some(snapshot, 2), RULES)) == {"a": 1, "wide": 0, "small": 0}
    assert counts(decide(free_some(snapshot, 3), RULES)) == {"a": 1, "wide": 3, "small": 0}
    assert counts(decide(free_some(snapshot, 4), RULES)) == {"a": 1, "wide": 3, "small": 1}


def test_a_job_does_not_restart_before_its_last_workers_are_gone() -> None:
    snapshot, _ = settle(make_snapshot(2, [make_job("anna/a", 2)]))
    slots = (
        msgspec.structs.replace(snapshot.slots[0], leaving=True),
        msgspec.structs.replace(snapshot.slots[1], holder=None),
    )
    decisions = decide(msgspec.structs.replace(snapshot, slots=slots), EAGER)
    assert counts(decisions) == {"a": 0}
    assert decisions.of("a").kind is DecisionKind.WAIT


def lose(snapshot: Snapshot, name: str, num_slots: int) -> Snapshot:
    slots, left = [], num_slots
    for slot in snapshot.slots:
        lost = slot.holder == name and left > 0
        left -= lost
        slots.append(msgspec.structs.replace(slot, usable=False) if lost else slot)
    return msgspec.structs.replace(snapshot, slots=tuple(slots))


def test_who_lost_slots_to_a_node_is_made_whole_at_once() -> None:
    static = make_job("u/s", 2, elastic=False)
    snapshot, _ = settle(make_snapshot(6, [static, make_job("u/a", 4, at=1.0)]))
    snapshot = lose(snapshot, "s", 1)
    decisions = decide(snapshot, RULES)
    assert (counts(decisions), decisions.of("s").kind) == ({"s": 1, "a": 3}, DecisionKind.SHRINK)
    snapshot = carry_out(carry_out(snapshot, decisions), decide(carry_out(snapshot, decisions), RULES))
    assert counts(decide(snapshot, RULES)) == {"s": 2, "a": 3}


def test_who_lost_slots_and_cannot_have_others_pauses() -> None:
    jobs: list[JobDemand] = [make_job("u/s", 2, elastic=False), make_job("u/t", 2, at=1.0, elastic=False)]
    snapshot, _ = settle(make_snapshot(4, jobs))
    decisions = decide(lose(snapshot, "t", 1), RULES)
    assert (counts(decisions), decisions.of("t").kind) == ({"s": 2, "t": 0}, DecisionKind.PAUSE)


def test_shrinking_comes_before_pausing() -> None:
    jobs = [
        make_job("u/grows", 3, priority=9000, last_resized_at=99.0, resize_cost_s=9.0),
        make_job("u/mid", 3, at=1.0, priority=6000),
        make_job("u/low", 2, at=2.0, priority=1000, min_workers=2),
        make_job("u/new", 1, at=3.0, priority=9500),
    ]
    snapshot = hold(make_snapshot(6, jobs, now=100.0), grows=1, mid=3, low=2)
    decisions = decide(snapshot, msgspec.structs.replace(RULES, policy=Policy.PRIORITY))
    assert {decision.job: decision.wanted for decision in decisions.decisions} == {
        "grows": 3,
        "mid": 2,
        "low": 0,
        "new": 1,
    }
    assert counts(decisions) == {"grows": 1, "mid": 2, "low": 2, "new": 0}
