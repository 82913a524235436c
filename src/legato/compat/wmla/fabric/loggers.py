"""Calls users' loggers of both generations, and writes the lines that other software parses.

If the first parameter of a logger's ``log_train_metrics`` is named ``loss``, the logger is of generation 1, else of
generation 2. Loggers receive plain Python numbers.
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
from legato.compat.wmla.fabric.copies import copy_to_driver
from legato.compat.wmla.fabric.records import ELog, EMetrics
from legato.compat.wmla.fabric.training_log import Entry
from legato.core.errors import UsageError

START: Final = "--------START TRAINING--------"
PERCENT: Final = 100.0
_METHODS: Final = ("log_train_metrics", "log_test_metrics", "on_train_begin", "on_train_end")


class Listener(Protocol):
    """A receiver of the entries of the training log, in their order."""

    def begin(self, began_at: float) -> None:
        """Receive the time at which the training began, in seconds since 1970."""

    def receive(self, entry: Entry) -> None:
        """Receive an entry of the log."""

    def end(self) -> None:
        """Receive the end of the training."""


class UserLogger:
    """A logger of the program.

    Args:
        logger: has some of ``log_train_metrics``, ``log_test_metrics``, ``on_train_begin``, ``on_train_end``.
        guard: handles its errors.
        loss_divisor: a logger of generation 1 receives the loss divided by this.
        on_worker: whether the logger receives this worker's micro-batches and test batches. Otherwise it receives those
            of the job, as the driver's logger.
    """

    def __init__(self, logger: Any, guard: Guard, *, loss_divisor: float = 1.0, on_worker: bool = False) -> None:
        self._logger = logger
        self._guard = guard
        self._divisor = loss_divisor
        self._on_worker = on_worker
        self._is_first = generation_of(logger) == 1

    def begin(self, _: float = 0.0) -> None:
        """Call ``on_train_begin``."""
        self._call("on_train_begin")

    def receive(self, entry: Entry) -> None:
        """Call ``log_train_metrics`` for a micro-batch or ``log_test_metrics`` for a validation."""
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
        """Call ``on_train_end``."""
        self._call("on_train_end")

    def _pair(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        # An unknown accuracy is NaN, not a number that could be mistaken for a measurement.
        return metrics["loss"] / self._divisor, metrics.get("accuracy", float("nan")) * PERCENT

    def _call(self, name: str, *values: Any) -> None:
        method = getattr(self._logger, name, None)
        if method is not None:
            with self._guard.call(f"{type(self._logger).__name__}.{name}"):
                method(*values[: num_positions(method)])


class EDTLoggerCallback(LoggerCallback):
    """The default logger of programs of generation 1: writes with `ELog` and `EMetrics`."""

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
    """The default logger of programs of generation 2: writes the same files, with the metrics by their names."""

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


class ProgramOutput:
    """Copies what the program prints to the driver's files, because WMLA's driver also ran the program.

    Args:
        directory: returns the present log directory of the driver.
    """

    def __init__(self, directory: Callable[[], Path]) -> None:
        self._directory = directory

    def begin(self, _: float) -> None:
        """Copy all output of the program, including what it printed before."""
        copy_to_driver(self._directory())

    def receive(self, _: Entry) -> None:
        """Do nothing: the output is copied when the program prints it."""

    def end(self) -> None:
        """Do nothing: output after the training is copied, too."""


class DriverLines:
    """Writes the lines that WMLA's driver wrote to its standard output.

    Args:
        directory: returns the present log directory of the driver.
        num_epochs: of the training.
        clock: returns seconds since 1970.
    """

    def __init__(self, directory: Callable[[], Path], num_epochs: int, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._num_epochs = num_epochs
        self._clock = clock
        self._began_at = 0.0

    def begin(self, began_at: float) -> None:
        """Write the lines at the start of the training."""
        self._began_at = began_at
        if "DATA_DIR" in os.environ:
            self._write(f"Exposed the environment variable DATA_DIR to: {os.environ['DATA_DIR']}")
        self._write(f"<> RESULT_DIR {os.environ.get('RESULT_DIR', '')}")
        self._write(START)

    def receive(self, entry: Entry) -> None:
        """Write the line for a validation or a saved model; other entries have none."""
        epoch = entry["epoch"] + 1
        if entry["kind"] == "test" and "accuracy" in entry["metrics"]:
            self._write(f"epoch={epoch} validation_accuracy: {entry['metrics']['accuracy']}")
        elif entry["kind"] == "saved":
            self._write(f"save models for epoch {epoch}")

    def end(self) -> None:
        """Write the line at the end of the training."""
        took_s = self._clock() - self._began_at
        self._write(f"--------END TRAINING: completed epoch {self._num_epochs} in time {took_s:.3f} --------")

    def _write(self, line: str) -> None:
        with (self._directory() / names.OUT_FILE).open("a") as file:
            file.write(line + "\n")


class ExecutorLines:
    """Writes the lines that WMLA's executors printed. WMLA's console drew its charts from these lines.

    Args:
        write: writes a line.
        clock: returns seconds since 1970.
    """

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._write = write
        self._clock = clock

    def batch(self, iteration: int, loss: float) -> None:
        """Write the lines for a micro-batch of this worker.

        Args:
            iteration: number of micro-batches that this worker has computed.
            loss: of this micro-batch.
        """
        self._write(f"Timestamp {round(self._clock() * 1000)}, Iteration {iteration}")
        self._write(f"batches :{iteration} {loss}")

    def metrics(self, group: str, iteration: int, metrics: Mapping[str, float]) -> None:
        """Write the lines for a step or a validation of the job.

        Args:
            group: ``train`` or ``test``.
            iteration: number of micro-batches that all workers have computed.
            metrics: loss and, if it is known, accuracy from 0 to 1.
        """
        for name in ("accuracy", "loss"):
            if name in metrics:
                self._write(f"Iteration {iteration}: tag {group}_{name}, simple_value {metrics[name]}")


def generation_of(logger: Any) -> int:
    """Return the generation of a logger: 1 or 2."""
    method = getattr(logger, "log_train_metrics", None) or getattr(logger, "log_test_metrics", None)
    parameters = [] if method is None else list(inspect.signature(method).parameters)
    return 1 if parameters[:1] == ["loss"] else 2


def check_logger(name: str, logger: Any) -> None:
    """Raise UsageError if the logger has no method that Legato can call."""
    if isinstance(logger, type):
        raise UsageError(f"{name}={logger.__name__} is a class. Give an instance: {logger.__name__}().")
    if not any(callable(getattr(logger, method, None)) for method in _METHODS):
        raise UsageError(
            f"{name}={logger!r} is not a logger: it has none of the methods {', '.join(_METHODS)}. Give an object with "
            "some of them, for example of a class derived from callbacks.LoggerCallback."
        )


def num_positions(method: Callable[..., Any]) -> int | None:
    """Return the maximum number of positional arguments of a method; None: any number."""
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in parameters)


# ------------------------------------------------------------ errors in users' loggers and callbacks


_MAX_TRACEBACKS: Final = 3


class Guard:
    """Writes an error in a logger or callback to the worker's error log, and lets the training continue."""

    def __init__(self) -> None:
        self._num_errors: Counter[str] = Counter()

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Catch an error of the code in the context.

        Args:
            name: of the function that is called; only its first three errors are written.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - reported with its traceback; a logger must not stop a training
            self._num_errors[name] += 1
            number = self._num_errors[name]
            if number <= _MAX_TRACEBACKS:
                shown = "".join(traceback.format_exception(type(error), error, _frames_of_program(error)))
                sys.stderr.write(f"{shown}{name} failed with the error above. The training continues.\n")
            if number == _MAX_TRACEBACKS:
                sys.stderr.write(f"Further errors of {name} are not shown.\n")
            sys.stderr.flush()


def _frames_of_program(error: BaseException) -> TracebackType | None:
    """Return the traceback from the first frame that is not Legato's."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_globals.get("__name__", "").startswith("legato."):
        frame = frame.tb_next
    return frame
