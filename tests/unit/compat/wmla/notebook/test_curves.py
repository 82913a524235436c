"""The points of a live chart do not depend on the order in which the records of a job arrive."""

from __future__ import annotations

import math

import pytest

from legato.api.jobs import Allocation
from legato.api.outputs import Metrics, Series, Steps
from legato.compat.wmla.notebook.curves import Curves

NO_STEPS = Steps(step=(), epoch=(), view=(), time=())


def series(name: str, rows: list[tuple[int, float, float | None]]) -> Series:
    """Make a series of (step, time, value)."""
    return Series(
        name=name,
        step=tuple(step for step, _, _ in rows),
        epoch=tuple(0 for _ in rows),
        time=tuple(time for _, time, _ in rows),
        value=tuple(value for _, _, value in rows),
    )


def training(*rows: tuple[int, float, int, float | None]) -> Metrics:
    """Make the records of a training from rows of (step, time, iteration, loss)."""
    iterations = series("iteration", [(step, time, iteration) for step, time, iteration, _ in rows])
    losses = series("loss", [(step, time, loss) for step, time, _, loss in rows])
    return Metrics(series=(iterations, losses), steps=NO_STEPS)


def validations(*rows: tuple[int, float, float]) -> Metrics:
    return Metrics(series=(series("test_loss", list(rows)),) if rows else (), steps=NO_STEPS)


def slot(since: float, until: float | None = None) -> Allocation:
    return Allocation(slot="n/0", job="j", attempt=1, since=since, release_asked_at=None, until=until)


HELD = [slot(0.0), slot(15.0), slot(18.0, 35.0)]
ROWS = [
    (1, 10.0, 2, 3.0),
    (25, 20.0, 50, 2.0),
    (40, 25.0, 80, 1.5),  # the end of an epoch: known, but without a point
    (50, 30.0, 100, 1.4),
    (80, 50.0, 160, 1.0),
]
POINTS = [(50, 2.0, 4.8, 3), (100, 1.4, 5.0, 3), (160, 1.0, 3.0, 2)]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_there_is_a_point_every_fifty_steps_for_any_time_of_requests(size: int) -> None:
    curves = Curves()
    for first in range(0, len(ROWS), size):
        known = curves.after_step
        fresh = [row for row in ROWS[first : first + size] if known is None or row[0] > known]
        curves.add(training(*fresh), validations(), HELD)
    assert [tuple(point) for point in curves.points] == [(*rest, pytest.approx(v), n) for *rest, v, n in POINTS]
    assert curves.iteration == 160
    assert not curves.finish(HELD)


def test_the_last_step_is_drawn_at_the_end() -> None:
    curves = Curves()
    assert not curves.add(training((1, 1.0, 1, 2.0), (7, 4.0, 7, 1.0)), validations(), [slot(0.0)])
    assert curves.titles == ("train loss: - test loss: -", "avg steps per sec: - gpus: 0")
    assert curves.finish([slot(0.0)])
    assert curves.titles == ("train loss: 1 test loss: -", "avg steps per sec: 2.0 gpus: 1")
    assert not Curves().finish([])


def test_a_validation_is_drawn_at_the_end_of_its_epoch() -> None:
    curves = Curves()
    assert curves.after_test is None
    # Before and after the record of its step is read.
    assert not curves.add(training((1, 1.0, 1, 3.0)), validations((40, 26.0, 0.9)), [])
    assert curves.after_test == 40
    assert curves.add(training((40, 25.0, 80, 1.5)), validations(), [])
    assert curves.add(training(), validations((40, 26.0, 0.9)), [])
    assert [tuple(test) for test in curves.tests] == [(80, 0.9)] * 2


def test_titles_are_those_of_the_spec() -> None:
    curves = Curves()
    curves.add(training(*ROWS[:2]), validations(), HELD)
    assert curves.titles == ("train loss: 2 test loss: -", "avg steps per sec: 4.8 gpus: 3")
    curves.add(training(*ROWS[2:]), validations((40, 26.0, 1.23456)), HELD)
    assert curves.titles == ("train loss: 1 test loss: 1.235", "avg steps per sec: 3.0 gpus: 2")
    first, *_ = curves.points
    assert curves.titles_at(first)[0] == "train loss: 2 test loss: -"


def test_a_loss_that_is_no_number_is_a_gap() -> None:
    curves = Curves()
    curves.add(training((1, 1.0, 50, None)), validations(), [])
    assert math.isnan(curves.points[0].loss)
    assert curves.titles[0] == "train loss: - test loss: -"


def test_a_job_that_records_something_else_has_no_points() -> None:
    curves = Curves()
    assert not curves.add(Metrics(series=(series("loss", [(1, 1.0, 1.0)]),), steps=NO_STEPS), validations(), [])
    assert not curves.finish([])
