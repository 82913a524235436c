"""The names of Horovod that programs for ElasticDL use: size, rank, and functions of the runtime.

A program's own collectives are refused: its loop has another number of turns on each worker, so workers would wait for
one another without end.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from legato.compat.elasticdl.optimizer import ADASUM, AVERAGE, SUM, Compression, distribute
from legato.compat.elasticdl.training import Training
from legato.core.errors import ProgramError

Average, Sum, Adasum = AVERAGE, SUM, ADASUM

__all__ = ["Adasum", "Average", "Compression", "DistributedOptimizer", "Sum"]

_trainings: list[Training] = []


def enter(training: Training) -> None:
    """Set the training in which this process takes part."""
    _trainings[:] = [training]


def init(*_: Any, **__: Any) -> None:
    """Do nothing: the driver decides the membership."""


def shutdown() -> None:
    """Nothing to do."""


def is_initialized() -> bool:
    """Return True."""
    return True


def size() -> int:
    """Return the number of workers that train at present."""
    return _trainings[0].standing[1] if _trainings else 1


def rank() -> int:
    """Return this worker's rank; it changes as others come and go."""
    return _trainings[0].standing[0] if _trainings else 0


def local_size() -> int:
    """Return 1: a worker sees one device."""
    return 1


def local_rank() -> int:
    """Return 0: a worker sees one device, which has this number."""
    return 0


cross_size, cross_rank = size, rank


def broadcast_parameters(params: Any, root_rank: int = 0) -> None:
    """Do nothing: a joining worker receives the state."""


def broadcast_optimizer_state(optimizer: Any, root_rank: int = 0) -> None:
    """Do nothing: a joining worker receives the state."""


def broadcast_object(obj: Any, root_rank: int = 0, name: str | None = None) -> Any:  # noqa: ARG001 - as programs call it
    """Return the object unchanged: all workers begin with equal objects."""
    return obj


def DistributedOptimizer(  # noqa: N802 - its name
    optimizer: torch.optim.Optimizer,
    named_parameters: Any = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = AVERAGE,
    gradient_predivide_factor: float = 1.0,
    *_: Any,
    **__: Any,
) -> torch.optim.Optimizer:
    """Make an optimizer act on the mean of the gradients of all workers; see `legato.compat.elasticdl.optimizer`."""
    return distribute(optimizer, named_parameters, compression, backward_passes_per_step, op, gradient_predivide_factor)


def refuse(name: str) -> Any:
    """Return a function in place of a collective. With one worker it returns its argument.

    The function raises ProgramError if it is called while several workers train.
    """

    def call(tensor: Any = None, *_: Any, **__: Any) -> Any:
        if size() > 1:
            _refuse(name)
        return tensor

    return call


def _refuse(name: str) -> NoReturn:
    raise ProgramError(
        f"The program itself calls hvd.{name}, with {size()} workers. The runtime sums the gradients. Other "
        "collectives are not possible, because workers do not reach a line of the program together. Remove the call "
        "or compute its result from values that every worker has after a step."
    )


allreduce, allreduce_, allreduce_async, allreduce_async_ = map(
    refuse, ("allreduce", "allreduce_", "allreduce_async", "allreduce_async_")
)
allgather, allgather_async, broadcast, broadcast_ = map(
    refuse, ("allgather", "allgather_async", "broadcast", "broadcast_")
)
alltoall, barrier, join, synchronize = map(refuse, ("alltoall", "barrier", "join", "synchronize"))
allgather_object, grouped_allreduce = map(refuse, ("allgather_object", "grouped_allreduce"))
