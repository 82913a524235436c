"""Runs actions of the whole job between steps, and gives their result to all workers.

If the worker whose result counts dies, another one repeats the action. A worker that joins later receives the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from legato.train.loop.elastic import Run

_ONE: Final = [(0, 0)]


class _Nothing(torch.nn.Module):
    """Returns its inputs; an evaluation needs a model."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs


class Together:
    """Runs an action as an evaluation of one sample, because the runtime repeats evaluations and shares their results.

    Args:
        run: of this worker.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._nothing = _Nothing()

    def do_all(self, act: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Run an action that returns several numbers by name; otherwise as `do`."""
        found: dict[str, float] = self._run.evaluate(self._nothing, _ONE, lambda _, __: act())  # type: ignore[arg-type]
        return found

    def do(self, act: Callable[[], float]) -> float:
        """Run an action. Every worker must call this at the same place of its loop.

        Args:
            act: called on every worker, without gradients; the random generators are restored afterwards. It may check
                whether its worker is rank 0.

        Returns:
            The result of one worker, the same on all workers.
        """

        def measure(_: Any, __: Any) -> float:
            return float(act())

        found: float = self._run.evaluate(self._nothing, _ONE, measure)  # type: ignore[arg-type]  # of one sample
        return found
