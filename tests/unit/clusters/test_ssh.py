"""How --hosts is read, and which address a machine gives to the others."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.agent.starting import Facts, find_address
from legato.clusters import base
from legato.clusters.base import check_network
from legato.clusters.ssh import Host, Hosts, SshStarter, parse_hosts
from legato.core.errors import UsageError
from legato.system.door import Door


def test_hosts_have_names_users_and_slots() -> None:
    assert parse_hosts("a,b:4, anna@gpu-1.lab:2") == (Host("a"), Host("b", 4), Host("anna@gpu-1.lab", 2))
    assert [host.node for host in parse_hosts("anna@gpu-1.lab,10.0.0.5")] == ["gpu-1", "10.0.0.5"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Cannot read the host"),
        ("a,,b", "Cannot read the host"),
        ("-oProxyCommand=evil", "Cannot read the host"),
        ("a b", "Cannot read the host"),
        ("a:0", "from 1 to 1024"),
        ("a:", "from 1 to 1024"),
        ("a:99999999999", "from 1 to 1024"),
        ("a,a:2", "two hosts with the name 'a'"),
        ("a.one,a.two", "two hosts with the name 'a'"),
        ("::1", "IPv6"),
        (",".join(f"h{number}" for number in range(1001)), "1000 is the limit"),
    ],
)
def test_hosts_that_cannot_be_read_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        parse_hosts(text)


def test_a_machine_is_reached_where_ssh_reaches_it_or_in_the_network() -> None:
    assert find_address(None, "10.0.0.1 50000 10.0.0.2 22") == "10.0.0.2"
    assert find_address(None, "::ffff:10.0.0.1 50000 ::ffff:10.0.0.2 22") == "10.0.0.2"
    assert find_address(None, "fd00::1 50000 fd00::2 22") == "fd00::2"
    assert find_address("127.0.0.0/8", None) == "127.0.0.1"
    with pytest.raises(UsageError, match=r"link-local address fe80::2%eth0.* its addresses are .*--network"):
        find_address(None, "fe80::1%eth0 50000 fe80::2%eth0 22")
    with pytest.raises(UsageError, match="--network"):
        find_address(None, None)
    with pytest.raises(UsageError, match=r"203\.0\.113\.0/24.* its addresses are 127\.0\.0\.1 \(lo\)"):
        find_address("203.0.113.0/24", None)


def test_a_network_is_checked() -> None:
    assert check_network("10.1.2.3/16") == "10.1.0.0/16"
    with pytest.raises(UsageError, match=r"10\.0\.0\.0/24"):
        check_network("eth0")


GOOD = Facts(python="3.12", torch="2.9.0", capability="AVX512", address="10.0.0.1")


def refusals_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> list[str]:
    """Keep machine b, after machine a, with an ssh that writes these lines for b; return what is said of b."""
    (tmp_path / "ssh").write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    said: list[str] = []

    async def run() -> None:
        door = Door()
        await door.open()
        starter = SshStarter(Hosts(parse_hosts("a:1,b:1")), "job", door)
        starter._facts["a"] = GOOD
        starter._is_known["a"].set()
        refused = asyncio.Event()

        def refuse(reason: str) -> None:
            said.append(reason)
            refused.set()

        keeping = asyncio.create_task(starter.keep("b", "secret", refuse))
        async with asyncio.timeout(30.0):
            await refused.wait()
        await asyncio.wait([keeping], timeout=0.3)  # it ends, or tries again later
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await door.close()

    asyncio.run(run())
    return said


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"python": "3.11"}, "it has Python 3.11, and a has 3.12: results would differ"),
        ({"torch": "2.8.0"}, "it has torch 2.8.0, and a has 2.9.0"),
        ({"capability": "AVX2"}, "it has the CPU capability AVX2, and a has AVX512"),
        ({"legato": "0.0.9"}, "install the same release on both"),
        ({"address": "127.0.0.1"}, "a cannot reach b at a loopback address"),
        ({"error": "workers cannot be started with /p: it has no torch"}, "it has no torch"),
    ],
)
def test_a_machine_that_differs_is_refused_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], want: str
) -> None:
    facts = msgspec.json.encode(msgspec.structs.replace(GOOD, **changes)).decode()
    assert want in refusals_of(tmp_path, monkeypatch, [f"echo '{facts}'", "cat > /dev/null"])[0]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("ssh: Could not resolve hostname b: Name or service not known", "define the host in ~/.ssh/config"),
        ("Host key verification failed.", "accept the key of the host"),
        ("anna@b: Permission denied (publickey).", "ssh-copy-id"),
        ("ssh: connect to host b port 22: No route to host", "check that the machine runs"),
        ("Error: remote port forwarding failed for listen port 0", "AllowTcpForwarding yes"),
    ],
)
def test_what_ssh_says_is_followed_by_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, want: str
) -> None:
    (told,) = refusals_of(tmp_path, monkeypatch, [f"echo '{line}' >&2", "exit 255"])[:1]
    assert told.startswith(line.rstrip(".")) and want in told


def test_a_machine_without_legato_is_refused_with_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "it has no Legato at" in refusals_of(tmp_path, monkeypatch, ["exit 127"])[0]


BREAKS = """#!/bin/sh
echo >> {0}/tries
number=$(wc -l < {0}/tries)
echo 'Allocated port 40001 for remote forward to 127.0.0.1:1' >&2
[ $number = 2 ] && echo '{2}' && exec cat > /dev/null
echo '{1}'
read -r order && echo "$order" >> {0}/orders
echo '{{}}'
[ $number = 1 ] || exec cat > /dev/null
"""


def test_a_machine_that_was_used_before_is_reached_again_whatever_it_says_of_itself_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(base, "_RETRY_S", 0.05)
    busy = msgspec.structs.replace(GOOD, error="workers cannot be started with /p: it did not answer within 60 s")
    facts = (msgspec.json.encode(each).decode() for each in (GOOD, busy))
    (tmp_path / "ssh").write_text(BREAKS.format(tmp_path, *facts))
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    orders = tmp_path / "orders"

    async def run() -> None:
        door = Door()
        await door.open()
        starter = SshStarter(Hosts(parse_hosts("b:1")), "job", door)
        keeping = asyncio.create_task(starter.keep("b", "secret", pytest.fail))
        async with asyncio.timeout(30.0):
            while not orders.exists() or len(orders.read_text().splitlines()) < 2:
                assert not keeping.done(), "the machine is given up"
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await door.close()

    asyncio.run(run())
    assert "Cannot connect to b again: workers cannot be started with /p" in caplog.text
