"""The door of a driver: one listening socket for workers, agents and clients. Knows only paths, tokens and TLS.

Every part of the driver that takes connections mounts itself under its paths. A request for a path that is not mounted
yet is answered with 503, so that workers and agents of an earlier driver try again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import os
import random
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from legato.core import wire
from legato.core.errors import UsageError
from legato.system.door_connections import limit_waiting, make_connections
from legato.system.tls import HANDSHAKE_LIMIT_S, load_certificate, make_server_context

LOOPBACK: Final = "127.0.0.1"

_BACKLOG: Final = 128  # connections for which the system waits until they are accepted, such as after a restart
_ACCEPTED_AT_ONCE: Final = 16
"""In one turn of the loop: asyncio accepts so many connections before one of them can be counted."""

Admit = Callable[[ServerConnection, Request], Response | None]
"""Returns the refusal of a request, None to accept it."""

Handle = Callable[[ServerConnection], Awaitable[None]]


class _Mount(NamedTuple):
    admit: Admit
    handle: Handle


class Door:
    """Listens for the connections of one driver.

    Args:
        host: address to listen on.
        port: to listen on; 0 for any free one.
        ports: the first and the last port of a range, of which a free one is used instead. None: ``port``.
        paths: all paths that will be mounted; others do not exist.
        is_encrypted: accept TLS only, with a certificate that this door makes for itself. Its key stays in this
            process; those who connect must be given the certificate.
    """

    def __init__(
        self,
        host: str = LOOPBACK,
        port: int = 0,
        paths: tuple[str, ...] = ("/worker", "/client"),
        ports: tuple[int, int] | None = None,
        *,
        is_encrypted: bool = False,
    ) -> None:
        self._host = host
        self._asked = [port] if ports is None else list(range(ports[0], ports[1] + 1))
        self._paths = paths
        self._mounts: dict[str, _Mount] = {}
        self._connections: set[ServerConnection] = set()
        self._waiting = limit_waiting()
        self._server: Server | None = None
        self._tls: ssl.SSLContext | None = None
        self.certificate = ""
        """The certificate of an encrypted door (PEM), for those who connect. "": it uses no TLS."""
        if is_encrypted:
            from legato.system.certificates import make_door_certificate

            made = make_door_certificate()
            self.certificate, self._tls = made.certificate, make_server_context()
            load_certificate(self._tls, made.certificate, made.key)

    async def open(self) -> None:
        """Start listening.

        Raises:
            UsageError: the port or all of the range are in use, or this machine does not have the address.
        """
        random.shuffle(self._asked)  # so that drivers that start together seldom try the same one
        for port in self._asked[:-1]:
            with contextlib.suppress(OSError):
                await self._listen(port)
                return
        port = self._asked[-1]
        try:
            await self._listen(port)
        except OSError as error:
            told = f"Cannot listen on {self._host}:{port}"
            if error.errno == errno.EADDRINUSE and len(self._asked) > 1:
                raise UsageError(
                    f"Cannot listen on {self._host}: all ports from {min(self._asked)} to {max(self._asked)} are in "
                    "use. Give a larger range."
                ) from error
            if error.errno == errno.EADDRINUSE:
                raise UsageError(f"{told}: the port is in use. Choose another port, or 0 for any free one.") from error
            if error.errno == errno.EADDRNOTAVAIL:
                raise UsageError(f"{told}: this machine does not have that address.") from error
            raise

    async def _listen(self, port: int) -> None:
        self._server = await self._serve(port)
        while len(ports := {listening.getsockname()[1] for listening in self._server.sockets}) > 1:
            # On all addresses, the system has chosen one free port for IPv4 and another one for IPv6.
            self._server.close()
            await self._server.wait_closed()
            try:
                self._server = await self._serve(ports.pop())
            except OSError:  # it is in use for the other one
                self._server = await self._serve(port)
        for listening in self._server.sockets:
            with socket.socket(fileno=os.dup(listening.fileno())) as same:
                same.listen(_BACKLOG)

    async def _serve(self, port: int) -> Server:
        return await serve(
            self._handle,
            self._host,
            port,
            create_connection=make_connections(self._waiting, self._tls, HANDSHAKE_LIMIT_S),
            backlog=_ACCEPTED_AT_ONCE,
            process_request=self._admit,
            max_size=wire.MAX_FRAME_BYTES,
            compression=None,
            ping_interval=None,  # heartbeats are messages of our own
            server_header=None,
        )

    @property
    def port(self) -> int:
        """The port on which the door listens."""
        assert self._server is not None, "the door is not open"
        return int(next(iter(self._server.sockets)).getsockname()[1])

    def url(self, path: str) -> str:
        """Return the URL of a path, for processes of this machine."""
        # A socket on all IPv6 addresses takes no IPv4 connections.
        own = {"": LOOPBACK, "0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 -- compared, not bound
        host = own.get(self._host, self._host)
        scheme = "ws" if self._tls is None else "wss"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}{path}"

    def mount(self, paths: tuple[str, ...], admit: Admit, handle: Handle) -> None:
        """Accept requests for paths from now on."""
        for path in paths:
            self._mounts[path] = _Mount(admit, handle)

    def unmount(self, paths: tuple[str, ...]) -> None:
        """Refuse requests for paths from now on; present connections stay open."""
        for path in paths:
            self._mounts.pop(path, None)

    async def close(self) -> None:
        """Stop listening, and drop all connections without a closing handshake, which a peer may never answer."""
        if self._server is not None:
            # Python 3.11 forgets a connection that it has accepted and not yet attached to a server that is closed:
            # accept no more, and let the loop attach what it has.
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())
            await asyncio.sleep(0)
            self._server.close(close_connections=False)
            self._waiting.drop_all()
            for connection in self._connections:
                connection.transport.abort()
            await self._server.wait_closed()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        mount = self._mounts.get(request.path)
        if mount is not None:
            return mount.admit(connection, request)
        if request.path in self._paths:
            return connection.respond(http.HTTPStatus.SERVICE_UNAVAILABLE, "The driver is starting.\n")
        return connection.respond(http.HTTPStatus.NOT_FOUND, f"The paths are {' and '.join(self._paths)}.\n")

    async def _handle(self, connection: ServerConnection) -> None:
        self._waiting.remove(connection)
        assert connection.request is not None
        mount = self._mounts.get(connection.request.path)
        if mount is None:
            connection.transport.abort()
            return
        self._connections.add(connection)
        try:
            await mount.handle(connection)
        finally:
            self._connections.discard(connection)
