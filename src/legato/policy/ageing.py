"""Computes how far jobs are behind their fair share, which counts when not all minimums fit. Measures no time.

A job that has had less than was due to it for long, because its minimum did not fit or was large, goes before others of
the same priority. If it is far behind, it also goes before jobs of a higher priority. `due` computes the slots that are
due; the caller counts the seconds of slots that were due and that the job had.
"""

from __future__ import annotations

import math
from typing import Final

from legato.policy.snapshot import JobDemand

MAX_BEHIND: Final = 3
_STICKY: Final = 0.5
_LEAST_SLOT_S: Final = 1.0


def find_behind(job: JobDemand, num_slots: int, patience_s: float) -> int:
    """Return how many times the precedence of a job is doubled.

    The result is the logarithm of the ratio of due to received seconds. So two jobs that want the same slots alternate
    in turns that become longer and longer, and the number of pauses grows only with the logarithm of time. Near a
    threshold, the value of the last decision is kept.

    Args:
        job: the job, with its due and received seconds of slots.
        num_slots: the smallest number with which it runs.
        patience_s: tolerance in seconds: a deficit of fewer seconds of these slots does not count.

    >>> waits = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=1, due_slot_s=130)
    >>> find_behind(waits, 1, patience_s=120), find_behind(waits, 1, patience_s=30)
    (1, 2)
    """
    patience_slot_s = max(patience_s * num_slots, _LEAST_SLOT_S)
    exact = math.log2((job.due_slot_s + patience_slot_s) / (job.served_slot_s + patience_slot_s))
    level = job.behind if job.behind - _STICKY <= exact < job.behind + 1 else math.floor(exact)
    return min(max(level, 0), MAX_BEHIND)
