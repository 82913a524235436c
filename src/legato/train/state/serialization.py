"""Turns state into tensors and plain values and back, for joining workers and checkpoints.

Plain values are the types that torch's weights-only reader returns (`PLAIN`, and dicts, lists, tuples and sets of
them). Every other kind becomes a dict with the key ``__legato__``, which names the kind.

`decode` never runs code that the data names, and never imports a module. An enumeration, a dataclass or a named tuple
is rebuilt only if its class can be found by its name in a module that this process has imported already, or if the
program's own state holds an object of that class in the same place; the constructor of the class is not called. A
function is never looked up by its name: the function that the program's own state holds in the same place is kept.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch

from legato.core.errors import CheckpointError

KIND: Final = "__legato__"
_RESERVED: Final = "__legato"
PLAIN: Final = (bool, int, float, complex, str, bytes, bytearray, type(None), torch.dtype, torch.device, torch.Size)
MAPPINGS: Final[tuple[Any, ...]] = (dict, OrderedDict, Counter)

_MAPPING_OF: Final = {kind.__name__: kind for kind in MAPPINGS}
_SET_OF: Final[dict[str, Any]] = {"set": set, "frozenset": frozenset}
# Factories of default dicts that are accepted without a comparison with the program's own state.
_FACTORIES: Final[dict[str, Any]] = {
    factory.__name__: factory
    for factory in (
        int,
        float,
        complex,
        bool,
        str,
        bytes,
        list,
        tuple,
        set,
        frozenset,
        dict,
        OrderedDict,
        Counter,
        deque,
    )
}
_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_CARRIED: Final = (
    "numbers, strings, tensors, NumPy arrays and scalars, enumerations, dataclasses and named tuples, and dicts, "
    "lists, tuples, sets, deques and default dicts of these"
)

Path = tuple[Any, ...]


class Encoded(NamedTuple):
    """A state in plain values and tensors.

    Args:
        plain: the state; its tensors are the live ones.
        fixed: where the state holds functions or local classes. A reader must hold the same ones in the same places.
    """

    plain: Any
    fixed: frozenset[Path]


def encode(state: Any, owner: str) -> Encoded:
    """Turn a state into plain values and tensors.

    Args:
        state: what an object's ``state_dict()`` returned.
        owner: whose state it is, for error messages.

    Raises:
        CheckpointError: the state holds an object of a kind that cannot be carried; the message names it.
    """
    encoder = _Encoder(owner)
    return Encoded(encoder.encode(state, ()), frozenset(encoder.fixed))


def decode(plain: Any, own: Any, owner: str) -> Any:
    """Undo `encode`. Plain values are returned unchanged, so older checkpoints can be read.

    Args:
        plain: from `encode`, here or in another process.
        own: the present state of the object that will receive it: functions and local classes are taken from there.
        owner: whose state it is, for error messages.

    Raises:
        CheckpointError: a class or function is not the same here.
    """
    return _Decoder(owner).decode(plain, own, ())


def tensors_in(plain: Any, path: Path = ()) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield the tensors of an encoded state, with the keys that lead to them in the original."""
    if isinstance(plain, torch.Tensor):
        yield path, plain.detach()
    elif isinstance(plain, Mapping):
        match plain.get(KIND):
            case None:
                parts = list(plain.items())
            case "mapping" | "defaultdict":
                parts = plain["items"]
            case "dataclass":
                parts = list(plain["fields"].items())
            case "array":
                parts = [("array", plain["data"])]
            case _:
                parts = list(enumerate(plain.get("items", ())))
        for key, value in parts:
            yield from tensors_in(value, (*path, key))
    elif isinstance(plain, list | tuple):
        for index, value in enumerate(plain):
            yield from tensors_in(value, (*path, index))


def place_of(path: Path) -> str:
    """Write a path as Python would, such as ``['shadow'][0]``."""
    return "".join(f"[{key!r}]" for key in path)


class _Encoder:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._open: set[int] = set()
        self._tensors: dict[int, int] = {}
        self.fixed: set[Path] = set()

    def encode(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, enum.Enum):
            return self._enumeration(value, path)
        if isinstance(value, np.generic) or kind is np.ndarray:
            return self._array(value, path)
        if isinstance(value, _FUNCTIONS):
            self.fixed.add(path)
            return {KIND: "function", "name": _name_of(value)}
        if id(value) in self._open:
            raise self._error(path, "it contains itself")
        self._open.add(id(value))
        try:
            return self._container(value, path)
        finally:
            self._open.discard(id(value))

    def _container(self, value: Any, path: Path) -> Any:
        kind = type(value)
        if kind in _CONTAINERS:
            return _CONTAINERS[kind](self, value, path)
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return {KIND: "namedtuple", "class": self._class(value, path), "items": self._items(value, path)}
        if dataclasses.is_dataclass(kind) and _can_be_rebuilt(kind):
            names = [field.name for field in dataclasses.fields(kind)]
            fields = {name: getattr(value, name) for name in names if hasattr(value, name)}
            fields |= getattr(value, "__dict__", {})
            encoded = {name: self.encode(part, (*path, name)) for name, part in fields.items()}
            return {KIND: "dataclass", "class": self._class(value, path), "fields": encoded}
        raise self._error(path, f"it is a {_name_of(kind)}")

    def _sequence(self, value: Any, path: Path) -> Any:
        return type(value)(self._items(value, path))

    def _set(self, value: Any, path: Path) -> Any:
        items = [self._hashed(part, path) for part in value]
        if type(value) is set and all(_is_simple(item) for item in items):
            return set(items)
        return {KIND: type(value).__name__, "items": items}

    def _deque(self, value: deque[Any], path: Path) -> Any:
        return {KIND: "deque", "items": self._items(value, path), "maxlen": value.maxlen}

    def _defaultdict(self, value: defaultdict[Any, Any], path: Path) -> Any:
        factory: Any = value.default_factory
        name = getattr(factory, "__name__", "")
        if factory is None or _FACTORIES.get(name) is factory:
            told = None if factory is None else name
        else:
            told = self.encode(factory, (*path, "default_factory"))
        return {KIND: "defaultdict", "factory": told, "items": self._pairs(value, path)}

    def _mapping(self, value: Any, path: Path) -> Any:
        if all(map(_is_simple, value)) and not any(isinstance(key, str) and key.startswith(_RESERVED) for key in value):
            return type(value)({key: self.encode(part, (*path, key)) for key, part in value.items()})
        return {KIND: "mapping", "type": type(value).__name__, "items": self._pairs(value, path)}

    def _pairs(self, value: Mapping[Any, Any], path: Path) -> list[Any]:
        return [[self._hashed(key, path), self.encode(part, (*path, key))] for key, part in value.items()]

    def _hashed(self, value: Any, path: Path) -> Any:
        """Encode a key or a member of a set."""
        num_fixed = len(self.fixed)
        encoded = self.encode(value, (*path, f"the key {value!r}"))
        if isinstance(value, torch.Tensor) or len(self.fixed) > num_fixed:
            raise self._error(
                path,
                f"it has {value!r} as a key or as a member of a set, which would be another object in another process",
            )
        return encoded

    def _items(self, value: Any, path: Path) -> list[Any]:
        return [self.encode(part, (*path, index)) for index, part in enumerate(value)]

    def _tensor(self, value: torch.Tensor, path: Path) -> Any:
        refused = _describe_obstacle(value)
        if refused:
            raise self._error(path, refused)
        known = self._tensors.get(id(value))
        if known is not None:
            return {KIND: "same", "tensor": known}
        self._tensors[id(value)] = len(self._tensors)
        return value.detach()

    def _enumeration(self, value: enum.Enum, path: Path) -> Any:
        if isinstance(value, enum.Flag):
            return {KIND: "flag", "class": self._class(value, path), "value": value.value}
        return {KIND: "enum", "class": self._class(value, path), "name": value.name}

    def _array(self, value: Any, path: Path) -> Any:
        dtype = value.dtype
        if dtype.hasobject:
            raise self._error(path, f"it is a NumPy array of objects ({dtype})")
        described = np.lib.format.dtype_to_descr(dtype)
        if isinstance(value, np.generic):
            return {KIND: "scalar", "dtype": described, "data": value.tobytes()}
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        data = torch.from_numpy(np.array(memoryview(value.tobytes(order)), dtype=np.uint8))
        return {KIND: "array", "dtype": described, "shape": list(value.shape), "order": order, "data": data}

    def _class(self, value: Any, path: Path) -> list[str]:
        kind = type(value)
        if _find_class(kind.__module__, kind.__qualname__) is not kind:
            self.fixed.add(path)
        return [kind.__module__, kind.__qualname__]

    def _error(self, path: Path, what: str) -> CheckpointError:
        return CheckpointError(
            f"Cannot transfer {place_of(path) or 'the state'} of {self._owner}: {what}. Workers that join and "
            "checkpoints "
            f"must receive the whole state, and it may hold {_CARRIED}. Convert this value in state_dict() and back in "
            "load_state_dict(), or leave it out there if training never changes it."
        )


_CONTAINERS: Final[dict[type, Callable[[_Encoder, Any, Path], Any]]] = {
    **dict.fromkeys(MAPPINGS, _Encoder._mapping),
    **dict.fromkeys((list, tuple), _Encoder._sequence),
    **dict.fromkeys((set, frozenset), _Encoder._set),
    deque: _Encoder._deque,
    defaultdict: _Encoder._defaultdict,
}


class _Decoder:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._tensors: list[torch.Tensor] = []

    def decode(self, node: Any, own: Any, path: Path) -> Any:
        kind = type(node)
        if isinstance(node, torch.Tensor):
            self._tensors.append(node)
            return node
        if kind in MAPPINGS:
            if KIND in node:
                return self._marked(node, own, path)
            return kind({key: self.decode(part, _part(own, key), (*path, key)) for key, part in node.items()})
        if kind in (list, tuple):
            return kind(self._items(node, own, path))
        return node

    def _items(self, items: Sequence[Any], own: Any, path: Path) -> list[Any]:
        return [self.decode(part, _part(own, index), (*path, index)) for index, part in enumerate(items)]

    def _pairs(self, pairs: Sequence[Any], own: Any, path: Path) -> dict[Any, Any]:
        found = {}
        for encoded, part in pairs:
            key = self.decode(encoded, None, path)
            found[key] = self.decode(part, _part(own, key), (*path, key))
        return found

    def _marked(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        reader = _READERS.get(node[KIND])
        if reader is None:
            raise self._error(path, f"it is of a kind ({node[KIND]!r}) that this version of Legato does not know")
        return reader(self, node, own, path)

    def _same(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:  # noqa: ARG002 -- as every reader has it
        return self._tensors[node["tensor"]]

    def _mapping(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        return _MAPPING_OF[node["type"]](self._pairs(node["items"], own, path))

    def _set(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:  # noqa: ARG002
        return _SET_OF[node[KIND]](self._items(node["items"], None, path))

    def _deque(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        return deque(self._items(node["items"], own, path), node["maxlen"])

    def _defaultdict(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        factory = node["factory"]
        if isinstance(factory, str):
            factory = _FACTORIES[factory]
        elif factory is not None:
            factory = self.decode(factory, getattr(own, "default_factory", None), (*path, "default_factory"))
        return defaultdict(factory, self._pairs(node["items"], own, path))

    def _function(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        if not isinstance(own, _FUNCTIONS) or _name_of(own) != node["name"]:
            raise self._error(
                path, f"it is the function {node['name']}, and this program has no such function in that place"
            )
        return own

    def _array(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:  # noqa: ARG002
        dtype, order = np.lib.format.descr_to_dtype(node["dtype"]), node["order"]
        data = bytearray(node["data"].numpy().tobytes())
        return np.ndarray(node["shape"], dtype, data, order=order).copy(order=order)

    def _scalar(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:  # noqa: ARG002
        return np.frombuffer(node["data"], dtype=np.lib.format.descr_to_dtype(node["dtype"]))[0]

    def _enum(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        found = self._class(node, own, path, enum.Enum)
        if node["name"] not in found._member_map_:
            raise self._error(path, f"{_name_of(found)} has no member {node['name']} here")
        return found._member_map_[node["name"]]

    def _flag(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        return self._class(node, own, path, enum.Flag)(node["value"])

    def _namedtuple(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        return tuple.__new__(self._class(node, own, path, tuple), self._items(node["items"], own, path))

    def _dataclass(self, node: Mapping[str, Any], own: Any, path: Path) -> Any:
        found: Any = self._class(node, own, path, object)
        if not (dataclasses.is_dataclass(found) and _can_be_rebuilt(found)):
            raise self._error(path, f"{_name_of(found)} is no dataclass here")
        names = {field.name for field in dataclasses.fields(found)}
        made = _new(found)
        for name, encoded in node["fields"].items():
            part = self.decode(encoded, getattr(own, name, None), (*path, name))
            if name in names:
                object.__setattr__(made, name, part)
            else:
                made.__dict__[name] = part
        return made

    def _class(self, node: Mapping[str, Any], own: Any, path: Path, base: type) -> Any:
        module, name = node["class"]
        held = type(own)
        found = held if (held.__module__, held.__qualname__) == (module, name) else _find_class(module, name)
        if found is None or not issubclass(found, base):
            raise self._error(path, f"its class {module}.{name} is not there, or is another one, in this program")
        return found

    def _error(self, path: Path, what: str) -> CheckpointError:
        return CheckpointError(
            f"Cannot take over {place_of(path) or 'the state'} of {self._owner}: {what}. Run the program that the "
            "state comes from."
        )


_READERS: Final[dict[str, Callable[[_Decoder, Mapping[str, Any], Any, Path], Any]]] = {
    "same": _Decoder._same,
    "mapping": _Decoder._mapping,
    "set": _Decoder._set,
    "frozenset": _Decoder._set,
    "deque": _Decoder._deque,
    "defaultdict": _Decoder._defaultdict,
    "function": _Decoder._function,
    "array": _Decoder._array,
    "scalar": _Decoder._scalar,
    "enum": _Decoder._enum,
    "flag": _Decoder._flag,
    "namedtuple": _Decoder._namedtuple,
    "dataclass": _Decoder._dataclass,
}


def _describe_obstacle(tensor: torch.Tensor) -> str:
    """Return why a tensor cannot be encoded; empty if it can."""
    if torch.nn.parameter.is_lazy(tensor):
        return "it is a parameter without a shape yet"
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"it is a tensor of the class {_name_of(type(tensor))}"
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return f"it is a tensor that is sparse, quantized or without values ({tensor.layout}, {tensor.device})"
    return ""


def _is_simple(value: Any) -> bool:
    return type(value) in PLAIN or (type(value) is tuple and all(map(_is_simple, value)))


def _part(own: Any, key: Any) -> Any:
    if isinstance(own, Mapping):
        return own.get(key)
    if isinstance(own, list | tuple | deque) and isinstance(key, int) and key < len(own):
        return own[key]
    return None


def _can_be_rebuilt(kind: Any) -> bool:
    # Code of a class that runs when its objects are made or destroyed must not run on values from the data.
    return kind.__new__ is object.__new__ and not hasattr(kind, "__del__") and not issubclass(kind, torch.nn.Module)


def _new(kind: Any) -> Any:
    return object.__new__(kind)


def _find_class(module: str, qualname: str) -> type | None:
    """Return the class of that name in a module that is imported already, or None."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        if not isinstance(found, types.ModuleType | type):
            return None
        # Not getattr: a module may then import something.
        found = vars(found).get(part)
    return found if isinstance(found, type) else None


def _name_of(thing: Any) -> str:
    return f"{getattr(thing, '__module__', None)}.{getattr(thing, '__qualname__', type(thing).__qualname__)}"
