"""How --hosts is read, and which address a machine gives to the others."""

from __future__ import annotations

import pytest

from legato.agent.starting import find_address
from legato.clusters.ssh import Host, check_network, parse_hosts
from legato.core.errors import UsageError


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
    assert find_address("127.0.0.0/8", None) == "127.0.0.1"
    with pytest.raises(UsageError, match="--network"):
        find_address(None, None)
    with pytest.raises(UsageError, match=r"203\.0\.113\.0/24"):
        find_address("203.0.113.0/24", None)


def test_a_network_is_checked() -> None:
    assert check_network("10.1.2.3/16") == "10.1.0.0/16"
    with pytest.raises(UsageError, match=r"10\.0\.0\.0/24"):
        check_network("eth0")
