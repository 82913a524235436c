"""Trains a PyTorch model in an elastic run: runs a turn of the loop, with or without ``fn_step_train``, and validates.

Knows nothing of loggers, epochs and file locations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch.utils.data import DataLoader

from legato.compat.wmla.fabric.model_files import export_onnx, file_of_model, save_model
from legato.compat.wmla.fabric.schedules import find_schedules
from legato.compat.wmla.fabric.together import Together
from legato.compat.wmla.fabric.torch_metrics import (
    ACCURACY,
    LOSS,
    AccuracyWatch,
    Metrics,
    check_loss,
    is_right,
    mean_of,
)
from legato.core.errors import ProgramError
from legato.train.loop.elastic import Run

_PERCENT: Final = 100.0
_NUM_TRACED: Final = 2  # torch.export treats a batch size of 1 as a constant


class TorchParts(NamedTuple):
    """A program's PyTorch model and the arguments of ``FabricModel`` that belong to it.

    Args:
        model: on the CPU.
        loss: a function of (outputs, targets) that returns the mean over the samples.
        optimizer: of the model's parameters.
        metrics: see `Metrics`.
        collate_fn: makes a batch of a list of samples; None: torch's default.
        fn_step_train: a function of (model, data, eva, train_loader, fn_args) that runs the forward and backward passes
            of a micro-batch; returns accuracy, from 0 to 100, and loss.
        fn_test: a function of (model, batches, fn_args) that returns the loss of a validation.
    """

    model: torch.nn.Module
    loss: Callable[[Any, Any], Any]
    optimizer: torch.optim.Optimizer
    metrics: Metrics
    collate_fn: Callable[[list[Any]], Any] | None = None
    fn_step_train: Callable[..., Any] | None = None
    fn_test: Callable[..., Any] | None = None

    @property
    def num_backwards(self) -> int:
        """Number of backward passes per turn, as the runtime counts them; see `TorchTraining._step_of_program`."""
        return 1 if self.fn_step_train is None else 2

    @property
    def functions(self) -> dict[str, Any]:
        """The program's functions that a turn of the loop calls and that may keep state, by their names."""
        return {"loss_function": self.loss, **self.metrics.functions}

    def begin(self, train_set: Any, test_set: Any) -> tuple[Any, Any]:
        """Return the data sets unchanged: they are sets of samples."""
        return train_set, test_set

    def make_engine(self, run: Run, batch_size: int, train_set: Any) -> TorchTraining:
        """Prepare the model for training in a run.

        Args:
            run: trains the model.
            batch_size: number of samples in a micro-batch.
            train_set: of pairs (inputs, targets).
        """
        return TorchTraining(run, self, batch_size, train_set)


class ModelHandle:
    """The model that ``fn_step_train`` and ``fn_test`` receive: they can call it and get its optimizer and loss."""

    def __init__(self, parts: TorchParts) -> None:
        self._parts = parts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        return self._parts.model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parts.model, name)

    def get_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer. The engine calls its ``step()``."""
        return self._parts.optimizer

    def get_loss_function(self) -> Callable[[Any, Any], Any]:
        """Return the loss function."""
        return self._parts.loss


class TorchTraining:
    """A PyTorch model with its optimizer and its schedulers, trained in a run.

    Args:
        run: trains the model.
        parts: the model and the program's arguments.
        batch_size: number of samples in a micro-batch.
        train_set: of pairs (inputs, targets).
    """

    def __init__(self, run: Run, parts: TorchParts, batch_size: int, train_set: Any) -> None:
        self.model = parts.model
        self.optimizer = parts.optimizer
        self._run = run
        self._parts = parts
        self._batch_size = batch_size
        self._handle = ModelHandle(parts)
        self._train_loader = self._loader_of(train_set)
        if run.device.type == "cuda":
            # Programs move their batches to "cuda".
            torch.cuda.set_device(run.device)
        self._schedules = find_schedules(parts.optimizer)
        self.kept = (parts.model, parts.optimizer, *(schedule.scheduler for schedule in self._schedules))
        run.prepare(parts.model, parts.optimizer, *self._schedules)

    def batches_of(self, train_set: Any) -> tuple[Any, dict[str, Any]]:
        """Return the data set and the keyword arguments for ``run.batches``."""
        return train_set, {"collate_fn": self._parts.collate_fn}

    def begin_epoch(self) -> None:
        """Set the model up for training."""
        self.model.train()

    # ------------------------------------------------------------ a turn of the loop

    def train(self, batch: Any) -> dict[str, float]:
        """Do a turn of the loop: compute a micro-batch, note its metrics, and apply the optimizer at the end of a step.

        Returns:
            The metrics of this micro-batch.
        """
        inputs, targets = _check_pair(batch)
        values = self._step_of_program(inputs, targets) if self._parts.fn_step_train else self._step(inputs, targets)
        self.optimizer.step()
        self.optimizer.zero_grad()
        for schedule in self._schedules:
            schedule.end_turn(stepped=self._run.stepped)
        return values

    def _step(self, inputs: Any, targets: Any) -> dict[str, float]:
        outputs = self.model(inputs)
        loss = check_loss(self._parts.loss(outputs, targets))
        values = {LOSS: float(loss.detach()), **self._parts.metrics.means(outputs, targets)}
        self._run.note(**values)
        self._run.backward(loss)
        return values

    def _step_of_program(self, inputs: Any, targets: Any) -> dict[str, float]:
        """Let ``fn_step_train`` compute the gradients, with any number of backward passes.

        It runs inside of the first backward pass that the runtime counts in this turn. Its loss and accuracy are known
        only then, so a second pass, which changes no gradient, follows when they are noted. The runtime takes the
        gradients at the end of the second pass.
        """
        step = self._parts.fn_step_train
        assert step is not None
        results: list[Any] = []
        for schedule in self._schedules:
            schedule.begin_turn()

        def compute() -> None:
            results.append(step(self._handle, (inputs, targets), _accuracy, self._train_loader, {}))

        self._run.backward(_Pass.apply(torch.zeros((), requires_grad=True), compute))  # type: ignore[no-untyped-call]
        values = _read_result(results[0])
        if all(parameter.grad is None for parameter in self.model.parameters()):
            raise ProgramError(
                "fn_step_train set no gradient in any parameter. Call backward() on the loss in it, and do not clear "
                "the gradients after that."
            )
        self._run.note(**values)
        self._run.backward(torch.tensor(values[LOSS], requires_grad=True))
        return values

    # ------------------------------------------------------------ validation and files

    def evaluate(
        self, test_set: Any, together: Together, num_loaders: int, on_batch: Callable[[Mapping[str, float]], None]
    ) -> dict[str, float]:
        """Return the metrics over a data set: exact, and the same on every worker.

        Args:
            test_set: of pairs (inputs, targets).
            together: runs ``fn_test``, which gets all batches, so the workers cannot share its work.
            num_loaders: number of loader processes.
            on_batch: receives the metrics of each batch that this worker computes, unless there is an ``fn_test``.
        """
        if self._parts.fn_test is not None:
            return together.do_all(lambda: self._test_of_program(test_set))

        def measure(outputs: Any, targets: Any) -> dict[str, Any]:
            values = {LOSS: self._parts.loss(outputs, targets), **self._parts.metrics.values(outputs, targets)}
            on_batch({name: mean_of(value) for name, value in values.items()})
            return values

        found: dict[str, float] = self._run.evaluate(
            self.model, test_set, measure, collate_fn=self._parts.collate_fn, num_workers=num_loaders
        )
        return found

    def _test_of_program(self, test_set: Any) -> dict[str, float]:
        assert self._parts.fn_test is not None
        modes = [(module, module.training) for module in self.model.modules()]
        # A worker may run this twice or not at all, so it restores the statistics of batch-norm.
        buffers = [(buffer, buffer.clone()) for buffer in self.model.buffers()]
        self.model.eval()
        watch = AccuracyWatch(self._loader_of(test_set))
        hook = self.model.register_forward_hook(watch.note_outputs)
        try:
            loss = self._parts.fn_test(self._handle, watch, {})
        finally:
            hook.remove()
            for module, was_training in modes:
                module.training = was_training
            for buffer, value in buffers:
                buffer.copy_(value)
        accuracy = {} if watch.accuracy is None else {ACCURACY: watch.accuracy}
        return {LOSS: _read_number("fn_test", "the loss of the validation", loss), **accuracy}

    def save(self, directory: Path, label: int | str) -> None:
        """Write the model and its optimizer's state to files, each completely or not at all."""
        save_model(directory, label, self.model, self.optimizer)

    def export_onnx(self, directory: Path, label: int | str, train_set: Any) -> Path:
        """Write the model in ONNX format, and return the path of the file.

        Raises:
            UsageError: a package that the export needs is missing.
        """
        path = file_of_model(directory, label, ".onnx")
        inputs, _ = _check_pair(next(iter(self._loader_of(train_set, batch_size=_NUM_TRACED))))
        export_onnx(path, self.model, inputs)
        return path

    def _loader_of(self, dataset: Any, batch_size: int | None = None) -> DataLoader[Any]:
        return DataLoader(dataset, batch_size=batch_size or self._batch_size, collate_fn=self._parts.collate_fn)


class _Pass(torch.autograd.Function):
    """A node of a graph whose backward pass calls a function, which may run other backward passes."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, compute: Callable[[], None]) -> torch.Tensor:
        ctx.compute = compute
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        with torch.enable_grad():
            ctx.compute()
        return None, None


def _accuracy(outputs: Any, targets: Any) -> torch.Tensor:
    """Return the accuracy of a batch from 0 to 100, NaN if there are no classes: ``eva`` in ``fn_step_train``."""
    right = is_right(outputs, targets)
    if right is None:
        return torch.tensor(math.nan)
    return right.to(torch.float64).mean() * _PERCENT


def _check_pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise ProgramError(
            "A batch of the data set is not a pair (features, labels). Return such pairs from __getitem__, or give a "
            "fn_batch_collate that makes them."
        )
    return batch[0], batch[1]


def _read_result(result: Any) -> dict[str, float]:
    if not isinstance(result, list | tuple) or len(result) != 2:
        raise ProgramError(f"fn_step_train returned {result!r}. Return a pair: accuracy from 0 to 100, and loss.")
    accuracy, loss = result
    return {
        LOSS: _read_number("fn_step_train", "accuracy and loss", loss),
        ACCURACY: _read_number("fn_step_train", "accuracy and loss", accuracy) / _PERCENT,
    }


def _read_number(name: str, wanted: str, value: Any) -> float:
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ProgramError(f"{name} returned {value!r} where a number is needed. Return {wanted}.") from error
