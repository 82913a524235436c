"""The sums of a worker that trains alone: gradients in memory that the program writes again are copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from legato.core.span import Span, blocks, fold_plan, num_merges
from legato.train.reduction.buckets import OwnSum

SHARED = torch.ones(4)
OF_NUMPY = np.ones(4, dtype=np.float32)


class Fills(torch.autograd.Function):
    """Writes its gradient into a buffer, and returns it another way."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, _weight: torch.Tensor, made: Any) -> torch.Tensor:
        ctx.made = made
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> Any:
        value, give = ctx.made
        SHARED.fill_(value)
        OF_NUMPY.fill(value)
        return grad_outputs[0], give(), None


def compute(weight: nn.Parameter, value: float, give: Callable[[], torch.Tensor]) -> list[torch.Tensor | None]:
    Fills.apply(torch.ones((), requires_grad=True), weight, (value, give)).backward()  # type: ignore[no-untyped-call]
    return take(weight)


@pytest.mark.parametrize(
    "give",
    [
        lambda: SHARED,
        SHARED.detach,
        lambda: SHARED.view(4),
        lambda: SHARED.data,
        lambda: torch.from_numpy(OF_NUMPY),
    ],
    ids=["the buffer", "detached", "a view", "its data", "of NumPy"],
)
def test_a_buffer_that_each_backward_pass_fills_is_summed(give: Callable[[], torch.Tensor]) -> None:
    weight, total = nn.Parameter(torch.zeros(4)), OwnSum()
    total.add(0, compute(weight, 1.0, give), 1.0)
    total.add(1, compute(weight, 2.0, give), 1.0)
    (found,) = total.total((), 1.0)
    assert found is not None and found.tolist() == [3.0] * 4


@pytest.mark.parametrize("num_micro_batches", [1, 2, 3, 5, 7, 8])
def test_micro_batches_are_added_along_the_canonical_tree(num_micro_batches: int) -> None:
    # So different in size that another order of additions gives another sum.
    drawn = torch.Generator().manual_seed(1)
    terms = [torch.randn(64, generator=drawn) * 10.0 ** (leaf % 3) for leaf in range(num_micro_batches)]
    total = OwnSum()
    for leaf, term in enumerate(terms):
        total.add(num_merges(0, leaf), [term.clone()], 1.0)
    (found,) = total.total(fold_plan(blocks(Span(0, num_micro_batches))), 1.0)
    assert found is not None and torch.equal(found, tree_sum(terms))
    assert num_micro_batches < 4 or not torch.equal(found, sum(terms[1:], terms[0]))


def tree_sum(terms: list[torch.Tensor]) -> torch.Tensor:
    """Add up neighbours, then the sums of neighbours, and so on."""
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=False)
        terms = [a + b for a, b in pairs] + (terms[-1:] if len(terms) % 2 else [])
    return terms[0]


def test_gradients_of_ordinary_layers_are_not_copied() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 2)
    )
    model(torch.randn(2, 1, 4, 4)).sum().backward()
    addresses = [parameter.grad.data_ptr() for parameter in model.parameters() if parameter.grad is not None]
    total = OwnSum()
    total.add(0, take(*model.parameters()), 1.0)
    assert [gradient.data_ptr() for gradient in total.total((), 1.0) if gradient is not None] == addresses


def take(*parameters: nn.Parameter) -> list[torch.Tensor | None]:
    gradients = [parameter.grad for parameter in parameters]
    for parameter in parameters:
        parameter.grad = None
    return gradients


def test_a_gradient_that_the_program_keeps_does_not_change() -> None:
    weight, total = nn.Parameter(torch.zeros(4)), OwnSum()
    kept = []
    for leaf in range(2):
        (weight * (leaf + 1)).sum().backward()
        kept.append(weight.grad)
        total.add(leaf, take(weight), 1.0)
    (found,) = total.total((), 0.5)
    assert found is not None and found.tolist() == [1.5] * 4
    assert [each.tolist() for each in kept if each is not None] == [[1.0] * 4, [2.0] * 4]


def test_two_parameters_with_one_gradient_are_summed_apart() -> None:
    first, second, total = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4)), OwnSum()
    for leaf in range(2):
        first.grad = second.grad = torch.ones(4)
        total.add(leaf, take(first, second), 1.0)
    assert [each.tolist() for each in total.total((), 1.0) if each is not None] == [[2.0] * 4] * 2
