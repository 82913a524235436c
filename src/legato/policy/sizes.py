"""Computes the numbers of workers that help a job. Pure arithmetic; knows no other job and no slot.

With V micro-batches, W workers take ceil(V / W) rounds per step. A size is useful where that number drops: 4
micro-batches are no faster on 3 workers than on 2. The minimum of a job is always one of its sizes, useful or not, but
no size is above V: a worker without a micro-batch computes nothing that counts.
"""

from __future__ import annotations

from legato.policy.snapshot import JobDemand


def smallest_size(job: JobDemand) -> int:
    """Return the fewest slots with which a job runs.

    >>> smallest_size(JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, min_workers=4, max_workers=4))
    4
    """
    return _fit_micro_batches(job, job.min_workers if job.elastic else job.max_workers)


def largest_size(job: JobDemand) -> int:
    """Return the most slots that help a job.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=7, num_micro_batches=8)
    >>> largest_size(job)
    4
    """
    return fit_size(job, job.max_workers)


def fit_size(job: JobDemand, num_slots: int) -> int:
    """Return the largest size of a job that is not above ``num_slots``; 0 if its minimum is.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8, num_micro_batches=8)
    >>> [fit_size(job, number) for number in range(9)]
    [0, 1, 2, 3, 4, 4, 4, 4, 8]
    """
    smallest = smallest_size(job)
    if num_slots < smallest:
        return 0
    num_slots = _fit_micro_batches(job, min(num_slots, job.max_workers))
    total = job.num_micro_batches
    if total is None or job.shares_freely or not job.elastic:
        return num_slots
    rounds = -(-total // num_slots)
    return max(-(-total // rounds), smallest)


def next_size(job: JobDemand, size: int) -> int | None:
    """Return the smallest size of a job above ``size``; None if there is none.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8, num_micro_batches=8)
    >>> [next_size(job, number) for number in (0, 1, 3, 4, 5, 8)]
    [1, 2, 4, 8, 8, None]
    """
    smallest = smallest_size(job)
    if size < smallest:
        return smallest
    total = job.num_micro_batches
    if total is None or job.shares_freely:
        larger = size + 1
    else:
        rounds = -(-total // size)
        if rounds == 1:
            return None
        larger = -(-total // (rounds - 1))
    return larger if larger <= _fit_micro_batches(job, job.max_workers) else None


def _fit_micro_batches(job: JobDemand, size: int) -> int:
    return size if job.num_micro_batches is None else min(size, job.num_micro_batches)
