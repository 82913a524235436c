"""Encodes and decodes values that can be sent to other workers and stored in checkpoints.

These are plain values, tensors, arrays, and the containers of Python's library that hold nothing else. `pack` raises
`CannotTravel` for all other values. Sends nothing.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy
import torch

_PLAIN: Final = (type(None), bool, int, float, str, bytes, torch.Tensor)
_KIND: Final = "__legato_kind__"
_CONTAINERS: Final = (list, tuple, dict, set, deque, Counter, OrderedDict, defaultdict)


class CannotTravel(ValueError):
    """The value cannot be sent to another worker."""


def pack(value: Any) -> Any:
    """Return a value in the form that is sent; its tensors are the original ones, not copies.

    Raises:
        CannotTravel: the value is or contains something that cannot be sent.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, numpy.generic):
        return pack(value.item())
    if type(value) not in _PACKERS:
        raise CannotTravel(type(value).__qualname__)
    return _PACKERS[type(value)](value)


def unpack(packed: Any, own: Any) -> Any:
    """Undo `pack`.

    Args:
        packed: the received value.
        own: this worker's present value: its tensors give the devices, its ``defaultdict`` gives the factory.
    """
    if isinstance(packed, torch.Tensor) and isinstance(own, torch.Tensor):
        return packed.to(own.device)
    if isinstance(packed, list | tuple):
        return type(packed)(unpack(part, None) for part in packed)
    if not isinstance(packed, dict):
        return packed
    return _UNPACKERS[packed.get(_KIND, "dict")](packed, own)


def is_same(value: Any, first: Any) -> bool:
    """Return whether two packed values are the same."""
    if type(value) is not type(first):
        return False
    if isinstance(value, torch.Tensor):
        return value.shape == first.shape and value.dtype == first.dtype and torch.equal(value, first.to(value.device))
    if isinstance(value, dict):
        return value.keys() == first.keys() and all(is_same(part, first[name]) for name, part in value.items())
    if isinstance(value, list | tuple):
        return len(value) == len(first) and all(map(is_same, value, first))
    return bool(value == first)


def outline(value: Any) -> Any:
    """Return what `is_same_outline` compares to find out whether a value that cannot be sent has changed.

    That is the value itself, or the items of a container. Changes inside of other objects are not noticed.
    """
    if type(value) not in _CONTAINERS:
        return value
    return [*value.items()] if isinstance(value, dict) else [*value]


def is_same_outline(value: Any, first: Any) -> bool:
    """Return whether two outlines are the same."""
    if type(value) in (list, tuple) and type(value) is type(first):
        return len(value) == len(first) and all(map(is_same_outline, value, first))
    return value is first or (type(value) in _PLAIN and is_same(value, first))


def _pack_array(array: numpy.ndarray[Any, Any]) -> dict[str, Any]:
    """Return an array as a tensor, which shares its memory if possible."""
    try:
        items = torch.from_numpy(numpy.ascontiguousarray(array if array.flags.writeable else array.copy()))
    except (TypeError, ValueError) as error:
        raise CannotTravel(str(error)) from error
    return {_KIND: "array", "items": items, "shape": list(array.shape)}


def _unpack_array(packed: Mapping[str, Any], _: Any) -> numpy.ndarray[Any, Any]:
    found: numpy.ndarray[Any, Any] = packed["items"].cpu().numpy().reshape(packed["shape"]).copy()
    return found


def _pack_items(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {pack(name): pack(part) for name, part in value.items()}


def _unpack_items(packed: Mapping[Any, Any], own: Any) -> dict[Any, Any]:
    known = own if isinstance(own, dict) else {}
    return {name: unpack(part, known.get(name)) for name, part in packed.items()}


def _unpack_default(packed: Mapping[str, Any], own: Any) -> defaultdict[Any, Any]:
    makes = own.default_factory if isinstance(own, defaultdict) else None
    return defaultdict(makes, _unpack_items(packed["items"], own))


_PACKERS: Final[Mapping[type, Callable[[Any], Any]]] = {
    list: lambda value: [*map(pack, value)],
    tuple: lambda value: (*map(pack, value),),
    dict: _pack_items,
    set: lambda value: {_KIND: "set", "items": dict.fromkeys(map(pack, value))},
    deque: lambda value: {_KIND: "deque", "items": [*map(pack, value)], "maxlen": value.maxlen},
    Counter: lambda value: {_KIND: "Counter", "items": _pack_items(value)},
    OrderedDict: lambda value: {_KIND: "OrderedDict", "items": _pack_items(value)},
    defaultdict: lambda value: {_KIND: "defaultdict", "items": _pack_items(value)},
    numpy.ndarray: _pack_array,
}
_UNPACKERS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "dict": _unpack_items,
    "set": lambda packed, _: set(unpack(packed["items"], None)),
    "deque": lambda packed, _: deque(unpack(packed["items"], None), packed["maxlen"]),
    "Counter": lambda packed, own: Counter(_unpack_items(packed["items"], own)),
    "OrderedDict": lambda packed, own: OrderedDict(_unpack_items(packed["items"], own)),
    "defaultdict": _unpack_default,
    "array": _unpack_array,
}
