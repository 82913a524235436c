"""Ways for a bucket to travel, by themselves; that all give the same bits is shown in `test_reducer.py`."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.train.ranks import run_ranks
from torch import nn

from legato.core.span import Addition, num_merges, split
from legato.train.membership import peer_memory
from legato.train.membership.connection import can_read_peers, make_exchange
from legato.train.membership.groups import Group
from legato.train.reduction import exchange as exchanges
from legato.train.reduction import node_exchange
from legato.train.reduction.buckets import make_buckets
from legato.train.reduction.exchange import Division, FastExchange, PrivateExchange, SharedExchange, assign, fold
from legato.train.reduction.node_exchange import NodeExchange


@given(num_micro_batches=st.integers(1, 40), num_ranks=st.integers(1, 12))
def test_a_deal_adds_everything_once(num_micro_batches: int, num_ranks: int) -> None:
    assignment = assign(num_micro_batches, num_ranks)
    assert sum(span.num_items for span in assignment.spans) == num_micro_batches
    sizes = [2**block.level for owned in assignment.owned for block in owned]
    for target, source in assignment.additions:
        sizes[target] += sizes[source]
        sizes[source] = 0
    assert sizes[0] == num_micro_batches


@given(st.integers(1, 64), st.integers(1, 10))
def test_on_one_node_max_pending_is_enough_and_reached(num_micro_batches: int, num_ranks: int) -> None:
    for rank in range(num_ranks):
        most = 0
        for num_leaves in range(1, num_micro_batches + 1):
            span = split(num_leaves, num_ranks)[rank]
            pending = 0
            for leaf in range(span.start, span.stop):
                pending += 1 - num_merges(span.start, leaf)
                most = max(most, pending)
        assert Division((0,) * num_ranks, num_micro_batches).max_pending(rank) == most


def test_fold_leaves_its_terms_and_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "_CHUNK_ELEMENTS", 7)
    terms = [torch.randn(20) * 10.0**power for power in range(5)]
    kept = [term.clone() for term in terms]
    out = torch.empty(20)
    fold(terms, [Addition(0, 1), Addition(2, 3), Addition(0, 2), Addition(0, 4)], out)
    assert torch.equal(out, ((terms[0] + terms[1]) + (terms[2] + terms[3])) + terms[4])
    assert all(torch.equal(term, old) for term, old in zip(terms, kept, strict=True))


def test_the_fast_way_sums_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "Segment", _no_room)
    model = nn.Linear(3, 2)

    def play(group: Group) -> torch.Tensor:
        (bucket,) = make_buckets(list(model.parameters()))
        found = make_exchange(group, [bucket], 4, exact=False)
        assert isinstance(found, FastExchange)
        found.begin_step()
        local = [found.memory(bucket)[0].fill_(group.rank + 1.0)]
        found.reduce(bucket, local, assign(4, group.size), announced=True)
        return torch.cat(list(found.result(bucket))).clone()

    for result in run_ranks(3, play):
        assert torch.equal(result, torch.full((8,), 6.0))


@pytest.mark.parametrize("exact", [True, False])
def test_on_one_machine_both_ways_read_where_it_was_written(exact: bool) -> None:
    buckets = make_buckets(list(nn.Linear(3, 2).parameters()))
    for kind in run_ranks(2, lambda group: type(make_exchange(group, buckets, 4, exact=exact))):
        assert kind is SharedExchange


def test_without_shared_memory_another_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "Segment", _no_room)
    buckets = make_buckets(list(nn.Linear(3, 2).parameters()))
    for kind in run_ranks(2, lambda group: type(make_exchange(group, buckets, 4))):
        assert kind is PrivateExchange


def test_ranks_with_equal_addresses_on_two_nodes_touch_no_memory_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "Segment", _no_room)
    monkeypatch.setattr(node_exchange, "Segment", _no_room)
    monkeypatch.setattr(peer_memory, "_read", _no_room)
    buckets = make_buckets(list(nn.Linear(3, 2).parameters()))

    def play(group: Group) -> tuple[object, bool, str]:
        return type(make_exchange(group, buckets, 4)), can_read_peers(group), group.refusal

    for kind, can_read, refusal in run_ranks(2, play, ["one", "two"]):
        assert (kind, can_read, refusal) == (NodeExchange, False, "")


def test_a_rank_that_finds_a_stranger_s_memory_says_so_and_all_take_another_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SharedExchange, "address", property(_mistaken_address), raising=True)
    buckets = make_buckets(list(nn.Linear(3, 2).parameters()))

    def play(group: Group) -> tuple[object, str]:
        return type(make_exchange(group, buckets, 4)), group.refusal

    for kind, refusal in run_ranks(2, play, ["one", "one"]):
        assert kind is PrivateExchange
        assert "not a segment with the mark" in refusal


def _mistaken_address(exchange: SharedExchange) -> str:
    path, mark = exchange._own().address.split()
    return f"{path} {mark[::-1]}"


def test_ranks_with_different_layouts_agree_to_wait() -> None:
    def play(group: Group) -> object:
        model = nn.Linear(3, 2 + group.rank)
        return make_exchange(group, make_buckets(list(model.parameters())), 4)

    assert run_ranks(2, play) == [None, None]


def _no_room(*args: object, **kwargs: object) -> None:
    raise OSError("no room")
