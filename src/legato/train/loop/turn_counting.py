"""Notices signs that the result depends on the turns of a program's loop, whose number depends on the workers. Pure.

Workers that have equally many turns hold the same state, so the agreement check finds nothing. The result still differs
from that of another number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

# A program that counts turns loses every second step or more. One that leaves out a step now and then, because its
# gradient is too large, loses few.
_LOST: Final = 2
_USED: Final = 1
_TOO_MANY: Final = 4


class TurnCounting:
    """What was noticed so far, each sign once."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._rates: Sequence[float] | None = None
        self._sums: Mapping[str, int] | None = None
        self._left_step: int | None = None
        self._num_lost = 0

    def begin_step(self, read_sums: Callable[[], Mapping[str, int]] | None) -> None:
        """Begin a step of this worker.

        Args:
            read_sums: returns checksums of what only `optimizer.step()` should change, by name; None in most steps,
                because this takes time.
        """
        self._rates = None
        self._sums = read_sums() if read_sums is not None and "change" not in self._known else None

    def find_changes(self, step: int, read_sums: Callable[[], Mapping[str, int]]) -> str | None:
        """Return a warning if the program has changed something in the turns of a step, before the step is complete.

        Args:
            step: number of the step, from 1.
            read_sums: returns checksums as in `begin_step`.
        """
        if self._sums is None:
            return None
        sums = read_sums()
        changed = [name for name, total in self._sums.items() if sums.get(name, total) != total]
        if not changed:
            return None
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return self._once(
            "change",
            f"The program changed {changed[0]}{more} in a turn of step {step} before the step was complete. How often "
            "a worker does that depends on the number of workers, and so does the result. Change parameters, also "
            "those of the average of a model, under `if run.stepped:`, after optimizer.step(). If a forward pass "
            "changes them, make them buffers.",
        )

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

    def end_step(self, step: int, loss: float | None, *, is_lost: bool) -> str | None:
        """Return a warning if no optimizer acted in a step, nor in others shortly before it.

        Args:
            step: number of the step, from 1.
            loss: of the step. A program leaves a step out if its loss is not finite.
            is_lost: no optimizer acted in it.
        """
        if loss is not None and not math.isfinite(loss):
            return None
        self._num_lost = max(0, self._num_lost + (_LOST if is_lost else -_USED))
        if self._num_lost < _TOO_MANY:
            return None
        return self._once(
            "gradient",
            f"No optimizer acted in step {step}, and in others shortly before it, so their gradients are lost: a turn "
            "has completed each of these steps without optimizer.step(). If the program counts turns to accumulate "
            "gradients, leave this out: Legato accumulates the micro-batches of a step, and the number of turns "
            "depends on the workers. Call optimizer.step() in every turn.",
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
