"""The learning-rate schedulers that a program has made: joining workers must get their state.

Programs for WMLA do not pass them to Legato; they are found by their optimizer. Steps none of them.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler

from legato.compat.wmla.fabric.plain_values import CannotTravel, pack, unpack
from legato.core.errors import ProgramError
from legato.train.loop.schedulers import find_schedulers


class Schedule:
    """A scheduler of the program, which acts at most once per step where its step is called in that of the program.

    Args:
        scheduler: of the optimizer in training. Its method ``step`` is replaced.

    Attributes:
        optimizer: of the scheduler.
        scheduler: as given.
    """

    def __init__(self, scheduler: LRScheduler) -> None:
        self.optimizer = scheduler.optimizer
        self.scheduler = scheduler
        self._is_in_turn = self._is_due = False
        self._act: Callable[..., Any] = scheduler.step

        @functools.wraps(scheduler.step)
        def step(*args: Any, **kwargs: Any) -> Any:
            if not self._is_in_turn:
                return self._act(*args, **kwargs)
            if args or kwargs:
                raise ProgramError(
                    f"fn_step_train gives {type(scheduler).__name__}.step() a value of its own micro-batch, which is "
                    "not that of the job. Call it without one, or in a user_callback."
                )
            self._is_due = True
            return None

        scheduler.step = step  # type: ignore[method-assign]

    def begin_turn(self) -> None:
        """Take note that the program's own step begins: every worker goes through another number of them."""
        self._is_in_turn = True

    def end_turn(self, *, stepped: bool) -> None:
        """Take note that it is over; act if it was to, and the step of the job is complete."""
        self._is_in_turn = False
        if stepped and self._is_due:
            self._is_due = False
            self._act()

    def state_dict(self) -> dict[str, Any]:
        """Return the scheduler's state, of which its replaced method is no part."""
        return _plain_of({name: value for name, value in self.scheduler.state_dict().items() if name != "step"})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""
        self.scheduler.load_state_dict(unpack(dict(state), None))


def find_schedules(optimizer: torch.optim.Optimizer) -> list[Schedule]:
    """Return the schedulers that a program has made of an optimizer, in the same order in every worker.

    Those that are parts of others come with these.
    """
    return [Schedule(scheduler) for scheduler in find_schedulers(optimizer)]


def _plain_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can travel of a scheduler's state: functions named in it are recreated with it."""
    found = {}
    for name, value in values.items():
        with contextlib.suppress(CannotTravel):
            found[name] = pack(value)
    return found
