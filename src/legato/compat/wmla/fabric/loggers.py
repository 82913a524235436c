"""Calls users' loggers of all generations, and writes the lines that other software parses.

A logger's generation is known by the name of the first parameter of its ``log_train_metrics``: ``loss`` is 1, else 2.
All values are plain Python numbers. Knows nothing of who tells when.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol

from legato.compat.wmla import names
from legato.compat.wmla.fabric.callbacks import LoggerCallback
from legato.compat.wmla.fabric.copies import speak_for_driver
from legato.compat.wmla.fabric.records import ELog, EMetrics
from legato.compat.wmla.fabric.training_log import Entry
from legato.core.errors import UsageError

START: Final = "--------START TRAINING--------"
PERCENT: Final = 100.0
_METHODS: Final = ("log_train_metrics", "log_test_metrics", "on_train_begin", "on_train_end")


class Listener(Protocol):
    """A receiver of the log's entries, in order."""

    def begin(self, began_at: float) -> None:
        """The training began at a time, in seconds since 1970."""

    def hear(self, entry: Entry) -> None:
        """An entry of the log."""

    def end(self) -> None:
        """The training is over."""


class UserLogger:
    """A logger of the program.

    Args:
        logger: with any of ``log_train_metrics``, ``log_test_metrics``, ``on_train_begin``, ``on_train_end``.
        guard: of its errors.
        loss_divisor: of the loss that a logger of generation 1 receives.
        on_worker: it receives one worker's micro-batches and test batches; else of the whole job, for the driver.
    """

    def __init__(self, logger: Any, guard: Guard, *, loss_divisor: float = 1.0, on_worker: bool = False) -> None:
        self._logger = logger
        self._guard = guard
        self._divisor = loss_divisor
        self._on_worker = on_worker
        self._is_first = generation_of(logger) == 1

    def begin(self, _: float = 0.0) -> None:
        """Tell that the training begins."""
        self._call("on_train_begin")

    def hear(self, entry: Entry) -> None:
        """Tell of a micro-batch or a validation."""
        metrics, workers = dict(entry["metrics"]), entry["workers"]
        iteration, epoch = entry["iteration"], entry["epoch"]
        if entry["kind"] == "train":
            if self._is_first:
                self._call("log_train_metrics", *self._pair(metrics), iteration, workers)
            else:
                self._call("log_train_metrics", metrics, iteration, epoch, workers)
        elif entry["kind"] == "test":
            if self._is_first:
                self._call("log_test_metrics", *self._pair(metrics), iteration, workers)
            else:
                self._call("log_test_metrics", metrics, iteration if self._on_worker else 0, epoch)

    def end(self) -> None:
        """Tell that the training is over."""
        self._call("on_train_end")

    def _pair(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        # What is not known is not told as some number.
        return metrics["loss"] / self._divisor, metrics.get("accuracy", float("nan")) * PERCENT

    def _call(self, name: str, *values: Any) -> None:
        method = getattr(self._logger, name, None)
        if method is not None:
            with self._guard.call(f"{type(self._logger).__name__}.{name}"):
                method(*values[: num_positions(method)])


class EDTLoggerCallback(LoggerCallback):
    """The logger of programs of generation 1 that bring none: an ELog and an EMetrics."""

    def __init__(self) -> None:
        self._num_steps = 0

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Write a line for a micro-batch."""
        self._num_steps += 1
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TRAIN_GROUP, completed_batch, {"loss": loss, "accuracy": acc / PERCENT})
        with ELog.open() as log:
            log.recordTrain("Train", completed_batch, self._num_steps, loss, acc / PERCENT, worker)

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Write a line for a validation."""
        with EMetrics.open() as metrics:
            metrics.record(EMetrics.TEST_GROUP, completed_batch, {"loss": loss, "accuracy": acc / PERCENT})
        with ELog.open() as log:
            log.recordTest("Test", loss, acc / PERCENT, worker)


class MetricsLogger:
    """The logger of programs of generation 2 that bring none: the same files, with the metrics by their names."""

    def __init__(self) -> None:
        self._num_steps = 0

    def log_train_metrics(self, metrics: dict[str, float], iteration: int, _: int, __: int) -> None:
        """Write a line for a micro-batch."""
        self._num_steps += 1
        with EMetrics.open() as file:
            file.record(EMetrics.TRAIN_GROUP, iteration, metrics)
        with ELog.open() as log:
            log.recordTrain("Train", iteration, self._num_steps, metrics)

    def log_test_metrics(self, metrics: dict[str, float], iteration: int, _: int) -> None:
        """Write a line for a validation."""
        with EMetrics.open() as file:
            file.record(EMetrics.TEST_GROUP, iteration, metrics)
        with ELog.open() as log:
            log.recordTest("Test", metrics)


class ProgramWords:
    """What the program prints, in the driver's files: WMLA's driver ran it too.

    Args:
        directory: gives the driver's log directory at the time.
    """

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory

    def begin(self, _: float) -> None:
        """Have it there, from its first word on."""
        speak_for_driver(self._directory())

    def hear(self, _: Entry) -> None:
        """Do nothing: it comes by itself."""

    def end(self) -> None:
        """Do nothing: what the program prints after its training belongs to it."""


class DriverLines:
    """What WMLA's driver wrote to its standard output.

    Args:
        directory: gives the driver's log directory at the time.
        num_epochs: of the training.
        clock: seconds since 1970.
    """

    def __init__(self, directory: Callable[[], Path], num_epochs: int, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._num_epochs = num_epochs
        self._clock = clock
        self._began_at = 0.0

    def begin(self, began_at: float) -> None:
        """Write that the training starts."""
        self._began_at = began_at
        if "DATA_DIR" in os.environ:
            self._write(f"Exposed the environment variable DATA_DIR to: {os.environ['DATA_DIR']}")
        self._write(f"<> RESULT_DIR {os.environ.get('RESULT_DIR', '')}")
        self._write(START)

    def hear(self, entry: Entry) -> None:
        """Write what there is to write of a validation or a saved model."""
        epoch = entry["epoch"] + 1
        if entry["kind"] == "test" and "accuracy" in entry["metrics"]:
            self._write(f"epoch={epoch} validation_accuracy: {entry['metrics']['accuracy']}")
        elif entry["kind"] == "saved":
            self._write(f"save models for epoch {epoch}")

    def end(self) -> None:
        """Write that the training is over."""
        took_s = self._clock() - self._began_at
        self._write(f"--------END TRAINING: completed epoch {self._num_epochs} in time {took_s:.3f} --------")

    def _write(self, line: str) -> None:
        with (self._directory() / names.OUT_FILE).open("a") as file:
            file.write(line + "\n")


class ExecutorLines:
    """What WMLA's executors printed; charts of its console were made of these lines.

    Args:
        write: takes a line.
        clock: seconds since 1970.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._write = write
        self._clock = clock

    def batch(self, iteration: int, loss: float) -> None:
        """Tell of a micro-batch of this worker.

        Args:
            iteration: how many it has computed.
            loss: of this one.
        """
        self._write(f"Timestamp {round(self._clock() * 1000)}, Iteration {iteration}")
        self._write(f"batches :{iteration} {loss}")

    def figures(self, group: str, iteration: int, metrics: Mapping[str, float]) -> None:
        """Tell of a step or a validation of the job.

        Args:
            group: train or test.
            iteration: micro-batches of all workers.
            metrics: with loss and, where it is known, accuracy.
        """
        for name in ("accuracy", "loss"):
            if name in metrics:
                self._write(f"Iteration {iteration}: tag {group}_{name}, simple_value {metrics[name]}")


def generation_of(logger: Any) -> int:
    """Return the generation that a logger is written for."""
    method = getattr(logger, "log_train_metrics", None) or getattr(logger, "log_test_metrics", None)
    parameters = [] if method is None else list(inspect.signature(method).parameters)
    return 1 if parameters[:1] == ["loss"] else 2


def check_logger(name: str, logger: Any) -> None:
    """Raise UsageError if the logger has no method that Legato can call."""
    if isinstance(logger, type):
        raise UsageError(f"{name}={logger.__name__} is a class. Give an instance: {logger.__name__}().")
    if not any(callable(getattr(logger, method, None)) for method in _METHODS):
        raise UsageError(
            f"{name}={logger!r} is no logger: it has none of {', '.join(_METHODS)}. Give an object with some of these "
            "methods, such as one derived from callbacks.LoggerCallback."
        )


def num_positions(method: Callable[..., Any]) -> int | None:
    """Return how many positional arguments a method takes, None for any number."""
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters)


# ------------------------------------------------------------ calls of what users wrote


_TOLD_IN_FULL: Final = 3


class Guard:
    """Lets the training continue after an error in what was called, and says so in the worker's error log."""

    def __init__(self) -> None:
        self._num_errors: Counter[str] = Counter()

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Call something under guard.

        Args:
            name: of what is called; after some errors in the same, further ones are counted only.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told whole; a logger is not worth a training
            self._num_errors[name] += 1
            number = self._num_errors[name]
            if number <= _TOLD_IN_FULL:
                told = "".join(traceback.format_exception(type(error), error, _frames_of_program(error)))
                sys.stderr.write(f"{told}{name} failed with the error above. The training continues.\n")
            if number == _TOLD_IN_FULL:
                sys.stderr.write(f"Further errors of {name} are not shown.\n")
            sys.stderr.flush()


def _frames_of_program(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame on that is not our own."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith("legato."):
        frame = frame.tb_next
    return frame
