"""How often a checkpoint is due. Pure; reads no clock and saves nothing."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, cast

from legato.core.errors import UsageError

Unit = Literal["steps", "epochs", "s"]

_FORM = re.compile(r"(?P<amount>\d+|\d+\.\d+(?=s$))(?P<unit>steps|epochs|s|step|epoch)")


@dataclass(frozen=True, slots=True)
class CheckpointInterval:
    """The interval between checkpoints, such as ``100steps``, ``2epochs`` or ``60s``."""

    amount: float
    unit: Unit

    @classmethod
    def parse(cls, text: str) -> CheckpointInterval:
        """Read an interval.

        Raises:
            UsageError: the text has none of the three forms, or its number is not above 0.

        >>> CheckpointInterval.parse("100steps"), CheckpointInterval.parse("1epoch")
        (CheckpointInterval(amount=100.0, unit='steps'), CheckpointInterval(amount=1.0, unit='epochs'))
        """
        match = _FORM.fullmatch(text.strip())
        if match is None or float(match["amount"]) <= 0 or not math.isfinite(float(match["amount"])):
            raise UsageError(
                f"Cannot save checkpoints every {text!r}: not understood. "
                "Write a number above 0 with its unit, such as '100steps', '2epochs' or '60s'."
            )
        unit = match["unit"] if match["unit"].endswith("s") else match["unit"] + "s"
        return cls(float(match["amount"]), cast(Unit, unit))

    def due(self, *, step: int, epochs_ended: range, now: float, last: float) -> bool:
        """Return whether a checkpoint is due after a step.

        Args:
            step: number of the step in the job, from 1.
            epochs_ended: numbers, from 1, of the epochs that ended with the step.
            now: the time in seconds, by the clock that ``last`` was read from.
            last: the time in seconds at which the last checkpoint was saved, or the training began.

        >>> CheckpointInterval.parse("10steps").due(step=20, epochs_ended=range(0), now=0.0, last=0.0)
        True
        >>> CheckpointInterval.parse("2epochs").due(step=20, epochs_ended=range(3, 4), now=0.0, last=0.0)
        False
        >>> CheckpointInterval.parse("60s").due(step=20, epochs_ended=range(0), now=161.0, last=100.0)
        True
        """
        match self.unit:
            case "steps":
                return step % int(self.amount) == 0
            case "epochs":
                return any(number % int(self.amount) == 0 for number in epochs_ended)
            case "s":
                return now - last >= self.amount
