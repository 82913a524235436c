"""Jobs stay on one kind of machine, ask for GPU models, labels and several GPUs per worker; the reasons say so."""

from __future__ import annotations

import sys
from collections import Counter

import msgspec
import pytest
from hypothesis import strategies as st
from tests.unit.policy.world import EAGER, make_job, settle, with_job
from tests.unit.policy.worlds import USERS, for_any

from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.sizes import smallest_size
from legato.policy.snapshot import OWNER_LABEL, JobDemand, Node, Slot, Snapshot

BY_JOB = msgspec.structs.replace(EAGER, fair_by=FairBy.JOB)
BY_ORDER = msgspec.structs.replace(EAGER, policy=Policy.FIFO)
CAPABILITY = "CPU capability"


def make_node(name: str, capability: str, **labels: str) -> Node:
    return Node(name=name, kind=capability.lower(), traits={CAPABILITY: capability}, labels=labels)


def make_pool(
    *jobs: JobDemand, nodes: tuple[Node, ...] = (), gpu_types: dict[str, str] | None = None, **numbers: int
) -> Snapshot:
    """Return a pool with so many slots on each node: GPUs of these types, or else CPUs."""
    types = gpu_types or {}
    slots = tuple(
        Slot(
            id=f"{node}/{index}",
            node=node,
            device=f"GPU-{node}{index}" if node in types else "cpu",
            gpu_type=types.get(node, ""),
        )
        for node, number in numbers.items()
        for index in range(number)
    )
    return Snapshot(now=100.0, slots=slots, jobs=jobs, nodes=nodes)


def reason(snapshot: Snapshot, job: str, rules: Rules = EAGER) -> str:
    return decide(snapshot, rules).of(job).reason


def held(snapshot: Snapshot, job: str) -> list[str]:
    return sorted(slot.id for slot in snapshot.slots if slot.holder == job)


TWO_KINDS = (make_node("a", "AVX512"), make_node("b", "AVX2"))


def test_a_job_is_on_one_kind_of_machine_although_it_could_use_more_slots() -> None:
    pool, _ = settle(make_pool(make_job("anna/big", 6), nodes=TWO_KINDS, a=4, b=2))
    assert held(pool, "big") == ["a/0", "a/1", "a/2", "a/3"]
    assert reason(pool, "big") == (
        "4 of up to 6 slots: all that its kind of machine has; node b is of another kind (CPU capability AVX2 instead "
        "of AVX512)"
    )


def test_jobs_are_divided_among_the_kinds_so_that_each_has_the_most_slots() -> None:
    jobs = [make_job(f"anna/j{index}", 4, at=float(index)) for index in range(3)]
    pool, _ = settle(make_pool(*jobs, nodes=TWO_KINDS, a=4, b=4))
    assert [len(held(pool, job.id)) for job in jobs] == [2, 4, 2]
    assert reason(pool, "j0") == (
        "2 of up to 4 slots: an equal share with anna/j2; node a is of another kind (CPU capability AVX512 instead of "
        "AVX2)"
    )


def test_a_job_gets_a_kind_on_which_its_minimum_fits_though_a_job_that_fits_nowhere_wants_it_too() -> None:
    jobs = (
        make_job("anna/big", 7, elastic=False),
        make_job("anna/x", 4, min_workers=4, at=1.0),
        make_job("anna/y", 8, min_workers=3, priority=1000, at=2.0),
    )
    pool, _ = settle(make_pool(*jobs, nodes=TWO_KINDS, a=6, b=5))
    assert {name: len(held(pool, name)) for name in ("big", "x", "y")} == {"big": 0, "x": 4, "y": 6}


def test_a_job_gets_a_kind_on_which_its_minimum_fits_beside_a_job_that_waits() -> None:
    jobs = [make_job(f"anna/j{index}", 4, elastic=False, at=float(index)) for index in range(3)]
    late = make_job("anna/late", 2, min_workers=2, at=3.0)
    pool, _ = settle(make_pool(*jobs, late, nodes=TWO_KINDS, a=6, b=5), BY_ORDER)
    assert [len(held(pool, name)) for name in ("j0", "j1", "j2", "late")] == [4, 4, 0, 2]


def test_a_job_gets_a_kind_on_which_its_minimum_fits_beside_machines_of_other_users() -> None:
    nodes = (
        Node(name="a", kind="x"),
        Node(name="own", kind="x", labels={OWNER_LABEL: "ben"}),
        Node(name="b", kind="y"),
    )
    jobs = [make_job(f"anna/j{index}", 4, elastic=False, at=float(index)) for index in range(3)]
    pool, _ = settle(make_pool(*jobs, nodes=nodes, a=4, own=4, b=10))
    assert [len(held(pool, job.id)) for job in jobs] == [4, 4, 4]


def test_a_share_of_a_kind_counts_no_machines_of_other_users() -> None:
    nodes = (
        Node(name="a", kind="x"),
        Node(name="own", kind="x", labels={OWNER_LABEL: "ben"}),
        Node(name="b", kind="y"),
    )
    jobs = [make_job(f"anna/j{index}", 8, at=float(index)) for index in range(3)]
    pool, _ = settle(make_pool(*jobs, nodes=nodes, a=4, own=8, b=6))
    assert [len(held(pool, job.id)) for job in jobs] == [3, 4, 3]


@pytest.mark.parametrize("policy", [Policy.FIFO, Policy.PRIORITY])
def test_a_user_has_machines_of_its_own_although_others_want_more_slots_than_there_are(policy: Policy) -> None:
    nodes = (
        Node(name="a", kind="x"),
        Node(name="own", kind="x", labels={OWNER_LABEL: "anna"}),
        Node(name="b", kind="y"),
    )
    jobs = [make_job("ben/j0", 5), make_job("ben/j1", 10, at=1.0), make_job("anna/j2", 8, at=2.0, min_workers=4)]
    pool, _ = settle(make_pool(*jobs, nodes=nodes, a=10, own=8, b=4), msgspec.structs.replace(EAGER, policy=policy))
    assert all(name.startswith("own/") for name in held(pool, "j2")) and len(held(pool, "j2")) == 8


def test_a_job_whose_user_has_its_share_of_one_kind_gets_an_idle_slot_of_another() -> None:
    jobs = [make_job("ben/first", 2), make_job("anna/wide", 5, elastic=False, at=1.0), make_job("anna/late", 2, at=2.0)]
    pool, _ = settle(make_pool(*jobs, nodes=TWO_KINDS, a=7, b=1))
    assert {name: len(held(pool, name)) for name in ("first", "wide", "late")} == {"first": 2, "wide": 5, "late": 1}
    assert reason(pool, "late") == (
        "1 of up to 2 slots: all that its kind of machine has; node a is of another kind (CPU capability AVX512 "
        "instead of AVX2)"
    )


@st.composite
def wide_jobs(draw: st.DrawFn) -> list[JobDemand]:
    jobs = []
    for index in range(draw(st.integers(3, 7))):
        least = draw(st.integers(1, 6))
        jobs.append(
            make_job(
                f"{draw(st.sampled_from(USERS))}/j{index}",
                least + draw(st.integers(0, 5)),
                at=float(draw(st.integers(0, 3))),
                min_workers=least,
                priority=draw(st.sampled_from([1000, 5000, 10_000])),
                elastic=draw(st.booleans()),
            )
        )
    return jobs


@for_any(
    wide_jobs(),
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 6)), min_size=2, max_size=5),
    st.sampled_from([EAGER, BY_JOB, BY_ORDER]),
    st.booleans(),
)
def test_no_job_waits_for_one_kind_while_its_minimum_would_fit_on_another(
    jobs: list[JobDemand], sizes: list[tuple[str, int]], rules: Rules, one_by_one: bool
) -> None:
    kinds = {f"n{index}": kind for index, (kind, _) in enumerate(sizes)}
    nodes = tuple(Node(name=name, kind=kind) for name, kind in kinds.items())
    pool = make_pool(nodes=nodes, **{f"n{index}": number for index, (_, number) in enumerate(sizes)})
    for some in [[job] for job in jobs] if one_by_one else [jobs]:
        pool, decisions = settle(with_job(pool, *some), rules, rounds=100)
    free = Counter(kinds[slot.node] for slot in pool.slots if slot.holder is None)
    for job in pool.jobs:
        if job.machine_kind is None:
            assert smallest_size(job) > max(free.values(), default=0), decisions.of(job.id)


def test_a_paused_job_waits_for_its_own_kind_of_machine() -> None:
    began = make_job("anna/j", 2, machine_kind="avx512/cpu")
    rival = make_job("bob/first", 4, at=-1.0, priority=10_000, min_workers=4)
    pool, _ = settle(make_pool(began, rival, nodes=TWO_KINDS, a=4, b=4))
    # The other job, which may use any kind, leaves its kind to it.
    assert held(pool, "j") == ["a/0", "a/1"]
    assert held(pool, "first") == ["b/0", "b/1", "b/2", "b/3"]
    idle = make_pool(began, nodes=TWO_KINDS, a=4, b=4)
    slots = tuple(msgspec.structs.replace(slot, usable=slot.node == "b") for slot in idle.slots)
    down = msgspec.structs.replace(idle, slots=slots)
    assert decide(down, EAGER).of("j").slots == ()
    assert reason(down, "j") == (
        "waits: needs 1 slot, but its kind of machine has none; node b is of another kind (CPU capability AVX2 instead "
        "of AVX512); lower its minimum or add nodes"
    )


def test_a_job_whose_kind_of_machine_has_left_the_pool_goes_on_with_a_warning() -> None:
    pool = make_pool(make_job("anna/j", 2, machine_kind="avx/cpu"), nodes=TWO_KINDS, a=4, b=2)
    decision = decide(pool, EAGER).of("j")
    assert len(decision.slots) == 2 and decision.machine_kind == "avx2/cpu"
    assert decision.reason == (
        "starts with 2 of up to 2 slots: its maximum; it began on another kind of machine, of which the pool has no "
        "more, so its results may differ in the last bits"
    )


def test_slots_on_another_kind_of_machine_are_given_back() -> None:
    pool, _ = settle(make_pool(make_job("anna/j", 6), a=4, b=2))
    assert len(held(pool, "j")) == 6
    changed = msgspec.structs.replace(pool, nodes=TWO_KINDS)
    assert reason(changed, "j") == "shrinks 6 → 4: 2 of its slots are on another kind of machine than the others"
    assert held(settle(changed)[0], "j") == ["a/0", "a/1", "a/2", "a/3"]


def test_a_job_gets_the_gpu_type_that_it_asks_for() -> None:
    types = {"a": "NVIDIA A100-SXM4-80GB", "b": "Tesla T4"}
    pool, _ = settle(make_pool(make_job("anna/j", 3, gpu_type="t4"), gpu_types=types, a=4, b=2, c=4))
    assert held(pool, "j") == ["b/0", "b/1"]
    assert reason(pool, "j") == (
        "2 of up to 3 slots: it asks for GPU type t4, for which its kind of machine has 2 slots"
    )
    other = make_pool(make_job("anna/j", 3, gpu_type="H100"), gpu_types=types, a=4, b=2)
    assert reason(other, "j") == (
        "waits: needs 1 slot; it asks for GPU type H100, and the pool has NVIDIA A100-SXM4-80GB, Tesla T4"
    )
    none = make_pool(make_job("anna/j", 3, gpu_type="H100"), a=4)
    assert reason(none, "j") == "waits: needs 1 slot; it asks for GPU type H100, and the pool has no GPUs"


def test_a_job_that_no_machine_suits_takes_nothing_from_jobs_with_the_same_labels() -> None:
    nodes = (make_node("a", "AVX2", disk="ssd"),)
    jobs = [make_job("anna/t4", 4, gpu_type="T4", labels={"disk": "ssd"}), make_job("ben/j", 4, labels={"disk": "ssd"})]
    for order in (jobs, jobs[::-1]):
        dated = [msgspec.structs.replace(job, submitted_at=float(at)) for at, job in enumerate(order)]
        pool = make_pool(*dated, nodes=nodes, gpu_types={"a": "A100"}, a=4)
        assert len(decide(pool, EAGER).of("j").slots) == 4
        assert reason(pool, "t4") == "waits: needs 1 slot; it asks for GPU type T4, and the pool has A100"


def test_labels_restrict_a_job_to_some_nodes() -> None:
    nodes = (Node(name="a", labels={"site": "x"}), Node(name="b", labels={"site": "y"}))
    pool, _ = settle(make_pool(make_job("anna/j", 3, labels={"site": "y"}), nodes=nodes, a=4, b=2))
    assert held(pool, "j") == ["b/0", "b/1"]
    assert (
        reason(pool, "j") == "2 of up to 3 slots: it asks for labels site=y, for which its kind of machine has 2 slots"
    )
    both = with_job(pool, make_job("bob/k", 2, labels={"site": "y"}, min_workers=2, at=5.0))
    assert reason(settle(both)[0], "k") == (
        "waits: needs 2 slots at once; its kind of machine has 2 slots for labels site=y, and anna/j goes first"
    )


def test_machines_that_could_run_a_job_but_cannot_be_used_are_named() -> None:
    nodes = (Node(name="a", labels={"site": "x"}), Node(name="b", labels={"site": "y"}))
    pool = make_pool(make_job("anna/j", 3, labels={"site": "y"}), nodes=nodes, a=4, b=2)
    silent = tuple(
        msgspec.structs.replace(slot, usable=slot.node != "b", trouble="its agent does not answer" * (slot.node == "b"))
        for slot in pool.slots
    )
    decision = decide(msgspec.structs.replace(pool, slots=silent), EAGER).of("j")
    assert decision.reason == (
        "waits: needs 1 slot; it asks for labels site=y, for which its kind of machine has no slots; node b cannot be "
        "used: its agent does not answer"
    )


@pytest.mark.parametrize(
    "job",
    [
        make_job("anna/j", 3, labels={"site": "z"}),
        make_job("anna/j", 3, gpu_type="A100"),
        make_job("anna/j", 3, num_micro_batches=1),
        make_job("anna/j", 1),
    ],
)
def test_no_other_job_is_the_cause_if_the_pool_has_no_such_slot_or_more_would_not_help(job: JobDemand) -> None:
    """So no higher priority is suggested."""
    _, decisions = settle(make_pool(job, make_job("bob/other", 4), nodes=TWO_KINDS, a=4))
    assert decisions.of("j").because == ()


def refused_by(job: JobDemand, **refusals: str) -> JobDemand:
    return msgspec.structs.replace(job, refusals=refusals)


def test_a_node_that_has_refused_a_job_is_left_out_for_that_job_and_the_reason_says_why() -> None:
    other = make_job("bob/other", 2, at=1.0)
    big = refused_by(make_job("anna/big", 6), b="it has no data directory '/data'")
    pool, _ = settle(make_pool(big, other, a=1, b=2, c=1))
    assert held(pool, "big") == ["a/0", "c/0"] and held(pool, "other") == ["b/0", "b/1"]
    assert reason(pool, "big") == (
        "2 of up to 6 slots: the other nodes have 2 slots; node b has refused it: it has no data directory '/data'"
    )


def test_a_job_that_too_many_nodes_have_refused_waits_with_each_reason() -> None:
    job = refused_by(make_job("anna/big", 4, min_workers=2), b="its disk is full", c="it has no Python '/p'")
    told = reason(make_pool(job, a=1, b=2, c=2), "big")
    assert told.startswith("waits: needs 2 slots at once; the other nodes have 1 slot; ")
    assert "node b has refused it: its disk is full; node c has refused it: it has no Python '/p'" in told


def test_jobs_that_a_node_has_refused_share_the_other_nodes() -> None:
    jobs = [refused_by(make_job(f"anna/j{index}", 4, at=float(index)), b="no data") for index in range(2)]
    pool, _ = settle(make_pool(*jobs, make_job("bob/other", 4, at=2.0), a=2, b=4))
    assert [len(held(pool, job.id)) for job in pool.jobs] == [1, 1, 4]


def count_calls(snapshot: Snapshot) -> int:
    """Return how many calls a decision takes: a measure of its time that is the same on each machine."""
    number = 0

    def note(_frame: object, event: str, _arg: object) -> None:
        nonlocal number
        number += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        decide(snapshot, EAGER)
    finally:
        sys.setprofile(None)
    return number


def test_the_time_of_a_decision_grows_as_the_number_of_jobs_that_different_nodes_have_refused() -> None:
    def count_with(number: int) -> int:
        jobs = [
            refused_by(make_job(f"anna/j{index}", 4, at=float(index)), **{f"n{index}": "no data"})
            for index in range(number)
        ]
        return count_calls(make_pool(*jobs, **{f"n{index}": 3 for index in range(number)}))

    assert count_with(400) < 5 * count_with(100)


def test_several_gpus_per_worker_are_on_one_node() -> None:
    types = dict.fromkeys("ab", "T4")
    pool, decisions = settle(make_pool(make_job("anna/j", 3, gpus_per_worker=2), gpu_types=types, a=3, b=3))
    assert decisions.of("j").workers == (("a/0", "a/1"), ("b/0", "b/1"))
    assert reason(pool, "j") == (
        "4 of up to 6 slots: it asks for 2 GPUs per worker, for which its kind of machine has 4 slots"
    )
    pool, decisions = settle(with_job(pool, make_job("bob/k", 2, gpus_per_worker=2, at=5.0)))
    assert len(decisions.of("j").slots) == len(decisions.of("k").slots) == 2
    assert reason(pool, "j") == "2 of up to 6 slots: its share of the 4 slots for 2 GPUs per worker, with bob/k"


def test_slots_that_make_no_whole_worker_go_to_other_jobs_and_the_reason_says_so() -> None:
    types = dict.fromkeys("ab", "T4")
    static = [make_job(f"anna/{name}", 3, elastic=False) for name in "ij"]
    pool, _ = settle(make_pool(*static, gpu_types=types, a=4, b=4))
    pool = with_job(pool, make_job("bob/k", 1, gpus_per_worker=2, at=5.0))
    at_rest, _ = settle(pool)
    assert reason(at_rest, "k") == (
        "waits: needs 2 slots at once; 2 GPUs per worker: node a has 1 left, node b has 1 left"
    )
    pool, _ = settle(with_job(pool, make_job("bob/l", 2, at=6.0)))
    assert len(held(pool, "l")) == 2


def test_several_gpus_per_worker_need_gpus() -> None:
    pool = make_pool(make_job("anna/j", 2, gpus_per_worker=2), a=4)
    assert reason(pool, "j") == "waits: needs 2 slots at once; it asks for 2 GPUs per worker, and the pool has no GPUs"


def test_a_worker_that_loses_one_of_its_gpus_gives_the_others_back() -> None:
    pool, _ = settle(make_pool(make_job("anna/j", 2, gpus_per_worker=2), gpu_types={"a": "T4"}, a=4))
    broken = tuple(msgspec.structs.replace(slot, usable=slot.id != "a/1") for slot in pool.slots)
    after = decide(msgspec.structs.replace(pool, slots=broken), EAGER).of("j")
    assert after.workers == (("a/2", "a/3"),)
    assert after.reason.startswith(
        "shrinks 4 → 2: one of its slots is on node a (down or drained); one of its slots is of a worker that "
        "has lost another GPU"
    )
