"""Finds input on which the policy cannot decide, and describes it. Pure: reads one job, queue or slot at a time."""

from __future__ import annotations

import math
from typing import Final

from legato.policy.ageing import MAX_BEHIND
from legato.policy.snapshot import MAX_PRIORITY, JobDemand, Queue, Slot

_LENGTHS: Final = ("resize_cost_s", "due_slot_s", "served_slot_s")
_TIMES: Final = ("submitted_at", "wanted_since", "last_resized_at", *_LENGTHS)


def find_job_fault(job: JobDemand) -> str | None:
    """Return why no decision can be made for a job; None if one can.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, min_workers=3, max_workers=2)
    >>> find_job_fault(job)
    "min_workers=3 and max_workers=2 are not a range; 'legato set JOB --workers MIN..MAX' changes them"
    """
    if not 1 <= job.min_workers <= job.max_workers:
        told = f"min_workers={job.min_workers} and max_workers={job.max_workers} are not a range"
        return f"{told}; 'legato set JOB --workers MIN..MAX' changes them"
    if job.gpus_per_worker < 1:
        return f"gpus_per_worker={job.gpus_per_worker} is below 1; submit the job again"
    if not 1 <= job.priority <= MAX_PRIORITY:
        return f"priority={job.priority} is not within 1..{MAX_PRIORITY}; 'legato set JOB --priority N' changes it"
    if job.num_micro_batches is not None and job.num_micro_batches < 1:
        return f"num_micro_batches={job.num_micro_batches} is below 1; submit the job again without it"
    if not 0 <= job.behind <= MAX_BEHIND:
        return f"behind={job.behind} is not within 0..{MAX_BEHIND}"
    return _find_time_fault(job)


def _find_time_fault(job: JobDemand) -> str | None:
    for name in _TIMES:
        value = getattr(job, name)
        if value is not None and not math.isfinite(value):
            return f"{name}={value} is not a finite number of seconds"
    for name in _LENGTHS:
        value = getattr(job, name)
        if value is not None and value < 0:
            return f"{name}={value} is below 0"
    return None


def find_queue_fault(queue: Queue) -> str | None:
    """Return why no decision can be made for the jobs of a queue; None if one can.

    >>> find_queue_fault(Queue(name="night", weight=0.0))
    'weight=0.0 is not a finite number above 0'
    """
    if not (math.isfinite(queue.weight) and queue.weight > 0):
        return f"weight={queue.weight} is not a finite number above 0"
    if queue.floor < 0:
        return f"floor={queue.floor} is below 0"
    if queue.ceiling is not None and queue.ceiling < queue.floor:
        return f"ceiling={queue.ceiling} is below floor={queue.floor}"
    return None


def find_slot_fault(slot: Slot) -> str | None:
    """Return why a slot cannot be assigned to any job; None if it can."""
    return None if slot.id and slot.node else f"id={slot.id!r} on node={slot.node!r} has an empty name"
