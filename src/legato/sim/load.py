"""Computation and costs of a simulated job, in seconds. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from legato.system.decoding import decode


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """The times that workers and drivers need besides the steps, in seconds.

    Args:
        driver_s: from the start of a driver until it answers.
        start_s: from the start of a worker's process until it takes part. 3: an import of torch, and a warm-up.
        resize_s: all workers pause for this time whenever their number changes.
        drain_s: from the request to leave until the process is gone.
        checkpoint_s: to write a checkpoint, when a job is asked to end.
        away_limit_s: workers without a driver for this long save and end.
    """

    driver_s: float = 0.5
    start_s: float = 3.0
    resize_s: float = 0.1
    drain_s: float = 0.3
    checkpoint_s: float = 0.2
    away_limit_s: float = 60.0


class Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The computation of one job.

    Args:
        num_steps: after this number of steps the job has succeeded.
        step_s: seconds of one step on one worker.
        num_micro_batches: of one step: with V micro-batches W workers need ceil(V / W) turns. None: a step can be
            divided among any number of workers.
        overhead_s: additional seconds of a step on more than one worker.
        speedups: speed relative to one worker, for some numbers of workers in rising order, and without ``overhead_s``;
            between them it changes linearly, and above the last one it does not change. Empty: as the micro-batches
            say.
        fail_at: the job fails at these steps, once at each.
        checkpoint_every: in steps. None: the state is saved only when the job is paused or stopped.
    """

    num_steps: int
    step_s: float
    num_micro_batches: int | None = None
    overhead_s: float = 0.0
    speedups: tuple[tuple[int, float], ...] = ()
    fail_at: tuple[int, ...] = ()
    checkpoint_every: int | None = None

    def seconds_per_step(self, num_workers: int) -> float:
        """Return how long a step takes, in seconds.

        >>> load = Load(num_steps=1, step_s=8.0, num_micro_batches=4)
        >>> [load.seconds_per_step(number) for number in (1, 2, 3, 4, 5)]
        [8.0, 4.0, 4.0, 2.0, 2.0]
        >>> load = Load(num_steps=1, step_s=8.0, speedups=((2, 1.6), (4, 0.8)))
        >>> [load.seconds_per_step(number) for number in (1, 2, 4, 8)]
        [8.0, 5.0, 10.0, 10.0]
        """
        overhead_s = self.overhead_s if num_workers > 1 else 0.0
        return self.step_s / self.num_useful(num_workers) + overhead_s

    def num_useful(self, num_workers: int) -> float:
        """Return the speed of that many workers relative to one worker, without ``overhead_s``."""
        if self.speedups:
            return self._interpolate(num_workers)
        total = self.num_micro_batches
        if total is None:
            return float(num_workers)
        return total / -(-total // num_workers)

    def _interpolate(self, num_workers: int) -> float:
        low, speed = 1, 1.0
        for number, above in self.speedups:
            if num_workers < number:
                return speed + (above - speed) * (num_workers - low) / (number - low)
            low, speed = number, above
        return speed

    def to_program(self) -> tuple[str, ...]:
        """Return the command line of a program with this load."""
        return ("made-up.py", msgspec.json.encode(self).decode())

    @classmethod
    def from_program(cls, program: Sequence[str]) -> Load:
        """Read the load from a command line."""
        return decode(program[1], cls)
