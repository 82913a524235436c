"""Who asks an office: its own loader processes, whatever strangers do."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from multiprocessing import AuthenticationError

import pytest

from legato.compat.elasticdl import loader_server as module
from legato.compat.elasticdl.loader_server import Counter, Office

PATIENCE_S = 30.0


@contextlib.contextmanager
def open_office(**options: float) -> Iterator[Office]:
    office = Office(lambda number, generation: number + generation, **options)
    try:
        yield office
    finally:
        office.close()


def connect(office: Office) -> socket.socket:
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(PATIENCE_S)
    stranger.connect(office.address.path)
    return stranger


def ask(office: Office) -> int:
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(Counter(office.address).ask(7, 1)), daemon=True)
    asking.start()
    asking.join(PATIENCE_S)
    return found[0]


def test_a_silent_stranger_keeps_nobody_waiting() -> None:
    with open_office() as office, connect(office), connect(office):
        assert ask(office) == 8


def read_to_end(stranger: socket.socket) -> None:
    while stranger.recv(4096):
        pass


def test_a_silent_stranger_is_sent_away() -> None:
    with open_office(handshake_limit_s=0.01) as office, connect(office) as stranger:
        read_to_end(stranger)


def test_a_wrong_key_is_refused_and_the_next_one_let_in() -> None:
    with open_office() as office:
        with pytest.raises(AuthenticationError):
            Counter(office.address._replace(key=b"other"))
        assert ask(office) == 8


def test_processes_of_another_user_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    user = os.geteuid()
    with open_office() as office:
        monkeypatch.setattr("os.geteuid", lambda: user + 1)
        with connect(office) as stranger:
            assert stranger.recv(1) == b"", "not even a challenge"
        monkeypatch.undo()
        assert ask(office) == 8


def test_an_office_that_is_closed_has_no_thread_left() -> None:
    with open_office() as office:
        assert ask(office) == 8
        assert office.file_descriptors()
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(office.address.path)
    office.close()


def test_errors_of_accept_are_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with open_office() as office:
        usual = office._closed.wait

        def wait(limit: float) -> bool:
            waits.append(limit)
            return usual(0.001)

        monkeypatch.setattr(office._closed, "wait", wait)
        office._listener.shutdown(socket.SHUT_RDWR)
        while not waits:
            assert not usual(0.001)
    assert waits[0] == module._ACCEPT_AGAIN_S
