"""The connection to one server: sends requests with the token, repeats them if that is safe, raises problems as errors.

Never follows a redirect, and never reveals its token: not to another host, not to a proxy that could read it, not in a
log or an error.
"""

from __future__ import annotations

import contextlib
import random
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from legato.api import API, WARNING
from legato.api.lists import Page
from legato.client.first_request import ask_first
from legato.client.problems import make_error
from legato.client.retries import NotTrusted, Outage, Tries
from legato.client.server_sent_events import Message, read_messages
from legato.client.servers import LocalServer, Server, find_local_home, find_start, read_local
from legato.core.clock import Clock
from legato.core.errors import Conflict, InFlight, LegatoError, ServerError, Unauthenticated, Unavailable
from legato.core.version import __version__
from legato.system.decoding import decode

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

_PATIENCE_S: Final = 30.0
_CONNECT_LIMIT_S: Final = 5.0
_ANSWER_LIMIT_S: Final = 90.0  # a long poll takes at most 60 s
_SILENCE_LIMIT_S: Final = 45.0  # for a stream, which sends something every 15 s
_MAX_REASON: Final = 200
_MAX_WARNING: Final = 2000
_AUTHORIZATION: Final = "Authorization"
_UNAUTHENTICATED: Final = 401

_TEMPORARY: Final = (429, 502, 503, 504)
_SURELY_NOT_DONE: Final = (429,)


def warn_caller(text: str) -> None:
    """Warn as Python does, with the line of the program that called Legato."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "legato":
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)


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
        on_warning: called with what the server warns of in an answer, such as another runtime than the one named. If it
            raises an error, the text is logged instead.
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
        on_warning: Callable[[str], None] = warn_caller,
    ) -> None:
        self.server = server
        self._patience_s = patience_s
        self._first_patience_s = patience_s if first_patience_s is None else first_patience_s
        self.clock = clock
        self._sleep = sleep
        self._draw = draw
        self._outage = Outage(on_outage)
        self._on_warning = on_warning
        self._answer_limit_s = answer_limit_s
        self._transport = transport
        self._making = threading.Lock()
        self._made: httpx.Client | None = None
        if urlsplit(server.url).scheme == "https":
            self._made = self._make_http()  # which may find that the certificate authority cannot be used

    @property
    def _http(self) -> httpx.Client:
        # Made when it is needed, because to load the library takes longer than most commands.
        with self._making:
            if self._made is None:
                self._made = self._make_http()
            return self._made

    def _make_http(self) -> httpx.Client:
        import httpx

        from legato.system.tls import make_client_context

        is_encrypted = urlsplit(self.server.url).scheme == "https"
        return httpx.Client(
            base_url=self.server.url,
            headers=self._make_headers(),
            follow_redirects=False,
            # A proxy cannot read HTTPS, but it could read plain HTTP.
            trust_env=is_encrypted,
            # Plain HTTP needs no certificates, and loading the trusted ones takes time.
            verify=make_client_context(self.server.ca) if is_encrypted else False,
            timeout=httpx.Timeout(self._answer_limit_s, connect=min(self._answer_limit_s, _CONNECT_LIMIT_S)),
            transport=self._transport,
        )

    def _make_headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"legato/{__version__}", "Accept": "application/json"}
        if self.server.token is not None:
            headers[_AUTHORIZATION] = f"Bearer {self.server.token}"
        return headers

    def __repr__(self) -> str:
        return f"Line({self.server!r})"

    def close(self) -> None:
        """Close all connections."""
        if self._made is not None:
            self._made.close()

    # ------------------------------------------------------------ one request, one answer

    def ask(self, kind: type[T], method: str, path: str, **request: Any) -> T:
        """Send a request and return the record in its answer; arguments as in `send`.

        Raises:
            LegatoError: the server refuses, cannot be reached, or is not understood.
        """
        if method == "GET" and self._transport is None and request.keys() <= {"params"}:
            content = ask_first(self.server.url, f"{API}{path}", _strip(request.get("params")), self._make_headers())
            if content is not None:
                self._outage.hear()
                return self._decode(kind, content)
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
        return self._decode(kind, response.content)

    def _decode(self, kind: type[T], content: bytes) -> T:
        try:
            return decode(content, kind)
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
        import httpx

        # When one of these is raised, no byte of the request was sent.
        never_sent = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
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
                is_sent = not isinstance(error, never_sent)
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
                self._pass_warning_on(response)
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

    def _pass_warning_on(self, response: httpx.Response) -> None:
        text = _clean(response.headers.get(WARNING, ""))
        if not text:
            return
        try:
            self._on_warning(text)
        except Exception:  # noqa: BLE001 -- such as a filter that makes warnings errors, or an error stream that is closed
            # The server has done what the request asked for, so the caller must get the answer.
            import logging

            logging.getLogger(__name__).warning("%s", text)

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
        import httpx

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
        import httpx

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
        import httpx

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
        from legato.system.tls import find_tls_error, is_about_name

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


def _clean(text: str) -> str:
    """Return the beginning of a text on one line, without characters that could move a terminal's cursor."""
    return "".join(char if char.isprintable() else "?" for char in text[:_MAX_WARNING])


def _strip(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _read_retry_after(response: httpx.Response) -> float | None:
    said = response.headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdecimal() else None


def _explain(error: httpx.TransportError) -> str:
    """Describe an error; some errors of the library have an empty message."""
    import httpx

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
