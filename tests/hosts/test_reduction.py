"""The sum of gradients over real links: the same bits on all hosts, and the bytes that interfaces count."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.nodes import Found, ring_bytes, run_case
from benchmarks.programs.node_ranks import EXACT, Case
from tests.hosts.bed import Hosts, why_not

NUMEL = 400_000
NUM_MICRO_BATCHES = 8
MOST_OF_RING = 1.1


@pytest.fixture
def five_hosts() -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    with Hosts(5) as made:
        yield made


def case_of(hosts: Hosts, num_hosts: int, num_workers: int) -> Case:
    addresses = [hosts.address(host) for host in hosts.numbers][:num_hosts]
    return Case(addresses, num_workers, NUM_MICRO_BATCHES, NUMEL, modes=[*EXACT])


def check_bytes(case: Case, found: Found) -> None:
    """Check that no host sends more than 1.1 times as much as in a ring, headers and small messages included."""
    for mode in ("chosen", "even", "aligned"):
        assert found.kinds[mode] == "NodeExchange"
        assert max(found.num_bytes[mode]) <= MOST_OF_RING * ring_bytes(case), (mode, found.num_bytes)


def test_two_hosts_of_two_workers_give_the_bits_of_one_worker_and_send_as_much_as_a_ring(hosts: Hosts) -> None:
    want = run_case(hosts, case_of(hosts, 1, 1)).digest
    case = case_of(hosts, 2, 2)
    found = run_case(hosts, case)
    assert found.digest == want
    check_bytes(case, found)
    assert min(found.num_bytes["before"]) > 1.5 * ring_bytes(case), "the counters see what passes"


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_any_number_of_hosts_and_workers_gives_the_bits_of_one(five_hosts: Hosts) -> None:
    found: dict[tuple[int, int], str] = {}
    for num_hosts in (1, 2, 3, 4, 5):
        for num_workers in (1, 2, 3, 4):
            case = case_of(five_hosts, num_hosts, num_workers)
            told = run_case(five_hosts, case)
            found[num_hosts, num_workers] = told.digest
            if num_hosts in (2, 4):
                check_bytes(case, told)
    assert set(found.values()) == {found[1, 1]}, found
