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
    return _find_range(job)[0] * job.gpus_per_worker


def largest_size(job: JobDemand) -> int:
    """Return the most slots that help a job.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=7, num_micro_batches=8)
    >>> largest_size(job)
    4
    """
    return fit_size(job, job.max_slots)


def find_sizes(job: JobDemand) -> tuple[int, int]:
    """Return `smallest_size` and `largest_size`, in less time than both take."""
    fewest, most = _find_range(job)
    total = job.num_micro_batches
    if total is not None and not job.shares_freely and job.elastic:
        most = max(-(-total // -(-total // most)), fewest)
    return fewest * job.gpus_per_worker, most * job.gpus_per_worker


def fit_size(job: JobDemand, num_slots: int, *, knows_speed: bool = True) -> int:
    """Return the largest size of a job that is not above ``num_slots``; 0 if its minimum is.

    ``knows_speed=False``: as if no speed had been measured.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8, num_micro_batches=8)
    >>> [fit_size(job, number) for number in range(9)]
    [0, 1, 2, 3, 4, 4, 4, 4, 8]
    """
    fewest, most = _find_range(job, knows_speed=knows_speed)
    each = job.gpus_per_worker
    num_workers = num_slots // each
    if num_workers < fewest:
        return 0
    num_workers = min(num_workers, most)
    total = job.num_micro_batches
    if total is not None and not job.shares_freely and job.elastic:
        rounds = -(-total // num_workers)
        num_workers = max(-(-total // rounds), fewest)
    return num_workers * each


def next_size(job: JobDemand, size: int) -> int | None:
    """Return the smallest size of a job above ``size``; None if there is none.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8, num_micro_batches=8)
    >>> [next_size(job, number) for number in (0, 1, 3, 4, 5, 8)]
    [1, 2, 4, 8, 8, None]
    """
    each, total = job.gpus_per_worker, job.num_micro_batches
    fewest, most = _find_range(job)
    if size < fewest * each:
        return fewest * each
    num_workers = size // each
    if total is None or job.shares_freely:
        larger = num_workers + 1
    else:
        rounds = -(-total // num_workers)
        if rounds == 1:
            return None
        larger = -(-total // (rounds - 1))
    return larger * each if larger <= most else None


def _find_range(job: JobDemand, *, knows_speed: bool = True) -> tuple[int, int]:
    """Return the fewest and the most workers that help a job. Decisions on large pools call this most often."""
    most = job.max_workers
    fewest = job.min_workers if job.elastic else most
    if knows_speed and job.slowdown is not None and job.elastic:
        most = max(min(most, job.slowdown.most), fewest)
    total = job.num_micro_batches
    if total is None or total >= most:
        return fewest, most
    return fewest if fewest < total else total, total
