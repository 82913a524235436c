"""Finds from measured speeds how many workers slow a job down. Pure arithmetic; knows no other job and no slot."""

from __future__ import annotations

from typing import Final, NamedTuple

from legato.policy.snapshot import JobDemand

MARGIN: Final = 0.05
"""A number of workers counts as slower if it is by this part; smaller differences are noise."""


class Slowdown(NamedTuple):
    """A job was slower with more workers than with fewer.

    Args:
        best: the number of workers with which it was fastest.
        slower: the smallest larger number with which it was slower.
    """

    best: int
    slower: int


def find_slowdown(job: JobDemand) -> Slowdown | None:
    """Return from which number of workers on a job was slower than with fewer; None: it was not, as far as is known.

    For each number of workers, the machines count on which it was fastest. A static job cannot have fewer workers.

    >>> import msgspec
    >>> from legato.core.speed import Speed
    >>> def measured(*speeds):
    ...     return tuple(
    ...         Speed(num_workers=number, num_nodes=1, samples_per_s=speed, measured_s=60.0, at=0.0)
    ...         for number, speed in speeds
    ...     )
    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8)
    >>> find_slowdown(msgspec.structs.replace(job, speeds=measured((4, 9.0), (2, 10.0), (1, 6.0))))
    Slowdown(best=2, slower=4)
    >>> find_slowdown(msgspec.structs.replace(job, speeds=measured((1, 6.0), (2, 5.9))))
    """
    if len(job.speeds) < 2 or not job.elastic:
        return None
    fastest = find_fastest(job)
    best, record = 0, 0.0
    for number in sorted(fastest):
        if fastest[number] < record * (1 - MARGIN):
            return Slowdown(best, number)
        if fastest[number] > record:
            best, record = number, fastest[number]
    return None


def find_fastest(job: JobDemand) -> dict[int, float]:
    """Return the measured speed with each number of workers, on the machines on which it was fastest."""
    fastest: dict[int, float] = {}
    for speed in job.speeds:
        fastest[speed.num_workers] = max(speed.samples_per_s, fastest.get(speed.num_workers, 0.0))
    return fastest


def most_workers(job: JobDemand) -> int:
    """Return the most workers that are not known to slow a job down, but no fewer than its minimum."""
    slowdown = find_slowdown(job)
    return job.max_workers if slowdown is None else max(min(job.max_workers, slowdown.slower - 1), job.min_workers)
