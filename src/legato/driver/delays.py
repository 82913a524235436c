"""Measures how long changes of membership pause a training, from the reports of its steps. Pure; decides nothing."""

from __future__ import annotations

from typing import Final, NamedTuple

_SMOOTHING: Final = 0.3


class _Change(NamedTuple):
    """The time between two reports in which the membership changed."""

    elapsed_s: float
    num_steps: int
    step_s_before: float


class Delays:
    """Measures what planned changes cost.

    Some steps between the two reports were done before the change and some after it. All of them are counted with the
    duration of the slower ones. So the measured cost is never too high, whether the job grew or shrank.
    """

    def __init__(self) -> None:
        self.last_s: float | None = None
        self._view: int | None = None
        self._step_s: float | None = None
        self._change: _Change | None = None

    def note(self, view: int, num_steps: int, elapsed_s: float, *, is_planned: bool) -> None:
        """Record a stretch of training between two reports.

        Args:
            view: view of its last step.
            num_steps: number of new steps in it.
            elapsed_s: its duration in seconds, without evaluations.
            is_planned: the change into this view was the driver's plan, not the answer to a death.

        >>> delays = Delays()
        >>> for view, num_steps, elapsed_s in [(1, 5, 1.0), (1, 5, 1.0), (2, 5, 1.5), (2, 10, 1.0)]:
        ...     delays.note(view, num_steps, elapsed_s, is_planned=True)
        >>> delays.last_s
        0.5
        """
        if self._view is None or view < self._view:
            self._forget(view)
            return
        if view > self._view:
            known = self._step_s
            self._forget(view)
            if is_planned and known is not None:
                self._change = _Change(elapsed_s, num_steps, known)
            return
        step_s = elapsed_s / num_steps
        if self._change is not None:
            slower_s = max(step_s, self._change.step_s_before)
            self.last_s = max(self._change.elapsed_s - self._change.num_steps * slower_s, 0.0)
            self._change = None
        self._step_s = step_s if self._step_s is None else self._step_s + _SMOOTHING * (step_s - self._step_s)

    def skip(self, view: int) -> None:
        """Leave out a stretch that contains other work than training."""
        self._forget(view)

    def _forget(self, view: int) -> None:
        self._view, self._step_s, self._change = view, None, None
