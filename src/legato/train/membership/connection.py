"""The connections of a view: what its members find out about one another, and the transport of gradients.

The exchange is the fastest one that all ranks can use; all ranks choose the same one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import torch

from legato.core.span import max_pending
from legato.core.view import View
from legato.train.membership.groups import Group
from legato.train.membership.peer_memory import can_read_each_other
from legato.train.reduction.buckets import Bucket, layout_of
from legato.train.reduction.device_exchange import DeviceExchange, HostExchange
from legato.train.reduction.exchange import Exchange, FastExchange, PrivateExchange, SharedExchange


class Leave(SystemExit):
    """Raised in the user's program when this worker's part is over; the process ends with 0."""


class Round(Protocol):
    """A round whose result can be sent to a rank that missed it."""

    def send(self, group: Group, peer: int) -> None:
        """Send the last complete result."""
        ...

    def receive(self, group: Group, peer: int) -> None:
        """Receive the result of the round that failed on this rank."""
        ...


class Connection(NamedTuple):
    """A view, connected.

    Args:
        view: of the connected members.
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


# ------------------------------------------------------------ the exchange of a view


_TEXT_BYTES: Final = 128


def make_exchange(
    group: Group, buckets: Sequence[Bucket], num_micro_batches: int, *, exact: bool = True
) -> Exchange | None:
    """Choose the fastest exchange that all ranks of a view can use, and connect it. All ranks call this together.

    Returns:
        The exchange, or None on all ranks if the layouts of their gradients differ at present: a joiner may not know
        yet which parameters the others have unfrozen.

    Raises:
        BrokenView: a peer died or closed its connection.
    """
    if group.size > 1 and len(set(_swap_texts(group, layout_of(buckets)))) > 1:
        return None
    if group.size > 1 and group.device_group is not None:
        return DeviceExchange(group, buckets, num_micro_batches)
    if group.size > 1 and any(bucket.device.type != "cpu" for bucket in buckets):
        inner = _make_host_exchange(group, [bucket.on_host() for bucket in buckets], num_micro_batches, exact=exact)
        return HostExchange(buckets, max_pending(num_micro_batches, group.size, group.rank), inner)
    return _make_host_exchange(group, buckets, num_micro_batches, exact=exact)


def _make_host_exchange(group: Group, buckets: Sequence[Bucket], num_micro_batches: int, *, exact: bool) -> Exchange:
    private = PrivateExchange if exact else FastExchange
    hosts = {member.host for member in group.view.members}
    if group.size == 1 or len(hosts) > 1 or not buckets:
        return private(group, buckets, num_micro_batches)
    # Where peers read each other's memory, the canonical tree is also the fastest way.
    shared: SharedExchange | None = None
    try:
        with contextlib.suppress(OSError):
            shared = SharedExchange(group, buckets, num_micro_batches)
        paths = _swap_texts(group, shared.path if shared else "")
        connected = False
        if shared is not None and all(paths):
            with contextlib.suppress(OSError):
                shared.connect(paths)
                connected = True
        if all(_swap_texts(group, "yes" if connected else "")):
            assert shared is not None
            return shared
        return private(group, buckets, num_micro_batches)
    finally:
        if shared is not None:
            shared.hide()


def can_read_peers(group: Group, *, may_try: bool = True) -> bool:
    """Find out whether all ranks can read each other's memory. All ranks call this together.

    Args:
        group: of the view.
        may_try: False: this rank has found before that it cannot read its peers.
    """
    hosts = {member.host for member in group.view.members}
    if group.size == 1 or len(hosts) > 1:
        return False
    return can_read_each_other(lambda text: _swap_texts(group, text), group.rank, may_try=may_try)


def _swap_texts(group: Group, mine: str) -> list[str]:
    """Send a short text to every rank and return the texts of all ranks, in rank order."""
    texts = [torch.zeros(_TEXT_BYTES, dtype=torch.uint8) for _ in range(group.size)]
    encoded = mine.encode()
    texts[group.rank][: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
    group.all_gather(texts[group.rank], texts)
    return [bytes(text.tolist()).rstrip(b"\0").decode() for text in texts]
