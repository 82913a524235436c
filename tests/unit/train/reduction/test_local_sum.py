"""The sums of one rank's micro-batches in a bucket: gradients can be added one by one, in any order."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from legato.core.span import num_merges
from legato.train.reduction import buckets
from legato.train.reduction.buckets import Bucket, LocalSum
from legato.train.reduction.vectors import VectorSum

SIZES = (3, 1, 4, 2)


def make_sum(sizes: Sequence[int] = SIZES) -> LocalSum:
    bucket = Bucket(0, [nn.Parameter(torch.zeros(size)) for size in sizes], range(len(sizes)))
    return LocalSum(bucket, [torch.full((sum(sizes),), torch.nan) for _ in range(4)])


def gradients_of(micro_batch: int, absent: set[int]) -> list[torch.Tensor | None]:
    generator = torch.Generator().manual_seed(micro_batch)
    made = [torch.randn(size, generator=generator) * 10.0**micro_batch for size in SIZES]
    return [None if place in absent else gradient for place, gradient in enumerate(made)]


@given(st.data())
def test_gradients_that_come_one_by_one_make_the_bits_of_plain_sums(data: st.DataObject) -> None:
    places = st.sets(st.sampled_from(range(len(SIZES))))
    local, plain = make_sum(), VectorSum()
    start = data.draw(st.integers(0, 3))
    for micro_batch in range(start, start + data.draw(st.integers(1, 6))):
        merges, weight = num_merges(start, micro_batch), data.draw(st.sampled_from([1.0, 0.75]))
        gradients = gradients_of(micro_batch, data.draw(places))
        flat = [
            torch.zeros(size) if gradient is None else gradient * weight
            for size, gradient in zip(SIZES, gradients, strict=True)
        ]
        plain.add(start, micro_batch, torch.cat(flat))
        rest: list[torch.Tensor | None] = list(gradients)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "_gathered_bytes", data.draw(st.integers(0, 20)))
            for place in data.draw(st.permutations(sorted(data.draw(places)))):
                if (gradient := gradients[place]) is not None:
                    local.add_one(place, merges, gradient.clone(), weight)
                    rest[place] = None
            local.add(merges, rest, weight)
        pairs = zip(local.blocks, plain.blocks, strict=True)
        assert all(torch.equal(found.view(torch.int32), wanted.view(torch.int32)) for found, wanted in pairs)


def test_a_large_gradient_is_freed_at_once_and_small_ones_together() -> None:
    large, small = buckets._CACHED_BYTES // 4, buckets._CACHED_BYTES // 8
    local, freed = make_sum((large, small, small)), []
    for place, (size, expected) in enumerate([(large, [True]), (small, [True, False]), (small, [True] * 3)]):
        gradient = torch.ones(size)
        freed.append(weakref.ref(gradient))
        local.add_one(place, 0, gradient, 1.0)
        del gradient
        assert [seen() is None for seen in freed] == expected


def test_a_step_that_begins_again_has_nothing_of_the_broken_one() -> None:
    local = make_sum()
    local.add_one(0, 0, torch.ones(3), 1.0)
    local.clear()
    local.add(0, [None] * len(SIZES), 1.0)
    assert local.blocks[0].tolist() == [0.0] * sum(SIZES)
