"""Computation and costs of a simulated job, in seconds. Pure arithmetic."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from legato.system.decoding import decode

Curve = tuple[tuple[int, float], ...]
"""Values for some numbers of workers, in rising order."""


def read_between(curve: Curve, num_workers: int) -> float:
    """Return the value for a number of workers: linear between two known ones, constant outside of them.

    >>> [read_between(((2, 5.0), (4, 9.0)), number) for number in (1, 2, 3, 4, 8)]
    [5.0, 5.0, 7.0, 9.0, 9.0]
    """
    low, value = curve[0]
    for number, above in curve:
        if num_workers < number:
            return value + (above - value) * max(num_workers - low, 0) / max(number - low, 1)
        low, value = number, above
    return value


class Costs(msgspec.Struct, frozen=True, kw_only=True):
    """The times that workers and drivers need besides the steps, in seconds.

    Args:
        driver_s: from the start of a driver until it answers.
        start_s: from the start of a worker's process until it takes part. 3: an import of torch, and a warm-up.
        resize_s: all workers pause for this time whenever their number changes.
        resize_by_size: the same by the number of workers after the change; replaces ``resize_s`` unless it is empty.
        drain_s: from the request to leave until the process is gone.
        checkpoint_s: to write a checkpoint, when a job is asked to end.
        away_limit_s: workers without a driver for this long save and end.
    """

    driver_s: float = 0.5
    start_s: float = 3.0
    resize_s: float = 0.1
    resize_by_size: Curve = ()
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
        fixed_s: additional seconds of every step, on any number of workers: a step takes a / W + b seconds if this is b
            and ``step_s`` is a.
        node_s: additional seconds of a step for each node with workers after the first one.
        speedups: speed relative to one worker, for some numbers of workers in rising order, and without additional
            seconds; between them it changes linearly, and above the last one it does not change. Empty: as the
            micro-batches say.
        resize_s: how long all workers of the job pause when their number changes, by the number after the change.
            Empty: as `Costs` say.
        fail_at: the job fails at these steps, once at each.
        checkpoint_every: in steps. None: the state is saved only when the job is paused or stopped.
    """

    num_steps: int
    step_s: float
    num_micro_batches: int | None = None
    overhead_s: float = 0.0
    fixed_s: float = 0.0
    node_s: float = 0.0
    speedups: Curve = ()
    resize_s: Curve = ()
    fail_at: tuple[int, ...] = ()
    checkpoint_every: int | None = None

    def seconds_per_step(self, num_workers: int, num_nodes: int = 1) -> float:
        """Return how long a step takes, in seconds.

        >>> load = Load(num_steps=1, step_s=8.0, num_micro_batches=4)
        >>> [load.seconds_per_step(number) for number in (1, 2, 3, 4, 5)]
        [8.0, 4.0, 4.0, 2.0, 2.0]
        >>> load = Load(num_steps=1, step_s=8.0, speedups=((2, 1.6), (4, 0.8)))
        >>> [load.seconds_per_step(number) for number in (1, 2, 4, 8)]
        [8.0, 5.0, 10.0, 10.0]
        >>> load = Load(num_steps=1, step_s=8.0, fixed_s=1.0, node_s=0.5)
        >>> load.seconds_per_step(1), load.seconds_per_step(4), load.seconds_per_step(4, 3)
        (9.0, 3.0, 4.0)
        """
        overhead_s = self.overhead_s if num_workers > 1 else 0.0
        between_s = self.node_s * (num_nodes - 1) if num_nodes > 1 else 0.0
        return self.step_s / self._divide_among(num_workers) + overhead_s + self.fixed_s + between_s

    def num_useful(self, num_workers: int) -> float:
        """Return how many workers would be as fast if they cost nothing to combine: on one node, without overhead.

        >>> Load(num_steps=1, step_s=3.0, fixed_s=1.0).num_useful(3)
        2.0
        """
        if not self.fixed_s:
            return self._divide_among(num_workers)
        return (self.step_s + self.fixed_s) / (self.step_s / self._divide_among(num_workers) + self.fixed_s)

    def pause_s(self, num_workers: int, costs: Costs) -> float:
        """Return how long all workers pause when their number has changed to this one.

        >>> Load(num_steps=1, step_s=1.0, resize_s=((1, 2.0), (3, 6.0))).pause_s(2, Costs())
        4.0
        """
        curve = self.resize_s or costs.resize_by_size
        return read_between(curve, num_workers) if curve else costs.resize_s

    def _divide_among(self, num_workers: int) -> float:
        if self.speedups:
            return read_between(((1, 1.0), *self.speedups), num_workers)
        total = self.num_micro_batches
        if total is None:
            return float(num_workers)
        return total / -(-total // num_workers)

    def to_program(self) -> tuple[str, ...]:
        """Return the command line of a program with this load."""
        return ("made-up.py", msgspec.json.encode(self).decode())

    @classmethod
    def from_program(cls, program: Sequence[str]) -> Load:
        """Read the load from a command line."""
        return decode(program[1], cls)
