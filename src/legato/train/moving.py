"""Buffers that a forward pass changes, such as the running statistics of batch-norm.

Every micro-batch starts from the buffers of its step. After the step a floating or complex buffer that moved is the
mean over the micro-batches, any other buffer that moved has the value that micro-batch 0 gave it, and a buffer that did
not move is left alone, to the bit. Which ones move is found out by watching, not declared. Never communicates.

Watching means two things, because torch's own batch-norm writes its statistics without counting a new version: a buffer
moved if its version or, up to a size, its content changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch

MAX_COMPARED_NUMEL: Final = 2**16


class MovingBuffers:
    """The buffers of some modules, at the start of the step and as one micro-batch left them.

    Args:
        buffers: each once.
    """

    def __init__(self, buffers: Sequence[torch.Tensor]) -> None:
        self._buffers = tuple(buffers)
        self._base = [buffer.detach().clone() for buffer in buffers]
        self._versions = [buffer._version for buffer in buffers]
        self._known: frozenset[int] = frozenset()

    @property
    def known(self) -> tuple[int, ...]:
        """The buffers that have moved in some step so far, in order."""
        return tuple(sorted(self._known))

    @known.setter
    def known(self, indices: Sequence[int]) -> None:
        self._known = frozenset(indices)

    def __len__(self) -> int:
        return len(self._buffers)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(self._buffers)

    def base(self, buffer: torch.Tensor) -> torch.Tensor:
        """Return the value that a buffer had at the start of the step; any other tensor is returned as it is."""
        for own, base in zip(self._buffers, self._base, strict=True):
            if own is buffer:
                return base
        return buffer

    def moved(self) -> list[int]:
        """Return which buffers the current micro-batch has changed so far; those known to move count as changed."""
        return [index for index in range(len(self._buffers)) if index in self._known or self._differs(index)]

    def _differs(self, index: int) -> bool:
        buffer, base = self._buffers[index], self._base[index]
        if buffer._version != self._versions[index]:
            return True
        # Bytes, not values: a NaN equals nothing, not even itself, and -0.0 equals 0.0.
        return buffer.numel() <= MAX_COMPARED_NUMEL and not torch.equal(_bytes_of(buffer), _bytes_of(base))

    def numel(self, indices: Sequence[int]) -> int:
        """Return how many float64 numbers the values of some buffers are encoded as."""
        return sum(_encoded_numel(self._buffers[index]) for index in indices)

    def read(self, indices: Sequence[int], *, first: bool) -> torch.Tensor:
        """Encode what this micro-batch contributes to some buffers.

        Args:
            indices: which buffers.
            first: this is micro-batch 0, whose integers count.

        Shapes:
            Returns float64 ``[numel(indices)]``.
        """
        pieces = [_encode(self._buffers[index], first=first) for index in indices]
        return torch.cat(pieces) if pieces else torch.zeros(0, dtype=torch.float64)

    @torch.no_grad()
    def restore(self) -> None:
        """Undo what the current micro-batch changed."""
        for index in self.moved():
            self._buffers[index].copy_(self._base[index])
            self._versions[index] = self._buffers[index]._version

    @torch.no_grad()
    def commit(self, indices: Sequence[int], total: torch.Tensor, num_micro_batches: int) -> None:
        """Set some buffers to the outcome of the step.

        Args:
            indices: which buffers.
            total: sum of `read` over the micro-batches, float64 ``[numel(indices)]``.
            num_micro_batches: how many contributed.
        """
        offset = 0
        for index in indices:
            buffer, base = self._buffers[index], self._base[index]
            numel = _encoded_numel(buffer)
            base.copy_(_decode(total[offset : offset + numel], buffer, num_micro_batches))
            buffer.copy_(base)
            self._versions[index] = buffer._version
            offset += numel
        self._known |= set(indices)

    @torch.no_grad()
    def accept(self) -> None:
        """Take over what the program itself did to buffers after a step, as what the next step begins with."""
        for index, buffer in enumerate(self._buffers):
            if self._differs(index):
                self._base[index].copy_(buffer)
                self._versions[index] = buffer._version

    @torch.no_grad()
    def rebase(self) -> None:
        """Take the buffers' present values, loaded from elsewhere, as those of the step."""
        for index, buffer in enumerate(self._buffers):
            self._base[index].copy_(buffer)
            self._versions[index] = buffer._version


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
    # Two halves of 32 bits each, which float64 holds exactly whatever the integer.
    whole = flat.to("cpu", torch.int64)
    return torch.cat([(whole >> 32).double(), (whole & 0xFFFFFFFF).double()])


def _decode(total: torch.Tensor, like: torch.Tensor, num_micro_batches: int) -> torch.Tensor:
    if like.is_floating_point():
        return (total / num_micro_batches).to(like.dtype).view(like.shape)
    if like.is_complex():
        return torch.view_as_complex((total / num_micro_batches).reshape(-1, 2)).to(like.dtype).view(like.shape)
    high, low = total.to(torch.int64).chunk(2)
    return ((high << 32) | low).to(like.dtype).view(like.shape)
