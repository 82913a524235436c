"""Pools that come to rest. In each of them, jobs once took slots from one another in turn, without end.

`test_mixed_pools` draws pools. These are some of the few in which targets depended on where jobs had slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from tests.unit.policy.world import EAGER, make_job, settle, wanted

from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.snapshot import JobDemand, Node, Queue, Slot, Snapshot, Standing

_SSD: Final = {"disk": "ssd"}


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
