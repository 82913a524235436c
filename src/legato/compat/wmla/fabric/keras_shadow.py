"""A torch module that represents a Keras model in the runtime: a parameter per trainable weight, a buffer per other.

The runtime supports only torch: it sums the ``.grad`` of parameters, averages buffers that changed, and sends both to
joining workers. The shadow has copies of the Keras weights for this. It passes gradients on without any arithmetic.
Knows nothing of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from legato.core.errors import ProgramError


class Weight(NamedTuple):
    """A weight of a Keras model.

    Args:
        name: its name in Keras.
        value: its present value; the shadow copies it.
    """

    name: str
    value: torch.Tensor


class Shadow(torch.nn.Module):
    """Represents a model whose weights are variables of TensorFlow.

    Args:
        trainable: weights that the optimizer changes.
        others: all other weights, such as the statistics of batch-norm.
        forward: calls the model in evaluation mode; a call of the shadow calls it.

    Raises:
        ProgramError: a trainable weight does not have a floating-point type.
    """

    def __init__(self, trainable: Sequence[Weight], others: Sequence[Weight], forward: Callable[[Any], Any]) -> None:
        super().__init__()
        for index, weight in enumerate(trainable):
            if not weight.value.is_floating_point():
                kind = str(weight.value.dtype).removeprefix("torch.")
                raise ProgramError(
                    f"The trainable weight {weight.name} has the type {kind}, which has no gradient. Add it with "
                    "trainable=False."
                )
            self.register_parameter(_name(index, weight), torch.nn.Parameter(weight.value.clone()))
        for index, weight in enumerate(others, start=len(trainable)):
            self.register_buffer(_name(index, weight), weight.value.clone())
        self.trainable: tuple[torch.nn.Parameter, ...] = tuple(self.parameters())
        self.others: tuple[torch.Tensor, ...] = tuple(self.buffers())
        self._forward = forward

    def forward(self, inputs: Any) -> Any:
        """Return the outputs of the model for some inputs, in evaluation mode."""
        return self._forward(inputs)

    def make_loss(self, loss: float, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return a loss whose backward pass gives each parameter exactly its gradient.

        Args:
            loss: of this micro-batch, which is the value of the returned tensor.
            gradients: one per parameter, of its shape; None for a parameter that the loss does not depend on.
        """
        here = [
            None if gradient is None else gradient.to(parameter.device)
            for gradient, parameter in zip(gradients, self.trainable, strict=True)
        ]
        result: torch.Tensor = _LossWithGradients.apply(loss, here, *self.trainable)  # type: ignore[no-untyped-call]
        return result

    @torch.no_grad()
    def copy_trainable(self, trainable: Iterable[torch.Tensor]) -> None:
        """Copy the present values of the trainable weights into the parameters."""
        for parameter, value in zip(self.trainable, trainable, strict=True):
            parameter.copy_(value)

    @torch.no_grad()
    def copy_changed(self, others: Iterable[torch.Tensor]) -> None:
        """Copy the values of the other weights into the buffers, but only those with a changed bit."""
        for buffer, value in zip(self.others, others, strict=True):
            if not torch.equal(_bytes_of(buffer), _bytes_of(value.to(buffer.device))):
                buffer.copy_(value)


class _LossWithGradients(torch.autograd.Function):
    """A loss whose backward pass returns gradients that were computed before."""

    @staticmethod
    def forward(ctx: Any, loss: float, gradients: Sequence[torch.Tensor | None], *_: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return torch.tensor(loss, dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, ()
        return (None, None, *gradients)


def _name(index: int, weight: Weight) -> str:
    # torch allows no dots. A name is "dense/kernel:0" in Keras 2, "kernel" in Keras 3.
    last = weight.name.rpartition("/")[2].partition(":")[0].replace(".", "_")
    return f"{index}_{last}"


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
