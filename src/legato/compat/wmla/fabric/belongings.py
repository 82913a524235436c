"""What a program keeps besides its model and its optimizer, and who joins must be given: schedules, and callbacks.

Programs for WMLA hand neither over. Schedulers are found by their optimizer; of a callback those attributes travel that
have changed since the beginning, and are plain values or tensors. So who joins has what all others have, and does
between two steps what they do.
"""

from __future__ import annotations

import copy
import functools
import gc
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy
import torch
from torch.optim.lr_scheduler import LRScheduler

from legato.core.errors import ProgramError

_GIVEN: Final = ("params", "model")
_MISSING: Final = object()
_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, torch.Tensor)


class CallbackMemory:
    """What a callback remembers of the training, as something that has state.

    What it was made with is each worker's own, such as the path of a log, and comes to no other.

    Args:
        callback: of the program; it has not been called yet.
    """

    def __init__(self, callback: Any) -> None:
        self._values: dict[str, Any] = getattr(callback, "__dict__", {})
        self._first = copy.deepcopy(self._known())

    def state_dict(self) -> dict[str, Any]:
        """Return its attributes that are not what they were in the beginning, as far as they can travel."""
        known = self._known()
        return {name: value for name, value in known.items() if not _is_same(value, self._first.get(name, _MISSING))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`; what cannot travel stays as it is."""
        self._values.update(copy.deepcopy(self._first))
        for name, value in state.items():
            self._values[name] = _placed_as(value, self._values.get(name))

    def _known(self) -> dict[str, Any]:
        return _plain_of({name: value for name, value in self._values.items() if name not in _GIVEN})


class Schedule:
    """A scheduler of the program, which acts at most once per step where its step is called in that of the program.

    Args:
        scheduler: of the optimizer in training. Its method ``step`` is replaced.
    """

    def __init__(self, scheduler: LRScheduler) -> None:
        self.optimizer = scheduler.optimizer
        self._scheduler = scheduler
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
        return _plain_of({name: value for name, value in self._scheduler.state_dict().items() if name != "step"})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo `state_dict`."""
        self._scheduler.load_state_dict(dict(state))


def find_schedules(optimizer: torch.optim.Optimizer) -> list[Schedule]:
    """Return the schedulers that a program has made of an optimizer, in the same order in every worker.

    Those that are parts of others come with these.
    """
    found = [thing for thing in gc.get_objects() if issubclass(type(thing), LRScheduler)]
    found = [scheduler for scheduler in found if getattr(scheduler, "optimizer", None) is optimizer]
    parts = {id(part) for scheduler in found for part in getattr(scheduler, "_schedulers", ())}
    whole = [scheduler for scheduler in found if id(scheduler) not in parts]
    whole.sort(key=lambda scheduler: (type(scheduler).__qualname__, repr(_plain_of(scheduler.state_dict()))))
    return [Schedule(scheduler) for scheduler in whole]


def _plain_of(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _without_numpy(value) for name, value in values.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return isinstance(value, dict) and all(_is_plain(part) for pair in value.items() for part in pair)
    if type(value) in (list, tuple):
        return all(map(_is_plain, value))
    return type(value) in _PLAIN or isinstance(value, numpy.generic)


def _is_same(value: Any, first: Any) -> bool:
    if type(value) is not type(first):
        return False
    if isinstance(value, torch.Tensor):
        return value.shape == first.shape and value.dtype == first.dtype and torch.equal(value, first.to(value.device))
    if isinstance(value, dict):
        return value.keys() == first.keys() and all(_is_same(part, first[name]) for name, part in value.items())
    if isinstance(value, list | tuple):
        return len(value) == len(first) and all(map(_is_same, value, first))
    return bool(value == first)


def _without_numpy(value: Any) -> Any:
    if isinstance(value, dict):
        return {_without_numpy(name): _without_numpy(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_without_numpy, value))
    return value.item() if isinstance(value, numpy.generic) else value


def _placed_as(value: Any, own: Any) -> Any:
    """Return a value with its tensors where this worker has its own."""
    if isinstance(value, torch.Tensor) and isinstance(own, torch.Tensor):
        return value.to(own.device)
    if isinstance(value, dict) and isinstance(own, dict):
        return {name: _placed_as(part, own.get(name)) for name, part in value.items()}
    return value
