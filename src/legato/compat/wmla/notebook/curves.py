"""Computes the points of a live chart from a job's records and slots. Sends no requests, draws nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from legato.api.jobs import Allocation
from legato.api.outputs import Metrics, Series
from legato.compat.wmla.names import ITERATION, LOSS, POINT_BATCHES, TEST_LOSS


class Point(NamedTuple):
    """A point of the chart.

    Args:
        iteration: number of micro-batches of the job so far, over all epochs.
        loss: training loss, the mean over the epoch so far.
        per_s: micro-batches per second since the point before; NaN if it is not known.
        num_gpus: number of slots that the job had.
    """

    iteration: int
    loss: float
    per_s: float
    num_gpus: int


class Validation(NamedTuple):
    """The loss of a validation, and the number of micro-batches before it."""

    iteration: int
    loss: float


class _Record(NamedTuple):
    step: int
    time: float
    iteration: int
    loss: float


class Curves:
    """The points of a chart.

    Attributes:
        points: one about every 50 micro-batches, and the last one.
        tests: validations.
        iteration: number of micro-batches so far.
    """

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.tests: list[Validation] = []
        self.iteration = 0
        self._last_record: _Record | None = None
        self._last_drawn: _Record | None = None
        self._iterations: dict[int, int] = {}
        self._waiting: list[tuple[int, float]] = []
        self._last_test: int | None = None

    @property
    def after_step(self) -> int | None:
        """The last step with a known record; None if there is none."""
        return None if self._last_record is None else self._last_record.step

    @property
    def after_test(self) -> int | None:
        """The last step with a known validation; None if there is none."""
        return self._last_test

    @property
    def titles(self) -> tuple[str, str]:
        """The titles of the two parts of the chart."""
        return self.titles_at(self.points[-1] if self.points else Point(self.iteration, math.nan, math.nan, 0))

    def titles_at(self, point: Point) -> tuple[str, str]:
        """Return the titles of the two parts of the chart at the time of a point."""
        test = next((test.loss for test in reversed(self.tests) if test.iteration <= point.iteration), math.nan)
        return (
            f"train loss: {_write(point.loss, '.4g')} test loss: {_write(test, '.4g')}",
            f"avg steps per sec: {_write(point.per_s, '.1f')} gpus: {point.num_gpus}",
        )

    def add(self, training: Metrics, tests: Metrics, allocations: Iterable[Allocation]) -> bool:
        """Add new records.

        Args:
            training: the series of the training after `after_step`.
            tests: the series of validations after `after_test`.
            allocations: the job's present and former slots.

        Returns:
            Whether the chart must be drawn again.
        """
        held = list(allocations)
        has_more = False
        for record in _records(training.series):
            self._iterations[record.step] = self.iteration = record.iteration
            if self._last_record is None:
                self._last_drawn = record if record.iteration < POINT_BATCHES else None
            before = 0 if self._last_record is None else self._last_record.iteration
            self._last_record = record
            if before // POINT_BATCHES < record.iteration // POINT_BATCHES:
                self._draw(record, held)
                has_more = True
        return self._add_tests(tests) or has_more

    def finish(self, allocations: Iterable[Allocation]) -> bool:
        """Add a point for the last record; return whether the chart must be drawn again."""
        last = self._last_record
        if last is None or (self.points and self.points[-1].iteration == last.iteration):
            return False
        self._draw(last, list(allocations))
        return True

    def _draw(self, record: _Record, held: Sequence[Allocation]) -> None:
        per_s = math.nan
        if self._last_drawn is not None and record.time > self._last_drawn.time:
            per_s = (record.iteration - self._last_drawn.iteration) / (record.time - self._last_drawn.time)
        num_gpus = sum(one.since <= record.time and (one.until is None or record.time < one.until) for one in held)
        self.points.append(Point(record.iteration, record.loss, per_s, num_gpus))
        self._last_drawn = record

    def _add_tests(self, tests: Metrics) -> bool:
        for series in tests.series:
            if series.name == TEST_LOSS:
                self._waiting += [(step, _read(value)) for step, value in zip(series.step, series.value, strict=True)]
                self._last_test = series.step[-1] if series.step else self._last_test
        known = [(step, loss) for step, loss in self._waiting if step in self._iterations]
        self._waiting = [(step, loss) for step, loss in self._waiting if step not in self._iterations]
        self.tests += [Validation(self._iterations[step], loss) for step, loss in known]
        return bool(known)


def _records(series: Sequence[Series]) -> Iterable[_Record]:
    """Yield the records of loss and iteration, in their order."""
    by_name = {one.name: one for one in series}
    loss, iteration = by_name.get(LOSS), by_name.get(ITERATION)
    if loss is None or iteration is None:
        return
    losses = dict(zip(loss.step, loss.value, strict=True))
    for step, time, value in zip(iteration.step, iteration.time, iteration.value, strict=True):
        if step in losses and value is not None:
            yield _Record(step, time, int(value), _read(losses[step]))


def _read(value: float | None) -> float:
    return math.nan if value is None else value


def _write(value: float, how: str) -> str:
    return "-" if math.isnan(value) else format(value, how)
