"""How far jobs are behind their fair finish, and its weight when not all minimums fit. Measures no time.

Who has had less than was due to it for long, because its minimum did not fit or was wide, goes before others of the
same priority, and before those of a higher one if it is far behind. What is due is set by `due`; the caller that
carries the decisions out counts how many seconds of slots that makes, and how many the job had.
"""

from __future__ import annotations

import math
from typing import Final

from legato.policy.snapshot import JobDemand

MAX_BEHIND: Final = 3
_STICKY: Final = 0.5
_LEAST_SLOT_S: Final = 1.0


def find_behind(job: JobDemand, num_slots: int, patience_s: float) -> int:
    """Return how often the precedence of a job is doubled.

    It is the logarithm of what was due by what was had. So two jobs that want the same slots take turns that become
    longer and longer, and the number of pauses grows only with the logarithm of the time. Where it is near a limit, it
    stays as it was in the last decision.

    Args:
        job: with what was due and what it had.
        num_slots: the smallest number with which it runs.
        patience_s: seconds of these that it may lack before that means anything.

    >>> waits = JobDemand(id="j", name="n", owner="o", queue="q", submitted_at=0, max_workers=1, due_slot_s=130)
    >>> find_behind(waits, 1, patience_s=120), find_behind(waits, 1, patience_s=30)
    (1, 2)
    """
    patience_slot_s = max(patience_s * num_slots, _LEAST_SLOT_S)
    exact = math.log2((job.due_slot_s + patience_slot_s) / (job.served_slot_s + patience_slot_s))
    level = job.behind if job.behind - _STICKY <= exact < job.behind + 1 else math.floor(exact)
    return min(max(level, 0), MAX_BEHIND)
