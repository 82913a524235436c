"""Limits HTTP connections before a request is handled: bytes, header fields, time, and number of connections.

Uvicorn parses requests with httptools, which has no such limits: a header without an end would fill the memory, and an
incomplete header would keep its connection open forever. All limits are per connection or per address. With TLS, a
connection counts from its first byte on, and its handshake must come as soon as a header.
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from legato.control.settings import Settings
from legato.server.problems import Problem
from legato.system.door_connections import SmallTls

_MIN_BODY_BYTES_PER_S: Final = 500
"""The server does not wait for a body that comes more slowly. Uploads over a modem are ten times as fast."""
_MAX_PIPELINED: Final = 8
"""Maximum number of requests of a connection that wait for an earlier one. Browsers and Legato's client send none."""
_UNREAD_LIMIT_S: Final = 300.0
"""Seconds after which the server closes the connection of a client that does not read its answer, such as a pager."""
_TLS_HANDSHAKE: Final = 22  # the first byte of a client that speaks TLS
_CLOSE_LIMIT_S: Final = 0.5  # for the answer of an idle client when the server stops


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of connections.

    Args:
        head_bytes: maximum bytes of the request line, the header fields and the trailers of a request.
        head_fields: maximum number of header fields of a request.
        head_s: seconds within which a header must arrive, from when the server begins to wait for it.
        body_s: seconds within which a body must arrive. A longer body must bring an average of
            `_MIN_BODY_BYTES_PER_S` in each interval of this length.
        connections: maximum number of connections of all addresses together.
        connections_of_address: maximum number of connections of one address.
        proxies: addresses and networks to which that maximum does not apply, because they have connections of many
            users. ``*``: all.
    """

    head_bytes: int
    head_fields: int
    head_s: float
    body_s: float
    connections: int
    connections_of_address: int
    proxies: tuple[str, ...] = ()


def limit_connections(settings: Settings, num_files: int) -> ConnectionLimits:
    """Return the limits that the settings describe.

    Args:
        settings: of the server.
        num_files: maximum number of open files of this process. A quarter is reserved for other files.
    """
    return ConnectionLimits(
        head_bytes=settings.max_head_bytes,
        head_fields=settings.max_head_fields,
        head_s=settings.head_limit_s,
        body_s=settings.body_limit_s,
        connections=max(min(settings.max_connections, num_files * 3 // 4), 1),
        connections_of_address=settings.max_connections_of_address,
        proxies=settings.trusted_proxies,
    )


class Connections:
    """Counts the connections of a server by address, and knows those that wait for a request, in order of time.

    If there are too many, it closes the one that has waited longest for a request. So a new connection, such as a probe
    of ``/healthz``, is accepted however many idle connections there are.

    Args:
        limits: the maximum numbers of connections.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self._names = frozenset(limits.proxies)
        self._networks = [network for proxy in limits.proxies if (network := _read_network(proxy)) is not None]
        self._waiting: dict[str, OrderedDict[BoundedProtocol, None]] = {}
        self._all_waiting: OrderedDict[BoundedProtocol, None] = OrderedDict()
        self._num: Counter[str] = Counter()
        self._num_all = 0

    def add(self, address: str, connection: BoundedProtocol) -> bool:
        """Accept a connection, if need be by closing an idle one. Return False if there is no room."""
        limits = self.limits
        own = self._waiting.get(address)
        is_full = self._num[address] >= limits.connections_of_address and not self._is_proxy(address)
        crowd = own if is_full else self._all_waiting
        if is_full or self._num_all >= limits.connections:
            if not crowd:
                return False
            next(iter(crowd)).make_room()
        self._num[address] += 1
        self._num_all += 1
        self.wait(address, connection)
        return True

    def remove(self, address: str, connection: BoundedProtocol) -> None:
        """Stop counting a connection that was accepted."""
        self.work(address, connection)
        self._num_all -= 1
        self._num[address] -= 1
        if not self._num[address]:
            del self._num[address]

    def wait(self, address: str, connection: BoundedProtocol) -> None:
        """Note that a connection waits for a request."""
        self._waiting.setdefault(address, OrderedDict())[connection] = None
        self._all_waiting[connection] = None

    def work(self, address: str, connection: BoundedProtocol) -> None:
        """Note that the server answers a request of a connection."""
        self._all_waiting.pop(connection, None)
        own = self._waiting.get(address)
        if own is not None:
            own.pop(connection, None)
            if not own:
                del self._waiting[address]

    def _is_proxy(self, address: str) -> bool:
        if "*" in self._names or address in self._names:
            return True
        found = _read_network(address)
        return found is not None and any(
            found.network_address in network for network in self._networks if network.version == found.version
        )


class BoundedProtocol(HttpToolsProtocol):
    """One connection with the limits of this module. Uvicorn's base class calls its methods."""

    def __init__(self, connections: Connections, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._all = connections
        self._limits = connections.limits
        self._address = ""
        self._is_counted = False
        self._is_refused = False
        self._below: asyncio.Transport | None = None  # what carries TLS
        # State of the request that is being read.
        self._has_begun = False
        self._reads_head = True
        self._num_bytes = 0
        self._num_fields = 0
        self._num_silent_bytes = 0
        self._num_body_bytes = 0
        self._too_much: Problem | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    @property
    def handshake_limit_s(self) -> float:
        """Seconds within which a handshake of TLS must be complete."""
        return self._limits.head_s

    # ------------------------------------------------------------ the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it if there are too many."""
        super().connection_made(transport)
        self._is_counted = self._is_counted or self._count_connection(transport)
        if self._is_counted:
            self._await_head()
        else:
            self._refuse(
                Problem(
                    "unavailable",
                    "The server has too many connections. Try again in a moment.",
                    headers={"Retry-After": "5"},
                )
            )

    def begin_handshake(self, transport: asyncio.Transport) -> bool:
        """Count a connection before its handshake of TLS. Return False if there is no room."""
        self.transport = transport
        self._below = transport
        return self._count_connection(transport)

    def _count_connection(self, transport: asyncio.Transport) -> bool:
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if isinstance(peer, tuple) else ""
        self._is_counted = self._all.add(self._address, self)
        return self._is_counted

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._stop_timer()
        self._read_again()
        self.forget()
        super().connection_lost(exc)

    def forget(self) -> None:
        """Stop counting the connection, if it is counted."""
        if self._is_counted:
            self._is_counted = False
            self._all.remove(self._address, self)

    def make_room(self) -> None:
        """Close this idle connection, because a new one needs its place."""
        self.forget()
        self._stop_timer()
        self.transport.abort()

    def shutdown(self) -> None:
        """Close the connection if it is idle, because the server stops."""
        super().shutdown()
        if self._below is not None and self.transport.is_closing():
            # TLS would wait for the client's answer, and idle clients do not read.
            self.loop.call_later(_CLOSE_LIMIT_S, self._below.abort)

    def data_received(self, data: bytes) -> None:
        """Parse bytes that have arrived, within the limits."""
        if self._is_refused:
            return
        # Counts bytes that the parser keeps: those since the last callback below.
        self._num_silent_bytes += len(data)
        super().data_received(data)
        if self._num_silent_bytes > self._limits.head_bytes and not self._is_refused:
            self._refuse(self._describe_large())
        cycle: RequestResponseCycle | None = self.cycle
        is_idle = cycle is None or cycle.response_complete
        if (self._has_begun or is_idle) and self._reads_head and self._timer is None and not self._is_refused:
            # Any byte, even one that does not begin a request, ends uvicorn's timeout of idle connections.
            self._await_head()

    def pause_writing(self) -> None:
        """Wait until the client reads its answer, but not forever."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_LIMIT_S, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue to send, because the client has read."""
        self._read_again()
        super().resume_writing()

    # ------------------------------------------------------------ a request

    def on_message_begin(self) -> None:
        """Reset the counters, because a request begins."""
        super().on_message_begin()
        self._has_begun = True
        self._num_bytes = self._num_fields = self._num_silent_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Count and keep a part of the URL."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count and keep a header field. A trailer, after the body, is only counted."""
        self._num_fields += 1
        self._count(len(name) + len(value))
        if self._reads_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let uvicorn begin to answer the request, and limit the time of its body."""
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._too_much = Problem(
                "too-many-requests",
                f"More than {_MAX_PIPELINED} requests wait on this connection. Send the next one after an answer.",
                headers={"Retry-After": "1"},
            )
            raise _TooMuch
        self._num_silent_bytes = 0
        self._reads_head = False
        self._stop_timer()
        self._all.work(self._address, self)
        super().on_headers_complete()
        self._num_body_bytes = 0
        self._watch_body()

    def on_body(self, body: bytes) -> None:
        """Count and keep a part of the body."""
        self._num_silent_bytes = 0
        self._num_body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer, because the whole request has arrived."""
        self._num_silent_bytes = 0
        self._has_begun, self._reads_head = False, True
        self._stop_timer()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Note that the connection is idle, unless it has more requests."""
        super().on_response_complete()
        if self._is_counted and not self.pipeline and not self.transport.is_closing():
            self._all.wait(self._address, self)

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not a valid request, or a request that exceeds a limit."""
        if not self._is_refused:
            self._refuse(self._too_much or Problem("bad-request", f"{msg} Send HTTP/1.1."))

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing. The request is answered without the upgrade, and clients must not be able to fill the log."""

    # ------------------------------------------------------------ inside

    def _count(self, num_bytes: int) -> None:
        self._num_silent_bytes = 0
        self._num_bytes += num_bytes
        if self._num_bytes > self._limits.head_bytes or self._num_fields > self._limits.head_fields:
            self._too_much = self._describe_large()
            raise _TooMuch

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(self._limits.head_s, self._refuse_slow, "head", self._limits.head_s)

    def _watch_body(self, num_before: int = 0) -> None:
        """Check after ``body_s`` seconds whether enough of the body has arrived. ``num_before``: bytes until now."""
        limit_s = self._limits.body_s
        # A body is not slow if the server itself has stopped reading it.
        is_paused = self.flow.read_paused
        num_wanted = _MIN_BODY_BYTES_PER_S * limit_s

        def look() -> None:
            if self.flow.read_paused or is_paused or self._num_body_bytes - num_before >= num_wanted:
                self._watch_body(self._num_body_bytes)
            else:
                self._refuse_slow("body", limit_s)

        self._timer = self.loop.call_later(limit_s, look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _refuse_slow(self, what: str, limit_s: float) -> None:
        self._refuse(
            Problem(
                "too-slow",
                f"The {what} of the request did not come within {limit_s:g} s. Check the connection, and send it "
                "again.",
            )
        )

    def _describe_large(self) -> Problem:
        limits = self._limits
        return Problem(
            "head-too-large",
            f"The request header may have {limits.head_bytes} bytes and {limits.head_fields} fields. Send less, "
            "such as fewer cookies, or send a long query as a body.",
        )

    def _refuse(self, problem: Problem) -> None:
        """Answer with a problem, unless an answer has begun, and close the connection."""
        self._is_refused = True
        self._stop_timer()
        self._unset_keepalive_if_required()
        cycle: RequestResponseCycle | None = self.cycle
        has_begun = False
        if cycle is not None and not cycle.response_complete:
            has_begun = cycle.response_started
            cycle.disconnected = True
            cycle.message_event.set()
        self.pipeline.clear()
        if not has_begun:
            _answer(self.transport, problem)
        self.transport.close()


def _answer(transport: asyncio.Transport, problem: Problem) -> None:
    """Answer with a problem, outside of uvicorn."""
    answer = problem.render(secrets.token_hex(8))
    fields = [*answer.raw_headers, (b"connection", b"close")]
    head = b"".join(b"%b: %b\r\n" % field for field in fields)
    transport.write(STATUS_LINE[problem.status] + head + b"\r\n" + bytes(answer.body))


class _TlsProtocol(SmallTls):
    """The TLS below a connection."""

    def __init__(self, inner: BoundedProtocol, context: ssl.SSLContext) -> None:
        super().__init__(inner, context, inner.handshake_limit_s)
        self._inner = inner
        self._unheard: asyncio.Transport | None = None  # until the first bytes have arrived
        self._buffer = memoryview(b"")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, unless there are too many connections."""
        super().connection_made(transport)
        assert isinstance(transport, asyncio.Transport)
        self._unheard = transport
        if not self._inner.begin_handshake(transport):
            transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection, also if its handshake was never completed."""
        super().connection_lost(exc)
        self._inner.forget()

    def get_buffer(self, n: int) -> memoryview:
        """Return the buffer for the next bytes."""
        self._buffer = memoryview(super().get_buffer(n))
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt bytes that have arrived. A client that does not speak TLS gets an answer that it can read."""
        if self._unheard is not None and nbytes:
            below, self._unheard = self._unheard, None
            if self._buffer[0] != _TLS_HANDSHAKE:
                told = "This server speaks TLS only. Write https:// instead of http:// in its address."
                _answer(below, Problem("bad-request", told))
                below.close()
                return
        super().buffer_updated(nbytes)


class _TooMuch(Exception):
    """A request exceeds a limit. Raised in a callback of httptools, which then stops parsing."""


def make_protocol(
    limits: ConnectionLimits, tls: ssl.SSLContext | None = None
) -> Callable[..., asyncio.Protocol | asyncio.BufferedProtocol]:
    """Return the factory of uvicorn's protocols, one for each connection of one server.

    Args:
        limits: of all connections together and of each.
        tls: has the server's certificate. None: the server does not use TLS.
    """
    connections = Connections(limits)

    def make(**uvicorn: Any) -> asyncio.Protocol | asyncio.BufferedProtocol:
        inner = BoundedProtocol(connections, **uvicorn)
        return inner if tls is None else _TlsProtocol(inner, tls)

    return make


def _read_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
