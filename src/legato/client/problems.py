"""Turns answers that are problems (RFC 9457) into Legato's errors. Sends no requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from legato.api.problems import PREFIX, PROBLEMS
from legato.core.errors import (
    LegatoError,
    ServerError,
    Unavailable,
    UsageError,
)
from legato.system.decoding import decode

if TYPE_CHECKING:
    import httpx


class Problem(msgspec.Struct, frozen=True):
    """The content of a problem. The values of ``type`` never change; ``detail`` is for people."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str | None = None


def make_error(response: httpx.Response, url: str) -> LegatoError:
    """Return the error for an answer.

    Args:
        response: read completely, with a status that is not a success.
        url: of the server.
    """
    if 300 <= response.status_code < 400:
        return ServerError(_describe_redirect(response, url))
    try:
        problem = decode(response.content, Problem)
    except msgspec.MsgspecError:
        return _make_other_error(response, url)
    known = PROBLEMS.get(problem.type.removeprefix(PREFIX))
    kind = known.error if known else ServerError if problem.status >= 500 else UsageError
    message = problem.detail or f"{problem.title}."
    if kind is ServerError and problem.request_id:
        message += f" (request {problem.request_id})"
    return kind(message)


def _describe_redirect(response: httpx.Response, url: str) -> str:
    # The token is for one address. Only the user can decide whether to trust the target of a redirection.
    target = response.headers.get("location", "elsewhere")
    return (
        f"The server at {url} redirects to {target[:200]}. Legato does not send the token there. If that is the right "
        "address, log in to it with 'legato login URL'."
    )


def _make_other_error(response: httpx.Response, url: str) -> LegatoError:
    status = response.status_code
    if status in (429, 502, 503, 504):
        return Unavailable(f"The server at {url} cannot answer now (HTTP {status}). Try again later.")
    what = "A proxy may answer in its place" if status >= 500 else "It may not be a Legato server"
    return ServerError(
        f"The server at {url} answers with HTTP {status} and nothing that this client understands. {what}; check "
        "whether the address is right."
    )
