"""Evaluation split over the workers, with sums that do not depend on how. Changes neither model nor state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from legato.core.errors import ProgramError
from legato.train.groups import Group

Metric = Callable[[Any, Any], Any]


class EvaluationRound:
    """The result of one round of an evaluation, for a rank that missed it."""

    def __init__(self, numel: int) -> None:
        self.total = torch.zeros(numel, dtype=torch.float64)

    def send(self, group: Group, peer: int) -> None:
        """Send the last complete result."""
        group.finish([group.send(self.total, peer, 0)])

    def receive(self, group: Group, peer: int) -> None:
        """Receive the result of the round that broke here."""
        total = torch.empty_like(self.total)
        group.finish([group.receive(total, peer, 0)])
        self.total = total


def measure(
    model: torch.nn.Module, batch: Any, metric: Metric | Mapping[str, Metric], device: torch.device
) -> tuple[list[str], torch.Tensor]:
    """Return what one micro-batch contributes to each metric: its sum over samples, and the number of samples.

    Args:
        model: in evaluation mode.
        batch: a pair of inputs and targets.
        metric: one function of (outputs, targets), or several by name. Each returns a value per sample, shape ``[n]``
            or ``[n, ...]``, or one number: the mean over the samples. A function may also return a dict of such.
        device: where the model is.

    Shapes:
        Returns the names and float64 ``[2 * len(names)]``: sums, then counts.
    """
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise ProgramError(
            "run.evaluate needs batches that are pairs (inputs, targets). Give a collate_fn that makes such pairs, "
            "or wrap the model."
        )
    inputs, targets = (_move(part, device) for part in batch)
    outputs = model(inputs)
    num_samples = _num_samples(targets if _has_samples(targets) else inputs)
    values: dict[str, Any] = {}
    for name, function in (metric.items() if isinstance(metric, Mapping) else [("value", metric)]):
        value = function(outputs, targets)
        values.update(value if isinstance(value, Mapping) else {name: value})
    sums, counts = [], []
    for name, value in values.items():
        total, count = _sum(name, value, num_samples)
        sums.append(total)
        counts.append(count)
    return list(values), torch.tensor([*sums, *counts], dtype=torch.float64)


def _sum(name: str, value: Any, num_samples: int) -> tuple[float, float]:
    tensor = torch.as_tensor(value).detach()
    if tensor.ndim == 0:
        return float(tensor) * num_samples, float(num_samples)
    if tensor.shape[0] != num_samples:
        raise ProgramError(
            f"The metric {name!r} returned {tensor.shape[0]} values for {num_samples} samples. "
            "Return one value per sample, or their mean."
        )
    return float(tensor.to("cpu", torch.float64).sum()), float(tensor.numel())


def _has_samples(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.ndim > 0


def _num_samples(part: Any) -> int:
    while isinstance(part, list | tuple | dict):
        part = next(iter(part.values())) if isinstance(part, dict) else part[0]
    return int(part.shape[0])


def _move(part: Any, device: torch.device) -> Any:
    if isinstance(part, torch.Tensor):
        return part.to(device)
    if isinstance(part, list | tuple):
        return type(part)(_move(value, device) for value in part)
    if isinstance(part, dict):
        return {key: _move(value, device) for key, value in part.items()}
    return part
