"""Seeds the random generators for a job, a micro-batch and a sample. Never draws from a generator it did not seed.

Random numbers must not depend on which worker computes what. So Legato seeds the generators again at fixed places, each
time with a 64-bit number that is a pure function of the job's seed and of the place:

* once per process before the model is built (`seed_job`),
* before the forward pass of every micro-batch (`seed_micro_batch`),
* before the samples of a micro-batch are read from the data set (`seed_samples`).

All three set the global generators of Python (``random``), NumPy (legacy ``numpy.random``, with the low 32 bits of the
seed, because its wide seeding is five times slower; only if NumPy is loaded), torch on the CPU, and torch on all CUDA
devices that this process sees (only if CUDA is in use in it). Generator objects that the program makes itself are not
seeded.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from legato.train.data.hashing import JOB, MICRO_BATCH, SAMPLE, derive


def seed_job(seed: int) -> None:
    """Seed all generators for what happens before the first micro-batch, such as building the model."""
    number = derive(JOB, seed)
    _set_generators(number)
    # Also seeds a CUDA device that the program starts to use later.
    torch.manual_seed(number)


def seed_micro_batch(seed: int, step: int, index: int) -> None:
    """Seed all generators for the forward and backward pass of one micro-batch.

    Args:
        seed: of the job.
        step: number of the step in the whole job; in an evaluation, number of its round from 0.
        index: number of the micro-batch in its step.
    """
    _set_generators(derive(MICRO_BATCH, seed, step, index))


def seed_samples(seed: int, epoch: int, first: int) -> None:
    """Seed all generators for reading (and augmenting) the samples of a micro-batch, one after the other.

    Args:
        seed: of the job.
        epoch: from 0.
        first: number of the micro-batch's first sample in the data set.
    """
    _set_generators(derive(SAMPLE, seed, epoch, first))


def _set_generators(number: int) -> None:
    random.seed(number)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(number & 0xFFFF_FFFF)
    # torch.manual_seed does the same, but a hundred times slower: it goes through every possible back end.
    torch.default_generator.manual_seed(number)
    for cuda in _cuda_generators():
        cuda.manual_seed(number)


@contextmanager
def untouched() -> Iterator[None]:
    """Restore the state of the global generators at the end of the ``with`` block."""
    python = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state(legacy=False)
    cpu_state = torch.default_generator.get_state()
    cuda_states = [(cuda, cuda.get_state()) for cuda in _cuda_generators()]
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
        torch.default_generator.set_state(cpu_state)
        for cuda, state in cuda_states:
            cuda.set_state(state)


def _cuda_generators() -> Sequence[torch.Generator]:
    # None in a process that was forked from one that uses CUDA: such a process must not use CUDA. All, not only that of
    # the current device: a program that runs alone may use another one, and on a GPU backward passes have their own
    # thread, which has a current device of its own.
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return ()
    return torch.cuda.default_generators
