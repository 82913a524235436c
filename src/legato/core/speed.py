"""How fast a job trained with a number of workers, as its driver measured it. Decides nothing."""

from __future__ import annotations

import math
from typing import Final

import msgspec

FORGET_S: Final = 1800.0
"""Seconds after which a number of workers that was slow is tried again: machines and other jobs on them change."""

MAX_SPEEDS: Final = 16
"""Speeds of one job that are kept: the newest ones."""
_MAX_COUNT: Final = 1_000_000


class Speed(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The speed of a job with a number of workers.

    Args:
        num_workers: workers that trained.
        num_nodes: machines on which they ran.
        samples_per_s: median over some seconds of training each.
        measured_s: seconds of training that were measured, at most those of the last few minutes.
        at: end of the measurement, in seconds since 1970.
    """

    num_workers: int
    num_nodes: int
    samples_per_s: float
    measured_s: float
    at: float


def is_possible(speed: Speed) -> bool:
    """Check numbers by which the policy divides in a decision on all jobs.

    >>> is_possible(Speed(num_workers=1, num_nodes=1, samples_per_s=0.0, measured_s=60.0, at=0.0))
    False
    """
    counts = min(speed.num_workers, speed.num_nodes) >= 1 and max(speed.num_workers, speed.num_nodes) <= _MAX_COUNT
    return counts and 1e-9 <= speed.samples_per_s <= 1e15 and math.isfinite(speed.measured_s + speed.at)
