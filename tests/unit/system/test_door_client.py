"""A thread-based client of a driver's door: TLS, two threads on one connection, strangers at the address."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from legato.system import door as door_module
from legato.system.certificates import make_door_certificate
from legato.system.door import LOOPBACK, Door
from legato.system.door_client import TlsSocket, connect_to_door
from legato.system.tls import load_certificate, make_client_context, make_server_context

LIMIT_S = 20.0
MESSAGES = [bytes([number]) * (200_000 if number % 10 == 0 else number) for number in range(100)]


async def talk(connection: ServerConnection) -> None:
    """Send the messages while those of the client arrive, then say whether these were right."""
    with contextlib.suppress(ConnectionClosed):

        async def send() -> None:
            for message in MESSAGES:
                await connection.send(message)

        sending = asyncio.create_task(send())
        is_right = [await connection.recv() for _ in MESSAGES] == MESSAGES
        await sending
        await connection.send("right" if is_right else "wrong")
        await connection.wait_closed()


@contextlib.contextmanager
def opened(*, is_encrypted: bool = True) -> Iterator[Door]:
    """A door in a thread."""
    door: Future[Door] = Future()
    stop: Future[Any] = Future()

    async def serve() -> None:
        made = Door(is_encrypted=is_encrypted)
        made.mount(("/worker",), lambda *_: None, talk)
        await made.open()
        door.set_result(made)
        await asyncio.wrap_future(stop)
        await made.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield door.result(10)
    finally:
        stop.set_result(None)
        thread.join()


@pytest.mark.parametrize("is_encrypted", [True, False])
def test_one_thread_sends_while_another_receives(is_encrypted: bool) -> None:
    with opened(is_encrypted=is_encrypted) as door:
        url = door.url("/worker")
        assert url.startswith("wss:" if is_encrypted else "ws:")
        with connect_to_door(url, door.certificate, 10.0, compression=None, max_size=None) as connection:
            sender = threading.Thread(target=lambda: [connection.send(message) for message in MESSAGES])
            sender.start()
            assert [connection.recv(timeout=30) for _ in MESSAGES] == MESSAGES
            assert connection.recv(timeout=30) == "right"
            sender.join()
            connection.close()
            with pytest.raises(ConnectionClosed):
                connection.recv(timeout=10)


def test_a_lost_connection_ends_the_wait_of_the_reader() -> None:
    with opened() as door:
        url = door.url("/worker")
        with connect_to_door(url, door.certificate, 10.0) as connection:
            connection.socket.shutdown(socket.SHUT_RDWR)
            with pytest.raises(ConnectionClosed):
                [connection.recv(timeout=10) for _ in range(len(MESSAGES) + 1)]


def test_a_stranger_at_the_address_of_the_driver_gets_no_token() -> None:
    with opened() as door, opened() as stranger, opened(is_encrypted=False) as plain:
        with pytest.raises(ssl.SSLCertVerificationError):
            connect_to_door(stranger.url("/worker"), door.certificate, 10.0)
        with pytest.raises(OSError, match=r"closes the connection|reset|wrong version"):
            connect_to_door(plain.url("/worker").replace("ws:", "wss:"), door.certificate, 10.0)
        with socket.create_server((LOOPBACK, 0)) as mute:
            threading.Thread(target=hang_up, args=[mute]).start()
            with pytest.raises(OSError, match=r"closes the connection|reset"):
                connect_to_door(f"wss://{LOOPBACK}:{mute.getsockname()[1]}/worker", door.certificate, 10.0)


def test_an_end_that_arrives_with_the_last_bytes_is_noticed_although_the_driver_waits_for_an_answer() -> None:
    made = make_door_certificate()
    context = make_server_context()
    load_certificate(context, made.certificate, made.key)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    read = threading.Event()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            for step in (tls.do_handshake, lambda: tls.write(b"the last"), tls.unwrap):
                while True:
                    try:
                        step()
                    except ssl.SSLWantReadError:
                        if step == tls.unwrap:
                            break
                        connection.sendall(outgoing.read())
                        incoming.write(connection.recv(2**16))
                    else:
                        break
            connection.sendall(outgoing.read())
            read.wait(3 * LIMIT_S)

    with socket.create_server((LOOPBACK, 0)) as server:
        thread = threading.Thread(target=serve, args=[server])
        thread.start()
        client = TlsSocket(make_client_context(made.certificate), LOOPBACK, server.getsockname()[1], LIMIT_S)
        try:
            assert client.recv(100) == b"the last"
            # Not select(): this process may have more than 1,024 files open.
            waiting = select.poll()
            waiting.register(client, select.POLLIN)
            assert waiting.poll(LIMIT_S * 1000)
            assert client.recv(100) == b""
        finally:
            client.close()
            read.set()
            thread.join()


def hang_up(server: socket.socket) -> None:
    """Close the first connection."""
    server.accept()[0].close()


def test_a_client_does_not_wait_for_a_handshake_without_end() -> None:
    with opened() as door, socket.create_server((LOOPBACK, 0)) as silent, pytest.raises(TimeoutError):
        connect_to_door(f"wss://{LOOPBACK}:{silent.getsockname()[1]}/worker", door.certificate, 0.05)


def test_a_door_drops_a_client_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "HANDSHAKE_LIMIT_S", 0.05)
    with opened() as door, socket.create_connection((LOOPBACK, door.port)) as silent:
        assert silent.recv(1) == b""


def test_a_client_without_tls_gets_nothing_from_an_encrypted_door() -> None:
    with opened() as door, socket.create_connection((LOOPBACK, door.port)) as plain:
        plain.sendall(b"GET /worker HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):
            answer = plain.recv(100)
            assert b"HTTP" not in answer
