"""The canonical tree: whichever worker computes which leaves, the sum has the same bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from legato.core.span import Block, Span, blocks, fold_plan, most_blocks, num_blocks, num_merges, split

Terms = NDArray[np.float32]


def local_fold(leaves: Terms, span: Span) -> list[Terms]:
    """What a rank does: a stack of pending blocks, folded as leaves arrive."""
    pending: list[Terms] = []
    for leaf in range(span.start, span.stop):
        term = leaves[leaf]
        # The newest pending block is the nearest one to the left; sums are always left + right.
        for _ in range(num_merges(span.start, leaf)):
            term = pending.pop() + term
        pending.append(term)
    return pending


def fold(leaves: Terms, spans: list[Span]) -> Terms:
    """What all ranks together do."""
    terms: list[Terms] = []
    layout: list[Block] = []
    for span in spans:
        pending = local_fold(leaves, span)
        assert len(pending) == len(blocks(span))
        terms += [term.copy() for term in pending]
        layout += blocks(span)
    for addition in fold_plan(tuple(layout)):
        terms[addition.target] += terms[addition.source]
    return terms[0]


def tree_sum(leaves: Terms) -> Terms:
    """The tree as it is defined: level by level, an odd one out moves up unchanged."""
    level = [leaf.copy() for leaf in leaves]
    while len(level) > 1:
        level = [level[at] + level[at + 1] if at + 1 < len(level) else level[at] for at in range(0, len(level), 2)]
    return level[0]


def cancelling(num_leaves: int, seed: int) -> Terms:
    """Terms of both signs over many magnitudes, so that any other order of additions shows."""
    source = np.random.Generator(np.random.PCG64(seed))
    scales = np.float32(10.0) ** source.integers(-6, 7, size=(num_leaves, 16)).astype(np.float32)
    return (source.standard_normal((num_leaves, 16)).astype(np.float32) * scales).astype(np.float32)


@st.composite
def cuts(draw: st.DrawFn) -> tuple[int, list[Span]]:
    num_leaves = draw(st.integers(1, 200))
    bounds = sorted(draw(st.lists(st.integers(0, num_leaves), max_size=12)))
    edges = [0, *bounds, num_leaves]
    return num_leaves, [Span(lo, hi) for lo, hi in zip(edges, edges[1:], strict=False)]


@given(cuts(), st.integers(0, 2**32))
def test_any_cut_into_spans_gives_the_same_bits_as_one_rank(cut: tuple[int, list[Span]], seed: int) -> None:
    num_leaves, spans = cut
    leaves = cancelling(num_leaves, seed)
    want = tree_sum(leaves)
    assert fold(leaves, [Span(0, num_leaves)]).tobytes() == want.tobytes()
    assert fold(leaves, spans).tobytes() == want.tobytes()


@given(st.integers(1, 200), st.integers(1, 40), st.integers(0, 2**32))
def test_the_split_of_a_view_gives_the_same_bits_as_one_rank(num_leaves: int, num_ranks: int, seed: int) -> None:
    leaves = cancelling(num_leaves, seed)
    assert fold(leaves, list(split(num_leaves, num_ranks))).tobytes() == tree_sum(leaves).tobytes()


def test_another_order_of_additions_does_show() -> None:
    leaves = cancelling(64, seed=1)
    assert np.add.reduce(leaves[::-1], axis=0).tobytes() != tree_sum(leaves).tobytes()


@given(st.integers(0, 300), st.integers(1, 300))
def test_split_covers_all_once_and_evenly(num_items: int, num_ranks: int) -> None:
    spans = split(num_items, num_ranks)
    assert len(spans) == num_ranks
    assert [item for span in spans for item in range(span.start, span.stop)] == list(range(num_items))
    sizes = [span.num_items for span in spans]
    assert max(sizes) - min(sizes) <= 1


@given(cuts())
def test_blocks_are_nodes_of_the_tree_and_cover_their_span(cut: tuple[int, list[Span]]) -> None:
    _, spans = cut
    for span in spans:
        covering = blocks(span)
        assert all(block.start % (1 << block.level) == 0 for block in covering)
        assert [leaf for start, level in covering for leaf in range(start, start + (1 << level))] == list(
            range(span.start, span.stop)
        )


@given(cuts())
def test_every_term_but_the_first_is_added_exactly_once(cut: tuple[int, list[Span]]) -> None:
    _, spans = cut
    layout = tuple(block for span in spans for block in blocks(span))
    plan = fold_plan(layout)
    assert sorted(addition.source for addition in plan) == list(range(1, len(layout)))
    assert all(addition.target < addition.source for addition in plan)


@given(st.integers(0, 2000), st.integers(0, 2000))
def test_blocks_are_counted_without_being_listed(start: int, num_items: int) -> None:
    stop = start + num_items
    counts = [len(blocks(Span(start, place))) for place in range(start, stop + 1)]
    assert num_blocks(start, stop) == counts[-1]
    assert most_blocks(Span(start, stop)) == max(counts)
