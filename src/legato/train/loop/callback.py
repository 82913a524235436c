"""What a training with `Trainer` tells: its history, and the moments at which a callback is called. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from legato.train.loop.trainer import Trainer


@dataclass(frozen=True)
class EpochRecord:
    """What one epoch gave, equal on all workers.

    Args:
        epoch: from 0.
        step: committed steps of the job at its end.
        loss: mean over the samples of the epoch, each at the time it was trained on.
        metrics: of the validation set: ``loss`` and what else was asked for; empty without such a set.
    """

    epoch: int
    step: int
    loss: float
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass
class History:
    """What a training gave, epoch by epoch; travels with the job's state.

    Args:
        epochs: in order.
        stopped: why the training was ended early, None if it was not.
        loss_sum: over the samples of the present epoch, so far.
        num_samples: of the present epoch, so far.

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
        """Take in a committed step of the present epoch."""
        self.loss_sum += loss * num_samples
        self.num_samples += num_samples

    def end_epoch(self, epoch: int, step: int, metrics: dict[str, float]) -> EpochRecord:
        """Close the present epoch."""
        record = EpochRecord(epoch, step, self.loss_sum / max(self.num_samples, 1), metrics)
        self.epochs.append(record)
        self.loss_sum, self.num_samples = 0.0, 0
        return record

    def state_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo `state_dict`."""
        self.epochs = [EpochRecord(**record) for record in state["epochs"]]
        self.stopped, self.loss_sum, self.num_samples = state["stopped"], state["loss_sum"], state["num_samples"]


class Callback:
    """What a program does beside the training; subclass it and override what is needed.

    Every method is called on every worker; ask ``trainer.run.is_main`` for what must happen once. A worker that joins
    later sees ``on_train_begin``, and ``on_epoch_begin`` of the present epoch, before it has the job's state, and after
    that each step in which it takes part. What a callback remembers in order to decide by it belongs into methods
    ``state_dict`` and ``load_state_dict``; with these its state travels to newcomers and into checkpoints.
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
