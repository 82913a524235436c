"""Plain sockets between the members of a view, for the small messages for which every step waits.

Gloo is fast with large tensors, but each of its messages wakes two other threads at both ends. Here the training thread
itself writes and reads. Every rank sends before it receives, so ranks never wait for one another in a circle. Sends
bytes only.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from legato.core.errors import ProgramError

_TOKEN_BYTES: Final = 16
_LENGTH: Final = struct.Struct("!Q")
LOST_STEP: Final = (
    "Every worker must make the same calls of run.batches, run.backward, run.note and run.evaluate: not under `if "
    "run.is_main`, and not depending on anything that differs between workers."
)
_GREETING: Final = struct.Struct(f"!{_TOKEN_BYTES}sI")


class ControlSockets:
    """One connection to every other member of a view. For use by one thread at a time.

    Args:
        connections: by rank.
    """

    def __init__(self, connections: Mapping[int, socket.socket]) -> None:
        self._connections = dict(connections)

    def swap(
        self, outgoing: Mapping[int, Sequence[torch.Tensor]], incoming: Mapping[int, Sequence[torch.Tensor]]
    ) -> None:
        """Send tensors to and receive tensors from some ranks at once; all are contiguous and on the CPU.

        Raises:
            OSError: a peer is gone, or `break_connections` was called.
            ProgramError: a peer sends a message of another length: its program is at another place.
        """
        unsent, missing = {}, {}
        for rank, tensors in outgoing.items():
            views = _views(tensors)
            views.insert(0, memoryview(_LENGTH.pack(sum(map(len, views)))))
            left = _advance(views, lambda views, rank=rank: self._send(rank, views))
            if left:
                unsent[rank] = left
        lengths = {rank: bytearray(_LENGTH.size) for rank in incoming}
        for rank, tensors in incoming.items():
            views = _views(tensors)
            if unsent:
                missing[rank] = [memoryview(lengths[rank]), *views]
                continue
            # The length first: the wait for a message of another length would never end.
            self._fill(rank, memoryview(lengths[rank]))
            _check_length(rank, lengths[rank], views)
            for view in views:
                self._fill(rank, view)
        if unsent:
            self._swap_large(unsent, missing)
            for rank, tensors in incoming.items():
                _check_length(rank, lengths[rank], _views(tensors))

    def break_connections(self) -> None:
        """End all operations on these sockets, here and at the peers. Callable from any thread and more than once."""
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections.values():
            connection.close()

    def file_descriptors(self) -> list[int]:
        """Return the descriptors of the connections, which child processes must close."""
        found = [connection.fileno() for connection in self._connections.values()]
        return [descriptor for descriptor in found if descriptor >= 0]

    def _fill(self, rank: int, view: memoryview) -> None:
        num_bytes = 0
        while num_bytes < len(view):
            # A signal may cut the wait short.
            arrived = self._connections[rank].recv_into(view[num_bytes:], 0, socket.MSG_WAITALL)
            if arrived == 0:
                raise ConnectionResetError(f"rank {rank} closed its connection")
            num_bytes += arrived

    def _send(self, rank: int, views: list[memoryview]) -> int:
        try:
            return self._connections[rank].sendmsg(views, [], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return 0

    def _receive(self, rank: int, views: list[memoryview]) -> int:
        try:
            num_bytes = self._connections[rank].recvmsg_into(views, 0, socket.MSG_DONTWAIT)[0]
        except BlockingIOError:
            return 0
        if num_bytes == 0:
            raise ConnectionResetError(f"rank {rank} closed its connection")
        return num_bytes

    def _swap_large(self, unsent: dict[int, list[memoryview]], missing: dict[int, list[memoryview]]) -> None:
        """Continue with a message that does not fit into the sockets' buffers: receive while sending, as peers do."""
        with selectors.DefaultSelector() as selector:
            missing = {rank: views for rank, views in missing.items() if views}
            for rank in {*unsent, *missing}:
                events = (rank in unsent) * selectors.EVENT_WRITE | (rank in missing) * selectors.EVENT_READ
                selector.register(self._connections[rank], events, rank)
            while unsent or missing:
                for key, ready in selector.select():
                    rank = key.data
                    if ready & selectors.EVENT_READ and rank in missing:
                        missing[rank] = _advance(missing[rank], lambda views, rank=rank: self._receive(rank, views))
                    if ready & selectors.EVENT_WRITE and rank in unsent:
                        unsent[rank] = _advance(unsent[rank], lambda views, rank=rank: self._send(rank, views))
                    events = bool(unsent.get(rank)) * selectors.EVENT_WRITE
                    events |= bool(missing.get(rank)) * selectors.EVENT_READ
                    for waiting in (unsent, missing):
                        if not waiting.get(rank):
                            waiting.pop(rank, None)
                    if events:
                        selector.modify(key.fileobj, events, rank)
                    else:
                        selector.unregister(key.fileobj)


def connect(store: Any, rank: int, hosts: Sequence[str], limit_s: float) -> ControlSockets:
    """Connect the members of a view; every member calls this.

    Args:
        store: a ``torch.distributed`` store that all members share; it has no value yet under the keys used here.
        rank: of this member.
        hosts: addresses of all members, in rank order.
        limit_s: seconds to wait for the connection of each peer, and for its greeting.

    Raises:
        OSError: a peer did not connect in time.
        RuntimeError: the store did not answer.
    """
    connections: dict[int, socket.socket] = {}
    token = b""
    with socket.create_server((hosts[rank], 0), backlog=len(hosts)) as listener:
        listener.settimeout(limit_s)
        own = secrets.token_hex(_TOKEN_BYTES)
        store.set(f"mesh/{rank}", f"{listener.getsockname()[1]} {own}")
        token = bytes.fromhex(own)
        try:
            for peer in range(rank):
                port, theirs = store.get(f"mesh/{peer}").decode().split()
                connection = socket.create_connection((hosts[peer], int(port)), timeout=limit_s)
                connections[peer] = connection
                connection.sendall(_GREETING.pack(bytes.fromhex(theirs), rank))
            while len(connections) < len(hosts) - 1:
                connection, _ = listener.accept()
                connection.settimeout(limit_s)
                greeting = connection.recv(_GREETING.size, socket.MSG_WAITALL)
                given, peer = _GREETING.unpack(greeting) if len(greeting) == _GREETING.size else (b"", -1)
                if secrets.compare_digest(given, token) and rank < peer < len(hosts) and peer not in connections:
                    connections[peer] = connection
                else:
                    connection.close()
        except BaseException:
            for connection in connections.values():
                connection.close()
            raise
    for connection in connections.values():
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return ControlSockets(connections)


def _check_length(rank: int, told: bytes | bytearray, views: Sequence[memoryview]) -> None:
    (theirs,), mine = _LENGTH.unpack(told), sum(map(len, views))
    if theirs != mine:
        raise ProgramError(
            f"The workers have made different calls: rank {rank} sends {theirs} bytes where {mine} are expected. "
            f"{LOST_STEP}"
        )


def _views(tensors: Sequence[torch.Tensor]) -> list[memoryview]:
    arrays: list[Any] = [tensor.numpy() for tensor in tensors if tensor.numel()]
    return [memoryview(array).cast("B") for array in arrays]


def _advance(views: list[memoryview], move: Any) -> list[memoryview]:
    """Send or receive bytes once and return the rest."""
    num_bytes = move(views) if views else 0
    left = []
    for view in views:
        if num_bytes >= len(view):
            num_bytes -= len(view)
        else:
            left.append(view[num_bytes:])
            num_bytes = 0
    return left
