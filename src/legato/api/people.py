"""Users, tokens, the audit log, and the version of the server."""

from __future__ import annotations

from typing import Any

import msgspec


class Me(msgspec.Struct, frozen=True):
    """Who the token says that you are."""

    name: str
    role: str


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user with a name and a role: ``admin``, ``user`` or ``viewer``."""

    name: str
    role: str
    created_at: float
    disabled_at: float | None
    has_password: bool


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its secret.

    Args:
        id: by which it is ended.
        user: the owner.
        name: says what the token is for.
        role: what may be done with it.
        created_at: seconds since 1970; so are the others.
        expires_at: when it ends.
        revoked_at: when it was ended before that. None: it was not.
        used_at: the last time, to the minute. None: never.
        kind: ``token``, ``session`` of a log-in, ``link`` that logs in once, or ``local`` on the server's machine.
    """

    id: str
    user: str
    name: str
    role: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    kind: str = "token"


class Secret(msgspec.Struct, frozen=True):
    """A token at the one moment when its secret is known.

    Args:
        token: all else of it.
        secret: what it is known by.
    """

    token: Token
    secret: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.token!r}, secret='lgt_…')"


class Code(msgspec.Struct, frozen=True):
    """A code that logs a user in once."""

    code: str
    expires_at: float

    def __repr__(self) -> str:
        return f"Code(code='lgc_…', expires_at={self.expires_at})"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to what, and when."""

    id: int
    time: float
    who: str
    action: str
    target: str
    detail: dict[str, Any] | None = None


class Setting(msgspec.Struct, frozen=True):
    """A setting of the server, with what it means."""

    name: str
    value: Any
    meaning: str


class Version(msgspec.Struct, frozen=True):
    """Which server it is."""

    version: str
    api: tuple[str, ...]
