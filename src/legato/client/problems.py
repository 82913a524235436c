"""Answers that are problems (RFC 9457) become Legato's errors. Sends no requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httpx
import msgspec

from legato.core.errors import (
    Conflict,
    Forbidden,
    InFlight,
    KeyReused,
    LegatoError,
    NotFound,
    ServerError,
    StaleVersion,
    Unauthenticated,
    Unavailable,
    UsageError,
)
from legato.system.decoding import decode

_PREFIX: Final = "urn:legato:problem:"

_OF_TYPES: Final[Mapping[str, type[LegatoError]]] = {
    "bad-request": UsageError,
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "wrong-origin": Forbidden,
    "not-found": NotFound,
    "method-not-allowed": ServerError,
    "too-slow": Unavailable,
    "conflict": Conflict,
    "in-flight": InFlight,
    "stale-version": StaleVersion,
    "too-large": UsageError,
    "unsupported-media-type": ServerError,
    "range-not-satisfiable": UsageError,
    "wrong-host": UsageError,
    "invalid": UsageError,
    "key-reused": KeyReused,
    "too-many-requests": Unavailable,
    "head-too-large": UsageError,
    "internal": ServerError,
    "unavailable": Unavailable,
    "no-space": Unavailable,
}


class Problem(msgspec.Struct, frozen=True):
    """What an answer says of itself. ``type`` never changes; ``detail`` is for people."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None


def make_error(response: httpx.Response, url: str) -> LegatoError:
    """Return the error that an answer is.

    Args:
        response: read whole, with a status that is no success.
        url: of the server.
    """
    if 300 <= response.status_code < 400:
        return ServerError(_tell_redirect(response, url))
    try:
        problem = decode(response.content, Problem)
    except msgspec.MsgspecError:
        return _make_foreign(response, url)
    kind = _OF_TYPES.get(problem.type.removeprefix(_PREFIX))
    if kind is None:
        kind = ServerError if problem.status >= 500 else UsageError
    told = problem.detail or f"{problem.title}."
    if kind is ServerError and problem.request_id:
        told += f" (request {problem.request_id})"
    return kind(told)


def _tell_redirect(response: httpx.Response, url: str) -> str:
    # The token is for one address. Only the user can decide whether to trust the target of a redirection.
    target = response.headers.get("location", "elsewhere")
    return (
        f"The server at {url} sends on to {target[:200]}; the token is not shown there. If that is the right address, "
        "log in to it with 'legato login URL'."
    )


def _make_foreign(response: httpx.Response, url: str) -> LegatoError:
    status = response.status_code
    if status in (429, 502, 503, 504):
        return Unavailable(f"The server at {url} cannot answer now (HTTP {status}). Try again later.")
    what = "Something between here and it may answer in its place" if status >= 500 else "It may be no Legato server"
    return ServerError(
        f"The server at {url} answers with HTTP {status} and nothing that is understood here. {what}; look whether "
        "the address is right."
    )
