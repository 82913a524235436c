"""Memory goes from view to view only where no process outside the new view can still use it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from legato.train.reduction import kept_memory
from legato.train.reduction.kept_memory import KeptMemory
from legato.train.reduction.segments import Segment

NUM_BYTES = 1 << 16


class Peer:
    """Another process, with a segment of its own."""

    def __init__(self, worker: int) -> None:
        self.worker = worker
        segment = Segment(NUM_BYTES)
        self.pid = os.fork()
        if self.pid == 0:
            while True:
                signal.pause()
        path, mark = segment.address.split()
        # The forked process has the file at the same number.
        self.address = f"{path.replace(str(os.getpid()), str(self.pid))} {mark}"

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        os.waitpid(self.pid, 0)


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    with ExitStack() as stack:
        found = [Peer(number) for number in (1, 2)]
        for peer in found:
            stack.callback(peer.end)
        yield found


def begin(kept: KeptMemory, peers: list[Peer]) -> torch.Tensor:
    """Enter the first view, write into this process's memory, and return it."""
    segment = kept.take(NUM_BYTES, [peer.worker for peer in peers])
    for peer in peers:
        kept.find(peer.worker, peer.address, NUM_BYTES)
    return segment.tensor(0, NUM_BYTES, torch.uint8).fill_(7)


def test_memory_stays_when_the_other_worker_has_ended(peers: list[Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_memory, "_END_LIMIT_MS", 60_000)  # a busy machine may end a killed process late
    kept = KeptMemory()
    old = begin(kept, peers)
    peers[1].signal(signal.SIGKILL)
    segment = kept.take(NUM_BYTES, [1])
    assert segment.tensor(0, 1, torch.uint8).data_ptr() == old.data_ptr()


def test_memory_that_a_stopped_worker_may_read_later_is_not_written(peers: list[Peer]) -> None:
    kept = KeptMemory()
    old = begin(kept, peers)
    peers[1].signal(signal.SIGSTOP)
    segment = kept.take(NUM_BYTES, [1])
    segment.tensor(0, NUM_BYTES, torch.uint8).fill_(9)
    assert old.eq(7).all()
    # The worker has not mapped the new memory, so that stays.
    peers[1].signal(signal.SIGCONT)
    kept.find(1, peers[0].address, NUM_BYTES)
    assert kept.take(NUM_BYTES, [1]) is segment


def test_memory_stays_when_all_who_know_it_are_members(peers: list[Peer]) -> None:
    kept = KeptMemory()
    old = begin(kept, peers)
    segment = kept.take(NUM_BYTES, [1, 2, 3])
    assert segment.tensor(0, 1, torch.uint8).data_ptr() == old.data_ptr()


def test_a_worker_whose_process_was_never_found_may_live(peers: list[Peer]) -> None:
    kept = KeptMemory()
    old = kept.take(NUM_BYTES, [1, 2])
    kept.find(1, peers[0].address, NUM_BYTES)
    peers[1].signal(signal.SIGKILL)
    assert kept.take(NUM_BYTES, [1]) is not old


def test_memory_grows_where_it_is_and_so_does_that_of_peers() -> None:
    one, other = KeptMemory(), KeptMemory()
    first = one.take(NUM_BYTES, [2])
    seen = other.find(1, first.address, NUM_BYTES)
    old = first.tensor(0, NUM_BYTES, torch.uint8).fill_(7)
    grown = one.take(NUM_BYTES + 5000, [2])
    assert grown is first
    assert other.find(1, grown.address, NUM_BYTES + 5000) is seen
    grown.tensor(NUM_BYTES, 5000, torch.uint8).fill_(9)
    assert seen.tensor(NUM_BYTES, 5000, torch.uint8).eq(9).all()
    assert old.eq(7).all()


def test_a_peer_with_new_memory_is_found_there() -> None:
    kept, owner = KeptMemory(), KeptMemory()
    kept.take(NUM_BYTES, [2])
    old = owner.take(NUM_BYTES, [1])
    kept.find(2, old.address, NUM_BYTES)
    owner.drop()
    new = owner.take(NUM_BYTES, [1])
    new.tensor(0, 1, torch.uint8).fill_(9)
    assert kept.find(2, new.address, NUM_BYTES).tensor(0, 1, torch.uint8).item() == 9


@pytest.mark.parametrize("num_bytes", [NUM_BYTES // 3, NUM_BYTES * 3])
def test_memory_of_quite_another_size_is_new(num_bytes: int) -> None:
    kept = KeptMemory()
    old = kept.take(NUM_BYTES, [1])
    segment = kept.take(num_bytes, [1])
    assert segment is not old
    assert segment.num_bytes == num_bytes


def test_the_first_memory_is_large_enough_for_the_next_view() -> None:
    kept = KeptMemory()
    first = kept.take(NUM_BYTES, [1], 3 * NUM_BYTES)
    assert first.num_bytes == 3 * NUM_BYTES
    assert kept.take(3 * NUM_BYTES, [1]) is first
    assert kept.take(NUM_BYTES, [1], 3 * NUM_BYTES) is first, "it will be needed again"


def test_files_are_closed_when_nothing_is_kept(peers: list[Peer]) -> None:
    before = len(os.listdir("/proc/self/fd"))
    kept = KeptMemory()
    begin(kept, peers)
    assert len(set(kept.file_descriptors())) == 3
    kept.drop()
    assert kept.file_descriptors() == []
    assert len(os.listdir("/proc/self/fd")) == before


@given(
    views=st.lists(
        st.tuples(st.sets(st.integers(0, 5), min_size=1), st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5))),
        max_size=8,
    )
)
def test_no_worker_outside_a_view_can_use_its_memory(views: list[tuple[set[int], set[int], set[int]]]) -> None:
    """Each view: its members, those that connect it, and those that end before the next one."""
    with pytest.MonkeyPatch.context() as patch:
        ended: set[int] = set()
        patch.setattr(kept_memory, "_open_process", lambda pid: os.dup(0) if pid not in ended else None)
        kept, can_use = KeptMemory(), dict[str, set[int]]()
        numbers: dict[int, int] = {}
        patch.setattr(kept_memory, "_has_ended", lambda process, _limit_ms: numbers[process] in ended)
        patch.setattr(kept_memory, "Segment", _Nowhere)
        for members, connect, end in views:
            present = members - ended
            segment = kept.take(NUM_BYTES, present)
            users = can_use.setdefault(segment.address, set())
            assert users - ended <= present
            users |= present
            for worker in present & connect:
                kept.find(worker, f"/proc/{worker}/fd/0 mark", NUM_BYTES)
                found = kept._users[worker]
                assert found is not None
                numbers[found] = worker
            ended |= end
        kept.drop()


class _Nowhere:
    """A segment without memory."""

    num_made = 0

    def __init__(self, num_bytes: int, address: str | None = None, *, room_bytes: int = 0) -> None:
        _Nowhere.num_made += 1
        self.address = address or f"/proc/0/fd/{_Nowhere.num_made}"
        self.num_bytes, self.room_bytes = num_bytes, room_bytes

    def grow(self, num_bytes: int) -> None:
        assert num_bytes <= max(self.num_bytes, self.room_bytes)
