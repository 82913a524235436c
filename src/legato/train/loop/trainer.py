"""Training without your own loop: `Trainer` runs epochs, validation and callbacks on the elastic loop.

Uses only the public interface of `elastic`, so its guarantee (the same result on any number of workers) holds here too.
Never decides which worker computes what.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeAlias

import torch
from torch.utils.data import Dataset

from legato.core.errors import ProgramError, UsageError
from legato.train.data.fetch import Collate
from legato.train.loop.elastic import Reduction, Run, elastic
from legato.train.loop.evaluation import Metric
from legato.train.loop.progress_line import ProgressLine
from legato.train.state.agreement import OnDifference

Model: TypeAlias = torch.nn.Module | Callable[[], torch.nn.Module]
Optimizer: TypeAlias = torch.optim.Optimizer | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
_Scheduler = torch.optim.lr_scheduler.LRScheduler
_Plateau = torch.optim.lr_scheduler.ReduceLROnPlateau


@dataclass(frozen=True)
class EpochRecord:
    """The results of one epoch, equal on all workers.

    Args:
        epoch: from 0.
        step: committed steps of the job at its end.
        loss: mean over the samples of the epoch, each at the time it was trained on.
        metrics: of the validation set, by name: ``loss`` and the requested metrics; empty without a validation set.
    """

    epoch: int
    step: int
    loss: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class History:
    """The results of a training, epoch by epoch; part of the job's state.

    Args:
        epochs: in order.
        stopped: why the training ended early; None if it did not.
        loss_sum: sum of the losses of all samples of the present epoch so far.
        num_samples: number of samples of the present epoch so far.

    >>> history = History()
    >>> history.add_step(2.0, 30), history.add_step(1.0, 10)
    (None, None)
    >>> history.end_epoch(0, 2, {}).loss
    1.75
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    stopped: str | None = None
    loss_sum: float = 0.0
    num_samples: int = 0

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, index: int) -> EpochRecord:
        return self.epochs[index]

    def add_step(self, loss: float, num_samples: int) -> None:
        """Add a committed step of the present epoch."""
        self.loss_sum += loss * num_samples
        self.num_samples += num_samples

    def end_epoch(self, epoch: int, step: int, metrics: dict[str, float]) -> EpochRecord:
        """Close the present epoch."""
        record = EpochRecord(epoch, step, self.loss_sum / max(self.num_samples, 1), metrics)
        self.epochs.append(record)
        self.loss_sum, self.num_samples = 0.0, 0
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return the history as plain values."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        self.epochs = [EpochRecord(**record) for record in state["epochs"]]
        self.stopped, self.loss_sum, self.num_samples = state["stopped"], state["loss_sum"], state["num_samples"]


class Callback:
    """Code that runs at certain points of a training; subclass it and override the methods that you need.

    Every method is called on every worker; use ``trainer.run.is_main`` for actions that must happen once. A worker that
    joins later calls ``on_train_begin``, and ``on_epoch_begin`` of the present epoch, before it has the job's state,
    and after that each step in which it takes part. If a callback's decisions depend on its own state, give it the
    methods ``state_dict`` and ``load_state_dict``; then joining workers and checkpoints get this state.
    """

    def on_train_begin(self, trainer: Trainer) -> None:
        """Training begins in this process."""

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        """An epoch begins, or this worker enters it."""

    def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:
        """A step is committed; called once for each. ``step`` counts from 1; ``loss`` is the mean over its samples."""

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """An epoch is over, and so is its validation."""

    def on_train_end(self, trainer: Trainer, history: History) -> None:
        """Training is over."""


class Trainer:
    """Trains a model on any, also changing, number of workers.

    Args:
        model: a function without arguments that makes the model; it is called after the random state is set, so that
            the initial model depends on ``seed``. Or a module; then the program sets its initial state.
        train_set: map-style, of pairs (inputs, targets).
        loss: a function of (outputs, targets): the mean over the samples, shape ``[]``.
        optimizer: a function of the parameters that makes the optimizer, such as ``lambda p: torch.optim.Adam(p,
            lr=1e-3)``; or an optimizer, if ``model`` is a module.
        val_set: evaluated after each epoch; None for no validation.
        metrics: by name, as for ``run.evaluate``; ``loss`` is always among them.
        scheduler: a function of the optimizer that makes the scheduler, or a scheduler. One that looks at a metric
            (reduce on plateau) gets the loss of the validation, or of the training without a ``val_set``.
        scheduler_per: ``epoch`` or ``step``: when the scheduler makes a step.
        scaler: a ``torch.amp.GradScaler`` to scale gradients; None: gradients are not scaled.
        global_batch_size: samples per step. This and ``micro_batch_size``, ``seed``, ``reduction``,
            ``checkpoint_dir``, ``checkpoint_every``, ``keep``, ``resume``, ``stop_on_nan`` and ``on_difference`` as in
            `legato.elastic`.
        clip_grad_norm: gradients are scaled down to this norm; None for no limit.
        autocast_dtype: of mixed precision, such as ``torch.bfloat16``; None for none.
        collate_fn: makes a batch from a list of samples; None for torch's default.
        num_loader_workers: number of processes that load batches ahead; as ``num_workers`` of `Run.batches`.
        callbacks: called in this order.
        progress: show a bar when the program runs alone on a terminal; under ``legato run`` the driver shows more.

    Attributes:
        run: the elastic run.
        model: prepared by the run.
        optimizer: likewise.
        scheduler: likewise; None if there is none.
        history: of the job until now, from its first epoch on. A worker that joins or resumes from a checkpoint gets it
            with the job's state, before its first step.

    Raises:
        UsageError: an argument is of the wrong kind.
        LayoutError: the batch sizes do not fit together.
    """

    def __init__(
        self,
        model: Model,
        train_set: Dataset[Any],
        loss: Callable[[Any, Any], torch.Tensor],
        optimizer: Optimizer,
        *,
        val_set: Dataset[Any] | None = None,
        metrics: Mapping[str, Metric] | None = None,
        scheduler: Any = None,
        scheduler_per: Literal["epoch", "step"] = "epoch",
        scaler: torch.amp.GradScaler | None = None,
        global_batch_size: int,
        micro_batch_size: int,
        seed: int = 0,
        reduction: Reduction = "exact",
        clip_grad_norm: float | None = None,
        autocast_dtype: torch.dtype | None = None,
        collate_fn: Collate | None = None,
        num_loader_workers: int | Literal["auto"] = 0,
        callbacks: Sequence[Callback] = (),
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: str | None = None,
        keep: int = 3,
        resume: bool = False,
        stop_on_nan: bool = False,
        on_difference: OnDifference | None = None,
        progress: bool = True,
    ) -> None:
        if not callable(loss):
            raise _wrong("loss", loss, "a function of (outputs, targets)")
        if scheduler_per not in ("epoch", "step"):
            raise _wrong("scheduler_per", scheduler_per, "'epoch' or 'step'")
        if clip_grad_norm is not None and not clip_grad_norm > 0:
            raise _wrong("clip_grad_norm", clip_grad_norm, "a number above 0, or None")
        _check("autocast_dtype", autocast_dtype, torch.dtype | None, "a dtype such as torch.bfloat16, or None")
        for name, metric in (metrics or {}).items():
            if name == "loss" or not callable(metric):
                raise _wrong(f"metrics[{name!r}]", metric, "a function of (outputs, targets); the name 'loss' is taken")
        for callback in callbacks:
            _check("callbacks", callback, Callback, "instances of classes derived from legato.Callback")
        self.run: Run = elastic(
            global_batch_size=global_batch_size,
            micro_batch_size=micro_batch_size,
            seed=seed,
            reduction=reduction,
            checkpoint_dir=checkpoint_dir,
            checkpoint_every=checkpoint_every,
            keep=keep,
            resume=resume,
            stop_on_nan=stop_on_nan,
            on_difference=on_difference,
        )
        self.model: torch.nn.Module = _make("model", model, torch.nn.Module)
        # Before the optimizer is made: on a GPU the parameters move now.
        self.run.prepare(self.model)
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer: torch.optim.Optimizer = _make("optimizer", optimizer, torch.optim.Optimizer, parameters)
        own = {id(parameter) for parameter in self.model.parameters()}
        if any(id(parameter) not in own for group in self.optimizer.param_groups for parameter in group["params"]):
            raise _wrong("optimizer", optimizer, "one of the model's parameters, or a function that makes it of them")
        self.scheduler = None if scheduler is None else _make("scheduler", scheduler, _Scheduler, self.optimizer)
        self.history = History()
        self._callbacks = tuple(callbacks)
        others = (self.scheduler, scaler, *(c for c in self._callbacks if hasattr(c, "load_state_dict")))
        self.run.prepare(self.optimizer, self.history, *(thing for thing in others if thing is not None))
        self._train_set, self._val_set = train_set, val_set
        self._loss = loss
        self._metrics: dict[str, Metric] = {"loss": loss, **(metrics or {})}
        self._scheduler_per = scheduler_per
        self._scaler = scaler
        self._clip_grad_norm = clip_grad_norm
        self._autocast_dtype = autocast_dtype
        self._loading: dict[str, Any] = {"collate_fn": collate_fn, "num_workers": num_loader_workers}
        self._global_batch_size = global_batch_size
        self._shows_progress = progress and "LEGATO_WORKER" not in os.environ
        self._line: ProgressLine | None = None
        self._has_fitted = False

    # ------------------------------------------------------------ what a program calls

    def fit(self, num_epochs: int) -> History:
        """Train for a total number of epochs, counted from the start of the job also after a resume.

        Returns:
            The history of the whole job, the same on all workers: also on one that joined late, and after a resume.
        """
        _check("num_epochs", num_epochs, int, "a whole number")
        if num_epochs < 1:
            raise _wrong("num_epochs", num_epochs, "a whole number of at least 1")
        if self._has_fitted:
            raise UsageError("Trainer.fit was called twice. A job trains once; ask for all its epochs at once.")
        self._has_fitted = True
        if self._shows_progress:
            num_samples = len(self._train_set) if hasattr(self._train_set, "__len__") else 0
            self._line = ProgressLine(num_epochs, num_epochs * -(-num_samples // self._global_batch_size))
        for callback in self._callbacks:
            callback.on_train_begin(self)
        with contextlib.closing(self._line) if self._line else contextlib.nullcontext():
            for epoch in self.run.epochs(num_epochs):
                # After an early stop the remaining epochs do no work, so that `Run.epochs` writes a last checkpoint.
                if self.history.stopped is None:
                    self._run_epoch(epoch)
        for callback in self._callbacks:
            callback.on_train_end(self, self.history)
        return self.history

    def evaluate(self, dataset: Dataset[Any] | None = None) -> dict[str, float]:
        """Return loss and metrics on a data set; None for ``val_set``. Call it on every worker."""
        dataset = self._val_set if dataset is None else dataset
        if dataset is None:
            raise UsageError("Cannot evaluate without a data set. Give Trainer(val_set=...), or one to evaluate(...).")
        with self._autocast():
            found: dict[str, float] = self.run.evaluate(self.model, dataset, self._metrics, **self._loading)
        return found

    def stop(self, reason: str) -> None:
        """End the training after the present step or epoch; for callbacks.

        Call it on every worker at the same place: decide by values that are equal on all workers, such as losses and
        metrics.
        """
        self.history.stopped = reason

    # ------------------------------------------------------------ epochs and steps

    def _run_epoch(self, epoch: int) -> None:
        run, history = self.run, self.history
        for callback in self._callbacks:
            callback.on_epoch_begin(self, epoch)
        self.model.train()
        for batch in run.batches(self._train_set, **self._loading):
            self._train_on(batch)
            if run.stepped:
                self._end_step()
                if history.stopped is not None:
                    break
        if self.scheduler is not None and self._scheduler_per == "epoch" and not isinstance(self.scheduler, _Plateau):
            self.scheduler.step()
        metrics = {} if self._val_set is None else self.evaluate()
        record = history.end_epoch(epoch, run.step, metrics)
        if isinstance(self.scheduler, _Plateau):
            self.scheduler.step(metrics.get("loss", record.loss))
        run.log(loss=record.loss, **{f"val_{name}": value for name, value in metrics.items()})
        for callback in self._callbacks:
            callback.on_epoch_end(self, record)

    def _train_on(self, batch: Any) -> None:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise ProgramError(
                "Trainer needs batches that are pairs (inputs, targets). Give a collate_fn that makes such pairs, or "
                "write the loop yourself with legato.elastic(...)."
            )
        inputs, targets = batch
        with self._autocast():
            loss = self._loss(self.model(inputs), targets)
        if loss.ndim > 0:
            raise ProgramError(
                f"The loss function returned a tensor of shape {tuple(loss.shape)}. Return the mean over the samples, "
                "of shape ()."
            )
        self.run.backward(loss, self._scaler)
        if self.run.stepped and self._clip_grad_norm is not None:
            if self._scaler is not None:
                self._scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._clip_grad_norm)
        if self._scaler is None:
            self.optimizer.step()
        else:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        self.optimizer.zero_grad()

    def _end_step(self) -> None:
        run, history = self.run, self.history
        if self.scheduler is not None and self._scheduler_per == "step" and not isinstance(self.scheduler, _Plateau):
            self.scheduler.step()
        assert run.loss is not None  # `Run.backward` notes it in every micro-batch
        num_left = len(self._train_set) - history.num_samples  # type: ignore[arg-type]  # batches need a length
        history.add_step(run.loss, min(self._global_batch_size, num_left))
        if self._line is not None:
            self._line.show(run.step, run.epoch, run.loss)
        for callback in self._callbacks:
            callback.on_step_end(self, run.step, run.loss)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self._autocast_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.run.device.type, self._autocast_dtype)


def _make(name: str, given: Any, kind: type, *arguments: Any) -> Any:
    """Return the given object, or the object that the given function makes."""
    wanted = f"a {kind.__name__} or a function that returns one"
    if not isinstance(given, kind) and callable(given):
        given = given(*arguments)
    _check(name, given, kind, wanted)
    return given


def _check(name: str, given: object, kind: type | UnionType, wanted: str) -> None:
    if not isinstance(given, kind) or (kind is int and isinstance(given, bool)):
        raise _wrong(name, given, wanted)


def _wrong(name: str, found: object, wanted: str) -> UsageError:
    return UsageError(f"Cannot train with {name}={found!r}. Give {wanted}.")
