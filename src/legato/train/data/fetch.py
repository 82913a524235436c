"""Reads the samples of one micro-batch and collates them. Never decides which micro-batch, when or in which process.

The batch is a function of (data set, seed, key) alone, even if the data set draws random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, default_collate

from legato.core.errors import DataError
from legato.train.data.order import Indices, Key, Order
from legato.train.data.seeds import seed_samples

Collate: TypeAlias = Callable[[list[Any]], Any]

MAX_SHOWN = 8
_ABOUT_COLLATION: Final = (
    "torch's default_collate cannot make a batch of these samples. Give run.batches, and run.evaluate, a collate_fn: a "
    "function that gets a list of samples and returns a batch, such as one that pads them to one length."
)


class Whole(NamedTuple):
    """The tensors of a data set that can be indexed as a whole, and the subsets of them that it is, the last first."""

    tensors: tuple[torch.Tensor, ...]
    subsets: tuple[Subset[Any], ...] = ()


class FetchError(Exception):
    """A sample or the collation failed; ``__cause__`` is the error. The loader turns it into a DataError.

    Args:
        what: failed.
        advice: what to do, a sentence. "": the data set or its samples are to blame.
    """

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(what)
        self.advice = advice


class Fetcher:
    """Makes the batch of a key.

    * The generators are seeded once, by (seed, epoch, number of the first sample). The samples draw one by one;
      ``collate_fn`` continues with the state that the last sample left. Seeding for every sample would cost several
      times as much as loading a small one.
    * A data set with ``__getitems__`` gets the whole micro-batch.
    * A `TensorDataset`, or a `Subset` of one, with the default collation is indexed as a whole: the same bytes and the
      same layout in memory as sample by sample, many times faster.

    Args:
        dataset: has ``__getitem__``; must give the same sample for the same number everywhere.
        order: which samples a key means.
        seed: of the job.
        collate_fn: makes a batch from a list of samples; None for torch's default.
    """

    def __init__(self, dataset: Dataset[Any], order: Order, seed: int, collate_fn: Collate | None) -> None:
        if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__getitem__"):
            raise DataError(
                f"Cannot train on a {type(dataset).__name__}: samples must be reachable by number, so that any "
                "worker can load any of them. Use a map-style data set (__getitem__ and __len__)."
            )
        self.dataset = dataset
        self.order = order
        self.seed = seed
        self.collate_fn = collate_fn
        self._advice = "" if collate_fn is not None else _ABOUT_COLLATION
        self.look_again()

    def look_again(self) -> None:
        """Find out again which tensors the data set has: the program may have changed it."""
        self._whole = _whole(self.dataset) if self.collate_fn is None else None
        self._takes_many = _takes_many(self.dataset)

    def __call__(self, key: Key) -> Any:
        """Return the batch of a key. Raises FetchError from the error of the data set or the collation."""
        index = self.order.index(key)
        if self._whole is not None:
            batch = _fetch_whole(self._whole, index)
            if batch is not None:
                return batch
        numbers = index.tolist()
        items = self._fetch_many(key, numbers) if self._takes_many else self._fetch_each(key, numbers)
        try:
            return (self.collate_fn or default_collate)(items)
        except Exception as error:
            raise FetchError(f"collating them raised {told(error)}", self._advice) from error

    def _fetch_many(self, key: Key, numbers: list[int]) -> list[Any]:
        seed_samples(self.seed, key.epoch, numbers[0])
        try:
            items: list[Any] = self.dataset.__getitems__(numbers)  # type: ignore[attr-defined]
        except Exception as error:
            raise FetchError(f"reading them raised {told(error)}") from error
        if len(items) != len(numbers):
            raise FetchError(f"__getitems__ gave {len(items)} samples for {len(numbers)} numbers")
        return items

    def _fetch_each(self, key: Key, numbers: list[int]) -> list[Any]:
        dataset = self.dataset
        items: list[Any] = []
        seed_samples(self.seed, key.epoch, numbers[0])
        try:
            for number in numbers:
                items.append(dataset[number])  # noqa: PERF401 - the number of items names the sample that failed
        except Exception as error:
            raise FetchError(f"sample {numbers[len(items)]} raised {told(error)}") from error
        return items


def told(error: BaseException) -> str:
    """Render an error as the last line of its traceback."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def render_failure(key: Key, samples: Indices, what: str, advice: str = "") -> str:
    """Render the message of the DataError for a key whose batch cannot be made; ``advice`` is a sentence."""
    shown = ", ".join(str(number) for number in samples[:MAX_SHOWN].tolist())
    if len(samples) > MAX_SHOWN:
        shown += f", … {len(samples)} in all"
    return (
        f"Cannot load micro-batch {key.index} of step {key.step} in epoch {key.epoch} (samples {shown}): {what}. "
        f"{advice or 'Fix the data set, or remove these samples from it.'}"
    )


def _takes_many(dataset: object) -> bool:
    # Subset always has __getitems__ and falls back to single samples itself, but then unseeded.
    if type(dataset) is Subset:
        return _takes_many(dataset.dataset)
    return callable(getattr(dataset, "__getitems__", None))


def _fetch_whole(whole: Whole, index: torch.Tensor) -> list[torch.Tensor] | None:
    """Return the batch of some samples; None if only reading sample by sample can tell what it is."""
    try:
        rows = _rows(whole, index) if whole.subsets else index
        if rows is None:
            return None
        # Negative numbers count from the end in a single sample; here, they and wrong numbers are errors. A GPU would
        # end the process at such an error.
        if whole.subsets and not all(tensor.is_cpu for tensor in whole.tensors):
            rows.new_empty(len(whole.tensors[0]), dtype=torch.bool).index_select(0, rows)
        return [tensor.index_select(0, rows if tensor.is_cpu else rows.to(tensor.device)) for tensor in whole.tensors]
    except Exception as error:
        if whole.subsets:
            return None
        raise FetchError(f"reading them raised {told(error)}") from error


def _whole(dataset: object) -> Whole | None:
    if type(dataset) is TensorDataset:
        return Whole(dataset.tensors) if all(map(_plain, dataset.tensors)) else None
    if type(dataset) is Subset:
        inner = _whole(dataset.dataset)
        return None if inner is None else Whole(inner.tensors, (dataset, *inner.subsets))
    return None


def _rows(whole: Whole, index: torch.Tensor) -> torch.Tensor | None:
    """Return the rows of the tensors that some samples are, or None.

    The indices of a subset are read for each batch, because the program may change them within a pass.
    """
    rows = index.numpy()
    for subset in whole.subsets:
        given: Any = subset.indices
        rows = given[rows] if type(given) is np.ndarray else np.array(list(map(given.__getitem__, rows.tolist())))
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            return None
    return torch.from_numpy(rows.astype(np.int64, copy=False))


def _plain(tensor: torch.Tensor) -> bool:
    # With any other layout of the rows, the version of torch decides how single rows are stacked in memory.
    return (
        type(tensor) is torch.Tensor
        and tensor.layout == torch.strided
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_quantized
        and tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
    )
