"""What would happen if a job were submitted."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.policy.world import make_job, make_snapshot, settle, wanted, with_job
from tests.unit.policy.worlds import any_rules, any_snapshots, for_any

from legato.policy.policies import decide
from legato.policy.rules import Rules
from legato.policy.snapshot import OWNER_LABEL, Node, Queue, Snapshot
from legato.policy.whatif import Effect, plan

RULES = Rules()


def test_an_empty_pool_takes_it_at_once() -> None:
    found = plan(make_snapshot(4, []), make_job("anna/a"), RULES)
    assert (found.starts, found.slots_now, found.slots, found.effects) == ("now", 4, 4, ())
    assert found.reason == "would start with 4 slots at once; no other job loses slots"


def test_it_says_whom_it_would_shrink() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    found = plan(snapshot, make_job("bob/b", at=1.0), RULES)
    assert (found.starts, found.slots_now, found.slots, found.share) == ("soon", 0, 2, 2.0)
    assert found.effects == (Effect(job="a", title="anna/a", before=4, after=2),)
    assert found.reason == "would start with 2 slots as soon as they are freed; other jobs lose slots: anna/a 4 → 2"


def test_it_says_what_it_would_wait_for() -> None:
    snapshot, _ = settle(make_snapshot(4, [make_job("anna/a")]))
    found = plan(snapshot, make_job("bob/b", 4, at=1.0, elastic=False), RULES)
    assert (found.starts, found.slots) == ("later", 0)
    assert found.reason == (
        "would not start yet; it waits: needs 4 slots at once; 3 are reserved for it and lent to other jobs, "
        "1 more must become free; anna/a goes first"
    )


def test_what_can_never_start_is_called_so() -> None:
    never = "could not start: it needs 8 slots at once, but"
    pool = make_snapshot(4, [])
    assert plan(pool, make_job("bob/b", 8, elastic=False), RULES).reason == f"{never} the pool has 4"
    assert plan(pool, make_job("bob/b", 9, min_workers=8), RULES).reason == f"{never} the pool has 4"
    assert plan(pool, make_job("bob/b", 9), RULES).starts == "now"
    narrow = make_snapshot(8, [], queues=[Queue(name="night", ceiling=2)])
    found = plan(narrow, make_job("bob/b", 8, elastic=False, queue="night"), RULES)
    assert (found.starts, found.reason) == ("later", f"{never} its queue 'night' may have 2")


def test_machines_of_other_users_do_not_count() -> None:
    nodes = (Node(name="n0", labels={OWNER_LABEL: "carl"}), Node(name="n1"))
    pool = msgspec.structs.replace(make_snapshot(8, []), nodes=nodes)
    told = "could not start: it needs 6 slots at once, but machines that belong to no other user than bob have 4"
    assert plan(pool, make_job("bob/b", 6, elastic=False), RULES).reason == told
    assert plan(pool, make_job("carl/c", 6, elastic=False), RULES).starts == "now"


def test_a_pool_that_clusters_can_enlarge_is_not_called_too_small() -> None:
    job = make_job("bob/b", 8, min_workers=4, coming="Slurm may give more machines", num_coming=6)
    waits = "would not start yet; it waits: needs 4 slots at once, but the pool has"
    assert plan(make_snapshot(0, []), job, RULES).reason == f"{waits} none; Slurm may give more machines"
    assert plan(make_snapshot(2, []), job, RULES).reason == f"{waits} 2; Slurm may give more machines"
    wide = make_job("bob/b", 9, min_workers=9, coming="Slurm may give more machines", num_coming=6)
    never = "could not start: it needs 9 slots at once, but the pool has 2, and clusters may give 6 more"
    assert plan(make_snapshot(2, []), wide, RULES).reason == never


def test_many_who_shrink_are_counted() -> None:
    snapshot, _ = settle(make_snapshot(10, [make_job(f"u/j{index}", 2, at=float(index)) for index in range(5)]))
    found = plan(snapshot, make_job("bob/b", 5, at=9.0, elastic=False), RULES)
    assert len(found.effects) == 5
    assert found.reason.endswith("other jobs lose slots: u/j0 2 → 1, u/j1 2 → 1, u/j2 2 → 1 and 2 more")


def test_a_plan_names_cheap_numbers_of_workers() -> None:
    empty = make_snapshot(8, [])
    told = [
        plan(empty, make_job("anna/a", 6, elastic=elastic, num_micro_batches=number), RULES).cheap_workers
        for number, elastic in ((8, True), (12, True), (None, True), (8, False))
    ]
    assert told == [(1, 2, 4), (1, 3, 6), (), ()]


def test_a_job_that_is_there_already_cannot_be_planned() -> None:
    snapshot = make_snapshot(4, [make_job("anna/a")])
    with pytest.raises(AssertionError):
        plan(snapshot, make_job("anna/a"), RULES)


@for_any(any_snapshots(), any_rules())
def test_a_plan_is_what_then_happens(snapshot: Snapshot, rules: Rules) -> None:
    new = make_job("bob/new", 3, at=2.0, queue="a")
    found = plan(snapshot, new, rules)
    after = decide(with_job(snapshot, new), rules)
    assert (found.slots_now, found.slots) == (len(after.of("new").slots), after.of("new").wanted)
    before = wanted(decide(snapshot, rules))
    changes = {effect.job: effect.after - effect.before for effect in found.effects}
    assert {job: number - before[job] for job, number in wanted(after).items() if job != "new"} == {
        job: changes.get(job, 0) for job in before
    }
