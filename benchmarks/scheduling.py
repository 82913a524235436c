"""How long one decision takes over a large pool: 10,000 slots on 500 nodes, 2,000 jobs of 200 users, on one core.

Counted is the processor time of the process, so that what else runs on the machine shows as little as possible. Moments
of the same day: an empty pool in which everything starts, a full one in which nothing changes, and a full one in which
a job is submitted, a job ends, a node is lost, or a hundred urgent jobs come. All of them for a pool of equal machines,
for a mixed one (two kinds, a fifth of the machines labelled, and a quarter of the jobs with 2 to 8 GPUs per worker),
and for one in which half of the machines belong to one half of the users, as in clusters that start machines for the
user who needs them.
The speeds of all jobs are measured with three numbers of workers. The snapshots are made up, from one seed; the
policies are the real ones.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from benchmarks.figures import plain
from benchmarks.jobs import Say
from legato.core.speed import Speed
from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.snapshot import OWNER_LABEL, Decisions, JobDemand, Node, Queue, Slot, Snapshot, Standing

NUM_SLOTS: Final = 10_000
NUM_JOBS: Final = 2_000
TARGET_MS: Final = 100.0
_NUM_QUEUES: Final = 20
_NUM_URGENT: Final = 100
_NUM_USERS: Final = 200
_NUM_OWNERS: Final = 100
_SLOTS_PER_NODE: Final = 20
_MACHINES: Final = ("equal", "mixed", "owned")
_RULES: Final = {
    "fair by user": Rules(),
    "fair by job": Rules(fair_by=FairBy.JOB),
    "priority": Rules(policy=Policy.PRIORITY),
    "fifo": Rules(policy=Policy.FIFO),
    "throughput by user": Rules(policy=Policy.THROUGHPUT),
}


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Measure decisions and yield one row per policy and moment."""
    for (policy, rules), machines in itertools.product(_RULES.items(), _MACHINES):
        for moment, snapshot in _make_moments(rules, machines):
            # Decisions on pools with machines of single users take seconds.
            took = _time(snapshot, rules, repetitions=5 if quick or machines == "owned" else 15)
            row: dict[str, Any] = {
                "policy": policy,
                "moment": moment,
                "machines": machines,
                "slots": len(snapshot.slots),
                "jobs": len(snapshot.jobs),
                "decision_ms": plain(took),
                "target_ms": TARGET_MS,
            }
            median = row["decision_ms"]["median"]
            say(f"  {policy}, {machines} machines, {moment}: {median:.1f} ms, {median / TARGET_MS:.2f} of the bound")
            yield row


def _time(snapshot: Snapshot, rules: Rules, *, repetitions: int) -> list[float]:
    took = []
    for _ in range(repetitions):
        began = time.process_time()
        decide(snapshot, rules)
        took.append(1e3 * (time.process_time() - began))
    return took


def _make_moments(rules: Rules, machines: str) -> Iterator[tuple[str, Snapshot]]:
    source, is_mixed = random.Random(1), machines == "mixed"
    per_node = _SLOTS_PER_NODE
    slots = tuple(
        Slot(id=f"n{index // per_node:04}/{index % per_node}", node=f"n{index // per_node:04}", device="GPU")
        for index in range(NUM_SLOTS)
    )
    names = dict.fromkeys(slot.node for slot in slots)
    nodes = tuple([_make_node(name, index, machines) for index, name in enumerate(names)])
    queues = tuple(
        Queue(name=f"q{index}", weight=1 + index % 3, floor=100 * (index % 2), ceiling=None if index % 4 else 900)
        for index in range(_NUM_QUEUES)
    )
    jobs = tuple(_make_job(source, f"j{index}", is_mixed=is_mixed) for index in range(NUM_JOBS))
    empty = Snapshot(now=2_000.0, slots=slots, jobs=jobs, queues=queues, nodes=nodes)
    yield "everything starts", empty
    full = _carry_out(empty, decide(empty, rules))
    yield "nothing changes", full
    new = msgspec.structs.replace(_make_job(source, "new", is_mixed=is_mixed), submitted_at=2_000.0)
    yield "a job is submitted", msgspec.structs.replace(full, jobs=(*full.jobs[1:], new))
    ended = next(job for job in full.jobs if job.standing is Standing.RUNNING)
    yield "a job ends", msgspec.structs.replace(full, jobs=tuple(job for job in full.jobs if job is not ended))
    lost = tuple(msgspec.structs.replace(slot, usable=slot.node != slots[0].node) for slot in full.slots)
    yield "a node is lost", msgspec.structs.replace(full, slots=lost)
    urgent = tuple(
        msgspec.structs.replace(_make_job(source, f"u{index}", is_mixed=is_mixed), priority=9_000, submitted_at=2_000.0)
        for index in range(_NUM_URGENT)
    )
    # In the place of those submitted last, so that their number stays.
    kept = sorted(full.jobs, key=lambda job: (job.submitted_at, job.id))[: NUM_JOBS - _NUM_URGENT]
    yield f"{_NUM_URGENT} urgent jobs come", msgspec.structs.replace(full, jobs=(*kept, *urgent))


def _make_node(name: str, index: int, machines: str) -> Node:
    if machines == "mixed":
        return Node(name=name, kind="ab"[index % 2], labels={"disk": "ssd"} if index % 5 == 0 else {})
    if machines == "owned" and index % 2 == 0:
        return Node(name=name, labels={OWNER_LABEL: f"user{index // 2 % _NUM_OWNERS}"})
    return Node(name=name)


def _make_job(source: random.Random, name: str, *, is_mixed: bool) -> JobDemand:
    return JobDemand(
        id=name,
        name=name,
        owner=f"user{source.randrange(_NUM_USERS)}",
        queue=f"q{source.randrange(_NUM_QUEUES)}",
        submitted_at=1_000 * source.random(),
        min_workers=source.choice([1, 1, 2, 4]),
        max_workers=source.choice([4, 8, 16, 32, 64]),
        priority=source.choice([2_500, 5_000, 5_000, 7_500]),
        elastic=source.random() > 0.1,
        num_micro_batches=source.choice([None, 16, 32, 64]),
        gpus_per_worker=source.choice([1, 1, 1, 1, 1, 1, 2, 8]) if is_mixed else 1,
        labels={"disk": "ssd"} if is_mixed and source.random() < 0.1 else {},
        speeds=_make_speeds(source.choice([0.02, 0.1, 0.5])),
    )


def _make_speeds(ratio: float) -> tuple[Speed, ...]:
    """Return speeds with some numbers of workers of a job whose step has a part that more workers do not make faster.

    Args:
        ratio: of this part to the other one.
    """
    return tuple(
        Speed(num_workers=number, num_nodes=1, samples_per_s=1 / (1 / number + ratio), measured_s=60.0, at=1_000.0)
        for number in (1, 2, 4)
    )


def _carry_out(snapshot: Snapshot, decisions: Decisions) -> Snapshot:
    owners = {slot: decision.job for decision in decisions.decisions for slot in decision.slots}
    workers = {slot: held[0] for decision in decisions.decisions for held in decision.workers for slot in held}
    slots = tuple(
        msgspec.structs.replace(slot, holder=owners.get(slot.id), worker=workers.get(slot.id, ""))
        for slot in snapshot.slots
    )
    by_id = {decision.job: decision for decision in decisions.decisions}
    jobs = tuple(
        msgspec.structs.replace(
            job,
            standing=Standing.RUNNING if by_id[job.id].slots else Standing.WAITING,
            wanted=by_id[job.id].wanted,
            machine_kind=by_id[job.id].machine_kind,
        )
        for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, slots=slots, jobs=jobs)
