"""Control sockets: only processes that have the secret of the view become members of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.unit.train.ranks import run_threads
from torch.distributed import TCPStore

from legato.train.membership import control_sockets
from legato.train.membership.control_sockets import ControlSockets, PeerError, connect
from legato.train.membership.view_secret import CODE_BYTES, ViewSecret

HOST = "127.0.0.1"
SECRET = ViewSecret("secret of the job", "job", 7)


class Store:
    """A store of one process; a read waits for the value."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, 20):
                raise RuntimeError(f"no value of {key}")
            return self.values[key]

    def port(self, rank: int) -> int:
        return int(self.get(f"mesh/{rank}").split()[0])


def meet(
    num_ranks: int, store: Store, host: str = HOST, *, secret: ViewSecret | None = SECRET, limit_s: float = 20.0
) -> list[ControlSockets]:
    return run_threads(
        [lambda rank=rank: connect(store, rank, [host] * num_ranks, limit_s, secret) for rank in range(num_ranks)]  # type: ignore[misc]
    )


def check(members: list[ControlSockets]) -> None:
    """All members exchange a number with all others."""

    def swap(rank: int) -> list[float]:
        peers = [peer for peer in range(len(members)) if peer != rank]
        arrived = {peer: torch.empty(1) for peer in peers}
        mine = torch.tensor([float(rank)])
        members[rank].swap({peer: [mine] for peer in peers}, {peer: [arrived[peer]] for peer in peers})
        members[rank].close()
        return [float(arrived[peer]) for peer in peers]

    told = run_threads([lambda rank=rank: swap(rank) for rank in range(len(members))])  # type: ignore[misc]
    assert told == [[float(peer) for peer in range(len(members)) if peer != rank] for rank in range(len(members))]


@contextlib.contextmanager
def member(store: Store, rank: int, num_ranks: int, limit_s: float = 20.0) -> Iterator[list[Any]]:
    """A member in its own thread; the list receives its sockets, or its error."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(connect(store, rank, [HOST] * num_ranks, limit_s, SECRET))
        except (OSError, RuntimeError) as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield outcome
    thread.join(30)
    assert not thread.is_alive()


@pytest.mark.parametrize("host", [HOST, "::1"])
@pytest.mark.parametrize("secret", [SECRET, None], ids=["by secret", "by token"])
def test_members_meet_and_listen_on_their_address_only(
    host: str, secret: ViewSecret | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = []
    make = socket.create_server

    def note(address: Any, **options: Any) -> socket.socket:
        made = make(address, **options)
        bound.append(made.getsockname()[0])
        return made

    monkeypatch.setattr(socket, "create_server", note)
    check(meet(4, Store(), host, secret=secret))
    assert bound == [host] * 4


def test_strangers_neither_stop_nor_delay_a_view() -> None:
    store = Store()
    with contextlib.ExitStack() as strangers, member(store, 0, 2) as outcome:
        port = store.port(0)
        for content in [b""] * 100 + [b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\0" * 200]:
            stranger = strangers.enter_context(socket.create_connection((HOST, port)))
            with contextlib.suppress(ConnectionError):
                stranger.sendall(content)
        # Its limit would be over if it waited for each of them.
        other = connect(store, 1, [HOST] * 2, 5.0, SECRET)
    check([outcome[0], other])


def greeting(rank: int, nonce: bytes = b"n" * 32, mark: bytes = b"legato 1") -> bytes:
    return struct.pack("!8sI32s", mark, rank, nonce)


def receive(connection: socket.socket, num_bytes: int) -> bytes:
    connection.settimeout(10)
    return connection.recv(num_bytes, socket.MSG_WAITALL)


def test_a_process_without_the_secret_takes_no_place() -> None:
    store = Store()
    other_view = ViewSecret("secret of the job", "job", 8)
    other_job = ViewSecret("secret of another job", "job", 7)
    with contextlib.ExitStack() as strangers, member(store, 0, 2) as outcome:
        port = store.port(0)

        def impersonate(answer: Any) -> None:
            """Connect as rank 1; ``answer`` makes the code from the member's nonce and its own code."""
            stranger = strangers.enter_context(socket.create_connection((HOST, port)))
            stranger.sendall(greeting(1))
            _, rank, nonce = struct.unpack("!8sI32s", receive(stranger, 44))
            assert rank == 0
            stranger.sendall(answer(nonce, receive(stranger, CODE_BYTES)))
            with contextlib.suppress(ConnectionResetError):
                assert stranger.recv(1) == b"", "the member has not refused it"

        impersonate(lambda _nonce, _code: secrets.token_bytes(CODE_BYTES))
        impersonate(lambda _nonce, code: code)
        for secret in (other_view, other_job):
            impersonate(lambda nonce, _code, secret=secret: secret.sign("control", 1, 0, b"n" * 32, nonce))
        # Another rank, another purpose, and a code for an earlier nonce.
        impersonate(lambda nonce, _code: SECRET.sign("control", 2, 0, b"n" * 32, nonce))
        impersonate(lambda nonce, _code: SECRET.sign("gloo", 1, 0, b"n" * 32, nonce))
        impersonate(lambda _nonce, _code: SECRET.sign("control", 1, 0, b"n" * 32, b"e" * 32))
        for said in (greeting(0), greeting(2), greeting(1, mark=b"legato 9")):
            stranger = strangers.enter_context(socket.create_connection((HOST, port)))
            stranger.sendall(said)
            receive(stranger, 44)
            with contextlib.suppress(ConnectionResetError):
                assert receive(stranger, 1) == b""
        other = connect(store, 1, [HOST] * 2, 20.0, SECRET)
    check([outcome[0], other])


def test_a_member_does_not_take_another_process_for_its_peer() -> None:
    store = Store()
    with socket.create_server((HOST, 0)) as impostor:
        store.set("mesh/0", str(impostor.getsockname()[1]))
        with member(store, 1, 2) as outcome:
            connection, _ = impostor.accept()
            said = receive(connection, 44)
            connection.sendall(greeting(0))
            # The best that it has: the member's own code.
            connection.sendall(receive(connection, CODE_BYTES))
        connection.close()
    assert said[:8] == b"legato 1"
    assert isinstance(outcome[0], ConnectionRefusedError)
    assert str(outcome[0]) == "rank 0: the other end does not have the secret of the view"


def test_a_missing_member_is_named() -> None:
    with member(Store(), 0, 3, limit_s=0.2) as outcome:
        pass
    assert isinstance(outcome[0], PeerError)
    assert (outcome[0].rank, str(outcome[0])) == (1, "it has not connected")


def test_a_proof_never_contains_the_secret_and_no_code_counts_twice() -> None:
    assert SECRET.open("listens/0", SECRET.seal("listens/0", b"value")) == b"value"
    sealed = SECRET.seal("listens/0", b"value")
    assert SECRET.open("listens/1", sealed) is None
    assert SECRET.open("listens/0", sealed[:-1]) is None
    assert SECRET.open("listens/0", b"short") is None
    assert ViewSecret("secret of the job", "job", 8).open("listens/0", sealed) is None
    assert ViewSecret("secret of the job", "other", 7).open("listens/0", sealed) is None
    # The borders between the parts count.
    assert SECRET.sign("store", "ab", "c") != SECRET.sign("store", "a", "bc")
    with pytest.raises(RuntimeError, match="no secret"):
        ViewSecret("", "job", 1)


def test_a_value_of_a_stranger_is_ignored_until_the_member_writes() -> None:
    values = [b"127.0.0.9 1", SECRET.seal("mesh/1", b"of another key"), SECRET.seal("mesh/0", b"right")]
    assert SECRET.read("mesh/0", lambda _key: values.pop(0), 20.0) == b"right"
    with pytest.raises(RuntimeError, match="mesh/0 in the store does not come from a worker of this job"):
        SECRET.read("mesh/0", lambda _key: b"127.0.0.9 1", 0.0)


GARBAGE = [
    os.urandom(4096),
    b"GET / HTTP/1.1\r\n\r\n",
    b"\xff" * 65536,
    *(struct.pack("<BIBQ", 0, 0x3C85F7CE, query, 2**63) + b"x" * 8 for query in range(16)),
]


def test_the_store_survives_garbage_and_silent_connections() -> None:
    with contextlib.ExitStack() as strangers:
        listener = socket.create_server((HOST, 0), backlog=128)
        port = listener.getsockname()[1]
        store = TCPStore(HOST, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
        for content in [*GARBAGE, *[b""] * 100]:
            stranger = strangers.enter_context(socket.create_connection((HOST, port)))
            with contextlib.suppress(ConnectionError):
                stranger.sendall(content)
        client = TCPStore(HOST, port, None, is_master=False, wait_for_workers=False)
        client.set("key", "value")
        assert store.get("key") == b"value"


def test_only_so_many_strangers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_sockets, "_NUM_STRANGERS", 2)
    store = Store()
    with contextlib.ExitStack() as strangers, member(store, 0, 2) as outcome:
        found = [strangers.enter_context(socket.create_connection((HOST, store.port(0)))) for _ in range(5)]
        for stranger in found[:2]:
            assert len(receive(stranger, 44)) == 44
            assert receive(stranger, 1) == b"", "the oldest stranger is still connected"
        other = connect(store, 1, [HOST] * 2, 20.0, SECRET)
    check([outcome[0], other])
