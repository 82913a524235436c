"""Draws random workloads like those of a cluster for training, by a seed. Runs nothing.

The distributions, which docs/simulation.md describes too:

- Submissions are a Poisson process: the gaps between them are exponential.
- The time of a job on one worker is log-normal, with a median of half an hour and a standard deviation of the logarithm
  of 1.6. This is heavy-tailed: one job in 100 takes more than 20 hours. It is cut off at 200 hours.
- A step takes a / W + b on W workers. b / (a + b) is log-uniform from 0.5 % to 30 %.
- A job asks for the number of workers with which it is still 50 to 80 % efficient, and not for more than half of the
  pool. It may use twice as many. Jobs shorter than 10 minutes ask for one worker.
- Each further node costs between 0 and 2 % of a step on one worker.
- Of 8 users, one with the number n submits in proportion to 1 / n.
"""

from __future__ import annotations

import math
import random
from typing import Final

from legato.sim.load import Load
from legato.sim.workload import PlannedJob

NUM_USERS: Final = 8
_MEDIAN_S: Final = 1800.0
_SIGMA: Final = 1.6
_LONGEST_S: Final = 200 * 3600.0
_SHORTEST_S: Final = 30.0
_NARROW_S: Final = 600.0
_FIXED: Final = (0.005, 0.3)
_EFFICIENCY: Final = (0.5, 0.8)


def draw_training_jobs(seed: int, num_jobs: int, *, mean_gap_s: float = 180.0, num_slots: int = 64) -> list[PlannedJob]:
    """Draw jobs that profit from workers to different degrees.

    Args:
        seed: the same seed draws the same jobs.
        num_jobs: number of jobs.
        mean_gap_s: mean time between two submissions.
        num_slots: of the pool.

    >>> [plan.owner for plan in draw_training_jobs(1, 3)] == [plan.owner for plan in draw_training_jobs(1, 3)]
    True
    """
    source = random.Random(f"training {seed}")
    users = [f"user-{number}" for number in range(1, NUM_USERS + 1)]
    weights = [1 / number for number in range(1, NUM_USERS + 1)]
    plans, moment = [], 0.0
    for number in range(num_jobs):
        moment += source.expovariate(1 / mean_gap_s)
        alone_s = min(max(source.lognormvariate(math.log(_MEDIAN_S), _SIGMA), _SHORTEST_S), _LONGEST_S)
        fixed = math.exp(source.uniform(*map(math.log, _FIXED)))
        efficiency = source.uniform(*_EFFICIENCY)
        # A step takes 1 on one worker, so W workers are W / (1 - fixed + fixed W) times as fast.
        asked = max(min(int((1 / efficiency - 1 + fixed) / fixed), num_slots // 2), 1)
        if alone_s < _NARROW_S:
            asked = 1
        plans.append(
            PlannedJob(
                name=f"job-{number}",
                owner=source.choices(users, weights)[0],
                submitted_at=round(moment, 3),
                max_workers=min(2 * asked, num_slots),
                asked_workers=asked,
                load=Load(
                    num_steps=max(round(alone_s), 1),
                    step_s=round(1 - fixed, 6),
                    fixed_s=round(fixed, 6),
                    node_s=round(source.uniform(0.0, 0.02), 6),
                ),
            )
        )
    return plans
