"""The connection to one server: requests with their token, repeated where that is safe; problems become errors.

Never follows the server elsewhere, and never shows its token to others: not to another host, not to a proxy that
could read it, not in a log or an error.
"""

from __future__ import annotations

import contextlib
import random
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from legato.api import API
from legato.client.problems import make_error
from legato.client.retries import NotTrusted, Outage, Tries
from legato.client.server_sent_events import Message, read_messages
from legato.client.servers import Server
from legato.core.clock import Clock
from legato.core.errors import Conflict, InFlight, LegatoError, ServerError, Unauthenticated, Unavailable
from legato.core.version import __version__
from legato.system.decoding import decode

T = TypeVar("T")

_PATIENCE_S: Final = 30.0
_CONNECT_LIMIT_S: Final = 5.0
_ANSWER_LIMIT_S: Final = 90.0  # a long poll is held back for at most 60
_SILENCE_LIMIT_S: Final = 45.0  # of a stream, in which something is said every 15
_MAX_TOLD: Final = 200

# Before any of these was raised, no byte of the request was sent.
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_PASSING: Final = (429, 502, 503, 504)
_SURELY_NOT_DONE: Final = (429,)


class PerhapsDone(LegatoError):
    """What is refused now was perhaps done by an earlier try whose answer was lost."""

    def __init__(self, refusal: Conflict) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Line:
    """See the module.

    Args:
        server: where it is, and the token for it.
        patience_s: how long to continue trying when the server cannot be reached, or asks to come again.
        first_patience_s: the same until it has answered once. None: the same. Small where a user waits at a
            terminal: an address that is wrong is not worth waiting for.
        answer_limit_s: how long one try may take.
        transport: carries requests; for tests. None: the network.
        clock: monotonic seconds.
        sleep: waits so many seconds.
        draw: a random number from 0 to 1, so that many clients do not come again at the same moment.
        on_outage: called with True when a server that has answered before does not any more, and with False when it
            does again; by whichever thread asks.
    """

    def __init__(
        self,
        server: Server,
        *,
        patience_s: float = _PATIENCE_S,
        first_patience_s: float | None = None,
        answer_limit_s: float = _ANSWER_LIMIT_S,
        transport: httpx.BaseTransport | None = None,
        clock: Clock = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        draw: Callable[[], float] = random.random,
        on_outage: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.server = server
        self._patience_s = patience_s
        self._first_patience_s = patience_s if first_patience_s is None else first_patience_s
        self.clock = clock
        self._sleep = sleep
        self._draw = draw
        self._outage = Outage(on_outage)
        headers = {"User-Agent": f"legato/{__version__}", "Accept": "application/json"}
        if server.token is not None:
            headers["Authorization"] = f"Bearer {server.token}"
        is_encrypted = urlsplit(server.url).scheme == "https"
        self._http = httpx.Client(
            base_url=server.url,
            headers=headers,
            follow_redirects=False,
            # A proxy may carry what it cannot read. Plain HTTP it could.
            trust_env=is_encrypted,
            # Plain HTTP shows no certificate, and to read those that are trusted takes time.
            verify=is_encrypted,
            timeout=httpx.Timeout(answer_limit_s, connect=min(answer_limit_s, _CONNECT_LIMIT_S)),
            transport=transport,
        )

    def __repr__(self) -> str:
        return f"Line({self.server!r})"

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    # ------------------------------------------------------------ one request, one answer

    def ask(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        """Ask for one thing and return it; arguments as of `send`.

        Raises:
            LegatoError: the server refuses, cannot be reached, or is not understood.
        """
        return self.read(kind, self.send(method, path, **request))

    def read(self, kind: type[T], response: httpx.Response) -> T:
        """Return the record in an answer.

        Raises:
            ServerError: it is none.
        """
        try:
            return decode(response.content, kind)
        except msgspec.MsgspecError as error:
            raise ServerError(
                f"The answer of the server at {self.server.url} is not understood: {error}. Check whether the address "
                f"is right; if it is, one of the two is too old: here is Legato {__version__}."
            ) from error

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool = True,
        tells_repeats: bool = False,
        is_open: bool = False,
        accepted: tuple[int, ...] = (),
    ) -> httpx.Response:
        """Send a request until it is answered.

        Args:
            method: of HTTP.
            path: below ``/api/v1``; each part of it quoted.
            params: of the query; None among them is left out.
            body: sent as JSON.
            content: sent as it is, instead of ``body``.
            headers: besides the usual.
            is_repeatable: False: it must not be done twice, so it is not sent again when an answer is lost.
            is_open: the path is that of an open page, outside of ``/api/v1``.
            tells_repeats: raise PerhapsDone where that may be what happened.
            accepted: statuses that are answers here although they are problems elsewhere.

        Raises:
            PerhapsDone: it was refused because of how things stand, after the answer to an earlier try was lost.
            LegatoError: the server refuses, cannot be reached, or is not understood.
        """
        told = dict(headers or {})
        if content is not None:
            told["Content-Type"] = "application/octet-stream"
        elif body is not None:
            content = msgspec.json.encode(body)
            told["Content-Type"] = "application/json"
        tries = self.begin_tries()
        was_lost = False
        while True:
            try:
                response = self._http.request(
                    method, path if is_open else f"{API}{path}", params=_strip(params), content=content, headers=told
                )
            except httpx.TransportError as error:
                is_sent = not isinstance(error, _NEVER_SENT)
                was_lost = was_lost or is_sent
                if is_sent and not is_repeatable:
                    raise Unavailable(
                        f"The answer of the server at {self.server.url} was lost: {_tell(error)}. Legato does not know "
                        "whether the server did it; check before you repeat it."
                    ) from error
                self._outage.miss()
                tries.wait(self._describe(error), error)
                continue
            self._outage.hear()
            if response.is_success or response.status_code in accepted:
                return response
            refusal = make_error(response, self.server.url)
            if self._comes_again(response, refusal, is_repeatable=is_repeatable):
                was_lost = was_lost or response.status_code not in _SURELY_NOT_DONE
                tries.wait(refusal, None, _read_retry_after(response))
                continue
            if tells_repeats and was_lost and isinstance(refusal, Conflict):
                raise PerhapsDone(refusal)
            raise refusal

    def _comes_again(self, response: httpx.Response, refusal: LegatoError, *, is_repeatable: bool) -> bool:
        if isinstance(refusal, InFlight):
            return True
        if response.status_code not in _PASSING:
            return False
        return is_repeatable or response.status_code in _SURELY_NOT_DONE

    # ------------------------------------------------------------ streams

    @contextlib.contextmanager
    def open(self, path: str, *, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Begin to read one long answer, which is not repeated by itself.

        Raises:
            LegatoError: the server refuses or cannot be reached.
        """
        try:
            with self._http.stream("GET", f"{API}{path}", headers=dict(headers or {})) as response:
                self._outage.hear()
                if not response.is_success:
                    response.read()
                    raise make_error(response, self.server.url)
                yield response
        except httpx.TransportError as error:
            raise self._describe(error) from error

    def follow(
        self, path: str, *, params: Mapping[str, Any] | None = None, last_id: str | None = None
    ) -> Iterator[Message]:
        """Yield the messages of a stream until it says that it has ended, beginning again where it broke off.

        Args:
            path: as of `send`.
            params: of the query.
            last_id: continue after the message with this id.

        Raises:
            LegatoError: the server refuses, cannot be reached for too long, or is not understood.
        """
        tries = self.begin_tries()
        while True:
            headers = {"Accept": "text/event-stream"}
            if last_id is not None:
                headers["Last-Event-ID"] = last_id
            has_begun = False
            lost: tuple[LegatoError, BaseException | None, float | None]
            try:
                for message in self._read_stream(path, params, headers):
                    has_begun = True
                    if message is None:
                        continue
                    tries = self.begin_tries()
                    if message.event == "end":
                        return
                    last_id = message.id if message.id is not None else last_id
                    yield message
            except httpx.TransportError as error:
                lost = self._describe(error), error, None
                if not has_begun:
                    # Else the next try says whether it is more than a connection that broke.
                    self._outage.miss()
            except _ComesAgain as refused:
                lost = refused.error, None, refused.wait_s
            else:
                # It ended without saying so: the server stops, and another one or itself comes again.
                lost = Unavailable(f"The server at {self.server.url} ended the stream."), None, None
            if has_begun:
                # However long it was quiet, the server was there until now.
                tries.go_on()
            tries.wait(*lost)

    def _read_stream(
        self, path: str, params: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> Iterator[Message | None]:
        """Yield None when the stream has begun, then its messages."""
        limits = httpx.Timeout(_SILENCE_LIMIT_S, connect=_CONNECT_LIMIT_S)
        with self._http.stream(
            "GET", f"{API}{path}", params=_strip(params), headers=dict(headers), timeout=limits
        ) as response:
            self._outage.hear()
            if not response.is_success:
                response.read()
                error = make_error(response, self.server.url)
                if response.status_code in _PASSING:
                    raise _ComesAgain(error, _read_retry_after(response))
                raise error
            if "text/event-stream" not in response.headers.get("content-type", ""):
                raise ServerError(f"The server at {self.server.url} does not stream. Is it a Legato server?")
            yield None
            yield from read_messages(response.iter_bytes())

    # ------------------------------------------------------------ again

    def begin_tries(self) -> Tries:
        """Begin to try something, with all patience."""
        first_s = self._patience_s if self._outage.has_heard else self._first_patience_s
        return Tries(self.clock, self._sleep, self._draw, first_s, self._patience_s)

    def _describe(self, error: httpx.TransportError) -> Unavailable:
        url = self.server.url
        if _is_about_trust(error):
            return NotTrusted(
                f"Cannot reach the server at {url} safely: {_tell(error)}. If its certificate is of your own making, "
                "name the file with it in SSL_CERT_FILE."
            )
        remedy = "Does it run ('legato up' starts one on this machine), and is the address right?"
        return Unavailable(f"Cannot reach the server at {url}: {_tell(error)}. {remedy}")


class _ComesAgain(Exception):
    """A stream was refused for the moment."""

    def __init__(self, error: LegatoError, wait_s: float | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait_s = wait_s


# ---------------------------------------------------------------- small things


def _strip(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _read_retry_after(response: httpx.Response) -> float | None:
    said = response.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdecimal() else None


def _tell(error: httpx.TransportError) -> str:
    """Say what happened; the library leaves that empty where it has only its own name for it."""
    usual = {
        httpx.ConnectTimeout: "it does not answer",
        httpx.ReadTimeout: "it does not answer",
        httpx.RemoteProtocolError: "the connection broke",
        httpx.ReadError: "the connection broke",
        httpx.WriteError: "the connection broke",
    }
    return (str(error) or usual.get(type(error), type(error).__name__))[:_MAX_TOLD].rstrip(".")


def _is_about_trust(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def need_token(server: Server) -> Server:
    """Return the server if there is a token for it.

    Raises:
        Unauthenticated: there is none.
    """
    if server.token is None:
        raise Unauthenticated(
            f"There is no token for the server at {server.url}. Log in with 'legato login {server.url}'."
        )
    return server
