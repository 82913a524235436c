"""Loggers of both generations, and the lines from which WMLA's console drew charts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from legato.compat.wmla.fabric.callbacks import LoggerCallback
from legato.compat.wmla.fabric.loggers import (
    DriverLines,
    EDTLoggerCallback,
    ExecutorLines,
    Guard,
    MetricsLogger,
    UserLogger,
    check_logger,
    generation_of,
)
from legato.compat.wmla.fabric.training_log import Entry
from legato.core.errors import UsageError

Calls = list[tuple[Any, ...]]


class First(LoggerCallback):
    """A logger as in the samples of 1.2.x to 2.3."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.calls.append(("train", loss, acc, completed_batch, worker))

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        self.calls.append(("test", loss, acc, completed_batch, worker))

    def on_train_end(self) -> None:
        self.calls.append(("end",))


class Second:
    """A logger as in the documentation of 4.0, without a base class."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, epoch: int, workers: int) -> None:
        self.calls.append(("train", metrics, iteration, epoch, workers))

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, epoch: int) -> None:
        self.calls.append(("test", metrics, iteration, epoch))

    def on_train_begin(self) -> None:
        self.calls.append(("begin",))


class Transitional(LoggerCallback):
    """A logger as in the sample of 4.0: metrics by name, with the old names of methods."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def log_train_metrics(self, metrics, completed_batch, epoch, worker=0):  # type: ignore[no-untyped-def,override]
        self.calls.append(("train", metrics, completed_batch, epoch, worker))

    def log_test_metrics(self, metrics, completed_batch, epoch):  # type: ignore[no-untyped-def,override]
        self.calls.append(("test", metrics, completed_batch, epoch))


class Odd:
    """A logger with any number of parameters, or with fewer than usual."""

    def __init__(self) -> None:
        self.calls: Calls = []

    def log_train_metrics(self, *values: Any) -> None:
        self.calls.append(("train", *values))

    def log_test_metrics(self, metrics: dict[str, float]) -> None:
        self.calls.append(("test", metrics))


def entry(kind: str, **metrics: float) -> Entry:
    return {"n": 5, "kind": kind, "epoch": 2, "iteration": 31, "workers": 3, "metrics": metrics}


@pytest.mark.parametrize(
    ("logger", "want"),
    [
        (First(), [("train", 0.5, 25.0, 31, 3), ("test", 0.25, 75.0, 31, 3), ("end",)]),
        (
            Second(),
            [
                ("begin",),
                ("train", {"loss": 0.5, "accuracy": 0.25}, 31, 2, 3),
                ("test", {"loss": 0.25, "accuracy": 0.75}, 0, 2),
            ],
        ),
        (
            Transitional(),
            [("train", {"loss": 0.5, "accuracy": 0.25}, 31, 2, 3), ("test", {"loss": 0.25, "accuracy": 0.75}, 0, 2)],
        ),
        (Odd(), [("train", {"loss": 0.5, "accuracy": 0.25}, 31, 2, 3), ("test", {"loss": 0.25, "accuracy": 0.75})]),
    ],
)
def test_loggers_are_called_with_the_parameters_of_their_generation(logger: Any, want: Calls) -> None:
    told = UserLogger(logger, Guard())
    told.begin()
    told.receive(entry("train", loss=0.5, accuracy=0.25))
    told.receive(entry("saved"))
    told.receive(entry("test", loss=0.25, accuracy=0.75))
    told.end()
    assert logger.calls == want
    assert all(type(value) in (int, float, dict, str) for call in logger.calls for value in call)


def test_on_a_worker_the_iterations_of_a_test_count() -> None:
    logger = Second()
    UserLogger(logger, Guard(), on_worker=True).receive(entry("test", loss=0.25))
    assert logger.calls == [("test", {"loss": 0.25}, 31, 2)]


def test_the_loss_of_generation_1_can_be_divided_once_more_and_that_of_others_is_not() -> None:
    first, second = First(), Second()
    for logger in (first, second):
        UserLogger(logger, Guard(), loss_divisor=64.0).receive(entry("train", loss=128.0, accuracy=1.0))
    assert first.calls == [("train", 2.0, 100.0, 31, 3)]
    assert second.calls == [("train", {"loss": 128.0, "accuracy": 1.0}, 31, 2, 3)]


def test_an_unknown_accuracy_is_nan() -> None:
    logger = First()
    UserLogger(logger, Guard()).receive(entry("test", loss=1.0))
    assert math.isnan(logger.calls[0][2])


def test_a_failing_logger_is_reported_and_called_again(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(First):
        def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
            super().log_train_metrics(loss, acc, completed_batch, worker)
            raise ZeroDivisionError("of the logger")

    logger = Failing()
    told = UserLogger(logger, Guard())
    for _ in range(5):
        told.receive(entry("train", loss=1.0))
    assert len(logger.calls) == 5
    error = capsys.readouterr().err
    assert error.count("ZeroDivisionError: of the logger\n") == 3
    assert error.count("Failing.log_train_metrics failed with the error above. The training continues.\n") == 3
    assert error.count("Further errors of Failing.log_train_metrics are not shown.\n") == 1
    assert "/guarding.py" not in error and "/loggers.py" not in error, "the traceback begins at the program"


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_the_guard_does_not_catch_exits(kind: type[BaseException]) -> None:
    with pytest.raises(kind), Guard().call("anything"):
        raise kind


def test_generations() -> None:
    assert [generation_of(logger) for logger in (First(), Second(), Transitional(), Odd(), LoggerCallback())] == [
        1,
        2,
        2,
        2,
        1,
    ]
    assert generation_of(EDTLoggerCallback()) == 1
    assert generation_of(MetricsLogger()) == 2


def test_an_object_without_a_loggers_methods_is_refused() -> None:
    with pytest.raises(UsageError, match=r"driver_logger=First is a class. Give an instance: First\(\)\."):
        check_logger("driver_logger", First)
    with pytest.raises(
        UsageError, match="none of the methods log_train_metrics, log_test_metrics, on_train_begin, on_train_end"
    ):
        check_logger("worker_logger", print)


def test_the_default_loggers_write_both_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for logger, told in (
        (EDTLoggerCallback(), "Loss: 0.5,\tAccuracy: 0.25"),
        (MetricsLogger(), "loss: 0.5,\taccuracy: 0.25"),
    ):
        monkeypatch.setenv("LOG_DIR", str(tmp_path / type(logger).__name__))
        teller = UserLogger(logger, Guard())
        for _ in range(2):
            teller.receive(entry("train", loss=0.5, accuracy=0.25))
        teller.receive(entry("test", loss=0.5, accuracy=0.25))
        lines = (tmp_path / type(logger).__name__ / "stdout").read_text().splitlines()
        assert [line.partition("] ")[2].partition(",")[0] for line in lines] == ["Train", "Train", "Test"]
        assert [f"Global steps: {n},\tIteration: 31,\t{told}" in line for n, line in enumerate(lines[:2], 1)] == [
            True
        ] * 2
        assert lines[2].endswith(told)
        metrics = (tmp_path / type(logger).__name__ / "evaluation-metrics.txt").read_text().splitlines()
        assert ['"grouplabel": "train"' in line for line in metrics] == [True, True, False]


def test_the_lines_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATA_DIR", "/data")
    monkeypatch.setenv("RESULT_DIR", "/results")
    lines = DriverLines(lambda: tmp_path, 10, clock=lambda: 112.5)
    lines.begin(100.0)
    lines.receive(entry("train", loss=1.0))
    lines.receive(entry("test", loss=1.0, accuracy=96 / 153))
    lines.receive(entry("test", loss=1.0))
    lines.receive(entry("saved"))
    lines.end()
    assert (tmp_path / "program-stdout.txt").read_text() == (
        "Exposed the environment variable DATA_DIR to: /data\n"
        "<> RESULT_DIR /results\n"
        "--------START TRAINING--------\n"
        "epoch=3 validation_accuracy: 0.6274509803921569\n"
        "save models for epoch 3\n"
        "--------END TRAINING: completed epoch 10 in time 12.500 --------\n"
    )


def test_the_lines_of_an_executor() -> None:
    told: list[str] = []
    lines = ExecutorLines(told.append, clock=lambda: 1700000000.4567)
    lines.batch(4, 0.25)
    lines.metrics("train", 8, {"loss": 0.5, "accuracy": 0.75, "other": 1.0})
    lines.metrics("test", 8, {"loss": 0.5})
    assert told == [
        "Timestamp 1700000000457, Iteration 4",
        "batches :4 0.25",
        "Iteration 8: tag train_accuracy, simple_value 0.75",
        "Iteration 8: tag train_loss, simple_value 0.5",
        "Iteration 8: tag test_loss, simple_value 0.5",
    ]
