"""Short digests by which workers check that they train the same thing. Pure, except for reading one sample."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from legato.core.errors import DataError
from legato.train.data.order import Layout
from legato.train.data.seeds import seed_samples, untouched


def identity_of(model: str, layout: Layout, seed: int, *, exact: bool) -> dict[str, str]:
    """Return what must be equal in all workers of a job, and in a checkpoint that it continues from."""
    return {
        "model": model,
        "layout": f"{layout.global_batch_size}/{layout.micro_batch_size}",
        "seed": str(seed),
        "threads": str(torch.get_num_threads()),
        "reduction": "exact" if exact else "fast",
    }


def hashing() -> dict[str, str]:
    """Return what must be equal in all workers that train at the same time, but may differ in the next run.

    The order of a set depends on the hashes of texts, and a program may depend on that order. Workers of an earlier
    release seed the generators for each sample, compare other checksums of their states, or exchange other control
    words and buckets in a step.
    """
    return {
        "hash of texts (PYTHONHASHSEED)": hashlib.sha256(str(hash("legato")).encode()).hexdigest()[:16],
        "seeding of samples": "per micro-batch",
        "checksums of states": "XXH3 on CPUs",
        "exchange of a step": "with changed buffers, and a small first bucket between nodes",
    }


def num_samples_of(dataset: Dataset[Any]) -> int:
    """Return the length of a data set.

    Raises:
        DataError: the data set has no length, or consists of several data sets.
    """
    _refuse_of_hugging_face(dataset)
    if isinstance(dataset, DataLoader):
        raise DataError(
            "Cannot cut a DataLoader into batches: it has already cut them. Pass the data set itself (loader.dataset); "
            "its collate_fn and num_workers are arguments of run.batches and run.evaluate." + _about_order(dataset)
        )
    if isinstance(dataset, IterableDataset):
        raise DataError(
            f"Cannot cut a {type(dataset).__name__} into batches: it is an IterableDataset, whose samples cannot be "
            "reached by number, so no other worker could continue where one has ended. Use a map-style data set "
            "(__getitem__ and __len__). If its samples fit into memory, list(dataset) is one."
        )
    try:
        return len(dataset)  # type: ignore[arg-type]
    except TypeError as error:
        raise DataError(
            f"Cannot cut a {type(dataset).__name__} into batches: it has no length. Use a map-style data set "
            "(__getitem__ and __len__)."
        ) from error


def _about_order(loader: DataLoader[Any]) -> str:
    """Return what to do if a loader has an order of its own: a sentence that begins with a space, or an empty text."""
    known = (SequentialSampler, RandomSampler)
    if type(loader.batch_sampler) not in (BatchSampler, type(None)):
        what, read = loader.batch_sampler, "[number for batch in batch_sampler for number in batch]"
    elif type(loader.sampler) not in known or getattr(loader.sampler, "replacement", False):
        what, read = loader.sampler, "list(sampler)"
    else:
        return ""
    return (
        f" For the order of its {type(what).__name__}, pass torch.utils.data.Subset(dataset, {read}) with "
        "shuffle=False, a new one in each epoch. Let the sampler draw from torch's global generator, which Legato "
        "seeds for each epoch."
    )


def _refuse_of_hugging_face(dataset: object) -> None:
    """Raise DataError for what Hugging Face's `datasets` has besides data sets of the map style."""
    kinds = {f"{each.__module__}.{each.__qualname__}" for each in type(dataset).__mro__}
    if kinds & {"datasets.dataset_dict.DatasetDict", "datasets.dataset_dict.IterableDatasetDict"}:
        parts = ", ".join(map(repr, dataset))  # type: ignore[call-overload]
        raise DataError(
            f"Cannot cut a {type(dataset).__name__} into batches: it contains the data sets {parts or 'of no name'}. "
            "Pass one of them, such as dataset['train']."
        )
    if "datasets.iterable_dataset.IterableDataset" in kinds:
        raise DataError(
            "Cannot cut an IterableDataset of Hugging Face datasets into batches: its samples cannot be reached by "
            "number, so no other worker could continue where one has ended. Load it without streaming=True, or make "
            "it one with numbers: datasets.Dataset.from_generator(lambda: iter(dataset), features=dataset.features)."
        )


def describe_dataset(dataset: Dataset[Any], seed: int, *, exact: bool) -> str:
    """Return what distinguishes a data set from others: its type, its length and a digest of its first sample.

    Args:
        dataset: with ``exact``, its first sample is read twice.
        seed: of the job.
        exact: the result must not depend on which worker reads a sample. Without it, the digest is left out: a sample
            may differ whenever it is read.

    Raises:
        DataError: with ``exact``, the first sample is different when it is read again.
    """
    kind = f"{type(dataset).__name__} of {num_samples_of(dataset)} samples"
    if not exact:
        return kind
    first, again = (_first_sample(dataset, seed) for _ in range(2))
    if first != again:
        raise DataError(
            f"The data set ({kind}) gives another sample 0 when it is read again with the same random seeds: it draws "
            "from a generator of its own, counts its calls or reads a clock. So what is trained would depend on which "
            "worker reads which sample. Draw from the global generators of torch, NumPy or Python, which Legato seeds "
            "for each micro-batch, or from a generator made of the sample's index; or give up equal results with "
            'legato.elastic(reduction="fast").'
        )
    return f"{kind}, first {first}"


def _first_sample(dataset: Dataset[Any], seed: int) -> str:
    with untouched():
        seed_samples(seed, 0, 0)
        try:
            return _digest(dataset[0])
        except Exception:  # noqa: BLE001 - it is reported, with its sample, when the sample is trained
            return "unreadable"


def _digest(sample: Any) -> str:
    digest = hashlib.sha256()

    def walk(node: Any) -> None:
        if isinstance(node, torch.Tensor):
            digest.update(f"{tuple(node.shape)}{node.dtype}".encode())
            digest.update(node.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        elif hasattr(node, "__array__"):
            array = np.ascontiguousarray(node)
            if array.dtype.hasobject:
                # The memory of such an array holds addresses.
                walk(array.tolist())
                return
            digest.update(f"{array.shape}{array.dtype}".encode())
            digest.update(array.tobytes())
        elif isinstance(node, list | tuple):
            for value in node:
                walk(value)
        elif isinstance(node, dict):
            for key, value in node.items():
                digest.update(str(key).encode())
                walk(value)
        elif isinstance(node, int | float | str | bytes):
            digest.update(repr(node).encode())
        else:
            digest.update(type(node).__qualname__.encode())

    walk(sample)
    return digest.hexdigest()[:16]
