"""How fast a job trained with a number of workers, as its driver measured it. Decides nothing."""

from __future__ import annotations

from typing import Final

import msgspec

FORGET_S: Final = 1800.0
"""Seconds after which a number of workers that was slow is tried again: machines and other jobs on them change."""


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
