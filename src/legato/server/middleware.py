"""Middleware: checks every request before its route, and handles errors after it.

It gives each request an id, refuses unknown hosts, pages of other sites and bodies that are too large, authenticates
the user, turns errors into problem details, and logs the request. Routes need not do any of this themselves.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Sequence
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from legato.api import API
from legato.control.settings import Settings
from legato.server.authentication import Authenticator, read_address
from legato.server.json_limits import MAX_VALUES, check_json
from legato.server.plugins import ServerPlugin, ServerPlugins, is_inside
from legato.server.problems import Problem, describe_error
from legato.server.prometheus import ServerMetrics
from legato.server.sessions import check_csrf, read_token

_log = structlog.get_logger(__name__)
_levels = logging.getLogger(__name__)

UPLOADS: Final = f"{API}/code/"
_LOGINS: Final = tuple(("POST", f"{API}/{path}") for path in ("login", "session", "session/links/look"))
_OPEN: Final = (*_LOGINS, ("GET", f"{API}/openapi.json"))
_AGENTS: Final = f"{API}/agents/"
"""Agents have no user: their routes authenticate them."""
_ALWAYS: Final = "/healthz"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")  # a foreign web page has none of these names
_MAX_BODY_BYTES: Final = 2**20
# Enough for a user name, a password of 1024 characters with JSON escapes, and a name for the token.
_MAX_LOGIN_BYTES: Final = 2**14
_MAX_LOGIN_VALUES: Final = 20
_READS: Final = ("GET", "HEAD", "OPTIONS")
_NUMBERS: Final = random.Random()  # no secrets; reading the system source would let other threads go first
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


class Middleware:
    """The ASGI application that checks each request and then calls the application or a plugin.

    Args:
        app: the application with the routes.
        settings: the settings with the names of the server.
        authenticator: finds the user of a request.
        metrics: counts requests.
        plugins: the plugins, each of which answers requests under its own paths.
        own: prefixes of paths that no plugin may have.
        changed: called after every successful request that may have changed something.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        authenticator: Authenticator,
        metrics: ServerMetrics,
        changed: Callable[[], None],
        plugins: Sequence[ServerPlugin] = (),
        own: Sequence[str] = (),
    ) -> None:
        self._app = app
        self._hosts = known_hosts(settings)
        self._authenticator = authenticator
        self._metrics = metrics
        self._changed = changed
        self._plugins = ServerPlugins(plugins, self, own)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, send)
        try:
            check_place(scope, self._hosts)
            self._begin(scope)
            plugin = self._plugins.find(scope["path"])
            if plugin is not None:
                await plugin(scope, receive, exchange.send)
            else:
                await self._admit(scope)
                await self._app(scope, await self._read_body(scope, receive), exchange.send)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is answered and logged whole
            await self._refuse(exchange, error, scope, receive)
        finally:
            scope["state"]["end_work"]()
            self._note(scope, exchange)
        if scope["method"] not in _READS and exchange.status < 300 and not scope["path"].startswith(_AGENTS):
            self._changed()

    def _begin(self, scope: Scope) -> None:
        """Count a request of its address, except for ``/healthz`` and for requests that a plugin sends."""
        if scope["path"] != _ALWAYS and not is_inside(scope):
            scope["state"]["end_work"] = self._authenticator.begin_request(read_address(scope))

    async def _admit(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        if (scope["method"], path) in _LOGINS:
            # Before any check, so that attempts with an invalid body count too.
            self._authenticator.begin_login(scope)
        _check_body(scope["method"], path, headers)
        is_open = (scope["method"], path) in _OPEN or path.startswith(_AGENTS)
        if path.startswith(f"{API}/") and not is_open:
            token = read_token(scope)
            check_csrf(scope["method"], headers, token)
            asker = await self._authenticator.recognize(token.secret, read_address(scope))
            state = scope["state"]
            state |= {"asker": asker, "secret": token.secret, "by_cookie": token.by_cookie}
            # From now on the request counts for its user, and no longer for its address.
            state["end_work"]()
            state["end_work"] = self._authenticator.begin_work(asker.name)

    async def _read_body(self, scope: Scope, receive: Receive) -> Receive:
        """Read the body of a request that may change something, and return the function that gives it to the route.

        Raises:
            Problem: the body is too large or has too many values, or too many attempts to log in have failed.
            ClientDisconnect: the connection closed before the whole body arrived.
        """
        if scope["method"] in _READS or scope["path"].startswith(UPLOADS):
            return receive
        is_login = (scope["method"], scope["path"]) in _LOGINS
        max_bytes = _MAX_LOGIN_BYTES if is_login else _MAX_BODY_BYTES
        content, is_whole = bytearray(), False
        while not is_whole:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            content += message.get("body", b"")
            is_whole = not message.get("more_body", False)
            if len(content) > max_bytes:
                raise _too_large(max_bytes)
        body = bytes(content)
        check_json(body, _MAX_LOGIN_VALUES if is_login else MAX_VALUES)
        if is_login:
            self._authenticator.check_login(scope, body)
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def give() -> Message:
            return waiting.pop() if waiting else await receive()

        return give

    @staticmethod
    async def _refuse(exchange: _Exchange, error: Exception, scope: Scope, receive: Receive) -> None:
        if exchange.is_answered:
            return  # `answer_error` has answered; Starlette raises the error again nevertheless
        problem = explain_error(error, exchange.id, scope["path"])
        if exchange.status:
            # The answer has begun, so the only way to report the error is to close the connection.
            raise error
        await problem.render(exchange.id)(scope, receive, exchange.send)

    def _note(self, scope: Scope, exchange: _Exchange) -> None:
        elapsed_s = time.perf_counter() - exchange.began
        route = getattr(scope.get("route"), "path", "none")
        self._metrics.note_request(scope["method"], route, exchange.status, elapsed_s)
        asker = scope["state"].get("asker")
        is_usual = scope["method"] in _READS or (scope["path"].startswith(_AGENTS) and exchange.status < 300)
        level = logging.DEBUG if is_usual and exchange.status < 500 else logging.INFO
        if level == logging.DEBUG and not _levels.isEnabledFor(level):
            return  # structlog takes longer to find that out, and consoles send hundreds of such requests at once
        _log.log(
            level,
            "request",
            request=exchange.id,
            method=scope["method"],
            path=scope["path"],
            status=exchange.status,
            user=asker.name if asker else None,
            ms=round(elapsed_s * 1000, 1),
        )


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer to a request whose route raised an error."""
    request_id = request.state.request_id
    return explain_error(error, request_id, request.url.path).render(request_id)


def explain_error(error: Exception, request_id: str, path: str) -> Problem:
    """Return the problem that describes an error. Unexpected errors are logged with their traceback."""
    problem = describe_error(error)
    if problem.status == 500:
        _log.error("the server could not answer a request", request=request_id, path=path, exc_info=error)
    return problem


class _Exchange:
    """One request, and the state of its answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self.id = f"{_NUMBERS.getrandbits(64):016x}"
        self.began = time.perf_counter()
        self.status = 0
        self.is_answered = False
        self._send = send
        scope.setdefault("state", {}).update(request_id=self.id, end_work=_do_nothing)

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self.id
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)
        self.is_answered = message["type"] == "http.response.body" and not message.get("more_body", False)


# ---------------------------------------------------------------- checks


def check_place(scope: Scope, known: Collection[str]) -> None:
    """Raise Problem if the request has a zero byte, is for another host, or comes from a page of another site."""
    if "\0" in scope["path"] or b"%00" in scope["query_string"]:
        raise Problem("bad-request", "Cannot read the request: there is a zero byte in its path or query.")
    headers = Headers(scope=scope)
    check_host(headers, known)
    check_origin(headers)


def known_hosts(settings: Settings) -> frozenset[str]:
    """Return the allowed names of the server: ``allowed_hosts``, its loopback names, and where it listens."""
    own = () if settings.host in ("0.0.0.0", "::", "") else (settings.host,)  # noqa: S104 -- compared, not bound
    return frozenset(_without_port(name).lower() for name in (*settings.allowed_hosts, *_LOOPBACK, *own))


def check_host(headers: Headers, known: Collection[str]) -> None:
    """Raise Problem unless the request is for a name of this server."""
    host = _without_port(headers.get("host", "")).lower()
    if host not in known and "*" not in known:
        raise Problem(
            "wrong-host",
            f"The server is not known by the name '{host[:100]}'. Use one of its names, or ask its operator to add "
            "this one to the setting allowed_hosts.",
        )


def check_origin(headers: Headers) -> None:
    """Raise Problem if a browser sent the request from a page that is not the server's own."""
    origin = headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != headers.get("host", "").lower():
        raise Problem(
            "wrong-origin",
            f"Pages of '{origin[:100]}' may not send requests to this server. Use a page of this server.",
        )


def _without_port(host: str) -> str:
    """Return the name in a Host header, or an address without its brackets.

    >>> _without_port("localhost:8765"), _without_port("[::1]:80"), _without_port("::1")
    ('localhost', '::1', '::1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host if host.count(":") > 1 else host.partition(":")[0]


def _check_body(method: str, path: str, headers: Headers) -> None:
    if method in _READS or path.startswith(UPLOADS):
        return
    length = headers.get("content-length", "0")
    max_bytes = _MAX_LOGIN_BYTES if (method, path) in _LOGINS else _MAX_BODY_BYTES
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    has_body = length != "0" or "transfer-encoding" in headers
    if has_body and kind not in ("application/json", "application/merge-patch+json"):
        raise Problem(
            "unsupported-media-type",
            f"Cannot read a body of type '{kind[:100]}'. Send JSON, with 'Content-Type: application/json'.",
        )


def _too_large(max_bytes: int) -> Problem:
    return Problem(
        "too-large",
        f"The body has more than {max_bytes} bytes. Upload code with 'PUT {UPLOADS}SHA256', and do not send data in "
        "requests.",
    )


def _do_nothing() -> None:
    pass
