"""How the micro-batches of a step are divided among ranks of several nodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.test_span import cancelling, local_fold, tree_sum

from legato.core.balance import (
    Costs,
    decide_spans,
    divisions,
    ease_in,
    estimate_s,
    even_spans,
    late_volume,
    most_even_spans,
    ranks_of,
    transfer_s,
    volume,
)
from legato.core.span import Span, blocks, fold_plan, most_blocks, split

costs = st.builds(Costs, st.sampled_from([0.0, 1e-3, 1.0]), st.floats(0, 100), st.floats(0, 1))
nodes = st.lists(st.integers(0, 4), min_size=1, max_size=12).map(tuple)
SLOW_LINK, FAST_LINK = Costs(1e-6, 1.0), Costs(1.0, 1e-6)


@given(st.integers(1, 100), nodes, costs, st.integers(0, 2**32))
def test_every_leaf_goes_to_one_rank_and_the_sum_has_the_bits_of_one_rank(
    num_leaves: int, nodes: tuple[int, ...], costs: Costs, seed: int
) -> None:
    spans = decide_spans(num_leaves, nodes, costs)
    in_order = [spans[rank] for ranks in ranks_of(nodes) for rank in ranks]
    assert [leaf for span in in_order for leaf in range(span.start, span.stop)] == list(range(num_leaves))
    leaves = cancelling(num_leaves, seed)
    terms = [term.copy() for span in in_order for term in local_fold(leaves, span)]
    for addition in fold_plan(tuple(block for span in in_order for block in blocks(span))):
        terms[addition.target] += terms[addition.source]
    assert np.array_equal(terms[0], tree_sum(leaves))


@given(st.integers(1, 200), nodes, costs)
def test_no_other_division_is_estimated_to_be_faster(num_leaves: int, nodes: tuple[int, ...], costs: Costs) -> None:
    if not costs.micro_batch_s:
        return
    least = min(estimate_s(spans, nodes, costs) for spans in divisions(num_leaves, nodes))
    assert estimate_s(decide_spans(num_leaves, nodes, costs), nodes, costs) == least


@given(st.integers(1, 200), nodes)
def test_without_costs_the_longest_span_is_as_short_as_possible(num_leaves: int, nodes: tuple[int, ...]) -> None:
    spans = decide_spans(num_leaves, nodes)
    assert max(span.num_items for span in spans) == -(-num_leaves // len(nodes))


@given(st.integers(1, 200), st.integers(1, 12))
def test_on_one_node_and_without_costs_all_ranks_have_equally_much(num_leaves: int, num_ranks: int) -> None:
    assert decide_spans(num_leaves, (0,) * num_ranks, SLOW_LINK) == split(num_leaves, num_ranks)
    assert decide_spans(num_leaves, tuple(range(num_ranks))) == split(num_leaves, num_ranks)


@pytest.mark.parametrize("num_leaves", [8, 32, 64])
@pytest.mark.parametrize("num_workers", [1, 2, 3, 4])
@pytest.mark.parametrize("num_nodes", [2, 4])
def test_equal_nodes_send_as_much_as_in_a_ring(num_leaves: int, num_workers: int, num_nodes: int) -> None:
    nodes = tuple(rank // num_workers for rank in range(num_nodes * num_workers))
    for costs in (SLOW_LINK, FAST_LINK):
        assert volume(decide_spans(num_leaves, nodes, costs), nodes) == 2 * (num_nodes - 1) / num_nodes


@pytest.mark.parametrize(("num_leaves", "even", "aligned"), [(8, 3, 4), (32, 11, 16), (64, 22, 32)])
def test_three_nodes_are_divided_evenly_or_along_the_tree(num_leaves: int, even: int, aligned: int) -> None:
    nodes = (0, 1, 2)
    fast, slow = (decide_spans(num_leaves, nodes, costs) for costs in (FAST_LINK, SLOW_LINK))
    assert max(span.num_items for span in fast) == even
    assert max(span.num_items for span in slow) == aligned
    assert volume(slow, nodes) == 4 / 3 < volume(fast, nodes)
    assert all(span.num_items for span in slow)


def test_between_both_there_are_divisions_that_are_nearly_even_with_half_the_bytes() -> None:
    spans = decide_spans(64, (0, 1, 2), Costs(micro_batch_s=0.01, transfer_s=0.05))
    assert max(span.num_items for span in spans) == 24
    assert volume(spans, (0, 1, 2)) == 2.0
    assert volume(decide_spans(64, (0, 1, 2)), (0, 1, 2)) == 4.0


def test_travel_that_the_backward_pass_hides_costs_nothing() -> None:
    even = decide_spans(8, (0, 1, 2))
    costs = Costs(micro_batch_s=1.0, transfer_s=0.3, last_share=0.0)
    assert estimate_s(even, (0, 1, 2), costs) == 3.0
    assert decide_spans(8, (0, 1, 2), costs) == even
    late_s = 4 / 3 * 0.3
    assert estimate_s(even, (0, 1, 2), costs._replace(last_share=1.0)) == pytest.approx(3.0 + late_s)


def test_subtrees_that_travel_early_cost_only_what_the_last_micro_batches_do_not_hide() -> None:
    even, aligned = (Span(0, 3), Span(3, 6), Span(6, 8)), (Span(0, 4), Span(4, 6), Span(6, 8))
    nodes = (0, 1, 2)
    assert volume(even, nodes) == 2.0
    assert late_volume(even, nodes) == late_volume(aligned, nodes) == volume(aligned, nodes) == 4 / 3
    costs = Costs(micro_batch_s=1.0, transfer_s=3.0, last_share=1.0)
    # The first rank's first subtree is complete after two micro-batches, so one hides 1 s of 2 s.
    assert estimate_s(even, nodes, costs) == pytest.approx(3.0 + 4.0 + 1.0)
    assert estimate_s(aligned, nodes, costs) == pytest.approx(4.0 + 4.0)
    assert late_volume(even, (0, 0, 1)) == volume(even, (0, 0, 1)), "a sum of two ranks is not sent early"
    assert late_volume((Span(0, 3), Span(3, 3)), (0, 1)) == volume((Span(0, 3), Span(3, 3)), (0, 1))


@given(st.integers(2, 100), nodes, st.floats(0.01, 100), st.floats(1e-3, 10))
def test_the_speed_of_the_links_is_found_from_the_time_of_travel(
    num_leaves: int, nodes: tuple[int, ...], transfer: float, micro_batch_s: float
) -> None:
    if len(set(nodes)) == 1:
        return
    for spans in divisions(num_leaves, nodes):
        work_s = max(span.num_items for span in spans) * micro_batch_s
        travel_s = estimate_s(spans, nodes, Costs(micro_batch_s, transfer, last_share=1.0)) - work_s
        if travel_s > 1e-6 * work_s:
            assert transfer_s(travel_s, spans, nodes, micro_batch_s) == pytest.approx(transfer, rel=1e-6)


def test_ranks_of_a_node_have_neighbouring_micro_batches_wherever_they_are_in_the_view() -> None:
    assert decide_spans(8, (1, 0, 1, 0)) == (Span(4, 6), Span(0, 2), Span(6, 8), Span(2, 4))


@given(st.integers(1, 60), nodes)
def test_the_spans_of_one_rank_in_all_steps_are_those_of_the_divisions(num_leaves: int, nodes: tuple[int, ...]) -> None:
    for rank in range(len(nodes)):
        spans = {even_spans(num, nodes)[rank] for num in range(1, num_leaves + 1)}
        assert most_even_spans(num_leaves, nodes, rank) == spans


@given(st.integers(1, 100), nodes, st.data())
def test_newcomers_have_few_micro_batches_in_their_first_step(
    num_leaves: int, nodes: tuple[int, ...], data: st.DataObject
) -> None:
    size = len(nodes)
    newcomers = tuple(sorted(data.draw(st.sets(st.integers(0, size - 1), max_size=size - 1))))
    # Enough for one division that these ranks have in other steps, or for any.
    even = even_spans(num_leaves, nodes)
    limits = data.draw(st.sampled_from([tuple(map(most_blocks, even)), (99,) * size]))
    spans = ease_in(num_leaves, nodes, newcomers, limits)
    in_order = [spans[rank] for ranks in ranks_of(nodes) for rank in ranks]
    assert [leaf for span in in_order for leaf in range(span.start, span.stop)] == list(range(num_leaves))
    assert all(most_blocks(span) <= limit for span, limit in zip(spans, limits, strict=True))
    if not newcomers or spans == even:
        return
    lengths = [span.num_items for span in spans]
    few = {lengths[rank] for rank in newcomers}
    assert len(few) == 1 and 1 <= min(few) < -(-num_leaves // size)
    assert volume(spans, nodes) <= volume(even, nodes)
    # The others have no more than without the newcomers, and are even among themselves.
    others = [lengths[rank] for rank in range(size) if rank not in newcomers]
    assert max(others) - min(others) <= 1 and max(others) <= -(-num_leaves // len(others))


def test_newcomers_have_one_micro_batch_if_there_is_memory() -> None:
    for num_leaves, size, num_new in ((6, 2, 1), (64, 5, 1), (64, 8, 4), (9, 4, 2), (7, 4, 2)):
        newcomers = tuple(range(size - num_new, size))
        spans = ease_in(num_leaves, (0,) * size, newcomers, (99,) * size)
        assert [spans[rank].num_items for rank in newcomers] == [1] * num_new


def test_no_more_bytes_pass_between_nodes_for_newcomers() -> None:
    # 63 and 1 of 64 would be seven subtrees instead of two.
    assert ease_in(64, (0, 1), (1,), (99, 99)) == even_spans(64, (0, 1))
