"""A job leaves slots that only another one can use: it moves to other slots, or gives these up when it shrinks."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.policy.test_kinds import held, make_pool, reason, refused_by
from tests.unit.policy.world import EAGER, carry_out, counts, make_job, settle, with_job

from legato.policy.policies import decide
from legato.policy.rules import Policy, Rules
from legato.policy.snapshot import DecisionKind, JobDemand, Node, Queue, Snapshot, Standing

NODES = (Node(name="gpu-1", labels={"rack": "r1"}), Node(name="gpu-2"), Node(name="head"))
R1 = {"rack": "r1"}


def give(snapshot: Snapshot, job: str, *slots: str) -> Snapshot:
    """Return the pool in which a job trains on these slots."""
    changed = tuple(msgspec.structs.replace(slot, holder=job) if slot.id in slots else slot for slot in snapshot.slots)
    jobs = tuple(
        msgspec.structs.replace(each, standing=Standing.RUNNING, wanted=len(slots)) if each.id == job else each
        for each in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, slots=changed, jobs=jobs)


def make_racks(*jobs: JobDemand, **numbers: int) -> Snapshot:
    numbers = numbers or {"gpu-1": 2, "gpu-2": 2, "head": 2}
    return make_pool(*jobs, nodes=NODES, **numbers)


def picky(title: str = "bob/j", most: int = 1, **fields: object) -> JobDemand:
    return make_job(title, most, at=5.0, labels=R1, **fields)


@pytest.mark.parametrize("policy", list(Policy))
def test_a_job_moves_to_free_slots_when_another_can_use_only_its_own(policy: Policy) -> None:
    rules = Rules(policy=policy)
    pool = give(make_racks(make_job("anna/dat", 4, min_workers=4)), "dat", "gpu-1/0", "gpu-1/1", "gpu-2/0", "gpu-2/1")
    pool = with_job(pool, picky())
    decisions = decide(pool, rules)
    moved = decisions.of("dat")
    # It never has fewer slots than before: it gets the new one at the moment at which it leaves the old one.
    assert moved.kind is DecisionKind.KEEP and moved.wanted == len(moved.slots) == 4
    assert moved.reason == (
        "4 of up to 4 slots: its maximum; it moves from gpu-1/1 to head/0, so that bob/j can use the former"
    ) or moved.reason.endswith("it moves from gpu-1/0 to head/0, so that bob/j can use the former")
    assert moved.because == ("j",)
    waits = decisions.of("j")
    assert waits.reason == (
        "waits: needs 1 slot; 1 is free, and it does not fit yet (anna/dat first moves to other slots)"
    )
    assert waits.because == ("dat",)
    pool, _ = settle(pool, rules)
    assert len(held(pool, "j")) == 1 and held(pool, "j")[0].startswith("gpu-1/")
    assert len(held(pool, "dat")) == 4


def test_the_order_of_slots_does_not_say_which_worker_moves() -> None:
    pool = give(make_racks(make_job("anna/dat", 4, min_workers=4)), "dat", "gpu-1/0", "gpu-1/1", "gpu-2/0", "gpu-2/1")
    pool = with_job(pool, picky())
    turned = msgspec.structs.replace(pool, slots=pool.slots[::-1])
    assert decide(turned, EAGER) == decide(pool, EAGER)
    assert held(pool, "dat") and decide(pool, EAGER).of("dat").slots != tuple(held(pool, "dat"))


def test_a_job_that_shrinks_gives_up_the_slots_that_others_need() -> None:
    before = make_racks(make_job("anna/dat", 2))
    pool = give(before, "dat", "gpu-1/0", "gpu-1/1", "gpu-2/0", "head/0")
    assert decide(pool, EAGER).of("dat").slots == ("gpu-1/0", "gpu-1/1")
    pool = with_job(pool, picky(most=2))
    decision = decide(pool, EAGER).of("dat")
    assert decision.slots == ("gpu-2/0", "head/0")
    assert reason(pool, "dat") == "shrinks 4 → 2: its maximum is 2 workers"
    assert held(settle(pool)[0], "j") == ["gpu-1/0", "gpu-1/1"]


def test_a_job_that_holds_the_whole_pool_shrinks_by_the_slot_that_another_needs() -> None:
    pool, _ = settle(make_racks(make_job("anna/dat", 6)))
    pool = with_job(pool, picky())
    decision = decide(pool, Rules()).of("dat")
    assert len(decision.slots) == 5 and not {"gpu-1/0", "gpu-1/1"} <= set(decision.slots)
    after, _ = settle(pool, Rules())
    assert len(held(after, "j")) == 1 and len(held(after, "dat")) == 5


def test_two_jobs_shrink_and_one_of_them_moves_to_a_slot_of_the_other() -> None:
    jobs = [make_job("anna/a", 3), make_job("anna/b", 3)]
    pool = give(give(make_racks(*jobs), "a", "gpu-1/0", "gpu-1/1", "gpu-2/0"), "b", "gpu-2/1", "head/0", "head/1")
    pool = with_job(pool, picky(most=2, min_workers=2))
    assert counts(decide(pool, Rules())) == {"a": 2, "b": 2, "j": 0}
    pool, _ = settle(pool, Rules())
    assert held(pool, "j") == ["gpu-1/0", "gpu-1/1"]
    assert sorted(len(held(pool, job.id)) for job in jobs) == [2, 2]


def test_slots_that_a_waiting_job_cannot_use_do_not_count_for_it() -> None:
    """The job that holds the others and has too many shrinks immediately, not when its own change may happen."""
    pool = give(make_racks(make_job("anna/a", 4)), "a", "gpu-1/0", "gpu-1/1", "gpu-2/0", "gpu-2/1")
    pool = msgspec.structs.replace(pool, queues=(Queue(name="all", ceiling=2),))
    pool = with_job(pool, picky(most=2, min_workers=2, queue="other"))
    assert decide(pool, Rules()).of("a").slots == ("gpu-2/0", "gpu-2/1")


def test_a_job_above_its_minimum_makes_room_although_both_have_no_need_in_common() -> None:
    """a can use nodes with the label only, j only a node that has not refused it. Their one common node is full."""
    nodes = (Node(name="n0"), Node(name="n1", labels=R1), Node(name="n2", labels=R1))
    pool = make_pool(make_job("anna/a", 2, labels=R1), nodes=nodes, n0=2, n1=1, n2=1)
    pool = give(pool, "a", "n1/0", "n2/0")
    pool = with_job(pool, refused_by(make_job("bob/j", 1, at=5.0), n0="no data", n2="no data"))
    pool, _ = settle(pool, Rules())
    assert (held(pool, "a"), held(pool, "j")) == (["n2/0"], ["n1/0"])
    assert reason(pool, "a") == (
        "1 of up to 2 slots: its share of the 2 slots of nodes n1, n2, with bob/j, which can use no others"
    )


def test_a_growing_job_moves_others_only_after_their_cooldown() -> None:
    resized = make_job("anna/dat", 3, last_resized_at=90.0, resize_cost_s=1.0)
    pool = give(make_racks(resized, picky(most=2)), "dat", "gpu-1/0", "gpu-2/0", "gpu-2/1")
    pool = give(pool, "j", "gpu-1/1")
    now = carry_out(pool, decide(pool, Rules()), after_s=4.0)
    decisions = decide(now, Rules())
    assert decisions.of("dat").slots == ("gpu-1/0", "gpu-2/0", "gpu-2/1")
    assert decisions.decide_again_at == 110.0
    later = decide(msgspec.structs.replace(now, now=110.0), Rules()).of("dat")
    assert later.slots == ("gpu-2/0", "gpu-2/1", "head/0")
    assert held(settle(now, Rules())[0], "j") == ["gpu-1/0", "gpu-1/1"]


def test_jobs_move_one_after_the_other_if_the_first_can_use_no_free_slot() -> None:
    """j can use gpu-1 only, a everything but head, b all: b leaves gpu-2, then a leaves gpu-1."""
    jobs = [refused_by(make_job("anna/a", 1), head="no data"), make_job("anna/b", 1)]
    numbers = {"gpu-1": 1, "gpu-2": 1, "head": 1}
    pool = give(give(make_racks(*jobs, **numbers), "a", "gpu-1/0"), "b", "gpu-2/0")
    pool, _ = settle(with_job(pool, picky()), Rules())
    assert [held(pool, name) for name in ("j", "a", "b")] == [["gpu-1/0"], ["gpu-2/0"], ["head/0"]]


def test_a_static_job_does_not_move() -> None:
    pool = give(make_racks(make_job("anna/dat", 2, elastic=False)), "dat", "gpu-1/0", "gpu-1/1")
    pool = with_job(pool, picky())
    decisions = decide(pool, EAGER)
    assert decisions.of("dat").slots == ("gpu-1/0", "gpu-1/1")
    assert decisions.of("j").reason.startswith("waits: needs 1 slot; it needs slots of nodes with labels rack=r1")


def test_a_job_that_is_being_resized_moves_afterwards() -> None:
    pool = give(make_racks(make_job("anna/dat", 2)), "dat", "gpu-1/0", "gpu-1/1")
    busy = tuple(msgspec.structs.replace(job, standing=Standing.RESIZING) for job in pool.jobs)
    pool = with_job(msgspec.structs.replace(pool, jobs=busy), picky())
    decisions = decide(pool, Rules())
    assert decisions.of("dat").slots == ("gpu-1/0", "gpu-1/1") and decisions.of("j").wanted == 1
    assert len(held(settle(pool, Rules())[0], "j")) == 1


def test_jobs_with_one_gpu_leave_a_node_to_a_worker_with_several() -> None:
    types = dict.fromkeys("ab", "T4")
    pool = make_pool(make_job("anna/i", 3), make_job("anna/j", 3), gpu_types=types, a=4, b=4)
    pool = give(give(pool, "i", "a/0", "a/1", "a/2"), "j", "b/0", "b/1", "b/2")
    pool, decisions = settle(with_job(pool, make_job("bob/k", 1, gpus_per_worker=2, at=5.0)), Rules())
    assert len(decisions.of("k").workers) == 1
    assert [len(held(pool, name)) for name in "ij"] == [3, 3]


def test_a_whole_worker_with_several_gpus_moves() -> None:
    types = {"gpu-1": "T4", "head": "T4"}
    old = make_job("anna/dat", 1, gpus_per_worker=2)
    pool = make_pool(old, nodes=NODES, gpu_types=types, **{"gpu-1": 2, "head": 3})
    pool = give(pool, "dat", "gpu-1/0", "gpu-1/1")
    whole = tuple(
        msgspec.structs.replace(slot, worker="gpu-1/0+1") if slot.holder is not None else slot for slot in pool.slots
    )
    pool = with_job(msgspec.structs.replace(pool, slots=whole), picky(most=2))
    decision = decide(pool, EAGER).of("dat")
    assert decision.workers == (("head/0", "head/1"),)
    assert held(settle(pool)[0], "j") == ["gpu-1/0", "gpu-1/1"]


def test_a_job_that_can_use_one_kind_only_gets_it_before_a_job_that_can_use_all() -> None:
    """Neither has begun. The one that was submitted first would fill the kind of which the other needs everything."""
    types = {"a": "A100", "b": "T4"}
    first = make_job("anna/any", 4, elastic=False)
    second = make_job("bob/a100", 2, at=1.0, min_workers=2, gpu_type="A100")
    pool, _ = settle(make_pool(first, second, gpu_types=types, a=4, b=4))
    assert held(pool, "a100") == ["a/0", "a/1"]
    assert held(pool, "any") == ["b/0", "b/1", "b/2", "b/3"]


def test_no_job_moves_between_slots_of_which_another_needs_both() -> None:
    """wide needs both slots of n2. a can leave n2 only for n0, after b has left n0 for n1."""
    a = refused_by(make_job("anna/a", 2, min_workers=2), n1="no data")
    b = refused_by(make_job("anna/b", 2, min_workers=2), n2="no data")
    nodes = (Node(name="n0"), Node(name="n1"), Node(name="n2"))
    numbers = {"n0": 3, "n1": 1, "n2": 2}
    pool = make_pool(a, b, nodes=nodes, gpu_types=dict.fromkeys(numbers, "A100"), **numbers)
    pool = give(give(pool, "a", "n0/2", "n2/0"), "b", "n0/0", "n0/1")
    wide = make_job("bob/wide", 1, at=5.0, gpus_per_worker=2)
    pool, _ = settle(with_job(pool, refused_by(wide, n0="no data", n1="no data")))
    assert held(pool, "wide") == ["n2/0", "n2/1"]
    assert len(held(pool, "a")) == len(held(pool, "b")) == 2


@pytest.mark.parametrize("policy", list(Policy))
def test_a_static_job_takes_a_free_slot_although_others_are_being_freed(policy: Policy) -> None:
    """The slot is planned for a job that came later and can use few others; such jobs come and end without end.

    If early waited for slots that are being freed, each moment the next job would take them first.
    """
    early = refused_by(make_job("anna/early", 1, elastic=False), gone="no data")
    late = refused_by(make_job("bob/late", 2, at=1.0), gone="no data", n1="no data")
    pool = make_pool(early, late, nodes=(Node(name="n0"), Node(name="n1")), n0=2, n1=2)
    ended = tuple(slot if slot.id == "n0/0" else msgspec.structs.replace(slot, holder="ended") for slot in pool.slots)
    rules = msgspec.structs.replace(EAGER, policy=policy)
    assert decide(msgspec.structs.replace(pool, slots=ended), rules).of("early").slots == ("n0/0",)
