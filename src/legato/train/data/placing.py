"""Moves batches to the device of the models. Never decides which device that is."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import MutableMapping
from typing import Any

import torch


def to_device(part: Any, device: torch.device, *, non_blocking: bool = False) -> Any:
    """Move the tensors of a batch to a device, in nested lists, tuples and mappings too.

    Containers keep their type. Any other object that has a method ``to`` is moved by it: a ``PackedSequence``, for
    example, or a ``BatchEncoding`` of a tokenizer. All else stays as it is, and so does a container of a type that
    cannot be made of its parts.

    Args:
        part: a batch, or a part of one.
        device: where the tensors are wanted.
        non_blocking: a copy from page-locked memory does not wait for the device; the memory must not change after it.
    """

    def move(value: Any) -> Any:
        return to_device(value, device, non_blocking=non_blocking)

    if isinstance(part, torch.Tensor):
        return part.to(device, non_blocking=non_blocking)
    if callable(own := getattr(part, "to", None)) and not isinstance(part, type):
        return own(device)
    if isinstance(part, MutableMapping):
        moved = copy.copy(part)
        moved.update({key: move(value) for key, value in part.items()})
        return moved
    if isinstance(part, list | tuple):
        values = list(map(move, part))
        with contextlib.suppress(TypeError):
            return type(part)(*values) if hasattr(part, "_fields") else type(part)(values)
    return part
