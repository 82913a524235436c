"""A loader server answers its own loader processes, whatever other processes send."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError

import pytest

from legato.compat.elasticdl import loader_server as module
from legato.compat.elasticdl.loader_server import LoaderClient, LoaderServer

PATIENCE_S = 30.0


@contextlib.contextmanager
def open_server(**options: float) -> Iterator[LoaderServer]:
    server = LoaderServer(lambda number, generation: number + generation, **options)
    try:
        yield server
    finally:
        server.close()


def connect(server: LoaderServer) -> socket.socket:
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(PATIENCE_S)
    stranger.connect(server.address.path)
    return stranger


def ask(server: LoaderServer) -> int:
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(LoaderClient(server.address).ask(7, 1)), daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    return found[0]


def test_no_loader_waits_for_a_silent_process() -> None:
    with open_server() as server, connect(server), connect(server):
        assert ask(server) == 8


def read_to_end(stranger: socket.socket) -> None:
    while stranger.recv(4096):
        pass


def test_a_silent_process_is_disconnected() -> None:
    with open_server(handshake_limit_s=0.01) as server, connect(server) as stranger:
        read_to_end(stranger)


def test_a_wrong_key_is_refused_and_the_next_one_let_in() -> None:
    with open_server() as server:
        with pytest.raises(AuthenticationError):
            LoaderClient(server.address._replace(key=b"other"))
        assert ask(server) == 8


def test_processes_of_another_user_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    with open_server() as server:
        monkeypatch.setattr("os.geteuid", lambda: user + 1)
        with connect(server) as stranger:
            assert stranger.recv(1) == b"", "not even a challenge"
        monkeypatch.undo()
        assert ask(server) == 8


def test_a_server_that_is_closed_has_no_thread_left() -> None:
    with open_server() as server:
        assert ask(server) == 8
        assert server.file_descriptors()
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(server.address.path)
    server.close()


def test_errors_of_accept_are_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with open_server() as server:
        usual = server._closed.wait

        def wait(limit: float) -> bool:
            waits.append(limit)
            return usual(0.001)

        monkeypatch.setattr(server._closed, "wait", wait)
        server._listener.shutdown(socket.SHUT_RDWR)
        while not waits:
            assert not usual(0.001)
    assert waits[0] == module._ACCEPT_AGAIN_S
