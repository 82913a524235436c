"""A job on hosts with several networks: its processes listen on the address of their agent, and on no other."""

from __future__ import annotations

import ipaddress
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hosts.bed import Hosts, why_not
from tests.hosts.driving import PORT
from tests.integration.harness import Reference, Stage
from tests.integration.on_hosts import JobOnHosts

PROGRAM = ("vision.py", "--epochs", "2")
_LISTENING = "0A"


@pytest.fixture
def two_hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with Hosts(2) as made:
        yield made


def listening(hosts: Hosts, host: int) -> set[str]:
    """Return the addresses at which a host's processes listen by TCP, without the driver's port."""
    found = set()
    pid = hosts.pids(host)[0]
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, port = local.split(":")
            if state == _LISTENING and int(port, 16) != PORT:
                words = struct.unpack(f">{len(address) // 8}I", bytes.fromhex(address))  # each in the host's byte order
                found.add(socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words)))
    return found


@pytest.mark.parametrize("version", [4, 6])
def test_workers_listen_on_the_chosen_network_only(
    two_hosts: Hosts, stage: Stage, reference: Reference, version: int
) -> None:
    hosts = two_hosts
    for host in hosts.numbers:
        hosts.run_on(host, "ip", "address", "add", f"10.77.0.{host}/24", "dev", "lo")
    chosen = hosts.address if version == 4 else hosts.address_6
    seen: dict[int, set[str]] = {}
    job = JobOnHosts(hosts, stage, PROGRAM, random.Random(0), chosen)
    result = job.run([], look=lambda: seen.update({host: listening(hosts, host) for host in hosts.numbers}))
    assert seen == {host: {str(ipaddress.ip_address(chosen(host)))} for host in hosts.numbers}
    result.check(reference.of(*PROGRAM), has_all_losses=False)
