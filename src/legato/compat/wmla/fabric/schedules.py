"""Finds the learning-rate schedulers of a program, so that joining workers get their state.

Programs for WMLA do not pass schedulers to Legato, so it finds them by their optimizer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from legato.compat.wmla.fabric.plain_values import CannotTravel, pack, unpack
from legato.core.errors import ProgramError
from legato.train.loop.schedulers import find_schedulers
from legato.train.loop.step_guards import replace_method


class Schedule:
    """A scheduler of the program. If ``fn_step_train`` calls its ``step()``, it acts only once per step of the job.

    Args:
        scheduler: of the optimizer that trains the model. Its method ``step`` is replaced.

    Attributes:
        optimizer: of the scheduler.
        scheduler: the program's scheduler.
    """

    def __init__(self, scheduler: LRScheduler) -> None:
        self.optimizer = scheduler.optimizer
        self.scheduler = scheduler
        self._is_in_turn = self._is_due = False
        self._act: Callable[..., Any] = scheduler.step

        def step(*args: Any, **kwargs: Any) -> Any:
            if not self._is_in_turn:
                return self._act(*args, **kwargs)
            if args or kwargs:
                raise ProgramError(
                    f"fn_step_train calls {type(scheduler).__name__}.step() with a value of its own micro-batch, which "
                    "differs between workers. Call it without a value, or in a user_callback."
                )
            self._is_due = True
            return None

        replace_method(scheduler, "step", step)

    def begin_turn(self) -> None:
        """Begin a turn with ``fn_step_train``: calls of ``step()`` now wait for the end of the job's step."""
        self._is_in_turn = True

    def end_turn(self, *, stepped: bool) -> None:
        """End a turn. If it completes a step of the job and ``step()`` was called since the last one, do it now."""
        self._is_in_turn = False
        if stepped and self._is_due:
            self._is_due = False
            self._act()

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state without its replaced method."""
        return _plain_of({name: value for name, value in self.scheduler.state_dict().items() if name != "step"})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned."""
        self.scheduler.load_state_dict(unpack(dict(state), None))


def find_schedules(optimizer: torch.optim.Optimizer) -> list[Schedule]:
    """Return the schedulers that a program has created for an optimizer, in the same order in every worker.

    A scheduler that is part of another one is not returned by itself.
    """
    return [Schedule(scheduler) for scheduler in find_schedulers(optimizer)]


def _plain_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a scheduler's state that can be sent; its functions exist in every worker."""
    found = {}
    for name, value in values.items():
        with contextlib.suppress(CannotTravel):
            found[name] = pack(value)
    return found
