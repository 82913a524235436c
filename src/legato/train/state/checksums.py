"""64-bit checksums of tensors and plain values, by which ranks find out whether they hold the same bits. Pure.

In a job that trains on CPUs, the checksum of a tensor is its XXH3. XXH3 does not exist for GPUs, and a tensor may be in
the memory of a GPU on one rank and in that of the host on another. So in all other jobs a tensor is read as 64-bit
words ``x``, wherever it is. Two sums are formed modulo ``2**64``: of ``w * x`` and of ``u * (x >> 32)``,
with odd pseudo-random weights ``w`` and ``u`` for each position. The first sum detects every change in the lower half
of a word. The second sum is needed for the upper half: in the first sum the changes of two signs could cancel. Only
integer sums are used, so the order of the additions and the device do not matter, and NaN is a value like any other.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from legato.train.data.hashing import GAMMA, MASK, derive

Words = NDArray[np.uint64]
Plain = bool | int | float | complex | str | bytes | None

_TAG: Final = 0x6C65_6761_746F_0005
_CHUNK_WORDS: Final = 2**14  # stays in the cache of one core
_COPIED_BYTES: Final = 2**16  # up to here, a copy takes less time than a view of the memory
_DEVICE_CHUNKS: Final = 2**9  # that a GPU multiplies at once: 64 MiB
_HALF: Final = np.uint64(32)


class Summing:
    """64-bit checksums of named tensors and plain values, of which the caller waits once for those on a GPU.

    Args:
        device: on which the job trains; checksums of jobs on CPUs are different ones.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._found: dict[str, int] = {}
        self._summed: dict[torch.device, list[tuple[str, int, torch.Tensor]]] = {}

    def add(self, name: str, value: torch.Tensor | Plain) -> None:
        """Add a value, which the caller may change after this call."""
        if not isinstance(value, torch.Tensor):
            self._found[name] = _of_bytes(repr(value).encode(errors="backslashreplace"))
            return
        tensor = value.detach()
        if tensor.layout is not torch.strided:
            tensor = tensor.to_dense()
        num_bytes = tensor.numel() * tensor.element_size()
        if tensor.device.type != "cpu":
            self._found[name] = 0  # keeps the order
            entries = self._summed.setdefault(tensor.device, [])
            entries.append((name, num_bytes, sum_words_on_device(words_of(tensor))))
        elif self._device.type == "cpu":
            self._found[name] = _hash_of(tensor)
        else:
            self._found[name] = derive(_TAG, num_bytes, *sum_words(words_of(tensor).numpy().view(np.uint64)))

    def sums(self) -> dict[str, int]:
        """Return the checksum of each value by its name."""
        for entries in self._summed.values():
            pairs = torch.stack([pair for _, _, pair in entries]).tolist()
            for (name, num_bytes, _), (low, high) in zip(entries, pairs, strict=True):
                self._found[name] = derive(_TAG, num_bytes, low & MASK, high & MASK)
        self._summed = {}
        return self._found


def checksums(items: Iterable[tuple[str, torch.Tensor | Plain]], device: torch.device) -> dict[str, int]:
    """Return a 64-bit checksum for each named tensor or plain value; see `Summing`.

    Args:
        items: names and values.
        device: on which the job trains.

    >>> one, other = torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0])
    >>> sums = checksums([("one", one), ("same", one.clone()), ("other", other)], torch.device("cpu"))
    >>> sums["one"] == sums["same"], sums["one"] == sums["other"]
    (True, False)
    """
    summing = Summing(device)
    for name, value in items:
        summing.add(name, value)
    return summing.sums()


def combined(sums: Mapping[str, int]) -> int:
    """Return one 64-bit checksum of many named ones; their order does not matter.

    >>> combined({"a": 1, "b": 2}) == combined({"b": 2, "a": 1}), combined({"a": 1}) == combined({"b": 1})
    (True, False)
    """
    return _of_bytes("\n".join(f"{name} {sums[name]}" for name in sorted(sums)).encode())


def _of_bytes(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def words_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's values, in their logical order, as int64 ``[n]``; the last word is filled up with zeros."""
    flat = _bytes_of(tensor)
    if flat.numel() % 8 == 0 and flat.storage_offset() % 8 == 0:
        return flat.view(torch.int64)
    filled = torch.zeros(-(-flat.numel() // 8) * 8, dtype=torch.uint8, device=flat.device)
    filled[: flat.numel()] = flat
    return filled.view(torch.int64)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def _hash_of(tensor: torch.Tensor) -> int:
    """Return a hash of the values of a tensor in the memory of the host, in their logical order, without gaps."""
    dense = tensor.resolve_conj().resolve_neg().contiguous()
    # Not by tensor.numpy(): that would forbid the program for good to resize the tensor.
    place, num_bytes = dense.data_ptr(), dense.nbytes
    if num_bytes <= _COPIED_BYTES:
        return xxhash.xxh3_64_intdigest(ctypes.string_at(place, num_bytes))
    return xxhash.xxh3_64_intdigest((ctypes.c_char * num_bytes).from_address(place))


def sum_words(words: Words, level: int = 0) -> tuple[int, int]:
    """Return both sums of some words, uint64 ``[n]``, in the memory of this process."""
    low, high = _weights(level)
    if words.size <= _CHUNK_WORDS:
        return int(words.dot(low[: words.size])), int((words >> _HALF).dot(high[: words.size]))
    num_chunks = -(-words.size // _CHUNK_WORDS)
    sums = np.empty((2, num_chunks), dtype=np.uint64)
    upper = np.empty(_CHUNK_WORDS, dtype=np.uint64)
    for index in range(num_chunks):
        chunk = words[index * _CHUNK_WORDS : (index + 1) * _CHUNK_WORDS]
        np.right_shift(chunk, _HALF, out=upper[: chunk.size])
        sums[0, index] = chunk.dot(low[: chunk.size])
        sums[1, index] = upper[: chunk.size].dot(high[: chunk.size])
    # Each chunk's sums are words again. Other weights, so that chunk and place cannot be exchanged for one another.
    (a, b), (c, d) = sum_words(sums[0], level + 1), sum_words(sums[1], level + 1)
    return (3 * a + c) & MASK, (3 * b + d) & MASK


def sum_words_on_device(words: torch.Tensor, level: int = 0) -> torch.Tensor:
    """Return what `sum_words` does, for int64 ``[n]``, as int64 ``[2]`` on the device of the words."""
    low, high = _weights_on(words.device, level)
    num_whole = words.numel() // _CHUNK_WORDS
    rows_of_all = words[: num_whole * _CHUNK_WORDS].view(num_whole, _CHUNK_WORDS)
    pieces = [rows_of_all[start : start + _DEVICE_CHUNKS] for start in range(0, num_whole, _DEVICE_CHUNKS)]
    if words.numel() % _CHUNK_WORDS or not num_whole:
        pieces.append(words[num_whole * _CHUNK_WORDS :].view(1, -1))
    lows = torch.cat([(rows * low[: rows.shape[1]]).sum(1) for rows in pieces])
    highs = torch.cat([((rows >> 32 & 0xFFFF_FFFF) * high[: rows.shape[1]]).sum(1) for rows in pieces])
    if words.numel() <= _CHUNK_WORDS:
        return torch.cat([lows, highs])
    return sum_words_on_device(lows, level + 1) * 3 + sum_words_on_device(highs, level + 1)


@functools.cache
def _weights(level: int) -> tuple[Words, Words]:
    """Return the weights of both sums, uint64 ``[_CHUNK_WORDS]`` each, all odd; the same in every process."""
    first = 2 * _CHUNK_WORDS * level
    # SplitMix64, as `hashing.mix64` computes it for one number.
    words = np.arange(first + 1, first + 2 * _CHUNK_WORDS + 1, dtype=np.uint64) * np.uint64(GAMMA)
    for shift, factor in ((30, 0xBF58_476D_1CE4_E5B9), (27, 0x94D0_49BB_1331_11EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    low, high = ((words ^ (words >> np.uint64(31))) | np.uint64(1)).reshape(2, _CHUNK_WORDS)
    return low, high


@functools.cache
def _weights_on(device: torch.device, level: int) -> tuple[torch.Tensor, torch.Tensor]:
    low, high = (torch.from_numpy(weights.view(np.int64)).to(device) for weights in _weights(level))
    return low, high
