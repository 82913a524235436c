"""What a program gives its training function: which of it is the batch, and how it is cut to size. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from legato.core.errors import ProgramError


def tensors_of(node: Any) -> list[torch.Tensor]:
    """Return the tensors in lists, tuples and dicts that have a first dimension, parameters of models not."""
    if isinstance(node, torch.Tensor):
        return [node] if node.dim() and not isinstance(node, torch.nn.Parameter) else []
    if isinstance(node, dict):
        node = list(node.values())
    return [tensor for part in node for tensor in tensors_of(part)] if isinstance(node, list | tuple) else []


def check_batch(tensors: Sequence[torch.Tensor], batch_size: int) -> None:
    """Raise ProgramError if these tensors cannot be a batch of this size."""
    if tensors and all(batch_size not in tensor.shape for tensor in tensors):
        raise ProgramError(
            f"The loader brings batches of {tensors[0].shape[0]} records, and the data shard service was made with "
            f"batch_size={batch_size}. Give both the same batch_size."
        )


def cut_batch(node: Any, batch_size: int, num_records: int, constants: Collection[int]) -> Any:
    """Cut the tensors of a batch to its first records.

    Args:
        node: tensors, also in lists, tuples and dicts.
        batch_size: what is as long as that in its first dimension is cut.
        num_records: to be left.
        constants: ids of tensors that are no part of the batch.

    >>> cut_batch([torch.arange(3), "name"], 3, 2, ())
    [tensor([0, 1]), 'name']
    """
    if isinstance(node, torch.Tensor):
        is_batch = node.dim() and node.shape[0] == batch_size and id(node) not in constants
        return node[:num_records] if is_batch and not isinstance(node, torch.nn.Parameter) else node
    if isinstance(node, dict):
        return {name: cut_batch(part, batch_size, num_records, constants) for name, part in node.items()}
    if isinstance(node, list | tuple):
        parts = [cut_batch(part, batch_size, num_records, constants) for part in node]
        # A named tuple takes its parts one by one.
        return type(node)(*parts) if hasattr(node, "_fields") else type(node)(parts)
    return node
