"""Checks the arguments of ``train()`` and computes the size of a step. Pure."""

from __future__ import annotations

import operator
from typing import NamedTuple

from legato.core.errors import UsageError

FREQUENCY_OF_GENERATION_1 = 5


class TrainArguments(NamedTuple):
    """The checked arguments of ``train()``.

    Args:
        epoch_number: number of epochs.
        batch_size: number of samples in a micro-batch.
        engines_number: number of micro-batches in a full step.
        validation_freq: epochs between validations; 0: no validation.
        checkpoint_freq: epochs between saved models; 0: only the final one.
        num_dataloader_threads: maximum number of loader processes per worker.
    """

    epoch_number: int
    batch_size: int
    engines_number: int
    validation_freq: int
    checkpoint_freq: int
    num_dataloader_threads: int

    def validates_after(self, epoch: int) -> bool:
        """Return whether there is a validation after an epoch, numbered from 0."""
        return self.validation_freq > 0 and (epoch + 1) % self.validation_freq == 0

    def saves_after(self, epoch: int) -> bool:
        """Return whether the model is saved after an epoch, numbered from 0."""
        return self.checkpoint_freq > 0 and (epoch + 1) % self.checkpoint_freq == 0

    def num_loaders(self, num_cores: int, num_slots: int) -> int:
        """Return the number of loader processes of a worker: the requested ones, but at most one per spare core.

        Args:
            num_cores: of this machine.
            num_slots: number of workers that may share the machine. Each gets an equal part of the cores, and needs one
                of them itself.

        >>> plan = TrainArguments(1, 1, 1, 1, 1, num_dataloader_threads=4)
        >>> plan.num_loaders(32, 4), plan.num_loaders(12, 4), plan.num_loaders(2, 4)
        (4, 2, 0)
        """
        return max(min(self.num_dataloader_threads, num_cores // max(num_slots, 1) - 1), 0)


def read_arguments(
    epoch_number: object,
    batch_size: object,
    engines_number: object,
    num_dataloader_threads: object,
    validation_freq: object,
    checkpoint_freq: object,
    effective_batch_size: object,
    *,
    generation: int,
    max_workers: int,
) -> TrainArguments:
    """Check the arguments of ``train()``.

    Args:
        epoch_number: this and the arguments up to ``effective_batch_size``: as `FabricModel.train` has them.
        batch_size: as above.
        engines_number: as above.
        num_dataloader_threads: as above.
        validation_freq: as above.
        checkpoint_freq: None: 5 in generation 1, else 1.
        effective_batch_size: as above.
        generation: of the program, 1 or 2.
        max_workers: maximum number of workers that the submission asked for.

    Raises:
        UsageError: an argument is not a whole number, is too small, or does not fit the others.
    """
    batch = _read("batch_size", batch_size, 1)
    if checkpoint_freq is None:
        checkpoint_freq = FREQUENCY_OF_GENERATION_1 if generation == 1 else 1
    return TrainArguments(
        epoch_number=_read("epoch_number", epoch_number, 1),
        batch_size=batch,
        engines_number=choose_engines(engines_number, effective_batch_size, batch, max_workers),
        validation_freq=_read("validation_freq", validation_freq, 0),
        checkpoint_freq=_read("checkpoint_freq", checkpoint_freq, 0),
        num_dataloader_threads=_read("num_dataloader_threads", num_dataloader_threads, 0),
    )


def choose_engines(engines_number: object, effective_batch_size: object, batch_size: int, max_workers: int) -> int:
    """Return the number of micro-batches in a full step.

    It is the larger one of ``engines_number`` and ``effective_batch_size / batch_size``, as far as they are given. If
    neither is given, it is the maximum number of workers that the submission asked for.

    >>> choose_engines(16, None, 64, 1), choose_engines(None, 256, 64, 1), choose_engines(2, 256, 64, 1)
    (16, 4, 4)
    >>> choose_engines(None, None, 64, 8)
    8
    """
    read = None if engines_number is None else _read("engines_number", engines_number, 1)
    if effective_batch_size is None:
        return max_workers if read is None else read
    effective = _read("effective_batch_size", effective_batch_size, 1)
    if effective % batch_size:
        below = effective // batch_size * batch_size
        advice = f"{below} or {below + batch_size}" if below else f"{batch_size}"
        raise UsageError(
            f"Cannot train with effective_batch_size={effective} and batch_size={batch_size}: effective_batch_size is "
            f"not a multiple of batch_size. Use effective_batch_size={advice}, or another batch_size."
        )
    return max(read or 1, effective // batch_size)


def fit_engines(engines_number: int, batch_size: int, num_samples: int) -> int:
    """Return the maximum number of micro-batches in a step; an epoch with fewer micro-batches is one smaller step.

    >>> fit_engines(16, 64, 244), fit_engines(16, 64, 50000), fit_engines(2, 64, 10)
    (4, 16, 1)
    """
    return min(engines_number, -(-num_samples // batch_size))


def warn_of_step_size(num_engines: int, batch_size: int, num_workers: int) -> str:
    """Return a warning if a step has more micro-batches than the job has workers, else "".

    Args:
        num_engines: number of micro-batches in a step.
        batch_size: number of samples in a micro-batch.
        num_workers: number of workers that the submission asked for.

    >>> warn_of_step_size(2, 8, 2)
    ''
    >>> warn_of_step_size(100, 8, 2).partition(":")[0]
    'Each step trains 800 samples (engines_number=100 times batch_size=8), not 16'
    """
    if num_engines <= num_workers:
        return ""
    workers = "1 worker" if num_workers == 1 else f"{num_workers} workers"
    return (
        f"Each step trains {num_engines * batch_size} samples (engines_number={num_engines} times "
        f"batch_size={batch_size}), not {num_workers * batch_size}: the submission asks for {workers}. The number of "
        f"steps, and so the result, depends on it. Give train() engines_number={num_workers}, or submit with "
        f"--numWorker {num_engines} (in the console: Maximum nodes {num_engines})."
    )


def _read(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # raises TypeError unless it is an integer
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise UsageError(f"Cannot train with {name}={value!r}. Give a whole number of at least {least}.")
    return number
