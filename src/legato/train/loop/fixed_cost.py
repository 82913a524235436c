"""Measures what each micro-batch of a step costs whatever its size, and advises larger ones if that is notable.

The cost is the time that Legato itself takes for a micro-batch: seeding, bookkeeping, buffers. Adding up gradients does
not count, because a plain loop that accumulates gradients does the same.
"""

from __future__ import annotations

from typing import Final

from legato.core.wire import COST_ADVICE

NOTABLE_SHARE: Final = 0.05
NUM_COLD: Final = 10
NUM_MEASURED: Final = 20


class FixedCost:
    """Adds up the cost of the micro-batches in some early steps of this worker."""

    def __init__(self) -> None:
        self._num_steps = 0
        self._num_micro_batches = 0
        self._cost_s = self._steps_s = 0.0

    @property
    def is_measuring(self) -> bool:
        """Whether there are steps to measure."""
        return self._num_steps < NUM_COLD + NUM_MEASURED

    def add_step(self, step_s: float, cost_s: float, num_micro_batches: int) -> bool:
        """Count a step of this worker; return whether it was the last one that is measured.

        Args:
            step_s: seconds from its first micro-batch to the program's next turn after its last one.
            cost_s: what Legato took of that for the micro-batches.
            num_micro_batches: of this worker in this step.
        """
        self._num_steps += 1
        if self._num_steps > NUM_COLD:
            self._steps_s += step_s
            self._cost_s += cost_s
            self._num_micro_batches += num_micro_batches
        return not self.is_measuring

    def advise(self, micro_batch_size: int, num_micro_batches: int, num_workers: int) -> str | None:
        """Return what the user should know, or None if the cost is not notable or cannot be avoided.

        Args:
            micro_batch_size: samples of a micro-batch.
            num_micro_batches: of a full step, on all workers.
            num_workers: that train now; fewer micro-batches than workers would leave some without work.
        """
        if not self._steps_s or self._cost_s < NOTABLE_SHARE * self._steps_s:
            return None
        factors = [
            factor for factor in range(2, num_micro_batches // num_workers + 1) if num_micro_batches % factor == 0
        ]
        if not factors:
            return None
        enough = [factor for factor in factors if self._share(factor) < NOTABLE_SHARE]
        factor = enough[0] if enough else factors[-1]
        fewer = num_micro_batches // factor
        many = f"{fewer} micro-batches" if fewer > 1 else "one micro-batch"
        return (
            f"{COST_ADVICE} {self._share(1):.0%} of the time of a step: "
            f"{1e6 * self._cost_s / self._num_micro_batches:.0f} µs for each of the {num_micro_batches} micro-batches, "
            f"whatever their size. With micro_batch_size={micro_batch_size * factor}, a step has {many} and this share "
            f"is about {self._share(factor):.0%}; at most {fewer} worker{'s' * (fewer > 1)} can then share a step. "
            "Another micro_batch_size gives other results."
        )

    def _share(self, factor: int) -> float:
        """Return the share of the cost if micro-batches were larger by a factor."""
        cost_s = self._cost_s / factor
        return cost_s / (self._steps_s - self._cost_s + cost_s)
