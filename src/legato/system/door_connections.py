"""The connections of a door before they are admitted: limited in number, and TLS below them with small buffers.

Anyone who reaches the port can connect. Without limits, connections that say nothing would use up the memory and the
open files of the process, which then cannot write the records of its job.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, Final, cast

from websockets.asyncio.server import ServerConnection

_MAX_WAITING: Final = 512
_MIN_WAITING: Final = 8


class Waiting:
    """The connections that are not admitted yet, by address. If there are too many, the oldest one is dropped.

    So a new connection always gets its turn, and one address leaves room for the others.

    Args:
        max_all: maximum number of connections.
        max_of_address: maximum number of connections of one address.
    """

    def __init__(self, max_all: int, max_of_address: int) -> None:
        self._max_all = max_all
        self._max_of_address = max_of_address
        self._transports: dict[ServerConnection, tuple[str, asyncio.BaseTransport]] = {}
        self._of_address: dict[str, dict[ServerConnection, None]] = {}

    def add(self, connection: ServerConnection, transport: asyncio.BaseTransport) -> None:
        """Count a connection, if need be by dropping another one.

        Args:
            connection: that waits.
            transport: of its socket, below TLS.
        """
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._transports[connection] = address, transport
        own = self._of_address.setdefault(address, {})
        own[connection] = None
        if len(self._transports) > self._max_all:
            own = max(self._of_address.values(), key=len)
        elif len(own) <= self._max_of_address:
            return
        self._drop(next(iter(own)))

    def remove(self, connection: ServerConnection) -> None:
        """Stop counting a connection: it is admitted, or lost."""
        address, _ = self._transports.pop(connection, ("", None))
        own = self._of_address.get(address, {})
        own.pop(connection, None)
        if not own:
            self._of_address.pop(address, None)

    def drop_all(self) -> None:
        """Drop all connections that wait."""
        for connection in tuple(self._transports):
            self._drop(connection)

    def _drop(self, connection: ServerConnection) -> None:
        _, transport = self._transports[connection]
        self.remove(connection)
        cast("asyncio.Transport", transport).abort()


def limit_waiting() -> Waiting:
    """Return limits by which three quarters of this process's open files remain for others than those that wait."""
    num_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = max(min(num_files // 4, _MAX_WAITING), _MIN_WAITING)
    return Waiting(most, most // 2)


class SmallTls(SSLProtocol):
    """The TLS below a connection of a server, with a smaller buffer than asyncio's.

    Args:
        inner: the protocol above TLS.
        context: has the server's certificate.
        handshake_limit_s: within which a handshake must be complete.
    """

    max_size = 2**16

    def __init__(self, inner: asyncio.Protocol, context: ssl.SSLContext, handshake_limit_s: float) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            inner,
            context,
            cast("Any", None),  # nothing waits for the handshake
            server_side=True,
            ssl_handshake_timeout=cast("Any", handshake_limit_s),
        )


class _PlainConnection(ServerConnection):
    """A connection without TLS."""

    def __init__(self, waiting: Waiting, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waiting = waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection."""
        super().connection_made(transport)
        self._waiting.add(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._waiting.remove(self)
        super().connection_lost(exc)


class _TlsBelow(SmallTls):
    """The TLS below a connection, which is counted from its first byte on."""

    def __init__(self, waiting: Waiting, inner: ServerConnection, context: ssl.SSLContext, limit_s: float) -> None:
        super().__init__(inner, context, limit_s)
        self._waiting = waiting
        self._inner = inner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and begin the handshake."""
        super().connection_made(transport)
        self._waiting.add(self._inner, transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection, also if its handshake was never completed."""
        self._waiting.remove(self._inner)
        super().connection_lost(exc)


def make_connections(waiting: Waiting, tls: ssl.SSLContext | None, handshake_limit_s: float) -> type[ServerConnection]:
    """Return the argument ``create_connection`` of websockets' ``serve``, which gets no argument ``ssl``.

    Args:
        waiting: counts the connections. Call its ``remove`` when one is admitted.
        tls: has the server's certificate. None: the server does not use TLS.
        handshake_limit_s: within which a handshake of TLS must be complete.
    """

    def make(*args: Any, **options: Any) -> asyncio.BaseProtocol:
        if tls is None:
            return _PlainConnection(waiting, *args, **options)
        return _TlsBelow(waiting, ServerConnection(*args, **options), tls, handshake_limit_s)

    return cast("type[ServerConnection]", make)  # websockets passes what it makes on to asyncio
