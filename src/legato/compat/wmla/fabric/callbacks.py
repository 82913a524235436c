"""Base classes of users' callbacks and loggers: `Callback` and `LoggerCallback`. Their methods do nothing."""

from __future__ import annotations

from typing import Any


class Callback:
    """A callback of the program. Every worker calls it before and after each epoch.

    Attributes:
        params: ``optimizer``, and ``epochs``: the number of epochs.
        model: the model that is trained.
    """

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.model: Any = None

    def on_epoch_begin(self, epoch: int) -> None:
        """Called before an epoch, numbered from 0."""

    def on_epoch_end(self, epoch: int, save_model: bool = False) -> None:
        """Called after an epoch, numbered from 0; ``save_model`` is true on rank 0 if the model is saved."""


class LoggerCallback:
    """A logger of the program.

    As the driver's logger it receives every micro-batch of the job, once; as a worker's logger, those of this worker.
    """

    def log_train_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Called after a micro-batch.

        Args:
            loss: for the driver's logger, the mean over the epoch so far; for a worker's logger, of this micro-batch.
            acc: accuracy from 0 to 100, with the same meaning; NaN if there is none.
            completed_batch: number of micro-batches so far, of the job or of the worker.
            worker: number of workers that compute.
        """

    def log_test_metrics(self, loss: float, acc: float, completed_batch: int, worker: int = 0) -> None:
        """Called after a validation; a worker's logger, after each batch of it that this worker computes.

        Args:
            loss: mean over the validation set, or over the batch.
            acc: accuracy from 0 to 100, with the same meaning; NaN if there is none.
            completed_batch: number of micro-batches of the job so far; for a worker's logger, of its test batches.
            worker: number of workers that compute.
        """

    def on_train_begin(self) -> None:
        """Called before the training."""

    def on_train_end(self) -> None:
        """Called after the training."""
