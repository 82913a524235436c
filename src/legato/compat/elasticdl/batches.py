"""Finds the batch in the arguments of a program's training function, and cuts it to size. Pure.

The last batch of a training is short. Its loader gets the last record repeatedly until the batch is full. So a value
that belongs to the batch is recognized by its last entries, which are equal.
"""

from __future__ import annotations

import copy
import dataclasses
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch

from legato.core.errors import ProgramError
from legato.train.torch_private import num_changes

_NUM_SEEN: Final = 64

Leaf = torch.Tensor | np.ndarray[Any, Any]


def tensors_of(node: Any) -> list[torch.Tensor]:
    """Return the tensors with a first dimension in lists, tuples, mappings and dataclasses, without parameters."""
    return [leaf for leaf in _leaves_of(node) if isinstance(leaf, torch.Tensor)]


def check_batch(tensors: Sequence[torch.Tensor], batch_size: int) -> None:
    """Raise ProgramError if these tensors cannot be a batch of this size."""
    if tensors and all(batch_size not in tensor.shape for tensor in tensors):
        raise ProgramError(
            f"The loader brings batches of {tensors[0].shape[0]} records, and the data shard service was made with "
            f"batch_size={batch_size}. Give both the same batch_size."
        )


def cut_batch(node: Any, batch_size: int, num_records: int, constants: Collection[int]) -> Any:
    """Cut a batch that was filled with its last record to its first records; other values do not change.

    Args:
        node: tensors and arrays, cut in the dimension of this length: the first one, or another whose last entries are
            alike. Lists and tuples of other values that are as long, and whose last entries are alike, are cut too.
            All of them may stand in lists, tuples, mappings and dataclasses, whose types are kept.
        batch_size: length of the values to cut.
        num_records: number of records to keep.
        constants: ids of tensors and arrays that do not belong to the batch.

    Raises:
        ProgramError: the batch holds a packed sequence, which cannot be cut.

    >>> cut_batch([torch.arange(3), "name", ["a", "b", "b"]], 3, 2, ())
    [tensor([0, 1]), 'name', ['a', 'b']]
    """
    if isinstance(node, torch.nn.utils.rnn.PackedSequence):
        raise ProgramError(
            "The last mini-batch has fewer records than the others, and a PackedSequence cannot be cut. Give the "
            "function of elastic_run the padded tensor and its lengths, and pack them inside of it."
        )
    if _is_leaf(node):
        return node if id(node) in constants else _cut_leaf(node, batch_size, num_records)
    if isinstance(node, list | tuple) and _is_filled_list(node, batch_size, num_records):
        return _like(node, node[:num_records])
    if isinstance(node, Mapping):
        cut = {name: cut_batch(part, batch_size, num_records, constants) for name, part in node.items()}
        return node if _are_same(cut.values(), node.values()) else _with_entries(node, cut)
    if isinstance(node, list | tuple):
        parts = [cut_batch(part, batch_size, num_records, constants) for part in node]
        return node if _are_same(parts, node) else _like(node, parts)
    if _is_record(node):
        fields = _fields_of(node)
        cut = {name: cut_batch(part, batch_size, num_records, constants) for name, part in fields.items()}
        return node if _are_same(cut.values(), fields.values()) else _with_fields(node, cut)
    return node


class Arguments:
    """The arguments of a training function, call by call, which distinguish constants from batches."""

    def __init__(self) -> None:
        self._seen: list[tuple[weakref.ref[Any], int | None]] = []
        self._is_first = True
        self._constants: frozenset[int] = frozenset()

    def enter(self, args: Any, batch_size: int, num_records: int) -> None:
        """Record a call.

        Args:
            args: all arguments.
            batch_size: of whole batches.
            num_records: of this batch.
        """
        leaves = [leaf for leaf in _leaves_of(args) if not isinstance(leaf, torch.Tensor) or not leaf.is_sparse]
        if num_records < batch_size:
            self._constants = frozenset(self._find_constants(leaves, batch_size, num_records))
        self._seen = [(weakref.ref(leaf), _version_of(leaf)) for leaf in leaves[:_NUM_SEEN]]
        self._is_first = False

    def cut(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], batch_size: int, num_records: int
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the present call, cut to the records that this batch has.

        Raises:
            ProgramError: nothing in them could be cut.
        """
        # One argument at a time: two arguments are no batch of two.
        cut = tuple(cut_batch(part, batch_size, num_records, self._constants) for part in args)
        named = {name: cut_batch(part, batch_size, num_records, self._constants) for name, part in kwargs.items()}
        is_same = _are_same(cut, args) and _are_same(named.values(), kwargs.values())
        if is_same and not any(leaf.shape[0] == num_records for leaf in _leaves_of((args, kwargs))):
            raise ProgramError(
                f"The last mini-batch has {num_records} records; its loader has filled it to {batch_size}, and nothing "
                "that the function of elastic_run was given could be cut to size. Give it what the loader brings, as "
                "tensors, arrays, or lists with an entry for each record, in lists, tuples, mappings or dataclasses; "
                f"or let dataset_size times num_epochs be a multiple of batch_size={batch_size}."
            )
        return cut, named

    def _find_constants(self, leaves: Sequence[Leaf], batch_size: int, num_records: int) -> Iterator[int]:
        """Find the values outside of the batch: they were there in the last call, or cannot have been filled."""
        known = {id(leaf): version for ref, version in self._seen if (leaf := ref()) is not None}
        filled = {id(leaf) for leaf in leaves if _filled_dimension(leaf, batch_size, num_records) is not None}
        for leaf in leaves:
            if id(leaf) in known:
                # A tensor into which the program copies each batch is also there in each call, but it changes.
                version = _version_of(leaf)
                has_changed = version is None or version != known[id(leaf)]
                if not (has_changed and id(leaf) in filled):
                    yield id(leaf)
            elif self._is_first and filled and id(leaf) not in filled:
                yield id(leaf)


# ---------------------------------------------------------------- parts


def _is_leaf(node: Any) -> bool:
    return isinstance(node, torch.Tensor | np.ndarray)


def _is_record(node: Any) -> bool:
    return dataclasses.is_dataclass(node) and not isinstance(node, type)


def _fields_of(node: Any) -> dict[str, Any]:
    return {field.name: getattr(node, field.name, None) for field in dataclasses.fields(node)}


def _leaves_of(node: Any) -> list[Leaf]:
    if _is_leaf(node):
        return [node] if node.ndim and not isinstance(node, torch.nn.Parameter) else []
    if isinstance(node, Mapping):
        node = list(node.values())
    elif _is_record(node):
        node = list(_fields_of(node).values())
    return [leaf for part in node for leaf in _leaves_of(part)] if isinstance(node, list | tuple) else []


def _version_of(leaf: Leaf) -> int | None:
    """Return the version counter of a tensor, which grows with each write; None if it has none."""
    if not isinstance(leaf, torch.Tensor) or leaf.is_inference():
        return None
    return num_changes(leaf)


def _cut_leaf(leaf: Leaf, batch_size: int, num_records: int) -> Leaf:
    if not leaf.ndim or isinstance(leaf, torch.nn.Parameter):
        return leaf
    if leaf.shape[0] == batch_size:
        return leaf[:num_records]
    dimension = _filled_dimension(leaf, batch_size, num_records)
    return leaf if dimension is None else leaf[(slice(None),) * dimension + (slice(num_records),)]


def _filled_dimension(leaf: Leaf, batch_size: int, num_records: int) -> int | None:
    """Return in which dimension a tensor has the length of a batch, and its last entries are alike; None: in none."""
    for dimension, length in enumerate(leaf.shape):
        if length == batch_size:
            tail: Any = leaf[(slice(None),) * dimension + (slice(num_records - 1, None),)]
            first: Any = leaf[(slice(None),) * dimension + (slice(num_records - 1, num_records),)]
            return dimension if bool(((tail == first) | (tail != tail)).all()) else None  # noqa: PLR0124 - no number
    return None


def _is_filled_list(node: Sequence[Any], batch_size: int, num_records: int) -> bool:
    """Return whether a list has an entry for each record of a batch that was filled."""
    if len(node) != batch_size or hasattr(node, "_fields"):
        return False
    inner = [part for part in node if _is_leaf(part) and part.ndim]
    if any(part.shape[0] == batch_size and _filled_dimension(part, batch_size, num_records) == 0 for part in inner):
        # A batch of as many parts as it has records.
        return False
    return all(_are_alike(node[num_records - 1], part) for part in node[num_records:])


def _are_alike(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    if _is_leaf(one):
        is_alike = one.shape == other.shape and one.dtype == other.dtype
        return is_alike and bool(((one == other) | ((one != one) & (other != other))).all())  # noqa: PLR0124
    if _is_record(one):
        one, other = _fields_of(one), _fields_of(other)
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_are_alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_are_alike, one, other))
    try:
        return bool(one == other or (one != one and other != other))  # noqa: PLR0124
    except (TypeError, ValueError):
        # The type cannot say whether two values are equal.
        return False


def _are_same(some: Collection[Any], others: Collection[Any]) -> bool:
    return all(one is other for one, other in zip(some, others, strict=True))


def _like(node: Any, parts: Sequence[Any]) -> Any:
    # A named tuple takes its parts one by one.
    return type(node)(*parts) if hasattr(node, "_fields") else type(node)(parts)


def _with_entries(node: Any, entries: dict[Any, Any]) -> Any:
    if not hasattr(node, "__setitem__"):
        return type(node)(entries)
    made = copy.copy(node)
    for name, part in entries.items():
        made[name] = part
    return made


def _with_fields(node: Any, fields: dict[str, Any]) -> Any:
    made = copy.copy(node)
    for name, part in fields.items():
        object.__setattr__(made, name, part)
    return made
