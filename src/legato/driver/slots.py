"""Sets the slots that a job is to use, from a number of workers or as the platform assigns them. Starts nothing."""

from __future__ import annotations

import msgspec

from legato.core.errors import LayoutError, UsageError
from legato.core.lifecycle import WorkerPhase
from legato.driver.events import SlotsAssigned
from legato.driver.job import JobFacts


def scale(job: JobFacts, num_workers: int, reason: str) -> None:
    """Set another number of slots. Workers whose loss costs least leave first.

    Raises:
        UsageError: the job may not have that many, or the platform assigns its slots.
    """
    job.spec.check_num_workers(num_workers)
    before = len(job.wanted)
    if num_workers == before:
        return
    if job.num_micro_batches is not None and num_workers > job.num_micro_batches:
        raise UsageError(
            f"Cannot scale job '{job.spec.name}' to {num_workers} workers: {_explain_limit(job.num_micro_batches)}, so "
            f"more than {_count(job.num_micro_batches)} cannot help. Raise its global batch size to use more."
        )
    if job.is_assigned:
        raise UsageError(
            f"Cannot scale job '{job.spec.name}' here: the platform decides how many slots it has. Change its "
            "number of workers or its priority with 'legato set'."
        )
    for slot in range(job.spec.max_workers):
        if len(job.wanted) < num_workers:
            job.wanted.add(slot)
    for slot in sorted(job.wanted, key=lambda slot: _worth(job, slot))[: max(len(job.wanted) - num_workers, 0)]:
        job.wanted.discard(slot)
    _want(job, job.wanted, f"{before} -> {num_workers} workers: {reason}")


def assign(job: JobFacts, said: SlotsAssigned) -> None:
    """Set exactly the assigned slots, without those that are given up, within the given bounds.

    Raises:
        UsageError: the job may not have that many, or could not train in enough of them; nothing has changed.
    """
    slots = frozenset(said.slots)
    least = said.min_workers
    if least is not None and job.num_micro_batches is not None:
        least = min(least, job.num_micro_batches)
    changes = {
        field: value
        for field, value in (("min_workers", least), ("max_workers", said.max_workers))
        if value is not None and value != getattr(job.spec, field)
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
    # A slot that was given up is not used again when it is assigned again.
    job.given_up = set(useless)
    wanted = set(slots - useless)
    job.surplus = _find_surplus(job, wanted)
    wanted -= job.surplus
    if wanted != job.wanted:
        _want(job, wanted, f"{len(job.wanted)} -> {len(wanted)} workers: {said.reason}")


def leave_out_surplus(job: JobFacts) -> None:
    """Use at most one slot per micro-batch of a step, because more workers would have nothing to compute.

    Other assigned slots are reported as surplus, so that the platform takes them back.
    """
    most = job.num_micro_batches
    assert most is not None
    if job.spec.min_workers > most:
        told = f"its minimum is {_count(job.spec.min_workers)}, but {_explain_limit(most)}: it trains with {most}"
        job.record("note", f"{told}. Raise its global batch size to use more", level="warning")
        job.spec = msgspec.structs.replace(job.spec, min_workers=most, num_workers=min(job.spec.num_workers, most))
    surplus = _find_surplus(job, job.wanted)
    if not surplus:
        return
    if job.is_assigned:
        job.surplus |= surplus
    before, wanted = len(job.wanted), job.wanted - surplus
    _want(job, wanted, f"{before} -> {len(wanted)} workers: {_explain_limit(most)}, so more cannot help")


def _find_surplus(job: JobFacts, slots: set[int]) -> set[int]:
    """Return the slots beyond the number of micro-batches, those whose loss costs least."""
    most = job.num_micro_batches
    if most is None or len(slots) <= most:
        return set()
    return set(sorted(slots, key=lambda slot: _worth(job, slot))[: len(slots) - most])


def _explain_limit(num_micro_batches: int) -> str:
    return f"its step has only {num_micro_batches} micro-batch{'es' if num_micro_batches > 1 else ''}"


def _count(num_workers: int) -> str:
    return "1 worker" if num_workers == 1 else f"{num_workers} workers"


def _want(job: JobFacts, slots: set[int], told: str) -> None:
    job.wanted = slots
    if not job.is_assigned:
        job.given_up -= slots
    job.deaths = {slot: count for slot, count in job.deaths.items() if slot in slots}
    job.record("scaled", told)


def _worth(job: JobFacts, slot: int) -> tuple[int, int]:
    """Rank a slot by the cost of its loss: members cost most, low ranks first, then workers close to joining."""
    worker = job.occupant(slot)
    if worker is None or not (worker.active or worker.coming):
        return (0, -slot)
    rank = job.current.rank_of(worker.number) if job.current else None
    if rank is not None:
        return (4, -rank)
    course = (WorkerPhase.STARTING, WorkerPhase.JOINING, WorkerPhase.WARM)
    return (1 + course.index(worker.phase) if worker.phase in course else 0, -slot)
