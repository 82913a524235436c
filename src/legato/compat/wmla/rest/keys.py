"""Authenticates requests by name and password or by token, in all forms that WMLA's clients send. Stores no password.

Tokens have the form of a JWT, because clients read ``username`` and ``exp`` from them. Only the last part, a token of
the platform, is checked. Each logon creates a token. For a client that sends a password with every request, this module
creates one token, keeps it for all of these requests, and renews it when it is no longer valid.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import json
from collections import OrderedDict
from typing import Any, Final, NamedTuple

from starlette.requests import HTTPConnection, Request

from legato.compat.wmla.rest.platform import Inside, Platform
from legato.compat.wmla.rest.refusals import Refusal

COOKIE: Final = "legato-wmla-token"
LIFE_S: Final = 8 * 3600.0

_CLIENT_NAME: Final = "wmla"
_PREFIX: Final = "lgt_"  # beginning of the platform's tokens
_MAX_LENGTH: Final = 4096
_MAX_KEPT: Final = 1000
_NUM_LOCKS: Final = 64
_ADVICE: Final = "Log on with a name and a password at /auth/v1/logon, and send the token in X-Auth-Token."


class Token(NamedTuple):
    """A token of the platform. Its ``id`` is used to revoke it; both times are in seconds since 1970."""

    secret: str
    id: str
    user: str
    created_at: float
    expires_at: float

    def write(self) -> str:
        """Return the token in the form of a JWT, for WMLA's clients."""
        payload = {"username": self.user, "sub": self.user, "exp": int(self.expires_at), "jti": self.id}
        return ".".join((_encode({"alg": "none", "typ": "JWT"}), _encode(payload), self.secret))


class Authenticator:
    """Finds the platform's token for a request.

    Args:
        inside: makes a client of the platform's REST interface.
    """

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._logons = Logons()
        self._kept: OrderedDict[str, Token] = OrderedDict()
        # Concurrent requests with the same password log on only once.
        self._locks = [asyncio.Lock() for _ in range(_NUM_LOCKS)]

    async def find_secret(self, request: Request) -> str:
        """Return the platform's token for a request. The platform checks later whether a token is valid.

        Raises:
            Refusal: the request has no credentials, or they cannot be read; or the password is wrong, or was tried too
                often.
        """
        login = _read_basic(request)
        if login is not None:
            return (await self._find_or_create(request, *login)).secret
        secret = _secret_of(_read_token(request))
        if not secret.startswith(_PREFIX):
            raise Refusal(401, f"The token is not from this server, or it is incomplete or changed. {_ADVICE}")
        self._logons.use(secret)
        return secret

    async def log_on(self, request: Request) -> Token:
        """Return a new token for the name and the password of a request.

        Raises:
            Refusal: name and password are missing, cannot be read or are wrong, or were tried too often.
        """
        login = _read_basic(request)
        if login is None:
            raise Refusal(401, "Name and password are missing. Send 'Authorization: Basic …'.")
        created = await self._create(request, *login)
        for old in self._logons.add(created.secret, created.user, created.id, created.expires_at, created.created_at):
            await self._revoke(request, created.secret, old)
        return created

    async def log_off(self, request: Request) -> None:
        """Revoke the token of a request, if a logon created it.

        If the request has a password, only the token in its cookie is revoked: the token that this module keeps for the
        password serves all requests with that password.
        """
        login = _read_basic(request)
        if login is None:
            written = _read_token(request)
            secret = _secret_of(written)
        else:
            secret = (await self._find_or_create(request, *login)).secret
            written = request.cookies.get(COOKIE, "")
        if written.count(".") == 2:
            await self._revoke(request, secret, _read_id(written))
            self._logons.end(_secret_of(written))

    async def _find_or_create(self, request: Request, user: str, password: str) -> Token:
        """Return the token that is kept for a name and a password; create another one if it is no longer valid."""
        # A hash, so that the password is not stored.
        key = hashlib.sha256(f"{user}\0{password}".encode()).hexdigest()
        async with self._locks[int(key[:8], 16) % _NUM_LOCKS]:
            found = self._kept.get(key)
            if found is not None and await self._is_valid(request, found):
                return found
            self._kept[key] = created = await self._create(request, user, password)
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_KEPT:
                self._kept.popitem(last=False)
            return created

    async def _revoke(self, request: Request, secret: str, token: str) -> None:
        async with self._inside(request.scope) as client:
            await Platform(client, secret).ask("DELETE", f"tokens/{token}", allowed=(404,))

    async def _is_valid(self, request: Request, token: Token) -> bool:
        async with self._inside(request.scope) as client:
            answer = await Platform(client, token.secret).ask("GET", "me", allowed=(401,))
        return answer.status_code == 200

    async def _create(self, request: Request, user: str, password: str) -> Token:
        async with self._inside(request.scope) as client:
            body = {"user": user, "password": password, "name": _CLIENT_NAME, "hours": LIFE_S / 3600}
            answer = await Platform(client, None).ask("POST", "login", json=body, allowed=(401, 422))
            if answer.status_code >= 400:
                raise Refusal(401, "Authentication error: the name or the password is wrong.")
            return _read_created(answer.json())


# ---------------------------------------------------------------- credentials of a request


def has_credentials(request: HTTPConnection) -> bool:
    """Return whether a request has credentials of any kind."""
    return any(name in request.headers for name in ("x-auth-token", "authorization")) or COOKIE in request.cookies


def _read_basic(request: Request) -> tuple[str, str] | None:
    if "x-auth-token" in request.headers:
        return None
    kind, _, encoded = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        user = colon = password = ""
    if not colon or not user or len(user) > 255 or len(password) > 1024 or "\0" in user + password:
        raise Refusal(
            401, "The name and the password cannot be read. Send 'Authorization: Basic' and NAME:PASSWORD in base64."
        )
    return user, password


def _read_token(request: Request) -> str:
    kind, _, bearer = request.headers.get("authorization", "").partition(" ")
    written = request.headers.get("x-auth-token") or (bearer if kind.lower() == "bearer" else "")
    written = (written or request.cookies.get(COOKIE, "")).strip()
    if not written:
        raise Refusal(401, f"Unable to find token from cookies or headers. {_ADVICE}")
    if len(written) > _MAX_LENGTH or not written.isascii() or not written.isprintable() or " " in written:
        raise Refusal(401, f"This is not a token. {_ADVICE}")
    return written


def _secret_of(written: str) -> str:
    """Return the platform's token: the last part of a JWT, or the whole text.

    >>> _secret_of("a.b.lgt_1"), _secret_of("lgt_1")
    ('lgt_1', 'lgt_1')
    """
    return written.rpartition(".")[2]


def _read_id(written: str) -> str:
    payload = written.split(".")[1]
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        found = str(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["jti"])
        if found.replace("-", "").isalnum() and found.isascii():
            return found
    raise Refusal(401, f"This is not a token. {_ADVICE}")


def _read_created(answer: Any) -> Token:
    """Return the token in the platform's answer to a login."""
    token = answer["token"]
    return Token(answer["secret"], token["id"], token["user"], token["created_at"], token["expires_at"])


def _encode(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=").decode()


# ------------------------------------------------------------ tokens of logons


MAX_TOKENS_OF_USER: Final = 100
"""Maximum number of tokens of a user. Above it, the tokens that were not used for longest are revoked."""


class _Logon(NamedTuple):
    user: str
    id: str
    expires_at: float


class Logons:
    """The tokens that logons to this server have created, those that were not used for longest first.

    It does not have the tokens of other servers or of the time before a restart; these expire.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Logon] = OrderedDict()

    def add(self, secret: str, user: str, token: str, expires_at: float, now: float) -> list[str]:
        """Add a token, and return the ids of tokens above the user's maximum, which the caller must revoke.

        Args:
            secret: of the token.
            user: owner of the token.
            token: its id.
            expires_at: seconds since 1970.
            now: seconds since 1970.

        >>> logons = Logons()
        >>> for number in range(MAX_TOKENS_OF_USER):
        ...     assert logons.add(f"secret {number}", "ann", f"t-{number}", 8.0, 0.0) == []
        >>> logons.use("secret 0")
        >>> logons.add("another", "ben", "t-ben", 8.0, 0.0), logons.add("one more", "ann", "t-more", 8.0, 0.0)
        ([], ['t-1'])
        >>> logons.add("later", "ann", "t-later", 16.0, 8.0), len(logons)
        ([], 1)
        """
        self._known = OrderedDict((key, one) for key, one in self._known.items() if one.expires_at > now)
        self._known[_hash(secret)] = _Logon(user, token, expires_at)
        own = [key for key, one in self._known.items() if one.user == user]
        return [self._known.pop(key).id for key in own[:-MAX_TOKENS_OF_USER]]

    def use(self, secret: str) -> None:
        """Note that a request used a token."""
        if (key := _hash(secret)) in self._known:
            self._known.move_to_end(key)

    def end(self, secret: str) -> None:
        """Remove a token that was revoked."""
        self._known.pop(_hash(secret), None)

    def __len__(self) -> int:
        return len(self._known)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
