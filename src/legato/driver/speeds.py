"""Measures how fast a job trains with each number of workers, from the reports of its steps. Pure; decides nothing.

Training is cut into stretches of some seconds, and the median of the last ones counts: a pause of the disk, or of the
whole machine, is one slow stretch among many.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from legato.core.speed import FORGET_S

_STRETCH_S: Final = 2.0
_WARM_UP_S: Final = 5.0  # of each view: the first steps of new workers are slow
_NUM_STRETCHES: Final = 64
_LEAST_STRETCHES: Final = 8
_MAX_SIZES: Final = 16

Size = tuple[int, int]
"""Number of workers, and of the nodes on which they run."""


@dataclass(slots=True)
class _Measured:
    """The last stretches (samples, seconds) with one size, their median speed and the sum of their seconds."""

    stretches: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_NUM_STRETCHES))
    samples_per_s: float = 0.0
    measured_s: float = 0.0
    noted_at: float = 0.0

    def add(self, num_samples: float, elapsed_s: float, now: float) -> None:
        self.stretches.append((num_samples, elapsed_s))
        # Here and not for each status: a driver is asked for it more often than a stretch ends.
        self.samples_per_s = statistics.median(samples / seconds for samples, seconds in self.stretches)
        self.measured_s = sum(seconds for _, seconds in self.stretches)
        self.noted_at = now


class SpeedMeter:
    """Measures the speed with each number of workers and nodes."""

    def __init__(self) -> None:
        self._measured: dict[Size, _Measured] = {}
        self._view: int | None = None
        self._warm_up_s = 0.0
        self._num_samples = 0.0
        self._elapsed_s = 0.0

    def note(self, view: int, size: Size, num_samples: float, elapsed_s: float, now: float) -> None:
        """Record training between two reports.

        Args:
            view: in which the steps were done.
            size: of that view.
            num_samples: number of samples of the new steps.
            elapsed_s: seconds that they took, without evaluations.
            now: seconds on the caller's clock.

        >>> meter = SpeedMeter()
        >>> for second in range(40):
        ...     meter.note(1, (2, 1), 10, 1.0, second)
        >>> meter.list(40.0)
        [{'num_workers': 2, 'num_nodes': 1, 'samples_per_s': 10.0, 'measured_s': 34.0, 'age_s': 1.0}]
        """
        if view != self._view:
            # This stretch contains the change.
            self._view, self._warm_up_s, self._num_samples, self._elapsed_s = view, _WARM_UP_S, 0.0, 0.0
            return
        if self._warm_up_s > 0:
            self._warm_up_s -= elapsed_s
            return
        self._num_samples += num_samples
        self._elapsed_s += elapsed_s
        if self._elapsed_s >= _STRETCH_S:
            self._end_stretch(size, now)

    def _end_stretch(self, size: Size, now: float) -> None:
        known = self._measured.get(size)
        if known is None or now - known.noted_at > FORGET_S:
            known = _Measured()
        self._measured.pop(size, None)  # the size that was measured last comes last
        self._measured[size] = known
        known.add(self._num_samples, self._elapsed_s, now)
        self._num_samples, self._elapsed_s = 0.0, 0.0
        if len(self._measured) > _MAX_SIZES:
            del self._measured[next(iter(self._measured))]

    def list(self, now: float) -> list[dict[str, Any]]:
        """Return what is known of each size that was measured for long enough, the size measured last at the end."""
        return [
            {
                "num_workers": size[0],
                "num_nodes": size[1],
                "samples_per_s": known.samples_per_s,
                "measured_s": known.measured_s,
                "age_s": now - known.noted_at,
            }
            for size, known in self._measured.items()
            if len(known.stretches) >= _LEAST_STRETCHES
        ]
