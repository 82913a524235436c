"""Plain sockets between the members of a view, for the small messages for which every step waits.

Gloo is fast with large tensors, but each of its messages wakes two other threads at both ends. Here the training thread
itself writes and reads. Every rank sends before it receives, so ranks never wait for one another in a circle. Sends
bytes only.

Before a connection is used, each end proves to the other that it belongs to the view: both send a fresh nonce, and
answer the other's nonce with a code that only a process with the job's secret can make.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from legato.core.errors import ProgramError
from legato.train.membership.view_secret import CODE_BYTES, ForeignValue, ViewSecret

_TOKEN_BYTES: Final = 16
_LENGTH: Final = struct.Struct("!Q")
LOST_STEP: Final = (
    "Every worker must make the same calls of run.batches, run.backward, run.note and run.evaluate: not under `if "
    "run.is_main`, and not depending on anything that differs between workers. If the program leaves a loop by a count "
    "or a best value of its own, as early stopping does, a worker that joined later began with another one: keep such "
    "values in an object with state_dict() and load_state_dict(), and give it to run.prepare."
)
_OLD_GREETING: Final = struct.Struct(f"!{_TOKEN_BYTES}sI")
_MARK: Final = b"legato 1"
_NONCE_BYTES: Final = 32
_GREETING: Final = struct.Struct(f"!{len(_MARK)}sI{_NONCE_BYTES}s")
_NUM_STRANGERS: Final = 64
"""How many connections may wait for a proof, besides those of the members; the oldest makes room for a new one."""


class PeerError(OSError):
    """A member of a view cannot be connected.

    Args:
        rank: of the member.
        reason: a part of a sentence.
        is_direct: this member could not reach it; False: it has not answered in time, for any reason.
    """

    def __init__(self, rank: int, reason: str, *, is_direct: bool = True) -> None:
        super().__init__(reason)
        self.rank = rank
        self.is_direct = is_direct


class ControlSockets:
    """One connection to every other member of a view. For use by one thread at a time.

    Args:
        connections: by rank.
        nonces: of this end and of the other end of each connection, by rank; without them, the ends proved nothing.
    """

    def __init__(
        self, connections: Mapping[int, socket.socket], nonces: Mapping[int, tuple[bytes, bytes]] | None = None
    ) -> None:
        self._connections = dict(connections)
        self.nonces = nonces or {}

    def begin(self) -> None:
        """Make the connections ready for messages."""
        for connection in self._connections.values():
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

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


def connect(
    store: Any, rank: int, hosts: Sequence[str], limit_s: float, secret: ViewSecret | None = None
) -> ControlSockets:
    """Connect the members of a view; every member calls this.

    Args:
        store: a ``torch.distributed`` store that all members share; it has no value yet under the keys used here. With
            a secret, its values must be those of members.
        rank: of this member.
        hosts: addresses of all members, in rank order.
        limit_s: seconds to wait for the next member. Other processes that connect do not make the wait longer.
        secret: of the view. None: a member runs an earlier release, in which a token from the store is the only proof.

    Raises:
        PeerError: a peer cannot be reached, or did not connect in time.
        OSError: this member cannot listen at its address, or a peer is not a member of the view.
        RuntimeError: the store did not answer.
    """
    family = socket.AF_INET6 if ":" in hosts[rank] else socket.AF_INET
    with socket.create_server((hosts[rank], 0), family=family, backlog=len(hosts) + _NUM_STRANGERS) as listener:
        if secret is None:
            sockets = ControlSockets(_meet_by_token(store, rank, hosts, limit_s, listener))
        else:
            with contextlib.closing(_Meeting(store, rank, hosts, limit_s, secret)) as meeting:
                members = meeting.meet(listener)
            sockets = ControlSockets(
                {peer: greeting.connection for peer, greeting in members.items()},
                {peer: (greeting.nonce, greeting.their_nonce) for peer, greeting in members.items()},
            )
    sockets.begin()
    return sockets


class _Greeting:
    """A connection between two members, until each has proved to the other that it belongs to the view.

    Args:
        connection: to the other end; the greeting is sent here.
        rank: of this member.
        secret: of the view.
        expected: ranks that the other end can have.
    """

    def __init__(self, connection: socket.socket, rank: int, secret: ViewSecret, expected: range) -> None:
        self.connection = connection
        self.expected = expected
        self.peer = -1
        self.nonce, self.their_nonce = secrets.token_bytes(_NONCE_BYTES), b""
        self._rank = rank
        self._secret = secret
        self._arrived = bytearray()
        connection.setblocking(False)
        connection.sendall(_GREETING.pack(_MARK, rank, self.nonce))

    def advance(self) -> bool:
        """Receive what has come, and answer it; return whether the other end has proved that it is a member.

        Raises:
            OSError: it has closed the connection, or is no member of the view.
        """
        # Not more than that: what follows belongs to the messages of the view.
        arrived = self.connection.recv(_GREETING.size + CODE_BYTES - len(self._arrived))
        if not arrived:
            raise ConnectionResetError("the other end closed the connection before it proved that it is a member")
        self._arrived += arrived
        if self.peer < 0 and len(self._arrived) >= _GREETING.size:
            mark, peer, self.their_nonce = _GREETING.unpack_from(self._arrived)
            if mark != _MARK or peer not in self.expected:
                raise ConnectionRefusedError("the other end is not the expected member of the view")
            self.peer = peer
            self.connection.sendall(self._secret.sign("control", self._rank, peer, self.nonce, self.their_nonce))
        if len(self._arrived) < _GREETING.size + CODE_BYTES:
            return False
        code = bytes(self._arrived[_GREETING.size :])
        if not self._secret.has_signed(code, "control", self.peer, self._rank, self.their_nonce, self.nonce):
            raise ConnectionRefusedError("the other end does not have the secret of the view")
        return True


class _Meeting:
    """Connects one member to all others, and lets any other process that connects wait. Use it once.

    Args:
        as in `connect`.
    """

    def __init__(self, store: Any, rank: int, hosts: Sequence[str], limit_s: float, secret: ViewSecret) -> None:
        self._store = store
        self._rank = rank
        self._hosts = hosts
        self._limit_s = limit_s
        self._secret = secret
        self._above = range(rank + 1, len(hosts))
        self._selector = selectors.DefaultSelector()
        self._unproved: dict[_Greeting, None] = {}  # the oldest first
        self._members: dict[int, _Greeting] = {}
        self._is_met = False

    def meet(self, listener: socket.socket) -> dict[int, _Greeting]:
        """Return the greetings of all other members, by rank; each member connects to those of lower rank."""
        self._store.set(f"mesh/{self._rank}", str(listener.getsockname()[1]))
        for peer in range(self._rank):
            try:
                port = int(self._store.get(f"mesh/{peer}"))
            except ForeignValue:
                raise
            except RuntimeError as error:
                raise PeerError(peer, "it has not begun to listen", is_direct=False) from error
            try:
                # Before the peers that wait for it give up: this member knows more about what is wrong.
                connection = socket.create_connection((self._hosts[peer], port), timeout=self._limit_s / 2)
            except OSError as error:
                raise PeerError(peer, f"port {port}: {error.strerror or error}") from error
            self._greet(connection, range(peer, peer + 1))
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ)
        deadline = time.monotonic() + self._limit_s
        while len(self._members) < len(self._hosts) - 1:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                missing = min({*range(len(self._hosts))} - {*self._members, self._rank})
                raise PeerError(missing, "it has not connected", is_direct=False)
            for key, _ in self._selector.select(left_s):
                if key.data is None:
                    self._accept(listener)
                elif key.data in self._unproved and self._advance(key.data):
                    deadline = time.monotonic() + self._limit_s
        self._is_met = True
        return self._members

    def close(self) -> None:
        """Close the connections to processes that have proved nothing; to all, if not all members were met."""
        self._selector.close()
        for greeting in [*self._unproved, *(() if self._is_met else self._members.values())]:
            greeting.connection.close()

    def _greet(self, connection: socket.socket, expected: range) -> None:
        try:
            greeting = _Greeting(connection, self._rank, self._secret, expected)
        except BaseException:
            connection.close()
            raise
        self._unproved[greeting] = None
        self._selector.register(connection, selectors.EVENT_READ, greeting)

    def _accept(self, listener: socket.socket) -> None:
        # An error on a connection that another process has made does not concern the members.
        with contextlib.suppress(BlockingIOError, ConnectionError):
            self._greet(listener.accept()[0], self._above)
        strangers = [greeting for greeting in self._unproved if greeting.expected is self._above]
        if len(strangers) > len(self._above) + _NUM_STRANGERS:
            self._forget(strangers[0])

    def _advance(self, greeting: _Greeting) -> bool:
        """Continue a greeting; return whether a member has been met by it.

        Raises:
            OSError: a member to which this one has connected cannot be met.
        """
        try:
            if not greeting.advance():
                return False
        except BlockingIOError:
            return False
        except OSError as error:
            self._forget(greeting)
            if greeting.expected is not self._above:
                raise ConnectionRefusedError(f"rank {greeting.expected[0]}: {error}") from error
            return False
        if greeting.peer in self._members:
            self._forget(greeting)
            return False
        self._members[greeting.peer] = greeting
        del self._unproved[greeting]
        self._selector.unregister(greeting.connection)
        return True

    def _forget(self, greeting: _Greeting) -> None:
        del self._unproved[greeting]
        self._selector.unregister(greeting.connection)
        greeting.connection.close()


def _meet_by_token(
    store: Any, rank: int, hosts: Sequence[str], limit_s: float, listener: socket.socket
) -> dict[int, socket.socket]:
    """Connect the members of a view as earlier releases do, and return the connections by rank."""
    connections: dict[int, socket.socket] = {}
    listener.settimeout(limit_s)
    own = secrets.token_hex(_TOKEN_BYTES)
    store.set(f"mesh/{rank}", f"{listener.getsockname()[1]} {own}")
    token = bytes.fromhex(own)
    try:
        for peer in range(rank):
            port, theirs = store.get(f"mesh/{peer}").decode().split()
            connection = socket.create_connection((hosts[peer], int(port)), timeout=limit_s)
            connections[peer] = connection
            connection.sendall(_OLD_GREETING.pack(bytes.fromhex(theirs), rank))
        while len(connections) < len(hosts) - 1:
            connection, _ = listener.accept()
            connection.settimeout(limit_s)
            greeting = connection.recv(_OLD_GREETING.size, socket.MSG_WAITALL)
            given, peer = _OLD_GREETING.unpack(greeting) if len(greeting) == _OLD_GREETING.size else (b"", -1)
            if secrets.compare_digest(given, token) and rank < peer < len(hosts) and peer not in connections:
                connections[peer] = connection
            else:
                connection.close()
    except BaseException:
        for connection in connections.values():
            connection.close()
        raise
    return connections


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
