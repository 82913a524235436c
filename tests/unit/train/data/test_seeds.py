"""Seeds are well mixed, set every generator, and leave no trace where they promise not to."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from legato.train.data.hashing import JOB, MASK, MICRO_BATCH, SAMPLE, derive, mix64
from legato.train.data.seeds import seed_job, seed_micro_batch, seed_samples, untouched


def draw() -> tuple[float, float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(()).item(), torch.randn(()).item()


def test_every_generator_is_set() -> None:
    for seed in (lambda: seed_job(3), lambda: seed_micro_batch(3, 5, 1), lambda: seed_samples(3, 5, 1)):
        seed()
        first = draw()
        draw()
        seed()
        again = draw()
        assert first == again
        assert len(set(first)) == len(first)


def test_the_generators_of_all_gpus_are_set_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, backward passes have a thread of their own, with its own current device."""
    gpus = (torch.Generator(), torch.Generator())
    monkeypatch.setattr(torch.cuda, "default_generators", gpus)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    seed_micro_batch(3, 5, 1)
    first = [torch.rand((), generator=gpu).item() for gpu in gpus]
    assert first[0] == first[1]
    with untouched():
        seed_samples(3, 5, 1)
        assert gpus[1].initial_seed() != derive(MICRO_BATCH, 3, 5, 1)
    seed_micro_batch(3, 5, 1)
    assert [torch.rand((), generator=gpu).item() for gpu in gpus] == first


def test_neighbouring_places_have_nothing_in_common() -> None:
    drawn = set()
    for place in product(range(4), range(4), range(4)):
        for seed in (seed_micro_batch, seed_samples):
            seed(*place)
            drawn.update(draw()[:3])
    assert len(drawn) == 4**3 * 2 * 3


@given(st.integers(), st.integers(), st.integers(), st.integers())
def test_places_that_differ_in_one_number_never_meet(seed: int, one: int, other: int, rest: int) -> None:
    if one & MASK != other & MASK:
        assert derive(SAMPLE, seed, one, rest) != derive(SAMPLE, seed, other, rest)
        assert derive(SAMPLE, seed, rest, one) != derive(SAMPLE, seed, rest, other)
    assert len({derive(tag, seed, one, rest) for tag in (JOB, MICRO_BATCH, SAMPLE)}) == 3


def test_one_changed_bit_changes_half_of_all_bits() -> None:
    flips = [(derive(SAMPLE, 0, 0, 12) ^ derive(SAMPLE, 0, 0, 12 ^ (1 << bit))).bit_count() for bit in range(64)]
    assert 28 < sum(flips) / len(flips) < 36


def test_the_mix_is_splitmix64() -> None:
    # The first numbers of the reference implementation for seed 1234567.
    state, got = 1234567, []
    for _ in range(3):
        state = (state + 0x9E37_79B9_7F4A_7C15) & MASK
        got.append(mix64(state))
    assert got == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_untouched_gives_the_generators_back() -> None:
    seed_job(1)
    torch.randn(3)  # leaves half a pair of normal numbers in the generator
    want = None
    with untouched():
        want = draw()
    with untouched():
        seed_samples(9, 9, 9)
        draw()
    assert draw() == want
