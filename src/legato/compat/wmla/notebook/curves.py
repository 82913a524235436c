"""The points of a live chart, from a job's records and its slots. Sends no requests, draws nothing."""

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
        iteration: micro-batches of the job so far; runs on across epochs.
        loss: of the training, the mean over the epoch so far.
        per_s: micro-batches per second since the point before; nan where that is not known.
        num_gpus: slots that the job had.
    """

    iteration: int
    loss: float
    per_s: float
    num_gpus: int


class Validation(NamedTuple):
    """After how many micro-batches it was, and its loss."""

    iteration: int
    loss: float


class _Record(NamedTuple):
    step: int
    time: float
    iteration: int
    loss: float


class Curves:
    """What there is to draw.

    Attributes:
        points: every fifty micro-batches, and the last one.
        tests: validations.
        iteration: micro-batches so far.
    """

    def __init__(self) -> None:
        self.points: list[Point] = []
        self.tests: list[Validation] = []
        self.iteration = 0
        self._before: _Record | None = None
        self._drawn: _Record | None = None
        self._iterations: dict[int, int] = {}
        self._waiting: list[tuple[int, float]] = []
        self._last_test: int | None = None

    @property
    def after_step(self) -> int | None:
        """The last step whose record is known."""
        return None if self._before is None else self._before.step

    @property
    def after_test(self) -> int | None:
        """The last step whose validation is known."""
        return self._last_test

    @property
    def titles(self) -> tuple[str, str]:
        """What stands over the two parts of the chart."""
        return self.titles_at(self.points[-1] if self.points else Point(self.iteration, math.nan, math.nan, 0))

    def titles_at(self, point: Point) -> tuple[str, str]:
        """Return what stood over the two parts of the chart when a point was the last one."""
        test = next((test.loss for test in reversed(self.tests) if test.iteration <= point.iteration), math.nan)
        return (
            f"train loss: {_write(point.loss, '.4g')} test loss: {_write(test, '.4g')}",
            f"avg steps per sec: {_write(point.per_s, '.1f')} gpus: {point.num_gpus}",
        )

    def take(self, training: Metrics, tests: Metrics, allocations: Iterable[Allocation]) -> bool:
        """Take what has come.

        Args:
            training: the series of the training behind `after_step`.
            tests: the series of validations behind `after_test`.
            allocations: slots that the job had, and has.

        Returns:
            Whether there is more to draw.
        """
        held = list(allocations)
        has_more = False
        for record in _records(training.series):
            self._iterations[record.step] = self.iteration = record.iteration
            if self._before is None:
                self._drawn = record if record.iteration < POINT_BATCHES else None
            before = 0 if self._before is None else self._before.iteration
            self._before = record
            if before // POINT_BATCHES < record.iteration // POINT_BATCHES:
                self._draw(record, held)
                has_more = True
        return self._take_tests(tests) or has_more

    def finish(self, allocations: Iterable[Allocation]) -> bool:
        """Draw the last record, wherever it is; returns whether there is more to draw."""
        last = self._before
        if last is None or (self.points and self.points[-1].iteration == last.iteration):
            return False
        self._draw(last, list(allocations))
        return True

    def _draw(self, record: _Record, held: Sequence[Allocation]) -> None:
        per_s = math.nan
        if self._drawn is not None and record.time > self._drawn.time:
            per_s = (record.iteration - self._drawn.iteration) / (record.time - self._drawn.time)
        num_gpus = sum(one.since <= record.time and (one.until is None or record.time < one.until) for one in held)
        self.points.append(Point(record.iteration, record.loss, per_s, num_gpus))
        self._drawn = record

    def _take_tests(self, tests: Metrics) -> bool:
        for series in tests.series:
            if series.name == TEST_LOSS:
                self._waiting += [(step, _read(value)) for step, value in zip(series.step, series.value, strict=True)]
                self._last_test = series.step[-1] if series.step else self._last_test
        known = [(step, loss) for step, loss in self._waiting if step in self._iterations]
        self._waiting = [(step, loss) for step, loss in self._waiting if step not in self._iterations]
        self.tests += [Validation(self._iterations[step], loss) for step, loss in known]
        return bool(known)


def _records(series: Sequence[Series]) -> Iterable[_Record]:
    """Yield what was recorded together, in order."""
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
