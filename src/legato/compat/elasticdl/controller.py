"""The controllers that programs make: `elastic_run` wraps the function that trains one batch.

The original re-made Horovod's world when workers came or went, sent the model around and tried again. Here the runtime
manages the membership; a controller only brings model, optimizer and data together, and counts epochs.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from legato.compat.elasticdl import horovod_names
from legato.compat.elasticdl.data_service import DataShardService, RecordIndexService
from legato.compat.elasticdl.forms import read_controller
from legato.compat.elasticdl.job_environment import num_workers_asked
from legato.compat.elasticdl.optimizer import Distributed, is_fixed
from legato.compat.elasticdl.training import Training
from legato.core.errors import ProgramError, UsageError


class AllReduceController:
    """Trains a model on the records of a data shard service.

    It takes the arguments of all releases; the service is the argument ``data_shard_service``, or the last one.

    Raises:
        UsageError: there is no service, or the service has handed out tasks.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        service = read_controller(type(self).__name__, args, kwargs)
        if not isinstance(service, DataShardService):
            raise UsageError(
                f"{type(self).__name__} has no data shard service, which says what to train. Give it a "
                "RecordIndexService or DataShardService of elasticai_api."
            )
        if service.has_handed_out:
            raise UsageError(
                "This data shard service has handed out tasks, or continues from a checkpoint of tasks: a controller "
                "cannot know which of them are trained. Use a checkpoint that was made under a controller, or make a "
                "separate service for it."
            )
        self.data_shard_service: Any = service
        self.global_batch_num_per_step = num_workers_asked()
        self.backward_passes_per_step = 1
        self._model: torch.nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._training: Training = service.plan(self._join)
        horovod_names.enter(self._training)

    # ------------------------------------------------------------ what is trained

    def set_broadcast_model(self, model: torch.nn.Module) -> None:
        """Set the model to train."""
        self._model = model

    def set_broadcast_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the optimizer of the model."""
        self._optimizer = optimizer

    def elastic_run(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function that computes the gradients of one batch and lets the optimizer act.

        Call the wrapped function for every batch of the loader, in order. It returns the last result of ``func``: that
        of this batch, unless the membership has just changed.
        """

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.train_one_batch_with_retries(func, *args, **kwargs)

        return call

    def train_one_batch_with_retries(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do the same as the function that `elastic_run` returns."""
        self._join()
        result = self._training.call(self._with_optimizer_facts(func), args, kwargs)
        self.data_shard_service.report_batch_done()
        return result

    def _with_optimizer_facts(self, func: Callable[..., Any]) -> Callable[..., Any]:
        def compute(*args: Any, **kwargs: Any) -> Any:
            optimizer: Any = self._optimizer
            if isinstance(optimizer, Distributed):
                optimizer.has_controller = True
                optimizer.num_micro_batches = self._training.num_micro_batches
            result = func(*args, **kwargs)
            if isinstance(optimizer, Distributed):
                optimizer.__dict__["_has_acted"] = self._training.has_stepped
            return result

        return compute

    def _join(self) -> None:
        if self._model is None or self._optimizer is None:
            missing = "set_broadcast_model" if self._model is None else "set_broadcast_optimizer"
            raise ProgramError(
                f"Cannot start the training: the program has not called {missing}. Call it before the loop."
            )
        self._training.begin(self._model, self._optimizer, is_fixed=is_fixed(self._optimizer))

    # ------------------------------------------------------------ the loop

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Surround the program's loop: after it the training is over."""
        self.notify_train_loop_start()
        yield
        # Not if an error ends the loop, or this worker leaves.
        self.notify_train_loop_end()

    def notify_train_loop_start(self) -> None:
        """Do nothing: this worker joins when its loader runs."""

    def notify_train_loop_end(self) -> None:
        """End the training."""
        self._training.end()

    # ------------------------------------------------------------ epochs

    @property
    def batch_count_per_epoch(self) -> int:
        """The number of whole batches of an epoch."""
        return int(self.data_shard_service.get_minibatch_count_per_epoch())

    @property
    def global_completed_batch_num(self) -> int:
        """The number of batches that all workers together have trained, in all committed steps."""
        return self._training.num_before + self._training.place

    @global_completed_batch_num.setter
    def global_completed_batch_num(self, number: int) -> None:
        self._training.num_before = number - self._training.place

    def get_current_epoch(self) -> int:
        """Return how many epochs are trained: whole batches of all workers, by the batches of an epoch."""
        return self.global_completed_batch_num // self.batch_count_per_epoch

    def set_resume_epoch(self, epoch: int) -> None:
        """Count from an epoch on; the trained records do not change.

        Raises:
            UsageError: the epoch is below 0.
        """
        if epoch < 0:
            raise UsageError(f"set_resume_epoch({epoch}): there is no such epoch. Give 0 or more.")
        self.global_completed_batch_num = epoch * self.batch_count_per_epoch

    # ------------------------------------------------------------ what the runtime does

    def init_horovod_locally(self) -> None:
        """Do nothing: there is no Horovod."""

    init_horvod_locally = init_horovod_locally

    def broadcast(self) -> None:
        """Do nothing: a joining worker receives model, optimizer and counters from the others."""

    def restore(self) -> None:
        """Do nothing: the runtime computes a failed step again."""

    def reset_backward_passes_per_step(self) -> None:
        """Do nothing: the number of workers decides how many batches this worker has in a step."""


class PyTorchAllReduceController(AllReduceController):
    """A controller of models in PyTorch."""


def create_elastic_controller(
    batch_size: int,
    num_epochs: int | None = None,
    dataset_size: int | None = None,
    shuffle: bool = False,
    dataset_name: str | None = None,
    num_minibatches_per_shard: int = 0,
    training_data: Any = None,  # noqa: ARG001 - of a master that reads data
) -> PyTorchAllReduceController:
    """Make a controller and its data shard service, a `RecordIndexService`.

    Args:
        batch_size: number of records of a mini-batch.
        num_epochs: how often each record is trained.
        dataset_size: number of records.
        shuffle: another order in each epoch.
        dataset_name: of the data set.
        num_minibatches_per_shard: number of mini-batches of a task.
        training_data: accepted, without effect.
    """
    service = RecordIndexService(
        batch_size=batch_size,
        num_epochs=num_epochs,
        dataset_size=dataset_size,
        shuffle=shuffle,
        dataset_name=dataset_name,
        num_minibatches_per_shard=num_minibatches_per_shard,
    )
    return PyTorchAllReduceController(service)


def get_elastic_controller(batch_size: int | None = None, **kwargs: Any) -> PyTorchAllReduceController:
    """Make a controller, as programs of November 2020 do; see `create_elastic_controller`.

    Raises:
        UsageError: the program does not name its records. In that release the master named them.
    """
    if batch_size is None or not kwargs.get("num_epochs") or not kwargs.get("dataset_size"):
        raise UsageError(
            "get_elastic_controller took the size of the data set from flags of its master, and Legato has none. Pass "
            "it "
            "in the program: get_elastic_controller(batch_size=64, num_epochs=2, dataset_size=len(records))."
        )
    return create_elastic_controller(batch_size, **kwargs)
