"""Converts the data sets of Keras programs into sets of samples with access by index, as the runtime needs them.

Two kinds of data sets are supported. The items of an object with ``__getitem__`` and ``__len__`` are samples: pairs of
inputs and targets, each a scalar, an array or a dict of arrays. The items of an ``ImageDataGenerator().flow(...)``
iterator are batches, so Legato reads its images one by one: sample ``i`` is the generator's result for image ``i``,
with the random numbers of sample ``i``. So a sample does not depend on the worker that reads it. The runtime shuffles,
not the iterator, and the iterator's batch size is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from legato.core.errors import DataError

Batch = tuple[Any, Any]
"""Inputs and targets: arrays of shape ``[n, ...]``, or dicts and tuples of such arrays."""


class FlowedSamples:
    """The samples of a Keras iterator, with access by index.

    Args:
        iterator: for example ``ImageDataGenerator().flow(x, y, batch_size=32)`` or ``flow_from_directory(...)``.
    """

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator
        # Only whether to shuffle: the runtime chooses the order, not the iterator of each worker.
        self.shuffles = bool(getattr(iterator, "shuffle", True))

    def __len__(self) -> int:
        return int(self._iterator.n)

    def __getitem__(self, index: int) -> Any:
        batch = self._iterator._get_batches_of_transformed_samples(np.array([index]))
        return _map(lambda array: array[0], batch)


def as_samples(dataset: Any) -> tuple[Any, bool]:
    """Return a data set whose items are samples, and whether it is to be shuffled.

    Raises:
        DataError: the items are neither samples nor batches of a supported iterator.
    """
    if isinstance(dataset, FlowedSamples):
        return dataset, dataset.shuffles
    if hasattr(dataset, "_get_batches_of_transformed_samples") and hasattr(dataset, "n"):
        flowed = FlowedSamples(dataset)
        return flowed, flowed.shuffles
    kind = type(dataset).__name__
    if _is_batch_sequence(dataset):
        raise DataError(
            f"Cannot train on a {kind}: it yields batches, and the size of a batch is an argument of train(). Give an "
            "object whose __getitem__ returns one sample (x, y), or an ImageDataGenerator().flow(...)."
        )
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise DataError(
            f"Cannot train on a {kind}: samples must be reachable by number, so that any worker can load any of them. "
            "Give an object with __getitem__(index), which returns (x, y), and __len__(); a tf.data.Dataset can be "
            "read into arrays first."
        )
    return dataset, True


def example_of(dataset: Any, collate: Callable[[list[Any]], Any]) -> Batch:
    """Return the first sample of a data set as a batch of one.

    Raises:
        DataError: the sample cannot be read, or is not a pair.
    """
    try:
        sample = dataset[0]
    except Exception as error:
        raise DataError(f"The first sample cannot be read: {type(error).__name__}: {error}") from error
    return check_pair(collate([sample]))


def collate(samples: list[Any]) -> Batch:
    """Make a batch of samples: arrays are stacked, also inside of dicts and tuples.

    Raises:
        DataError: a sample is not a pair.

    >>> inputs, targets = collate([({"a": 1.0}, 0), ({"a": 2.0}, 1)])
    >>> inputs["a"].tolist(), targets.tolist()
    ([1.0, 2.0], [0, 1])
    """
    pairs = [check_pair(sample) for sample in samples]
    return _stack([inputs for inputs, _ in pairs]), _stack([targets for _, targets in pairs])


def check_pair(item: Any) -> Batch:
    """Return a sample or batch as a pair (inputs, targets).

    Raises:
        DataError: it is not a pair.
    """
    if not isinstance(item, tuple | list) or len(item) != 2:
        found = f"{len(item)} parts" if isinstance(item, tuple | list) else f"a {type(item).__name__}"
        raise DataError(f"A sample must be a pair (x, y), but the data set or fn_batch_collate returned {found}.")
    return item[0], item[1]


def num_samples_of(part: Any) -> int:
    """Return the number of samples in the inputs or targets of a batch."""
    while isinstance(part, Mapping | list | tuple):
        part = next(iter(part.values())) if isinstance(part, Mapping) else part[0]
    return int(np.shape(part)[0])


def _stack(parts: Sequence[Any]) -> Any:
    first = parts[0]
    if isinstance(first, Mapping):
        return {name: _stack([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple | list):
        return tuple(_stack([part[place] for part in parts]) for place in range(len(first)))
    return np.stack([np.asarray(part) for part in parts])


def _map(function: Callable[[Any], Any], part: Any) -> Any:
    if isinstance(part, Mapping):
        return {name: _map(function, value) for name, value in part.items()}
    if isinstance(part, tuple | list):
        return tuple(_map(function, value) for value in part)
    return function(part)


def _is_batch_sequence(dataset: Any) -> bool:
    names = {
        kind.__name__ for kind in type(dataset).__mro__ if kind.__module__.partition(".")[0] in ("keras", "tf_keras")
    }
    return bool(names & {"PyDataset", "Sequence"})
