"""The exchange between nodes: what passes between them, what it learns of the links, and nodes that share no memory.

That it gives the bits of one rank is shown in `test_reducer.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.train.ranks import LIMIT_S, run_ranks
from torch import nn

from legato.core.balance import Costs, decide_spans, even_spans, volume
from legato.core.errors import BrokenView
from legato.core.span import Span, blocks
from legato.train.membership.connection import make_exchange
from legato.train.membership.groups import Group, Work
from legato.train.reduction import node_exchange
from legato.train.reduction.buckets import Bucket, make_buckets
from legato.train.reduction.exchange import Division, divide, put_together
from legato.train.reduction.node_exchange import NodeExchange
from legato.train.reduction.node_sums import plan_sums
from legato.train.reduction.segments import Segment

NUMEL = 240
NUM_MICRO_BATCHES = 8


def bucket_of(numel: int = NUMEL) -> Bucket:
    (bucket,) = make_buckets([nn.Parameter(torch.zeros(numel))])
    return bucket


def connect(group: Group, bucket: Bucket, *, exact: bool = True) -> NodeExchange:
    found = make_exchange(group, [bucket], NUM_MICRO_BATCHES, exact=exact)
    assert isinstance(found, NodeExchange)
    return found


def sum_up(exchange: NodeExchange, group: Group, bucket: Bucket) -> torch.Tensor:
    """Sum blocks of which each has its rank's number as all of its elements."""
    assignment = exchange.division.assign(NUM_MICRO_BATCHES)
    exchange.begin_step()
    local = exchange.memory(bucket)[: len(assignment.owned[group.rank])]
    for block in local:
        block.fill_(group.rank + 1.0)
    exchange.reduce(bucket, local, assignment, announced=False)
    exchange.settle(lambda _bucket: None)
    return torch.cat(list(exchange.result(bucket))).clone()


def places(num_nodes: int, num_workers: int) -> list[str]:
    return [f"node {rank % num_nodes}" for rank in range(num_nodes * num_workers)]


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize(("num_nodes", "num_workers"), [(2, 1), (2, 3), (4, 1), (4, 2)])
def test_equal_nodes_send_as_many_bytes_as_in_a_ring(
    monkeypatch: pytest.MonkeyPatch, num_nodes: int, num_workers: int, exact: bool
) -> None:
    sent: dict[tuple[int, int], int] = {}
    start_swap = Group.start_swap

    def count(
        group: Group,
        outgoing: Sequence[Sequence[torch.Tensor]],
        incoming: Sequence[Sequence[torch.Tensor]],
        first_tag: int,
    ) -> list[Work]:
        for peer, tensors in enumerate(outgoing):
            sent[group.rank, peer] = sent.get((group.rank, peer), 0) + sum(tensor.nbytes for tensor in tensors)
        return start_swap(group, outgoing, incoming, first_tag)

    monkeypatch.setattr(Group, "start_swap", count)
    bucket = bucket_of()

    def play(group: Group) -> int:
        exchange = connect(group, bucket, exact=exact)
        sum_up(exchange, group, bucket)
        return exchange.sent_bytes

    counted = run_ranks(num_nodes * num_workers, play, places(num_nodes, num_workers))
    ring = 2 * NUMEL * 4 * (num_nodes - 1) / num_nodes
    for node in range(num_nodes):
        ranks = range(node, num_nodes * num_workers, num_nodes)
        assert sum(counted[rank] for rank in ranks) == ring
        assert sum(num for (rank, _), num in sent.items() if rank in ranks) == ring
        assert sum(num for (_, peer), num in sent.items() if peer in ranks) == ring
    assert all(num == 0 for (rank, peer), num in sent.items() if rank % num_nodes == peer % num_nodes)


def test_the_fast_sum_sends_one_sum_per_node_however_the_micro_batches_are_divided() -> None:
    bucket = bucket_of()

    def play(group: Group) -> tuple[float, int]:
        exchange = connect(group, bucket, exact=False)
        return float(sum_up(exchange, group, bucket)[0]), exchange.sent_bytes

    nodes = ["a", "b", "c", "a"]
    found = run_ranks(4, play, nodes)
    # In order of the nodes, two leaves each: rank 0 has one block, as have ranks 3, 1 and 2.
    assert {total for total, _ in found} == {10.0}
    assert sum(num for (_, num), node in zip(found, nodes, strict=True) if node == "a") == 2 * NUMEL * 4 * 2 / 3


@pytest.mark.parametrize("cause", ["no room", "a stranger"])
def test_ranks_of_a_node_that_share_no_memory_count_as_nodes_of_their_own(
    monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    def make(num_bytes: int, address: str | None = None) -> Segment:
        if address is None and cause == "no room":
            raise OSError("no room")
        return Segment(num_bytes, None if address is None else address[:-1])

    bucket = bucket_of()

    def play(group: Group) -> tuple[float, tuple[int, ...], str]:
        exchange = connect(group, bucket)
        return float(sum_up(exchange, group, bucket)[0]), exchange.division.nodes, group.refusal

    nodes = ["a", "b", "a"]
    for total, known, _ in run_ranks(3, play, nodes):
        assert (total, known) == (10.0, (0, 1, 0)), "ranks 0 and 2 have neighbouring micro-batches"
    monkeypatch.setattr(node_exchange, "Segment", make)
    found = run_ranks(3, play, nodes)
    assert all(len(set(nodes)) == 3 for _, nodes, _ in found)
    assert {total for total, *_ in found} == {9.0}
    assert [bool(refusal) for *_, refusal in found] == [True, False, True]
    assert all(cause in refusal or "not a segment" in refusal for *_, refusal in found if refusal)


def told(micro_batch_s: float, travel_s: float) -> list[int]:
    return [round(micro_batch_s * 1e9), round(travel_s * 1e9)]


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ([told(1.0, 0.01)] * 3, 3),
        ([told(0.01, 1.0)] * 3, 4),
        # The one that waits for the others takes their time for the travel of bytes.
        ([told(1.0, 0.01), told(1.0, 5.0), told(0.9, 5.0)], 3),
        ([told(0.0, 0.0)] * 3, 3),
    ],
)
def test_the_division_follows_what_the_ranks_measure(words: list[list[int]], want: int) -> None:
    bucket = bucket_of()

    def play(group: Group) -> list[int]:
        exchange = connect(group, bucket)
        longest = []
        for _ in range(4):
            sum_up(exchange, group, bucket)
            longest.append(max(span.num_items for span in exchange.division.assign(NUM_MICRO_BATCHES).spans))
            exchange.hear(words)
        return longest

    for longest in run_ranks(3, play, ["a", "b", "c"]):
        assert longest == [3, 3, 3, want], "it is decided after the third step"


def test_a_rank_tells_the_typical_times_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = bucket_of()
    clock = iter(float(tick) for tick in range(10**6))

    def play(group: Group) -> list[list[int]]:
        exchange = connect(group, bucket)
        words = []
        for seconds in (3.0, 2.0, 0.0, 9.0):
            sum_up(exchange, group, bucket)
            words.append(exchange.word(seconds))
            exchange.hear([[0, 0]] * group.size)
        return words

    monkeypatch.setattr(node_exchange, "perf_counter", lambda: next(clock))
    for words in run_ranks(2, play, ["a", "b"]):
        assert [word[0] for word in words] == [3 * 10**9, 2 * 10**9, 2 * 10**9, 9 * 10**9], "decisions begin again"
        assert words[0][1] == 0, "nothing has travelled before the first word"
        assert words[1][1] > 0


def test_a_smaller_last_step_is_divided_evenly() -> None:
    bucket = bucket_of()

    def play(group: Group) -> list[float]:
        exchange = connect(group, bucket)
        for _ in range(3):
            sum_up(exchange, group, bucket)
            exchange.hear([told(0.01, 1.0)] * 3)
        division = exchange.division
        return [max(span.num_items for span in division.assign(num).spans) for num in (8, 7)]

    assert run_ranks(3, play, ["a", "b", "c"]) == [[4, 3]] * 3


@pytest.mark.parametrize(
    ("sizes", "want"),
    [
        ([9, 1, 2], [9, 3]),
        ([1, 2, 9], [3, 9]),
        ([3], [3]),
        ([5, 5, 5], [5, 5, 5]),
        ([1] * 40, [3, 6, 12, 16, 3]),
        ([20, 1], [20, 1]),
    ],
)
def test_the_first_and_the_last_bucket_between_nodes_are_small(sizes: list[int], want: list[int]) -> None:
    # Parameters come last first.
    parameters = [nn.Parameter(torch.zeros(size)) for size in reversed(sizes)]
    found = make_buckets(parameters, 4 * 16, 4 * 3)
    assert [bucket.numel for bucket in found] == want


def test_buckets_travel_between_nodes_in_another_layout_than_on_one_node() -> None:
    parameters = [nn.Parameter(torch.zeros(size)) for size in (2, 10)]
    layouts: list[Sequence[Bucket]] = [make_buckets(parameters), make_buckets(parameters, edge_bytes=8)]

    def count(nodes: list[str]) -> list[int]:
        def connect_all(group: Group) -> int:
            found = make_exchange(group, layouts[0], NUM_MICRO_BATCHES, between_nodes=layouts[1])
            assert found is not None
            return len(found.buckets)

        return run_ranks(2, connect_all, nodes)

    assert count(["a", "a"]) == [1, 1]
    assert count(["a", "b"]) == [2, 2]
    assert count(["a", ""]) == [1, 1], "the other one runs an earlier release"


def test_volume_is_what_passes() -> None:
    bucket = bucket_of()

    def play(group: Group) -> tuple[int, float]:
        exchange = connect(group, bucket)
        sum_up(exchange, group, bucket)
        return exchange.sent_bytes, volume(exchange.division.assign(NUM_MICRO_BATCHES).spans, (0, 1, 2))

    found = run_ranks(3, play, ["a", "b", "c"])
    assert max(num for num, _ in found) == found[0][1] * NUMEL * 4


@given(st.integers(1, 40), st.lists(st.integers(0, 4), min_size=1, max_size=12).map(tuple))
def test_there_is_room_for_the_blocks_of_every_step(num_leaves: int, nodes: tuple[int, ...]) -> None:
    division = Division(nodes, num_leaves)
    for rank in range(len(nodes)):
        spans = [even_spans(num, nodes)[rank] for num in range(1, num_leaves + 1)]
        spans += [
            decide_spans(num_leaves, nodes, costs)[rank]
            for costs in (Costs(1e-6, 1.0), Costs(1.0, 1e-6), Costs(0.01, 0.05))
        ]
        pending = [len(blocks(Span(span.start, stop))) for span in spans for stop in range(span.start, span.stop + 1)]
        assert max(pending) <= division.max_pending(rank)


@given(
    st.integers(1, 40),
    st.lists(st.integers(0, 3), min_size=2, max_size=8).map(tuple),
    st.integers(1, 7),
    st.integers(0, 3),
)
def test_there_is_room_for_the_first_step_of_newcomers(
    num_leaves: int, nodes: tuple[int, ...], num_new: int, room: int
) -> None:
    newcomers = tuple(range(max(1, len(nodes) - num_new), len(nodes)))
    usual, division = Division(nodes, num_leaves), Division(nodes, num_leaves, newcomers=newcomers, room=room)
    for num in range(1, num_leaves):
        assert division.assign(num, is_first=True).spans == even_spans(num, nodes)
    for rank, (start, stop) in enumerate(division.assign(num_leaves, is_first=True).spans):
        pending = [len(blocks(Span(start, place))) for place in range(start, stop + 1)]
        assert max(pending) <= division.max_pending(rank) <= usual.max_pending(rank) + room


def test_large_models_need_no_more_memory_for_newcomers() -> None:
    def play(group: Group) -> list[Division]:
        group.newcomers = (1,)
        return [divide(group, group.nodes, make_buckets([model]), 8) for model in (small, large)]

    small, large = nn.Parameter(torch.zeros(10)), nn.Parameter(torch.empty(2**27))
    for of_small, of_large in run_ranks(2, play):
        assert [span.num_items for span in of_small.assign(8, is_first=True).spans] == [7, 1]
        assert [span.num_items for span in of_large.assign(8, is_first=True).spans] == [6, 2]
        assert of_large.max_pending(0) == Division((0, 0), 8).max_pending(0)


class TornGroup:
    """Its second start of transfers fails."""

    rank, has_left_works, newcomers = 0, False, ()

    def __init__(self, size: int) -> None:
        self.size = size
        self.given_up: list[str] = []
        self.num_starts = 0

    def start_swap(self, *_: object) -> list[str]:
        self.num_starts += 1
        if self.num_starts == 2:
            raise BrokenView("a peer is gone")
        return ["the sums"]

    def give_up(self, works: Sequence[str]) -> None:
        self.given_up += works


def test_transfers_that_were_started_before_a_failed_start_are_given_up() -> None:
    """Gloo may write into the memory of the exchange until they are."""
    bucket, torn = bucket_of(), TornGroup(2)
    group: Any = torn
    exchange = NodeExchange(group, [bucket], NUM_MICRO_BATCHES, (0, 1))
    assignment = exchange.division.assign(NUM_MICRO_BATCHES)
    with pytest.raises(BrokenView):
        exchange.reduce(bucket, exchange.memory(bucket), assignment, announced=True)
    assert torn.given_up == ["the sums"]


def test_early_blocks_that_are_expected_are_given_up_if_none_can_be_sent() -> None:
    bucket, torn = bucket_of(), TornGroup(3)
    group: Any = torn
    exchange = NodeExchange(group, [bucket], NUM_MICRO_BATCHES, (0, 1, 2))
    assignment = exchange.division.assign(NUM_MICRO_BATCHES)
    exchange.send_early(assignment, 0)
    with pytest.raises(BrokenView):
        exchange.send_early(assignment, 1)
    assert torn.given_up == ["the sums"]


def test_the_last_result_stays_until_every_rank_has_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 2 has no micro-batches and is late. The others sum the next step's first bucket, which announces nothing."""
    bucket = bucket_of(1)
    has_written, may_continue = threading.Event(), threading.Event()
    start_swap = Group.start_swap
    num_swaps: dict[int, int] = {}

    def count(group: Group, *parts: Any) -> list[Work]:
        num_swaps[group.rank] = num_swaps.get(group.rank, 0) + 1
        # The second swap of the second step sends the result that it has written.
        if group.rank == 0 and num_swaps[0] == 4:
            has_written.set()
        return start_swap(group, *parts)

    monkeypatch.setattr(Group, "start_swap", count)

    def play(group: Group) -> list[float]:
        found = make_exchange(group, [bucket], 2)
        assert isinstance(found, NodeExchange)

        def add_up(factor: float) -> None:
            assignment = found.division.assign(2)
            found.begin_step()
            local = found.memory(bucket)[: len(assignment.owned[group.rank])]
            for block in local:
                block.fill_(factor)
            found.reduce(bucket, local, assignment, announced=False)
            found.settle(lambda _bucket: None)

        add_up(1.0)
        (first,) = found.result(bucket)
        if group.rank == 2:
            assert found.division.assign(2).owned[2] == ()
            assert has_written.wait(LIMIT_S)
            seen = [float(first[0])]
            may_continue.set()
            add_up(100.0)
        else:
            following = threading.Thread(target=add_up, args=(100.0,))
            following.start()
            assert may_continue.wait(LIMIT_S)
            seen = [float(first[0])]
            following.join(LIMIT_S)
        return [*seen, float(found.result(bucket)[0][0])]

    assert run_ranks(3, play, ["a", "a", "b"]) == [[2.0, 200.0]] * 3


def test_a_bucket_begins_to_travel_before_the_one_before_it_has_come_back() -> None:
    """Rank 1 sends nothing of the second bucket until rank 0 has sent its part."""
    buckets = make_buckets([nn.Parameter(torch.zeros(NUMEL)) for _ in range(2)], NUMEL * 4, NUMEL * 4)
    has_sent = threading.Event()

    def play(group: Group) -> list[float]:
        exchange = make_exchange(group, buckets, 2)
        assert isinstance(exchange, NodeExchange)
        exchange.begin_step()
        for bucket in buckets:
            if group.rank == 1 and bucket.index == 1:
                assert has_sent.wait(LIMIT_S), "rank 0 waits for the first bucket to come back"
            local = [exchange.memory(bucket)[0].fill_(group.rank + 1.0 + bucket.index)]
            exchange.reduce(bucket, local, exchange.division.assign(2), announced=False)
        has_sent.set()
        exchange.settle(lambda _bucket: None)
        return [float(total) for bucket in buckets for total in exchange.result(bucket)[0].unique()]

    assert run_ranks(2, play, ["a", "b"]) == [[3.0, 5.0]] * 2


def test_results_are_passed_on_while_sums_of_the_last_bucket_are_on_the_way() -> None:
    """Rank 1 sends nothing of the last bucket until rank 0 has been passed the first ones."""
    buckets = make_buckets([nn.Parameter(torch.zeros(NUMEL)) for _ in range(4)], NUMEL * 4, NUMEL * 4)
    has_taken = threading.Event()

    def play(group: Group) -> list[float]:
        exchange = make_exchange(group, buckets, 2)
        assert isinstance(exchange, NodeExchange)
        taken: list[float] = []

        def take(bucket: Bucket) -> None:
            taken.extend([float(bucket.index), *map(float, exchange.result(bucket)[0].unique())])
            if group.rank == 0 and bucket.index == 1:
                has_taken.set()

        exchange.begin_step()
        for bucket in buckets:
            if group.rank == 1 and bucket is buckets[-1]:
                assert has_taken.wait(LIMIT_S), "rank 0 waits for the last bucket"
            local = [exchange.memory(bucket)[0].fill_(group.rank + 1.0 + bucket.index)]
            exchange.reduce(bucket, local, exchange.division.assign(2), announced=False)
        exchange.settle(take)
        return taken

    assert run_ranks(2, play, ["a", "b"]) == [[0.0, 3.0, 1.0, 5.0, 2.0, 7.0, 3.0, 9.0]] * 2


def spread_over_three(group: Group, buckets: Sequence[Bucket]) -> NodeExchange:
    found = make_exchange(group, buckets, NUM_MICRO_BATCHES)
    assert isinstance(found, NodeExchange)
    assert [span.num_items for span in found.division.assign(NUM_MICRO_BATCHES).spans] == [3, 3, 2]
    return found


def fill(exchange: NodeExchange, group: Group, bucket: Bucket, factor: float) -> list[torch.Tensor]:
    owned = exchange.division.assign(NUM_MICRO_BATCHES).owned[group.rank]
    blocks = exchange.memory(bucket)[: len(owned)]
    return [block.fill_(factor * (1 << each.level)) for block, each in zip(blocks, owned, strict=True)]


def test_a_complete_block_travels_while_its_rank_computes_later_ones() -> None:
    """Rank 0 computes its last micro-batch until rank 2 has received the block before it."""
    buckets = make_buckets([nn.Parameter(torch.zeros(NUMEL)) for _ in range(3)], NUMEL * 4, NUMEL * 4)
    has_arrived = threading.Event()

    def play(group: Group) -> tuple[int, list[float]]:
        exchange = spread_over_three(group, buckets)
        assignment = exchange.division.assign(NUM_MICRO_BATCHES)
        exchange.begin_step()
        exchange.send_early(assignment, 0)
        local = [fill(exchange, group, bucket, 1.0) for bucket in buckets]
        exchange.send_early(assignment, 1)
        early_bytes = exchange.sent_bytes
        if group.rank == 0:
            assert has_arrived.wait(LIMIT_S)
        if group.rank == 2:
            early = exchange._early.values()
            group.finish([work for each in early for work in each.works])
            assert all(float(each.incoming[0][0][0]) == 2.0 for each in early)
            for each in early:
                each.works.clear()
            has_arrived.set()
        for bucket, mine in zip(buckets, local, strict=True):
            exchange.reduce(bucket, mine, assignment, announced=False)
        exchange.settle(lambda _bucket: None)
        assert exchange.sent_bytes <= len(buckets) * NUMEL * 4 * volume(assignment.spans, (0, 1, 2))
        return early_bytes, [float(total) for bucket in buckets for total in exchange.result(bucket)[0].unique()]

    part = len(buckets) * NUMEL * 4 * 2 // 3
    assert run_ranks(3, play, ["a", "b", "c"]) == [(sent, [8.0] * 3) for sent in (part, part, 0)]


@pytest.mark.parametrize(("num_leaves", "nodes"), [(8, "abc"), (7, "ab"), (8, "abb")])
def test_a_step_that_the_program_left_takes_no_part_in_the_next_sum(num_leaves: int, nodes: str) -> None:
    """Some ranks have sent a block of the step that all leave in its middle; some have nothing to send or receive."""
    bucket = bucket_of()

    def play(group: Group) -> tuple[list[float], bool]:
        exchange = make_exchange(group, [bucket], num_leaves)
        assert isinstance(exchange, NodeExchange)
        totals: list[float] = []

        def step(factor: float, *, is_left: bool = False) -> bool:
            assert isinstance(exchange, NodeExchange)
            assignment = exchange.division.assign(num_leaves)
            exchange.begin_step()
            early, owned = exchange.has_early_blocks(assignment), assignment.owned[group.rank]
            local = exchange.memory(bucket)[: len(owned)]
            for block, each in zip(local, owned, strict=True):
                block.fill_(factor * (1 << each.level))
            if early:
                exchange.send_early(assignment, 0 if is_left and group.rank else len(owned))
            if not is_left:
                exchange.reduce(bucket, local, assignment, announced=False)
                exchange.settle(lambda _bucket: None)
                totals.extend(exchange.result(bucket)[0].unique().tolist())
            return early

        assert step(1.0) and step(100.0, is_left=True)
        assert not step(3.0) and not step(5.0)
        exchange.close()
        # Another exchange of the same group, as after a change of the layout.
        exchange = make_exchange(group, [bucket], num_leaves)
        assert not step(7.0)
        was_broken = group.is_broken
        group.barrier()
        exchange.close()
        return totals, was_broken

    total = float(sum(1 << block.level for block in blocks(Span(0, num_leaves))))
    for totals, was_broken in run_ranks(len(nodes), play, list(nodes)):
        assert totals == [total, 3 * total, 5 * total, 7 * total] and not was_broken


def test_a_group_that_is_dropped_gives_up_what_no_rank_waits_for() -> None:
    bucket = bucket_of()

    def play(group: Group) -> bool:
        exchange = spread_over_three(group, [bucket])
        exchange.begin_step()
        exchange.send_early(exchange.division.assign(NUM_MICRO_BATCHES), 0)
        exchange.close()
        group.barrier()
        was_broken = group.is_broken
        group.drop()
        return not was_broken and group.is_broken

    assert run_ranks(3, play, ["a", "b", "c"]) == [True] * 3


def test_no_block_travels_early_where_a_rank_has_none() -> None:
    """It may have missed the last result, which stays until all have met."""
    assignment = put_together((Span(0, 3), Span(3, 6), Span(6, 6)))
    assert plan_sums(assignment, (0, 1, 2)).num_early == (0, 0, 0)
    assert plan_sums(put_together((Span(0, 3), Span(3, 6))), (0, 1)).num_early == (1, 1)
    assert plan_sums(put_together((Span(0, 2), Span(2, 3), Span(3, 6))), (0, 0, 1)).num_early == (0, 1)
    assert plan_sums(put_together((Span(0, 3), Span(3, 6))), (0, 1), exact=False).num_early == (0, 0)


def test_transfers_are_given_up_if_the_caller_fails_in_the_middle_of_them() -> None:
    """Rank 0 has no memory for the first gradients, while results of others are on the way."""
    buckets = make_buckets([nn.Parameter(torch.zeros(NUMEL)) for _ in range(4)], NUMEL * 4, NUMEL * 4)

    def take(_bucket: Bucket) -> None:
        raise MemoryError

    def play(group: Group) -> bool:
        exchange = make_exchange(group, buckets, 2)
        assert isinstance(exchange, NodeExchange)

        def end_step() -> None:
            for bucket in buckets:
                exchange.reduce(bucket, exchange.memory(bucket)[:1], exchange.division.assign(2), announced=False)
            exchange.settle(take if group.rank == 0 else lambda _bucket: None)

        exchange.begin_step()
        with pytest.raises(MemoryError if group.rank == 0 else BrokenView):
            end_step()
        is_broken = group.is_broken
        exchange.close()
        return is_broken

    assert run_ranks(2, play, ["a", "b"]) == [True, True]


def test_ranks_of_one_node_are_passed_complete_results() -> None:
    buckets = make_buckets([nn.Parameter(torch.zeros(NUMEL)) for _ in range(4)], NUMEL * 4, NUMEL * 4)

    def play(group: Group) -> list[float]:
        exchange = make_exchange(group, buckets, 4)
        assert isinstance(exchange, NodeExchange)
        taken: list[float] = []
        exchange.begin_step()
        for bucket in buckets:
            local = [exchange.memory(bucket)[0].fill_(1.0 + bucket.index)]
            exchange.reduce(bucket, local, exchange.division.assign(4), announced=False)
        exchange.settle(lambda bucket: taken.extend(map(float, exchange.result(bucket)[0].unique())))
        return taken

    assert run_ranks(4, play, ["a", "a", "b", "b"]) == [[4.0, 8.0, 12.0, 16.0]] * 4


def test_early_blocks_are_given_up_with_a_broken_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 ends while rank 0 computes its last micro-batch."""
    bucket = bucket_of()
    given_up: list[Any] = []
    give_up = Group.give_up

    def count(group: Group, works: Sequence[Any]) -> None:
        given_up.extend(works)
        give_up(group, works)

    monkeypatch.setattr(Group, "give_up", count)

    def play(group: Group) -> str:
        exchange = spread_over_three(group, [bucket])
        assignment = exchange.division.assign(NUM_MICRO_BATCHES)
        exchange.begin_step()
        exchange.send_early(assignment, 0)
        early = [work for each in exchange._early.values() for work in each.works]
        group.barrier()
        if group.rank == 1:
            group.break_connections()
            exchange.close()
            return "left"

        def end_step() -> None:
            exchange.send_early(assignment, 1)
            exchange.reduce(bucket, fill(exchange, group, bucket, 1.0), assignment, announced=True)
            exchange.settle(lambda _bucket: None)

        with pytest.raises(BrokenView):
            end_step()
        assert early and all(any(work is each for each in given_up) for work in early)
        exchange.close()
        return "broken"

    assert run_ranks(3, play, ["a", "b", "c"]) == ["broken", "left", "broken"]


def test_memory_of_transfers_on_the_way_is_given_up_with_a_broken_view() -> None:
    """Rank 1 ends in the middle of a step, after both ranks have sent their sums."""
    buckets = make_buckets([nn.Parameter(torch.zeros(NUMEL)) for _ in range(2)], NUMEL * 4, NUMEL * 4)
    has_sent = threading.Event()

    def play(group: Group) -> str:
        exchange = make_exchange(group, buckets, 2)
        assert isinstance(exchange, NodeExchange)
        exchange.begin_step()
        assignment = exchange.division.assign(2)
        exchange.reduce(buckets[0], exchange.memory(buckets[0])[:1], assignment, announced=False)
        if group.rank == 1:
            assert has_sent.wait(LIMIT_S)
            group.break_connections()
            exchange.close()
            return "left"
        has_sent.set()

        def end_step() -> None:
            exchange.reduce(buckets[1], exchange.memory(buckets[1])[:1], assignment, announced=False)
            exchange.settle(lambda _bucket: None)

        with pytest.raises(BrokenView):
            end_step()
        exchange.close()
        return "broken"

    assert run_ranks(2, play, ["a", "b"]) == ["broken", "left"]
