"""Whether a connection comes from the job: on one machine from a process of its user, else from one of its pods.

The historic protocol has no passwords, so its clients send no proof of identity. Refuses no client itself. The user of
a process is known on Linux only; elsewhere all local connections are accepted.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import unquote

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED: Final = "01"
_LISTENS: Final = "0A"
_USER: Final = 7
_MAPPED: Final = "0000000000000000FFFF0000"  # an address of version 4 in a socket of version 6
_TRUSTED_S: Final = 10.0  # a port may become another process's
_MAX_KNOWN: Final = 10_000
_ROOT: Final = 0


class Pods(Protocol):
    """The pods of a job on Kubernetes.

    Attributes:
        address: of the master's pod.
        port: on which the master hands out tasks.
    """

    address: str
    port: int

    def address_of(self, slot: str) -> str | None:
        """Return the address of the pod with a slot; None if there is none."""
        ...

    def has(self, address: str) -> bool:
        """Return whether a pod of the job has this address now."""
        ...


class PodPeers:
    """Checks the clients of a port that other pods of the cluster reach.

    Args:
        pods: of the job.
    """

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    async def is_own(self, peer: str) -> bool:
        """Return whether a client is in a pod of the job.

        Args:
            peer: as gRPC names it: ``ipv4:10.0.0.7:40000`` or ``ipv6:%5B::1%5D:40000``.
        """
        address = unquote(peer.partition(":")[2].rpartition(":")[0]).strip("[]")
        return self._pods.has(address.removeprefix("::ffff:"))


class Peers:
    """Checks the clients of one port of the loopback interface.

    Args:
        port: on which this process listens.
        uid: the user of the system as whom the job's workers run.
        read: returns the lines of the kernel's tables of connections.
    """

    def __init__(self, port: int, uid: int, read: Callable[[], Iterable[str]] | None = None) -> None:
        self._port = port
        self._uid = uid
        self._read = read if read is not None else _read_tables
        self._known: dict[str, float] = {}

    async def is_own(self, peer: str) -> bool:
        """Return whether a client is a process of the job's user or of root.

        Args:
            peer: as gRPC names it: ``ipv4:127.0.0.1:40000``.
        """
        if sys.platform != "linux":
            return True
        now = time.monotonic()
        if now - self._known.get(peer, -_TRUSTED_S) < _TRUSTED_S:
            return True
        owner = await asyncio.to_thread(self._find_owner, peer)
        is_own = owner in (self._uid, _ROOT)
        if is_own:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            self._known[peer] = now
        return is_own

    def _find_owner(self, peer: str) -> int | None:
        lines = [*self._read()]
        # Unreadable or incomplete tables do not show the owner: then the client is accepted.
        return find_owner(lines, peer, self._port) if shows_listener(lines, self._port) else self._uid


def find_owner(lines: Iterable[str], peer: str, port: int) -> int | None:
    """Return the user whose socket is connected to a port of 127.0.0.1; None: there is no such connection.

    Args:
        lines: of the kernel's tables of connections.
        peer: as gRPC names the socket.
        port: to which it is connected.

    >>> line = "1: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 1"
    >>> find_owner([line], "ipv4:127.0.0.1:40000", 8080), find_owner([line], "ipv4:127.0.0.1:40001", 8080)
    (1000, None)
    """
    _, _, address = peer.partition(":")
    host, _, number = address.rpartition(":")
    try:
        here = _write(host, int(number))
    except (OSError, ValueError):
        return None
    there = _write("127.0.0.1", port)
    for local, remote, state, owner in map(_split, lines):
        if (local, remote, state) == (here, there, _ESTABLISHED):
            return int(owner)
    return None


def shows_listener(lines: Iterable[str], port: int) -> bool:
    """Return whether the kernel's tables have the socket that listens on a port of 127.0.0.1."""
    here = _write("127.0.0.1", port)
    return any((local, state) == (here, _LISTENS) for local, _, state, _ in map(_split, lines))


def _split(line: str) -> tuple[str, str, str, str]:
    """Return both addresses, the state and the user of a connection."""
    words = line.split()
    if len(words) <= _USER:
        return "", "", "", ""
    return words[1].removeprefix(_MAPPED), words[2].removeprefix(_MAPPED), words[3], words[_USER]


def _write(host: str, port: int) -> str:
    """Return an address in the form of the tables."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


def _read_tables() -> list[str]:
    lines: list[str] = []
    for table in _TABLES:
        with contextlib.suppress(OSError):
            lines += table.read_text().splitlines()
    return lines
