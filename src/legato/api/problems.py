"""The kinds of problems (RFC 9457) with which the server refuses requests, and the error that a client raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

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

MEDIA_TYPE: Final = "application/problem+json"
PREFIX: Final = "urn:legato:problem:"
"""The beginning of the ``type`` of a problem. The name of its kind follows."""


class ProblemKind(NamedTuple):
    """A kind of problem.

    Args:
        status: HTTP status of the answer.
        title: a short description for people.
        error: class of the error that a client raises.
    """

    status: int
    title: str
    error: type[LegatoError]


PROBLEMS: Final[Mapping[str, ProblemKind]] = {
    "bad-request": ProblemKind(400, "The request cannot be read", UsageError),
    "unauthenticated": ProblemKind(401, "Authentication required", Unauthenticated),
    "forbidden": ProblemKind(403, "Not allowed", Forbidden),
    "wrong-origin": ProblemKind(403, "Sent by a browser from another site", Forbidden),
    "not-found": ProblemKind(404, "Not found", NotFound),
    "method-not-allowed": ProblemKind(405, "Method not allowed", ServerError),
    "too-slow": ProblemKind(408, "The request arrived too slowly", Unavailable),
    "conflict": ProblemKind(409, "Conflict with the current state", Conflict),
    "in-flight": ProblemKind(409, "The same request is still in progress", InFlight),
    "stale-version": ProblemKind(412, "The object has a newer version", StaleVersion),
    "too-large": ProblemKind(413, "Too large", UsageError),
    "unsupported-media-type": ProblemKind(415, "Unsupported type of body", ServerError),
    "range-not-satisfiable": ProblemKind(416, "Range not in the file", UsageError),
    "wrong-host": ProblemKind(421, "Unknown name of the server", UsageError),
    "invalid": ProblemKind(422, "Invalid request", UsageError),
    "key-reused": ProblemKind(422, "The idempotency key was used for another request", KeyReused),
    "too-many-requests": ProblemKind(429, "Too many requests", Unavailable),
    "head-too-large": ProblemKind(431, "The request header is too large", UsageError),
    "internal": ProblemKind(500, "Internal error", ServerError),
    "unavailable": ProblemKind(503, "Service unavailable", Unavailable),
    "no-space": ProblemKind(507, "No space left on the server", Unavailable),
}
"""All kinds by their names, which never change; `docs/rest.md` lists them."""
