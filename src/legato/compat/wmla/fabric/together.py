"""Actions of the whole job between steps: each is done once, and all workers know its result.

If the worker that does it dies, another one does it again; a worker that joins later receives the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from legato.train.loop.elastic import Run

_ONE: Final = [(0, 0)]


class _Nothing(torch.nn.Module):
    """Stands where an evaluation has its model."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


class Together:
    """Does things as an evaluation of one sample, which is what the runtime repeats, agrees on and remembers.

    Args:
        run: of this worker.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._nothing = _Nothing()

    def do_all(self, act: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Do something that returns several figures by name; otherwise as `do`."""
        found: dict[str, float] = self._run.evaluate(self._nothing, _ONE, lambda _, __: act())  # type: ignore[arg-type]
        return found

    def do(self, act: Callable[[], float]) -> float:
        """Do something; every worker must come to it alike.

        Args:
            act: called on every worker, without gradients and without a trace in the random numbers. It may look
                whether its worker speaks for the job.

        Returns:
            What it returned on one worker, the same on all.
        """

        def measure(_: Any, __: Any) -> float:
            return float(act())

        found: float = self._run.evaluate(self._nothing, _ONE, measure)  # type: ignore[arg-type]  # of one sample
        return found
