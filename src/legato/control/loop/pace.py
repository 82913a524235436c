"""Speed of a job and cost of its resizes, from occasional reports. Pure; decides nothing."""

from __future__ import annotations

from typing import Final

import msgspec

_SMOOTHING: Final = 0.3


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements from the reports so far.

    Args:
        step: the last one that was reported.
        num_workers: at that time.
        noted_at: when that step was first reported.
        raster_s: uncertainty: the step may have ended up to so many seconds earlier.
        heard_at: when the last report came.
        step_s: seconds per step with this number of workers, smoothed. None: not known yet.
        resize_s: seconds that the last growth cost, at least. None: not known yet.
    """

    step: int | None = None
    num_workers: int = 0
    noted_at: float = 0.0
    raster_s: float = 0.0
    heard_at: float | None = None
    step_s: float | None = None
    resize_s: float | None = None

    def after(self, step: int | None, num_workers: int, now: float) -> Pace:
        """Return the measurements after one more report.

        A resize is visible only as a longer step. It is measured when the job grew, because later steps are then not
        slower. Time that the interval between reports can explain is not counted.

        >>> pace = Pace()
        >>> for step, num_workers, now in [(0, 1, 0), (1, 1, 10), (2, 1, 20), (2, 1, 30), (2, 1, 79), (3, 2, 80)]:
        ...     pace = pace.after(step, num_workers, now)
        >>> pace.resize_s
        39.0
        """
        if self.heard_at is not None and now < self.heard_at:
            # The clock was set back, so the duration is unknown.
            step_s = self.step_s if num_workers == self.num_workers else None
            return Pace(
                step=step, num_workers=num_workers, noted_at=now, heard_at=now, step_s=step_s, resize_s=self.resize_s
            )
        heard = msgspec.structs.replace(self, heard_at=now)
        if step is None or (self.step is not None and step <= self.step):
            return heard
        raster_s = now - self.heard_at if self.heard_at is not None else 0.0
        step_s, resize_s = None, self.resize_s
        if self.step is not None:
            num_steps, elapsed_s = step - self.step, now - self.noted_at
            if num_workers == self.num_workers:
                measured = elapsed_s / num_steps
                step_s = measured if self.step_s is None else self.step_s + _SMOOTHING * (measured - self.step_s)
            elif num_workers > self.num_workers and self.step_s is not None:
                resize_s = max(elapsed_s - num_steps * self.step_s - raster_s - self.raster_s, 0.0)
        return Pace(
            step=step,
            num_workers=num_workers,
            noted_at=now,
            raster_s=raster_s,
            heard_at=now,
            step_s=step_s,
            resize_s=resize_s,
        )
