"""The user of a process that connects over the loopback: from the kernel's tables, with real connections."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import grpc
import pytest
from tests.unit.compat.elasticdl.raw import RawClient
from tests.unit.compat.elasticdl.test_master import Host, PodsHere, run

from legato.compat.elasticdl import peers
from legato.compat.elasticdl.master import Master
from legato.compat.elasticdl.peers import Peers, PodPeers, find_owner

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone says whose a socket is")

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
OURS = "   0: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 20 4 30 10 -1"
MAPPED = OURS.replace("0100007F", "0000000000000000FFFF00000100007F").replace(" 1000 ", " 1001 ")
LISTENER = (
    "   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 100 0 0 10 0"
)
PEER = "ipv4:127.0.0.1:40000"


@pytest.mark.parametrize(
    ("line", "want"),
    [
        (OURS, 1000),
        (MAPPED, 1001),
        (OURS.replace(" 01 ", " 06 "), None),  # it was closed, and its port may be another's
        (OURS.replace("9C40", "9C41"), None),
        (OURS.replace("1F90", "1F91"), None),
        (OURS.replace(": 0100007F", ": 0200007F"), None),
        ("   0: nonsense", None),
    ],
    ids=["ours", "mapped", "closed", "other-port", "other-server", "other-address", "nonsense"],
)
def test_the_owner_of_a_connection_is_found_by_all_of_its_addresses(line: str, want: int | None) -> None:
    assert find_owner([HEAD, line], PEER, 8080) == want


@pytest.mark.parametrize("peer", ["unix:/run/socket", "ipv6:[::1]:40000", "ipv4:127.0.0.1", ""])
def test_a_peer_of_another_kind_has_no_owner(peer: str) -> None:
    assert find_owner([HEAD, OURS], peer, 8080) is None


def test_without_an_answer_of_the_kernel_no_process_is_refused_and_a_known_one_is_not_looked_up_again() -> None:
    reads = 0

    def read() -> list[str]:
        nonlocal reads
        reads += 1
        return [HEAD, LISTENER, OURS]

    async def play() -> None:
        assert await Peers(8080, 1000, list).is_own(PEER)
        assert await Peers(8080, 1000, lambda: [HEAD, OURS]).is_own(PEER), "not even this process's own socket is shown"
        own = Peers(8080, 1000, read)
        assert [await own.is_own(PEER) for _ in range(3)] == [True] * 3
        assert reads == 1
        assert not await own.is_own("ipv4:127.0.0.1:40001")

    asyncio.run(play())


def test_another_users_process_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(master: Master, _host: Host, client: RawClient) -> None:
        assert await client.ask("get_dataset_epoch") == {}
        # As if this process belonged to another user, and a process of its former user connected.
        monkeypatch.setattr(peers, "_TRUSTED_S", -1.0)
        monkeypatch.setattr(peers, "_ROOT", 4242)
        master._service._peers._uid = 4242
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.ask("get_dataset_epoch")
        assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED

    run(tmp_path, play)


@pytest.mark.parametrize(
    ("peer", "is_own"),
    [
        ("ipv4:10.0.1.1:40000", True),
        ("ipv4:10.0.1.2:40000", False),
        ("ipv6:%5Bfd00::1%5D:40000", True),
        ("ipv6:[fd00::1]:40000", True),
        ("ipv6:%5B::ffff:10.0.1.1%5D:40000", True),
        ("unix:/tmp/x", False),
        ("", False),
    ],
)
def test_a_client_in_another_pod_is_known_by_its_address(peer: str, is_own: bool) -> None:
    pods = PodsHere("10.0.1.1", "fd00::1")
    assert asyncio.run(PodPeers(pods).is_own(peer)) == is_own
