"""Memory shared by the workers of one machine: each writes only its own segment and reads those of its peers.

A segment is anonymous memory. Peers map it by ``/proc/PID/fd`` while its owner holds it open, so no file is left when a
process dies. On another machine, or in another container, the same path can lead to a file of an unrelated process. So
each segment has a random mark, which its owner sends to its peers over their connections and which the kernel shows as
part of the link's target: a peer reads the link, and opens only what has the mark. All of its memory is reserved before
it is mapped: a later shortage would end the process with SIGBUS. Processes that a worker forks do not inherit it. Knows
nothing of its content.
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

    Attributes:
        address: by which peers find the segment until `hide` is called: its path, a space, and its mark.

    Raises:
        StrangeSegment: the path leads to something else: its owner is on another machine or in another container.
        OSError: there is not enough memory, the segment does not exist, or this system is not Linux.
    """

    def __init__(self, num_bytes: int, address: str | None = None) -> None:
        self._descriptor: int | None = None
        if address is None:
            mark = secrets.token_hex(_MARK_BYTES)
            descriptor = _make_anonymous(f"{_NAME}-{mark}")
            self._descriptor = descriptor
            try:
                os.posix_fallocate(descriptor, 0, num_bytes)
            except OSError:
                self.hide()
                raise
            self.address = f"/proc/{os.getpid()}/fd/{descriptor} {mark}"
        else:
            self.address = address
            descriptor = _open_marked(address)
        try:
            if os.fstat(descriptor).st_size < num_bytes:
                raise OSError(f"the segment {address} is smaller than the {num_bytes} bytes that were agreed on")
            self._map = mmap.mmap(descriptor, num_bytes)
        finally:
            if address is not None:
                os.close(descriptor)
        _keep_from_children(self._map)
        self._bytes = torch.frombuffer(self._map, dtype=torch.uint8)
        _populate(self._bytes, for_writing=address is None)

    def tensor(self, offset_bytes: int, numel: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a view of ``numel`` elements of the segment, shape ``[numel]``."""
        num_bytes = numel * dtype.itemsize
        return self._bytes[offset_bytes : offset_bytes + num_bytes].view(dtype)

    def hide(self) -> None:
        """Prevent further mappings; the segment exists until the last mapping ends. Idempotent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
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
