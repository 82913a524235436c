"""Undoes changes of schedulers that a joined worker's program repeats between two steps.

Programs of ElasticDL step their schedulers when `get_current_epoch` has grown. The program of a worker that joins has
seen no epoch; at its first step the present epoch seems new, and the program would change the received learning rate a
second time. So the state of schedulers and the settings of optimizers are restored there, unless the other workers
change them in the same place: because an epoch has really begun, or because they do so after every step.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any


class SchedulerGuard:
    """Watches schedulers and settings of optimizers between two steps.

    Args:
        optimizers: of the program.
        schedulers: of the program.
    """

    def __init__(self, optimizers: Sequence[Any], schedulers: Sequence[Any]) -> None:
        self._optimizers = tuple(optimizers)
        self._schedulers = tuple(schedulers)
        self._left: Any = None
        self._is_new_epoch = False
        self._has_just_joined = False
        self.acts_after_steps = False
        """Whether the program has changed something after a step with which no epoch began."""

    def join(self) -> None:
        """Record that this worker has received the state of a running training."""
        self._has_just_joined = True

    def leave_step(self, *, is_new_epoch: bool) -> None:
        """Record that a step is committed, and that the program's loop continues.

        Args:
            is_new_epoch: the earlier workers see an epoch that they have not seen before.
        """
        self._left, self._is_new_epoch = self._state(), is_new_epoch

    def enter_step(self) -> None:
        """Record that the program's loop has reached its next step."""
        left, self._left = self._left, None
        if left is None:
            return
        has_just_joined, self._has_just_joined = self._has_just_joined, False
        if self._is_new_epoch or left == self._state():
            return
        if has_just_joined and not self.acts_after_steps:
            self._restore(left)
        else:
            self.acts_after_steps = True

    def _state(self) -> tuple[list[Any], list[Any]]:
        groups = [
            [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
            for optimizer in self._optimizers
        ]
        return copy.deepcopy(groups), [copy.deepcopy(_own_state(scheduler)) for scheduler in self._schedulers]

    def _restore(self, state: tuple[list[Any], list[Any]]) -> None:
        groups, schedulers = state
        for optimizer, known in zip(self._optimizers, groups, strict=True):
            for group, settings in zip(optimizer.param_groups, known, strict=True):
                group.update(settings)
        for scheduler, known in zip(self._schedulers, schedulers, strict=True):
            scheduler.load_state_dict(known)


def _own_state(scheduler: Any) -> dict[str, Any]:
    # Without the replaced methods.
    return {name: value for name, value in scheduler.state_dict().items() if name != "step"}
