"""Problems (RFC 9457): how the server refuses, and the error of Legato that a client raises for it."""

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
"""Where the ``type`` of a problem begins; its name follows."""


class ProblemKind(NamedTuple):
    """A kind of problem.

    Args:
        status: of the answer.
        title: for people.
        error: what a client raises.
    """

    status: int
    title: str
    error: type[LegatoError]


PROBLEMS: Final[Mapping[str, ProblemKind]] = {
    "bad-request": ProblemKind(400, "The request cannot be read", UsageError),
    "unauthenticated": ProblemKind(401, "Who asks is not known", Unauthenticated),
    "forbidden": ProblemKind(403, "Who asks may not do this", Forbidden),
    "wrong-origin": ProblemKind(403, "A browser sent it from a foreign page", Forbidden),
    "not-found": ProblemKind(404, "There is no such thing", NotFound),
    "method-not-allowed": ProblemKind(405, "The path does not have this method", ServerError),
    "too-slow": ProblemKind(408, "The request came too slowly", Unavailable),
    "conflict": ProblemKind(409, "It does not fit how things stand now", Conflict),
    "in-flight": ProblemKind(409, "The same request is being answered", InFlight),
    "stale-version": ProblemKind(412, "It was changed meanwhile", StaleVersion),
    "too-large": ProblemKind(413, "It is larger than it may be", UsageError),
    "unsupported-media-type": ProblemKind(415, "The body is of another type than is read here", ServerError),
    "range-not-satisfiable": ProblemKind(416, "No byte of the file lies in the range", UsageError),
    "wrong-host": ProblemKind(421, "The server is not known by this name", UsageError),
    "invalid": ProblemKind(422, "It can be read but not done", UsageError),
    "key-reused": ProblemKind(422, "The idempotency key came with another request", KeyReused),
    "too-many-requests": ProblemKind(429, "Too many requests", Unavailable),
    "head-too-large": ProblemKind(431, "The head of the request is larger than it may be", UsageError),
    "internal": ProblemKind(500, "The server made a mistake", ServerError),
    "unavailable": ProblemKind(503, "The server cannot answer now", Unavailable),
    "no-space": ProblemKind(507, "The disk of the server is full", Unavailable),
}
"""All kinds by their names, which never change; `docs/rest.md` lists them."""
