"""Measures what a user can gain by describing a job otherwise, over fixed random pools. ``python -m`` prints it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from tests.unit.policy.world import make_job, make_snapshot

from legato.policy.policies import decide
from legato.policy.rules import FairBy, Rules
from legato.policy.sizes import fit_size
from legato.policy.snapshot import JobDemand, Snapshot

NUM_POOLS = 500


class Gain(NamedTuple):
    """How often a user gains more than a slot, in percent of all pools, and the most slots that one gains."""

    percent: float
    most: int


def split_in_four(job: JobDemand) -> list[JobDemand]:
    sizes = [job.max_workers // 4 + (index < job.max_workers % 4) for index in range(4)]
    return [
        msgspec.structs.replace(job, id=f"{job.id}-{index}", max_workers=size)
        for index, size in enumerate(sizes)
        if size
    ]


def require_the_maximum(job: JobDemand) -> list[JobDemand]:
    return [msgspec.structs.replace(job, min_workers=job.max_workers)]


def hide_micro_batches(job: JobDemand) -> list[JobDemand]:
    return [msgspec.structs.replace(job, num_micro_batches=None)]


def measure(change: Callable[[JobDemand], list[JobDemand]], fair_by: FairBy, *, micro_batches: bool = False) -> Gain:
    """Measure what the user of one job gains by a change of it, in slots that help its jobs.

    Args:
        change: makes other jobs of the job.
        fair_by: the setting.
        micro_batches: whether jobs have steps of few micro-batches, so that some sizes help no more than smaller ones.
    """
    source = random.Random(7)
    gains = [_measure_one(_draw(source, micro_batches=micro_batches), change, fair_by) for _ in range(NUM_POOLS)]
    return Gain(100 * sum(gain > 1 for gain in gains) / NUM_POOLS, max(gains))


def _draw(source: random.Random, *, micro_batches: bool) -> Snapshot:
    num_slots = source.choice([8, 16, 32, 64])
    jobs = [
        make_job(
            f"{source.choice(['ann', 'ben', 'cleo', 'dan'])}/j{index}",
            source.choice([4, 8, 16, 32]),
            at=float(index),
            num_micro_batches=source.choice([None, 8, 16, 32]) if micro_batches else None,
        )
        for index in range(source.randint(3, 8))
    ]
    return make_snapshot(num_slots, jobs)


def _measure_one(snapshot: Snapshot, change: Callable[[JobDemand], list[JobDemand]], fair_by: FairBy) -> int:
    job = snapshot.jobs[len(snapshot.jobs) // 2]
    others = tuple(other for other in snapshot.jobs if other is not job)
    changed = msgspec.structs.replace(snapshot, jobs=(*others, *change(job)))
    return _count(changed, job, fair_by) - _count(snapshot, job, fair_by)


def _count(snapshot: Snapshot, job: JobDemand, fair_by: FairBy) -> int:
    """Count the slots of the job's user; a job of the given id has no more than help the given job."""
    decisions = decide(snapshot, Rules(fair_by=fair_by))
    total = 0
    for one in snapshot.jobs:
        if one.owner == job.owner:
            size = decisions.of(one.id).wanted
            total += fit_size(job, size) if one.id == job.id and size < job.max_workers else size
    return total


def measure_all() -> dict[tuple[str, str], Gain]:
    """Measure every change under both settings."""
    found = {}
    for fair_by in FairBy:
        found["split", fair_by.value] = measure(split_in_four, fair_by)
        found["minimum", fair_by.value] = measure(require_the_maximum, fair_by)
        found["micro-batches", fair_by.value] = measure(hide_micro_batches, fair_by, micro_batches=True)
    return found


if __name__ == "__main__":
    for (what, by), gain in measure_all().items():
        print(f"{what} {by}: {gain.percent:.0f} %, up to {gain.most} slots")
