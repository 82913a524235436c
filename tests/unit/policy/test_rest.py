"""Pools that come to rest. In each of them, jobs once took slots from one another in turn, without end.

`test_mixed_pools` draws pools. These are some of the few in which targets depended on where jobs had slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import pytest
from tests.unit.policy.world import EAGER, carry_out, counts, make_job, settle, wanted

from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.snapshot import OWNER_LABEL, JobDemand, Node, Queue, Slot, Snapshot, Standing

_SSD: Final = {"disk": "ssd"}


def _refusing(job: JobDemand, nodes: str) -> JobDemand:
    return msgspec.structs.replace(job, refusals={f"n{number}": "no data" for number in nodes})


def _pool(
    numbers: Sequence[int],
    jobs: Sequence[JobDemand],
    held: Mapping[str, str],
    labels: Mapping[str, Mapping[str, str]],
    queues: Sequence[Queue] = (),
) -> Snapshot:
    """Return a pool with so many slots on n0, n1, ... ``held``: slots of jobs. ``labels``: of nodes."""
    holder = {slot: job for job, slots in held.items() for slot in slots.split()}
    names = [f"n{node}/{index}" for node, number in enumerate(numbers) for index in range(number)]
    slots = [Slot(id=name, node=name.partition("/")[0], holder=holder.get(name)) for name in names]
    nodes = [Node(name=f"n{node}", labels=dict(labels.get(f"n{node}", {}))) for node in range(len(numbers))]
    running = [msgspec.structs.replace(job, standing=Standing.RUNNING) if job.id in held else job for job in jobs]
    return Snapshot(now=100.0, slots=tuple(slots), jobs=tuple(running), queues=tuple(queues), nodes=tuple(nodes))


def _rules(policy: Policy, fair_by: FairBy = FairBy.JOB) -> Rules:
    return msgspec.structs.replace(EAGER, policy=policy, fair_by=fair_by)


def test_a_static_job_takes_no_slot_that_is_planned_for_a_job_before_it() -> None:
    """j2 can use n2 and n3 only and comes first, but the static j4 started there while j3 was giving up its slots."""
    jobs = (
        make_job("cleo/j0", 5, min_workers=3, num_micro_batches=6),
        make_job("ann/j2", 8, labels=_SSD),
        make_job("ann/j3", 3, elastic=False),
        make_job("ben/j4", 2, elastic=False),
        make_job("cleo/j6", 1, at=4.0),
    )
    pool = _pool((1, 4, 3, 2), jobs, {"j4": "n2/0 n2/2", "j2": "n3/0"}, {"n2": _SSD, "n3": _SSD})
    after, decisions = settle(pool, _rules(Policy.FIFO))
    assert wanted(decisions) == {"j0": 3, "j2": 5, "j3": 0, "j4": 2, "j6": 0}
    assert {slot.node for slot in after.slots if slot.holder == "j4"} <= {"n0", "n1"}


def test_others_shrink_at_once_for_a_static_job_that_must_not_take_free_slots() -> None:
    """p may grow to the free n0/2 and n0/3 only later, and s waited for that although e has a slot too many."""
    grows = make_job("ann/p", 4, labels=_SSD, priority=9000, last_resized_at=90.0, resize_cost_s=60.0)
    jobs = (grows, make_job("ben/s", 1, at=5.0, elastic=False), make_job("cleo/e", 2, priority=1000))
    pool = _pool((4, 2), jobs, {"p": "n0/0 n0/1", "e": "n1/0 n1/1"}, {"n0": _SSD})
    rules = Rules(policy=Policy.PRIORITY)
    first = decide(pool, rules)
    assert counts(first) == {"p": 2, "s": 0, "e": 1}
    assert first.of("s").reason == "waits: needs 1 slot; none is free, 1 is being freed by cleo/e"
    pool = carry_out(carry_out(pool, first), decide(carry_out(pool, first), rules))
    assert decide(pool, rules).of("s").slots == ("n1/1",)


_CLOSURE: Final = _pool(
    (1, 1, 4, 3),
    (
        make_job("cleo/j0", 5, elastic=False, priority=9000),
        _refusing(make_job("ben/j1", 2, at=1.0, num_micro_batches=6, priority=9000, queue="b"), "23"),
        make_job("ann/j2", 1, at=1.0, num_micro_batches=6, priority=9000, queue="b"),
        _refusing(make_job("ann/j3", 4, at=2.0), "12"),
        _refusing(make_job("ben/j4", 5, at=2.0, num_micro_batches=6), "02"),
    ),
    {"j2": "n1/0"},
    {"n0": {OWNER_LABEL: "ben"}, "n2": {OWNER_LABEL: "ben"}, "n3": {OWNER_LABEL: "cleo"}},
)
"""j1, j2 and j4 share n0 and n1, wherever j1 is; but only while j4 ran did a search from the waiting j2 find both."""

_TIES: Final = _pool(
    (1, 4, 2, 3, 3, 2),
    (
        make_job("ann/j0", 3, min_workers=2, elastic=False, num_micro_batches=4),
        make_job("cleo/j1", 7, at=1.0, num_micro_batches=4),
        _refusing(make_job("cleo/j2", 8, at=4.0, num_micro_batches=4, queue="b"), "25"),
        make_job("ben/j3", 3, at=4.0),
        _refusing(make_job("ann/j4", 7, at=2.0, num_micro_batches=6, priority=1000), "01235"),
        _refusing(make_job("ben/j5", 9, at=4.0), "02345"),
        _refusing(make_job("ann/j6", 1, at=1.0, elastic=False, queue="b"), "04"),
        make_job("cleo/j7", 1, at=1.0, elastic=False, queue="b"),
    ),
    {"j6": "n1/1", "j7": "n1/3", "j0": "n2/0 n3/0 n3/2", "j3": "n4/1", "j1": "n4/2"},
    {"n3": {OWNER_LABEL: "ann"}},
)
"""If j3 has the slot for which it ties with j5, other jobs are short of slots than if j5 has it."""

_AT_ONCE: Final = _pool(
    (2, 1, 3, 1, 2),
    (
        make_job("cleo/j0", 5, at=4.0, min_workers=4, elastic=False, priority=9000),
        make_job("ben/j1", 8, elastic=False, num_micro_batches=8),
        make_job("ann/j2", 2, at=3.0, elastic=False, num_micro_batches=8, priority=9000, queue="b"),
        make_job("cleo/j3", 2, at=1.0, min_workers=2, elastic=False, num_micro_batches=4, priority=1000, queue="b"),
        make_job("ben/j4", 7, at=4.0),
        make_job("cleo/j5", 4, num_micro_batches=6, priority=9000),
        make_job("cleo/j6", 9, at=2.0, elastic=False, num_micro_batches=6),
        make_job("cleo/j7", 8, at=4.0, priority=1000),
    ),
    {"j5": "n0/1", "j4": "n1/0"},
    {"n1": {OWNER_LABEL: "ben"}, "n2": {OWNER_LABEL: "ben"}, "n3": {OWNER_LABEL: "ann"}},
    [Queue(name="all", weight=2), Queue(name="b")],
)
"""A tie decided whether machines of users could be divided at once, and that decided the tie."""


@pytest.mark.parametrize(
    ("pool", "rules"),
    [
        pytest.param(_CLOSURE, _rules(Policy.FAIR), id="closure"),
        pytest.param(_TIES, _rules(Policy.FAIR), id="ties"),
        pytest.param(_AT_ONCE, _rules(Policy.THROUGHPUT, FairBy.USER), id="at once"),
    ],
)
def test_pools_come_to_rest(pool: Snapshot, rules: Rules) -> None:
    settle(pool, rules)
