"""A torch module that stands for a Keras model in the runtime: a parameter per trainable weight, a buffer per other.

The runtime sums what lies in ``.grad`` of parameters, averages buffers that moved and sends both to who joins; it knows
of torch alone. The shadow holds copies of the Keras weights for that, and takes gradients as they are: no arithmetic
is done on them here. Knows nothing of TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from legato.core.errors import ProgramError


class Weight(NamedTuple):
    """A weight of a Keras model.

    Args:
        name: as Keras calls it.
        value: what it is now; copied.
    """

    name: str
    value: torch.Tensor


class Shadow(torch.nn.Module):
    """Stands for a model whose weights live elsewhere.

    Args:
        trainable: weights that the optimizer changes.
        others: the rest, such as the statistics of batch-norm.
        forward: what a call of the shadow does: the model, in evaluation mode.

    Raises:
        ProgramError: a trainable weight is no floating-point number.
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
        """Return what the model makes of some inputs, in evaluation mode."""
        return self._forward(inputs)

    def hand_over(self, loss: float, gradients: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return a loss whose backward pass gives each parameter exactly its gradient.

        Args:
            loss: of this micro-batch; the value of what is returned.
            gradients: one per parameter, of its shape; None for a parameter that the loss does not depend on.
        """
        here = [
            None if gradient is None else gradient.to(parameter.device)
            for gradient, parameter in zip(gradients, self.trainable, strict=True)
        ]
        result: torch.Tensor = _HandOver.apply(loss, here, *self.trainable)  # type: ignore[no-untyped-call]
        return result

    @torch.no_grad()
    def take(self, trainable: Iterable[torch.Tensor]) -> None:
        """Take the values that the trainable weights have now."""
        for parameter, value in zip(self.trainable, trainable, strict=True):
            parameter.copy_(value)

    @torch.no_grad()
    def take_moved(self, others: Iterable[torch.Tensor]) -> None:
        """Take the values of the other weights; what did not change, to the bit, is not touched."""
        for buffer, value in zip(self.others, others, strict=True):
            if not torch.equal(_bytes_of(buffer), _bytes_of(value.to(buffer.device))):
                buffer.copy_(value)


class _HandOver(torch.autograd.Function):
    """A number whose derivatives are given."""

    @staticmethod
    def forward(ctx: Any, loss: float, gradients: Sequence[torch.Tensor | None], *_: torch.Tensor) -> torch.Tensor:
        ctx.gradients = gradients
        return torch.tensor(loss, dtype=torch.float64)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, ()
        return (None, None, *gradients)


def _name(index: int, weight: Weight) -> str:
    # torch allows no dots; Keras 2 says "dense/kernel:0", Keras 3 "kernel".
    last = weight.name.rpartition("/")[2].partition(":")[0].replace(".", "_")
    return f"{index}_{last}"


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
