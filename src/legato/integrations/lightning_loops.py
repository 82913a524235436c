"""Lightning's training loop on the elastic loop: who computes which micro-batch is Legato's, the rest is Lightning's.

Only `legato.integrations.lightning` uses this module. Never decides what a program may use; the strategy does that.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loops.fit_loop import _FitLoop
from lightning.pytorch.loops.loop import _Loop
from lightning.pytorch.loops.optimization.automatic import ClosureResult
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer import call
from lightning.pytorch.trainer.connectors.data_connector import _parse_num_batches
from lightning.pytorch.trainer.connectors.logger_connector.result import (
    _Metadata,
    _ResultCollection,
    _ResultMetric,
    _Sync,
)
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader
from torchmetrics import Metric

from legato.core.errors import ProgramError, UsageError
from legato.integrations.lightning_checks import batches_of

_NAMES: Final = "lightning names"
_SIZE: Final = "size of "
# What decides about the next file, besides the state that ModelCheckpoint itself restores.
_KEPT_OF_CHECKPOINTS: Final = (
    "current_score",
    "_last_global_step_saved",
    "_last_checkpoint_saved",
    "_defer_save_until_validation",
)
_BACKWARD_HOOKS: Final = ("on_before_backward", "on_after_backward")
_HERE: Final = "./"
_NO_EXCHANGE: Final = {"sync_dist": False, "sync_dist_fn": None, "sync_dist_group": None, "rank_zero_only": False}


class ElasticFitLoop(_FitLoop):  # type: ignore[misc]
    """Lightning's loop over epochs, as a loop over `Run.epochs`.

    Made by `become_elastic` of Lightning's own loop; the attributes below are set there.

    Attributes:
        strategy: the trainer's `LegatoStrategy`.
        loader: the user's loader of the training data; never iterated.
        num_micro_batches: of a full step.
    """

    strategy: Any
    loader: DataLoader[Any]
    num_micro_batches: int
    _combined_loader: Any

    def setup_data(self) -> None:
        """Count the micro-batches of an epoch, once; Lightning would begin to load them."""
        if self._combined_loader is not None:
            return
        trainer, step = self.trainer, self.num_micro_batches
        num_all = len(self.loader)
        self.max_batches = _parse_num_batches(RunningStage.TRAINING, num_all, trainer.limit_train_batches)
        self._combined_loader = CombinedLoader(self.loader, "max_size_cycle")
        self._combined_loader.limits = [self.max_batches]
        if self.max_batches != num_all and self.max_batches % step:
            raise UsageError(
                f"Cannot train elastically with limit_train_batches={trainer.limit_train_batches!r}: it ends an epoch "
                f"after {self.max_batches} of {num_all} micro-batches, in the middle of a step. Take a multiple of "
                f"accumulate_grad_batches={step}."
            )
        if isinstance(trainer.val_check_interval, int):
            trainer.val_check_batch = trainer.val_check_interval
        else:
            trainer.val_check_batch = max(1, int(self.max_batches * trainer.val_check_interval))
        if trainer.val_check_batch % step and trainer.val_check_batch != self.max_batches:
            raise UsageError(
                f"Cannot train elastically with val_check_interval={trainer.val_check_interval!r}: it validates after "
                f"{trainer.val_check_batch} of {self.max_batches} micro-batches, in the middle of a step. Take 1.0, or "
                f"a multiple of accumulate_grad_batches={step} as a whole number."
            )

    def run(self) -> None:
        """Train all epochs."""
        self.setup_data()
        if self.skip:
            return
        strategy = self.strategy
        self.reset()
        is_begun = False
        for epoch in strategy.run.epochs(self._count_epochs()):
            strategy.follow_rank()
            if not strategy.run.has_state:
                # A worker that joins gets the counters of the job with its state, but hooks run before that.
                for tracker in (self.epoch_progress.current, self.epoch_progress.total):
                    tracker.ready = tracker.started = tracker.processed = tracker.completed = epoch
            if not is_begun:
                is_begun = True
                self.on_run_start()
            # After an early stop the remaining epochs do no work, so that `Run.epochs` writes a last checkpoint.
            if not self.done:
                self.on_advance_start()
                self.epoch_loop.train_epoch(self)
                strategy.follow_rank()
                self.on_advance_end()
        strategy.follow_rank()
        self.on_run_end()

    def _count_epochs(self) -> int:
        assert isinstance(self.max_epochs, int)
        if self.max_steps < 0:
            return self.max_epochs
        needed: int = math.ceil(self.max_steps / math.ceil(self.max_batches / self.num_micro_batches))
        return needed if self.max_epochs < 0 else min(needed, self.max_epochs)

    def on_save_checkpoint(self) -> dict[str, Any]:
        """Return nothing: Legato keeps the place in the data."""
        return {}


class ElasticEpochLoop(_TrainingEpochLoop):  # type: ignore[misc]
    """Lightning's loop over the batches of an epoch, as a loop over `Run.batches`.

    `DeferredResults` in ``_results`` hold what a micro-batch logs until its step is complete.
    """

    def train_epoch(self, fit_loop: ElasticFitLoop) -> None:
        """Train one epoch."""
        strategy, loader, trainer = fit_loop.strategy, fit_loop.loader, self.trainer
        run, progress = strategy.run, self.batch_progress
        self.reset()
        self._begin_step(0)
        begun_step = -1
        for loaded in batches_of(run, loader):
            index = progress.current.ready + run.micro_batch
            batch = trainer.precision_plugin.convert_input(loaded)
            batch = trainer.lightning_module._on_before_batch_transfer(batch, dataloader_idx=0)
            batch = call._call_strategy_hook(trainer, "batch_to_device", batch, dataloader_idx=0)
            trainer._logger_connector.on_batch_start(batch)
            if run.step != begun_step:
                begun_step = run.step
                strategy.follow_rank()
            self._train_on(batch, index, strategy)
            if run.stepped:
                strategy.follow_rank()
                strategy.forget_files()
                self._end_step(fit_loop, batch)
                if self._is_training_done or (trainer.should_stop and fit_loop._can_stop_early):
                    break
                if not progress.is_last_batch:
                    self._begin_step(progress.current.ready)

    def _begin_step(self, index: int) -> None:
        """Set the gradients to zero, between two steps: there all workers draw the same random numbers in the hooks."""
        optimizer = self.trainer.optimizers[0]
        self.automatic_optimization._on_before_zero_grad(optimizer)
        self.automatic_optimization._optimizer_zero_grad(index, optimizer)

    def _start(self, batch: Any, index: int) -> None:
        trainer = self.trainer
        call._call_callback_hooks(trainer, "on_train_batch_start", batch, index)
        answer = call._call_lightning_module_hook(trainer, "on_train_batch_start", batch, index)
        call._call_strategy_hook(trainer, "on_train_batch_start", batch, index)
        if answer == -1:
            raise ProgramError(
                "on_train_batch_start returned -1, which skips the rest of an epoch. Legato cannot train a part of an "
                "epoch that each worker chooses. Set trainer.should_stop = True, or limit_train_batches."
            )

    def _train_on(self, batch: Any, index: int, strategy: Any) -> None:
        """Run the forward and backward pass of one micro-batch; of the last one of a step, the round of all workers."""
        trainer = self.trainer
        self._results.begin_micro_batch()
        with strategy.computing():
            # It may change the batch, draw random numbers, and log, on the worker that computes the micro-batch.
            self._start(batch, index)
            strategy.note_started()
            arguments = self._build_kwargs(OrderedDict(), batch, index)
            output = call._call_strategy_hook(trainer, "training_step", *arguments.values())
            loss = ClosureResult.from_training_step_output(output).closure_loss
            if loss is None:
                raise ProgramError(
                    "training_step returned None, so that this micro-batch would be skipped. Each micro-batch of a "
                    "step counts: return a loss, such as 0 * loss."
                )
            call._call_strategy_hook(trainer, "backward", loss, trainer.optimizers[0])

    def _end_step(self, fit_loop: ElasticFitLoop, batch: Any) -> None:
        """Do once what belongs to a step, on every worker: log, let the optimizer act, call hooks, validate."""
        trainer, run, progress = self.trainer, fit_loop.strategy.run, self.batch_progress
        connector, results = trainer._logger_connector, self._results
        done, full = progress.current.ready, fit_loop.num_micro_batches
        num_now = min(full, len(fit_loop.loader) - done)
        size, dataset = fit_loop.loader.batch_size, fit_loop.loader.dataset
        assert size is not None and isinstance(dataset, Sized)
        results.end_step(run.notes, num_now)
        # Values that are logged from now on are of the whole step.
        results.batch_size = min(full * size, len(dataset) - done * size)
        loss = torch.tensor(run.loss)
        steps = self.automatic_optimization.optim_progress.optimizer.step
        steps.increment_ready()
        call._call_lightning_module_hook(
            trainer,
            "optimizer_step",
            trainer.current_epoch,
            done + num_now - 1,
            trainer.strategy._lightning_optimizers[0],
            lambda: loss,
        )
        steps.increment_completed()
        for tracker in (progress.current, progress.total):
            tracker.increment_by(num_now)
        progress.is_last_batch = progress.current.ready >= fit_loop.max_batches
        self.update_lr_schedulers("step", update_plateau_schedulers=False)
        if self._num_ready_batches_reached():
            self.update_lr_schedulers("epoch", update_plateau_schedulers=False)
        call._call_callback_hooks(trainer, "on_train_batch_end", {"loss": loss}, batch, self.batch_idx)
        call._call_lightning_module_hook(trainer, "on_train_batch_end", {"loss": loss}, batch, self.batch_idx)
        connector.on_batch_end()
        connector.update_train_step_metrics()
        self.on_advance_end(None)
        # The same on all workers: they have computed different numbers of micro-batches.
        connector._first_loop_iter = False


class DeferredResults(_ResultCollection):  # type: ignore[misc]
    """Values that `LightningModule.log` gets in training: those of a micro-batch count when its step is complete.

    Then every worker has those of all micro-batches, by `Run.notes`, and adds them up in their order.
    """

    def __init__(self) -> None:
        super().__init__(training=True)
        self._logged: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] | None = None
        self._last: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}

    def begin_micro_batch(self) -> None:
        """Keep what is logged from now on until `take`."""
        self._logged = {}

    def take(self) -> dict[str, float]:
        """End the micro-batch's part, and return its values as numbers to note."""
        logged, self._logged = self._logged or {}, None
        self._last = logged
        noted: dict[str, float] = {_NAMES: zlib.crc32("\n".join(sorted(logged)).encode())}
        for key, ((_, name, value), named) in logged.items():
            if value.numel() != 1:
                raise ProgramError(f"self.log({name!r}, ...) got {value.numel()} numbers. Log one number by each call.")
            noted[key] = float(value)
            size = named.pop("batch_size", None)
            # Lightning finds the size of a batch only if it is needed.
            meta = _ResultMetric(_Metadata(fx="", name=name, **_of_metadata(named)), is_tensor=True)
            noted[_SIZE + key] = self._extract_batch_size(meta, size, meta.meta)
        return noted

    def end_step(self, notes: dict[str, tuple[float, ...]], num_micro_batches: int) -> None:
        """Add up what all micro-batches of a step have logged."""
        if len(set(notes[_NAMES])) > 1:
            raise ProgramError(
                f"training_step called self.log with other names for some micro-batches of a step; this worker's last "
                f"one logged {', '.join(sorted(self._last)) or 'nothing'}. Log the same names in every micro-batch."
            )
        for index in range(num_micro_batches):
            for key, ((fx, name, sample), named) in self._last.items():
                value = torch.tensor(notes[key][index], dtype=torch.promote_types(sample.dtype, torch.float32))
                super().log(fx, name, value, batch_size=int(notes[_SIZE + key][index]), **named)

    def log(self, fx: str, name: str, value: Any, *args: Any, **named: Any) -> None:
        """Take a value from `LightningModule.log`.

        Raises:
            ProgramError: it is not of a whole micro-batch or step, or cannot be added up.
        """
        if fx in _BACKWARD_HOOKS:
            raise ProgramError(
                f"{fx} called self.log({name!r}, ...). It runs for the micro-batches of this worker, before the "
                "gradient is complete, so the value would depend on the number of workers. Log it in "
                "on_before_optimizer_step, or, of the loss, in training_step."
            )
        if isinstance(value, Metric) and (self._logged is not None or fx.startswith("training_step")):
            raise ProgramError(
                f"training_step logged {name!r} as a {type(value).__name__}, whose state is of this worker's "
                "micro-batches only. Log a number instead: torchmetrics.functional computes it, and Lightning takes "
                "the mean over the epoch. In validation_step and test_step such objects work."
            )
        # All workers have the same values in the end, so there is nothing to exchange.
        named = {**named, **_NO_EXCHANGE}
        if self._logged is None:
            super().log(fx, name, value, *args, **named)
            return
        key = f"{fx}.{name}"
        if key in self._logged:
            raise ProgramError(f"{fx} called self.log({name!r}, ...) twice for one micro-batch. Log it once.")
        self._logged[key] = ((fx, name, value.detach()), named)

    def plain(self) -> list[dict[str, Any]]:
        """Return the present values as plain values and tensors."""
        lines = []
        for key, metric in self.items():
            if not metric.is_tensor:
                # Logged at the end of an epoch, and reset since.
                continue
            meta = {f.name: getattr(metric.meta, f.name) for f in dataclasses.fields(metric.meta) if f.name != "_sync"}
            line = {"key": key, "meta": {**meta, "reduce_fx": metric.meta.reduce_fx.__name__}}
            for name in ("value", "cumulated_batch_size", "_forward_cache", "_computed", "has_reset", "_update_count"):
                line[name] = getattr(metric, name, None)
            lines.append(line)
        return lines

    def load(self, lines: list[dict[str, Any]]) -> None:
        """Undo `plain`."""
        self.clear()
        for each in lines:
            line = dict(each)
            meta = _Metadata(**line.pop("meta"))
            meta.sync = _Sync()
            metric = self[line.pop("key")] = _ResultMetric(meta, is_tensor=True)
            for name, value in line.items():
                if value is not None or hasattr(metric, name):
                    setattr(metric, name, value)


def _of_metadata(named: dict[str, Any]) -> dict[str, Any]:
    known = {each.name for each in dataclasses.fields(_Metadata)}
    return {name: value for name, value in named.items() if name in known}


class Progress:
    """What the training has come to, besides model, optimizer and scheduler: a part of the job's state.

    Args:
        trainer: whose attributes it reads and sets.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, Any]:
        """Return the progress as plain values and tensors."""
        trainer, connector = self._trainer, self._trainer._logger_connector
        return {
            "loops": trainer.fit_loop.state_dict(),
            "results": trainer.fit_loop.epoch_loop._results.plain(),
            "data_module": None if trainer.datamodule is None else trainer.datamodule.state_dict(),
            "callbacks": [_read_callback(callback) for callback in trainer.callbacks],
            "callback_metrics": dict(connector._callback_metrics),
            "logged_metrics": dict(connector._logged_metrics),
            "shown_metrics": dict(connector._progress_bar_metrics),
            "first": connector._first_loop_iter,
            "function": connector._current_fx,
            "should_stop": trainer.should_stop,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        trainer, connector = self._trainer, self._trainer._logger_connector
        _load_loops(trainer.fit_loop, state["loops"], "")
        trainer.fit_loop.epoch_loop._results.load(state["results"])
        for callback, saved in zip(trainer.callbacks, state["callbacks"], strict=True):
            _load_callback(callback, saved)
        if state["data_module"]:
            trainer.datamodule.load_state_dict(state["data_module"])
        connector._callback_metrics = dict(state["callback_metrics"])
        connector._logged_metrics = dict(state["logged_metrics"])
        connector._progress_bar_metrics = dict(state["shown_metrics"])
        connector._first_loop_iter, connector._current_fx = state["first"], state["function"]
        trainer.should_stop = state["should_stop"]


def _read_callback(callback: Any) -> dict[str, Any]:
    if not isinstance(callback, ModelCheckpoint):
        return {"state": callback.state_dict(), "kept": {}}
    kept = {name: getattr(callback, name) for name in _KEPT_OF_CHECKPOINTS}
    here = f"{Path.cwd()}/"
    # Machines have different working directories.
    read: dict[str, Any] = _replace_start({"state": callback.state_dict(), "kept": kept}, here, _HERE)
    return read


def _load_callback(callback: Any, saved: dict[str, Any]) -> None:
    if isinstance(callback, ModelCheckpoint):
        saved = _replace_start(saved, _HERE, f"{Path.cwd()}/")
        # A folder that is named by the time, or a temporary one: the files of the job are there.
        callback.dirpath = saved["state"].get("dirpath", callback.dirpath)
    if saved["state"]:
        callback.load_state_dict(saved["state"])
    vars(callback).update(saved["kept"])


def _replace_start(value: Any, old: str, new: str) -> Any:
    """Replace the start of all texts in a tree of dicts."""
    if isinstance(value, dict):
        return {_replace_start(name, old, new): _replace_start(part, old, new) for name, part in value.items()}
    return new + value.removeprefix(old) if isinstance(value, str) and value.startswith(old) else value


def _load_loops(loop: _Loop, state: dict[str, Any], prefix: str) -> None:
    """Set the counters of a loop and of those in it; Lightning's own method would have them restart, too."""
    loop._load_from_state_dict(state, prefix)
    for name, part in vars(loop).items():
        if isinstance(part, _Loop):
            _load_loops(part, state, f"{prefix}{name}.")


def become_elastic(trainer: Any, strategy: Any, loader: DataLoader[Any]) -> None:
    """Replace the trainer's loops by elastic ones with the same attributes.

    Args:
        trainer: Lightning's.
        strategy: its `LegatoStrategy`.
        loader: of the training data.
    """
    fit_loop, epoch_loop = ElasticFitLoop.__new__(ElasticFitLoop), ElasticEpochLoop.__new__(ElasticEpochLoop)
    fit_loop.__dict__.update(vars(trainer.fit_loop))
    epoch_loop.__dict__.update(vars(trainer.fit_loop.epoch_loop))
    epoch_loop._results = DeferredResults()
    fit_loop.epoch_loop = epoch_loop
    fit_loop.strategy, fit_loop.loader = strategy, loader
    fit_loop.num_micro_batches = trainer.accumulate_grad_batches
    trainer.fit_loop = fit_loop


def values_of(metrics: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the numbers among logged metrics, as floats, without the number of the epoch."""
    for name, value in metrics.items():
        is_number = value.numel() == 1 if isinstance(value, torch.Tensor) else isinstance(value, int | float)
        if is_number and name != "epoch":
            yield name, float(value)
