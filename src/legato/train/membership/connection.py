"""What there is between the members of a view, and what they find out about one another in it. Data only."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from legato.core.view import View
from legato.train.membership.groups import Group
from legato.train.reduction.exchange import Exchange


class Leave(SystemExit):
    """Raised in the user's program when this worker's part is over; the process ends with 0."""


class Round(Protocol):
    """A round whose result can be handed to a rank that missed it."""

    def send(self, group: Group, peer: int) -> None:
        """Send the last complete result."""
        ...

    def receive(self, group: Group, peer: int) -> None:
        """Receive the result of the round that broke here."""
        ...


class Connection(NamedTuple):
    """A view, connected.

    Args:
        view: whose members are connected.
        group: their connections.
        exchange: for gradients; None if the members' layouts differed when it was built.
        layout: of the gradients that the exchange was built for.
    """

    view: View
    group: Group
    exchange: Exchange | None
    layout: str


class Entry(NamedTuple):
    """What the members of a new view found out about one another.

    Args:
        sources: ranks that have the state of the newest round.
        joiners: ranks that have no state yet.
        repaired: this rank missed the newest round and has received its result.
    """

    sources: tuple[int, ...]
    joiners: tuple[int, ...]
    repaired: bool
