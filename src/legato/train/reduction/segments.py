"""Memory shared by the workers of one machine: each writes only its own segment and reads those of its peers.

A segment is anonymous memory. Peers map it by ``/proc/PID/fd`` while its owner holds it open, so no file is left when a
process dies. On another machine, or in another container, the same path can lead to a file of an unrelated process. So
each segment has a random mark, which its owner sends to its peers over their connections and which the kernel shows as
part of the link's target: a peer reads the link, and opens only what has the mark. All of its memory is reserved before
it is used: a later shortage would end the process with SIGBUS. The file is larger, so that the segment can grow where
it is mapped. Processes that a worker forks do not inherit it. Knows nothing of its content.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import secrets
import sys
import weakref
from typing import Final

import torch

_MADV_POPULATE_READ: Final = 22
_MADV_POPULATE_WRITE: Final = 23
_NAME: Final = "legato"
_MARK_BYTES: Final = 16

_mapped: Final[weakref.WeakSet[mmap.mmap]] = weakref.WeakSet()


class StrangeSegment(OSError):
    """What is at a peer's path is not the peer's segment; it was not opened."""


class Segment:
    """One worker's shared memory, mapped into this process.

    Args:
        num_bytes: size of the segment.
        address: of a peer's segment; None to make a new one.
        room_bytes: to which `grow` can enlarge a new one; memory is reserved for ``num_bytes`` only.

    Attributes:
        address: by which peers find the segment until `hide` is called: its path, a space, and its mark.
        num_bytes: size of the segment.
        room_bytes: to which `grow` can enlarge it.
        is_written: this process has begun a step in it; set by the user.

    Raises:
        StrangeSegment: the path leads to something else: its owner is on another machine or in another container.
        OSError: there is not enough memory, the segment does not exist, or this system is not Linux.
    """

    def __init__(self, num_bytes: int, address: str | None = None, *, room_bytes: int = 0) -> None:
        self._file: _File | None = None
        self.num_bytes = 0
        self.is_written = False
        if address is None:
            mark = secrets.token_hex(_MARK_BYTES)
            self._file = _File(_make_anonymous(f"{_NAME}-{mark}"))
            self.address = f"/proc/{os.getpid()}/fd/{self._file.descriptor} {mark}"
            os.truncate(self._file.descriptor, max(num_bytes, room_bytes))
            self._map_file(self._file.descriptor)
        else:
            self.address = address
            descriptor = _open_marked(address)
            try:
                self._map_file(descriptor)
            finally:
                os.close(descriptor)
        self.grow(num_bytes)

    def _map_file(self, descriptor: int) -> None:
        self.room_bytes = os.fstat(descriptor).st_size
        self._map = mmap.mmap(descriptor, self.room_bytes)
        _keep_from_children(self._map)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    def grow(self, num_bytes: int) -> None:
        """Enlarge this process's use of the segment; its owner first. What it contains, and tensors of it, stay.

        Raises:
            OSError: there is not enough memory, or no room.
        """
        if num_bytes > self.room_bytes:
            raise OSError(f"the segment {self.address} is smaller than the {num_bytes} bytes that were agreed on")
        if num_bytes <= self.num_bytes:
            return
        if self._file is not None:
            os.posix_fallocate(self._file.descriptor, self.num_bytes, num_bytes - self.num_bytes)
        start = self.num_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        _populate(self._bytes[start:num_bytes], for_writing=self._file is not None)
        self.num_bytes = num_bytes

    def tensor(self, offset_bytes: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a view of ``numel`` elements of the segment, shape ``[numel]``."""
        num_bytes = numel * dtype.itemsize
        return self._bytes[offset_bytes : offset_bytes + num_bytes].view(dtype)

    def hide(self) -> None:
        """Prevent further mappings; the segment exists until the last mapping ends. Idempotent."""
        self._file = None

    def file_descriptors(self) -> list[int]:
        """Return the descriptor by which it is found, which child processes must close; nothing if it is hidden."""
        return [] if self._file is None else [self._file.descriptor]


class _File:
    """An open file, closed with the last reference to this object in the process that has opened it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, _close_file, descriptor, os.getpid())


def _close_file(descriptor: int, pid: int) -> None:
    # A forked process may have closed its copy, and have another file at its number.
    if os.getpid() == pid:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _populate(memory: torch.Tensor, *, for_writing: bool) -> None:
    """Make the kernel map all pages now, in the background, instead of one by one in the next step."""
    with contextlib.suppress(OSError, AttributeError):
        # Not mmap.madvise: it would hold the interpreter's lock and so stop the training until it returns. An older
        # kernel refuses the unknown advice, and maps the pages in the next step.
        advice = _MADV_POPULATE_WRITE if for_writing else _MADV_POPULATE_READ
        ctypes.CDLL(None).madvise(ctypes.c_void_p(memory.data_ptr()), ctypes.c_size_t(memory.numel()), advice)


def _keep_from_children(memory: mmap.mmap) -> None:
    """Exclude the mapping from processes forked from now on: a loader process may outlive many views."""
    if hasattr(mmap, "MADV_DONTFORK"):
        memory.madvise(mmap.MADV_DONTFORK)
        _mapped.add(memory)


def _forget_in_child() -> None:
    # When a child drops its copy of the object, it unmaps these addresses, where it may have mapped other memory by
    # then. So the object is never dropped.
    for memory in _mapped:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))


os.register_at_fork(after_in_child=_forget_in_child)


def _make_anonymous(name: str) -> int:
    if sys.platform != "linux":
        raise OSError("this system has no anonymous files that other processes can map")
    return os.memfd_create(name)


def _open_marked(address: str) -> int:
    """Open a peer's segment; returns its descriptor."""
    path, _, mark = address.partition(" ")
    _check_mark(path, path, mark)
    descriptor = os.open(path, os.O_RDWR)
    try:
        # Again, because the process may have ended, and another one have its number, since the link was read.
        _check_mark(f"/proc/self/fd/{descriptor}", path, mark)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_mark(link: str, path: str, mark: str) -> None:
    found = os.readlink(link)
    if not mark or found.removesuffix(" (deleted)") != f"/memfd:{_NAME}-{mark}":
        raise StrangeSegment(f"{path} is not a segment with the mark that its owner sent, but {found}")
