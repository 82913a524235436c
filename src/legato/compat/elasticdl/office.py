"""Answers the loader processes of this worker: they ask over a socket, however they were started.

One thread per loader process, which waits with it until the plan knows. Knows nothing of training.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Final, NamedTuple

_KEY_BYTES: Final = 16

Answer = Callable[[int, int], Any]


class Address(NamedTuple):
    """Where an office is, as loader processes are told.

    Args:
        path: of its socket.
        key: lets in.
    """

    path: str
    key: bytes


class Office:
    """Takes questions from loader processes.

    Args:
        answer: of (number, generation); may wait. Called on a thread for each process.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        # Without a file, so that nothing is left of it however this process ends.
        path = f"\0legato-{os.getpid()}-{secrets.token_hex(8)}" if sys.platform == "linux" else None
        self._listener = Listener(path, family="AF_UNIX", authkey=(key := secrets.token_bytes(_KEY_BYTES)))
        self.address = Address(path or str(self._listener.address), key)
        self._connections: list[Connection] = []
        self._arrived = threading.Condition()
        self._num_arrived: dict[int, int] = {}
        self._is_closed = False
        threading.Thread(target=self._admit, name="legato-office", daemon=True).start()

    def wait_for(self, num_processes: int, generation: int, may_come: Callable[[], bool]) -> None:
        """Wait until so many loader processes of a generation have asked something, or will not any more."""
        with self._arrived:
            while self._num_arrived.get(generation, 0) < num_processes and may_come():
                self._arrived.wait(0.1)

    def close(self) -> None:
        """Take no more questions. Idempotent."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.close()

    def file_descriptors(self) -> list[int]:
        """Return what a forked process must not hold open: else nobody hears that this one is gone."""
        found = [connection.fileno() for connection in self._connections if not connection.closed]
        inner: Any = getattr(self._listener, "_listener", None)
        listening = getattr(inner, "_socket", None)
        return [*found, listening.fileno()] if listening is not None else found

    def _admit(self) -> None:
        while not self._is_closed:
            try:
                connection = self._listener.accept()
            except Exception:  # noqa: BLE001, S112 - a stranger without the key, or one that is gone; or the end
                continue
            self._connections = [known for known in self._connections if not known.closed] + [connection]
            threading.Thread(target=self._serve, args=(connection,), name="legato-loader", daemon=True).start()

    def _serve(self, connection: Connection) -> None:
        has_asked = False
        with connection, contextlib.suppress(EOFError, OSError):
            while True:
                number, generation = connection.recv()
                if not has_asked:
                    has_asked = True
                    with self._arrived:
                        self._num_arrived[generation] = self._num_arrived.get(generation, 0) + 1
                        self._arrived.notify_all()
                connection.send(self._answer(number, generation))


class Counter:
    """Asks an office, in a loader process.

    Args:
        address: of the office.
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
