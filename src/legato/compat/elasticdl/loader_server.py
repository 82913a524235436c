"""Answers the loader processes of this worker: they ask over a socket, however they were started.

One thread per loader process, which lets it in and waits with it until the plan knows. Only processes of this user are
let in, and only with the key. Knows nothing of training.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any, Final, NamedTuple

_KEY_BYTES: Final = 16
_BACKLOG: Final = 128
_HANDSHAKE_LIMIT_S: Final = 30.0
_ACCEPT_AGAIN_S: Final = 0.1
_CREDENTIALS: Final = struct.Struct("3i")  # process, user, group

Answer = Callable[[int, int], Any]


class Address(NamedTuple):
    """Where a server is, as loader processes see it.

    Args:
        path: of its socket.
        key: lets in.
    """

    path: str
    key: bytes


class LoaderServer:
    """Takes questions from loader processes.

    Args:
        answer: of (number, generation); may wait. Called on a thread for each process.
        handshake_limit_s: who has not shown the key by then is sent away.
    """

    def __init__(self, answer: Answer, *, handshake_limit_s: float = _HANDSHAKE_LIMIT_S) -> None:
        self._answer = answer
        self._handshake_limit_s = handshake_limit_s
        # Without a file, so that nothing is left of it however this process ends.
        name = f"legato-{os.getpid()}-{secrets.token_hex(8)}"
        path = f"\0{name}" if sys.platform == "linux" else str(Path(tempfile.gettempdir()) / name)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(_BACKLOG)
        self.address = Address(path, secrets.token_bytes(_KEY_BYTES))
        self._connections: list[Connection] = []
        self._arrived = threading.Condition()
        self._num_arrived: dict[int, int] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._admit, name="legato-server", daemon=True).start()

    def wait_for(self, num_processes: int, generation: int, may_come: Callable[[], bool]) -> None:
        """Wait until so many loader processes of a generation have asked something, or will not any more."""
        with self._arrived:
            while self._num_arrived.get(generation, 0) < num_processes and may_come():
                self._arrived.wait(0.1)

    def close(self) -> None:
        """Take no more questions. Idempotent."""
        self._closed.set()
        with contextlib.suppress(OSError):
            # Wakes who waits in accept.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if not self.address.path.startswith("\0"):
            Path(self.address.path).unlink(missing_ok=True)

    def file_descriptors(self) -> list[int]:
        """Return what a forked process must not hold open: else its end remains unnoticed."""
        found = [connection.fileno() for connection in [*self._connections] if not connection.closed]
        listening = self._listener.fileno()
        return [*found, listening] if listening >= 0 else found

    def _admit(self) -> None:
        while not self._closed.is_set():
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                # Out of descriptors, perhaps: their holders must make progress.
                self._closed.wait(_ACCEPT_AGAIN_S)
                continue
            if not _is_own(accepted):
                accepted.close()
                continue
            accepted.setblocking(True)
            connection = Connection(accepted.detach())
            self._connections = [known for known in self._connections if not known.closed] + [connection]
            threading.Thread(target=self._serve, args=(connection,), name="legato-loader", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        with connection, contextlib.suppress(EOFError, OSError, AuthenticationError):
            self._let_in(connection)
            has_asked = False
            while True:
                number, generation = connection.recv()
                if not has_asked:
                    has_asked = True
                    with self._arrived:
                        self._num_arrived[generation] = self._num_arrived.get(generation, 0) + 1
                        self._arrived.notify_all()
                connection.send(self._answer(number, generation))

    def _let_in(self, connection: Connection) -> None:
        # Who is silent is hung up on: that ends the reading of it.
        timer = threading.Timer(self._handshake_limit_s, _hang_up, (connection,))
        timer.daemon = True
        timer.start()
        try:
            deliver_challenge(connection, self.address.key)
            answer_challenge(connection, self.address.key)
        finally:
            timer.cancel()


def _hang_up(connection: Connection) -> None:
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(connection.fileno())) as known:
        known.shutdown(socket.SHUT_RDWR)


def _is_own(accepted: socket.socket) -> bool:
    """Tell whether who has connected is of this process's user, where the kernel says so."""
    if sys.platform != "linux":
        return True
    try:
        said = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return False
    _, user, _ = _CREDENTIALS.unpack(said)
    return bool(user == os.geteuid())


class LoaderClient:
    """Asks a server, in a loader process.

    Args:
        address: of the server.
    """

    def __init__(self, address: Address) -> None:
        self._connection = Client(address.path, family="AF_UNIX", authkey=address.key)

    def ask(self, number: int, generation: int) -> Any:
        """Return the answer; None, the end of the data, if who answers is gone."""
        try:
            self._connection.send((number, generation))
            return self._connection.recv()
        except (EOFError, OSError):
            return None
