"""Base classes of users' callbacks and loggers: `Callback` and `LoggerCallback`. They do nothing themselves."""

from __future__ import annotations

from typing import Any


class Callback:
    """Called on every worker around each epoch.

    Attributes:
        params: ``optimizer`` and ``epochs``, how many there are.
        model: the model in training.
    """

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.model: Any = None

    def on_epoch_begin(self, epoch: int) -> None:
        """Called before an epoch, numbered from 0."""

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """Called after an epoch, numbered from 0; ``save_model`` is true on one worker, where the model is saved."""


class LoggerCallback:
    """Told of the training: in the driver's place after every micro-batch of the job, on a worker after its own."""

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Told of a micro-batch; ``acc`` is on the scale 0 to 100."""

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Told of a validation."""

    def on_train_begin(self) -> None:
        """Called before the training."""

    def on_train_end(self) -> None:
        """Called after the training."""
