"""Slots of jobs over time, as a picture: for the simulation and for the real platform. Reads and writes no file.

`draw_timeline` takes plain records, so the answer of ``GET /allocations`` can be drawn directly. Up to 48 slots have a
row each; for a larger pool the picture shows how many slots each job has, as stacked areas. Several pools, or several
runs of one, are drawn below one another on one axis of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from legato.drawing.frame import MARGIN, WIDTH, Frame
from legato.drawing.holdings import Panel, list_slots
from legato.drawing.panels import draw_panel
from legato.drawing.shapes import Picture, Shape, Text, make_bar, measure, shorten

_MAX_LEGEND_ROWS: Final = 3
_LINE: Final = 18.0
_LONGEST_NAME: Final = 180.0  # pixels
_SWATCH: Final = 20.0


def draw_timeline(
    panels: Sequence[Panel],
    *,
    title: str,
    names: Mapping[str, str] | None = None,
    begin: float | None = None,
    end: float | None = None,
    by_the_clock: bool = False,
) -> Picture:
    """Draw which job had which slots when. `legato.drawing.files.write_picture` writes the picture as SVG or PNG.

    Args:
        panels: at least one; drawn below one another, a job with the same colour in all of them.
        title: of the picture.
        names: the displayed name of each job, by its id; jobs without a name are shown by their ids.
        begin: moment at which the axis begins. None: the first moment in the data.
        end: moment at which the axis ends; slots that are still held are drawn until then. None: the last moment in the
            data.
        by_the_clock: moments are seconds since 1970 and shown as times in UTC; otherwise as seconds since ``begin``.

    >>> from legato.drawing.holdings import Holding
    >>> holdings = [Holding(slot="node-0/0", job="j-1", since=0.0, until=60.0)]
    >>> draw_timeline([Panel(holdings=holdings)], title="one job").told
    'A timeline of 60 s: 1 job on 1 slot.'
    """
    frame = Frame(panels, names or {}, begin, end, by_the_clock=by_the_clock)
    shapes: list[Shape] = [Text((MARGIN, 32), shorten(title, 19, WIDTH - 2 * MARGIN), 18, bold=True)]
    rows = list(_lay_out_legend(frame))
    for row, entries in enumerate(rows):
        for x, job, told in entries:
            y = 50 + _LINE * row
            if job is not None:
                shapes.append(make_bar(x, y, 14, 12, frame.style(job)))
            shapes.append(Text((x + (_SWATCH if job is not None else 0), y + 11), told))
    y = 50 + _LINE * len(rows)
    for panel in panels:
        drawn, y = draw_panel(panel, frame, y + 14)
        shapes += drawn
    return Picture(WIDTH, round(y + MARGIN), title, _describe(panels, frame), tuple(shapes))


def _lay_out_legend(frame: Frame) -> Iterator[list[tuple[float, str | None, str]]]:
    """Yield the rows of the legend: the position and name of each job; jobs that do not fit are counted."""
    room = WIDTH - MARGIN
    row: list[tuple[float, str | None, str]] = []
    x, num_rows = MARGIN, 1
    for number, job in enumerate(frame.jobs):
        name = shorten(frame.name(job), 12, _LONGEST_NAME)
        width = _SWATCH + measure(name, 12) + 16
        rest = f"and {len(frame.jobs) - number} more"
        is_last_row = num_rows == _MAX_LEGEND_ROWS
        kept = measure(rest, 12) if is_last_row and number < len(frame.jobs) - 1 else 0.0
        if x + width + kept > room and row:
            if is_last_row:
                row.append((x, None, rest))
                break
            yield row
            row, x, num_rows = [], MARGIN, num_rows + 1
        row.append((x, job, name))
        x += width
    if row:
        yield row


def _describe(panels: Sequence[Panel], frame: Frame) -> str:
    num_jobs, num_slots = len(frame.jobs), max(len(list_slots(panel)) for panel in panels)
    jobs = "1 job" if num_jobs == 1 else f"{num_jobs} jobs"
    slots = "1 slot" if num_slots == 1 else f"{num_slots} slots"
    return f"A timeline of {frame.end - frame.begin:g} s: {jobs} on {slots}."
