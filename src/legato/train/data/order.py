"""The order of the data: which samples make up which micro-batch. Pure; never looks at a sample, a rank or a clock.

The order of an epoch is a function of (seed, epoch, number of samples) alone. It is computed with 64-bit integer
arithmetic, not with a library's shuffle, so that no version of NumPy and no platform can change it: sample ``i`` gets
the ``i``-th number of the SplitMix64 stream that starts at the epoch's seed, and the samples are sorted by these
numbers, ascending. SplitMix64 is one to one, so the numbers are distinct and the order has no ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from legato.core.errors import DataError, LayoutError
from legato.train.data.hashing import GAMMA, ORDER, derive

Indices: TypeAlias = NDArray[np.int64]


class Key(NamedTuple):
    """Names one micro-batch.

    Args:
        epoch: from 0.
        step: of this epoch, from 0.
        index: of the micro-batch in its step, from 0.
    """

    epoch: int
    step: int
    index: int  # type: ignore[assignment]  # hides tuple.index


@dataclass(frozen=True, slots=True)
class Layout:
    """How a step is divided into micro-batches. The same for every number of workers.

    Args:
        global_batch_size: samples of one step.
        micro_batch_size: samples of one micro-batch; divides ``global_batch_size``.

    >>> Layout(256, 32).num_micro_batches
    8
    """

    global_batch_size: int
    micro_batch_size: int

    def __post_init__(self) -> None:
        for name in ("global_batch_size", "micro_batch_size"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise LayoutError(f"Cannot cut batches: {name}={value!r} is not a whole number. Give an int.")
            if value <= 0:
                raise LayoutError(f"Cannot cut batches: {name}={value} is not positive. Give 1 or more.")
        if self.global_batch_size % self.micro_batch_size:
            smaller = self.global_batch_size // self.micro_batch_size * self.micro_batch_size
            advice = f"{smaller} or {smaller + self.micro_batch_size}" if smaller else f"{self.micro_batch_size}"
            raise LayoutError(
                f"Cannot cut batches: global_batch_size={self.global_batch_size} is not a multiple of "
                f"micro_batch_size={self.micro_batch_size}. Take global_batch_size={advice}, or "
                "another micro_batch_size."
            )

    @property
    def num_micro_batches(self) -> int:
        """Return V, the number of micro-batches of a full step."""
        return self.global_batch_size // self.micro_batch_size


class Steps(Protocol):
    """How a pass is divided into steps. Called again at each step, so later steps may be divided differently."""

    @property
    def num_steps(self) -> int:
        """The number of steps of the pass."""
        ...

    @property
    def num_epochs(self) -> int:
        """The number of epochs that the pass goes through."""
        ...

    def epochs_before(self, step: int) -> int:
        """Return how many epochs have ended before a step; ``num_steps`` as the step means the end of the pass."""
        ...

    def num_micro_batches_of(self, step: int) -> int:
        """Return the number of micro-batches of a step that are not empty."""
        ...

    def num_samples_of(self, step: int) -> int:
        """Return the number of samples of a step."""
        ...


class Order:
    """Which samples of a data set make up each step and each micro-batch. Every sample comes once per epoch.

    The last step of an epoch has the remaining samples: fewer micro-batches, of which the last may be smaller.

    Args:
        num_samples: of the data set.
        layout: how a step is divided into micro-batches.
        seed: of the job.
        shuffle: a new random order in each epoch, for training; then there must be enough samples for one step, of
            which the last micro-batch may be smaller. False: the order of the data set, and any number of samples but
            0.

    Raises:
        DataError: the data set is empty, or too small for one step of training.

    >>> order = Order(10, Layout(4, 2), seed=0, shuffle=False)
    >>> order.num_steps, [part.tolist() for part in order.micro_batches(epoch=0, step=1)]
    (3, [[4, 5], [6, 7]])
    >>> order.num_samples_of(2), order.samples(Key(epoch=0, step=2, index=0)).tolist()
    (2, [8, 9])
    """

    num_epochs = 1

    def __init__(self, num_samples: int, layout: Layout, seed: int, shuffle: bool = True) -> None:
        if num_samples <= 0:
            raise DataError(
                "Cannot use an empty data set: it has no samples. Check the path and the filter it is made with."
            )
        if shuffle and num_samples <= layout.global_batch_size - layout.micro_batch_size:
            raise DataError(
                f"Cannot train on {num_samples} samples: one global batch takes {layout.global_batch_size}. "
                f"Take global_batch_size={num_samples} or less, or a larger data set."
            )
        self.num_samples = num_samples
        self.num_steps = -(-num_samples // layout.global_batch_size)
        self.layout = layout
        self.seed = seed
        self.shuffle = shuffle
        # Two epochs at a time: the loader reads ahead into the next epoch while the last steps of one are still
        # trained.
        self._permutations: dict[int, torch.Tensor] = {}

    def epochs_before(self, step: int) -> int:
        """Return 1 after the last step, else 0."""
        return int(step >= self.num_steps)

    def num_samples_of(self, step: int) -> int:
        """Return the number of samples of a step: one global batch, or fewer in the last step."""
        if not 0 <= step < self.num_steps:
            raise IndexError(f"an epoch has {self.num_steps} steps: none has index {step}")
        size = self.layout.global_batch_size
        return min(size, self.num_samples - step * size)

    def num_micro_batches_of(self, step: int) -> int:
        """Return the number of micro-batches of a step that are not empty."""
        return -(-self.num_samples_of(step) // self.layout.micro_batch_size)

    def micro_batches(self, epoch: int, step: int) -> tuple[Indices, ...]:
        """Return the sample numbers of each micro-batch of a step, without the empty ones."""
        return tuple(self.samples(Key(epoch, step, index)) for index in range(self.num_micro_batches_of(step)))

    def samples(self, key: Key) -> Indices:
        """Return the sample numbers of one micro-batch, read-only."""
        return _read_only(self.index(key))

    def index(self, key: Key) -> torch.Tensor:
        """Return `samples` as a tensor, int64 ``[n]``: a part of the order, which the caller must not change."""
        num_micro_batches = self.num_micro_batches_of(key.step)
        if not 0 <= key.index < num_micro_batches:
            raise IndexError(f"step {key.step} has {num_micro_batches} micro-batches: none has index {key.index}")
        size = self.layout.micro_batch_size
        start = key.step * self.layout.global_batch_size + key.index * size
        stop = min(start + size, self.num_samples)
        if not self.shuffle:
            return torch.arange(start, stop, device="cpu")
        return self._permutation(key.epoch)[start:stop]

    def permutation(self, epoch: int) -> Indices:
        """Return all sample numbers in the order of a shuffled epoch, int64 ``[num_samples]``, read-only."""
        return _read_only(self._permutation(epoch))

    def _permutation(self, epoch: int) -> torch.Tensor:
        known = self._permutations.get(epoch)
        if known is None:
            while len(self._permutations) > 1:
                del self._permutations[min(self._permutations)]
            known = torch.from_numpy(_shuffled(self.num_samples, derive(ORDER, self.seed, epoch)))
            self._permutations[epoch] = known
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_permutations": {}}


def _shuffled(num_samples: int, start: int) -> Indices:
    words = np.arange(1, num_samples + 1, dtype=np.uint64)
    words *= np.uint64(GAMMA)
    words += np.uint64(start)
    # `mix64` of hashing.py, on whole arrays.
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58_476D_1CE4_E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D0_49BB_1331_11EB)
    words ^= words >> np.uint64(31)
    return np.argsort(words).astype(np.int64, copy=False)


def _read_only(numbers: torch.Tensor) -> Indices:
    array: Indices = numbers.numpy()
    array.flags.writeable = False
    return array


def epochs_before(order: Steps, epoch: int, step: int) -> int:
    """Return how many epochs of a job have ended before a step of a pass.

    Args:
        order: of the pass.
        epoch: of the program's loop, from 0; each such epoch goes through as many epochs as the pass has.
        step: number of the step in the pass, from 0.
    """
    return epoch * order.num_epochs + order.epochs_before(step)


def epochs_ended_by(order: Steps | None, epoch: int, num_steps: int) -> range:
    """Return the numbers, from 1, of the epochs of a job that ended with the last of ``num_steps`` steps of a pass."""
    if order is None or not num_steps:
        return range(0)
    return range(epochs_before(order, epoch, num_steps - 1) + 1, epochs_before(order, epoch, num_steps) + 1)
