"""Training without a loop of one's own: `Trainer` runs epochs, validation and callbacks on the elastic loop.

Stands on the public face of `elastic` alone, so all that is true of that loop (same result on any number of workers) is
true here. Never decides who computes what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import torch
from torch.utils.data import Dataset

from legato.core.errors import ProgramError, UsageError
from legato.train.elastic import Reduction, Run, elastic
from legato.train.evaluation import Metric
from legato.train.fetch import Collate

Optimizers: TypeAlias = torch.optim.Optimizer | Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
_SHOW_EVERY_S: Final = 0.1


@dataclass
class EpochRecord:
    """What one epoch gave, equal on all workers.

    Args:
        epoch: from 0.
        step: committed steps of the job at its end.
        loss: mean of the loss over the epoch's steps.
        metrics: of the validation set: ``loss`` and what `Trainer` was asked to measure; empty without one.
    """

    epoch: int
    step: int
    loss: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class History:
    """What a training gave, epoch by epoch.

    Args:
        epochs: in order.
        stopped: why a callback ended the training early, None if none did.
    """

    epochs: list[EpochRecord] = field(default_factory=list)
    stopped: str | None = None

    def __iter__(self) -> Iterator[EpochRecord]:
        return iter(self.epochs)

    def __len__(self) -> int:
        return len(self.epochs)

    def __getitem__(self, epoch: int) -> EpochRecord:
        return self.epochs[epoch]


class Callback:
    """What a program does beside the training; subclass it and override what is needed.

    Every method is called on every worker; ask ``trainer.run.is_main`` for what must happen once. A worker that joins
    later enters in the present epoch: it sees ``on_train_begin`` and ``on_epoch_begin``, before it has the job's state,
    and then the steps in which it takes part. State that decides something belongs into ``state_dict`` and
    ``load_state_dict``; with these two a callback's state travels to newcomers and into checkpoints.
    """

    def on_train_begin(self, trainer: Trainer) -> None:
        """Training begins in this process; models and optimizers exist."""

    def on_epoch_begin(self, trainer: Trainer, epoch: int) -> None:
        """An epoch begins, or this worker enters it."""

    def on_step_end(self, trainer: Trainer, step: int, loss: float) -> None:
        """A step is committed: called once for each. ``step`` counts from 1; ``loss`` is the mean over its samples."""

    def on_epoch_end(self, trainer: Trainer, record: EpochRecord) -> None:
        """An epoch is over, and so is its validation."""

    def on_train_end(self, trainer: Trainer, history: History) -> None:
        """Training is over."""


class Trainer:
    """Trains a model, on however many workers there are at the time.

    Args:
        model: a function without arguments that makes it, called once the random state is set, so that its start is
            part of the result. Or a module that stands already: then setting the seed before is up to you.
        train_set: map-style data set of pairs (inputs, targets).
        loss: of (outputs, targets): the mean over the samples, shape ``[]``.
        optimizer: a function of the parameters, such as ``lambda p: torch.optim.Adam(p, lr=1e-3)``; or an optimizer of
            a model that stands already.
        val_set: evaluated after each epoch; None for no validation.
        metrics: by name, as for ``Run.evaluate``; the loss is always among them.
        scheduler: a function of the optimizer, or a scheduler of an optimizer that stands already.
        scheduler_per: whether it moves on with each ``epoch`` or with each ``step``.
        scaler: of gradients, for float16.
        global_batch_size: as for `legato.elastic`, and so are ``micro_batch_size``, ``seed``, ``reduction``,
            ``checkpoint_dir``, ``checkpoint_every``, ``keep``, ``resume`` and ``stop_on_nan``.
        clip_grad_norm: gradients are scaled down to this norm; None for no limit.
        autocast_dtype: of mixed precision, such as ``torch.bfloat16``; None for none.
        collate_fn: makes a batch of a list of samples; None for torch's default.
        num_loader_workers: processes that load ahead.
        callbacks: called in this order.
        progress: show progress when the program runs alone; under ``legato run`` the driver does that.

    Attributes:
        run: the elastic run.
        model: on `run.device`.
        optimizer: as made.
        scheduler: as made, or None.
        history: up to now.

    Raises:
        UsageError: an argument is of the wrong kind.
        LayoutError: the batch sizes do not fit together.
    """

    def __init__(
        self,
        model: torch.nn.Module | Callable[[], torch.nn.Module],
        train_set: Dataset[Any],
        loss: Callable[[Any, Any], torch.Tensor],
        optimizer: Optimizers,
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
        num_loader_workers: int = 0,
        callbacks: Sequence[Callback] = (),
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: str | None = None,
        keep: int = 3,
        resume: bool = False,
        stop_on_nan: bool = False,
        progress: bool = True,
    ) -> None:
        _check_functions(loss, metrics)
        _check_choices(scheduler_per, clip_grad_norm, callbacks)
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
        )
        self.model: torch.nn.Module = _make(model, (), torch.nn.Module, "model")
        self.run.prepare(self.model)
        # Made only now: on a GPU the parameters have just moved there.
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer: torch.optim.Optimizer = _make(optimizer, (parameters,), torch.optim.Optimizer, "optimizer")
        self.scheduler = None if scheduler is None else _make_scheduler(scheduler, self.optimizer)
        self._keeper = _Keeper()
        stateful = [callback for callback in callbacks if hasattr(callback, "load_state_dict")]
        others = [thing for thing in (self.scheduler, scaler) if thing is not None]
        self.run.prepare(self.optimizer, *others, self._keeper, *stateful)
        self._train_set = train_set
        self._val_set = val_set
        self._loss = loss
        self._metrics = {"loss": _per_batch(loss), **(metrics or {})}
        self._scheduler_per = scheduler_per
        self._scaler = scaler
        self._clip_grad_norm = clip_grad_norm
        self._autocast_dtype = autocast_dtype
        self._loading = {"collate_fn": collate_fn, "num_workers": num_loader_workers}
        self._callbacks = tuple(callbacks)
        self._progress = _ProgressLine(self.run) if progress else None

    # ------------------------------------------------------------ what a program calls

    @property
    def history(self) -> History:
        """What the training gave up to now; on a worker that joins, once it has the job's state."""
        return self._keeper.history

    def fit(self, num_epochs: int) -> History:
        """Train for so many epochs, from the start or from where a checkpoint left off.

        Returns:
            The history, the same on all workers.
        """
        if isinstance(num_epochs, bool) or not isinstance(num_epochs, int) or num_epochs < 0:
            raise UsageError(f"Cannot train for num_epochs={num_epochs!r}. Give a whole number of at least 0.")
        for callback in self._callbacks:
            callback.on_train_begin(self)
        for epoch in self.run.epochs(num_epochs):
            # After an early stop the rest passes without work, so that the run ends as a complete one, with a checkpoint.
            if self._keeper.history.stopped is None:
                self._epoch(epoch)
        for callback in self._callbacks:
            callback.on_train_end(self, self.history)
        return self.history

    def evaluate(self, dataset: Dataset[Any] | None = None) -> dict[str, float]:
        """Return loss and metrics of the model on a data set, None for the validation set; call it on every worker."""
        if dataset is None:
            dataset = self._val_set
        if dataset is None:
            raise UsageError(
                "Cannot evaluate: there is no val_set. Give one to Trainer(...), or a data set to evaluate."
            )
        with self._autocast():
            found = self.run.evaluate(self.model, dataset, self._metrics, **self._loading)
        return dict(found)

    def stop(self, reason: str) -> None:
        """End the training after this step or epoch; for callbacks.

        Call it on every worker alike: decide by what is equal on all of them, as losses and metrics are, and not by the
        time of day.
        """
        self._keeper.history.stopped = reason

    # ------------------------------------------------------------ an epoch, a step

    def _epoch(self, epoch: int) -> None:
        keeper = self._keeper
        for callback in self._callbacks:
            callback.on_epoch_begin(self, epoch)
        self.model.train()
        for batch in self.run.batches(self._train_set, **self._loading):
            self._turn(batch)
            if self.run.stepped:
                self._end_step()
                if keeper.history.stopped is not None:
                    break
        if self._scheduler_per == "epoch" and not isinstance(self.scheduler, _Plateau):
            self._advance_scheduler()
        metrics = {} if self._val_set is None else self.evaluate()
        record = EpochRecord(epoch, self.run.step, keeper.end_epoch(), metrics)
        if isinstance(self.scheduler, _Plateau):
            self.scheduler.step(metrics.get("loss", record.loss))
        keeper.history.epochs.append(record)
        if self._progress is not None:
            self._progress.clear()
        self.run.log(loss=record.loss, **{f"val_{name}": value for name, value in metrics.items()})
        for callback in self._callbacks:
            callback.on_epoch_end(self, record)

    def _turn(self, batch: Any) -> None:
        if not isinstance(batch, list | tuple) or len(batch) != 2:
            raise ProgramError(
                "Trainer needs batches that are pairs (inputs, targets). Give a collate_fn that makes such pairs, or write "
                "the loop yourself with legato.elastic(...)."
            )
        inputs, targets = (_move(part, self.run.device) for part in batch)
        with self._autocast():
            loss = self._loss(self.model(inputs), targets)
        if not isinstance(loss, torch.Tensor) or loss.ndim:
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ProgramError(
                f"The loss function returned {found}. Return the mean over the samples, a single number."
            )
        self.run.backward(loss, self._scaler)
        if not self.run.stepped:
            return
        if self._scaler is not None and self._clip_grad_norm is not None:
            self._scaler.unscale_(self.optimizer)
        if self._clip_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._clip_grad_norm)
        if self._scaler is None:
            self.optimizer.step()
        else:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        self.optimizer.zero_grad()
