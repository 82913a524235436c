"""The names of the variables that describe the job to a program of ElasticDL. Reads none of them."""

from __future__ import annotations

from typing import Final

WORKER_NUM: Final = "WORKER_NUM"
MINIBATCHES_PER_TASK: Final = "LEGATO_ELASTICDL_MINIBATCHES_PER_TASK"
"""The value of ``--num_minibatches_per_task``; the submission sets it."""

SUM: Final = "LEGATO_ELASTICDL_SUM"
"""``1``: if the global batch is not fixed, gradients are added up, as in the original, and not averaged."""

SEED: Final = "LEGATO_SEED"
"""The seed of all random numbers."""

TASKS_ADDRESS: Final = "MASTER_ADDR"
