"""The sums of a worker that trains alone: gradients in memory that the program writes again are copied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

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
    gradient, weight.grad = weight.grad, None
    return [gradient]


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


def test_gradients_of_ordinary_layers_are_not_copied() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 6), nn.LayerNorm(6), nn.Linear(6, 2)
    )
    model(torch.randn(2, 1, 4, 4)).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    total = OwnSum()
    total.add(0, list(gradients), 1.0)
    for before, after in zip(gradients, total.total((), 1.0), strict=True):
        assert before is not None and after is not None and before.data_ptr() == after.data_ptr()
