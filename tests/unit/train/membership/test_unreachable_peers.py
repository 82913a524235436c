"""What a member of a view says about a peer that it cannot connect to."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch.distributed import HashStore, TCPStore

from legato.core.view import Member, View
from legato.train.membership import groups
from legato.train.membership.control_sockets import PeerError, connect
from legato.train.membership.groups import UnreachablePeer, build
from legato.train.membership.view_secret import ViewSecret

SECRET = ViewSecret("secret", "test", 1)


def find_closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_a_peer_that_refuses_connections_is_named_with_its_port() -> None:
    store = HashStore()
    port = find_closed_port()
    store.set("mesh/0", str(port))
    with pytest.raises(PeerError, match=f"port {port}: Connection refused") as told:
        connect(store, 1, ["127.0.0.1", "127.0.0.1"], 5.0, SECRET)
    assert told.value.rank == 0 and told.value.is_direct


def test_a_peer_that_does_not_come_is_named() -> None:
    with pytest.raises(PeerError, match="it has not connected") as told:
        connect(HashStore(), 0, ["127.0.0.1", "127.0.0.1"], 0.01, SECRET)
    assert told.value.rank == 1 and not told.value.is_direct


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this machine has no IPv6")
def test_members_connect_over_ipv6() -> None:
    store = HashStore()
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda rank: connect(store, rank, ["::1", "::1"], 10.0, SECRET), range(2)))
    theirs = torch.zeros(1)
    made[0].swap({1: [torch.ones(1)]}, {})
    made[1].swap({}, {0: [theirs]})
    assert theirs.item() == 1
    for sockets in made:
        sockets.close()


def test_a_store_out_of_reach_names_both_addresses_and_what_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_BUILD_LIMIT_S", 0.2)
    port = find_closed_port()
    view = View(1, (Member(3, "127.0.0.1"), Member(4, "127.0.0.2")), f"127.0.0.1:{port}")
    with pytest.raises(UnreachablePeer, match="TCP ports") as told:
        build(view, 4, "test", torch.device("cpu"))
    assert told.value.worker == 3, "it is on the machine of the store"
    assert f"127.0.0.2 cannot reach 127.0.0.1, port {port}" in str(told.value)
    assert "--network" in str(told.value)


def test_a_peer_that_has_not_begun_is_named_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_BUILD_LIMIT_S", 0.2)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    members = (Member(3, "127.0.0.1", proves=True), Member(4, "127.0.0.1", proves=True))
    view = View(1, members, f"127.0.0.1:{store.port}")
    with pytest.raises(UnreachablePeer, match=r"it has not begun to listen within 0\.2 s") as told:
        build(view, 4, "test", torch.device("cpu"), "secret")
    assert told.value.worker == 3
