"""The training loop of a FabricModel: epochs, validation, callbacks, loggers and files of an elastic run.

Every worker runs the same loop. An action of one worker, such as writing a model, goes through `Together`, or rank 0
does it after the last epoch. Knows nothing of frameworks: an `Engine` does a turn of the loop.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from legato.compat.wmla.fabric.copies import not_for_driver
from legato.compat.wmla.fabric.job_environment import JobEnvironment
from legato.compat.wmla.fabric.log_replayer import LogReplayer
from legato.compat.wmla.fabric.loggers import (
    DriverLines,
    EDTLoggerCallback,
    ExecutorLines,
    Guard,
    MetricsLogger,
    ProgramOutput,
    UserLogger,
    generation_of,
    num_positions,
)
from legato.compat.wmla.fabric.program_state import TurnWatch
from legato.compat.wmla.fabric.pulling import PullWatch
from legato.compat.wmla.fabric.rules import TrainArguments
from legato.compat.wmla.fabric.together import Together
from legato.compat.wmla.fabric.training_log import TrainingLog
from legato.compat.wmla.names import HISTORY_FILE, ITERATION
from legato.core.errors import LegatoError
from legato.train.loop.elastic import Run

FINAL = "final"


class Engine(Protocol):
    """Trains a model of a framework in a run; see docs/design/0005-wmla.md."""

    @property
    def model(self) -> Any:
        """The model, as callbacks see it."""

    @property
    def optimizer(self) -> Any:
        """Its optimizer, as callbacks see it."""

    @property
    def kept(self) -> Sequence[Any]:
        """Objects of the program whose state the run already sends and saves."""

    def batches_of(self, train_set: Any) -> tuple[Any, dict[str, Any]]:
        """Return the data set and the keyword arguments for ``run.batches``, which override the loop's own."""

    def begin_epoch(self) -> None:
        """Prepare the model for the training of an epoch, after the callbacks of its beginning."""

    def train(self, batch: Any) -> Mapping[str, float]:
        """Do a turn of the loop: compute a micro-batch, note its metrics, and apply the optimizer at the end of a step.

        Returns:
            The metrics of the micro-batch, with ``loss``.
        """

    def evaluate(
        self, test_set: Any, together: Together, num_loaders: int, on_batch: Callable[[Mapping[str, float]], None]
    ) -> dict[str, float]:
        """Return the metrics over a data set, the same on every worker.

        ``on_batch`` receives the metrics of each batch that this worker computes.
        """

    def save(self, directory: Path, label: int | str) -> None:
        """Write the model and its optimizer's state to ``model_epoch_LABEL…``, each file completely or not at all."""

    def export_onnx(self, directory: Path, label: int | str, train_set: Any) -> Path:
        """Write the model in ONNX format, and return the path of the file."""


class Parts(Protocol):
    """The model of a program and its checked arguments."""

    @property
    def num_backwards(self) -> int:
        """Number of backward passes per turn of the loop, as the runtime counts them."""

    @property
    def functions(self) -> Mapping[str, Any]:
        """The program's functions that a turn of the loop calls and that may keep state, by their names."""

    def begin(self, train_set: Any, test_set: Any) -> tuple[Any, Any]:
        """Configure the framework before the run begins, and return the data sets as sets of samples."""

    def make_engine(self, run: Run, batch_size: int, train_set: Any) -> Engine:
        """Prepare the model for training in a run."""


class Data(NamedTuple):
    """The data of a training.

    Args:
        train_set: a map-style data set.
        test_set: a map-style data set, or None.
        num_loaders: number of loader processes per worker.
    """

    train_set: Any
    test_set: Any
    num_loaders: int = 0


class Extras(NamedTuple):
    """Loggers, callbacks and options of a program.

    Args:
        generation: of the program's interface, 1 or 2.
        driver_logger: None: the default logger.
        worker_logger: None: the lines of `ExecutorLines`.
        callbacks: every worker calls them before and after each epoch.
        exports_onnx: whether the final model is also written in ONNX format.
    """

    generation: int
    driver_logger: Any = None
    worker_logger: Any = None
    callbacks: Sequence[Any] = ()
    exports_onnx: bool = False


class Loop:
    """One training.

    Args:
        run: of this worker.
        engine: trains the model.
        plan: the arguments of ``train()``.
        extras: loggers, callbacks and options of the program.
        environment: of the job.
        log: the training log; the caller has registered it with ``run.prepare``.
        data: the data sets.
        turns: runs the turns of the loop.
        notice: warning about the size of a step; "": none.
    """

    def __init__(
        self,
        run: Run,
        engine: Engine,
        plan: TrainArguments,
        extras: Extras,
        environment: JobEnvironment,
        log: TrainingLog,
        data: Data,
        turns: TurnWatch,
        notice: str = "",
    ) -> None:
        self._notice = notice
        self._run, self._engine, self._plan, self._extras = run, engine, plan, extras
        self._environment = environment
        self._training_log = log
        self._guard = Guard()
        self._together = Together(run)
        divisor = float(plan.batch_size) if environment.divides_loss else 1.0
        default = EDTLoggerCallback() if extras.generation == 1 else MetricsLogger()
        driver_logger = default if extras.driver_logger is None else extras.driver_logger
        self._replayer = LogReplayer(environment.driver_dir, environment.worker)
        self._replayer.add(ProgramOutput(lambda: self._replayer.directory))
        self._replayer.add(DriverLines(lambda: self._replayer.directory, plan.epoch_number))
        self._replayer.add(UserLogger(driver_logger, self._guard, loss_divisor=divisor))
        self._lines = ExecutorLines(_print)
        self._worker_logger = None
        if extras.worker_logger is not None:
            logger = extras.worker_logger
            self._worker_logger = UserLogger(logger, self._guard, loss_divisor=divisor, on_worker=True)
        self._data, self._turns = data, turns
        self._num_batches = self._num_test_batches = 0
        self._watch: PullWatch | None = None

    def run(self) -> None:
        """Train to the end, and write the final model."""
        has_begun = (self._environment.driver_dir / HISTORY_FILE).exists()
        if self._environment.pulling is not None and self._environment.is_in_job and has_begun:
            self._watch = PullWatch(self._environment.pulling)
        if not self._environment.is_in_job:
            self._replayer.delete_history()
        for callback in self._extras.callbacks:
            callback.params = {"optimizer": self._engine.optimizer, "epochs": self._plan.epoch_number}
            callback.model = self._engine.model
        if self._worker_logger is not None:
            self._worker_logger.begin()
        try:
            for epoch in self._run.epochs(self._plan.epoch_number):
                if self._notice and self._run.is_main and self._run.step == 0:
                    self._run.warn(self._notice)
                self._run_epoch(epoch)
            self._end()
        finally:
            # Also if this worker leaves before the end.
            self._replayer.close()

    # ------------------------------------------------------------ an epoch

    def _run_epoch(self, epoch: int) -> None:
        log, run = self._training_log, self._run
        self._call_back("on_epoch_begin", epoch)
        log.begin_epoch(epoch)
        self._engine.begin_epoch()
        dataset, loading = self._engine.batches_of(self._data.train_set)
        for batch in run.batches(dataset, **{"num_workers": self._data.num_loaders, **loading}):
            self._end_pull_watch()
            self._report_batch(self._turns.do(partial(self._engine.train, batch)))
            if run.stepped:
                log.add_step(run.notes, run.num_workers)
                self._report("train", log.averages)
                if log.is_at_point and not log.is_at_end:
                    self._log()
        if log.is_live:
            self._log()
        if self._data.test_set is not None and self._plan.validates_after(epoch):
            self._validate()
        saves = self._plan.saves_after(epoch)
        if saves:
            self._together.do(lambda: self._save(epoch + 1))
            log.add_saved(run.num_workers)
            self._report(None, {})
        is_last = epoch + 1 == self._plan.epoch_number
        has_state = log.is_live
        self._call_back("on_epoch_end", epoch, (saves or is_last) and run.is_main and has_state)

    def _validate(self) -> None:
        data = self._data
        found = self._engine.evaluate(data.test_set, self._together, data.num_loaders, self._report_test_batch)
        self._end_pull_watch()
        self._training_log.add_test(found, self._run.num_workers)
        self._report("test", found)
        self._run.log(**{f"test_{name}": value for name, value in found.items()})

    def _log(self) -> None:
        """Record the metrics of the epoch so far; a notebook outside of the job draws its charts from these records."""
        self._run.log(**{**self._training_log.averages, ITERATION: self._training_log.num_batches})

    def _save(self, label: int | str) -> float:
        if self._run.is_main:
            self._engine.save(self._environment.model_dir, label)
        return 0.0

    def _report(self, group: str | None, metrics: Mapping[str, float]) -> None:
        if self._worker_logger is None and group is not None:
            self._lines.metrics(group, self._training_log.num_batches, metrics)
        if self._run.is_main:
            self._replayer.pass_on(self._training_log)

    # ------------------------------------------------------------ reports of this worker

    def _report_batch(self, values: Mapping[str, float]) -> None:
        self._num_batches += 1
        if self._worker_logger is None:
            self._lines.batch(self._num_batches, values["loss"])
        else:
            self._worker_logger.receive(self._own_entry("train", self._num_batches, values))

    def _report_test_batch(self, values: Mapping[str, float]) -> None:
        self._num_test_batches += 1
        if self._worker_logger is not None:
            self._worker_logger.receive(self._own_entry("test", self._num_test_batches, values))

    def _own_entry(self, kind: str, iteration: int, values: Mapping[str, float]) -> dict[str, Any]:
        run = self._run
        return {
            "kind": kind,
            "epoch": run.epoch,
            "iteration": iteration,
            "workers": self._training_log.count_working(run.num_workers),
            "metrics": dict(values),
        }

    def _call_back(self, name: str, *values: Any) -> None:
        for callback in self._extras.callbacks:
            method = getattr(callback, name, None)
            if method is not None:
                with self._guard.call(f"{type(callback).__name__}.{name}"):
                    method(*values[: num_positions(method)])

    def _end_pull_watch(self) -> None:
        if self._watch is not None:
            self._watch.arrived()
            self._watch = None

    # ------------------------------------------------------------ the end

    def _end(self) -> None:
        self._end_pull_watch()
        if self._run.is_main and self._training_log.is_live:
            self._save(FINAL)
            if self._extras.exports_onnx:
                self._export()
            self._replayer.end(self._training_log)
        if self._worker_logger is not None:
            self._worker_logger.end()
        _print(f"--------END TRAINING: completed {self._num_batches} iterations --------")

    def _export(self) -> None:
        try:
            self._engine.export_onnx(self._environment.model_dir, FINAL, self._data.train_set)
        except LegatoError as error:
            _complain(str(error))
        except Exception as error:  # noqa: BLE001 - reported; the trained model is saved even if its export fails
            _complain(f"{type(error).__name__}: {error}")


def choose_generation(extras: Extras, has_old_names: bool) -> int:
    """Return the generation of a program: 1 if it uses parameters of generation 1 but no logger of generation 2.

    Args:
        extras: has the program's loggers.
        has_old_names: whether the program uses a parameter that only generation 1 had.
    """
    logger = extras.driver_logger if extras.driver_logger is not None else extras.worker_logger
    return 1 if has_old_names and (logger is None or generation_of(logger) == 1) else 2


def _complain(why: str) -> None:
    sys.stderr.write(f"The model was trained and saved, but not exported to ONNX. {why}\n")


def _print(line: str) -> None:
    # WMLA's driver did not print these lines.
    with not_for_driver():
        sys.stdout.write(line + "\n")
