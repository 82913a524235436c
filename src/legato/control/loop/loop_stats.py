"""Statistics of the rounds of a control loop, for operators. Decides nothing; only the loop writes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from legato.control.drivers.drivers import DriverReport, DriverState

TROUBLED: Final = (DriverState.GONE, DriverState.SILENT)


class LoopStats:
    """Counts and times of the rounds of one loop since its process started.

    Attributes:
        led_at: when this loop got the lease, seconds since 1970. None: another loop decides.
        done_at: when its last complete round ended. None: there was none, or another loop decides.
        num_done: number of complete rounds.
        num_failed: number of rounds that an error ended.
        elapsed_s: total duration of all complete rounds, in seconds.
        rest_s: how long this loop rests after its last round, in seconds.
        num_failed_calls: number of messages that could not be sent to drivers.
        drivers: number of drivers with failures in the last round, by state.
        left_out: number of jobs, queues and slots that the last round left out.
    """

    def __init__(self) -> None:
        self.led_at: float | None = None
        self.done_at: float | None = None
        self.num_done = 0
        self.num_failed = 0
        self.elapsed_s = 0.0
        self.rest_s = 0.0
        self.num_failed_calls = 0
        self.drivers: Counter[DriverState] = Counter()
        self.left_out: Counter[str] = Counter()

    def lead(self, now: float) -> None:
        """Note that this loop decides from now on."""
        self.led_at, self.done_at = now, None

    def follow(self) -> None:
        """Note that another loop decides."""
        self.led_at = self.done_at = None
        self.drivers.clear()
        self.left_out.clear()

    def look(self, reports: Iterable[DriverReport]) -> None:
        """Count the drivers with failures, by their state."""
        self.drivers = Counter(report.state for report in reports if report.state in TROUBLED)

    def end_round(self, now: float, elapsed_s: float) -> None:
        """Record a complete round."""
        self.done_at = now
        self.num_done += 1
        self.elapsed_s += elapsed_s

    def is_late(self, now: float, limit_s: float) -> bool:
        """Return whether this loop decides, but has completed no round within its rest and the time limit.

        >>> stats = LoopStats()
        >>> stats.is_late(99.0, 10.0)
        False
        >>> stats.lead(now=100.0)
        >>> stats.is_late(110.0, 10.0), stats.is_late(111.0, 10.0)
        (False, True)
        >>> stats.end_round(now=112.0, elapsed_s=0.5)
        >>> stats.is_late(120.0, 10.0), stats.is_late(123.0, 10.0)
        (False, True)
        >>> stats.rest_s = 8.0
        >>> stats.is_late(130.0, 10.0), stats.is_late(131.0, 10.0)
        (False, True)
        """
        since = self.led_at if self.done_at is None else self.done_at
        return since is not None and now - since > limit_s + self.rest_s
