"""Ways for a bucket to travel, by themselves; that all give the same bits is shown in `test_reducer.py`."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.train.ranks import LIMIT_S, run_ranks, run_threads
from torch import nn
from torch.distributed import TCPStore

from legato.core.errors import BrokenView
from legato.core.span import Addition, num_merges, split
from legato.core.view import Member, View
from legato.train.membership import peer_memory
from legato.train.membership.connection import can_read_peers, make_exchange
from legato.train.membership.groups import Group, build
from legato.train.reduction import exchange as exchanges
from legato.train.reduction import node_exchange
from legato.train.reduction.buckets import Bucket, make_buckets
from legato.train.reduction.exchange import Division, FastExchange, PrivateExchange, SharedExchange, assign, fold
from legato.train.reduction.kept_memory import KeptMemory
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


# ---------------------------------------------------------------- memory of earlier views


def begin_step(exchange: SharedExchange, bucket: Bucket, group: Group, value: float) -> list[torch.Tensor]:
    """Complete this rank's local sums of a step of three micro-batches; each block has the value."""
    exchange.begin_step()
    owned = assign(3, group.size).owned[group.rank]
    return [exchange.memory(bucket)[index].fill_(value) for index in range(len(owned))]


def test_a_step_that_begins_again_leaves_the_memory_of_the_last_one() -> None:
    """A peer may still read it: without a sum nothing says that it is further."""
    buckets = make_buckets(list(nn.Linear(3, 2).parameters()))

    def play(group: Group) -> None:
        (bucket,) = buckets
        exchange = make_exchange(group, buckets, 3)
        assert isinstance(exchange, SharedExchange)
        for step in range(3):
            local = begin_step(exchange, bucket, group, step + 1.0)
            exchange.reduce(bucket, local, assign(3, group.size), announced=False)
            for _ in range(3):
                # The program leaves its loop in the first turn of the next step, and begins another one.
                begin_step(exchange, bucket, group, -1.0)
                assert all(block.eq(step + 1.0).all() for block in local)

    run_ranks(2, play, ["node", "node"])


def test_a_worker_that_wakes_late_in_an_old_view_finds_what_it_had_to_find() -> None:
    """It may complete the old step, and rank 0 may save the result, before it ends."""
    buckets = make_buckets(list(nn.Linear(600, 600).parameters()))
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    views = [
        View(number, tuple(Member(worker, "127.0.0.1", "node", proves=True) for worker in workers), address)
        for address in (f"127.0.0.1:{store.port}",)
        for number, workers in ((1, (0, 1, 2)), (2, (1, 2)))
    ]
    have_trained = threading.Barrier(3)
    groups: list[Group] = []

    def enter(view: View, worker: int, kept: KeptMemory) -> tuple[Group, SharedExchange]:
        group = build(view, worker, "test", torch.device("cpu"), "secret of the test")
        exchange = make_exchange(group, buckets, 3, kept=kept)
        assert isinstance(exchange, SharedExchange)
        groups.append(group)
        return group, exchange

    def play(worker: int) -> torch.Tensor:
        kept, (bucket,) = KeptMemory(), buckets
        group, exchange = enter(views[0], worker, kept)
        local = begin_step(exchange, bucket, group, worker + 1.0)
        group.barrier()
        if worker == 0:
            # It sleeps here, and the others find that it is lost.
            have_trained.wait(LIMIT_S)
            with pytest.raises(BrokenView):
                exchange.reduce(bucket, local, assign(3, group.size), announced=True)
            return exchange.result(bucket)[0].clone()
        group.break_connections()
        exchange.close()
        group, exchange = enter(views[1], worker, kept)
        local = begin_step(exchange, bucket, group, 10.0)
        exchange.reduce(bucket, local, assign(3, group.size), announced=False)
        have_trained.wait(LIMIT_S)
        return torch.cat(list(exchange.result(bucket))).clone()

    late, *others = run_threads([lambda worker=worker: play(worker) for worker in range(3)])  # type: ignore[misc]
    for group in groups:
        group.drop()
    assert late.eq(6.0).all()
    assert all(other.eq(20.0).all() for other in others)


def test_results_of_the_last_view_are_spared_by_memory_without_a_step() -> None:
    buckets = make_buckets(list(nn.Linear(3, 2).parameters()))

    def play(group: Group) -> list[bool]:
        kept, spares = KeptMemory(), []
        for has_step in (False, True, True, True):
            exchange = make_exchange(group, buckets, 3, kept=kept)
            assert exchange is not None
            spares.append(exchange.spares_results())
            if has_step:
                exchange.begin_step()
            exchange.close()
        return spares

    assert run_ranks(2, play, ["node", "node"]) == [[True, True, False, True]] * 2


def test_a_rank_that_leaves_a_view_writes_no_more_sums_there() -> None:
    buckets = make_buckets(list(nn.Linear(3, 2).parameters()))
    is_over = threading.Event()

    def play(group: Group) -> None:
        (bucket,) = buckets
        exchange = make_exchange(group, buckets, 3, kept=KeptMemory())
        assert isinstance(exchange, SharedExchange)
        local = begin_step(exchange, bucket, group, 1.0)
        if group.rank == 1:
            assert is_over.wait(LIMIT_S)
            return
        has_begun, barrier = threading.Event(), group.barrier
        errors: list[BaseException] = []

        def wait_for_peers() -> None:
            has_begun.set()
            barrier()

        def reduce() -> None:
            try:
                exchange.reduce(bucket, local, assign(3, group.size), announced=False)
            except BrokenView as error:
                errors.append(error)

        group.barrier = wait_for_peers  # type: ignore[method-assign]
        thread = threading.Thread(target=reduce, daemon=True)
        thread.start()
        assert has_begun.wait(LIMIT_S)
        exchange.close()
        is_over.set()
        thread.join(LIMIT_S)
        assert errors
        with pytest.raises(BrokenView, match="has left it"):
            exchange.reduce(bucket, local, assign(3, group.size), announced=True)

    run_ranks(2, play, ["node", "node"])


def test_the_first_memory_is_enough_for_a_view_with_one_worker_fewer() -> None:
    buckets = make_buckets([*nn.Linear(700, 700).parameters(), *nn.Linear(9, 9).parameters()])

    def play(group: Group) -> tuple[int, int]:
        kept = KeptMemory()
        make_exchange(group, buckets, 6, kept=kept)
        assert kept._segment is not None
        return kept._segment.num_bytes, group.size

    held = {rank: num_bytes for rank, (num_bytes, _) in enumerate(run_ranks(3, play, ["node"] * 3))}

    def need(group: Group) -> int:
        exchange = make_exchange(group, buckets, 6)
        assert isinstance(exchange, SharedExchange)
        return exchange._num_bytes(group.rank)

    assert min(held.values()) >= max(run_ranks(2, need, ["node"] * 2))
