"""Draws one pool over time: a row for each slot; for a large pool the slots of each job. Returns shapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from legato.drawing.colours import ink_on
from legato.drawing.frame import MARGIN, RIGHT, WIDTH, Frame
from legato.drawing.holdings import Holding, Mark, Panel, list_slots
from legato.drawing.marks import LABEL_SIZE, place_labels
from legato.drawing.shapes import Area, Line, Shape, Text, make_bar, measure, shorten

MAX_ROWS: Final = 48
MAX_LISTED: Final = 16

_HEIGHT: Final = 260.0
_ROW_LIMITS: Final = (8.0, 26.0)
_ROW_WITH_NAME: Final = 13.0
_LINE: Final = 17.0
_NAME_SIZE: Final = 11.0
_FOOT: Final = 0.36  # of its size: from the middle of a line of text to its foot


def draw_panel(panel: Panel, frame: Frame, top: float) -> tuple[list[Shape], float]:
    """Return the shapes of a panel, and the y position of its lower end."""
    shapes: list[Shape] = []
    y = top
    if panel.title or panel.told:
        shapes.append(Text((MARGIN, y + 14), panel.title, 14, bold=True))
        beside = MARGIN + (measure(panel.title, 15) + 14 if panel.title else 0.0)
        shapes.append(
            Text((beside, y + 14), shorten(panel.told, 12, WIDTH - RIGHT - beside, is_sentence=True), role="dim")
        )
        y += 24
    marks = sorted((mark for mark in panel.marks if frame.begin <= mark.time <= frame.end), key=lambda mark: mark.time)
    y += 16 if marks else 4
    slots = list_slots(panel)
    in_rows = len(slots) <= MAX_ROWS
    least, most = _ROW_LIMITS
    row_height = min(max(_HEIGHT / max(len(slots), 1), least), most)
    bottom = y + (row_height * len(slots) if in_rows else _HEIGHT)
    shapes += _draw_axis(frame, y, bottom)
    if in_rows:
        shapes += _draw_rows(panel, slots, frame, y, row_height)
    else:
        shapes += _draw_stack(panel, len(slots), frame, y)
    for label in place_labels([frame.x_of(mark.time) for mark in marks[:MAX_LISTED]]):
        shapes.append(Line((label.x, y - 2), (label.x, bottom), "ink", dashed=True))
        shapes.append(Text((label.x, y - 5), label.text, LABEL_SIZE, anchor="middle", bold=True))
    return [*shapes, *_list_marks(marks, frame, bottom + 38)], bottom + 22 + _LINE * _num_lines(marks)


def _num_lines(marks: Sequence[Mark]) -> int:
    return min(len(marks), MAX_LISTED) + (len(marks) > MAX_LISTED)


def _draw_axis(frame: Frame, top: float, bottom: float) -> Iterator[Shape]:
    for tick in frame.ticks():
        x = frame.x_of(tick)
        yield Line((x, top), (x, bottom + 4), "grid")
        yield Text((x, bottom + 17), frame.format_time(tick), 11, anchor="middle", role="dim")
    yield Line((frame.left, bottom), (WIDTH - RIGHT, bottom), "dim")


def _list_marks(marks: Sequence[Mark], frame: Frame, foot: float) -> Iterator[Shape]:
    """Return the lines that explain the marks in order, and how many marks are left out."""
    for index, mark in enumerate(marks[:MAX_LISTED]):
        y = foot + _LINE * index
        yield Text((MARGIN + 20, y), str(index + 1), anchor="end", bold=True)
        yield Text((MARGIN + 30, y), frame.format_time(mark.time), role="dim")
        told = shorten(mark.told, 12, WIDTH - RIGHT - MARGIN - 110, is_sentence=True)
        yield Text((MARGIN + 110, y), told)
    if len(marks) > MAX_LISTED:
        y = foot + _LINE * MAX_LISTED
        yield Text(
            (MARGIN + 30, y), f"and {len(marks) - MAX_LISTED} more until {frame.format_time(frame.end)}", role="dim"
        )


def _describe(holding: Holding, seen: tuple[float, float], frame: Frame) -> str:
    since, until = (frame.format_time(moment) for moment in seen)
    until = "now" if holding.until is None else until
    return f"{frame.name(holding.job)}: {holding.slot}, {since} to {until}"


# ---------------------------------------------------------------- a row for each slot


def _draw_rows(panel: Panel, slots: Sequence[str], frame: Frame, top: float, height: float) -> Iterator[Shape]:
    inside: dict[str, list[Holding]] = {slot: [] for slot in slots}
    for holding in panel.holdings:
        inside[holding.slot].append(holding)
    size = min(_NAME_SIZE, height)
    named: list[Holding] = []
    for index, slot in enumerate(slots):
        middle = top + height * (index + 0.5)
        label = shorten(slot, size, frame.left - MARGIN - 8)
        yield Text((frame.left - 8, middle + _FOOT * size), label, size, anchor="end", role="dim")
        above, named = named, []
        for holding in sorted(inside[slot], key=lambda holding: holding.since):
            seen = frame.clip(holding)
            if seen is None:
                continue
            x, width = frame.x_of(seen[0]), frame.x_of(seen[1]) - frame.x_of(seen[0])
            style = frame.style(holding.job)
            yield make_bar(x, middle - height / 2 + 1, width, height - 2, style, _describe(holding, seen, frame))
            # A text that the row above has at the same place is not repeated.
            is_said = any(other.job == holding.job and _begins_within(holding, other) for other in above)
            name = shorten(frame.name(holding.job), _NAME_SIZE, width - 8) if height >= _ROW_WITH_NAME else ""
            if is_said or len(name) > 2:
                named.append(holding)
            if len(name) > 2 and not is_said:
                yield Text((x + 5, middle + _FOOT * _NAME_SIZE), name, _NAME_SIZE, role=ink_on(style.colour))


def _begins_within(holding: Holding, other: Holding) -> bool:
    return other.since <= holding.since and (other.until is None or holding.since < other.until)


# ---------------------------------------------------------------- stacked jobs


def count_slots(panel: Panel, frame: Frame) -> tuple[list[float], list[dict[str | None, int]]]:
    """Return the moments at which a number of slots changes, and each job's number of slots from each of them on."""
    changes: dict[float, dict[str | None, int]] = {frame.begin: {}, frame.end: {}}
    for holding in panel.holdings:
        seen = frame.clip(holding)
        if seen is not None:
            for moment, change in zip(seen, (1, -1), strict=True):
                at = changes.setdefault(moment, {})
                at[holding.job] = at.get(holding.job, 0) + change
    moments = sorted(changes)
    counts: list[dict[str | None, int]] = []
    now: dict[str | None, int] = {}
    for moment in moments:
        for job, change in changes[moment].items():
            now[job] = now.get(job, 0) + change
        now = {job: number for job, number in now.items() if number}
        counts.append(now.copy())
    return moments, counts


def _draw_stack(panel: Panel, num_slots: int, frame: Frame, top: float) -> Iterator[Shape]:
    moments, counts = count_slots(panel, frame)
    bottom, scale = top + _HEIGHT, _HEIGHT / num_slots
    for share in (0, 0.5, 1):
        y = bottom - _HEIGHT * share
        yield Line((frame.left, y), (WIDTH - RIGHT, y), "grid")
        label = f"{num_slots * share:.0f} slots"
        yield Text((frame.left - 8, y + _FOOT * _NAME_SIZE), label, _NAME_SIZE, anchor="end", role="dim")
    feet = [dict.fromkeys(now, 0) for now in counts]
    for now, foot in zip(counts, feet, strict=True):
        below = 0
        for job in sorted(now, key=frame.place):
            foot[job] = below
            below += now[job]
    for job in frame.jobs:
        yield from _draw_layers(job or None, moments, counts, feet, frame, bottom, scale)


def _draw_layers(
    job: str | None,
    moments: Sequence[float],
    counts: Sequence[Mapping[str | None, int]],
    feet: Sequence[Mapping[str | None, int]],
    frame: Frame,
    bottom: float,
    scale: float,
) -> Iterator[Shape]:
    """Draw the areas of a job: one for each time in which it has slots without a gap."""
    upper: list[tuple[float, float]] = []
    lower: list[tuple[float, float]] = []
    for (since, until), now, foot in zip(pairwise(moments), counts, feet, strict=False):
        number = now.get(job, 0)
        if number:
            x1, x2, y = frame.x_of(since), frame.x_of(until), bottom - foot[job] * scale
            lower += [(x1, y), (x2, y)]
            upper += [(x1, y - number * scale), (x2, y - number * scale)]
        elif upper:
            yield _layer(job, upper, lower, frame)
            upper, lower = [], []
    if upper:
        yield _layer(job, upper, lower, frame)


def _layer(
    job: str | None, upper: Sequence[tuple[float, float]], lower: Sequence[tuple[float, float]], frame: Frame
) -> Area:
    return Area((*upper, *reversed(lower)), frame.style(job), frame.name(job))
