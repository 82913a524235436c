"""Answers equal requests of many consoles with one response, so that the route computes it once for each change.

Only requests of a few kinds are shared, whose answer depends on nothing but the request, the role, what the user may
see, and the version of the store and the decisions. All other requests go to the application unchanged.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from legato.api import API
from legato.control.roles import Asker
from legato.server.etags import is_known
from legato.server.shared_answers import Batches, Turns

_MAX_KEPT: Final = 64
_MAX_BYTES: Final = 2**20  # of a response that is kept
_PASSED_ON_S: Final = 30.0
_OK: Final = 200

# By path, the parameters with which it is shared. Others are not: 'project' may be a name, which each user means in
# another way.
_SHARED: Final[Mapping[str, frozenset[str]]] = {
    f"{API}/jobs": frozenset({"stage", "owner", "queue", "label", "name", "search", "limit", "after", "order"}),
    f"{API}/pool": frozenset(),
    f"{API}/queues": frozenset(),
}
_JOB: Final = re.compile(rf"{API}/jobs/(j-\w+)")


T = TypeVar("T")


class _Kept(NamedTuple):
    version: tuple[int, ...]
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    tag: str | None
    route: Any


class SharedResponses:
    """The ASGI application that answers some requests with a kept response, and passes the others on.

    Args:
        app: the application with the routes. The middleware has authenticated its requests.
        read_version: returns the version of the store, which grows with each change. Called in a thread.
        decisions: returns the last decisions of the control loop, which replaces them and never changes them.
    """

    def __init__(
        self, app: ASGIApp, read_version: Callable[[], tuple[int, ...]], decisions: Callable[[], object]
    ) -> None:
        self._app = app
        self._read_version = read_version
        self._decisions = decisions
        self._last_decisions: object = None
        self._num_decisions = 0
        self._versions = Batches[None, tuple[int, ...]](lambda _: {None: self._find_version()})
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._passed_on: OrderedDict[str, float] = OrderedDict()  # until when, in seconds of the event loop
        self._turns = Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        asker: Asker | None = scope.get("state", {}).get("asker")
        if asker is None or scope["method"] != "GET" or not _is_shared(scope["path"], scope["query_string"]):
            await self._app(scope, receive, send)
            return
        # No name of the user: all users of one role who see everything get the same.
        key = repr((scope["path"], scope["query_string"], asker.role, asker.sees_only))
        if self._is_passed_on(key):
            await self._app(scope, receive, send)
            return
        version = await self._versions.get(None)
        found: _Kept | list[Message] | None = self._find(key, version)
        if found is None:
            # One request at a time asks the route; the others find its response afterwards. Nothing is sent before the
            # turn ends, because a client that reads nothing would hold up all others.
            async with self._turns.of(key):
                found = self._find(key, version)
                if found is None:
                    found = await self._ask(key, version, scope, receive)
        if isinstance(found, _Kept):
            await _answer(found, scope, send)
            return
        for message in found:
            await send(message)

    def _find_version(self) -> tuple[int, ...]:
        decisions = self._decisions()
        if decisions is not self._last_decisions:
            self._last_decisions = decisions
            self._num_decisions += 1
        return (*self._read_version(), self._num_decisions)

    def _find(self, key: str, version: tuple[int, ...]) -> _Kept | None:
        kept = self._kept.get(key)
        if kept is None or kept.version < version:
            return None
        self._kept.move_to_end(key)
        return kept

    async def _ask(self, key: str, version: tuple[int, ...], scope: Scope, receive: Receive) -> _Kept | list[Message]:
        """Return the response of the route to a request, and keep it if others may have it. A problem is not kept."""
        inner = {**scope, "headers": [field for field in scope["headers"] if field[0] != b"if-none-match"]}
        messages: list[Message] = []

        async def note(message: Message) -> None:
            messages.append(message)

        try:
            await self._app(inner, receive, note)
        finally:
            scope["route"] = inner.get("route")
        if not messages or messages[0].get("status") != _OK:
            return messages
        headers = tuple(messages[0]["headers"])
        body = b"".join(message.get("body", b"") for message in messages[1:])
        made = _Kept(version, headers, body, Headers(raw=list(headers)).get("etag"), inner.get("route"))
        if len(body) <= _MAX_BYTES and _is_for_all(scope["path"], body):
            _put(self._kept, key, made)
        else:
            # Requests for it must not wait for one another in vain.
            _put(self._passed_on, key, asyncio.get_running_loop().time() + _PASSED_ON_S)
        return made

    def _is_passed_on(self, key: str) -> bool:
        """Return whether the last response to this request was not kept, so that the next ones go to the route."""
        until = self._passed_on.get(key)
        return until is not None and asyncio.get_running_loop().time() < until


def _put(kept: OrderedDict[str, T], key: str, value: T) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > _MAX_KEPT:
        kept.popitem(last=False)


@functools.lru_cache(1_000)
def _is_shared(path: str, query: bytes) -> bool:
    """Return whether the answer to a request depends only on what a key contains."""
    if _JOB.fullmatch(path):
        return not query
    parameters = _SHARED.get(path)
    if parameters is None:
        return False
    return {name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)} <= parameters


def _is_for_all(path: str, body: bytes) -> bool:
    """Return whether equal users get this response: a job was found by its id, not by a name that looks like one."""
    job = _JOB.fullmatch(path)
    return job is None or body.startswith(b'{"id":"%b"' % job[1].encode())


async def _answer(kept: _Kept, scope: Scope, send: Send) -> None:
    scope["route"] = kept.route
    known = Headers(scope=scope).get("if-none-match")
    # The tag of a job is its version, which does not change with its progress, so it makes no answer 304.
    if known is not None and kept.tag is not None and kept.tag.startswith("W/") and is_known(known, kept.tag):
        await send({"type": "http.response.start", "status": 304, "headers": [(b"etag", kept.tag.encode())]})
        await send({"type": "http.response.body", "body": b""})
        return
    # A copy, because the middleware adds headers of the one request.
    await send({"type": "http.response.start", "status": 200, "headers": list(kept.headers)})
    await send({"type": "http.response.body", "body": kept.body})
