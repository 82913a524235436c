"""What a LightningModule and callbacks keep in plain attributes: a part of the job's state, watched in a micro-batch.

Only `legato.integrations.lightning` uses this module. Never looks into data sets, functions, or objects of torch.
"""

from __future__ import annotations

import marshal
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.callbacks import Callback
from torchmetrics import Metric

from legato.core.errors import ProgramError

_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, np.generic)
_SIMPLE: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
_CONTAINERS: Final = (list, tuple, set, frozenset, deque)
_FOREIGN: Final = ("torch.", "lightning.", "torchmetrics.", "numpy.", "legato.", "builtins.", "collections.")
_MAX_DEPTH: Final = 4
_MAX_BYTES: Final = 1 << 20
# Sums over more values than this would be slow in each micro-batch.
_MAX_VALUES: Final = 10_000
_DERIVED: Final = ("_orig", "_g", "_v")


class Attributes:
    """The attributes that have changed since training began, of the module, its parts, metrics, and callbacks.

    Args:
        module: of the training.
        callbacks: of the trainer; those with a ``state_dict`` of their own, and Lightning's, are left out.
    """

    def __init__(self, module: torch.nn.Module, callbacks: list[Any]) -> None:
        self._module = module
        self._of_lightning = vars(LightningModule()).keys()
        self._callbacks = [
            (f"callback {index} {type(callback).__name__}", callback)
            for index, callback in enumerate(callbacks)
            if not type(callback).__module__.startswith("lightning.")
            and type(callback).state_dict is Callback.state_dict
        ]
        # Their parameters and buffers are a part of the state already.
        self._prepared = frozenset(map(id, module.modules()))
        self._metrics = {name for name, part in module.named_modules() if isinstance(part, Metric)}
        self._compared: set[str] = set()
        self._first = self._contents(self._found())

    # ------------------------------------------------------------ in a micro-batch

    def take(self) -> dict[str, Any]:
        """Return a sum of each attribute of the module, and the versions of its parameters."""
        found: dict[str, Any] = self._sums(self._found_in_module())
        for name, parameter in self._module.named_parameters():
            found[f"{name} (a parameter)"] = (id(parameter), parameter.data_ptr(), parameter._version)
        return found

    def started(self, before: dict[str, Any]) -> dict[str, Any]:
        """Note what on_train_batch_start has changed: the agreement check compares it. Return a new sketch."""
        now = self.take()
        self._compared |= {name for name in now if before.get(name) != now[name]}
        return now

    def check(self, before: dict[str, Any]) -> None:
        """Raise ProgramError if the module has changed since a sketch was taken."""
        now = self.take()
        changed = sorted(
            name
            for name in before.keys() | now.keys()
            if name not in before or name not in now or before[name] != now[name]
        )
        if not changed:
            return
        owner, _, name = changed[0].rpartition("|")
        shown = f"{owner}.{name}" if owner else name
        what = (
            f"updates the metric self.{owner}. Compute the number by torchmetrics.functional, and log it with self.log"
            if owner in self._metrics
            else f"changes self.{shown}. Log numbers with self.log, change what belongs to a step in "
            "on_train_batch_end, and collect outputs in validation_step. If it belongs to a micro-batch, such as a "
            "running mean, make it a buffer (register_buffer)"
        )
        raise ProgramError(
            f"training_step {what}: a worker computes only some micro-batches of a step, and the others would not have "
            "this change."
        )

    # ------------------------------------------------------------ as a part of the state

    def state_dict(self) -> dict[str, Any]:
        """Return what has changed since training began."""
        found = self._found()
        # By content, and without those that have their first value again: these are the same on all workers.
        changed = sorted(name for name, value in self._contents(found).items() if self._first.get(name) != value)
        told = [f"{name}={_text_of(found[name])}" for name in sorted(self._compared & found.keys())]
        return {
            "values": {name: _without_class(found[name][0][found[name][1]]) for name in changed},
            "compared": sorted(self._compared),
            # Only tensors are compared among workers.
            "sum": torch.tensor(zlib.crc32("\n".join(told).encode())),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set what has changed, in place where that is possible."""
        found = self._found()
        self._compared = set(state["compared"])
        # First the objects that hold others, so that their parts are found.
        for name in sorted(state["values"], key=len):
            value = state["values"][name]
            if name in found:
                owner, key = found[name]
            else:
                owner, key = self._place_of(name, found)
            own = owner.get(key)
            if isinstance(own, torch.nn.Parameter):
                own.data.copy_(value)
            elif type(own) is list:
                own[:] = value
            elif isinstance(own, dict):
                # Keeps the class, such as that of hyperparameters.
                own.clear()
                own.update(value)
            elif isinstance(value, torch.Tensor):
                owner[key] = value.detach().to(_device_of(self._module), copy=True)
            else:
                owner[key] = value

    def _place_of(self, name: str, found: dict[str, tuple[dict[str, Any], str]]) -> tuple[dict[str, Any], str]:
        """Find where an attribute belongs that the source has made after training began."""
        path, _, key = name.rpartition("|")
        for label, root in (*self._module.named_modules(), *self._callbacks):
            if label == path:
                return vars(root), key
        holder, _, inner = name.rpartition(".")
        for known, (owner, _) in () if name.count("|") > 1 else found.items():
            if known.rpartition(".")[0] == holder:
                return owner, inner
        raise ProgramError(
            f"This worker joins, and has no place for the attribute {name.replace('|', '.')}, which the others have "
            "made while they train. Make it in __init__."
        )

    # ------------------------------------------------------------ what there is

    def _found(self) -> dict[str, tuple[dict[str, Any], str]]:
        found = self._found_in_module()
        for label, callback in self._callbacks:
            found.update(self._walk(f"{label}|", vars(callback), frozenset(), {id(callback), id(self._module)}))
        return found

    def _found_in_module(self) -> dict[str, tuple[dict[str, Any], str]]:
        """Return for each attribute that can be carried the dict and key that hold it, by its name."""
        found: dict[str, tuple[dict[str, Any], str]] = {}
        for path, part in self._module.named_modules():
            found.update(self._walk(f"{path}|", vars(part), self._of_lightning, {id(part)}))
        return found

    def _walk(
        self, prefix: str, holder: dict[str, Any], left_out: Any, seen: set[int]
    ) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
        """Yield the attributes of an object, those of the program's own objects that it holds, and of other modules."""
        for key in list(holder):
            value = holder[key]
            if key in left_out or any(f"{key}{end}" in holder.get("_parameters", ()) for end in _DERIVED):
                continue
            name = f"{prefix}{key}"
            if _is_carried(value):
                yield name, (holder, key)
            elif isinstance(value, torch.nn.Module):
                yield from self._walk_module(name, value, seen)
            elif _is_own(value) and id(value) not in seen and name.count(".") < _MAX_DEPTH + prefix.count("."):
                yield from self._walk(f"{name}.", vars(value), frozenset(), {*seen, id(value)})

    def _walk_module(
        self, name: str, module: torch.nn.Module, seen: set[int]
    ) -> Iterator[tuple[str, tuple[dict[str, Any], str]]]:
        """Yield what a module has that is no part of the trained one, such as an average of it in a callback."""
        for path, part in module.named_modules():
            if id(part) in self._prepared or id(part) in seen:
                continue
            for tensors in (part._parameters, part._buffers):
                named: dict[str, Any] = tensors
                yield from ((f"{name}|{path}.{key}", (named, key)) for key in named if named[key] is not None)
            yield from self._walk(f"{name}|{path}.", vars(part), self._of_lightning, {*seen, id(part)})

    def _sums(self, found: dict[str, tuple[dict[str, Any], str]]) -> dict[str, Any]:
        return {name: _sum_of(owner[key]) for name, (owner, key) in found.items()}

    def _contents(self, found: dict[str, tuple[dict[str, Any], str]]) -> dict[str, Any]:
        return {name: _sum_of(owner[key], _content_of, is_whole=True) for name, (owner, key) in found.items()}


def _without_class(value: Any) -> Any:
    """Return a parameter as a tensor, which a state may hold."""
    return value.detach() if isinstance(value, torch.nn.Parameter) else value


def _is_own(value: Any) -> bool:
    kind = type(value)
    return (
        hasattr(value, "__dict__")
        and not f"{kind.__module__}.".startswith(_FOREIGN)
        and not isinstance(value, type | torch.nn.Module | torch.utils.data.Dataset | torch.Tensor | Path)
        and not callable(getattr(value, "configure_optimizers", None))
        and not isinstance(value, Callback)
    )


def _is_carried(value: Any, depth: int = 0) -> bool:
    """Whether a value is made of numbers, texts, tensors and arrays."""
    if isinstance(value, torch.Tensor):
        # Others are computed of parameters, in a forward pass.
        return value.grad_fn is None and not isinstance(value, torch.nn.Parameter)
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return (_are_simple(value) and _are_simple(value.values())) or all(
            isinstance(key, _PLAIN) and _is_carried(part, depth + 1) for key, part in value.items()
        )
    return type(value) in _CONTAINERS and (_are_simple(value) or all(_is_carried(part, depth + 1) for part in value))


def _are_simple(values: Iterable[Any]) -> bool:
    """Return whether all values are numbers and texts: much faster than to look at each of a million."""
    return _SIMPLE.issuperset(map(type, values))


def _sum_of(  # noqa: PLR0911 - one line for each kind
    value: Any, of_tensor: Callable[[torch.Tensor], Any] | None = None, *, is_whole: bool = False
) -> Any:
    """Return something that is equal only for an equal value; unless ``is_whole``, it sees a part of what is large."""
    if isinstance(value, torch.Tensor):
        return (id(value), value._version) if of_tensor is None else of_tensor(value)
    if isinstance(value, np.ndarray):
        is_small = is_whole or value.nbytes <= _MAX_BYTES
        data = value if is_small else value.reshape(-1)[:: value.nbytes // _MAX_BYTES + 1]
        return (value.dtype.str, value.shape, zlib.crc32(np.ascontiguousarray(data).data))
    if isinstance(value, set | frozenset):
        return (len(value), frozenset(value) if is_whole or len(value) <= _MAX_VALUES else 0)
    is_large = isinstance(value, Sized) and len(value) > _MAX_VALUES
    if isinstance(value, dict):
        if is_large and not is_whole:
            return len(value)
        if is_large and _are_simple(value) and _are_simple(value.values()):
            return ("dict", len(value), _fast_checksum(dict(value)))
        parts = ((repr(key), _sum_of(part, of_tensor, is_whole=is_whole)) for key, part in value.items())
        return ("dict", len(value), _checksum(parts)) if is_large else ("dict", *parts)
    if isinstance(value, list | tuple | deque):
        if is_large and not is_whole:
            return (len(value), _sum_of(value[-1], of_tensor))
        kind = type(value).__name__
        if is_large and _are_simple(value):
            return (kind, len(value), _fast_checksum(list(value)))
        each = (_sum_of(part, of_tensor, is_whole=is_whole) for part in value)
        return (kind, len(value), _checksum(each)) if is_large else (kind, *each)
    return (type(value).__name__, value if isinstance(value, str | bytes | int) else repr(value))


def _checksum(parts: Iterable[Any]) -> int:
    found = 0
    for part in parts:
        found = zlib.crc32(repr(part).encode(), found)
    return found


def _fast_checksum(values: list[Any] | dict[Any, Any]) -> int:
    """Return a checksum of numbers and texts. Version 2 of the format does not depend on which objects are shared."""
    return zlib.crc32(marshal.dumps(values, 2))


def _content_of(tensor: torch.Tensor) -> Any:
    """Return something that is equal only for tensors of equal bits."""
    flat = tensor.detach().reshape(-1).to("cpu").contiguous()
    return (tensor.dtype, tensor.shape, zlib.crc32(flat.view(torch.uint8).numpy().data))


def _text_of(place: tuple[dict[str, Any], str]) -> str:
    """Return a value as a text that is the same on all workers; tensors are compared by themselves."""
    value = place[0][place[1]]
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, value)))
    return repr(value) if isinstance(value, _PLAIN) else repr(_sum_of(value, lambda tensor: tuple(tensor.shape)))


def _device_of(module: torch.nn.Module) -> torch.device:
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
