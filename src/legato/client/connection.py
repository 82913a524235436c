"""The connection to one server: sends requests with the token, repeats them if that is safe, raises problems as errors.

Never follows a redirect, and never reveals its token: not to another host, not to a proxy that could read it, not in a
log or an error.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec

from legato.api import API
from legato.api.lists import Page
from legato.client.problems import make_error
from legato.client.retries import NotTrusted, Outage, Tries
from legato.client.server_sent_events import Message, read_messages
from legato.client.servers import LocalServer, Server, find_local_home, find_start, read_local
from legato.core.clock import Clock
from legato.core.errors import Conflict, InFlight, LegatoError, ServerError, Unauthenticated, Unavailable
from legato.core.version import __version__
from legato.system.decoding import decode
from legato.system.tls import find_tls_error, is_about_name, make_client_context

T = TypeVar("T")

_PATIENCE_S: Final = 30.0
_CONNECT_LIMIT_S: Final = 5.0
_ANSWER_LIMIT_S: Final = 90.0  # a long poll takes at most 60 s
_SILENCE_LIMIT_S: Final = 45.0  # for a stream, which sends something every 15 s
_MAX_REASON: Final = 200
_AUTHORIZATION: Final = "Authorization"
_UNAUTHENTICATED: Final = 401

# When one of these is raised, no byte of the request was sent.
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_TEMPORARY: Final = (429, 502, 503, 504)
_SURELY_NOT_DONE: Final = (429,)


class PerhapsDone(LegatoError):
    """The server refuses a request that an earlier try, whose answer was lost, may have done."""

    def __init__(self, refusal: Conflict) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class Line:
    """A connection to one server; see the module.

    Args:
        server: its address and token.
        patience_s: seconds for which a request is repeated while the server cannot be reached or is busy.
        first_patience_s: the same until the server has answered once. None: as ``patience_s``. Use a small value for a
            terminal, so that a wrong address is reported soon.
        answer_limit_s: maximum duration of one try, in seconds.
        transport: carries requests; for tests. None: the network.
        clock: monotonic seconds.
        sleep: waits a number of seconds.
        draw: returns a random number from 0 to 1, so that many clients do not repeat requests at the same time.
        on_outage: called with True when a server stops answering, and with False when it answers again, in the thread
            of the request.
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
            headers[_AUTHORIZATION] = f"Bearer {server.token}"
        is_encrypted = urlsplit(server.url).scheme == "https"
        self._http = httpx.Client(
            base_url=server.url,
            headers=headers,
            follow_redirects=False,
            # A proxy cannot read HTTPS, but it could read plain HTTP.
            trust_env=is_encrypted,
            # Plain HTTP needs no certificates, and loading the trusted ones takes time.
            verify=make_client_context(server.ca) if is_encrypted else False,
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
        """Send a request and return the record in its answer; arguments as in `send`.

        Raises:
            LegatoError: the server refuses, cannot be reached, or is not understood.
        """
        return self.read(kind, self.send(method, path, **request))

    def ask_pages(
        self, kind: type[Page[T]], path: str, *, limit: int | None, page_size: int, **params: Any
    ) -> Iterator[T]:
        """Yield the records of a list, and request its pages as they are needed.

        Args:
            kind: of a page.
            path: of the list.
            limit: maximum number of records. None: all.
            page_size: maximum number of records in a page.
            params: other parameters of each request.

        Raises:
            LegatoError: as in `ask`.
        """
        num, after = 0, None
        while limit is None or num < limit:
            wanted = page_size if limit is None else min(limit - num, page_size)
            page = self.ask(kind, "GET", path, params={**params, "limit": wanted, "after": after})
            yield from page.items
            num, after = num + len(page.items), page.after
            if after is None:
                return

    def read(self, kind: type[T], response: httpx.Response) -> T:
        """Return the record in an answer.

        Raises:
            ServerError: the answer contains no such record.
        """
        try:
            return decode(response.content, kind)
        except msgspec.MsgspecError as error:
            raise ServerError(
                f"The answer of the server at {self.server.url} is not understood: {error}. Check whether the address "
                f"is right; if it is, the server or this client (Legato {__version__}) is too old."
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
            method: the HTTP method.
            path: below ``/api/v1``, with each part quoted.
            params: parameters of the query; those with the value None are not sent.
            body: sent as JSON.
            content: bytes to send instead of ``body``.
            headers: additional header fields.
            is_repeatable: False: the request must not be done twice, so it is not repeated when an answer is lost.
            is_open: the path is that of an open page, outside of ``/api/v1``.
            tells_repeats: raise PerhapsDone if an earlier try may have done the request.
            accepted: statuses that are not raised as problems.

        Raises:
            PerhapsDone: the server refused a repeated request, after the answer to an earlier try was lost.
            LegatoError: the server refuses, cannot be reached, or is not understood.
        """
        fields = dict(headers or {})
        if content is not None:
            fields["Content-Type"] = "application/octet-stream"
        elif body is not None:
            content = msgspec.json.encode(body)
            fields["Content-Type"] = "application/json"
        tries = self.begin_tries()
        was_lost = False
        while True:
            try:
                response = self._http.request(
                    method, path if is_open else f"{API}{path}", params=_strip(params), content=content, headers=fields
                )
            except httpx.TransportError as error:
                is_sent = not isinstance(error, _NEVER_SENT)
                was_lost = was_lost or is_sent
                if is_sent and not is_repeatable:
                    raise Unavailable(
                        f"The answer of the server at {self.server.url} was lost: {_explain(error)}. The server may "
                        "have carried out the request; check before you repeat it."
                    ) from error
                self._outage.miss()
                tries.wait(self._describe(error), error)
                continue
            self._outage.hear()
            if response.is_success or response.status_code in accepted:
                return response
            if self._renew_token(response):
                continue
            refusal = make_error(response, self.server.url)
            if self._is_temporary(response, refusal, is_repeatable=is_repeatable):
                was_lost = was_lost or response.status_code not in _SURELY_NOT_DONE
                tries.wait(refusal, None, _read_retry_after(response))
                continue
            if tells_repeats and was_lost and isinstance(refusal, Conflict):
                raise PerhapsDone(refusal)
            raise refusal

    def _renew_token(self, response: httpx.Response) -> bool:
        """Return whether there is another token than the refused one, because the server on this machine replaced it.

        The next request has this token. The refused request was not done, so it can be repeated.
        """
        if response.status_code != _UNAUTHENTICATED or not isinstance(self.server, LocalServer):
            return False
        found = read_local(self.server.home)
        if found is None or found.url != self.server.url:
            return False
        authorization = f"Bearer {found.token}"
        if response.request.headers.get(_AUTHORIZATION) == authorization:
            return False
        self.server = found
        self._http.headers[_AUTHORIZATION] = authorization
        return True

    def _is_temporary(self, response: httpx.Response, refusal: LegatoError, *, is_repeatable: bool) -> bool:
        if isinstance(refusal, InFlight):
            return True
        if response.status_code not in _TEMPORARY:
            return False
        return is_repeatable or response.status_code in _SURELY_NOT_DONE

    # ------------------------------------------------------------ streams

    @contextlib.contextmanager
    def open(self, path: str, *, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """Begin to read one long answer. The request is not repeated automatically.

        Raises:
            LegatoError: the server refuses or cannot be reached.
        """
        try:
            while True:
                with self._http.stream("GET", f"{API}{path}", headers=dict(headers or {})) as response:
                    self._outage.hear()
                    if response.is_success:
                        yield response
                        return
                    response.read()
                if not self._renew_token(response):
                    raise make_error(response, self.server.url)
        except httpx.TransportError as error:
            raise self._describe(error) from error

    def follow(
        self, path: str, *, params: Mapping[str, Any] | None = None, last_id: str | None = None
    ) -> Iterator[Message]:
        """Yield the messages of a stream until its end message; reconnect and continue after a lost connection.

        Args:
            path: as in `send`.
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
                    # Otherwise the next try shows whether only the connection broke.
                    self._outage.miss()
            except _RefusedForNow as refused:
                lost = refused.error, None, refused.wait_s
            else:
                # The stream ended without an end message: the server stops, and will restart or be replaced.
                lost = Unavailable(f"The server at {self.server.url} ended the stream."), None, None
            if has_begun:
                # The server was reachable until now, even if the stream was silent for long.
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
                if response.status_code in _TEMPORARY:
                    raise _RefusedForNow(error, _read_retry_after(response))
                if not self._renew_token(response):
                    raise error
                yield from self._read_stream(path, params, headers)
                return
            if "text/event-stream" not in response.headers.get("content-type", ""):
                raise ServerError(f"The server at {self.server.url} does not stream. Is it a Legato server?")
            yield None
            yield from read_messages(response.iter_bytes())

    # ------------------------------------------------------------ retries

    def begin_tries(self) -> Tries:
        """Begin a series of tries with the full patience."""
        first_s = self._patience_s if self._outage.has_heard else self._first_patience_s
        return Tries(self.clock, self._sleep, self._draw, first_s, self._patience_s)

    def _describe(self, error: httpx.TransportError) -> Unavailable:
        url = self.server.url
        tls_error = find_tls_error(error)
        if tls_error is not None:
            if is_about_name(tls_error):
                return NotTrusted(
                    f"Cannot reach the server at {url} safely: {_explain(error)}. Use another name of the server, or "
                    "let its operator add this one to the setting allowed_hosts."
                )
            if self.server.ca is not None:
                remedy = "Another program may answer at this address. If the server has a new certificate authority"
            else:
                remedy = "If the server has a certificate authority of its own, or one of your company"
            return NotTrusted(
                f"Cannot reach the server at {url} safely: {_explain(error)}. {remedy}, log in with 'legato login "
                f"{url} --ca FINGERPRINT', or with the file of its certificate instead of the fingerprint."
            )
        start = find_start(find_local_home())
        remedy = f"Does it run ('{start}' starts one on this machine), and is the address right?"
        return Unavailable(f"Cannot reach the server at {url}: {_explain(error)}. {remedy}")


class _RefusedForNow(Exception):
    """The server refused a stream temporarily."""

    def __init__(self, error: LegatoError, wait_s: float | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.wait_s = wait_s


# ---------------------------------------------------------------- answers and errors


def _strip(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _read_retry_after(response: httpx.Response) -> float | None:
    said = response.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdecimal() else None


def _explain(error: httpx.TransportError) -> str:
    """Describe an error; some errors of the library have an empty message."""
    usual = {
        httpx.ConnectTimeout: "it does not answer",
        httpx.ReadTimeout: "it does not answer",
        httpx.RemoteProtocolError: "the connection broke",
        httpx.ReadError: "the connection broke",
        httpx.WriteError: "the connection broke",
    }
    # Without the number of the system's error, which tells a user nothing.
    text = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
    return (text or usual.get(type(error), type(error).__name__))[:_MAX_REASON].rstrip(".")


def need_token(server: Server) -> Server:
    """Return the server after a check that there is a token for it.

    Raises:
        Unauthenticated: there is no token.
    """
    if server.token is None:
        raise Unauthenticated(
            f"There is no token for the server at {server.url}. Log in with 'legato login {server.url}'."
        )
    return server
