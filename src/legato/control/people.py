"""Users, their tokens and the audit log, as plain frozen records. Decides nothing.

Times are seconds since 1970.
"""

from __future__ import annotations

import enum

import msgspec

from legato.api import people
from legato.control.roles import Role


class User(people.User, frozen=True, kw_only=True):
    """A user with a name and a role. ``disabled_at``: since then nothing is allowed any more."""

    role: Role


class TokenKind(enum.StrEnum):
    """What a token is for."""

    TOKEN = "token"  # noqa: S105 -- a kind; made on purpose, for a program or a machine
    SESSION = "session"  # of a log-in
    LINK = "link"  # a code that logs a user in once
    LOCAL = "local"  # of the system user of the server, on its machine


class Token(people.Token, frozen=True, kw_only=True):
    """A token as it may be shown: without its secret.

    Args:
        expires_at: None: of an older version, which has none that are good.
        role: as the token was made; what holds is the lower of this and its user's.
    """

    role: Role
    kind: TokenKind = TokenKind.TOKEN


class NewToken(people.Secret, frozen=True):
    """A token at the one moment when its secret is known."""

    token: Token


class CodeTold(msgspec.Struct, frozen=True):
    """Whom the code of a link logs in, and until when."""

    name: str
    role: Role
    expires_at: float
