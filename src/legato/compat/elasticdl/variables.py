"""The names of the variables that describe the job to a program of ElasticDL. Reads none of them."""

from __future__ import annotations

from typing import Final

WORKER_NUM: Final = "WORKER_NUM"
MINIBATCHES_PER_TASK: Final = "LEGATO_ELASTICDL_MINIBATCHES_PER_TASK"
"""What ``--num_minibatches_per_task`` said; set by the submission."""

SUM: Final = "LEGATO_ELASTICDL_SUM"
"""``1``: without a fixed global batch gradients are added up, as the original did, and not averaged."""

SEED: Final = "LEGATO_SEED"
"""Seed of everything random."""

TASKS_ADDRESS: Final = "MASTER_ADDR"
