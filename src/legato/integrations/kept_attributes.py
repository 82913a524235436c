"""What objects of a program keep in plain attributes, as a part of the job's state: callbacks, and a LightningModule.

Only the integrations use this module. Never looks into data sets, functions, or objects of torch.
"""

from __future__ import annotations

import marshal
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from legato.core.errors import ProgramError
from legato.train.state.checksums import checksums

Places = dict[str, tuple[dict[str, Any], str]]
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, np.generic)
_SIMPLE: Final = frozenset({bool, int, float, complex, str, bytes, type(None)})
_CONTAINERS: Final = (list, tuple, set, frozenset, deque)
_FOREIGN: Final = (
    "torch.",
    "lightning.",
    "torchmetrics.",
    "transformers.",
    "accelerate.",
    "datasets.",
    "peft.",
    "tokenizers.",
    "numpy.",
    "legato.",
    "builtins.",
    "collections.",
)
_MAX_DEPTH: Final = 4
_MAX_BYTES: Final = 1 << 20
# Sums over more values than this would be slow in each micro-batch.
_MAX_VALUES: Final = 10_000
_DERIVED: Final = ("_orig", "_g", "_v")


class Root(NamedTuple):
    """An object whose attributes are carried.

    Args:
        label: its name in those of the attributes.
        thing: the object.
        left_out: names of attributes that are not the program's.
    """

    label: str
    thing: Any
    left_out: frozenset[str] = frozenset()


class KeptAttributes:
    """The attributes that have changed since training began, by content.

    Args:
        model: of the training. Its parameters and buffers are a part of the state already.
        roots: returns the objects whose attributes are carried.
        others: kinds of objects that are not looked into.
    """

    def __init__(
        self, model: torch.nn.Module, roots: Callable[[], Iterable[Root]], others: tuple[type, ...] = ()
    ) -> None:
        self._model, self._roots, self._others = model, roots, others
        self._prepared = frozenset(map(id, model.modules()))
        self._of_modules = frozenset(vars(torch.nn.Module()))
        self._first = _contents(self.found())

    def state_dict(self) -> dict[str, Any]:
        """Return what has changed since training began."""
        found = self.found()
        # By content, and without those that have their first value again: these are the same on all workers.
        changed = sorted(name for name, value in _contents(found).items() if self._first.get(name) != value)
        return {"values": {name: _without_class(found[name][0][found[name][1]]) for name in changed}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set what has changed, in place where that is possible."""
        found = self.found()
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
                owner[key] = value.detach().to(_device_of(self._model), copy=True)
            else:
                owner[key] = value

    def _place_of(self, name: str, found: Places) -> tuple[dict[str, Any], str]:
        """Find where an attribute belongs that the source has made after training began."""
        path, _, key = name.rpartition("|")
        for root in self._roots():
            if root.label == path:
                return vars(root.thing), key
        holder, _, inner = name.rpartition(".")
        for known, (owner, _) in () if name.count("|") > 1 else found.items():
            if known.rpartition(".")[0] == holder:
                return owner, inner
        raise ProgramError(
            f"This worker joins, and has no place for the attribute {name.replace('|', '.')}, which the others have "
            "made while they train. Make it in __init__."
        )

    def found(self, roots: Iterable[Root] | None = None) -> Places:
        """Return for each attribute that can be carried the dict and key that hold it, by its name.

        Args:
            roots: the objects that have the attributes. None: all.
        """
        found: Places = {}
        for label, thing, left_out in self._roots() if roots is None else roots:
            found.update(self._walk(f"{label}|", vars(thing), left_out, {id(thing), id(self._model)}))
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
            elif self._is_own(value) and id(value) not in seen and name.count(".") < _MAX_DEPTH + prefix.count("."):
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
            yield from self._walk(f"{name}|{path}.", vars(part), self._of_modules, {*seen, id(part)})

    def _is_own(self, value: Any) -> bool:
        kind = type(value)
        return (
            hasattr(value, "__dict__")
            and not f"{kind.__module__}.".startswith(_FOREIGN)
            and not isinstance(value, type | torch.nn.Module | torch.utils.data.Dataset | torch.Tensor | Path)
            and not isinstance(value, self._others)
            and not callable(getattr(value, "configure_optimizers", None))
        )


def _contents(found: Places) -> dict[str, Any]:
    return {name: sum_of(owner[key], _content_of, is_whole=True) for name, (owner, key) in found.items()}


def _without_class(value: Any) -> Any:
    """Return a parameter as a tensor, which a state may hold."""
    return value.detach() if isinstance(value, torch.nn.Parameter) else value


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


def sum_of(  # noqa: PLR0911 - one line for each kind
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
        parts = ((repr(key), sum_of(part, of_tensor, is_whole=is_whole)) for key, part in value.items())
        return ("dict", len(value), _checksum(parts)) if is_large else ("dict", *parts)
    if isinstance(value, list | tuple | deque):
        if is_large and not is_whole:
            return (len(value), sum_of(value[-1], of_tensor))
        kind = type(value).__name__
        if is_large and _are_simple(value):
            return (kind, len(value), _fast_checksum(list(value)))
        each = (sum_of(part, of_tensor, is_whole=is_whole) for part in value)
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
    return (tensor.dtype, tensor.shape, *checksums([("", tensor)], tensor.device).values())


def text_of(place: tuple[dict[str, Any], str]) -> str:
    """Return a value as a text that is the same on all workers; tensors are compared by themselves."""
    value = place[0][place[1]]
    if isinstance(value, set | frozenset):
        return repr(sorted(map(repr, value)))
    return repr(value) if isinstance(value, _PLAIN) else repr(sum_of(value, lambda tensor: tuple(tensor.shape)))


def _device_of(module: torch.nn.Module) -> torch.device:
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
