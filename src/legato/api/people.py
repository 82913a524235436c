"""Users, tokens, the audit log, and the version of the server."""

from __future__ import annotations

from typing import Any

import msgspec


class Me(msgspec.Struct, frozen=True):
    """The user and the role of a token."""

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
    """A token without its secret.

    Args:
        id: the id by which it can be revoked.
        user: the owner.
        name: says what the token is for.
        role: the role with which it was made. A request has the lower of this and the user's role.
        created_at: seconds since 1970, as all times here.
        expires_at: when it ends.
        revoked_at: when it was revoked. None: it was not.
        used_at: when it was last used, to the minute. None: never.
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
    """A new token with its secret. Only the answer that creates a token contains the secret.

    Args:
        token: the token.
        secret: what requests send to authenticate.
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
    """An entry of the audit log: ``who`` did ``action`` to ``target``."""

    id: int
    time: float
    who: str
    action: str
    target: str
    detail: dict[str, Any] | None = None


class Setting(msgspec.Struct, frozen=True):
    """A setting of the server, its value and its meaning."""

    name: str
    value: Any
    meaning: str


class Version(msgspec.Struct, frozen=True):
    """The version of Legato on the server.

    Args:
        api: the versions of the REST interface that it offers.
        python: the version of Python that runs the jobs' scripts, such as ``3.11``. None: the server is too old to say.
    """

    version: str
    api: tuple[str, ...]
    python: str | None = None
