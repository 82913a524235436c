"""Which slots a job wants: by a number of workers, or exactly as somebody assigns them. Starts and ends nobody."""

from __future__ import annotations

import msgspec

from legato.core.errors import LayoutError, UsageError
from legato.core.lifecycle import WorkerPhase
from legato.driver.job import Job
from legato.driver.words import SlotsAssigned


def scale(job: Job, num_workers: int, reason: str) -> None:
    """Want another number of slots; the workers in which least is lost go first.

    Raises:
        UsageError: the job may not have that many, or somebody else decides about its slots.
    """
    job.spec.check_num_workers(num_workers)
    before = len(job.wanted)
    if num_workers == before:
        return
    if job.is_assigned:
        raise UsageError(
            f"Cannot scale job '{job.spec.name}' here: it has the slots that the platform gives it. Change its "
            "bounds or its priority there."
        )
    for slot in range(job.spec.max_workers):
        if len(job.wanted) < num_workers:
            job.wanted.add(slot)
    for slot in sorted(job.wanted, key=lambda slot: _worth(job, slot))[: max(len(job.wanted) - num_workers, 0)]:
        job.wanted.discard(slot)
    _want(job, job.wanted, f"{before} -> {num_workers} workers: {reason}")


def assign(job: Job, said: SlotsAssigned) -> None:
    """Want exactly the slots that were said, but for those that are given up; keep within the bounds that were said.

    Raises:
        UsageError: the job may not have that many, or could not train in enough of them; nothing has changed.
    """
    slots = frozenset(said.slots)
    changes = {
        field: value
        for field in ("min_workers", "max_workers")
        if (value := getattr(said, field)) is not None and value != getattr(job.spec, field)
    }
    spec = msgspec.structs.replace(job.spec, num_workers=len(slots), **changes).validate()
    useless = job.given_up & slots
    if len(slots - useless) < spec.min_workers:
        raise LayoutError(
            f"Cannot give job '{spec.name}' the slots {sorted(slots)}: no worker can train in {sorted(useless)}, "
            f"which leaves fewer than its minimum of {spec.min_workers}. Give it others as well, or stop it."
        )
    if changes:
        job.record("scaled", f"it may have {spec.min_workers} to {spec.max_workers} workers: {said.reason}")
        job.spec = spec
    # What was given up is not tried again just because it is said again.
    job.given_up = set(useless)
    wanted = set(slots - useless)
    if wanted != job.wanted:
        _want(job, wanted, f"{len(job.wanted)} -> {len(wanted)} workers: {said.reason}")


def _want(job: Job, slots: set[int], told: str) -> None:
    job.wanted = slots
    if not job.is_assigned:
        job.given_up -= slots
    job.deaths = {slot: count for slot, count in job.deaths.items() if slot in slots}
    job.record("scaled", told)


def _worth(job: Job, slot: int) -> tuple[int, int]:
    """Rank a slot by what is lost with it: members are kept, low ranks first, then who is nearest to joining."""
    worker = job.occupant(slot)
    if worker is None or not (worker.active or worker.coming):
        return (0, -slot)
    rank = job.current.rank_of(worker.number) if job.current else None
    if rank is not None:
        return (4, -rank)
    course = (WorkerPhase.STARTING, WorkerPhase.JOINING, WorkerPhase.WARM)
    return (1 + course.index(worker.phase) if worker.phase in course else 0, -slot)
