"""`DistributedOptimizer`: the program's own optimizer, with the attributes that programs for ElasticDL and Horovod use.

The runtime sums the gradients of all micro-batches of a step and lets the optimizer act once, so this class only scales
the gradients as the program expects.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

from legato.compat.elasticdl.job_environment import adds_up, num_workers_asked
from legato.core.errors import UsageError

AVERAGE: Final = "Average"
SUM: Final = "Sum"
ADASUM: Final = "Adasum"


class NoneCompressor:
    """Gradients are sent uncompressed."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return a tensor unchanged."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # noqa: ARG004 - as programs call it
        """Return a tensor unchanged."""
        return tensor


class Compression:
    """Names of compressions: gradients are always sent uncompressed."""

    none = NoneCompressor
    fp16 = NoneCompressor


class Distributed(torch.optim.Optimizer):
    """The methods that are added to the class of a program's optimizer."""

    fixed_global_batch_size: bool
    backward_passes_per_step: int
    op: str
    global_batch_num_per_step: int | None
    has_controller: bool
    num_micro_batches: int

    @property
    def update_gradients(self) -> bool:
        """Whether the last step of this optimizer has changed anything."""
        return bool(self.__dict__.get("_has_acted", True))

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set how many backward passes make a step.

        With a controller, this is the number of passes in a call of the training function; with a fixed global batch
        the runtime counts them itself. Without a controller and with a fixed global batch, the optimizer acts once in
        ``passes`` calls of `step`.
        """
        self.backward_passes_per_step = passes

    def synchronize(self) -> None:
        """Do nothing: at the end of a step's last backward pass all gradients are complete."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Do not wait for gradients: they are complete."""
        yield

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, unless they are still being added up."""
        if not self.has_controller and not self.update_gradients:
            return
        super().zero_grad(set_to_none)

    def step(self, closure: Any = None) -> Any:
        """Scale the gradients as the program expects, and act. Nothing before the last pass of a fixed global batch."""
        if self.fixed_global_batch_size and not self.has_controller:
            passes = self.__dict__["_num_passes"] = self.__dict__.get("_num_passes", 0) + 1
            self.__dict__["_has_acted"] = passes % self.backward_passes_per_step == 0
            if not self.update_gradients:
                return None
            self.__dict__["_num_passes"] = 0
        factor = self._factor()
        if factor != 1.0:
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(factor)
        return super().step() if closure is None else super().step(closure)

    def _factor(self) -> float:
        """Return the factor for the mean over all micro-batches."""
        if self.fixed_global_batch_size:
            count = self.global_batch_num_per_step
            if not self.has_controller:
                # This optimizer has added up the gradients of all passes.
                return 1.0 / (count or self.backward_passes_per_step)
            return 1.0 if count is None else num_workers_asked() / count
        return float(self.num_micro_batches) if self.op == SUM or adds_up() else 1.0


def distribute(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    compression: Any = Compression.none,  # noqa: ARG001 - gradients travel as they are
    backward_passes_per_step: int = 1,
    op: Any = AVERAGE,
    gradient_predivide_factor: float = 1.0,  # noqa: ARG001 - divides and multiplies by the same
    global_batch_num_per_step: int | None = None,
    fixed_global_batch_size: bool = False,
    fixed_batch_size: bool = False,
) -> torch.optim.Optimizer:
    """Make an optimizer act on the gradients of all workers. It stays the object that it is.

    Args:
        optimizer: of the program.
        named_parameters: checked; not needed otherwise.
        compression: accepted; gradients travel as they are.
        backward_passes_per_step: backward passes in a call of the training function.
        op: ``Average`` or ``Sum``.
        gradient_predivide_factor: accepted; it cancels itself out.
        global_batch_num_per_step: with a fixed global batch, what the sum over all mini-batches is divided by; None:
            their number.
        fixed_global_batch_size: each step has ``WORKER_NUM`` mini-batches, however many workers there are.
        fixed_batch_size: the same, as it was called in December 2020.

    Raises:
        ValueError: names are given twice, or not for all parameters.
        UsageError: the operation is not supported.
    """
    _check_names(optimizer, named_parameters)
    if op == ADASUM:
        raise UsageError("op=Adasum is not supported. Omit op for the mean, or use op=Sum.")
    if backward_passes_per_step < 1:
        raise UsageError(f"backward_passes_per_step={backward_passes_per_step} is below 1. Give 1 or more.")
    if global_batch_num_per_step is not None and global_batch_num_per_step < 0:
        raise UsageError(f"global_batch_num_per_step={global_batch_num_per_step} is below 0. Give 1 or more.")
    kind = type(optimizer)
    if not issubclass(kind, Distributed):
        optimizer.__class__ = type(kind.__name__, (Distributed, kind), {"__doc__": kind.__doc__})
    known = {
        "fixed_global_batch_size": bool(fixed_global_batch_size or fixed_batch_size),
        "backward_passes_per_step": backward_passes_per_step,
        "op": op,
        "global_batch_num_per_step": global_batch_num_per_step or None,
        "num_micro_batches": 1,
        "has_controller": False,
    }
    for name, value in known.items():
        setattr(optimizer, name, value)
    return optimizer


def is_fixed(optimizer: Any) -> bool:
    """Return whether an optimizer wants the same number of mini-batches in each step, with any number of workers."""
    return bool(getattr(optimizer, "fixed_global_batch_size", False))


def _check_names(optimizer: torch.optim.Optimizer, named: Iterable[tuple[str, torch.nn.Parameter]] | None) -> None:
    if named is None:
        return
    pairs = list(named)
    if any(not isinstance(pair, tuple) for pair in pairs):
        raise ValueError("named_parameters are not pairs (name, parameter). Give model.named_parameters().")
    names = [name for name, _ in pairs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"named_parameters have names twice: {', '.join(twice)}. Give each once.")
    known = {id(parameter) for _, parameter in pairs}
    missing = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in known]
    if missing:
        raise ValueError(
            f"{len(missing)} of the optimizer's parameters are missing in named_parameters. Give "
            "model.named_parameters() of all."
        )
