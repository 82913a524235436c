"""The state of a job piece by piece, each under a name that users know. Never changes the state."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from legato.train import torch_private

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True, slots=True)
class Item:
    """One tensor or plain value of the state.

    Args:
        name: such as ``buffer bn.running_mean`` or ``exp_avg of fc.weight in Adam``.
        value: the live tensor, or a plain value.
        kind: ``parameter``, ``buffer``, ``optimizer``, ``scheduler``, ``scaler``, ``object`` or ``data``.
        owner: the module that holds a parameter or a buffer; else the object that was passed to ``run.prepare``.
        attribute: the name of a parameter or a buffer in its module; else empty.
        is_cache: it is a buffer that its module does not count to its state (``persistent=False``).
    """

    name: str
    value: Any
    kind: str
    owner: Any
    attribute: str = ""
    is_cache: bool = False


def items_of(
    models: Sequence[torch.nn.Module],
    optimizers: Sequence[torch.optim.Optimizer],
    schedulers: Sequence[tuple[Any, Mapping[str, Any]]],
    scalers: Sequence[Any],
    objects: Sequence[Any],
) -> Iterator[Item]:
    """Yield every parameter, buffer and optimizer tensor, each once, and the plain values of the state.

    Of objects of the program's own classes only the tensors are included: a plain value may be a time.

    Args:
        models: in the order of ``run.prepare``, as the other arguments.
        optimizers: of the run.
        schedulers: each with its state.
        scalers: of the run.
        objects: anything else with a ``state_dict``.
    """
    names: dict[int, str] = {}
    for index, model in enumerate(models):
        of = f" of model {index} ({type(model).__name__})" if len(models) > 1 else ""
        yield from _of_model(model, of, names)
    for title, optimizer in _titled(optimizers):
        yield from _of_optimizer(optimizer, title, names)
    for (title, scheduler), (_, state) in zip(_titled([thing for thing, _ in schedulers]), schedulers, strict=True):
        yield from _of_other("scheduler", f"in {title}", scheduler, state)
    for title, scaler in _titled(scalers):
        yield from _of_other("scaler", f"in {title}", scaler, scaler.state_dict())
    for title, thing in _titled(objects):
        found = _of_other("object", f"in {title}", thing, thing.state_dict())
        yield from (item for item in found if isinstance(item.value, torch.Tensor))


def _of_model(model: torch.nn.Module, of: str, names: dict[int, str]) -> Iterator[Item]:
    """Yield a model's tensors, except parameters that have a name already, and store the names by the tensors' ids."""
    for path, module in model.named_modules():
        tables = {"parameter": torch_private.parameters_of(module), "buffer": torch_private.buffers_of(module)}
        for kind, tensors in tables.items():
            for attribute, tensor in tensors.items():
                # The same tensor may be in several buffers here, while each of these has its own copy on a worker that
                # joined.
                if tensor is not None and (kind == "buffer" or id(tensor) not in names):
                    name = (f"{path}.{attribute}" if path else attribute) + of
                    names.setdefault(id(tensor), name)
                    is_cache = kind == "buffer" and not torch_private.is_persistent(module, attribute)
                    yield Item(f"{kind} {name}", tensor, kind, module, attribute, is_cache)


def _of_optimizer(optimizer: torch.optim.Optimizer, title: str, names: dict[int, str]) -> Iterator[Item]:
    for index, group in enumerate(optimizer.param_groups):
        for place, parameter in enumerate(group["params"]):
            if id(parameter) not in names:
                name = names[id(parameter)] = f"parameter {place} of group {index} in {title}, which is in no model"
                yield Item(name, parameter, "parameter", optimizer)
        options = {key: value for key, value in group.items() if key != "params"}
        yield from _of_other("optimizer", f"of group {index} in {title}", optimizer, options)
    # A program may keep values under names that it chose.
    state: Mapping[Any, Any] = optimizer.state
    for key, values in state.items():
        of = names.get(id(key), "another tensor") if isinstance(key, torch.Tensor) else str(key)
        yield from _of_other("optimizer", f"of {of} in {title}", optimizer, values)


def _of_other(kind: str, place: str, owner: Any, values: Any) -> Iterator[Item]:
    for path, value in _walk(values):
        yield Item(f"{path} {place}".lstrip(), value, kind, owner)


def _titled(things: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Name objects by their types, with their numbers if there are several objects."""
    for index, thing in enumerate(things):
        yield type(thing).__name__ + (f" {index}" if len(things) > 1 else ""), thing


def _walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the tensors and plain values in nested containers; other objects are left out."""
    if isinstance(value, torch.Tensor) or type(value) in _PLAIN:
        yield path, value
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        yield path, _tensor_of(value)
    elif isinstance(value, np.generic):
        yield path, value.item()
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _walk(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple | deque):
        for index, inner in enumerate(value):
            yield from _walk(inner, f"{path}[{index}]")


def _tensor_of(array: Any) -> torch.Tensor:
    """Return a copy of an array: in this machine's byte order, or as its bytes if torch has no such dtype."""
    if array.dtype.kind in "biufc" and array.dtype.itemsize <= 8:
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
    return torch.from_numpy(np.array(memoryview(array.tobytes()), dtype=np.uint8))
