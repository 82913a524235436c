"""Computation and costs of a simulated job, in seconds. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from legato.system.decoding import decode


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """What it costs to have workers, besides their steps.

    Args:
        driver_s: from the start of a driver until it answers.
        start_s: from the start of a worker's process until it takes part. 3: an import of torch, and a warm-up.
        resize_s: all workers pause for that long whenever their number changes.
        drain_s: from the request to leave until the process is gone.
        checkpoint_s: to write one, when a job is asked to end.
        away_limit_s: workers without a driver for this long save and end.
    """

    driver_s: float = 0.5
    start_s: float = 3.0
    resize_s: float = 0.1
    drain_s: float = 0.3
    checkpoint_s: float = 0.2
    away_limit_s: float = 60.0


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one job computes.

    Args:
        num_steps: after these it has succeeded.
        step_s: seconds of one step on one worker.
        num_micro_batches: of one step: with V of them W workers take ceil(V / W) rounds. None: any number of workers
            divides it.
        overhead_s: seconds that a step takes longer on more than one worker.
        fail_at: it fails at these steps, each once.
        checkpoint_every: steps. None: its state is saved only when it is paused or stopped.
    """

    num_steps: int
    step_s: float
    num_micro_batches: int | None = None
    overhead_s: float = 0.0
    fail_at: tuple[int, ...] = ()
    checkpoint_every: int | None = None

    def seconds_per_step(self, num_workers: int) -> float:
        """Return how long a step takes.

        >>> load = Load(num_steps=1, step_s=8.0, num_micro_batches=4)
        >>> [load.seconds_per_step(number) for number in (1, 2, 3, 4, 5)]
        [8.0, 4.0, 4.0, 2.0, 2.0]
        """
        overhead_s = self.overhead_s if num_workers > 1 else 0.0
        return self.step_s / self.num_useful(num_workers) + overhead_s

    def num_useful(self, num_workers: int) -> float:
        """Return by how much that many workers are faster than one, as far as that depends on the micro-batches."""
        total = self.num_micro_batches
        if total is None:
            return float(num_workers)
        return total / -(-total // num_workers)

    def to_program(self) -> tuple[str, ...]:
        """Return the command line of the program that computes this."""
        return ("made-up.py", msgspec.json.encode(self).decode())

    @classmethod
    def from_program(cls, program: Sequence[str]) -> Load:
        """Read what a command line says."""
        return decode(program[1], cls)
