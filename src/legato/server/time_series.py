"""Reads the time series of a job from the files that its driver writes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from legato.api.outputs import Metrics, Series, Steps
from legato.server.json_lines import Lines

T = TypeVar("T")


class _Logged(msgspec.Struct, frozen=True):
    step: int
    epoch: int
    time: float
    values: dict[str, float | None]


class _Committed(msgspec.Struct, frozen=True):
    step: int
    epoch: int
    view: int
    time: float


_LOGGED: Final = Lines(_Logged, lambda line: line.step)
_COMMITTED: Final = Lines(_Committed, lambda line: line.step)


def read_metrics(
    metrics_file: Path,
    ledger_file: Path,
    *,
    names: Collection[str],
    after_step: int | None,
    num_points: int,
    has_steps: bool = True,
) -> Metrics:
    """Read the time series of a job.

    Args:
        metrics_file: the values that the program logged. The file need not exist yet.
        ledger_file: the commits of steps. The file need not exist yet.
        names: of the series to return. Empty: all.
        after_step: return only later steps. None: all steps.
        num_points: maximum number of points of each series.
        has_steps: read the ledger too. False: the columns of ``steps`` are empty.
    """
    logged: dict[str, Downsampled[tuple[_Logged, float | None]]] = {}
    for line in _LOGGED.read(metrics_file, after_step):
        for name, value in line.values.items():
            if not names or name in names:
                if name not in logged:
                    logged[name] = Downsampled(num_points)
                logged[name].add((line, value), value)
    series = []
    for name in sorted(logged):
        points = logged[name].points
        series.append(
            Series(
                name,
                tuple(line.step for line, _ in points),
                tuple(line.epoch for line, _ in points),
                tuple(line.time for line, _ in points),
                tuple(value for _, value in points),
            )
        )
    committed: Downsampled[_Committed] = Downsampled(num_points)
    if has_steps:
        for step in _COMMITTED.read(ledger_file, after_step):
            committed.add(step, step.step)
    steps = committed.points
    return Metrics(
        tuple(series),
        Steps(
            tuple(line.step for line in steps),
            tuple(line.epoch for line in steps),
            tuple(line.view for line in steps),
            tuple(line.time for line in steps),
        ),
    )


class Downsampled(Generic[T]):
    """A sequence of points that keeps a bounded number of them: the smallest and largest of each interval.

    Args:
        most: maximum number of points to keep, at least 2. Until there are more, it keeps all.

    >>> thinned = Downsampled(4)
    >>> for value in [0.0, 1.0, 0.0, 0.0, 9.0, 0.0, 0.0, -5.0]:
    ...     thinned.add(value, value)
    >>> thinned.points
    [0.0, 1.0, 9.0, -5.0]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = 1  # of an interval, in points; doubles when there are too many intervals
        self._num_added = 0
        self._stretches: list[tuple[_Point[T], _Point[T]]] = []

    def add(self, point: T, value: float | None) -> None:
        """Append a point. Points whose value is None or not finite are kept only where an interval has no others."""
        added = _Point(self._num_added, value if value is not None and math.isfinite(value) else None, point)
        if self._num_added % self._length == 0:
            self._stretches.append((added, added))
        else:
            self._stretches[-1] = _join(self._stretches[-1], (added, added))
        self._num_added += 1
        if len(self._stretches) > (self._most if self._length == 1 else self._most // 2):
            self._shorten()

    @property
    def points(self) -> list[T]:
        """The points that are kept, in order."""
        return [
            kept.point
            for low, high in self._stretches
            for kept in (sorted((low, high), key=lambda one: one.place) if low.place != high.place else (low,))
        ]

    def _shorten(self) -> None:
        while len(self._stretches) > self._most // 2:
            pairs = itertools.zip_longest(self._stretches[::2], self._stretches[1::2])
            self._stretches = [one if other is None else _join(one, other) for one, other in pairs]
            self._length *= 2


class _Point(NamedTuple, Generic[T]):
    place: int
    value: float | None
    point: T


def _join(one: tuple[_Point[T], _Point[T]], other: tuple[_Point[T], _Point[T]]) -> tuple[_Point[T], _Point[T]]:
    """Return the smallest and the largest point of two intervals. Of equal ones, return the first."""
    if other[0].value is None:
        return one
    if one[0].value is None:
        return other
    low = other[0] if other[0].value < one[0].value else one[0]
    assert one[1].value is not None and other[1].value is not None, "a stretch with a smallest value has a largest one"
    high = other[1] if other[1].value > one[1].value else one[1]
    return low, high
