"""How one membership follows another."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from legato.core.view import Member, View, agreed_view, next_members, nodes_of

workers = st.lists(st.integers(0, 50), unique=True, max_size=12)


def members(numbers: list[int]) -> list[Member]:
    return [Member(number, f"host-{number % 3}") for number in numbers]


@given(workers, st.sets(st.integers(0, 50)), workers)
def test_incumbents_keep_their_order_and_joiners_come_last(
    current: list[int], leaving: set[int], joining: list[int]
) -> None:
    new = [number + 100 for number in joining]
    after = [member.worker for member in next_members(members(current), leaving, members(new))]
    staying = [number for number in current if number not in leaving]
    assert after == staying + sorted(new)


@given(workers)
def test_nothing_changes_when_no_worker_joins_or_leaves(current: list[int]) -> None:
    assert list(next_members(members(current), set(), [])) == members(current)


@given(workers)
def test_rank_is_the_place_in_the_view(current: list[int]) -> None:
    view = View(number=3, members=tuple(members(current)), rendezvous="h:1")
    assert view.workers == tuple(current)
    assert [view.rank_of(number) for number in current] == list(range(len(current)))
    assert view.rank_of(1000) is None


@given(st.integers(0, 20), st.lists(st.integers(0, 20), min_size=1))
def test_a_view_is_agreed_only_by_all_and_only_forward(current: int, votes: list[int]) -> None:
    agreed = agreed_view(votes, current)
    if agreed is None:
        assert len(set(votes)) > 1 or votes[0] <= current
    else:
        assert set(votes) == {agreed}
        assert agreed > current


def test_an_empty_vote_gives_nothing() -> None:
    assert agreed_view([], current=0) is None


@given(st.lists(st.tuples(st.sampled_from(["10.0.0.1", "10.0.0.2"]), st.sampled_from(["", "x", "y"])), min_size=1))
def test_members_are_on_one_node_only_by_its_nonce(places: list[tuple[str, str]]) -> None:
    nodes = nodes_of([Member(number, host, node) for number, (host, node) in enumerate(places)])
    if all(node for _, node in places):
        for one, (_, nonce) in zip(nodes, places, strict=True):
            for other, (_, another) in zip(nodes, places, strict=True):
                assert (one == other) == (nonce == another)
    else:
        is_one = len({host for host, _ in places}) == 1
        assert len(set(nodes)) == (1 if is_one else len(places))


def test_a_view_of_an_earlier_release_is_read() -> None:
    view = msgspec.json.decode(b'{"number":1,"members":[{"worker":0,"host":"h"}],"rendezvous":"h:1"}', type=View)
    assert view.members == (Member(0, "h", ""),)
