"""Computes the numbers of slots held over time from allocations, as step functions with a bounded number of steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TypeVar

from legato.api.pool import StepLine

K = TypeVar("K")

Change = tuple[float, int]


def draw_held(spans: Iterable[tuple[K, float, float | None]], since: float, until: float) -> dict[K, StepLine]:
    """Return how many slots each holder held between two times.

    Args:
        spans: for each time that a slot was held: the holder, the begin, and the end (None: it is still held).
        since: begin of the lines. The line of a holder without slots at this time begins with its first slot.
        until: end of the lines. Changes at this time or later are left out.

    >>> draw_held([("a", 0, 3), ("a", 2, None), ("b", 3, 4)], 1, 9)
    {'a': StepLine(times=(1, 2, 3), values=(1, 2, 1)), 'b': StepLine(times=(3, 4), values=(1, 0))}
    """
    changes: defaultdict[K, list[Change]] = defaultdict(list)
    for whose, begun, ended in spans:
        if begun >= until or (ended is not None and ended <= since):
            continue
        changes[whose].append((max(begun, since), 1))
        if ended is not None and ended < until:
            changes[whose].append((ended, -1))
    return {whose: add_up(found) for whose, found in changes.items()}


def add_up(changes: Iterable[Change], start: int = 0) -> StepLine:
    """Return the line that adds up changes. Changes at the same time become one step; a sum of zero becomes none.

    >>> add_up([(1, 2), (2, -1), (2, 1), (3, -2)])
    StepLine(times=(1, 3), values=(2, 0))
    """
    times: list[float] = []
    values: list[int] = []
    value = start
    for time, change in sorted(changes):
        value += change
        if times and times[-1] == time:
            values[-1] = value
        else:
            times.append(time)
            values.append(value)
    kept = [at for at in range(len(times)) if values[at] != (values[at - 1] if at else start)]
    return StepLine(tuple(times[at] for at in kept), tuple(values[at] for at in kept))


def downsample(line: StepLine, since: float, until: float, most: int) -> StepLine:
    """Return a line with at most ``most`` steps: the first, smallest, largest and last of each interval of time.

    Args:
        line: the line with all steps.
        since: begin of the line.
        until: end of the line.
        most: maximum number of steps, at least 4.
    """
    if len(line.times) <= most:
        return line
    num_stretches = max(most // 4, 1)
    length_s = (until - since) / num_stretches
    kept: list[int] = []
    first = 0
    for at in range(1, len(line.times) + 1):
        if at == len(line.times) or _find_interval(line.times[at], since, length_s, num_stretches) != _find_interval(
            line.times[first], since, length_s, num_stretches
        ):
            kept += _choose(line.values, first, at)
            first = at
    return StepLine(tuple(line.times[at] for at in kept), tuple(line.values[at] for at in kept))


def _find_interval(time: float, since: float, length_s: float, num_stretches: int) -> int:
    return min(int((time - since) / length_s), num_stretches - 1) if length_s > 0 else 0


def _choose(values: Sequence[int], first: int, end: int) -> list[int]:
    places = range(first, end)
    return sorted({first, min(places, key=values.__getitem__), max(places, key=values.__getitem__), end - 1})
