"""Evaluation split over the workers; its sums do not depend on the split. Changes neither model nor state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from legato.core.errors import BrokenView, ProgramError
from legato.train.data.loader import Loader
from legato.train.data.order import Order
from legato.train.data.seeds import seed_micro_batch
from legato.train.loop.session import Session
from legato.train.loop.stepping import keys, micro_batches_of
from legato.train.membership.groups import Group
from legato.train.reduction.exchange import Division
from legato.train.reduction.vectors import VectorSum, sum_vectors
from legato.train.state.agreement import NO_WORD

Metric = Callable[[Any, Any], Any]


class EvaluationRound:
    """The result of one round of an evaluation, for a rank that missed it."""

    def __init__(self, numel: int) -> None:
        self.total = torch.zeros(numel, dtype=torch.float64)

    def keep(self, total: torch.Tensor) -> None:
        """Keep the result of this round, for a rank that missed it."""
        self.total = total

    def send(self, group: Group, peer: int) -> None:
        """Send the last complete result."""
        group.finish([group.send(self.total, peer, 0)])

    def receive(self, group: Group, peer: int) -> None:
        """Receive the result of the round that failed on this rank."""
        total = torch.empty_like(self.total)
        group.finish([group.receive(total, peer, 0)])
        self.total = total


def evaluate(
    session: Session, model: torch.nn.Module, order: Order, loader: Loader, metric: Metric | Mapping[str, Metric]
) -> dict[str, float]:
    """Evaluate a model over a data set, in rounds of the size of one step.

    Returns:
        The mean of each metric over all samples.
    """
    membership = session.membership
    names: list[str] = []
    total: torch.Tensor | None = None
    followed = step = 0
    while step < order.num_steps:
        session.at_evaluation_boundary()
        group, number = session.group_with_state(), membership.connection.view.number
        division = Division((0,) * group.size, order.num_micro_batches_of(0))
        if step == 0 or followed != number:
            loader.follow(keys(order, 0, step, division, group.rank))
            followed = number
        assignment = division.assign(order.num_micro_batches_of(step))
        span = assignment.spans[group.rank]
        local, numel = VectorSum(), 0
        for micro_batch in micro_batches_of(order, step, division, group.rank):
            _, batch = loader.take()
            seed_micro_batch(session.seed, step, micro_batch)
            names, vector = measure(model, batch, metric)
            numel = vector.numel()
            if span.num_items:
                local.add(span.start, micro_batch, vector)
        found = EvaluationRound(numel)
        try:
            word = [*membership.word(may_join=False), *NO_WORD]
            round_total, words = sum_vectors(group, assignment, local.blocks, numel, word)
            found.keep(round_total)
            membership.hear(words)
        except BrokenView as error:
            if not session.recover(error, found):
                continue
        membership.completed(found)
        total = found.total if total is None else total + found.total
        step += 1
    assert total is not None
    sums, counts = total.chunk(2)
    return {name: float(s / c) for name, s, c in zip(names, sums, counts, strict=True)}


def measure(
    model: torch.nn.Module, batch: Any, metric: Metric | Mapping[str, Metric]
) -> tuple[list[str], torch.Tensor]:
    """Return what one micro-batch contributes to each metric: its sum over samples, and the number of samples.

    Args:
        model: in evaluation mode.
        batch: a pair of inputs and targets, on the model's device.
        metric: one function of (outputs, targets), or several by name. Each returns a value per sample, shape ``[n]``
            or ``[n, ...]``, or one number: the mean over the samples. A function may also return a dict of such.

    Shapes:
        Returns the names and float64 ``[2 * len(names)]``: sums, then counts.
    """
    if not isinstance(batch, list | tuple) or len(batch) != 2:
        raise ProgramError(
            "run.evaluate needs batches that are pairs (inputs, targets). Give a collate_fn that makes such pairs, "
            "or wrap the model."
        )
    inputs, targets = batch
    outputs = model(inputs)
    num_samples = _num_samples(targets if _has_samples(targets) else inputs)
    values: dict[str, Any] = {}
    for name, function in metric.items() if isinstance(metric, Mapping) else [("value", metric)]:
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
