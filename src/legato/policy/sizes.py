"""Computes the numbers of slots that help a job. Pure arithmetic; knows no other job and no slot.

With V micro-batches, W workers take ceil(V / W) rounds per step. A size is useful where that number drops: 4
micro-batches are no faster on 3 workers than on 2. The minimum of a job is always one of its sizes, useful or not, but
no size is above V: a worker without a micro-batch computes nothing that counts. Nor is a size useful above
``slowdown.most``, because the job was slower with more workers, unless it is the minimum. A worker takes
``gpus_per_worker`` slots, so all sizes are multiples of that number.
"""

from __future__ import annotations

from legato.policy.snapshot import JobDemand


def smallest_size(job: JobDemand) -> int:
    """Return the fewest slots with which a job runs.

    >>> smallest_size(JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, min_workers=4, max_workers=4))
    4
    """
    return _fewest_workers(job) * job.gpus_per_worker


def largest_size(job: JobDemand) -> int:
    """Return the most slots that help a job.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=7, num_micro_batches=8)
    >>> largest_size(job)
    4
    """
    return fit_size(job, job.max_slots)


def fit_size(job: JobDemand, num_slots: int, *, knows_speed: bool = True) -> int:
    """Return the largest size of a job that is not above ``num_slots``; 0 if its minimum is.

    ``knows_speed=False``: as if no speed had been measured.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8, num_micro_batches=8)
    >>> [fit_size(job, number) for number in range(9)]
    [0, 1, 2, 3, 4, 4, 4, 4, 8]
    """
    fewest, num_workers = _fewest_workers(job), num_slots // job.gpus_per_worker
    if num_workers < fewest:
        return 0
    num_workers = _fit_micro_batches(job, min(num_workers, _most_workers(job) if knows_speed else job.max_workers))
    total = job.num_micro_batches
    if total is not None and not job.shares_freely and job.elastic:
        rounds = -(-total // num_workers)
        num_workers = max(-(-total // rounds), fewest)
    return num_workers * job.gpus_per_worker


def next_size(job: JobDemand, size: int) -> int | None:
    """Return the smallest size of a job above ``size``; None if there is none.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8, num_micro_batches=8)
    >>> [next_size(job, number) for number in (0, 1, 3, 4, 5, 8)]
    [1, 2, 4, 8, 8, None]
    """
    smallest, num_workers = smallest_size(job), size // job.gpus_per_worker
    if size < smallest:
        return smallest
    total = job.num_micro_batches
    if total is None or job.shares_freely:
        larger = num_workers + 1
    else:
        rounds = -(-total // num_workers)
        if rounds == 1:
            return None
        larger = -(-total // (rounds - 1))
    return larger * job.gpus_per_worker if larger <= _fit_micro_batches(job, _most_workers(job)) else None


def _fewest_workers(job: JobDemand) -> int:
    return _fit_micro_batches(job, job.min_workers if job.elastic else job.max_workers)


def _most_workers(job: JobDemand) -> int:
    if job.slowdown is None or not job.elastic:
        return job.max_workers
    return max(min(job.max_workers, job.slowdown.most), job.min_workers)


def _fit_micro_batches(job: JobDemand, num_workers: int) -> int:
    return num_workers if job.num_micro_batches is None else min(num_workers, job.num_micro_batches)
