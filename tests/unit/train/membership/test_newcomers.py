"""The members of a view compare the newcomers that they know: a division of a step depends on them."""

from __future__ import annotations

import pytest
import torch
from tests.unit.train.ranks import run_ranks

from legato.core.errors import BrokenView
from legato.train.membership.connection import Connection, Entry
from legato.train.membership.groups import Group
from legato.train.membership.membership_client import MembershipClient


def enter(group: Group, newcomers: tuple[int, ...], *, has_state: bool) -> Entry:
    """Enter a view as a worker that knows these newcomers."""
    group.newcomers = newcomers
    client = MembershipClient(
        None,
        "job",
        torch.device("cpu"),
        lambda _: (None, ""),
        on_hold=lambda: None,
        on_stopped_waiting=lambda: None,
    )
    client.has_state = has_state
    return client._settle(Connection(group.view, group, None, ""), None)


def test_a_view_whose_workers_know_different_newcomers_breaks() -> None:
    def play(group: Group) -> None:
        with pytest.raises(BrokenView, match="different newcomers"):
            enter(group, (1,) if group.rank == 0 else (), has_state=group.rank == 0)

    run_ranks(2, play)


@pytest.mark.parametrize("newcomers", [(), (1,)])
def test_newcomers_change_nothing_in_what_the_members_find(newcomers: tuple[int, ...]) -> None:
    found = run_ranks(2, lambda group: enter(group, newcomers, has_state=group.rank == 0))
    assert found == [Entry((0,), (1,), repaired=False)] * 2
