"""Detects whether a data set has changed since its loader processes were started. Never changes the data set.

Loader processes have a copy of the data set. What the program sets on it between two passes (``dataset.scale = 2``,
``dataset.set_epoch(3)``) must reach them as it reaches a loader without processes. So this module computes a digest of
all attributes, also of those in lists, dicts and objects. It does not read all of what is expensive to read: it takes
the version counter of a tensor, and reads some blocks of a large array.
"""

from __future__ import annotations

import hashlib
import marshal
import pickle
import sys
import zlib
from itertools import chain
from typing import Any, Final

import numpy as np
import torch

from legato.train import torch_private
from legato.train.data.fetch import told

WHOLE_BYTES: Final = 16 << 20  # an array of at most this size is read whole: some milliseconds
_BLOCK_BYTES: Final = 4096
_NUM_BLOCKS: Final = 1024
_LONG: Final = 10_000
_CONTAINERS: Final = (list, dict, set, frozenset, tuple)
_PLAIN: Final = (bool, int, float, str)


class DatasetState:
    """A digest of a data set and of the objects that belong to it, at one moment.

    Args:
        things: the data set, its collation, and all else that loader processes have a copy of.
        signer: what is compared.
    """

    def __init__(self, *things: Any, signer: type[Signer] | None = None) -> None:
        self._things = things
        self._signer = signer or Signer
        # Objects that are identified by their address must not be freed: another object could get that address.
        self._alive: list[Any] = []
        self._copies: dict[int, Any] = {}
        self.obstacle: str | None = None
        """Why the objects could not be compared; None if they could."""
        self._digest = self._read(self._alive)

    def has_changed(self) -> bool:
        """Return whether these objects are different now, or cannot be compared."""
        return self._digest is None or self._read([]) != self._digest

    def _read(self, alive: list[Any]) -> bytes | None:
        digest = Digest()
        try:
            self._signer(digest, alive, self._copies).dump(self._things)
        except Exception as error:  # noqa: BLE001 - objects of the program's run their own code here
            self.obstacle = str(error) if isinstance(error, Unwatched) else f"comparing it raised {told(error)}"
            return None
        return digest.value()


class Unwatched(Exception):
    """A part of a data set cannot be compared completely. The text says which."""


class Digest:
    """A file for pickle that only hashes."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        """Add bytes to the digest."""
        self._hash.update(data)
        return len(data)

    def value(self) -> bytes:
        """Return the digest of all bytes so far."""
        return self._hash.digest()


class Signer(pickle.Pickler):
    """Writes a text for what cannot be pickled, or need not be; the result is hashed and never read.

    Args:
        digest: what is written to.
        alive: gets the objects that are identified by their address.
        copies: kept from one comparison to the next.
    """

    def __init__(self, digest: Digest, alive: list[Any], copies: dict[int, Any]) -> None:
        super().__init__(digest, protocol=5)
        self._alive = alive
        self._copies = copies

    def reducer_override(self, thing: Any) -> Any:  # noqa: PLR0911 -- one for each kind
        """Say how to write an object: pickle asks for all but plain values and containers."""
        if thing is str:
            return NotImplemented
        if type(thing).__module__ == "datasets.table":
            return self.reduce_object(thing, _parts_of_table(thing))
        if (content := _describe_content(thing)) is not None:
            return str, (content,)
        if isinstance(thing, type):
            return self.reduce_object(thing, self.parts_of_class(thing))
        if callable(thing) and hasattr(thing, "__code__"):
            return self.reduce_object(thing, self.parts_of_function(thing))
        if _is_plain_object(thing):
            return self.reduce_object(thing, self.parts_of_object(thing))
        return self._reduce(thing)

    def _reduce(self, thing: Any) -> Any:
        try:
            reduced = thing.__reduce_ex__(4)
        except Exception:  # noqa: BLE001 - an open file, a lock, a handle: it is the same one or it is not
            return self.reduce_object(thing, self.parts_of_handle(thing))
        return (str, (reduced,)) if isinstance(reduced, str) else reduced

    def parts_of_object(self, thing: Any) -> Any:
        """Return what is compared of an object that has attributes, besides its identity."""
        attributes = {name: self.condense(value) for name, value in thing.__dict__.items()}
        slots = {name: self.condense(getattr(thing, name)) for name in _slots_of(type(thing)) if hasattr(thing, name)}
        return self.settings_of(type(thing)), attributes, slots

    def parts_of_class(self, kind: type) -> Any:  # noqa: ARG002 - for a stricter signer
        """Return what is compared of a class that a data set refers to, besides its identity."""
        return None

    def parts_of_function(self, function: Any) -> Any:
        """Return what is compared of a function, besides its identity."""
        cells = [_content(cell) for cell in function.__closure__ or ()]
        return cells, function.__defaults__, function.__kwdefaults__, function.__dict__

    def settings_of(self, kind: type) -> Any:
        """Return what is compared of the class of an object: the plain values that a program may set on it."""
        return [
            [(name, value) for name, value in vars(each).items() if isinstance(value, _PLAIN)]
            for each in kind.__mro__
            if each is not object and not each.__module__.startswith("torch.")
        ]

    def condense(self, value: Any) -> Any:
        """Return a digest of a long list of plain values, such as the files of a data set; else the value itself."""
        if not isinstance(value, _CONTAINERS) or len(value) < _LONG:
            return value
        try:
            # Several times as fast as pickle. Version 2 of marshal does not depend on the number of references to an
            # object.
            return hashlib.blake2b(marshal.dumps(value, 2)).digest()
        except ValueError:
            return value

    def parts_of_handle(self, thing: Any) -> Any:
        """Return what is compared of an object that cannot be copied, besides its identity."""
        return getattr(thing, "__dict__", None)

    def reduce_object(self, thing: Any, parts: Any) -> tuple[Any, tuple[str], Any]:
        """Write an object as its address and its content."""
        self._alive.append(thing)
        return str, (f"{type(thing).__qualname__} at {id(thing)}",), parts


def _describe_content(thing: Any) -> str | None:
    if isinstance(thing, torch.Tensor):
        return _describe_tensor(thing)
    if isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
        return _describe_array(thing)
    if isinstance(thing, torch.Generator):
        return f"generator {_checksum(thing.get_state().numpy())}"
    if is_arrow(thing):
        return _describe_arrow(thing)
    return None


def _parts_of_table(table: Any) -> Any:
    """Return what is compared of a table of Hugging Face datasets, besides its identity."""
    if type(table).__name__ == "MemoryMappedTable":
        # It may be larger than the memory. All processes see the same file; its content does not have to reach them.
        return None
    return getattr(table, "blocks", None) or table.table


def is_arrow(thing: Any) -> bool:
    """Return whether this is a table or an array of Arrow."""
    arrow = sys.modules.get("pyarrow") if type(thing).__module__ == "pyarrow.lib" else None
    return arrow is not None and isinstance(thing, (arrow.Table, arrow.RecordBatch, arrow.ChunkedArray, arrow.Array))


def _describe_arrow(thing: Any) -> str | None:
    """Return checksums of the memory of a table or an array, which may be that of an array of NumPy; None: unknown."""
    texts = []
    for column in getattr(thing, "columns", [thing]):
        kind = str(column.type)
        if "dictionary" in kind or "extension" in kind:
            # The buffers are not all of its memory.
            return None
        for chunk in getattr(column, "chunks", [column]):
            sums = [
                buffer and (buffer.address, _checksum(np.frombuffer(buffer, np.uint8))) for buffer in chunk.buffers()
            ]
            texts.append(f"{kind} {chunk.offset} {len(chunk)} {sums}")
    return f"{type(thing).__qualname__} {getattr(thing, 'schema', '')} {texts}"


def _is_plain_object(thing: Any) -> bool:
    kind = type(thing)
    is_usual = all(getattr(kind, name) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__"))
    return is_usual and hasattr(thing, "__dict__") and not isinstance(thing, _CONTAINERS)


def _slots_of(kind: type) -> list[str]:
    """Return the names of the attributes that objects of a class have outside of their ``__dict__``."""
    slots = [vars(each).get("__slots__", ()) for each in kind.__mro__]
    names = chain.from_iterable([each] if isinstance(each, str) else each for each in slots)
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"


def _describe_tensor(tensor: torch.Tensor) -> str:
    kind = f"{type(tensor).__qualname__} {tensor.dtype} {tuple(tensor.shape)} {tensor.device}"
    # A tensor that was made for inference does not count its changes.
    version = 0 if tensor.is_inference() else torch_private.num_changes(tensor)
    if tensor.layout != torch.strided:
        return f"{kind} at {id(tensor)}, version {version}"
    content = 0
    if tensor.device.type == "cpu" and tensor.dtype in _READABLE:
        content = _checksum(tensor.detach().numpy())
    return f"{kind} {tensor.stride()} at {tensor.data_ptr()}, version {version}, {content}"


_READABLE: Final = frozenset(
    {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
    | {torch.bool}
)


def _describe_array(array: np.ndarray[Any, Any]) -> str:
    kind = f"{type(array).__qualname__} {array.dtype} {array.shape} {array.strides} at {array.ctypes.data}"
    # All processes see the same file; its content does not have to reach them.
    if isinstance(array, np.memmap):
        return kind
    return f"{kind}, {_checksum(array)}"


def _checksum(array: np.ndarray[Any, Any]) -> int:
    """Return a checksum of an array: of all of it, or of blocks at equal distances if it is large."""
    if array.nbytes <= WHOLE_BYTES:
        return zlib.crc32(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    if not array.flags.c_contiguous:
        # The rows of a view may be anywhere in memory; the base of a view of a large array is large too.
        rows = np.linspace(0, len(array) - 1, min(len(array), _NUM_BLOCKS)).astype(int)
        return zlib.crc32(np.ascontiguousarray(array[rows]).data.cast("B"))
    flat = array.reshape(-1).view(np.uint8)
    starts = np.linspace(0, flat.size - _BLOCK_BYTES, _NUM_BLOCKS).astype(int)
    value = 0
    for start in starts:
        value = zlib.crc32(flat[start : start + _BLOCK_BYTES].data, value)
    return value
