"""Sends batches from a loader process to its parent over a pair of sockets. Never decides what is sent, or when.

A batch is pickled. Small tensors are part of the pickle. Large ones are in shared memory, whose file descriptors travel
beside the pickle in the same message.

Why not torch's own way: for each tensor, the parent makes a connection of its own to the loader process. A thread there
answers it, as soon as the code that loads gives up the interpreter.
"""

from __future__ import annotations

import ctypes
import errno
import io
import math
import os
import pickle
import select
import socket
import struct
import threading
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final, NamedTuple

import torch
import torch.multiprocessing  # teaches pickle to put tensors into shared memory

from legato.train import torch_private

MAX_FDS: Final = 253  # of one message: the limit of Linux
INLINE_BYTES: Final = 128 << 10  # a socket that has room holds this (208 KiB), so the sender does not have to wait
_HEAD: Final = struct.Struct("<qQB")  # token, bytes of the pickle, number of descriptors; MAX_FDS: more follow


class Message(NamedTuple):
    """A batch that has arrived.

    Args:
        token: what the sender has called it.
        pickled: the batch.
        fds: the descriptors that have arrived with it.
        num_fds: how many were sent.
    """

    token: int
    pickled: bytearray
    fds: list[int]
    num_fds: int

    def open(self) -> Any:
        """Return the batch. Call it once: it closes the descriptors.

        Raises:
            OSError: this process may open no more files.
            RuntimeError: torch cannot map the memory of a tensor.
        """
        _arrived.fds = dict(enumerate(self.fds))
        try:
            if len(self.fds) < self.num_fds:
                raise OSError(errno.EMFILE, f"{os.strerror(errno.EMFILE)}: its memory has not arrived")
            return pickle.loads(self.pickled)  # noqa: S301 - from our child
        finally:
            _close(_arrived.fds.values())


class Descriptor(NamedTuple):
    """Stands for a descriptor in a pickle; torch calls `detach` to get it when it rebuilds a tensor."""

    number: int

    def detach(self) -> int:
        """Return the descriptor, which the caller closes."""
        return _arrived.fds.pop(self.number)


class _Arrived(threading.local):
    """The descriptors of the message that this thread opens, by number."""

    fds: dict[int, int]


_arrived: Final = _Arrived()


def send(end: socket.socket, token: int, batch: Any) -> None:
    """Send a batch, and wait until the socket has room for it.

    Raises:
        OSError: the receiver has closed its end.
        Exception: the batch cannot be pickled; nothing was sent.
    """
    pickled, memory = _pickle(batch, _Memory(INLINE_BYTES if _has_room(end) else 0))
    fds = memory.fds
    try:
        while len(fds) >= MAX_FDS:
            _send(end, token, bytearray(_HEAD.size), fds[:MAX_FDS])
            fds = fds[MAX_FDS:]
        _send(end, token, pickled, fds)
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
        # All processes of this user have too many descriptors on the way. A message without any gets through.
        pickled, _ = _pickle(batch, _Memory(math.inf))
        _send(end, token, pickled, ())


def receive(end: socket.socket) -> Message:
    """Wait for a message.

    Raises:
        EOFError: the sender has ended, perhaps in the middle of the message.
    """
    fds: list[int] = []
    num_fds = 0
    try:
        while True:
            head, found, _, _ = socket.recv_fds(end, _HEAD.size, MAX_FDS)
            fds += found
            token, size, num_here = _HEAD.unpack(head + _read(end, _HEAD.size - len(head)))
            num_fds += num_here
            if num_here < MAX_FDS:
                return Message(token, _read(end, size), fds, num_fds)
    except BaseException:
        _close(fds)
        raise


class _Memory:
    """Writes the memory of tensors into a pickle, as bytes or as a `Descriptor`.

    Args:
        room: how many bytes may become part of the pickle. Infinite: all of them must.
    """

    def __init__(self, room: float) -> None:
        self.fds: list[int] = []
        self._room = room
        # The descriptors are theirs. A pickled object may have made a tensor only to be pickled.
        self._owners: list[torch.UntypedStorage] = []

    def reduce(self, storage: torch.UntypedStorage) -> Any:
        """Return how to pickle the memory of a tensor."""
        size = storage.nbytes()
        if (
            storage.device.type == "cpu"
            and 0 < size <= self._room
            and (self._room == math.inf or not storage.is_shared())
        ):
            self._room -= size
            return _storage_of, (ctypes.string_at(storage.data_ptr(), size),)
        self._owners.append(storage)
        return torch_private.reduce_storage(storage, self._add)

    def _add(self, fd: int) -> Descriptor:
        self.fds.append(fd)
        return Descriptor(len(self.fds) - 1)


def _storage_of(data: bytes) -> torch.UntypedStorage:
    # In memory that torch has allocated: the bits of some operations depend on the alignment.
    return torch.UntypedStorage.from_buffer(data, dtype=torch.uint8)


def _pickle(batch: Any, memory: _Memory) -> tuple[memoryview, _Memory]:
    """Return the pickle behind the room for its head, and the descriptors that belong to it."""
    file = io.BytesIO()
    file.write(bytes(_HEAD.size))
    pickler = ForkingPickler(file)
    table = pickler.dispatch_table
    reduce_tensor = partial(_reduce_tensor, table[torch.Tensor])
    pickler.dispatch_table = {**table, torch.Tensor: reduce_tensor, torch.UntypedStorage: memory.reduce}
    pickler.dump(batch)
    return file.getbuffer(), memory


def _reduce_tensor(reduce: Callable[[torch.Tensor], Any], tensor: torch.Tensor) -> Any:
    # torch sends the memory, and forgets that the values are its conjugates or negatives.
    return reduce(tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor)


def _has_room(end: socket.socket) -> bool:
    """Return whether most of the socket's room is free."""
    poll = select.poll()
    poll.register(end, select.POLLOUT)
    return bool(poll.poll(0))


def _send(end: socket.socket, token: int, data: bytearray | memoryview, fds: Sequence[int]) -> None:
    _HEAD.pack_into(data, 0, token, len(data) - _HEAD.size, len(fds))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", fds))] if fds else []
    sent = end.sendmsg([data], rights)
    end.sendall(memoryview(data)[sent:])


def _read(end: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        num_bytes = end.recv_into(rest)
        if not num_bytes:
            raise EOFError
        rest = rest[num_bytes:]
    return data


def _close(fds: Any) -> None:
    for fd in fds:
        os.close(fd)
