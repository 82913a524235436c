"""Local sums: gradients that are kept instead of copied give the same bits."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from legato.core.span import num_merges, split
from legato.train.reduction import buckets
from legato.train.reduction.buckets import Bucket, LocalSum, make_buckets

NUM_MICRO_BATCHES = 8
MAX_PENDING = 4
SHAPES = ((3, 5), (7,), ())

Gradients = list[torch.Tensor | None]


def make_bucket() -> Bucket:
    (bucket,) = make_buckets([nn.Parameter(torch.zeros(shape)) for shape in SHAPES])
    return bucket


def make_sum(kept_bytes: int) -> LocalSum:
    """Return an empty sum that keeps gradients from a size on; its memory has the results of an earlier step."""
    bucket = make_bucket()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buckets, "_KEPT_BYTES", kept_bytes)
        return LocalSum(bucket, [torch.full((bucket.numel,), 9.0) for _ in range(MAX_PENDING)])


def make_gradients(seed: int, present: tuple[bool, ...]) -> Gradients:
    generator = torch.Generator().manual_seed(seed)
    bucket = make_bucket()
    made: Gradients = []
    for parameter, is_there in zip(bucket.parameters, present, strict=True):
        gradient = torch.randn(parameter.shape, generator=generator)
        made.append(torch.where(gradient.abs() < 0.3, -0.0, gradient) if is_there else None)
    return made


@given(
    st.sampled_from([(size, rank) for size in (1, 2, 3, 5) for rank in range(size)]),
    st.lists(
        st.sampled_from([(True, True, True), (True, False, True)]),
        min_size=NUM_MICRO_BATCHES,
        max_size=NUM_MICRO_BATCHES,
    ),
    st.sampled_from([1.0, 0.5]),
)
def test_kept_gradients_give_the_bits_of_copied_ones(
    place: tuple[int, int], present: list[tuple[bool, ...]], last_weight: float
) -> None:
    size, rank = place
    span = split(NUM_MICRO_BATCHES, size)[rank]
    kept, copied = make_sum(0), make_sum(2**60)
    for _step in range(2):
        for each in (kept, copied):
            each.clear()
            for micro_batch in range(span.start, span.stop):
                weight = last_weight if micro_batch == NUM_MICRO_BATCHES - 1 else 1.0
                gradients = make_gradients(micro_batch, present[micro_batch])
                each.add(num_merges(span.start, micro_batch), gradients, weight)
        assert len(kept.blocks) == len(copied.blocks)
        for mine, its in zip(kept.blocks, copied.blocks, strict=True):
            assert mine.numpy().tobytes() == its.numpy().tobytes()


def test_the_first_gradients_of_a_large_block_are_not_copied() -> None:
    local = make_sum(0)
    local.add(0, make_gradients(1, (True, True, True)), 1.0)
    assert local._flats[0].eq(9.0).all()
    local.add(1, make_gradients(2, (True, True, True)), 1.0)
    assert not local._flats[0].eq(9.0).any()


def test_gradients_that_share_their_memory_are_copied() -> None:
    """Such as the parts of one buffer that an autograd function writes again in its next backward pass."""
    local = make_sum(0)
    buffer = torch.ones(100)
    parts = torch.split(buffer[: sum(torch.Size(shape).numel() for shape in reversed(SHAPES))], [1, 7, 15])
    shapes = [parameter.shape for parameter in make_bucket().parameters]
    local.add(0, [part.view(shape) for part, shape in zip(parts, shapes, strict=True)], 1.0)
    buffer.zero_()
    (block,) = local.blocks
    assert block.eq(1.0).all()
