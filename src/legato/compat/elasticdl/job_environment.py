"""The job as ElasticDL's environment variables describe it, and equal seeds for all its workers."""

from __future__ import annotations

import os
import sys

from legato.compat.elasticdl.variables import MINIBATCHES_PER_TASK, SUM, WORKER_NUM
from legato.core.errors import UsageError


def num_workers_asked() -> int:
    """Return how many mini-batches a step has: as many as the job was submitted with workers; 1 if not given.

    Raises:
        UsageError: the variable is not a whole number above 0.
    """
    return _read(WORKER_NUM, 1)


def num_minibatches_per_task() -> int:
    """Return how many mini-batches a task has where the program does not say."""
    return _read(MINIBATCHES_PER_TASK, 8)


def adds_up() -> bool:
    """Return whether gradients are added up if the global batch is not fixed."""
    return os.environ.get(SUM) == "1"


def seed_alike() -> int:
    """Seed all random numbers as in all other workers, so that their models begin equal. Return the job's seed."""
    import numpy  # noqa: F401 - loaded first, so that it is seeded too

    from legato.train.data.seeds import seed_job
    from legato.train.process.job import choose_seed

    seed = choose_seed(0)
    if os.getpid() not in _seeded:
        # The program makes its model before it asks for anything that could seed. What a process was forked from may
        # have loaded this module too.
        seed_job(seed)
        _seeded.append(os.getpid())
    return seed


def _read(name: str, default: int) -> int:
    said = os.environ.get(name, "")
    if not said:
        return default
    if not (said.isascii() and said.isdecimal() and int(said) > 0):
        raise UsageError(f"{name}={said} is not a whole number above 0. Correct it, or unset it for {default}.")
    return int(said)


_seeded: list[int] = []


def tell(text: str) -> None:
    """Send an informational message to the user."""
    sys.stderr.write(f"legato: {text}\n")
