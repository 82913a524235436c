"""Who may ask, and what was done by whom: users, their tokens, the audit log, as plain frozen records. Decides nothing.

Times are seconds since 1970.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from legato.control.roles import Role


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user with a name and a role. ``disabled_at``: since then nothing is allowed any more."""

    name: str
    role: Role
    created_at: float
    disabled_at: float | None
    has_password: bool


class TokenKind(enum.StrEnum):
    """What a token is for."""

    TOKEN = "token"  # noqa: S105 -- a kind; made on purpose, for a program or a machine
    SESSION = "session"  # of a log-in
    LINK = "link"  # a code that logs a user in once
    LOCAL = "local"  # of the system user of the server, on its machine


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it may be shown: without its secret.

    Args:
        expires_at: None: of an older version, which has none that are good.
        role: as the token was made; what holds is the lower of this and its user's.
        used_at: the last time, to the minute.
    """

    id: str
    user: str
    name: str
    role: Role
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    kind: TokenKind = TokenKind.TOKEN


class NewToken(msgspec.Struct, frozen=True):
    """A token at the one moment when its secret is known."""

    token: Token
    secret: str

    def __repr__(self) -> str:
        return f"NewToken({self.token!r}, secret='lgt_…')"


class NewCode(msgspec.Struct, frozen=True):
    """The code of a link that logs a user in, at the only moment when it is known. Works once, until it expires."""

    code: str
    expires_at: float

    def __repr__(self) -> str:
        return f"NewCode('lgc_…', {self.expires_at})"


class CodeTold(msgspec.Struct, frozen=True):
    """Whom the code of a link logs in, and until when."""

    name: str
    role: Role
    expires_at: float


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to what, and when. Never changed and never deleted."""

    id: int
    time: float
    who: str
    action: str
    target: str
    detail: dict[str, Any] | None = None
