"""Answers the loader processes of this worker: they ask over a socket, however they were started.

One thread per loader process authenticates it and waits until the plan has the answer. Only processes of this user with
the key are accepted. Knows nothing of training.
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
    """The address of a server, for loader processes.

    Args:
        path: of its socket.
        key: authenticates the loader process.
    """

    path: str
    key: bytes


class LoaderServer:
    """Answers requests of loader processes.

    Args:
        answer: a function of (number, generation); may wait. Called on a separate thread for each process.
        handshake_limit_s: a process that has not sent the key after this time is disconnected.
    """

    def __init__(self, answer: Answer, *, handshake_limit_s: float = _HANDSHAKE_LIMIT_S) -> None:
        self._answer = answer
        self._handshake_limit_s = handshake_limit_s
        # Without a file, so that nothing is left when this process ends.
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
        threading.Thread(target=self._accept_forever, name="legato-server", daemon=True).start()

    def wait_for(self, num_processes: int, generation: int, may_come: Callable[[], bool]) -> None:
        """Wait until that many loader processes of a generation have sent a request, or no more requests can come."""
        with self._arrived:
            while self._num_arrived.get(generation, 0) < num_processes and may_come():
                self._arrived.wait(0.1)

    def close(self) -> None:
        """Accept no more requests. Idempotent."""
        self._closed.set()
        with contextlib.suppress(OSError):
            # Wakes the thread that waits in accept.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if not self.address.path.startswith("\0"):
            Path(self.address.path).unlink(missing_ok=True)

    def file_descriptors(self) -> list[int]:
        """Return the descriptors that a forked process must not hold open: otherwise its end remains unnoticed."""
        found = [connection.fileno() for connection in [*self._connections] if not connection.closed]
        listening = self._listener.fileno()
        return [*found, listening] if listening >= 0 else found

    def _accept_forever(self) -> None:
        while not self._closed.is_set():
            try:
                accepted, _ = self._listener.accept()
            except OSError:
                # Perhaps no descriptors are left: the threads that have some must make progress.
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
            self._authenticate(connection)
            has_asked = False
            while True:
                number, generation = connection.recv()
                if not has_asked:
                    has_asked = True
                    with self._arrived:
                        self._num_arrived[generation] = self._num_arrived.get(generation, 0) + 1
                        self._arrived.notify_all()
                connection.send(self._answer(number, generation))

    def _authenticate(self, connection: Connection) -> None:
        # A silent process is disconnected, which ends the wait for its request.
        timer = threading.Timer(self._handshake_limit_s, _disconnect, (connection,))
        timer.daemon = True
        timer.start()
        try:
            deliver_challenge(connection, self.address.key)
            answer_challenge(connection, self.address.key)
        finally:
            timer.cancel()


def _disconnect(connection: Connection) -> None:
    with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(connection.fileno())) as known:
        known.shutdown(socket.SHUT_RDWR)


def _is_own(accepted: socket.socket) -> bool:
    """Return whether the connected process belongs to this process's user; True on other systems than Linux."""
    if sys.platform != "linux":
        return True
    try:
        said = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return False
    _, user, _ = _CREDENTIALS.unpack(said)
    return bool(user == os.geteuid())


class LoaderClient:
    """Sends requests to a server, in a loader process.

    Args:
        address: of the server.
    """

    def __init__(self, address: Address) -> None:
        self._connection = Client(address.path, family="AF_UNIX", authkey=address.key)

    def ask(self, number: int, generation: int) -> Any:
        """Return the answer; None, the end of the data, if the server is gone."""
        try:
            self._connection.send((number, generation))
            return self._connection.recv()
        except (EOFError, OSError):
            return None
