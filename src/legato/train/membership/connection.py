"""The connections of a view: what its members find out about one another, and the transport of gradients.

The exchange is the fastest one that all ranks can use; all ranks choose the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import torch

from legato.core.view import View, knows_nodes
from legato.train.membership.groups import Group
from legato.train.membership.peer_memory import can_read_each_other
from legato.train.reduction.buckets import Bucket, layout_of
from legato.train.reduction.device_exchange import (
    DeviceExchange,
    FastDeviceExchange,
    HostExchange,
    NodeDeviceExchange,
)
from legato.train.reduction.exchange import Exchange, FastExchange, PrivateExchange, SharedExchange
from legato.train.reduction.kept_memory import KeptMemory
from legato.train.reduction.node_exchange import NodeExchange


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
        layout: of the buckets that the exchange was built for; "" if there is no exchange.
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
_NO_MEMORY: Final = "no memory"


def make_exchange(
    group: Group,
    buckets: Sequence[Bucket],
    num_micro_batches: int,
    *,
    exact: bool = True,
    between_nodes: Sequence[Bucket] | None = None,
    kept: KeptMemory | None = None,
) -> Exchange | None:
    """Choose the fastest exchange that all ranks of a view can use, and connect it. All ranks call this together.

    Args:
        group: connects the ranks.
        buckets: all buckets of the layout.
        num_micro_batches: of a full step.
        exact: False: sums may differ from the exact ones within rounding errors.
        between_nodes: the buckets of the layout that is better between nodes; None: the same.
        kept: memory of earlier views, for sums of CPUs on one node; None: all memory is new.

    Returns:
        The exchange, or None on all ranks if the layouts of their gradients differ at present: a joiner may not know
        yet which parameters the others have unfrozen.

    Raises:
        BrokenView: a peer died or closed its connection.
    """
    if group.size > 1 and len(set(_swap_texts(group, layout_of(buckets)))) > 1:
        return None
    if len(set(group.nodes)) > 1 and between_nodes is not None and knows_nodes(group.view.members):
        buckets = between_nodes
        # Two layouts that are equal on one node may be cut at other places here.
        if len(set(_swap_texts(group, layout_of(buckets)))) > 1:
            return None
    if group.size > 1 and group.device_group is not None:
        if not exact:
            return FastDeviceExchange(group, buckets, num_micro_batches)
        # Workers of an earlier release know no nodes, and take part in this exchange only.
        is_on_nodes = len(set(group.nodes)) > 1 and knows_nodes(group.view.members)
        return (NodeDeviceExchange if is_on_nodes else DeviceExchange)(group, buckets, num_micro_batches)
    if group.size > 1 and any(bucket.device.type != "cpu" for bucket in buckets):
        hosts = [bucket.on_host() for bucket in buckets]
        inner = _make_host_exchange(group, hosts, num_micro_batches, exact=exact, sends_early=False)
        return HostExchange(buckets, inner.division.max_pending(group.rank), inner)
    return _make_host_exchange(group, buckets, num_micro_batches, exact=exact, kept=kept)


def _make_host_exchange(
    group: Group,
    buckets: Sequence[Bucket],
    num_micro_batches: int,
    *,
    exact: bool,
    sends_early: bool = True,
    kept: KeptMemory | None = None,
) -> Exchange:
    private = PrivateExchange if exact else FastExchange
    is_shared = group.size > 1 and buckets and len(set(group.nodes)) == 1
    if kept is not None and not is_shared:
        kept.drop()
    if group.size == 1 or not buckets:
        return private(group, buckets, num_micro_batches)
    if len(set(group.nodes)) > 1:
        # Workers of an earlier release know no nodes, and take part in this exchange only.
        if not knows_nodes(group.view.members):
            return private(group, buckets, num_micro_batches)
        return _make_node_exchange(group, buckets, num_micro_batches, exact=exact, sends_early=sends_early)
    # Where peers read each other's memory, the canonical tree is also the fastest way.
    shared: SharedExchange | None = None
    try:
        try:
            shared = SharedExchange(group, buckets, num_micro_batches, kept)
        except OSError as error:
            group.refusal = str(error)
        addresses = _swap_texts(group, shared.address if shared else "")
        connected = False
        if shared is not None and all(addresses):
            try:
                shared.connect(addresses)
                connected = True
            except OSError as error:
                group.refusal = str(error)
        if all(_swap_texts(group, "yes" if connected else "")):
            assert shared is not None
            return shared
        if kept is not None:
            kept.drop()
        return private(group, buckets, num_micro_batches)
    finally:
        if shared is not None:
            shared.hide()


def _make_node_exchange(
    group: Group, buckets: Sequence[Bucket], num_micro_batches: int, *, exact: bool, sends_early: bool
) -> Exchange:
    """Connect the ranks of several nodes. The ranks of a node that cannot share memory count as nodes of their own."""
    nodes = group.nodes
    while True:
        found: NodeExchange | None = None
        try:
            try:
                found = NodeExchange(group, buckets, num_micro_batches, nodes, exact=exact, sends_early=sends_early)
            except OSError as error:
                group.refusal = str(error)
            addresses = _swap_texts(group, _NO_MEMORY if found is None else found.address)
            is_connected = False
            if found is not None and not any(addresses[mate] == _NO_MEMORY for mate in found.mates):
                try:
                    found.connect(addresses)
                    is_connected = True
                except OSError as error:
                    group.refusal = str(error)
            texts = _swap_texts(group, "yes" if is_connected else "")
            torn = {node for node, text in zip(nodes, texts, strict=True) if not text}
            if not torn:
                assert found is not None
                return found
            nodes = tuple(len(nodes) + rank if node in torn else node for rank, node in enumerate(nodes))
        finally:
            if found is not None:
                found.hide()


def can_read_peers(group: Group, *, may_try: bool = True) -> bool:
    """Find out whether all ranks can read each other's memory. All ranks call this together.

    Args:
        group: of the view.
        may_try: False: this rank has found before that it cannot read its peers.
    """
    if group.size == 1 or len(set(group.nodes)) > 1:
        return False
    return can_read_each_other(lambda text: _swap_texts(group, text), group.rank, may_try=may_try)


def _swap_texts(group: Group, mine: str) -> list[str]:
    """Send a short text to every rank and return the texts of all ranks, in rank order."""
    texts = [torch.zeros(_TEXT_BYTES, dtype=torch.uint8) for _ in range(group.size)]
    encoded = mine.encode()
    texts[group.rank][: len(encoded)] = torch.tensor(list(encoded), dtype=torch.uint8)
    group.all_gather(texts[group.rank], texts)
    return [bytes(text.tolist()).rstrip(b"\0").decode() for text in texts]
