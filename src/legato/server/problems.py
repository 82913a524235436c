"""Describes errors as problem details (RFC 9457): a stable type, a status, and a sentence that says what to do."""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from legato.api.problems import MEDIA_TYPE, PREFIX, PROBLEMS
from legato.core.errors import (
    BadField,
    Conflict,
    Forbidden,
    InFlight,
    JobNotFound,
    KeyReused,
    LegatoError,
    NotFound,
    StaleVersion,
    StoreError,
    TransitionError,
    Unauthenticated,
    UsageError,
)
from legato.core.invalid_values import describe_rule, describe_value

# The first class that matches counts, so special classes come before general ones.
_OF_ERRORS: Final[Sequence[tuple[type[LegatoError], str]]] = (
    (StaleVersion, "stale-version"),
    (InFlight, "in-flight"),
    (KeyReused, "key-reused"),
    (Conflict, "conflict"),
    (TransitionError, "conflict"),
    (NotFound, "not-found"),
    (JobNotFound, "not-found"),
    (Unauthenticated, "unauthenticated"),
    (Forbidden, "forbidden"),
    (UsageError, "invalid"),
    (StoreError, "unavailable"),
)
_OF_STATUS: Final = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-slow",
    413: "too-large",
    429: "too-many-requests",
    503: "unavailable",
}
_MAX_ERRORS: Final = 20
NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of system errors that mean that a disk or a quota is full."""


class FieldError(msgspec.Struct, frozen=True):
    """The error of one field. ``field``: its path, such as ``body.max_workers``."""

    field: str
    message: str


class Problem(LegatoError):
    """An error that is sent as an answer, where no other error of Legato fits.

    Args:
        name: the end of the problem's type, a key of `PROBLEMS`.
        detail: a sentence that says what to do.
        headers: of the answer.
        errors: errors of single fields.
    """

    def __init__(
        self, name: str, detail: str, *, headers: Mapping[str, str] | None = None, errors: Sequence[FieldError] = ()
    ) -> None:
        super().__init__(detail)
        self.name = name
        self.detail = detail
        self.status = PROBLEMS[name].status
        self.headers = dict(headers or {})
        self.errors = tuple(errors)

    def render(self, request_id: str) -> Response:
        """Return the problem as an answer."""
        body: dict[str, Any] = {
            "type": PREFIX + self.name,
            "title": PROBLEMS[self.name].title,
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
        }
        if self.errors:
            body["errors"] = self.errors
        return Response(msgspec.json.encode(body), self.status, self.headers, media_type=MEDIA_TYPE)


def too_many(detail: str, wait_s: float) -> Problem:
    """Return the problem for too many requests. ``wait_s``: seconds that the client must wait (``Retry-After``)."""
    return Problem("too-many-requests", detail, headers={"Retry-After": str(max(math.ceil(wait_s), 1))})


def describe_error(error: Exception) -> Problem:
    """Return the problem that describes an error. Unknown errors become an internal error, or "no space"."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return _describe_invalid(error)
    if isinstance(error, HTTPException):
        return _describe_http(error)
    if isinstance(error, ClientDisconnect):
        return Problem("bad-request", "The connection closed before the whole body arrived. Send it again.")
    for kind, name in _OF_ERRORS:
        if isinstance(error, kind):
            headers = {"unauthenticated": {"WWW-Authenticate": "Bearer"}, "in-flight": {"Retry-After": "1"}}
            headers["unavailable"] = {"Retry-After": "2"}
            errors = [FieldError(f"body.{error.field}", str(error))] if isinstance(error, BadField) else []
            return Problem(name, str(error), headers=headers.get(name), errors=errors)
    return _describe_unexpected(error)


def _describe_unexpected(error: Exception) -> Problem:
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return Problem(
            "no-space",
            f"The server cannot store this: {error.strerror}. Nothing was stored. The operator must make room; "
            "then send it again.",
            headers={"Retry-After": "30"},
        )
    return Problem(
        "internal", "Internal error. The server's log has the details under this request_id; please report it."
    )


def _describe_http(error: HTTPException) -> Problem:
    name = _OF_STATUS.get(error.status_code, "internal" if error.status_code >= 500 else "bad-request")
    detail = {
        "bad-request": "Cannot read the body: it is not JSON, or not in UTF-8. Send one JSON object.",
        "not-found": "There is no such path. 'GET /api/v1/openapi.json' lists all.",
        "method-not-allowed": "This path does not support this method. See the header 'Allow'.",
    }.get(name, str(error.detail))
    return Problem(name, detail, headers=error.headers)


def _describe_invalid(error: RequestValidationError) -> Problem:
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        why = found[0].get("ctx", {}).get("error", "")
        return Problem("bad-request", f"The body is not JSON: {why}. Send one JSON object.")
    errors = [
        FieldError(".".join(str(part) for part in one["loc"]), describe_rule(one["msg"])) for one in found[:_MAX_ERRORS]
    ]
    listed = "; ".join(describe_value(one.field, one.message) for one in errors)
    return Problem("invalid", f"Cannot use the request: {listed}.", errors=errors)
