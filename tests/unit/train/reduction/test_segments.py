"""Shared memory belongs to the workers alone: what they fork neither keeps it alive nor trips over where it was."""

import ctypes
import gc
import mmap
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from legato.train.reduction.segments import Segment, StrangeSegment

NUM_BYTES = 1 << 20
MAP_FIXED = 0x10


def in_child(test: Callable[[], bool]) -> bool:
    """Return what a test says in a forked process."""
    child = os.fork()
    if child == 0:
        verdict = 1
        try:
            verdict = 0 if test() else 2
        finally:
            os._exit(verdict)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def is_mapped(address: int) -> bool:
    ranges = re.findall(r"^(\w+)-(\w+) ", Path("/proc/self/maps").read_text(), re.MULTILINE)
    return any(int(start, 16) <= address < int(end, 16) for start, end in ranges)


def test_peers_share_it() -> None:
    own = Segment(NUM_BYTES)
    peer = Segment(NUM_BYTES, own.address)
    own.tensor(8, 3, torch.float32).copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert peer.tensor(8, 3, torch.float32).tolist() == [1.0, 2.0, 3.0]
    own.hide()
    with pytest.raises(OSError, match="No such file"):
        Segment(NUM_BYTES, own.address)


def test_a_segment_of_a_stranger_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    # As in two PID namespaces: the path of a peer leads to a file of another process.
    stranger, peer = Segment(NUM_BYTES), Segment(NUM_BYTES)
    path, mark = stranger.address.split()[0], peer.address.split()[1]
    monkeypatch.setattr(os, "open", no_call)
    for told in (f"{path} {mark}", path, f"{path} "):
        with pytest.raises(StrangeSegment, match="not a segment with the mark"):
            Segment(NUM_BYTES, told)


def test_a_file_that_is_no_segment_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "legato-00").open("wb") as file:
        monkeypatch.setattr(os, "open", no_call)
        with pytest.raises(StrangeSegment, match="legato-00"):
            Segment(NUM_BYTES, f"/proc/{os.getpid()}/fd/{file.fileno()} 00")


def test_a_stranger_that_takes_the_number_meanwhile_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    stranger, peer = Segment(NUM_BYTES), Segment(NUM_BYTES)
    opening, mapping = os.open, mmap.mmap
    monkeypatch.setattr(os, "open", lambda _path, flags: opening(stranger.address.split()[0], flags))
    monkeypatch.setattr(mmap, "mmap", no_call)
    with pytest.raises(StrangeSegment):
        Segment(NUM_BYTES, peer.address)
    monkeypatch.setattr(mmap, "mmap", mapping)


def no_call(*_args: object) -> None:
    raise AssertionError("a stranger's memory was touched")


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTFORK"), reason="this system cannot keep memory from forked processes")
def test_a_forked_process_does_not_have_it() -> None:
    own = Segment(NUM_BYTES)
    peer = Segment(NUM_BYTES, own.address)
    own.hide()
    assert "memfd:legato" in Path("/proc/self/maps").read_text()
    assert in_child(lambda: "memfd:legato" not in Path("/proc/self/maps").read_text())
    # The owner keeps it, of course.
    own.tensor(0, 1, torch.uint8).fill_(7)
    assert peer.tensor(0, 1, torch.uint8).item() == 7


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTFORK"), reason="this system cannot keep memory from forked processes")
def test_a_forked_process_that_drops_its_copy_unmaps_nothing_else() -> None:
    kept = [Segment(NUM_BYTES)]
    address = kept[0].tensor(0, 1, torch.uint8).data_ptr()

    def drop() -> bool:
        libc = ctypes.CDLL(None)
        libc.mmap.restype = ctypes.c_void_p
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
        place = libc.mmap(ctypes.c_void_p(address), NUM_BYTES, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        kept.clear()
        gc.collect()
        return bool(place == address and is_mapped(address))

    assert in_child(drop)
    # No other process keeps it: it goes with its owner's last word.
    kept.clear()
    gc.collect()
    assert not is_mapped(address)
