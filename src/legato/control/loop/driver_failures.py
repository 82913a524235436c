"""Repeated failures of a job's driver: their number, the reason to show, when to give up. Pure.

A driver that cannot be started, or dies, is started again after a pause that grows; one that was well for long begins
from nothing. What is wrong stands behind the reason of the job's stage, until it is over. Starts nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from legato.control.drivers.drivers import DriverReport, DriverState

NUM_TRIES: Final = 8
"""Starts in a row after which a driver is given up. With the pauses between them: about two minutes."""
WELL_S: Final = 300.0
"""A driver that answers for that long is well: what was before does not count any more."""

_FIRST_PAUSE_S: Final = 1.0
_MAX_PAUSE_S: Final = 60.0
_SILENT_S: Final = 10.0  # a shorter silence is not reported: a loaded machine is late now and then
_SLOW_S: Final = 60.0  # nor of a driver that takes so long to begin
# A driver that does not answer for that long is killed, and the next one adopts the workers. One that slept has none
# left
# after a minute: they save and end. One that begins may wait for imports. By whether its job is to end at once:
_LIMITS_S: Final = {
    (DriverState.SILENT, False): 120.0,
    (DriverState.SILENT, True): 10.0,
    (DriverState.STARTING, False): 600.0,
    (DriverState.STARTING, True): 60.0,
}
_MAX_LENGTH: Final = 500
_BUT: Final = "; but its driver "


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one attempt's driver.

    Args:
        num_tries: starts since it was last well.
        again_at: not before this is it started again.
        why: the last start failed. "": it did not, as far as known.
        well_since: it answers since then.
        silent_since: its process lives since then and does not answer.
        killed_at: it was killed for that.
        under_way_at: its start was not over then; before that it could not answer.
    """

    num_tries: int = 0
    again_at: float = 0.0
    why: str = ""
    well_since: float | None = None
    silent_since: float | None = None
    killed_at: float | None = None
    under_way_at: float | None = None

    def tried(self, now: float) -> Trouble:
        """Return what is remembered after one more start.

        >>> [Trouble(num_tries=number).tried(0.0).again_at for number in (0, 1, 3, 7)]
        [1.0, 2.0, 8.0, 60.0]
        """
        return Trouble(num_tries=self.num_tries + 1, again_at=now + pause_after(self.num_tries))

    def failed(self, why: str) -> Trouble:
        """Return what is remembered after a start that failed."""
        return msgspec.structs.replace(self, why=on_one_line(why))

    def postponed(self) -> Trouble:
        """Return what is remembered after a start that was not made in the end: it is as if it was not tried."""
        return Trouble(num_tries=max(self.num_tries - 1, 0))

    def after(self, state: DriverState, now: float, *, is_under_way: bool = False) -> Trouble:
        """Return what is remembered after a report; arguments as of that."""
        if state is DriverState.RUNNING:
            since = now if self.well_since is None else min(self.well_since, now)
            if now - since >= WELL_S:
                return Trouble(well_since=since)
            return msgspec.structs.replace(self, well_since=since, silent_since=None, killed_at=None)
        lives = state in (DriverState.SILENT, DriverState.STARTING)
        since = now if self.silent_since is None else min(self.silent_since, now)
        found = msgspec.structs.replace(self, well_since=None, silent_since=since if lives else None)
        return msgspec.structs.replace(found, under_way_at=now) if is_under_way else found

    def is_lost(self, state: DriverState, now: float, *, hurries: bool) -> bool:
        """Return whether a driver must be killed, because it lives and does not answer.

        Args:
            state: of the driver.
            now: the present time.
            hurries: its job is to end at once.
        """
        if self.silent_since is None:
            return False
        # A moment to come: the clock was set back.
        later = [at for at in (self.killed_at, self.under_way_at) if at is not None and at <= now]
        since = max([self.silent_since, *later])
        return now - since >= _LIMITS_S[state, hurries]

    def killed(self, now: float) -> Trouble:
        """Return what is remembered after the driver was killed."""
        return msgspec.structs.replace(self, killed_at=now)

    def may_try(self, now: float) -> bool:
        """Return whether the driver may be started now."""
        return self.num_tries < NUM_TRIES and self._is_due(now)

    def is_hopeless(self, now: float) -> bool:
        """Return whether the driver was started often enough, and its last start has had its time."""
        return self.num_tries >= NUM_TRIES and self._is_due(now)

    def tell(self, report: DriverReport, now: float) -> str | None:
        """Return what is to be said of the driver; "": nothing is wrong. None: what was said last still holds."""
        tried = f" (start {min(self.num_tries, NUM_TRIES)} of {NUM_TRIES} in a row)" if self.num_tries > 1 else ""
        silent_s = 0.0 if self.silent_since is None else now - self.silent_since
        match report.state:
            case DriverState.RUNNING | DriverState.ENDED:
                return ""
            case DriverState.UNKNOWN | DriverState.GONE if self.why:
                return f"cannot be started: {self.why}{tried}"
            case DriverState.GONE:
                died = f"died: {report.trouble or 'it left no word'}"
                return (died if self.killed_at is None else "did not answer and was killed") + tried
            case DriverState.SILENT if silent_s >= _SILENT_S:
                return f"does not answer: {report.trouble or 'its process lives'}"
            case DriverState.STARTING if silent_s >= _SLOW_S:
                return f"has not answered yet: {report.trouble or 'its process lives'}"
        return None

    def tell_end(self, report: DriverReport) -> str:
        """Return why the driver is given up."""
        if self.why:
            return f"its driver cannot be started: {self.why}; it was tried {NUM_TRIES} times"
        if report.state is DriverState.UNKNOWN:
            return f"its driver cannot be started: it was tried {NUM_TRIES} times, and none of its processes is left"
        why = report.trouble or "it died again and again"
        return f"its driver cannot run: {why}; it was started {NUM_TRIES} times"

    def _is_due(self, now: float) -> bool:
        # A pause is never longer: then the clock was set back.
        return not 0 < self.again_at - now <= _MAX_PAUSE_S


def pause_after(num_tries: int) -> float:
    """Return the seconds before a next try, of a driver's start or of a program that failed, after so many before it.

    >>> [pause_after(number) for number in (0, 1, 3, 1000)]
    [1.0, 2.0, 8.0, 60.0]
    """
    return min(_FIRST_PAUSE_S * 2.0 ** min(num_tries, NUM_TRIES), _MAX_PAUSE_S)


def on_one_line(why: str) -> str:
    r"""Return what an error says as a part of a sentence.

    >>> on_one_line("No space left on device.\n")
    'No space left on device'
    """
    return " ".join(why.split())[:_MAX_LENGTH].rstrip(".")


def reason_with(reason: str, trouble: str) -> str:
    """Return the reason of a stage with what is wrong behind it; ``trouble`` "": with nothing.

    >>> reason_with("its workers train; but its driver died: killed by SIGKILL", "")
    'its workers train'
    >>> reason_with("its workers train", "died: killed by SIGKILL")
    'its workers train; but its driver died: killed by SIGKILL'
    """
    return reason.partition(_BUT)[0] + (f"{_BUT}{trouble}" if trouble else "")
