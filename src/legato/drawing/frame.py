"""The common parts of a timeline's panels: the time axis, the colours and names of jobs. Draws nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from legato.drawing.axis import choose_ticks, format_elapsed, format_moment
from legato.drawing.colours import EMPTY, assign_styles
from legato.drawing.holdings import Holding, Panel, list_slots
from legato.drawing.shapes import Style, measure

WIDTH: Final = 960.0
RIGHT: Final = 24.0
MARGIN: Final = 20.0
_LEFT_LIMITS: Final = (64.0, 190.0)
_TICK_GAP: Final = 95.0
_OTHERS: Final = ""


class Frame:
    """The frame of a picture.

    Args:
        panels: all panels of the picture.
        names: the displayed name of each job, by its id.
        begin: moment at which the axis begins. None: the first moment in the data.
        end: moment at which the axis ends. None: the last moment in the data.
        by_the_clock: moments are seconds since 1970.
    """

    def __init__(
        self,
        panels: Sequence[Panel],
        names: Mapping[str, str],
        begin: float | None,
        end: float | None,
        *,
        by_the_clock: bool,
    ) -> None:
        holdings = [holding for panel in panels for holding in panel.holdings]
        moments = [holding.since for holding in holdings]
        moments += [holding.until for holding in holdings if holding.until is not None]
        moments += [mark.time for panel in panels for mark in panel.marks]
        self.begin = min(moments, default=0.0) if begin is None else begin
        last = max(moments, default=0.0) if end is None else end
        self.end = last if last > self.begin else self.begin + 1.0
        self._names = names
        self._by_the_clock = by_the_clock
        spans = self._spans(holdings)
        self._styles = assign_styles((job, *span) for job, span in spans.items() if job)
        self.jobs: list[str] = [*self._styles, *(job for job in spans if not job)]
        self._places = {job: place for place, job in enumerate(self.jobs)}
        labels = [slot for panel in panels for slot in list_slots(panel)]
        least, most = _LEFT_LIMITS
        self.left = min(max(max((measure(label, 11) for label in labels), default=0.0) + 2 * MARGIN, least), most)

    def _spans(self, holdings: Iterable[Holding]) -> dict[str, tuple[float, float]]:
        spans: dict[str, tuple[float, float]] = {}
        for holding in holdings:
            seen = self.clip(holding)
            if seen is not None:
                first, last = spans.get(holding.job or _OTHERS, seen)
                spans[holding.job or _OTHERS] = (min(first, seen[0]), max(last, seen[1]))
        return spans

    def clip(self, holding: Holding) -> tuple[float, float] | None:
        """Return the part of a holding's time that is on the axis; None if there is none."""
        since = max(holding.since, self.begin)
        until = self.end if holding.until is None else min(holding.until, self.end)
        return (since, until) if since < until else None

    def x_of(self, moment: float) -> float:
        """Return the x position of a moment, in pixels."""
        return self.left + (moment - self.begin) / (self.end - self.begin) * (WIDTH - RIGHT - self.left)

    def name(self, job: str | None) -> str:
        """Return the displayed name of a job."""
        return self._names.get(job, job) if job else "jobs of others"

    def style(self, job: str | None) -> Style:
        """Return the style of a visible job."""
        return self._styles[job] if job else EMPTY

    def place(self, job: str | None) -> int:
        """Return the index of a visible job among all visible jobs, in the order in which they began."""
        return self._places[job or _OTHERS]

    def format_time(self, moment: float) -> str:
        """Return a moment as text."""
        if self._by_the_clock:
            return format_moment(moment, self.end - self.begin)
        return format_elapsed(moment - self.begin)

    def ticks(self) -> list[float]:
        """Return the moments of the axis that have a label."""
        most = max(int((WIDTH - RIGHT - self.left) / _TICK_GAP), 1)
        if self._by_the_clock:
            return choose_ticks(self.begin, self.end, most)
        return [self.begin + elapsed for elapsed in choose_ticks(0.0, self.end - self.begin, most)]
