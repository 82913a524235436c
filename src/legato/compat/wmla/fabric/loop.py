"""The training of a FabricModel: epochs, validation, callbacks, loggers and files around an elastic run.

Every worker goes through it alike; what only one does, such as writing a model, it does by `Together` or as rank 0
after the end. Knows nothing of frameworks: an `Engine` does what a turn of the loop does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from legato.compat.wmla.fabric.copies import apart
from legato.compat.wmla.fabric.job_environment import JobEnvironment
from legato.compat.wmla.fabric.log_replayer import LogReplayer
from legato.compat.wmla.fabric.loggers import (
    DriverLines,
    EDTLoggerCallback,
    ExecutorLines,
    Guard,
    MetricsLogger,
    ProgramWords,
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
    """A model of some framework in the care of a run; see docs/design/0005-wmla.md."""

    @property
    def model(self) -> Any:
        """The model, as callbacks see it."""

    @property
    def optimizer(self) -> Any:
        """Its optimizer, as callbacks see it."""

    @property
    def kept(self) -> Sequence[Any]:
        """Objects of the program whose state it has put in the care of the run."""

    def batches_of(self, train_set: Any) -> tuple[Any, dict[str, Any]]:
        """Return the data set and the keyword arguments for ``run.batches``; what it says of loading counts."""

    def begin_epoch(self) -> None:
        """Set the model up for training, as callbacks have left it."""

    def train(self, batch: Any) -> Mapping[str, float]:
        """Do a turn of the loop: compute, note, act if it completes a step. Returns what it noted, with ``loss``."""

    def evaluate(
        self, test_set: Any, together: Together, num_loaders: int, on_batch: Callable[[Mapping[str, float]], None]
    ) -> dict[str, float]:
        """Return the metrics over a data set, the same on every worker; each worker reports its own batches."""

    def save(self, directory: Path, label: int | str) -> None:
        """Write the model and its optimizer's state to ``model_epoch_LABEL…``, each whole or not at all."""

    def export_onnx(self, directory: Path, label: int | str, train_set: Any) -> Path:
        """Write the model in ONNX format, and return where."""


class Parts(Protocol):
    """What a program gave of its model, checked."""

    @property
    def num_backwards(self) -> int:
        """Backward passes per turn of the loop, as the runtime counts them."""

    @property
    def functions(self) -> Mapping[str, Any]:
        """What is called in turns of the loop and may remember something, by what to call it."""

    def begin(self, train_set: Any, test_set: Any) -> tuple[Any, Any]:
        """Set the framework up, before the run begins. Returns the data sets as sets of samples."""

    def make_engine(self, run: Run, batch_size: int, train_set: Any) -> Engine:
        """Put the model in the care of a run."""


class Data(NamedTuple):
    """What a model is trained on.

    Args:
        train_set: map-style.
        test_set: likewise, or None.
        num_loaders: loader processes.
    """

    train_set: Any
    test_set: Any
    num_loaders: int = 0


class Extras(NamedTuple):
    """What a program gave besides its model.

    Args:
        generation: of its interface, 1 or 2.
        driver_logger: None: the default one.
        worker_logger: None: the default lines.
        callbacks: called on every worker around each epoch.
        exports_onnx: the final model is also written in ONNX format.
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
        engine: of the model.
        plan: what ``train()`` was asked for.
        extras: what else the program gave.
        around: what the environment says.
        log: prepared by the caller.
        data: what it is trained on.
        turns: does the turns of the loop.
        notice: what the job's user must know of the steps; "": nothing.
    """

    def __init__(
        self,
        run: Run,
        engine: Engine,
        plan: TrainArguments,
        extras: Extras,
        around: JobEnvironment,
        log: TrainingLog,
        data: Data,
        turns: TurnWatch,
        notice: str = "",
    ) -> None:
        self._notice = notice
        self._run, self._engine, self._plan, self._extras, self._around = run, engine, plan, extras, around
        self._training_log = log
        self._guard = Guard()
        self._together = Together(run)
        divisor = float(plan.batch_size) if around.divides_loss else 1.0
        default = EDTLoggerCallback() if extras.generation == 1 else MetricsLogger()
        driver_logger = default if extras.driver_logger is None else extras.driver_logger
        self._replayer = LogReplayer(around.driver_dir, around.worker)
        self._replayer.add(ProgramWords(lambda: self._replayer.directory))
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
        has_begun = (self._around.driver_dir / HISTORY_FILE).exists()
        if self._around.pulling is not None and self._around.is_in_job and has_begun:
            self._watch = PullWatch(self._around.pulling)
        if not self._around.is_in_job:
            self._replayer.forget()
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
            # Also where this worker leaves before the end.
            self._replayer.close()

    # ------------------------------------------------------------ an epoch

    def _run_epoch(self, epoch: int) -> None:
        log, run = self._training_log, self._run
        self._call_back("on_epoch_begin", epoch)
        log.begin_epoch(epoch)
        self._engine.begin_epoch()
        dataset, loading = self._engine.batches_of(self._data.train_set)
        for batch in run.batches(dataset, **{"num_workers": self._data.num_loaders, **loading}):
            self._arrive()
            self._hear_batch(self._turns.do(partial(self._engine.train, batch)))
            if run.stepped:
                log.add_step(run.notes, run.num_workers)
                self._tell("train", log.averages)
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
            self._tell(None, {})
        is_last = epoch + 1 == self._plan.epoch_number
        has_state = log.is_live
        self._call_back("on_epoch_end", epoch, (saves or is_last) and run.is_main and has_state)

    def _validate(self) -> None:
        data = self._data
        found = self._engine.evaluate(data.test_set, self._together, data.num_loaders, self._hear_test_batch)
        self._arrive()
        self._training_log.add_test(found, self._run.num_workers)
        self._tell("test", found)
        self._run.log(**{f"test_{name}": value for name, value in found.items()})

    def _log(self) -> None:
        """Record how far the epoch is: a program that draws the training from elsewhere has only this."""
        self._run.log(**{**self._training_log.averages, ITERATION: self._training_log.num_batches})

    def _save(self, label: int | str) -> float:
        if self._run.is_main:
            self._engine.save(self._around.model_dir, label)
        return 0.0

    def _tell(self, group: str | None, figures: Mapping[str, float]) -> None:
        if self._worker_logger is None and group is not None:
            self._lines.figures(group, self._training_log.num_batches, figures)
        if self._run.is_main:
            self._replayer.tell(self._training_log)

    # ------------------------------------------------------------ this worker's own part

    def _hear_batch(self, values: Mapping[str, float]) -> None:
        self._num_batches += 1
        if self._worker_logger is None:
            self._lines.batch(self._num_batches, values["loss"])
        else:
            self._worker_logger.hear(self._own_entry("train", self._num_batches, values))

    def _hear_test_batch(self, values: Mapping[str, float]) -> None:
        self._num_test_batches += 1
        if self._worker_logger is not None:
            self._worker_logger.hear(self._own_entry("test", self._num_test_batches, values))

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

    def _arrive(self) -> None:
        if self._watch is not None:
            self._watch.arrived()
            self._watch = None

    # ------------------------------------------------------------ the end

    def _end(self) -> None:
        self._arrive()
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
            self._engine.export_onnx(self._around.model_dir, FINAL, self._data.train_set)
        except LegatoError as error:
            _complain(str(error))
        except Exception as error:  # noqa: BLE001 - told; the trained model stands, whatever its export needs
            _complain(f"{type(error).__name__}: {error}")


def choose_generation(extras: Extras, has_old_names: bool) -> int:
    """Return the generation of a program: 1 if it uses what only that had, unless its logger is of generation 2.

    Args:
        extras: with its loggers.
        has_old_names: it uses a parameter that only generation 1 had.
    """
    logger = extras.driver_logger if extras.driver_logger is not None else extras.worker_logger
    return 1 if has_old_names and (logger is None or generation_of(logger) == 1) else 2


def _complain(why: str) -> None:
    sys.stderr.write(f"The model was trained and saved, but not exported to ONNX. {why}\n")


def _print(line: str) -> None:
    # WMLA's driver had no such lines.
    with apart():
        sys.stdout.write(line + "\n")
