"""How the GPUs of a view's members are connected, with fakes of NCCL and CUDA: what each failure leads to."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest
import torch
from tests.unit.train.ranks import run_threads
from torch.distributed import TCPStore

from legato.core.errors import BrokenView
from legato.core.view import Member, View
from legato.train import torch_private
from legato.train.membership import groups
from legato.train.membership.groups import Group, build, identify_gpu

LIMIT_S = 30.0


class Carrier:
    """A group over NCCL."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.ended = threading.Event()

    def abort(self) -> None:
        self.ended.set()
        raise RuntimeError("NCCL aborted already")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[int, Carrier]:
    """Return the groups over NCCL that were made, by rank; each worker has a GPU of its own."""
    carriers: dict[int, Carrier] = {}
    gpus = iter(range(100))

    def make(_store: object, rank: int, _size: int, _limit: object) -> Carrier:
        return carriers.setdefault(rank, Carrier(rank))

    monkeypatch.setattr(torch_private, "make_nccl_group", make)
    monkeypatch.setattr(groups, "_use_once", lambda _carrier, _device: None)
    monkeypatch.setattr(groups, "identify_gpu", lambda _device: f"gpu {next(gpus)}")
    monkeypatch.delenv("LEGATO_NCCL", raising=False)
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth7")
    return carriers


def connect(num_ranks: int = 2) -> list[Group]:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    view = View(1, tuple(Member(rank, "127.0.0.1") for rank in range(num_ranks)), f"127.0.0.1:{store.port}")
    device = torch.device("cuda:0")
    return run_threads([lambda rank=rank: build(view, rank, "test", device) for rank in range(num_ranks)])


def test_workers_with_a_gpu_each_are_connected_by_nccl(made: dict[int, Carrier]) -> None:
    for rank, group in enumerate(connect()):
        assert (group.device_group, group.obstacle) == (made[rank], "")
        group.drop()
    # Without this, torch would warn, and wait for the peers.
    assert all(carrier.ended.wait(LIMIT_S) for carrier in made.values())


def test_workers_that_share_a_gpu_do_without_nccl(made: dict[int, Carrier], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "identify_gpu", lambda _device: "00:1b:00")
    for group in connect():
        assert (group.device_group, group.obstacle) == (None, "several workers share one GPU, which NCCL refuses")
        group.drop()
    assert made == {}


def test_nccl_can_be_forbidden(made: dict[int, Carrier], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_NCCL", "0")
    for group in connect():
        assert (group.device_group, group.obstacle) == (None, "LEGATO_NCCL=0 forbids NCCL")
        group.drop()
    assert made == {}


def test_nccl_uses_the_network_of_the_workers_address_only(
    made: dict[int, Carrier], monkeypatch: pytest.MonkeyPatch
) -> None:
    for group in connect():
        group.drop()
    assert os.environ["NCCL_SOCKET_IFNAME"] == "eth7", "the job's own choice counts"
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"):
        monkeypatch.setenv(name, "")  # so that the end of the test removes it
        monkeypatch.delenv(name)
    for group in connect():
        group.drop()
    assert (os.environ["NCCL_SOCKET_IFNAME"], os.environ["NCCL_SOCKET_FAMILY"]) == ("=lo", "AF_INET")


@pytest.mark.parametrize(
    ("host", "found"), [("::1", ("=lo", "AF_INET6")), ("192.0.2.7", (None, None)), ("a-name", (None, None))]
)
def test_the_network_of_nccl_follows_the_address(
    host: str, found: tuple[str | None, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_SOCKET_FAMILY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    groups._keep_nccl_on(host)
    assert (os.environ.get("NCCL_SOCKET_IFNAME"), os.environ.get("NCCL_SOCKET_FAMILY")) == found


def test_if_nccl_fails_on_one_worker_all_do_without_it(
    made: dict[int, Carrier], monkeypatch: pytest.MonkeyPatch
) -> None:
    def use(carrier: Carrier, _device: torch.device) -> None:
        if carrier.rank == 1:
            raise RuntimeError("unhandled system error\nNCCL version 2")

    monkeypatch.setattr(groups, "_use_once", use)
    for group in connect(3):
        assert (group.device_group, group.obstacle) == (None, "NCCL failed: unhandled system error")
        group.drop()
    assert all(carrier.ended.wait(LIMIT_S) for carrier in made.values())


def test_nccl_that_waits_forever_is_given_up(made: dict[int, Carrier], monkeypatch: pytest.MonkeyPatch) -> None:
    # A peer that dies before it connects leaves the others waiting in NCCL without a limit.
    monkeypatch.setattr(groups, "_NCCL_LIMIT_S", 0.05)
    forever = threading.Event()
    monkeypatch.setattr(groups, "_use_once", lambda _carrier, _device: forever.wait(LIMIT_S))
    for group in connect():
        assert group.obstacle == "NCCL failed: it did not connect within 0.05 s"
        group.drop()
    assert all(carrier.ended.wait(LIMIT_S) for carrier in made.values())
    forever.set()


def test_a_break_reaches_waiting_threads_although_nccl_fails_to_end(made: dict[int, Carrier]) -> None:
    one, other = connect()
    one.break_connections()
    assert one.is_broken and made[0].ended.wait(LIMIT_S)
    with pytest.raises(BrokenView):
        other.barrier()
    for group in (one, other):
        group.drop()


def test_a_gpu_is_known_by_its_address_even_if_it_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_properties(**properties: object) -> str:
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: SimpleNamespace(**properties))
        return identify_gpu(torch.device("cuda:0"))

    first = with_properties(uuid="MIG-a", pci_domain_id=0, pci_bus_id=27, pci_device_id=0)
    assert first == with_properties(uuid="MIG-b", pci_domain_id=0, pci_bus_id=27, pci_device_id=0) == "00:1b:00"
    assert with_properties(uuid="GPU-a") == "GPU-a"  # a torch that does not give the address


def test_nccl_may_not_end_the_processes_of_survivors(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch reads these variables when a group is made; the program's own groups must find them as they were."""
    seen: dict[str, str | None] = {}

    class Nccl:
        class Options:
            pass

        def __init__(self, *_args: object) -> None:
            seen.update({name: os.environ.get(name) for name in names})

    names = ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING")
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", Nccl, raising=False)
    monkeypatch.setenv(names[0], "1")
    monkeypatch.delenv(names[1], raising=False)
    torch_private.make_nccl_group(None, 0, 1, groups._NO_LIMIT)
    assert seen == dict.fromkeys(names, "0")
    assert (os.environ[names[0]], os.environ.get(names[1])) == ("1", None)
