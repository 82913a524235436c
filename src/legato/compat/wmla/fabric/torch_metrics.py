"""Computes the metrics of a PyTorch program, and accuracy if the model is a classifier.

The value of a metric over many batches is its mean over all samples, on any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils.data import DataLoader

from legato.core.errors import ProgramError, UsageError

Metric = Callable[[Any, Any], Any]
LOSS: Final = "loss"
ACCURACY: Final = "accuracy"


class Metrics:
    """The metrics of a program.

    Args:
        metrics: functions of (outputs, targets) that return a value per sample, or the mean, or a dict of these; None:
            accuracy, if outputs and targets are classes (see `is_right`).

    Raises:
        UsageError: a metric cannot be called, or two metrics have the same name.
    """

    def __init__(self, metrics: Sequence[Metric] | None) -> None:
        self._functions: dict[str, Metric] = {}
        for metric in metrics or ():
            if isinstance(metric, type) or not callable(metric):
                raise UsageError(
                    f"metrics contains {metric!r}, which is not a function of (outputs, targets). Give functions, or "
                    "instances that can be called."
                )
            name = getattr(metric, "__name__", type(metric).__name__)
            if name in {LOSS, *self._functions}:
                raise UsageError(f"The name {name!r} of a metric is taken. Rename the metric; 'loss' is reserved.")
            self._functions[name] = metric
        self._finds_accuracy = metrics is None

    @property
    def functions(self) -> dict[str, Metric]:
        """The metrics by their names."""
        return dict(self._functions)

    @torch.no_grad()
    def values(self, outputs: Any, targets: Any) -> dict[str, Any]:
        """Return the metrics of one batch by name: a value per sample, or the mean."""
        found: dict[str, Any] = {}
        for name, function in self._functions.items():
            value = function(outputs, targets)
            found.update(value if isinstance(value, Mapping) else {name: value})
        if self._finds_accuracy:
            right = is_right(outputs, targets)
            if right is not None:
                found[ACCURACY] = right
        return found

    def means(self, outputs: Any, targets: Any) -> dict[str, float]:
        """Return the means of the metrics over one batch by name, as plain numbers."""
        return {name: mean_of(value) for name, value in self.values(outputs, targets).items()}


def is_right(outputs: Any, targets: Any) -> torch.Tensor | None:
    """Return for each sample whether the most likely class is the target; None if there are no classes.

    Shapes:
        outputs ``[n, classes, ...]`` of floats; targets ``[n, ...]`` of whole numbers, or one-hot ``[n, classes]``.

    >>> is_right(torch.tensor([[0.1, 0.9], [0.8, 0.2]]), torch.tensor([1, 1])).tolist()
    [True, False]
    >>> is_right(torch.zeros(4, 1), torch.zeros(4))
    """
    if not isinstance(outputs, torch.Tensor) or not isinstance(targets, torch.Tensor):
        return None
    if not outputs.is_floating_point() or outputs.ndim < 2 or outputs.shape[1] < 2:
        return None
    if targets.shape == (outputs.shape[0], *outputs.shape[2:]) and not targets.is_floating_point():
        return outputs.argmax(1) == targets
    if outputs.ndim == 2 and targets.shape == outputs.shape:
        return outputs.argmax(1) == targets.argmax(1)
    return None


class AccuracyWatch:
    """The batches for ``fn_test``, which returns only a loss. Computes accuracy from the model's outputs for them.

    Args:
        batches: pairs (inputs, targets).
    """

    def __init__(self, batches: DataLoader[Any]) -> None:
        self._batches = batches
        self._targets: Any = None
        self._num_batches = self._num_right = self._num_samples = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        # Programs ask the loader for its data set and its batch size.
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            self._targets = batch[1] if isinstance(batch, list | tuple) and len(batch) > 1 else None
            yield batch

    def note_outputs(self, _model: Any, _inputs: Any, outputs: Any) -> None:
        """Compare the outputs of the model's first call for a batch with the targets. A forward hook calls this."""
        targets, self._targets = self._targets, None
        if isinstance(outputs, torch.Tensor) and isinstance(targets, torch.Tensor):
            right = is_right(outputs, targets.to(outputs.device))
            if right is not None:
                self._num_batches += 1
                self._num_right += int(right.sum())
                self._num_samples += right.numel()

    @property
    def accuracy(self) -> float | None:
        """Accuracy from 0 to 1; None if the model was not called for every batch, or there are no classes."""
        if not self._num_samples or self._num_batches != len(self._batches):
            return None
        return self._num_right / self._num_samples


def mean_of(value: Any) -> float:
    """Return the mean of values as a plain number."""
    return float(torch.as_tensor(value).detach().to("cpu", torch.float64).mean())


def check_loss(loss: Any) -> torch.Tensor:
    """Return the loss of a batch.

    Raises:
        ProgramError: it is not a tensor of shape ``()``.
    """
    if not isinstance(loss, torch.Tensor) or loss.ndim > 0:
        shown = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"{loss!r}"
        raise ProgramError(f"The loss function returned {shown}. Return the mean over the samples, of shape ().")
    return loss
