"""Connects a thread-based program to a driver's door: without TLS, or with TLS and the door's own certificate.

The websockets of such a program are read by one thread and written by another. OpenSSL does not allow two threads to
use one connection at the same time, so `TlsSocket` encrypts in memory, under a lock, and waits outside of it.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from typing import Any, Final, cast
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from legato.system.tls import DOOR_NAME, make_client_context

_CHUNK_BYTES: Final = 2**16


def connect_to_door(url: str, certificate: str, open_timeout: float, **options: Any) -> ClientConnection:
    """Connect to a driver's door.

    Args:
        url: of the door, with the scheme ws, or wss with a certificate.
        certificate: of the driver (PEM). "": the door uses no TLS.
        open_timeout: seconds for each: the connection with TLS, and the websocket's handshake.
        options: others of `websockets.sync.client.connect`.

    Raises:
        OSError: nothing answers there, or it has another certificate.
        WebSocketException: the driver refuses the connection.
    """
    if not certificate:
        plain: ClientConnection = connect(url, open_timeout=open_timeout, proxy=None, **options)
        return plain
    parts = urlsplit(url)
    opened = TlsSocket(make_client_context(certificate), parts.hostname or "", parts.port or 443, open_timeout)
    try:
        inside = parts._replace(scheme="ws").geturl()  # what is above the socket
        sock = cast("socket.socket", opened)
        made: ClientConnection = connect(inside, sock=sock, open_timeout=open_timeout, proxy=None, **options)
        return made
    except BaseException:
        opened.close()
        raise


class TlsSocket:
    """A connection with TLS that one thread may read while another writes; has what websockets need of a socket.

    Args:
        context: verifies the certificate of the driver.
        host, port: where to connect.
        limit_s: seconds until the connection is verified.

    Raises:
        OSError: nothing answers, or it has another certificate.
    """

    def __init__(self, context: ssl.SSLContext, host: str, port: int, limit_s: float) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=DOOR_NAME)
        self._in_use = threading.Lock()
        self._sending = threading.Lock()
        deadline = time.monotonic() + limit_s
        self._socket = socket.create_connection((host, port), limit_s)
        self.family = self._socket.family
        try:
            self._shake_hands(deadline)
        except BaseException:
            self._socket.close()
            raise
        self._socket.settimeout(None)

    def _shake_hands(self, deadline: float) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._socket.sendall(self._outgoing.read())
            else:
                self._socket.sendall(self._outgoing.read())
                return
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the driver does not answer the handshake of TLS")
            self._socket.settimeout(left_s)
            received = self._socket.recv(_CHUNK_BYTES)
            if not received:
                raise ConnectionResetError("the driver closes the connection in the handshake of TLS")
            self._incoming.write(received)

    def recv(self, num_bytes: int) -> bytes:  # noqa: ARG002 -- what has arrived is never larger than a reader expects
        """Return the bytes that have arrived; wait for some. Return no bytes at the end of the connection."""
        while True:
            with self._in_use:
                found, is_over = self._read()
            if is_over:
                # The peer waits for our end. Who waits until this connection can be read must notice it.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RD)
            if found or is_over:
                return found
            received = self._socket.recv(_CHUNK_BYTES)
            with self._in_use:
                if received:
                    self._incoming.write(received)
                else:
                    self._incoming.write_eof()

    def _read(self) -> tuple[bytes, bool]:
        """Return all bytes that can be decrypted, and whether none will follow."""
        found = bytearray()
        while True:
            try:
                part = self._tls.read(_CHUNK_BYTES)
            except ssl.SSLWantReadError:
                return bytes(found), False
            except ssl.SSLEOFError:
                return bytes(found), True
            if not part:
                return bytes(found), True
            found += part

    def sendall(self, data: bytes) -> None:
        """Send bytes."""
        with self._sending:
            with self._in_use:
                left = memoryview(data)
                while left:
                    left = left[self._tls.write(left) :]
                encrypted = self._outgoing.read()
            self._socket.sendall(encrypted)

    def fileno(self) -> int:
        """Return the descriptor of the connection."""
        return self._socket.fileno()

    def setsockopt(self, *option: Any) -> None:
        """Set an option of the connection."""
        self._socket.setsockopt(*option)

    def settimeout(self, limit_s: float | None) -> None:
        """Limit the time of each later call."""
        self._socket.settimeout(limit_s)

    def getsockname(self) -> Any:
        """Return the own address."""
        return self._socket.getsockname()

    def getpeername(self) -> Any:
        """Return the address of the driver."""
        return self._socket.getpeername()

    def shutdown(self, how: int) -> None:
        """End one or both directions; ends a wait in `recv`."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
