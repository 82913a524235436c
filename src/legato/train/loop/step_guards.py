"""Guards on a program's optimizers, schedulers and gradient scalers, so that a plain loop acts once per step.

The loop body runs once per micro-batch; its calls of these objects take effect only in the turn in which the step's
gradient is complete. The guards replace methods of the user's objects; the objects stay the same.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from legato.core.errors import ProgramError


class Turn:
    """The present turn of the program's loop over batches. The stepper moves it on; the guards ask it when to act.

    Args:
        count_rounds: returns how many rounds (steps and evaluation rounds) are complete.

    Attributes:
        is_open: the program is in a turn.
        stepped: the step's gradient is complete, so optimizers act in this turn.
    """

    def __init__(self, count_rounds: Callable[[], int]) -> None:
        self._count_rounds = count_rounds
        self.is_open = self.stepped = False

    @property
    def num_rounds(self) -> int:
        """The number of complete rounds."""
        return self._count_rounds()

    def begin(self) -> None:
        """Begin a turn. It has not completed a step yet."""
        self.is_open, self.stepped = True, False

    def complete_step(self) -> None:
        """Note that the step is complete in this turn."""
        self.stepped = True

    def end(self) -> None:
        """End the turn: the program is between two steps, or outside its loop."""
        self.is_open = self.stepped = False


class OptimizerGuard:
    """Lets ``optimizer.step()`` act only in the turn that completes a step, and makes an idle ``zero_grad()`` cheap.

    Legato takes the gradients of a turn that completes no step, so ``zero_grad()`` finds nothing to do there; torch's
    own way to that finding costs as much as a small micro-batch's share of a step.

    Args:
        optimizer: whose method is replaced.
        turn: of the program's loop.

    Attributes:
        has_acted: the program called ``optimizer.step()`` in the last turn that completed a step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, turn: Turn) -> None:
        self.optimizer = optimizer
        self.has_acted = False
        self._came_early = False
        original: Callable[..., Any] = optimizer.step

        @functools.wraps(original)
        def step(_: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
            if closure is not None:
                raise ProgramError(
                    f"{type(optimizer).__name__}.step(closure) evaluates the loss by itself, which cannot be split "
                    "over workers. Use an optimizer whose step() needs no closure."
                )
            if not (turn.is_open or turn.stepped) and _has_gradient(optimizer):
                raise ProgramError(
                    f"{type(optimizer).__name__}.step() was called outside of the loop over run.batches, where it "
                    "trains nothing: the gradients are of this worker alone. Take the batches from "
                    "run.batches(dataset) instead of a DataLoader of your own, and call run.backward(loss) in its loop."
                )
            self._came_early = not turn.stepped
            if not turn.stepped:
                return None
            self.has_acted = True
            return original()

        # A bound method, as torch's schedulers expect it if the program makes one after this.
        optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]
        if getattr(optimizer.zero_grad, "__func__", None) is torch.optim.Optimizer.zero_grad:
            clear = optimizer.zero_grad

            @functools.wraps(torch.optim.Optimizer.zero_grad)
            def zero_grad(_: torch.optim.Optimizer, set_to_none: bool = True) -> None:
                if turn.stepped or _has_gradient(optimizer):
                    clear(set_to_none)

            optimizer.zero_grad = types.MethodType(zero_grad, optimizer)  # type: ignore[method-assign]

    def end_turn(self, *, stepped: bool) -> None:
        """End a turn of the loop.

        Raises:
            ProgramError: the turn completed a step, but the program called this optimizer only before that.
        """
        came_early, self._came_early = self._came_early, False
        if stepped and came_early:
            raise ProgramError(
                f"{type(self.optimizer).__name__}.step() was called before the last backward pass of a turn, so it "
                "could not act. Put all optimizer steps of a turn behind all its backward passes."
            )


class SchedulerGuard:
    """Lets ``scheduler.step()`` act at most once per complete round, and in the loop over batches once per step.

    So the program may call it in that loop or after it, and a worker that joins in between does not step it twice.

    Args:
        scheduler: any object with a ``step`` method, as those of ``torch.optim.lr_scheduler``.
        turn: of the program's loop; counts the rounds.
    """

    def __init__(self, scheduler: Any, turn: Turn) -> None:
        self.scheduler = scheduler
        self.last_round = 0
        original = scheduler.step

        def step(*args: Any, **kwargs: Any) -> Any:
            if turn.num_rounds <= self.last_round or (turn.is_open and not turn.stepped):
                return None
            self.last_round = turn.num_rounds
            return original(*args, **kwargs)

        replace_method(scheduler, "step", step)
        if hasattr(scheduler, "state_dict"):
            replace_method(scheduler, "state_dict", _without_replacements(scheduler.state_dict))


class _Replacement:
    """A method of one object only. It does not hinder the program to save or copy the object."""

    def __init__(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        functools.update_wrapper(self, getattr(owner, name))
        self._owner, self._name, self._call = owner, name, call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)

    def __reduce__(self) -> Any:
        # A copy of the object has no attributes yet when its copy of this is made: it gets the method of its class.
        return getattr, (self._owner, self._name)


def replace_method(owner: Any, name: str, call: Callable[..., Any]) -> None:
    """Replace a method of one object; copies of the object, also in files, have the method of their class.

    Args:
        owner: the object.
        name: of its method.
        call: is called without the object.
    """
    setattr(owner, name, _Replacement(owner, name, call))


def _without_replacements(state_dict: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``state_dict`` without replaced methods: schedulers of torch count all attributes to their state."""

    def call(*args: Any, **kwargs: Any) -> Any:
        state = state_dict(*args, **kwargs)
        if not isinstance(state, dict):
            return state
        # A new dict: the state may be the object's own dict of attributes.
        return {name: value for name, value in state.items() if not isinstance(value, _Replacement)}

    return call


def _has_gradient(optimizer: torch.optim.Optimizer) -> bool:
    return any(tensor.grad is not None for group in optimizer.param_groups for tensor in group["params"])


def guard_scaler(scaler: Any, turn: Turn) -> None:
    """Let a ``torch.amp.GradScaler`` unscale, step and update only in the turn that completes a step."""
    for name in ("unscale_", "step", "update"):
        replace_method(scaler, name, _guarded(getattr(scaler, name), turn))


def _guarded(original: Callable[..., Any], turn: Turn) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if turn.stepped else None

    return call
