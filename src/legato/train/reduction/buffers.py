"""Buffers that a forward pass changes, such as the running statistics of batch-norm.

Every micro-batch starts from the buffers of its step. After the step a floating or complex buffer that moved is the
mean over the micro-batches, any other buffer that moved has the value that micro-batch 0 gave it, and a buffer that did
not move is not touched, to the bit. The program does not declare which buffers move: Legato detects it. Never
communicates.

A buffer moved if its version or, up to a size, its content changed: torch's own batch-norm writes its statistics
without a new version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import torch

from legato.core.errors import ProgramError
from legato.train.torch_private import num_changes

MAX_COMPARED_NUMEL: Final = 2**16


class MovingBuffers:
    """The buffers of some modules, with their values at the start of the step and after one micro-batch.

    Args:
        buffers: each once; None for one that the program has registered without a tensor.
    """

    def __init__(self, buffers: Sequence[torch.Tensor | None]) -> None:
        self._buffers: list[torch.Tensor | None] = [None] * len(buffers)
        self._base: list[torch.Tensor] = [torch.empty(0)] * len(buffers)
        self._versions = [0] * len(buffers)
        self._known: frozenset[int] = frozenset()
        self._late = frozenset(index for index, buffer in enumerate(buffers) if buffer is None)
        self.adopt(buffers)

    @property
    def has_empty(self) -> bool:
        """Whether a buffer is still None."""
        return any(self._buffers[index] is None for index in self._late)

    def adopt(self, buffers: Sequence[torch.Tensor | None]) -> None:
        """Watch from now on the buffers that were None and are tensors now.

        Args:
            buffers: all buffers, as many and in the same order as at construction.
        """
        for index, buffer in enumerate(buffers):
            if self._buffers[index] is None and buffer is not None:
                self._buffers[index] = buffer
                self._base[index] = buffer.detach().clone()
                self._versions[index] = num_changes(buffer)

    @property
    def known(self) -> tuple[int, ...]:
        """The buffers that have moved in some step so far, in order."""
        return tuple(sorted(self._known))

    def know(self, indices: Sequence[int]) -> None:
        """Set which buffers have moved in some step so far."""
        self._known = frozenset(indices)

    def __len__(self) -> int:
        return len(self._buffers)

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Yield the buffers that were tensors at construction."""
        for index, buffer in enumerate(self._buffers):
            if buffer is not None and index not in self._late:
                yield buffer

    def base(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the value that a buffer had at the start of the step; any other tensor is returned as it is."""
        for own, base in zip(self._buffers, self._base, strict=True):
            if own is buffer:
                return base
        return buffer

    def moved(self) -> list[int]:
        """Return which buffers the current micro-batch has changed so far; those known to move count as changed."""
        return [index for index in range(len(self._buffers)) if index in self._known or self._differs(index)]

    def _held(self, index: int) -> torch.Tensor:
        buffer = self._buffers[index]
        if buffer is None:
            raise ProgramError(
                "The forward pass changes a buffer on another worker that is still None on this one: it was registered "
                "without a tensor, and set by some micro-batches only. Register it with a tensor "
                "(self.register_buffer(name, torch.zeros(...))) and write into it."
            )
        return buffer

    def _differs(self, index: int) -> bool:
        buffer, base = self._buffers[index], self._base[index]
        if buffer is None:
            return False
        if num_changes(buffer) != self._versions[index]:
            return True
        # Bytes, not values: a NaN equals nothing, not even itself, and -0.0 equals 0.0.
        return buffer.numel() <= MAX_COMPARED_NUMEL and not torch.equal(_bytes_of(buffer), _bytes_of(base))

    def describe(self, indices: Sequence[int]) -> list[str]:
        """Return the dtype and shape of some buffers, in words."""
        return [_describe(self._buffers[index]) for index in indices]

    def numel(self, indices: Sequence[int]) -> int:
        """Return how many float64 numbers the values of some buffers are encoded as."""
        return sum(_encoded_numel(self._held(index)) for index in indices)

    def read(self, indices: Sequence[int], *, first: bool) -> torch.Tensor:
        """Encode the contribution of this micro-batch to some buffers.

        Args:
            indices: which buffers.
            first: this is micro-batch 0, whose integers count.

        Shapes:
            Returns float64 ``[numel(indices)]``.
        """
        pieces = [_encode(self._held(index), first=first) for index in indices]
        return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64)

    @torch.no_grad()
    def restore(self) -> None:
        """Undo the changes of the current micro-batch."""
        for index in self.moved():
            buffer = self._held(index)
            buffer.copy_(self._base[index])
            self._versions[index] = num_changes(buffer)

    @torch.no_grad()
    def commit(self, indices: Sequence[int], total: torch.Tensor, num_micro_batches: int) -> None:
        """Set some buffers to the result of the step.

        Args:
            indices: which buffers.
            total: sum of `read` over the micro-batches, float64 ``[numel(indices)]``.
            num_micro_batches: number of micro-batches in ``total``.
        """
        offset = 0
        for index in indices:
            buffer, base = self._held(index), self._base[index]
            numel = _encoded_numel(buffer)
            base.copy_(_decode(total[offset : offset + numel], buffer, num_micro_batches))
            buffer.copy_(base)
            self._versions[index] = num_changes(buffer)
            offset += numel
        self._known |= set(indices)

    @torch.no_grad()
    def accept(self) -> None:
        """Use the program's own changes of buffers after a step as the values at the start of the next step."""
        for index, buffer in enumerate(self._buffers):
            if buffer is not None and self._differs(index):
                self._base[index].copy_(buffer)
                self._versions[index] = num_changes(buffer)

    @torch.no_grad()
    def rebase(self) -> None:
        """Use the buffers' present values, which were loaded, as the values at the start of the step."""
        for index, buffer in enumerate(self._buffers):
            if buffer is not None:
                self._base[index].copy_(buffer)
                self._versions[index] = num_changes(buffer)


def describe_kinds(name: str, ranks: Mapping[str, Sequence[int]]) -> str:
    """Return an error message about a moving buffer whose kind differs between ranks.

    Args:
        name: of the buffer.
        ranks: the ranks that have each kind, by its description.
    """
    held = "; ".join(f"{kind} on rank{'s' * (len(on) > 1)} {', '.join(map(str, on))}" for kind, on in ranks.items())
    return (
        f"The forward pass changes the buffer '{name}', which is not the same kind of tensor on all workers: {held}. "
        "Legato averages a buffer that forward passes change over all micro-batches, so it has one dtype and shape. "
        "Register it with a tensor of its final shape (self.register_buffer(name, torch.zeros(...))) and write into it."
    )


def _describe(buffer: torch.Tensor | None) -> str:
    return "None" if buffer is None else f"{str(buffer.dtype).removeprefix('torch.')} {list(buffer.shape)}"


def _bytes_of(buffer: torch.Tensor) -> torch.Tensor:
    return buffer.detach().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8)


def _encoded_numel(buffer: torch.Tensor) -> int:
    # An integer takes two numbers, a complex number as well.
    return buffer.numel() if buffer.is_floating_point() else 2 * buffer.numel()


def _encode(buffer: torch.Tensor, *, first: bool) -> torch.Tensor:
    flat = buffer.detach().reshape(-1)
    if buffer.is_floating_point():
        return flat.to("cpu", torch.float64)
    if buffer.is_complex():
        return torch.view_as_real(flat.resolve_conj().to("cpu", torch.complex128)).reshape(-1)
    if not first:
        return torch.zeros(2 * flat.numel(), dtype=torch.float64)
    # Two halves of 32 bits each, because float64 holds these exactly for every integer.
    whole = flat.to("cpu", torch.int64)
    return torch.cat([(whole >> 32).double(), (whole & 0xFFFFFFFF).double()])


def _decode(total: torch.Tensor, like: torch.Tensor, num_micro_batches: int) -> torch.Tensor:
    if like.is_floating_point():
        return (total / num_micro_batches).to(like.dtype).view(like.shape)
    if like.is_complex():
        return torch.view_as_complex((total / num_micro_batches).reshape(-1, 2)).to(like.dtype).view(like.shape)
    high, low = total.to(torch.int64).chunk(2)
    return ((high << 32) | low).to(like.dtype).view(like.shape)
