"""What both strategies for Lightning check: options, loaders, how the process was started; and how they read data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from legato.core.errors import DataError, UsageError
from legato.train.loop.elastic import Run
from legato.train.process import job

_OPTIONS: Final = (
    "reduction",
    "num_threads",
    "checkpoint_dir",
    "checkpoint_every",
    "keep",
    "resume",
    "stop_on_nan",
    "on_difference",
)


def choose_seed(seed: int | None) -> int:
    """Return the seed of the job, else the given one, else that of ``lightning.seed_everything``, else 0."""
    said = os.environ.get("PL_GLOBAL_SEED", "")
    return job.choose_seed(seed if seed is not None else int(said) if said.isdecimal() else 0)


def refuse_options(owner: str, options: Mapping[str, Any], *more: str) -> None:
    """Raise UsageError for an argument that is no option of `legato.elastic`.

    Args:
        owner: name of the strategy.
        options: given by the program.
        more: options that only this strategy knows.
    """
    known = (*_OPTIONS, *more)
    unknown = sorted(options.keys() - set(known))
    if unknown and unknown[0] in ("global_batch_size", "micro_batch_size"):
        raise UsageError(
            f"{owner} knows no argument {unknown[0]!r}: batch_size of the DataLoader is the size of a micro-batch, and "
            "accumulate_grad_batches of the Trainer is their number in a step."
        )
    if unknown:
        raise UsageError(f"{owner} knows no argument {unknown[0]!r}. It knows seed, {', '.join(known)}.")


def refuse_torchrun() -> None:
    """Raise UsageError if torchrun has started this process."""
    # On a CPU, Lightning does not see it.
    said = os.environ.get("WORLD_SIZE", "1") if "LEGATO_WORKER" not in os.environ else "1"
    if said.isdecimal() and int(said) > 1:
        raise UsageError(
            f"This process is one of {said} of torch.distributed. Start the program with `legato run` instead of "
            "torchrun."
        )


def refuse_loader(loader: Any) -> DataLoader[Any]:
    """Return the loader of the training data if Legato can load the same batches.

    Raises:
        DataError: it is of another kind, or has samplers or generators of its own.
    """
    if not isinstance(loader, DataLoader):
        raise DataError(
            f"Cannot train with train_dataloader of type {type(loader).__name__}: Legato divides one DataLoader among "
            "the workers. Join several data sets in one (torch.utils.data.ConcatDataset, StackDataset)."
        )
    dataset = loader.dataset
    if isinstance(dataset, torch.utils.data.IterableDataset) or not hasattr(dataset, "__len__"):
        raise DataError(
            f"Cannot train with a data set of type {type(dataset).__name__}: samples must be reachable by number, so "
            "that any worker can load any of them. Use a map-style data set (__getitem__ and __len__)."
        )
    for method in ("__iter__", "__len__"):
        if getattr(type(loader), method) is not getattr(DataLoader, method):
            raise DataError(
                f"Cannot train with a {type(loader).__name__}, whose own {method} Legato would not call: it reads the "
                "data set. Change batches in collate_fn of a DataLoader, or in on_after_batch_transfer."
            )
    sampler, own = loader.sampler, "Legato gives each micro-batch its samples by the seed. Leave it out"
    is_random = type(sampler) is RandomSampler and not sampler.replacement and sampler._num_samples is None
    refused = {
        "batch_size": (loader.batch_size is None, "Set a batch_size: it is the size of a micro-batch."),
        "batch_sampler": (
            loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler,
            f"{own}, and set batch_size and shuffle.",
        ),
        "sampler": (not is_random and type(sampler) is not SequentialSampler, f"{own}, and set shuffle."),
        "drop_last": (loader.drop_last, "Legato trains the last samples of an epoch in a smaller step. Leave it out."),
        "generator": (
            loader.generator is not None or getattr(sampler, "generator", None) is not None,
            f"{own}; the seed of the strategy sets the order.",
        ),
        "worker_init_fn": (
            loader.worker_init_fn is not None,
            "Legato seeds Python, NumPy and torch before each micro-batch. Leave it out.",
        ),
    }
    for name, (is_used, advice) in refused.items():
        if is_used:
            raise DataError(f"Cannot train elastically with {name} of the DataLoader. {advice}")
    return loader


def batches_of(run: Run, loader: DataLoader[Any]) -> Iterator[Any]:
    """Return this worker's micro-batches of one pass over the data of a loader that `refuse_loader` has accepted."""
    return run.batches(
        loader.dataset,
        shuffle=isinstance(loader.sampler, RandomSampler),
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        prefetch_factor=loader.prefetch_factor or 2,
        pin_memory=loader.pin_memory and run.device.type == "cuda",
    )
