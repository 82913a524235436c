"""Repeated failures of a job's driver: their number, the reason to show, when to give up. Pure.

A driver that cannot be started, or dies, is started again after a pause that grows. After a long time without a
failure, the count starts at zero again. The reason of the job's stage names the failure until it is over. Starts
nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from legato.api.jobs import DRIVER_TROUBLE
from legato.control.drivers.drivers import DriverReport, DriverState

NUM_TRIES: Final = 8
"""Starts in a row after which a driver is given up. With the pauses between them: about two minutes."""
WELL_S: Final = 300.0
"""A driver that answers for that long is well: what was before does not count any more."""

_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0
_SILENT_S: Final = 10.0  # shorter silences are not reported: they are normal on a loaded machine
_SLOW_S: Final = 60.0  # a driver may take so long to start before that is reported
# A driver that does not answer for that long is killed, and the next one adopts the workers. A driver that was
# suspended has no workers left after a minute: they save and end. A driver that starts may wait for imports. The keys
# say whether its job must end at once:
_LIMITS_S: Final = {
    (DriverState.SILENT, False): 120.0,
    (DriverState.SILENT, True): 10.0,
    (DriverState.STARTING, False): 600.0,
    (DriverState.STARTING, True): 60.0,
}
_MAX_LENGTH: Final = 500
_STILL_RUNS: Final = ", although its process still runs"


class DriverFailures(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one attempt's driver.

    Args:
        num_tries: starts since it last worked without failures.
        again_at: earliest time of the next start.
        why: the last start failed. "": it did not, as far as known.
        well_since: since when it answers.
        silent_since: since when its process runs but does not answer.
        killed_at: when it was killed for that.
        under_way_at: when its start was last seen incomplete; before that the driver could not answer.
    """

    num_tries: int = 0
    again_at: float = 0.0
    why: str = ""
    well_since: float | None = None
    silent_since: float | None = None
    killed_at: float | None = None
    under_way_at: float | None = None

    def tried(self, now: float) -> DriverFailures:
        """Return the record after one more start.

        >>> [DriverFailures(num_tries=number).tried(0.0).again_at for number in (0, 1, 3, 7)]
        [1.0, 2.0, 8.0, 60.0]
        """
        return DriverFailures(num_tries=self.num_tries + 1, again_at=now + pause_after(self.num_tries))

    def failed(self, why: str) -> DriverFailures:
        """Return the record after a failed start."""
        return msgspec.structs.replace(self, why=on_one_line(why))

    def postponed(self) -> DriverFailures:
        """Return the record after a start that was dropped, which does not count as a try."""
        return DriverFailures(num_tries=max(self.num_tries - 1, 0))

    def after(self, state: DriverState, now: float, *, is_under_way: bool = False) -> DriverFailures:
        """Return the record after a report. Arguments are fields of the report."""
        if state is DriverState.RUNNING:
            since = now if self.well_since is None else min(self.well_since, now)
            if now - since >= WELL_S:
                return DriverFailures(well_since=since)
            return msgspec.structs.replace(self, well_since=since, silent_since=None, killed_at=None)
        lives = state in (DriverState.SILENT, DriverState.STARTING)
        since = now if self.silent_since is None else min(self.silent_since, now)
        found = msgspec.structs.replace(self, well_since=None, silent_since=since if lives else None)
        return msgspec.structs.replace(found, under_way_at=now) if is_under_way else found

    def is_lost(self, state: DriverState, now: float, *, hurries: bool) -> bool:
        """Return whether a driver must be killed because it runs but does not answer.

        Args:
            state: of the driver.
            now: the present time.
            hurries: the job must end at once.
        """
        if self.silent_since is None:
            return False
        # This moment is in the future, so the clock was set back.
        later = [at for at in (self.killed_at, self.under_way_at) if at is not None and at <= now]
        since = max([self.silent_since, *later])
        return now - since >= _LIMITS_S[state, hurries]

    def killed(self, now: float) -> DriverFailures:
        """Return the record after the driver was killed."""
        return msgspec.structs.replace(self, killed_at=now)

    def may_try(self, now: float) -> bool:
        """Return whether the driver may be started now."""
        return self.num_tries < NUM_TRIES and self._is_due(now)

    def is_hopeless(self, now: float) -> bool:
        """Return whether the driver has had its maximum of starts, and enough time for the last one."""
        return self.num_tries >= NUM_TRIES and self._is_due(now)

    def describe(self, report: DriverReport, now: float) -> str | None:
        """Return the sentence about the driver's failure; "": no failure. None: the previous sentence still holds."""
        tried = f" (start {min(self.num_tries, NUM_TRIES)} of {NUM_TRIES} in a row)" if self.num_tries > 1 else ""
        silent_s = 0.0 if self.silent_since is None else now - self.silent_since
        match report.state:
            case DriverState.RUNNING | DriverState.ENDED:
                return ""
            case DriverState.UNKNOWN | DriverState.GONE if self.why:
                return f"cannot be started: {self.why}{tried}"
            case DriverState.GONE:
                died = f"died: {report.trouble or 'it gave no reason'}"
                return (died if self.killed_at is None else "did not answer and was killed") + tried
            case DriverState.SILENT if silent_s >= _SILENT_S:
                return f"does not answer{f': {report.trouble}' if report.trouble else _STILL_RUNS}"
            case DriverState.STARTING if silent_s >= _SLOW_S:
                return f"has not answered yet{f': {report.trouble}' if report.trouble else _STILL_RUNS}"
        return None

    def describe_end(self, report: DriverReport) -> str:
        """Return the reason for giving the driver up."""
        if self.why:
            return f"its driver cannot be started: {self.why}; it was tried {NUM_TRIES} times"
        if report.state is DriverState.UNKNOWN:
            return f"its driver cannot be started: it was tried {NUM_TRIES} times, and none of its processes is left"
        why = report.trouble or "it died again and again"
        return f"its driver cannot run: {why}; it was started {NUM_TRIES} times"

    def _is_due(self, now: float) -> bool:
        # No pause is this long, so the clock was set back.
        return not 0 < self.again_at - now <= _MAX_PAUSE_S


def pause_after(num_tries: int) -> float:
    """Return the pause in seconds before the next start of a driver or of a failed program, after a number of tries.

    >>> [pause_after(number) for number in (0, 1, 3, 1000)]
    [1.0, 2.0, 8.0, 60.0]
    """
    return min(_FIRST_PAUSE_S * 2.0 ** min(num_tries, NUM_TRIES), _MAX_PAUSE_S)


def on_one_line(why: str) -> str:
    r"""Return the message of an error as a part of a sentence.

    >>> on_one_line("No space left on device.\n")
    'No space left on device'
    """
    return " ".join(why.split())[:_MAX_LENGTH].rstrip(".")


def reason_with(reason: str, trouble: str) -> str:
    """Return the reason of a stage, followed by the driver's failure ``trouble``; "": by nothing.

    >>> reason_with("its workers train; but its driver died: killed by SIGKILL", "")
    'its workers train'
    >>> reason_with("its workers train", "died: killed by SIGKILL")
    'its workers train; but its driver died: killed by SIGKILL'
    """
    return reason.partition(DRIVER_TROUBLE)[0] + (f"{DRIVER_TROUBLE}{trouble}" if trouble else "")
