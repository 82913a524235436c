"""Reads the time series of a job from the files that its driver writes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from legato.api.outputs import Metrics, Series, Steps
from legato.server.json_lines import Lines

T = TypeVar("T")


class _Logged(msgspec.Struct, frozen=True):
    step: int
    epoch: int
    time: float
    values: dict[str, float | None]


class _Losses(msgspec.Struct, frozen=True):
    step: tuple[int, ...]
    epoch: tuple[int, ...]
    time: tuple[float, ...]
    loss: tuple[float | None, ...]


class _Committed(msgspec.Struct, frozen=True):
    step: int
    epoch: int
    view: int
    time: float


LOSS: Final = "loss"
STEP_LOSS: Final = "step_loss"

_LOGGED: Final = Lines(_Logged, lambda line: line.step)
_LOGGED_LOSS: Final = Lines(_Logged, lambda line: int(LOSS in line.values))
_LOSSES: Final = Lines(_Losses, lambda line: max(line.step, default=0))
_COMMITTED: Final = Lines(_Committed, lambda line: line.step)
_COMMITTED_EPOCHS: Final = Lines(_Committed, lambda line: line.epoch)


def read_metrics(
    metrics_file: Path,
    losses_file: Path,
    ledger_file: Path,
    *,
    names: Collection[str],
    after_step: int | None,
    num_points: int,
    has_steps: bool = True,
) -> Metrics:
    """Read the time series of a job.

    The losses of ``run.backward`` are the series ``loss``, or ``step_loss`` if the program logs a ``loss`` itself.

    Args:
        metrics_file: the values that the program logged. The file need not exist yet.
        losses_file: the mean losses of steps. The file need not exist yet.
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
    name = STEP_LOSS if any(True for _ in _LOGGED_LOSS.read(metrics_file, 0)) else LOSS
    if name not in logged and (not names or name in names):
        losses = _read_losses(losses_file, name, after_step, num_points)
        series = sorted([*series, *losses], key=lambda each: each.name)
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


class Value(NamedTuple):
    """A value of a metric. ``value``: None: it was not finite."""

    step: int
    epoch: int
    value: float | None


def read_values(metrics_file: Path, losses_file: Path, name: str, after_step: int | None = None) -> Iterator[Value]:
    """Yield all values of one metric, in the order in which they were recorded; of losses, in the order of the steps.

    Unlike in `read_metrics`, a name always means the same, so that a value does not depend on when it is read:
    ``step_loss`` are the losses of ``run.backward``, and any other name is what the program logs by ``run.log``.

    Args:
        metrics_file: the values that the program logged. The file need not exist yet.
        losses_file: the mean losses of steps. The file need not exist yet.
        name: of the metric.
        after_step: yield only those of later steps. None: all.
    """
    if name != STEP_LOSS:
        for line in _LOGGED.read(metrics_file, after_step):
            if name in line.values:
                yield Value(line.step, line.epoch, line.values[name])
        return
    rows = (row for line in _LOSSES.read(losses_file, after_step) for row in _rows_of(line))
    for step, epoch, _, loss in sorted(rows, key=lambda row: row[0]):
        if after_step is None or step > after_step:
            yield Value(step, epoch, loss)


def has_later_epoch(ledger_file: Path, epoch: int) -> bool:
    """Return whether a step of a later epoch is committed, so that this one is over.

    Args:
        ledger_file: the commits of steps. The file need not exist yet.
        epoch: from 0.
    """
    return any(True for _ in _COMMITTED_EPOCHS.read(ledger_file, epoch))


def _read_losses(losses_file: Path, name: str, after_step: int | None, num_points: int) -> list[Series]:
    """Return the losses of the steps as a series; none if no step has a loss."""
    rows = [row for line in _LOSSES.read(losses_file, after_step) for row in _rows_of(line)]
    kept: Downsampled[tuple[Any, ...]] = Downsampled(num_points)
    # Workers report on their own, so a line may have an earlier step than the line before.
    for row in sorted(rows, key=lambda row: row[0]):
        if after_step is None or row[0] > after_step:
            kept.add(row, row[-1])
    if not kept.points:
        return []
    step, epoch, time, loss = zip(*kept.points, strict=True)
    return [Series(name, step, epoch, time, loss, "backward")]


def _rows_of(line: _Losses) -> Iterator[tuple[int, int, float, float | None]]:
    return zip(line.step, line.epoch, line.time, line.loss, strict=False)


class Downsampled(Generic[T]):
    """A sequence that keeps a bounded number of its points: the smallest and largest of each interval, and the last.

    Args:
        most: maximum number of points to keep, at least 2. Until there are more, it keeps all. With 2, it keeps only
            the smallest and the largest.

    >>> thinned = Downsampled(5)
    >>> for value in [0.0, 1.0, 0.0, 0.0, 9.0, 0.0, 0.0, -5.0]:
    ...     thinned.add(value, value)
    >>> thinned.points
    [0.0, 1.0, 9.0, -5.0]
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._most_stretches = max((most - 1) // 2, 1)
        self._last: _Point[T] | None = None
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
        self._last = added if added.value is not None else self._last
        if len(self._stretches) > (self._most if self._length == 1 else self._most_stretches):
            self._shorten()

    @property
    def points(self) -> list[T]:
        """The points that are kept, in order."""
        kept = {one.place: one.point for stretch in self._stretches for one in stretch}
        if self._last is not None and self._most > 2:
            kept[self._last.place] = self._last.point
        return [kept[place] for place in sorted(kept)]

    def _shorten(self) -> None:
        while len(self._stretches) > self._most_stretches:
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
