"""Keeps which part of a step each worker waits for data, from the reports of its steps. Pure; decides nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from legato.core.wire import Progress

_LONGEST_S: Final = 1e9
_RECENT_S: Final = 60.0
_SMOOTHING_S: Final = 10.0  # after so many seconds of steps, the weight of earlier ones is a third


class DataWaits:
    """The shares of all workers.

    A worker that has lost its connection repeats its reports of all steps in one, so the first report after a
    connection does not count.
    """

    def __init__(self) -> None:
        self._sums: dict[int, tuple[float, float]] = {}
        self._untaken: dict[int, tuple[float, float]] = {}
        self._known_until: dict[int, float] = {}
        self._connected: set[int] = set()

    def note_connected(self, worker: int) -> None:
        """Leave out the next report of a worker."""
        self._connected.add(worker)

    def note(self, worker: int, progress: Progress, now: float) -> None:
        """Handle a report. Any program may send one in the name of a worker, so impossible numbers are left out.

        >>> waits, said = DataWaits(), {"first_step": 1, "last_step": 9, "epoch": 0, "loss": None, "num_samples": 8}
        >>> waits.note(1, Progress(**said, num_steps=9, num_epochs=1, measured_s=2.0, waited_s=1.5), 10.0)
        >>> waits.share(1, 70.0), waits.share(1, 71.0), waits.share(2, 10.0), waits.take(), waits.take()
        (0.75, None, None, {1: 0.75}, {})
        """
        if worker in self._connected:
            self._connected.discard(worker)
            return
        measured_s, waited_s = progress.measured_s, progress.waited_s
        if not (0 <= waited_s <= measured_s and 0 < measured_s <= _LONGEST_S):
            return
        kept = math.exp(-measured_s / _SMOOTHING_S)
        self._known_until[worker] = now + max(_RECENT_S, 2 * measured_s)
        measured, waited = self._sums.get(worker, (0.0, 0.0))
        self._sums[worker] = measured * kept + measured_s, waited * kept + waited_s
        measured, waited = self._untaken.get(worker, (0.0, 0.0))
        self._untaken[worker] = measured + measured_s, waited + waited_s

    def share(self, worker: int, now: float) -> float | None:
        """Return the part of the last steps' time that a worker waited for data, 0 to 1.

        None: not known, or it has not reported a step for a minute, or for twice as long as its last ones took.
        """
        if now > self._known_until.get(worker, -math.inf):
            return None
        measured, waited = self._sums[worker]
        return min(waited / measured, 1.0)

    def largest(self, workers: Iterable[int], now: float) -> float | None:
        """Return the largest share of some workers: as much of a step all of them wait, because they step together."""
        return max((share for worker in workers if (share := self.share(worker, now)) is not None), default=None)

    def take(self) -> dict[int, float]:
        """Return the share of each worker that has reported since the last call, for the time since then."""
        untaken, self._untaken = self._untaken, {}
        return {worker: min(waited / measured, 1.0) for worker, (measured, waited) in untaken.items()}
