"""What the arguments of ``train()`` mean. Pure: numbers in, numbers or a clear error out."""

from __future__ import annotations

import operator
from typing import NamedTuple

from legato.core.errors import UsageError

FREQUENCY_OF_GENERATION_1 = 5


class TrainArguments(NamedTuple):
    """What ``train()`` was asked for.

    Args:
        epoch_number: epochs.
        batch_size: samples of a micro-batch.
        engines_number: micro-batches of a full step.
        validation_freq: epochs between validations; 0: none.
        checkpoint_freq: epochs between saved models; 0: only the last one.
        num_dataloader_threads: loader processes asked for.
    """

    epoch_number: int
    batch_size: int
    engines_number: int
    validation_freq: int
    checkpoint_freq: int
    num_dataloader_threads: int

    def validates_after(self, epoch: int) -> bool:
        """Tell whether there is a validation after an epoch, numbered from 0."""
        return self.validation_freq > 0 and (epoch + 1) % self.validation_freq == 0

    def saves_after(self, epoch: int) -> bool:
        """Tell whether the model is saved after an epoch, numbered from 0, under that epoch's number."""
        return self.checkpoint_freq > 0 and (epoch + 1) % self.checkpoint_freq == 0

    def num_loaders(self, num_cores: int, num_slots: int) -> int:
        """Return how many loader processes a worker starts: as many as asked for, as far as it has cores for them.

        Args:
            num_cores: of this machine.
            num_slots: workers that may share it.

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
        epoch_number: and the others up to ``effective_batch_size``: as given.
        batch_size: as above.
        engines_number: as above.
        num_dataloader_threads: as above.
        validation_freq: as above.
        checkpoint_freq: None: 5 in generation 1, else 1.
        effective_batch_size: as above.
        generation: of the program, 1 or 2.
        max_workers: that the submission asked for.

    Raises:
        UsageError: an argument is no whole number, too small, or does not fit the others.
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
    """Return how many micro-batches make a full step.

    The larger one of ``engines_number`` and ``effective_batch_size / batch_size`` if both are given; the workers that
    the submission asked for at most if none is.

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
            f"Cannot train with effective_batch_size={effective} and batch_size={batch_size}: the one is no multiple "
            f"of the other. Take effective_batch_size={advice}, or another batch_size."
        )
    return max(read or 1, effective // batch_size)


def fit_engines(engines_number: int, batch_size: int, num_samples: int) -> int:
    """Return how many micro-batches a full step has at most: an epoch of fewer is one smaller step.

    >>> fit_engines(16, 64, 244), fit_engines(16, 64, 50000), fit_engines(2, 64, 10)
    (4, 16, 1)
    """
    return min(engines_number, -(-num_samples // batch_size))


def tell_step(num_engines: int, batch_size: int, num_workers: int) -> str:
    """Say that a step is larger than the workers that were asked for make it; "" if it is not.

    Args:
        num_engines: micro-batches of a step.
        batch_size: samples of a micro-batch.
        num_workers: that the submission asked for.

    >>> tell_step(2, 8, 2)
    ''
    >>> tell_step(100, 8, 2).partition(":")[0]
    'Each step trains 800 samples (engines_number=100 times batch_size=8), not 16'
    """
    if num_engines <= num_workers:
        return ""
    workers = "1 worker" if num_workers == 1 else f"{num_workers} workers"
    return (
        f"Each step trains {num_engines * batch_size} samples (engines_number={num_engines} times "
        f"batch_size={batch_size}), not {num_workers * batch_size}: the submission asks for {workers}. The number of "
        f"steps, and so the result, depends on it. Give train() engines_number={num_workers}, or submit with "
        f"--numWorker {num_engines}."
    )


def _read(name: str, value: object, least: int) -> int:
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # whatever it is, it is found out here
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise UsageError(f"Cannot train with {name}={value!r}. Give a whole number of at least {least}.")
    return number
