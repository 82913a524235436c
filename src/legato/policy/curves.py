"""Estimates from measured speeds how much faster a job is with more workers. Pure arithmetic; knows no other job.

The time of a step is taken as a / e + b: the part a is divided among the workers, the part b (communication, the
optimizer) is not. e is the number of workers, or, with few micro-batches, their number divided by the number of rounds.
Only the ratio b / a matters.
"""

from __future__ import annotations

import math
from typing import Final

from legato.policy.snapshot import JobDemand
from legato.policy.speeds import find_fastest

_LEAST: Final = 0.005  # smaller ratios do not count
_MOST: Final = 64.0
_NOISE: Final = 0.004  # of a measured speed, as a part of it
_STEPS_PER_OCTAVE: Final = 4
"""Ratios are rounded, so that noise seldom changes a decision."""


def find_ratio(job: JobDemand) -> float:
    """Return b / a of a job, fitted to its measured speeds; 0 while fewer than two numbers of workers were measured.

    >>> import msgspec
    >>> from legato.core.speed import Speed
    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8)
    >>> one = Speed(num_workers=1, num_nodes=1, samples_per_s=1 / (1 + 0.25), measured_s=60, at=0)
    >>> four = Speed(num_workers=4, num_nodes=1, samples_per_s=1 / (1 / 4 + 0.25), measured_s=60, at=0)
    >>> find_ratio(msgspec.structs.replace(job, speeds=(one, four)))
    0.25
    """
    # Least squares of the relative errors of a x + b, with x = 1 / e and the measured time y.
    sxx = sx = s1 = sxy = sy = 0.0
    for number, speed in find_fastest(job.speeds).items():
        x, y = 1 / _divide_among(job, number), 1 / speed.samples_per_s
        weight = 1 / (y * y)
        sxx, sx, s1 = sxx + weight * x * x, sx + weight * x, s1 + weight
        sxy, sy = sxy + weight * x * y, sy + weight * y
    determinant = sxx * s1 - sx * sx  # about 0 if there is only one x
    if determinant <= 1e-9 * sxx * s1:
        return 0.0
    a, b = (sxy * s1 - sx * sy) / determinant, (sxx * sy - sx * sxy) / determinant
    ratio = _MOST if a <= 0 else min(b / a, _MOST)
    if ratio < _LEAST:
        return 0.0
    return float(2.0 ** (round(math.log2(ratio) * _STEPS_PER_OCTAVE) / _STEPS_PER_OCTAVE))


def find_doubt(job: JobDemand) -> float:
    """Return how uncertain the gain of a step is, per difference of 1 / e, because the measured speeds have noise.

    The gain is the logarithm of a factor. The closer the measured numbers of workers are to one another, the less do
    their speeds say about the ratio.

    >>> import msgspec
    >>> from legato.core.speed import Speed
    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8)
    >>> speeds = [Speed(num_workers=n, num_nodes=1, samples_per_s=n, measured_s=60, at=0) for n in (2, 4)]
    >>> find_doubt(job), find_doubt(msgspec.structs.replace(job, speeds=tuple(speeds)))
    (0.0, 0.016)
    """
    if len(job.speeds) < 2:
        return 0.0
    measured = [1 / _divide_among(job, speed.num_workers) for speed in job.speeds]
    spread = max(measured) - min(measured)
    return _NOISE / spread if spread > 0 else 0.0


def is_measured(job: JobDemand) -> bool:
    """Return whether enough was measured for `find_ratio`."""
    return len({_divide_among(job, speed.num_workers) for speed in job.speeds}) > 1


def find_gain(job: JobDemand, ratio: float, num_slots: int, more: int) -> float:
    """Return by what factor a job is faster with ``more`` slots than with ``num_slots``.

    >>> job = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=8)
    >>> find_gain(job, 0.0, 2, 4), find_gain(job, 0.25, 2, 4)
    (2.0, 1.5)
    """
    return find_time(job, ratio, num_slots) / find_time(job, ratio, more)


def find_time(job: JobDemand, ratio: float, num_slots: int) -> float:
    """Return the time of a step with a number of slots, as a multiple of the part that is divided among workers."""
    return 1 / _divide_among(job, num_slots // job.gpus_per_worker) + ratio


def _divide_among(job: JobDemand, num_workers: int) -> float:
    total = job.num_micro_batches
    if total is None:
        return float(num_workers)
    if job.shares_freely:
        return float(min(num_workers, total))
    return total / -(-total // num_workers)
