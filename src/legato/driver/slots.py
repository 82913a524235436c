"""Sets the slots that a job is to use, from a number of workers or as the platform assigns them. Starts nothing."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from legato.core.errors import LayoutError, UsageError
from legato.core.lifecycle import WorkerPhase
from legato.core.slots import node_of, slot_key
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
        job.num_asked = num_workers
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
    wanted = set(job.wanted)
    unused = [slot for slot in job.available if slot not in wanted]
    unused.sort(key=lambda slot: node_of(slot) in job.lost_nodes)
    missing = num_workers - before
    if missing > len(unused):
        raise UsageError(
            f"Cannot scale job '{job.spec.name}' to {num_workers} workers: its only slots are "
            f"{_list_slots(wanted.union(unused))}. Ask for {_count(before + len(unused))} or fewer."
        )
    wanted.update(unused[: max(missing, 0)])
    wanted.difference_update(_by_worth(job, wanted)[: max(-missing, 0)])
    job.num_asked = num_workers
    _want(job, wanted, f"{before} -> {num_workers} workers: {reason}")


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
            f"Cannot give job '{spec.name}' the slots {_list_slots(slots)}: no worker can train in "
            f"{_list_slots(useless)}, which leaves fewer than its minimum of {spec.min_workers}. Give it others as "
            "well, or stop it."
        )
    if changes:
        job.record("scaled", f"it may have {spec.min_workers} to {spec.max_workers} workers: {said.reason}")
        job.spec = spec
    _try_again(job, slots - job.wanted - job.given_up - job.surplus)
    # A slot that was given up is not used again when it is assigned again.
    job.given_up = set(useless)
    wanted = set(slots - useless)
    job.surplus = _find_surplus(job, wanted)
    wanted -= job.surplus
    if wanted != job.wanted:
        _want(job, wanted, f"{len(job.wanted)} -> {len(wanted)} workers: {said.reason}")


def _try_again(job: JobFacts, new: Collection[str]) -> None:
    """Try nodes again that have refused the job, after the platform has taken their slots back and gives them again."""
    nodes = {node_of(slot) for slot in new} - {node_of(worker.slot) for worker in job.present()}
    for node in nodes & job.refusals.keys():
        del job.refusals[node]
        job.lost_nodes.pop(node, None)


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


def _find_surplus(job: JobFacts, slots: set[str]) -> set[str]:
    """Return the slots beyond the number of micro-batches, those whose loss costs least."""
    most = job.num_micro_batches
    if most is None or len(slots) <= most:
        return set()
    return set(_by_worth(job, slots)[: len(slots) - most])


def _explain_limit(num_micro_batches: int) -> str:
    return f"its step has only {num_micro_batches} micro-batch{'es' if num_micro_batches > 1 else ''}"


def _count(num_workers: int) -> str:
    return "1 worker" if num_workers == 1 else f"{num_workers} workers"


def _want(job: JobFacts, slots: set[str], told: str) -> None:
    job.wanted = slots
    if not job.is_assigned:
        job.given_up -= slots
    job.deaths = {slot: count for slot, count in job.deaths.items() if slot in slots}
    job.record("scaled", told)


def _list_slots(slots: Collection[str]) -> str:
    return ", ".join(sorted(slots, key=slot_key))


def _by_worth(job: JobFacts, slots: Collection[str]) -> list[str]:
    """Return slots ordered by the cost of their loss. Of those that cost the same, the last of the job comes first."""
    ordered = job.in_order(slots)
    ordered.reverse()
    return sorted(ordered, key=lambda slot: _worth(job, slot))


def _worth(job: JobFacts, slot: str) -> tuple[int, int]:
    """Rank a slot by the cost of its loss: members cost most, low ranks first, then workers close to joining."""
    worker = job.occupant(slot)
    if worker is None or not (worker.active or worker.coming):
        return (0, 0)
    rank = job.current.rank_of(worker.number) if job.current else None
    if rank is not None:
        return (4, -rank)
    course = (WorkerPhase.STARTING, WorkerPhase.JOINING, WorkerPhase.WARM)
    return (1 + course.index(worker.phase) if worker.phase in course else 0, 0)
