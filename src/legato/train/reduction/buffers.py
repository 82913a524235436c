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
from legato.train.torch_private import copy_each, num_changes

MAX_COMPARED_NUMEL: Final = 2**16
_INTEGERS: Final = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class MovingBuffers:
    """The buffers of some modules, with their values at the start of the step and after one micro-batch.

    Args:
        buffers: each once; None for one that the program has registered without a tensor.
    """

    def __init__(self, buffers: Sequence[torch.Tensor | None]) -> None:
        self._buffers: list[torch.Tensor | None] = [None] * len(buffers)
        self._base: list[torch.Tensor] = [torch.empty(0)] * len(buffers)
        self._versions = [0] * len(buffers)
        self._bits: list[torch.Tensor | None] = [None] * len(buffers)
        self._known: tuple[int, ...] = ()
        self._known_encoding: _Encoding | None = None
        self._unknown: tuple[int, ...] = tuple(range(len(buffers)))
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
                self._bits[index] = _bits_of(self._base[index])
                self._versions[index] = num_changes(buffer)

    @property
    def known(self) -> tuple[int, ...]:
        """The buffers that have moved in some step so far, in order."""
        return self._known

    def know(self, indices: Sequence[int]) -> None:
        """Set which buffers have moved in some step so far."""
        self._known = tuple(sorted(set(indices)))
        self._known_encoding = None
        self._unknown = tuple(index for index in range(len(self)) if index not in set(indices))

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
        strays = [index for index in self._unknown if self._differs(index)]
        return sorted([*self._known, *strays]) if strays else list(self._known)

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
        if buffer.numel() > MAX_COMPARED_NUMEL:
            return False
        # Bits, not values: a NaN equals nothing, not even itself, and -0.0 equals 0.0.
        bits, own = self._bits[index], _bits_of(buffer)
        if bits is None or own is None or bits.dtype != own.dtype:
            return not torch.equal(_bytes_of(buffer), _bytes_of(base))
        return not torch.equal(own, bits)

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
            Returns float64 ``[numel(indices)]``, on the device of the first of the buffers: nothing waits for a GPU.
        """
        buffers = [self._held(index) for index in indices]
        return self._encoding(indices, buffers).encode(buffers, first=first)

    def _encoding(self, indices: Sequence[int], buffers: Sequence[torch.Tensor]) -> _Encoding:
        if tuple(indices) != self._known:
            return _Encoding(buffers)
        if self._known_encoding is None:
            self._known_encoding = _Encoding(buffers)
        return self._known_encoding

    def restore(self, moved: Sequence[int] | None = None) -> None:
        """Undo the changes of the current micro-batch.

        Args:
            moved: what `moved` returns, if it is known.
        """
        indices = self.moved() if moved is None else moved
        if indices:
            self._take_base(indices)

    @torch.no_grad()
    def _take_base(self, indices: Sequence[int]) -> None:
        buffers = [self._held(index) for index in indices]
        copy_each(buffers, [self._base[index] for index in indices])
        for index, buffer in zip(indices, buffers, strict=True):
            self._versions[index] = num_changes(buffer)

    def commit(self, indices: Sequence[int], total: torch.Tensor, num_micro_batches: int) -> None:
        """Set some buffers to the result of the step.

        Args:
            indices: which buffers.
            total: sum of `read` over the micro-batches, float64 ``[numel(indices)]``.
            num_micro_batches: number of micro-batches in ``total``.
        """
        if not indices:
            return
        bases = [self._base[index] for index in indices]
        self._encoding(indices, bases).decode(total, bases, num_micro_batches)
        self._take_base(indices)
        if not set(indices) <= set(self._known):
            self.know([*self._known, *indices])

    def accept(self) -> None:
        """Use the program's own changes of buffers after a step as the values at the start of the next step."""
        if len(self):
            self._set_base(self.moved())

    @torch.no_grad()
    def _set_base(self, indices: Sequence[int]) -> None:
        held = [(index, buffer) for index in indices if (buffer := self._buffers[index]) is not None]
        if held:
            copy_each([self._base[index] for index, _ in held], [buffer for _, buffer in held])
        for index, buffer in held:
            self._versions[index] = num_changes(buffer)

    def rebase(self) -> None:
        """Use the buffers' present values, which were loaded, as the values at the start of the step."""
        self._set_base(range(len(self)))


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


def _bits_of(buffer: torch.Tensor) -> torch.Tensor | None:
    """Return a view of a tensor whose equal values have equal bits; None for kinds that have no such view."""
    if buffer.is_complex() or buffer.is_quantized or buffer.is_neg():
        return None
    if not buffer.is_floating_point():
        return buffer.detach()
    whole = _INTEGERS.get(buffer.dtype.itemsize)
    return None if whole is None else buffer.detach().view(whole)


class _Encoding:
    """Turns some buffers into float64 numbers and back, with one operation for all that are averaged.

    Args:
        buffers: which; at least one. Their dtypes and sizes stay the same.
    """

    def __init__(self, buffers: Sequence[torch.Tensor]) -> None:
        self._sizes = [_encoded_numel(buffer) for buffer in buffers]
        self._averaged = [index for index, buffer in enumerate(buffers) if _is_averaged(buffer)]
        self._whole = [index for index, buffer in enumerate(buffers) if not _is_averaged(buffer)]
        # Made once, because the views of one step cost more than its arithmetic.
        self._flat, self._mean = torch.zeros(2, sum(self._sizes), dtype=torch.float64, device=buffers[0].device)
        self._places, self._means = (
            [_like(places[index], buffers[index]) for index in self._averaged]
            for places in (torch.split(flat, self._sizes) for flat in (self._flat, self._mean))
        )

    @torch.no_grad()
    def encode(self, buffers: Sequence[torch.Tensor], *, first: bool) -> torch.Tensor:
        """Return a new tensor with the buffers' values; without ``first``, integers count as zero."""
        if [_encoded_numel(buffer) for buffer in buffers] != self._sizes:
            raise ProgramError(
                "A buffer that the forward pass changes has another size or dtype than in earlier steps. Register it "
                "with a tensor of its final shape (self.register_buffer(name, torch.zeros(...))) and write into it."
            )
        if self._averaged:
            copy_each(self._places, [buffers[index] for index in self._averaged])
        encoded: torch.Tensor = self._flat.clone()
        if first and self._whole:
            # Two halves of 32 bits each, because float64 holds these exactly for every integer.
            whole = [buffers[index] for index in self._whole]
            values = torch.cat([buffer.reshape(-1).to(encoded.device, torch.int64) for buffer in whole])
            numels = [buffer.numel() for buffer in whole]
            halves = [
                part for half in (values >> 32, values & 0xFFFFFFFF) for part in torch.split(half.double(), numels)
            ]
            places = torch.split(encoded, self._sizes)
            pairs = [places[index].view(2, numel) for index, numel in zip(self._whole, numels, strict=True)]
            copy_each([pair[half] for half in range(2) for pair in pairs], halves)
        return encoded

    @torch.no_grad()
    def decode(self, total: torch.Tensor, targets: Sequence[torch.Tensor], num_micro_batches: int) -> None:
        """Set tensors of the buffers' dtypes and shapes to the result of a sum of what `encode` returns."""
        self._mean.copy_(total)
        if self._whole:
            places = torch.split(self._mean, self._sizes)
            # Copies, before the division.
            whole = [targets[index] for index in self._whole]
            pairs = [places[index].view(2, target.numel()) for index, target in zip(self._whole, whole, strict=True)]
            high, low = torch.cat(pairs, dim=1).to(torch.int64)
            values = torch.split((high << 32) | low, [target.numel() for target in whole])
            copy_each(whole, [value.view(target.shape) for value, target in zip(values, whole, strict=True)])
        self._mean /= num_micro_batches
        if self._averaged:
            copy_each([targets[index] for index in self._averaged], self._means)


def _is_averaged(buffer: torch.Tensor) -> bool:
    return buffer.is_floating_point() or buffer.is_complex()


def _like(place: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """Return the place of a floating or complex buffer in its shape."""
    if buffer.is_complex():
        place = torch.view_as_complex(place.view(-1, 2))
    return place if place.shape == buffer.shape else place.view(buffer.shape)
