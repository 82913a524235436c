"""Notices signs that a program counts the turns of its loop, whose number depends on the workers. Pure.

Workers that count the same number of turns hold the same state, so the agreement check finds nothing. The result still
differs from that of another number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence


class TurnCounting:
    """What was noticed so far, each sign once."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._rates: Sequence[float] | None = None
        self._left_step: int | None = None

    def begin_step(self) -> None:
        """Begin a step of this worker."""
        self._rates = None

    def end_first_turn(self, rates: Sequence[float]) -> None:
        """Note the learning rates after the first of several turns of a step."""
        self._rates = rates

    def complete_step(self, step: int, read_rates: Callable[[], Sequence[float]]) -> str | None:
        """Return a warning if the learning rates have changed between the turns of a step.

        Args:
            step: number of the step, from 1.
            read_rates: returns the present learning rates.
        """
        if self._rates is None:
            return None
        changed = [(old, new) for old, new in zip(self._rates, read_rates(), strict=False) if old != new]
        if not changed:
            return None
        old, new = changed[0]
        return self._once(
            "rate",
            f"The learning rate changed from {old:.6g} to {new:.6g} between two turns of step {step}. A program that "
            "computes it from a count of turns has another result with another number of workers, because each worker "
            "has other turns. Compute it from run.step.",
        )

    def lose_gradient(self, step: int) -> str | None:
        """Return a warning that no optimizer acted in a step.

        Args:
            step: number of the step, from 1.
        """
        return self._once(
            "gradient",
            f"No optimizer acted in step {step}, so its gradient is lost: a turn has completed the step without "
            "optimizer.step(). If the program counts turns to accumulate gradients, leave this out: Legato accumulates "
            "the micro-batches of a step, and the number of turns depends on the workers. Call optimizer.step() in "
            "every turn.",
        )

    def leave_step(self, step: int) -> None:
        """Note that the program has left its loop in the middle of a step, as a program that fails does too.

        Args:
            step: number of the step, from 1.
        """
        self._left_step = step

    def continue_program(self) -> str | None:
        """Return a warning if the program has left its loop in the middle of a step, and goes on."""
        step, self._left_step = self._left_step, None
        if step is None:
            return None
        return self._once(
            "loop",
            f"The program left the loop over run.batches in the middle of step {step}, whose micro-batches are lost. A "
            "program that counts turns has another result with another number of workers, because each worker has "
            "other turns. Count by run.step, and leave the loop under `if run.stepped:`.",
        )

    def _once(self, sign: str, text: str) -> str | None:
        if sign in self._known:
            return None
        self._known.add(sign)
        return text
