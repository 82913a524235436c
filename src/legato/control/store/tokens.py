"""Tokens in the store: hashed, with a role and an expiry. The secret of a token is shown once.

The code of a link that logs a user in once is stored as a token too. Requests cannot use it as a token, because codes
are hashed differently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Row, Select, func, select, update

from legato.api.people import Code
from legato.control.credentials import TOKEN_PREFIX, hash_code, hash_secret, make_code, make_secret, may_be_token
from legato.control.ids import make_id
from legato.control.people import CodeTold, NewToken, Token, TokenKind
from legato.control.roles import Asker, Role, check_is_admin, lower_role
from legato.control.store.accounts import create_first_admin
from legato.control.store.database import Database
from legato.control.store.rows import read_all, read_one
from legato.control.store.schema import tokens, users
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import Conflict, Forbidden, NotFound, Unauthenticated, UsageError
from legato.core.spec import check_name

_USED_EVERY_S: Final = 60.0  # a token's last use has a resolution of a minute, so that not every request writes
MAX_TOKENS: Final = 50
"""Valid tokens of one user, of the kind that users create."""
MAX_SESSIONS: Final = 200
"""Valid sessions of one user at once."""
FIRST_TOKEN_S: Final = 86_400.0
_ADMIN: Final = "admin"
_LINK: Final = "link"
_WHENCE: Final = (
    "Tokens come from an admin ('legato tokens add NAME --user USER'), from a password ('legato login URL --user "
    "USER'), "
    "or, on the server's machine, from 'legato server token'."
)


class CheckedToken(NamedTuple):
    """The user of a token, with the lower of the token's and the user's role.

    Args:
        asker: the user. None: the token is unknown, expired or revoked, or its user is disabled.
        reason: why there is no asker.
        is_use_due: whether its use is to be stored (`Tokens.note_use`).
    """

    asker: Asker | None
    reason: str = ""
    is_use_due: bool = False


class Tokens:
    """The tokens that authenticate users.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int]) -> None:
        self._database = database
        self._random_bits = random_bits

    def create(
        self,
        user: str,
        name: str,
        asker: Asker,
        now: float,
        *,
        role: Role | None = None,
        expires_at: float,
        kind: TokenKind = TokenKind.TOKEN,
    ) -> NewToken:
        """Create a token. Users may do so for themselves, with at most their own role; admins also for other users.

        A user has at most `MAX_TOKENS` tokens of the kind that users create. If there are too many sessions, the oldest
        one ends.

        Args:
            user: the owner.
            name: says what the token is for.
            asker: the user who sends the request, with the role of the token.
            now: seconds since 1970.
            role: None: the user's.
            expires_at: seconds since 1970.
            kind: of the token.

        Raises:
            Forbidden: the token is for another user, or the role is above the asker's.
            NotFound: there is no such user.
            Conflict: the user has the maximum number.
            UsageError: the name or the expiry cannot be used.
        """
        check_name(name, "a token")
        told = f"Cannot create token '{name}'"
        if asker.name != user:
            check_is_admin(f"create a token of '{user}'", asker)
        if expires_at <= now:
            raise UsageError(f"{told}: it would have expired already. Choose a time in the future.")
        with writing(self._database, now) as transaction:
            # With the lock, a change of the role comes before or after this, and so do other requests that count this
            # user's tokens.
            owner = transaction.connection.execute(
                select(users.c.role).where(users.c.name == user).with_for_update()
            ).scalar()
            if owner is None:
                raise NotFound(f"{told}: there is no user '{user}'. An admin can create it.")
            highest = lower_role(Role(owner), asker.role)
            if lower_role(role or highest, highest) is not (role or highest):
                raise Forbidden(f"{told}: role '{role}' is above '{highest}'. Choose '{highest}' or less.")
            _make_room(transaction, user, kind, told)
            secret = make_secret(self._random_bits)
            token = self._insert(transaction, user, name, role or highest, expires_at, hash_secret(secret), kind)
            transaction.audit(asker.name, "token.create", token.id, {"user": user, "name": name})
            return NewToken(token, secret)

    def create_first(self, now: float) -> NewToken | None:
        """Create the user ``admin`` and a token for one day if there are no users. Returns None if there are users."""
        with writing(self._database, now) as transaction:
            if not create_first_admin(transaction, _ADMIN):
                return None
            secret = make_secret(self._random_bits)
            expires_at = now + FIRST_TOKEN_S
            token = self._insert(transaction, _ADMIN, "first-start", Role.ADMIN, expires_at, hash_secret(secret))
            return NewToken(token, secret)

    def create_code(self, asker: Asker, now: float, *, expires_at: float, sessions_until: float | None = None) -> Code:
        """Create a code that logs a browser in once as the asker, with at most the asker's present role.

        Args:
            asker: the user who sends the request, with the role of the token.
            now: seconds since 1970.
            expires_at: end of the code, seconds since 1970.
            sessions_until: latest end of the log-in: the end of the asker's token. None: that token does not end.

        Raises:
            NotFound: there is no such user.
        """
        with writing(self._database, now) as transaction:
            owner = transaction.connection.execute(
                select(users.c.role).where(users.c.name == asker.name).with_for_update(read=True)
            ).scalar()
            if owner is None:
                raise NotFound(f"Cannot make a link: there is no user '{asker.name}'. An admin can create it.")
            code = make_code(self._random_bits)
            role = lower_role(Role(owner), asker.role)
            token = self._insert(transaction, asker.name, _LINK, role, expires_at, hash_code(code), TokenKind.LINK)
            until = {"sessions_until": sessions_until}
            transaction.connection.execute(update(tokens).where(tokens.c.id == token.id).values(until))
            transaction.audit(asker.name, "link.create", token.id)
            return Code(code, expires_at)

    def redeem(self, code: str, name: str, now: float, *, expires_at: float) -> NewToken:
        """Use a code up, and create a token.

        Args:
            code: as it was made.
            name: of the token.
            now: seconds since 1970.
            expires_at: of the token.

        Raises:
            Unauthenticated: the code is unknown, was used before, was revoked or has expired; its user is disabled.
        """
        with writing(self._database, now) as transaction:
            # If two requests come at the same time, the second one waits for the lock and finds the code used.
            found = _find_code(transaction.connection, _code_of(code, now).with_for_update(of=tokens))
            transaction.connection.execute(
                update(tokens).where(tokens.c.id == found.id).values(revoked_at=now, used_at=now)
            )
            expires_at = min(expires_at, found.sessions_until or expires_at)
            role = lower_role(Role(found.role), Role(found.user_role))
            secret = make_secret(self._random_bits)
            _make_room(transaction, found.user, TokenKind.SESSION, "")
            hashed = hash_secret(secret)
            token = self._insert(transaction, found.user, name, role, expires_at, hashed, TokenKind.SESSION)
            transaction.audit(found.user, "link.use", found.id, {"token": token.id})
            return NewToken(token, secret)

    def look_at_code(self, code: str, now: float) -> CodeTold:
        """Return the user whom a code logs in, without using the code up.

        Raises:
            Unauthenticated: as for `redeem`.
        """
        with self._database.reading() as connection:
            found = _find_code(connection, _code_of(code, now))
        return CodeTold(found.user, lower_role(Role(found.role), Role(found.user_role)), found.expires_at)

    def find(self, secret: str) -> Token:
        """Return the token with this secret, even if it is no longer valid.

        Raises:
            NotFound: there is none.
        """
        with self._database.reading() as connection:
            found = read_one(connection, _select().where(tokens.c.secret_sha256 == hash_secret(secret)), Token)
        if found is None:
            raise NotFound("There is no such token.")
        return found

    def verify(self, secret: str, now: float) -> Asker:
        """Return the user of the token with this secret, with the lower of the token's and the user's role.

        Raises:
            Unauthenticated: the token is unknown, expired or revoked, or its user is disabled.
        """
        found = self.check_each([secret], now)[secret]
        if found.asker is None:
            raise Unauthenticated(found.reason)
        if found.is_use_due:
            self.note_use([secret], now)
        return found.asker

    def check_each(self, secrets: Collection[str], now: float) -> dict[str, CheckedToken]:
        """Check tokens by their secrets, all with one query. Writes nothing."""
        hashes = {secret: hash_secret(secret) for secret in secrets if may_be_token(secret)}
        statement = (
            select(tokens, users.c.role.label("user_role"), users.c.disabled_at)
            .join(users, users.c.name == tokens.c.user)
            .where(tokens.c.secret_sha256.in_(hashes.values()))
        )
        rows: dict[str, Row[Any]] = {}
        if hashes:
            with self._database.reading() as connection:
                rows = {row.secret_sha256: row for row in connection.execute(statement)}
        return {secret: _check(secret, rows.get(hashes.get(secret, "")), now) for secret in secrets}

    def note_use(self, secrets: Collection[str], now: float) -> None:
        """Store that these tokens were used now."""
        used = tokens.c.secret_sha256.in_([hash_secret(secret) for secret in secrets])
        with self._database.writing() as connection:
            connection.execute(update(tokens).where(used).values(used_at=now))

    def revoke(self, token: str, asker: Asker, now: float) -> Token:
        """Revoke a token by id. A second call changes nothing.

        Raises:
            NotFound: there is none, or the token is another user's and the asker is no admin.
        """
        with writing(self._database, now) as transaction:
            statement = _select().where(tokens.c.id == token).with_for_update(of=tokens)
            found = read_one(transaction.connection, statement, Token)
            if found is None or (asker.role is not Role.ADMIN and found.user != asker.name):
                whose = "" if asker.role is Role.ADMIN else " of yours"
                raise NotFound(f"There is no token '{token}'{whose}. 'legato tokens' lists the existing ones.")
            live = (tokens.c.id == token, tokens.c.revoked_at.is_(None))
            transaction.connection.execute(update(tokens).where(*live).values(revoked_at=now))
            transaction.audit(asker.name, "token.revoke", token, {"user": found.user, "name": found.name})
            revoked = read_one(transaction.connection, _select().where(tokens.c.id == token), Token)
            assert revoked is not None, f"token {token} is gone although it is locked"
            return revoked

    def list(self, user: str | None = None) -> tuple[Token, ...]:
        """Return the tokens of a user, or of all users, the newest first."""
        statement = _select().order_by(tokens.c.id.desc())
        if user is not None:
            statement = statement.where(tokens.c.user == user)
        with self._database.reading() as connection:
            return read_all(connection, statement, Token)

    def _insert(
        self,
        transaction: Transaction,
        user: str,
        name: str,
        role: Role,
        expires_at: float,
        hashed: str,
        kind: TokenKind = TokenKind.TOKEN,
    ) -> Token:
        now = transaction.now
        made = make_id("t", now, self._random_bits, transaction.connection.scalar(select(func.max(tokens.c.id))))
        row = {"user": user, "name": name, "role": role, "created_at": now, "expires_at": expires_at}
        row["kind"] = kind
        while not transaction.insert_new(tokens, row | {"id": made, "secret_sha256": hashed}):
            made = make_id("t", now, self._random_bits, made)
        token = read_one(transaction.connection, _select().where(tokens.c.id == made), Token)
        assert token is not None, f"token {made} is gone in the transaction that made it"
        return token


def _make_room(transaction: Transaction, user: str, kind: TokenKind, told: str) -> None:
    """Raise Conflict if a user has the maximum number of tokens, or end the oldest session."""
    connection, now = transaction.connection, transaction.now
    live = (
        tokens.c.user == user,
        tokens.c.kind == kind,
        tokens.c.revoked_at.is_(None),
        tokens.c.expires_at > now,
    )
    if kind is TokenKind.SESSION:
        old = select(tokens.c.id).where(*live).order_by(tokens.c.id.desc()).offset(MAX_SESSIONS - 1)
        ids = connection.execute(old).scalars().all()
        if ids:
            connection.execute(update(tokens).where(tokens.c.id.in_(ids)).values(revoked_at=now))
    elif kind is TokenKind.TOKEN:
        num = connection.execute(select(func.count()).select_from(tokens).where(*live)).scalar_one()
        if num >= MAX_TOKENS:
            raise Conflict(
                f"{told}: '{user}' has {num} tokens already, and no user may have more. Revoke one that is not needed: "
                "'legato tokens' lists them, 'legato tokens revoke ID' revokes one."
            )


def _select() -> Select[Any]:
    return select(*(column for column in tokens.c if column.name in Token.__struct_fields__))


def _check(secret: str, found: Row[Any] | None, now: float) -> CheckedToken:
    try:
        return _check_row(secret, found, now)
    except (TypeError, ValueError) as error:  # other tokens are checked with it
        return CheckedToken(None, f"Cannot read this token or its user in the store: {error}. Ask an admin.")


def _check_row(secret: str, found: Row[Any] | None, now: float) -> CheckedToken:
    if found is None:
        hint = "" if secret.startswith(TOKEN_PREFIX) else f" A token begins with '{TOKEN_PREFIX}'."
        return CheckedToken(None, f"Cannot authenticate: this server does not know the token.{hint} {_WHENCE}")
    told = f"Cannot accept token '{found.name}' of '{found.user}'"
    if found.revoked_at is not None:
        return CheckedToken(None, f"{told}: it was revoked. {_WHENCE}")
    if found.expires_at is None or found.expires_at <= now:
        return CheckedToken(None, f"{told}: it has expired. {_WHENCE}")
    if found.disabled_at is not None:
        return CheckedToken(None, f"{told}: the user is disabled. Ask an admin.")
    asker = Asker(found.user, lower_role(Role(found.role), Role(found.user_role)))
    return CheckedToken(asker, is_use_due=found.used_at is None or found.used_at <= now - _USED_EVERY_S)


def _code_of(code: str, now: float) -> Select[Any]:
    columns = (tokens.c.id, tokens.c.user, tokens.c.role, tokens.c.expires_at, tokens.c.sessions_until)
    return (
        select(*columns, users.c.role.label("user_role"), users.c.disabled_at)
        .join(users, users.c.name == tokens.c.user)
        .where(tokens.c.secret_sha256 == hash_code(code), tokens.c.revoked_at.is_(None))
        .where(tokens.c.expires_at > now)
    )


def _find_code(connection: Connection, statement: Select[Any]) -> Row[Any]:
    found = connection.execute(statement).first()
    if found is None or found.disabled_at is not None:
        raise Unauthenticated(
            "Cannot log in by this link: it works once and for a short time, and has been used or has "
            "expired. Make a new one with 'legato console'."
        )
    return found
