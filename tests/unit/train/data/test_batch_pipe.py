"""Batches come from a loader process as they are, by one message each, and leave nothing behind."""

from __future__ import annotations

import errno
import gc
import multiprocessing
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from multiprocessing import resource_sharer
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.multiprocessing
from torch.utils.data import Dataset

from legato.core.errors import DataError
from legato.train.data import batch_pipe, loader_processes
from legato.train.data.fetch import Fetcher
from legato.train.data.loader import Loader
from legato.train.data.loader_processes import LoaderProcesses
from legato.train.data.order import Key, Layout, Order

LARGE = batch_pipe.INLINE_BYTES // 4 + 1  # numbers of a tensor that is shared
ORDER = Order(40, Layout(4, 4), seed=0, shuffle=False)
KEYS = [Key(0, step, 0) for step in range(10)]

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux only")


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Any:
        return number


def large_and_small(numbers: list[int]) -> dict[str, torch.Tensor]:
    """Two tensors are shared, two become part of the pickle."""
    return {
        "large": torch.full((LARGE,), numbers[0]),
        "small": torch.tensor(numbers),
        "other": torch.full((LARGE,), -numbers[0]),
        "turned": torch.arange(12.0).reshape(3, 4).t() + numbers[0],
    }


def make_loader(collate: Callable[[list[int]], Any], **options: Any) -> Loader:
    loader = Loader(Numbers(), ORDER, seed=0, collate_fn=collate, num_workers=1, **options)
    loader.follow(iter(KEYS))
    return loader


def load(collate: Callable[[list[int]], Any], **options: Any) -> list[Any]:
    with closing(make_loader(collate, **options)) as loader:
        return [loader.take()[1] for _ in KEYS]


def flat(batch: dict[str, torch.Tensor]) -> Any:
    return {name: (each.dtype, each.stride(), each.tolist()) for name, each in batch.items()}


def count_fds(pid: int | str = "self") -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def list_shared_memory(pid: int) -> list[str]:
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"torch_{pid}_")]


def pid_of(loader: Loader) -> int:
    assert loader._processes is not None
    (process,) = loader._processes._processes
    return process.process.pid or 0


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def pass_on(batch: Any, end: Callable[[socket.socket], Any] = lambda end: end) -> Any:
    """Send a batch and return what arrives; ``end`` wraps the socket of the sender."""
    with pair() as (ours, theirs):

        def send() -> None:
            with theirs:
                batch_pipe.send(end(theirs), 7, batch)

        sender = threading.Thread(target=send)
        sender.start()
        message = batch_pipe.receive(ours)
        sender.join()
    assert message.token == 7
    return message.open()


# ---------------------------------------------------------------- what arrives


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_batches_arrive_as_they_are(method: str) -> None:
    got = load(large_and_small, multiprocessing_context=method)
    assert [flat(batch) for batch in got] == [
        flat(large_and_small(list(range(first, first + 4)))) for first in range(0, 40, 4)
    ]
    assert all(batch["large"].is_shared() and not batch["small"].is_shared() for batch in got)
    assert all(batch["small"].data_ptr() % 64 == 0 for batch in got), "torch aligns its memory like that"


def test_batches_arrive_with_the_other_way_of_sharing_memory() -> None:
    strategy = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        with closing(make_loader(large_and_small)) as loader:
            got = [loader.take()[1] for _ in KEYS]
            pid = pid_of(loader)
    finally:
        torch.multiprocessing.set_sharing_strategy(strategy)
    assert [flat(batch)["large"][2][0] for batch in got] == list(range(0, 40, 4))
    assert len(list_shared_memory(pid)) == 2 * len(KEYS)
    del got
    assert list_shared_memory(pid) == []


@pytest.mark.parametrize("num_fds", [0, 1, 252, 253, 254, 506, 600])
def test_a_batch_may_have_more_descriptors_than_a_message(num_fds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_pipe, "INLINE_BYTES", 0)
    got = load(lambda numbers: [torch.tensor([numbers[0], at]) for at in range(num_fds)], prefetch_factor=1)
    assert [[each.tolist() for each in batch] for batch in got] == [
        [[first, at] for at in range(num_fds)] for first in range(0, 40, 4)
    ]


def test_large_batches_without_tensors_arrive() -> None:
    def collate(numbers: list[int]) -> Any:
        return {"text": "x" * (3 << 20), "array": np.full(1 << 20, numbers[0]), "numbers": numbers}

    for first, batch in zip(range(0, 40, 4), load(collate), strict=True):
        assert len(batch["text"]) == 3 << 20 and batch["numbers"][0] == first
        assert (batch["array"] == first).all()


@pytest.mark.parametrize("size", [8, LARGE])
def test_tensors_that_share_memory_share_it_when_they_arrive(size: int) -> None:
    def collate(numbers: list[int]) -> Any:
        tensor = torch.zeros(size)
        return tensor, tensor[2:]

    for whole, part in load(collate):
        part.add_(1)
        assert whole[:4].tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("size", [8, LARGE])
def test_conjugates_and_negatives_arrive(size: int) -> None:
    number = torch.complex(torch.ones(size), torch.arange(float(size)))
    sent = {"conjugate": number.conj(), "negative": number.conj().imag, "both": [number, number.conj()]}
    got = pass_on(sent)
    assert torch.equal(got["conjugate"], number.conj())
    assert torch.equal(got["negative"], -number.imag)
    assert torch.equal(got["both"][1], got["both"][0].conj())


def test_memory_that_the_program_shares_stays_shared() -> None:
    batch = [torch.zeros(2).share_memory_()]
    (got,) = pass_on(batch)
    got += 1
    assert batch[0].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_only_a_process_that_starts_may_get_is_refused(is_first: bool) -> None:
    batch = [torch.zeros(LARGE), multiprocessing.Lock()][:: -1 if is_first else 1]
    with (
        closing(make_loader(lambda numbers: batch)) as loader,
        pytest.raises(DataError, match=r"cannot be sent to the trainer: .*Lock objects should only be shared"),
    ):
        loader.take()


def test_a_full_socket_gets_no_large_pickle() -> None:
    with pair() as (ours, theirs):
        sent = 0
        while batch_pipe._has_room(theirs):
            batch_pipe.send(theirs, sent, [torch.zeros(batch_pipe.INLINE_BYTES // 8)])
            sent += 1
        batch_pipe.send(theirs, sent, [torch.ones(2)])
        got = [batch_pipe.receive(ours) for _ in range(sent + 1)]
        assert [message.num_fds for message in got] == [0] * sent + [1]
        assert got[-1].open()[0].tolist() == [1.0, 1.0]


# ---------------------------------------------------------------- how it arrives


def test_no_thread_and_no_connection_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_sharer, "DupFd", lambda _: pytest.fail("a connection per tensor"))

    def collate(numbers: list[int]) -> Any:
        sockets = [name for name in os.listdir("/proc/self/fd") if is_socket(int(name))]
        return large_and_small(numbers), len(threading.enumerate()), len(sockets)

    got = load(collate)
    assert {num_threads for _, num_threads, _ in got} == {1}
    assert len({num_sockets for *_, num_sockets in got}) == 1


def is_socket(fd: int) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    except OSError:
        return False


class Full:
    """A socket of a user whose processes have too many descriptors on the way."""

    def __init__(self, end: socket.socket, num_allowed: int) -> None:
        self.end = end
        self.num_allowed = num_allowed

    def sendmsg(self, buffers: list[Any], rights: list[Any]) -> int:
        if rights and not self.num_allowed:
            raise OSError(errno.ETOOMANYREFS, os.strerror(errno.ETOOMANYREFS))
        self.num_allowed -= bool(rights)
        return self.end.sendmsg(buffers, rights)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.end, name)


@pytest.mark.parametrize("num_allowed", [0, 1])
def test_a_batch_arrives_if_no_descriptor_can_be_sent(num_allowed: int) -> None:
    whole = torch.arange(LARGE)
    batch = [whole, whole[:3], *(torch.full((40_000,), at) for at in range(300)), torch.zeros(3, 2).t()]
    before = count_fds()
    got = pass_on(batch, lambda end: Full(end, num_allowed))
    assert count_fds() == before + 301, "those of the tensors that this process has sent"
    assert [(each.stride(), each.tolist()) for each in got] == [(each.stride(), each.tolist()) for each in batch]
    got[1] += 1
    assert got[0][:4].tolist() == [1, 2, 3, 3]


class Interrupted(Full):
    """A socket that takes a few bytes at a time, as one does when signals arrive."""

    def sendmsg(self, buffers: list[Any], rights: list[Any]) -> int:
        return self.end.sendmsg([bytes(buffers[0][:5])], rights)


def test_a_message_may_come_in_pieces() -> None:
    got = pass_on([torch.arange(LARGE), torch.arange(3)], lambda end: Interrupted(end, 0))
    assert [each.tolist() for each in got] == [list(range(LARGE)), [0, 1, 2]]


# ---------------------------------------------------------------- what goes wrong


@contextmanager
def at_most(num_fds: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_fds, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("num_free", [0, 1, 2])
def test_a_process_with_too_many_open_files_says_so_and_can_go_on(num_free: int) -> None:
    with closing(make_loader(large_and_small)) as loader:
        loader.take()
        before = count_fds()
        highest = max(map(int, os.listdir("/proc/self/fd")))
        filled = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]
        for fd in filled[:num_free]:
            os.close(fd)
        with (
            at_most(max(filled) + 1),
            pytest.raises(DataError, match=r"cannot be received .* keep copies .* raise the limit of open files"),
        ):
            loader.take()
        for fd in filled[num_free:]:
            os.close(fd)
        assert count_fds() == before
        assert [loader.take()[1]["small"][0].item() for _ in KEYS[1:]] == list(range(4, 40, 4))


def test_a_message_that_breaks_off_leaves_no_descriptor() -> None:
    with pair() as (ours, theirs):
        batch_pipe.send(theirs, 0, [torch.zeros(LARGE)])
        head, fds, _, _ = socket.recv_fds(ours, batch_pipe._HEAD.size, batch_pipe.MAX_FDS)
        rest = ours.recv(1 << 20)
        for sent in (head[:5], head, head + rest[:-1]):
            before = count_fds()
            with pair() as (far, near):
                socket.send_fds(near, [sent], fds)
                near.close()
                with pytest.raises(EOFError):
                    batch_pipe.receive(far)
            assert count_fds() == before
        os.close(fds[0])


def test_a_process_that_waits_for_room_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_processes, "CLOSE_LIMIT_S", 20.0)
    monkeypatch.setattr(BaseProcess, "kill", lambda process: pytest.fail(f"{process.name} had to be killed"))
    loader = make_loader(lambda numbers: b"x" * (3 << 20))
    loader.take()
    loader.close()
    assert multiprocessing.active_children() == []


def test_a_process_that_waits_for_room_does_not_stop_its_parent() -> None:
    keys = [Key(0, step, 0) for step in range(3000)]  # more requests than a pipe holds
    order = Order(4 * len(keys), Layout(4, 4), seed=0, shuffle=False)
    fetcher = Fetcher(Numbers(), order, 0, lambda numbers: (numbers[0], b"x" * (0 if numbers[0] else 3 << 20)))
    with closing(LoaderProcesses(fetcher, 1, "fork", list)) as processes:
        processes.request(keys[0])
        assert processes._ready(block=True), "it sends the first batch, for which there is no room"
        for key in keys[1:]:
            processes.request(key)
        assert processes.is_loading(keys[0])
        wanted = {keys[0], *keys[2900:]}
        processes.forget_all_but(wanted)
        got: dict[Key, Any] = {}
        while len(got) < len(wanted):
            got.update(processes.receive(wait=True))
    assert {key: number for key, (number, _) in got.items()} == {key: 4 * key.step for key in wanted}


@pytest.mark.filterwarnings("error")
def test_a_loader_that_is_not_closed_ends_without_a_warning() -> None:
    loader = make_loader(lambda numbers: numbers)
    loader.take()
    del loader
    gc.collect()
    for process in multiprocessing.active_children():
        process.join()


def test_nothing_stays_open_or_in_shared_memory() -> None:
    before = count_fds()
    loader = Loader(Numbers(), ORDER, seed=0, collate_fn=large_and_small, num_workers=1)
    theirs, pid = [], 0
    for _ in range(20):
        loader.follow(iter(KEYS))
        loader.take()
        loader.follow(iter(KEYS[5:]))  # drops what is on the way
        loader.take()
        pid = pid_of(loader)
        theirs.append(count_fds(pid))
    assert max(theirs[10:]) <= max(theirs[:10])
    loader.close()
    assert count_fds() == before
    assert list_shared_memory(pid) == []
