"""Process groups of one view, behind a thin interface: build, swap, break, drop. Decides nothing about membership.

Raw ``ProcessGroupGloo`` objects are used, never ``init_process_group``: a worker holds the groups of two views at once
while it switches, and drops a broken one without agreement. A gloo operation whose peer is stopped blocks forever and
no call of torch ends it. Shutting down the group's own TCP connections ends most of them, in milliseconds. So every
group knows the listening ports of its members, and finds its connections by them among the open files of the process.
But gloo forgets an operation that was partly sent or received when the connection ends, and the wait for it never ends.
So another thread waits in gloo, and the caller continues when the connections are gone.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import ctypes
import datetime
import functools
import os
import queue
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
import torch

from legato.core.errors import BrokenView
from legato.core.view import View, nodes_of, proves
from legato.system.hosts import find_interface
from legato.train import torch_private
from legato.train.membership.control_sockets import ControlSockets, PeerError, connect
from legato.train.membership.store_clients import give_back, open_client
from legato.train.membership.view_secret import CODE_BYTES, ViewSecret

_BUILD_LIMIT_S: Final = 20.0
_NCCL_LIMIT_S: Final = 20.0
_NUM_TRIES: Final = 10
_END_LIMIT: Final = datetime.timedelta(seconds=5)
_POLL_S: Final = 0.001
_LOOK_S: Final = 2.0
_LOST_S: Final = 0.2
# A peer may compute for hours before it reaches a collective. Only the driver decides that the peer hangs, and has the
# connections broken then.
_NO_LIMIT: Final = datetime.timedelta(days=3650)
_listening: Final = threading.Lock()
_dropped: Final[queue.SimpleQueue[tuple[Any, Any] | None]] = queue.SimpleQueue()
_idle_waiters: Final[list[queue.SimpleQueue[Callable[[], None]]]] = []
_starting: Final = threading.Lock()
_PLACE: Final = re.compile(r"^\[[^\]]*:\d+\] ")
_PROOF_TAG: Final = 2000
_SO_ATTACH_FILTER: Final = 26  # of Linux; Python has no name for it
_BPF_RETURN: Final = 0x06
_TOKEN: Final = torch.zeros(1, dtype=torch.uint8)


class Pending(Protocol):
    """An operation in progress that can be waited for once."""

    def wait(self, limit: datetime.timedelta) -> None:
        """Wait for the operation. Raises RuntimeError if it fails or takes longer than the limit."""
        ...


class Work:
    """An operation in progress, together with the memory that it uses."""

    def __init__(self, operation: Any, memory: torch.Tensor) -> None:
        self._operation = operation
        self._memory = memory

    def wait(self, limit: datetime.timedelta) -> None:
        """Wait for the operation."""
        self._operation.wait(limit)


class _WaitedWorks:
    """Operations that another thread waits for, in order, up to the first that fails.

    Args:
        works: each is waited for once.
        changed: notified when all are done, or one has failed.
    """

    def __init__(self, works: Sequence[Pending], changed: threading.Condition) -> None:
        self._works = works
        self._changed = changed
        self.is_over = False
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            for work in self._works:
                work.wait(_NO_LIMIT)
        except Exception as error:  # noqa: BLE001 - raised by the one that wants the works
            # The traceback would refer to this object: a reference cycle that keeps the operations and gloo's threads
            # alive.
            self.error = error.with_traceback(None)
        with self._changed:
            self.is_over = True
            self._changed.notify_all()


class _BreakState:
    """Whether the connections of a group are broken; all parts of the group share this object."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.is_broken = False
        self.has_lost_works = False


class _WaitCount:
    """Counts the operations of a group for which a thread waits now."""

    def __init__(self) -> None:
        self.num = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.num += 1

    def __exit__(self, *_error: object) -> None:
        with self._lock:
            self.num -= 1


class UnreachablePeer(BrokenView):
    """A member of a view cannot be connected; the text is a sentence without its subject's name.

    Args:
        worker: its number. None: unknown.
        reason: the text.
    """

    def __init__(self, worker: int | None, reason: str) -> None:
        super().__init__(reason)
        self.worker = worker


class Group:
    """The connections between the members of one view.

    Attributes:
        reads_peers: the members can read each other's memory.
        waits: entered while this rank waits for its peers.
        has_left_works: `leave_works` was called.
        device_group: connects the members' GPUs by NCCL; None without GPUs, or if NCCL cannot connect them.
        nodes: the number of each rank's node, see `legato.core.view.nodes_of`.
        newcomers: the ranks that come without the job's state, while others have it; see `View`.
        refusal: why this rank cannot share memory with the others of its node, in words; empty if it can.
        obstacle: why NCCL cannot connect the members' GPUs, in words; empty if it does, or without GPUs.

    Args:
        view: whose members are connected.
        rank: of this worker in the view.
        process_group: the gloo group, or None when the view has one member.
        endpoints: every member's ``(host, port)`` at which its group listens, in rank order.
        sockets: plain connections for small messages; None when the view has one member.
    """

    def __init__(
        self,
        view: View,
        rank: int,
        process_group: Any = None,
        endpoints: Sequence[tuple[str, int]] = (),
        sockets: ControlSockets | None = None,
    ) -> None:
        self.view = view
        self.rank = rank
        self.size = len(view.members)
        self._process_group = process_group
        self.device_group: Any = None
        self.obstacle = ""
        self.nodes = nodes_of(view.members)
        self.newcomers = tuple(rank for rank, worker in enumerate(view.workers) if worker in view.newcomers)
        self.refusal = ""
        self._sockets = sockets
        self._break_state = _BreakState()
        self.reads_peers = False
        self._own_port = endpoints[rank][1] if endpoints else 0
        self._others = {endpoint for other, endpoint in enumerate(endpoints) if other != rank}
        self.waits = _WaitCount()
        self.has_left_works = False
        self._left_works: list[Work] = []
        self.peers = tuple(peer for peer in range(self.size) if peer != rank)
        self._ranks: Sequence[int] = range(self.size)

    @property
    def is_broken(self) -> bool:
        """Whether `break_connections` was called."""
        return self._break_state.is_broken

    @property
    def is_waiting(self) -> bool:
        """Whether this rank waits for its peers now."""
        return self.waits.num > 0

    def use_devices(self, device_group: Any, obstacle: str = "") -> None:
        """Set the connection of the members' GPUs, or why there is none."""
        self.device_group, self.obstacle = device_group, obstacle

    def set_reads_peers(self, reads_peers: bool) -> None:
        """Record whether the members have found that they can read each other's memory."""
        self.reads_peers = reads_peers

    def among(self, ranks: Sequence[int]) -> Group:
        """Return the part of this group with only some of its ranks, renumbered; this rank must be one of them."""
        part = copy.copy(self)
        part.rank, part.size = ranks.index(self.rank), len(ranks)
        part.peers = tuple(peer for peer in range(part.size) if peer != part.rank)
        part._ranks = tuple(self._ranks[rank] for rank in ranks)
        return part

    def swap(self, outgoing: Sequence[Sequence[torch.Tensor]], incoming: Sequence[Sequence[torch.Tensor]]) -> None:
        """Send all of ``outgoing[r]`` to and receive all of ``incoming[r]`` from every rank r at once.

        Raises:
            BrokenView: a peer is gone, or `break_connections` was called.
        """
        self.finish(self.start_swap(outgoing, incoming))

    def start_swap(
        self,
        outgoing: Sequence[Sequence[torch.Tensor]],
        incoming: Sequence[Sequence[torch.Tensor]],
        first_tag: int = 0,
    ) -> list[Work]:
        """Start to send and receive as `swap` does; pass the returned works to `finish`.

        Args:
            outgoing: for each rank.
            incoming: for each rank.
            first_tag: of the first tensor of each rank; the others follow. Swaps that are in progress at the same time
                need different tags.

        Raises:
            BrokenView: a peer is gone, or `break_connections` was called.
        """

        def start() -> Iterator[Work]:
            for peer in self.peers:
                yield from (self.receive(tensor, peer, tag) for tag, tensor in enumerate(incoming[peer], first_tag))
            for peer in self.peers:
                yield from (self.send(tensor, peer, tag) for tag, tensor in enumerate(outgoing[peer], first_tag))

        return self.start_all(start())

    def all_gather_object(self, mine: Any) -> list[Any]:
        """Send plain values to every rank and return the values of all ranks, in rank order. For rare messages.

        Raises:
            BrokenView: a peer is gone, or `break_connections` was called.
        """
        content = torch.frombuffer(bytearray(msgspec.msgpack.encode(mine)), dtype=torch.uint8)
        lengths = [torch.empty(1, dtype=torch.int64) for _ in range(self.size)]
        lengths[self.rank] = torch.tensor([content.numel()], dtype=torch.int64)
        self.all_gather(lengths[self.rank], lengths)
        told = [torch.empty(int(length), dtype=torch.uint8) for length in lengths]
        told[self.rank] = content
        self.all_gather(content, told)
        return [msgspec.msgpack.decode(text.numpy().tobytes()) for text in told]

    def all_gather(self, mine: torch.Tensor, theirs: Sequence[torch.Tensor]) -> None:
        """Send a small tensor to every peer and receive ``theirs[r]`` from each peer r, in one round trip.

        Raises:
            BrokenView: a peer is gone, or `break_connections` was called.
        """
        if self.size == 1:
            return
        sockets, ranks = self._sockets, self._ranks
        try:
            if sockets is None:
                raise ConnectionResetError("it has ended already")
            with self.waits:
                sockets.swap(
                    {ranks[peer]: [mine] for peer in self.peers}, {ranks[peer]: [theirs[peer]] for peer in self.peers}
                )
        except OSError as error:
            self.break_connections()
            raise BrokenView(f"view {self.view.number}: {_first_line(error)}") from error

    def barrier(self) -> None:
        """Wait until all ranks have reached this point."""
        self.all_gather(_TOKEN, [torch.empty(1, dtype=torch.uint8) for _ in range(self.size)])

    def all_reduce(self, tensor: torch.Tensor) -> None:
        """Sum a tensor over all ranks in place, in an order that gloo chooses."""
        if self.size > 1:
            self.finish([self._start(lambda group: torch_private.all_reduce(group, tensor), tensor)])

    def send(self, tensor: torch.Tensor, peer: int, tag: int) -> Work:
        """Start to send to one peer; pass the returned work to `finish`. The tensor must not change until then."""
        return self._start(lambda group: group.send([tensor], self._ranks[peer], tag), tensor)

    def receive(self, tensor: torch.Tensor, peer: int, tag: int) -> Work:
        """Start to receive from one peer; pass the returned work to `finish`."""
        return self._start(lambda group: group.recv([tensor], self._ranks[peer], tag), tensor)

    def start_all(self, starting: Iterable[Work]) -> list[Work]:
        """Start operations and collect them; if one cannot be started, end those that were started before.

        Raises:
            BrokenView: a peer is gone, or `break_connections` was called.
        """
        works: list[Work] = []
        try:
            for work in starting:
                works.append(work)  # noqa: PERF402 -- those before an error count
        except BaseException:
            self.give_up(works)
            raise
        return works

    def finish(self, works: Sequence[Pending]) -> None:
        """Wait for operations that `send` and `receive` started; each can be waited for once.

        Raises:
            BrokenView: a peer is gone, or `break_connections` was called.
        """
        if not works:
            return
        waited = _WaitedWorks(works, self._break_state.changed)
        with self.waits:
            _run_beside(waited.run)
            self._await(waited)
        if waited.is_over and waited.error is None:
            return
        self.give_up(works)
        with self._break_state.changed:
            # The connections close before the other thread gets its error. An operation that has not ended a moment
            # later is lost: it never ends.
            if not self._break_state.changed.wait_for(lambda: waited.is_over, _LOST_S):
                self._break_state.has_lost_works = True
        if waited.error is not None and not isinstance(waited.error, RuntimeError):
            raise waited.error
        told = "its connections were broken" if waited.error is None else _first_line(waited.error)
        raise BrokenView(f"view {self.view.number}: {told}") from waited.error

    def _await(self, waited: _WaitedWorks) -> None:
        """Wait until the operations end, the group was broken, or a connection is gone without an error from gloo."""
        num_closed = 0
        with self._break_state.changed:
            while not self._break_state.changed.wait_for(lambda: waited.is_over or self.is_broken, _LOOK_S):
                num_closed = num_closed + 1 if self._num_open() < len(self._others) else 0
                if num_closed == 2:
                    return

    def give_up(self, works: Sequence[Pending]) -> None:
        """Break the connections, and wait until gloo does not use the memory of these operations any more."""
        # Close the connections first: the destructor of a running operation would block for seconds.
        self.break_connections()
        if works:
            self._await_closing()
        for work in works:
            if not isinstance(work, Work):
                work.wait(_END_LIMIT)

    def leave_works(self, works: Sequence[Work]) -> None:
        """Keep operations, and their memory, that no rank will wait for, until the group is dropped."""
        self.has_left_works = True
        self._left_works += works

    def _await_closing(self) -> None:
        """Wait until gloo has closed the connections: it closes them when it does not use them any more."""
        deadline = time.monotonic() + _END_LIMIT.total_seconds()
        while self._num_open() and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _num_open(self) -> int:
        found = [connection for _, connection in self._connections()]
        for connection in found:
            connection.close()
        return len(found)

    def _start(self, start: Callable[[Any], Any], memory: torch.Tensor) -> Work:
        if self._process_group is None:
            raise BrokenView(f"view {self.view.number} has ended already")
        try:
            return Work(start(self._process_group), memory)
        except RuntimeError as error:
            raise BrokenView(f"view {self.view.number}: {_first_line(error)}") from error

    def break_connections(self) -> None:
        """Shut down every connection of this group: threads that wait in it, here or at a peer, get an error at once.

        Callable from any thread and more than once. The listening socket is not touched: touching it ends the process.
        """
        with self._break_state.changed:
            self._break_state.is_broken = True
            self._break_state.changed.notify_all()
        if self._sockets is not None:
            self._sockets.break_connections()
        for _, connection in self._connections():
            with contextlib.closing(connection), contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        device_group = self.device_group
        if device_group is not None:
            # On another thread: NCCL ends only after its kernels, which can take longer than to continue without it.
            _run_beside(lambda: _end_device_group(device_group))

    def drop(self) -> None:
        """Drop the group. Another thread destroys it, which takes milliseconds per peer."""
        if self._left_works:
            self.give_up(self._left_works)
            self._left_works = []
        sockets, self._sockets = self._sockets, None
        if sockets is not None:
            sockets.close()
        if self._break_state.has_lost_works:
            # The destructor would wait for the lost operations: it is never called, not even at the end of the
            # interpreter.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._process_group))
        _dropped.put((self._process_group, self.device_group))
        self._process_group = self.device_group = None

    def file_descriptors(self) -> list[int]:
        """Return the descriptors of the group's connections, which child processes must close."""
        found = self._sockets.file_descriptors() if self._sockets is not None else []
        for descriptor, connection in self._connections():
            connection.close()
            found.append(descriptor)
        return found

    def _connections(self) -> Iterator[tuple[int, socket.socket]]:
        """Yield the descriptor of each connection, and a duplicate for the caller to close."""
        if self._process_group is None:
            return
        for descriptor in _socket_descriptors():
            with contextlib.suppress(OSError):
                found = socket.socket(fileno=os.dup(descriptor))
                try:
                    is_own = found.getsockname()[1] == self._own_port or found.getpeername()[:2] in self._others
                    is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
                    is_listening = is_tcp and found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                except (OSError, IndexError):
                    is_own = is_tcp = is_listening = False
                if is_own and is_tcp and not is_listening:
                    yield descriptor, found
                else:
                    found.close()


def build(view: View, worker: int, key: str, device: torch.device, peer_secret: str = "") -> Group:
    """Connect the members of a view with one another; every member must call this.

    With a secret, each member proves to each other one that it has it: on the connections for small messages, and by
    gloo on those for tensors. Addresses that another process has written into the store are not used.

    Args:
        view: of the members to connect.
        worker: this worker's number; it must be a member.
        key: names the job, so that two jobs can share one store.
        device: of this worker's gradients.
        peer_secret: of the job's workers, from `Welcome`. Not used if a member runs an earlier release.

    Raises:
        UnreachablePeer: a member cannot be connected.
        BrokenView: connecting failed for another reason, or another process took part.
    """
    with _starting:
        # With the cache alone two threads that call this at the same time would start two.
        _start_dropping()
    rank = view.rank_of(worker)
    assert rank is not None, (view, worker)
    host = view.members[rank].host
    if len(view.members) == 1:
        return Group(view, rank)
    limit = datetime.timedelta(seconds=_BUILD_LIMIT_S)
    hosts = [member.host for member in view.members]
    sockets = None
    try:
        secret = ViewSecret(peer_secret, key, view.number) if proves(view.members) else None
        client = _open_store(view, host)
        open_store = torch_private.prefixed(f"{key}/{view.number}", client)
        store = open_store if secret is None else _checked(open_store, secret)
        if secret is not None:
            # Before gloo connects: only these connections say which peer is out of reach.
            sockets = connect(store, rank, hosts, _BUILD_LIMIT_S, secret)
        transport, port = _listen(host)
        store.set(f"listens/{rank}", f"{host} {port}")
        process_group = torch_private.make_gloo_group(store, rank, len(view.members), transport, limit)
        endpoints = []
        for peer in range(len(view.members)):
            address, number = store.get(f"listens/{peer}").decode().split()
            endpoints.append((address, int(number)))
        if sockets is None:
            # Members of earlier releases connect these last.
            sockets = connect(store, rank, hosts, _BUILD_LIMIT_S)
    except PeerError as error:
        raise _describe_peer(view, rank, error) from error
    except (OSError, RuntimeError) as error:
        if sockets is not None:
            sockets.close()
        raise BrokenView(f"view {view.number} could not be connected: {_first_line(error)}") from error
    group = Group(view, rank, process_group, endpoints, sockets)
    try:
        if secret is not None:
            _prove_gloo(group, secret, sockets.nonces, limit)
        # The limit for connecting is too short for a collective, which peers may reach late.
        torch_private.set_limit(process_group, _NO_LIMIT)
        _ignore_strangers(*endpoints[rank])
        if device.type == "cuda":
            _connect_devices(group, torch_private.prefixed("devices", open_store), device)
        else:
            # NCCL may use the store as long as the group exists.
            give_back(view.rendezvous, client)
    except BaseException:
        group.break_connections()
        group.drop()
        raise
    return group


def _checked(store: Any, secret: ViewSecret) -> Any:
    """Return a store in which only values of members count."""
    return torch_private.filtered(store, secret.seal, lambda key: secret.read(key, store.get, _BUILD_LIMIT_S))


def _prove_gloo(
    group: Group, secret: ViewSecret, nonces: Mapping[int, tuple[bytes, bytes]], limit: datetime.timedelta
) -> None:
    """Prove to every peer, over gloo's connection to it, that this rank is its end. All members call this together.

    Gloo knows no password: it uses the first connection that names the number of the one that it waits for.

    Args:
        group: connected.
        secret: of the view.
        nonces: of this rank and of the peer, by rank of the peer; exchanged over connections whose ends are proved.
        limit: for each message.

    Raises:
        BrokenView: the end of a connection is another process, or a peer is gone.
    """
    codes = {peer: torch.empty(CODE_BYTES, dtype=torch.uint8) for peer in group.peers}

    def start() -> Iterator[Work]:
        for peer in group.peers:
            yield group.receive(codes[peer], peer, _PROOF_TAG)
        for peer in group.peers:
            mine, theirs = nonces[peer]
            code = secret.sign("gloo", group.rank, peer, mine, theirs)
            yield group.send(torch.frombuffer(bytearray(code), dtype=torch.uint8), peer, _PROOF_TAG)

    works = group.start_all(start())
    try:
        for work in works:
            work.wait(limit)
    except RuntimeError as error:
        group.give_up(works)
        raise BrokenView(f"view {group.view.number} could not be connected: {_first_line(error)}") from error
    for peer, code in codes.items():
        mine, theirs = nonces[peer]
        if not secret.has_signed(code.numpy().tobytes(), "gloo", peer, group.rank, theirs, mine):
            raise BrokenView(
                f"view {group.view.number} could not be connected: gloo's connection to rank {peer} ends in a process "
                "that does not belong to this job. Let only the machines of the job reach this network"
            )


def _open_store(view: View, host: str) -> Any:
    """Return a client of the store in which the members of a view find one another.

    Raises:
        UnreachablePeer: the store cannot be reached; the peer is a member on its machine, if there is one.
    """
    try:
        # Half of the limit: the others, which wait for this member at the store, would give up at the same moment.
        return open_client(view.rendezvous, connect_s=_BUILD_LIMIT_S / 2, wait_s=_BUILD_LIMIT_S)
    except RuntimeError as error:
        address, port = view.rendezvous.rsplit(":", 1)
        peer = next((member.worker for member in view.members if member.host == address), None)
        raise UnreachablePeer(peer, _explain_unreachable(host, address, f"port {port}")) from error


def _describe_peer(view: View, rank: int, error: PeerError) -> UnreachablePeer:
    host, peer = view.members[rank].host, view.members[error.rank]
    if error.is_direct:
        return UnreachablePeer(peer.worker, _explain_unreachable(host, peer.host, str(error)))
    told = f"{error} within {_BUILD_LIMIT_S:g} s. Its log may say why"
    return UnreachablePeer(peer.worker, told)


def _explain_unreachable(host: str, address: str, what: str) -> str:
    """Explain that a process at ``host`` cannot connect to ``address``, and what to do if these are two machines."""
    told = f"{host} cannot reach {address}, {what}"
    if host == address:
        return told
    return (
        f"{told}. Let all machines of the job reach one another on all TCP ports above 1024, or name a network in "
        "which they do: by --network of 'legato run' or 'legato agent', and the setting network of a server"
    )


def _listen(host: str) -> tuple[Any, int]:
    """Have gloo listen on a free port of an address; returns its device and the port.

    Gloo does not return the port: it is the port of the only socket that is new among the listening ones. If there are
    several new ones, the program or a thread of Legato has begun to listen at the same moment, and this function tries
    again.

    Raises:
        RuntimeError: no attempt showed which socket is gloo's, or the address does not belong to this machine.
    """
    for _ in range(_NUM_TRIES):
        with _listening:
            before = _listeners()
            transport = torch_private.listen_with_gloo(host)
            new = [port for inode, port in _listeners().items() if inode not in before]
        if len(new) == 1:
            return transport, new[0]
    raise RuntimeError(f"other sockets of this process began to listen {_NUM_TRIES} times at the same moment as gloo's")


def _ignore_strangers(host: str, port: int) -> None:
    """Have the system drop what arrives at gloo's listening socket, once all members are connected.

    Gloo would accept every connection and keep it open, and it ends the process if it cannot open more files, or if the
    socket is shut down. A filter of packets lets neither gloo nor the connections of the members notice anything.
    """
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", _BPF_RETURN, 0, 0, 0))  # accept 0 bytes of each
    program = struct.pack("HP", 1, ctypes.addressof(instruction))
    for descriptor in _socket_descriptors():
        with contextlib.suppress(OSError), contextlib.closing(socket.socket(fileno=os.dup(descriptor))) as found:
            if _is_listening(found) and found.getsockname()[:2] == (host, port):
                found.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


def _run_beside(body: Callable[[], None]) -> None:
    """Run a function on another thread: an idle one, or a new one."""
    try:
        jobs = _idle_waiters.pop()
    except IndexError:
        jobs = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name="legato-wait", daemon=True).start()
    jobs.put(body)


def _serve(jobs: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        jobs.get()()
        _idle_waiters.append(jobs)


@functools.cache
def _start_dropping() -> None:
    """Start the thread that destroys groups, once; to start a thread each time would delay the training."""

    def drop_them() -> None:
        while (dropped := _dropped.get()) is not None:
            if dropped[1] is not None:
                _end_device_group(dropped[1])
            # Its destructors run here, and not when the next group is dropped.
            del dropped

    thread = threading.Thread(target=drop_them, name="legato-drop-groups", daemon=True)
    thread.start()
    atexit.register(_stop_dropping, thread)


def _stop_dropping(thread: threading.Thread) -> None:
    # An interpreter that ends while the thread destroys a group would end with SIGABRT.
    _dropped.put(None)
    thread.join(_END_LIMIT.total_seconds())


def _connect_devices(group: Group, store: Any, device: torch.device) -> None:
    """Connect the members' GPUs by NCCL if that is possible for all of them. All members call this together.

    Raises:
        BrokenView: a peer is gone.
    """
    member = group.view.members[group.rank]
    places = group.all_gather_object(f"{member.node or member.host} {identify_gpu(device)}")
    if os.environ.get("LEGATO_NCCL") == "0":
        made, obstacle = None, "LEGATO_NCCL=0 forbids NCCL"
    elif len(set(places)) < group.size:
        made, obstacle = None, "several workers share one GPU, which NCCL refuses"
    else:
        _keep_nccl_on(member.host)
        made, obstacle = _try_nccl(store, group.rank, group.size, device)
    obstacles = [told for told in group.all_gather_object(obstacle) if told]
    if obstacles and made is not None:
        _run_beside(lambda: _end_device_group(made))
    group.use_devices(None if obstacles else made, obstacles[0] if obstacles else "")


def _keep_nccl_on(host: str) -> None:
    """Let NCCL use only the network of this worker's address, unless the job's variables choose an interface.

    NCCL reads these variables once, when it is first used in a process; by default it listens on all networks.
    """
    interface = find_interface(host)
    if interface is None or "NCCL_SOCKET_IFNAME" in os.environ:
        return
    os.environ["NCCL_SOCKET_IFNAME"] = f"={interface}"  # this one, and not all whose names begin so
    os.environ.setdefault("NCCL_SOCKET_FAMILY", "AF_INET6" if ":" in host else "AF_INET")


def identify_gpu(device: torch.device) -> str:
    """Return what is the same in all processes of a machine that use one GPU, or parts of one, and only in these."""
    properties = torch.cuda.get_device_properties(device)
    # Parts of a divided GPU have ids of their own but one address on the bus, and NCCL goes by the address.
    address = [getattr(properties, f"pci_{part}_id", None) for part in ("domain", "bus", "device")]
    return str(properties.uuid) if None in address else ":".join(f"{number:02x}" for number in address)


def _try_nccl(store: Any, rank: int, size: int, device: torch.device) -> tuple[Any, str]:
    """Return a connected group over NCCL and no text, or None and why there is none."""
    ended = threading.Event()
    made: list[Any] = []
    errors: list[Exception] = []

    def connect_all() -> None:
        try:
            made.append(carrier := torch_private.make_nccl_group(store, rank, size, _NO_LIMIT))
            # NCCL connects at the first use, which takes up to seconds: here, in the background of the training.
            _use_once(carrier, device)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the gradients take the other way
            errors.append(error)
        ended.set()

    # On a thread that may stay in NCCL forever: it waits without a limit for a peer that died before it connected.
    threading.Thread(target=connect_all, name="legato-nccl", daemon=True).start()
    if ended.wait(_NCCL_LIMIT_S) and not errors:
        return made[0], ""
    for carrier in made:
        _run_beside(functools.partial(_end_device_group, carrier))
    why = _first_line(errors[0]) if errors else f"it did not connect within {_NCCL_LIMIT_S:g} s"
    return None, f"NCCL failed: {why}"


def _use_once(carrier: Any, device: torch.device) -> None:
    with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]
        torch_private.all_reduce(carrier, torch.zeros(1, device=device)).wait()
        torch.cuda.current_stream(device).synchronize()


def _end_device_group(device_group: Any) -> None:
    with contextlib.suppress(RuntimeError):
        torch_private.end_nccl_group(device_group)


def _socket_descriptors() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)


def _listeners() -> dict[int, int]:
    """Return the ports on which this process listens, by the inode of the socket, which is never used again."""
    ports = {}
    for descriptor in _socket_descriptors():
        with contextlib.suppress(OSError), contextlib.closing(socket.socket(fileno=os.dup(descriptor))) as found:
            if _is_listening(found):
                ports[os.fstat(found.fileno()).st_ino] = found.getsockname()[1]
    return ports


def _is_listening(found: socket.socket) -> bool:
    is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
    return is_tcp and bool(found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _first_line(error: BaseException) -> str:
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    told = _PLACE.sub("", line)
    # After its place in the source and what has happened, gloo guesses at the cause.
    return line if told == line else told.partition(". ")[0]
