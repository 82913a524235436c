"""State as a tree: taken apart, sent in shares, put together."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.train.ranks import LIMIT_S, run_ranks

from legato.core.errors import BrokenView, CheckpointError
from legato.core.view import Member, View
from legato.train.membership import state_transfer
from legato.train.membership.groups import Group, Pending, Work
from legato.train.membership.peer_memory import Loan, borrow

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
tensors = st.builds(
    lambda shape, dtype: (torch.arange(float(torch.Size(shape).numel())).reshape(shape) * 3).to(dtype),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(DTYPES),
)
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
trees = st.recursive(
    tensors | plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


@given(trees)
def test_round_trip(tree: Any) -> None:
    skeleton, parts = state_transfer.take_apart(tree)
    again = state_transfer.decode(state_transfer.encode(skeleton))
    assert [(spec.shape, spec.dtype) for spec in state_transfer.specs(again)] == [
        (tuple(p.shape), p.dtype) for p in parts
    ]
    assert same(state_transfer.put_together(again, parts), tree)


def test_a_rehearsal_loads_all_code_of_a_transfer() -> None:
    """Others wait for a worker that receives the state: it must not load modules of torch then."""
    script = """
import sys
import torch
from legato.train.membership import state_transfer

state_transfer.rehearse()
before = set(sys.modules)
tree = {"models": [{"weight": torch.ones(3, 2), "empty": None}], "step": 3}
skeleton, _ = state_transfer.take_apart(tree)
header = state_transfer.decode(state_transfer.encode(skeleton))
own = state_transfer.aligned(header, tree)
specs = state_transfer.specs(header)
state_transfer.put_together(header, [own[index] for index, spec in enumerate(specs) if spec.is_met_by(own[index])])
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=True)
    assert done.stdout == "[]\n"


def test_what_cannot_be_read_back_is_refused() -> None:
    with pytest.raises(CheckpointError, match="object"):
        state_transfer.encode({"thing": object()})


@pytest.mark.parametrize("chunk_bytes", [8 * 2**20, 64])
@pytest.mark.parametrize("num_sources", [1, 2, 3])
def test_every_source_sends_its_share(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, num_sources: int) -> None:
    monkeypatch.setattr(state_transfer, "_CHUNK_BYTES", chunk_bytes)
    num_joiners = 2
    sources, joiners = range(num_sources), range(num_sources, num_sources + num_joiners)
    have = [torch.randn(7, 3), torch.tensor(5), torch.zeros(0), torch.randn(40).bfloat16(), torch.randn(4, 4).t()]

    def play(group: Group) -> list[torch.Tensor]:
        if group.rank in sources:
            works = state_transfer.send_share(group, sources, joiners, have)
            group.finish(works)
            return have
        got = [torch.full_like(tensor, 1) for tensor in have]
        chunks: list[None] = []
        state_transfer.receive_shares(group, sources, got, lambda: chunks.append(None))
        assert len(chunks) >= num_sources
        return got

    for got in run_ranks(num_sources + num_joiners, play):
        assert all(torch.equal(one, other) for one, other in zip(got, have, strict=True))


def test_what_is_lent_stays_until_it_was_read() -> None:
    have = [torch.randn(7, 3), torch.zeros(0), torch.randn(40).bfloat16(), torch.randn(4, 4).t()]
    returned = threading.Event()

    def play(group: Group) -> list[torch.Tensor]:
        if group.rank == 0:
            loan = Loan(have)
            group.finish(state_transfer.send_bytes(group, [1], state_transfer.encode(loan.describe())))
            group.finish([*state_transfer.await_thanks(group, [1]), loan])
            returned.set()
            return have
        got = [torch.full_like(tensor, 1).t() for tensor in have]  # not all of them contiguous
        description = state_transfer.decode(state_transfer.receive_bytes(group, 0))
        state_transfer.receive_loan(
            group, 0, description, [view.t() for view in got], lambda: still.append(returned.is_set())
        )
        assert returned.wait(LIMIT_S)
        return [view.t() for view in got]

    still: list[bool] = []
    lent, got = run_ranks(2, play)
    assert all(map(torch.equal, got, lent))
    assert still == [False]


@pytest.mark.parametrize("breaks", ["_SKELETON_TAG", "_THANKS_TAG"])
def test_nothing_is_lent_or_under_way_where_a_joiner_is_lost_at_the_beginning(
    monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    loans: list[Loan] = []
    given_up: list[int] = []
    broken_tag = getattr(state_transfer, breaks)

    class Noted(Loan):
        def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
            super().__init__(tensors)
            self.told = self.describe()
            loans.append(self)

    class Started(Work):
        def __init__(self, tag: int) -> None:
            self.tag = tag

    def start(_group: Group, _tensor: torch.Tensor, peer: int, tag: int) -> Work:
        if tag == broken_tag and peer == 2:
            raise BrokenView("rank 2 is gone")
        return Started(tag)

    def give_up(group: Group, works: Sequence[Pending]) -> None:
        given_up.extend(work.tag for work in works if isinstance(work, Started))
        group_gives_up(group, works)

    group_gives_up = Group.give_up
    monkeypatch.setattr(state_transfer, "Loan", Noted)
    monkeypatch.setattr(Group, "give_up", give_up)
    monkeypatch.setattr(Group, "send", start)
    monkeypatch.setattr(Group, "receive", start)
    group = Group(View(1, tuple(Member(rank, "") for rank in range(3)), ""), 0)
    group.reads_peers = True
    with pytest.raises(BrokenView, match="rank 2"):
        state_transfer.send_tree(group, [0], [1, 2], {"weight": torch.ones(3)})
    length, skeleton, thanks = state_transfer._LENGTH_TAG, state_transfer._SKELETON_TAG, state_transfer._THANKS_TAG
    want = [length, skeleton, length, *([skeleton, thanks] if broken_tag == thanks else [])]
    assert sorted(given_up) == sorted(want)
    assert group.is_broken
    with pytest.raises(BrokenView):
        borrow(loans[0].told, [torch.zeros(3)], lambda: None)


def test_who_has_the_state_by_a_repair_gives_nothing() -> None:
    group = Group(View(1, tuple(Member(rank, "") for rank in range(3)), ""), 1)
    assert state_transfer.send_tree(group, [0], [2], {"weight": torch.ones(3)}) == []


def test_bytes_arrive() -> None:
    payload = bytes(range(256)) * 100

    def play(group: Group) -> bytes:
        if group.rank == 0:
            group.finish(state_transfer.send_bytes(group, group.peers, payload))
            return payload
        return state_transfer.receive_bytes(group, 0)

    assert run_ranks(3, play) == [payload] * 3
