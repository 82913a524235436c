"""Finds numbers that a program keeps as attributes of modules and optimizers, and which training has changed.

Such attributes do not reach workers that join, nor a job that resumes: a module may count, or lower a temperature from
epoch to epoch. Their values travel with the state only to be compared. Never changes an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

Numbers = dict[str, int | float]
_NUM_STEPS: Final = 4  # in which a number changes in the same direction until it counts as a counter


class Attributes:
    """The numbers that some models and optimizers have as public attributes, as they are at construction.

    Args:
        models: each with a title for messages, as the optimizers.
        optimizers: of the run.
    """

    def __init__(
        self, models: Sequence[tuple[str, torch.nn.Module]], optimizers: Sequence[tuple[str, torch.optim.Optimizer]]
    ) -> None:
        self._models = models
        self._optimizers = optimizers
        self._first = self._read()
        self._received: set[str] = set()
        self._expected: dict[str, tuple[int | float, int | float]] = {}
        self._before: Numbers | None = None
        self._num_steps = 0
        self._rises: dict[str, bool] = {}
        self._last: Numbers = {}

    def changed(self) -> Numbers:
        """Return the numbers that training has changed, by names that users know."""
        return {
            name: value
            for name, value in self._read().items()
            if name in self._received or self._first.get(name, value) != value
        }

    def compare(self, saved: Mapping[str, int | float]) -> None:
        """Note which numbers have their first value here, and another one in a worker that has trained.

        The program may still set them.
        """
        own = self._read()
        self._received |= set(saved)
        self._expected = {
            name: (own[name], value)
            for name, value in saved.items()
            if name in own and own[name] == self._first.get(name) and own[name] != value
        }

    def find_stale(self) -> str | None:
        """Return a warning if the program has not set some number since `compare`; each is reported once.

        Call it in the first step after the loading, before the step is complete.
        """
        expected, self._expected = self._expected, {}
        if not expected:
            return None
        own = self._read()
        stale = [(name, mine, theirs) for name, (mine, theirs) in expected.items() if own.get(name) == mine]
        if not stale:
            return None
        name, mine, theirs = stale[0]
        more = f", and {len(stale) - 1} more differ" if len(stale) > 1 else ""
        return (
            f"A worker continues with {name} = {_told(mine)}, where training has changed it to {_told(theirs)}{more}. "
            "Legato does not transfer numbers that are attributes. If the result depends on this one, it depends on "
            "when workers join and the job resumes. Compute it from run.epoch or run.step in the loop, or keep it in a "
            "buffer, in param_groups of the optimizer, or in an object that you pass to run.prepare."
        )

    def end_first_turn(self) -> None:
        """End the first of several turns of a step in which `find_counters` will be called; some steps are enough.

        What the program sets to one value in each turn of a step has this value from now on.
        """
        self._before = self._read() if self._num_steps < _NUM_STEPS else None

    def find_counters(self) -> str | None:
        """Return a warning if the later turns of several steps all let a number rise, or all let it fall; once.

        Call it before the step is complete.
        """
        before, self._before = self._before, None
        if before is None:
            return None
        now = self._read()
        rises = {name: now[name] > old for name, old in before.items() if now.get(name, old) != old}
        if self._num_steps:
            # Also from step to step: a number that changes at random rises in several steps by chance.
            last = self._last
            rises = {
                name: up for name, up in rises.items() if up is self._rises.get(name) is (before[name] > last[name])
            }
        self._rises, self._last = rises, now
        self._num_steps += 1
        if self._num_steps < _NUM_STEPS or not self._rises:
            return None
        name = next(iter(self._rises))
        more = f", and {len(self._rises) - 1} more likewise" if len(self._rises) > 1 else ""
        return (
            f"The turns of a step have changed {name} from {_told(before[name])} to {_told(now[name])}{more}, as those "
            "of earlier steps did. How often a worker does that depends on the number of workers. If the result "
            "depends on this number, compute it from run.step, or make it an integer buffer: it counts steps."
        )

    def _read(self) -> Numbers:
        return dict(self._walk())

    def _walk(self) -> Iterator[tuple[str, int | float]]:
        for title, model in self._models:
            for path, module in model.named_modules():
                of = f"{path} ({type(module).__name__}) of {title}" if path else title
                yield from _numbers_of(module, of)
        for title, optimizer in self._optimizers:
            yield from _numbers_of(optimizer, title)


def _numbers_of(thing: Any, of: str) -> Iterator[tuple[str, int | float]]:
    for name, value in vars(thing).items():
        if not name.startswith("_") and _is_number(value):
            yield f"{name} of {of}", value


def _is_number(value: Any) -> bool:
    # NaN says that there is no number yet, and equals nothing, not even itself. Very large numbers are keys or bits.
    # A bool may say that a module has made something that does not travel either.
    return (type(value) is float and not math.isnan(value)) or (type(value) is int and value.bit_length() <= 64)


def _told(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:.6g}"
