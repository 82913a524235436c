"""Users, their tokens and the audit log, as plain frozen records. Decides nothing.

Times are seconds since 1970.
"""

from __future__ import annotations

import enum

import msgspec

from legato.api import people
from legato.control.roles import Role


class User(people.User, frozen=True, kw_only=True):
    """A user with a name and a role. ``disabled_at``: when the user was disabled; None: the user is not."""

    role: Role


class TokenKind(enum.StrEnum):
    """What a token is for."""

    TOKEN = "token"  # noqa: S105 -- a kind; a user made it for a program or a machine
    SESSION = "session"  # made by a log-in
    LINK = "link"  # a code that logs a user in once
    LOCAL = "local"  # for the server's system user, on its machine


class Token(people.Token, frozen=True, kw_only=True):
    """A token without its secret.

    Args:
        expires_at: None: made by an older version; such a token is not valid.
        role: the token's role when it was made; a request has the lower of this and the user's role.
    """

    role: Role
    kind: TokenKind = TokenKind.TOKEN


class NewToken(people.Secret, frozen=True):
    """A new token with its secret, which is shown only once."""

    token: Token


class CodeTold(msgspec.Struct, frozen=True):
    """The user whom the code of a link logs in, and until when."""

    name: str
    role: Role
    expires_at: float
