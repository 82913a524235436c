"""Authentication: a name and a password, or a token, in any form that clients of WMLA send. Keeps no password.

Tokens have the form of a JWT, which clients read for ``username`` and ``exp``; the last part is a token of the
platform, which alone counts. Each logon makes one of its own; who sends a password with each request has one for all of
them, which is kept here, and which ends independently of all others.
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

_CALLED: Final = "wmla"
_OURS: Final = "lgt_"  # the platform's tokens begin so
_MAX_LENGTH: Final = 4096
_MAX_REMEMBERED: Final = 1000
_NUM_TURNS: Final = 64
_HOW: Final = "Log on with a name and a password at /auth/v1/logon, and send the token in X-Auth-Token."


class Token(NamedTuple):
    """A token of the platform. ``id``: by which it is revoked; both times: seconds since 1970."""

    secret: str
    id: str
    user: str
    created_at: float
    expires_at: float

    def write(self) -> str:
        """Return it as their clients get it."""
        payload = {"username": self.user, "sub": self.user, "exp": int(self.expires_at), "jti": self.id}
        return ".".join((_encode({"alg": "none", "typ": "JWT"}), _encode(payload), self.secret))


class Keys:
    """Finds out who asks.

    Args:
        inside: asks the platform.
    """

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._logons = Logons()
        self._remembered: OrderedDict[str, Token] = OrderedDict()
        # Who sends a password with many requests at once is logged on once.
        self._turns = [asyncio.Lock() for _ in range(_NUM_TURNS)]

    async def find_secret(self, request: Request) -> str:
        """Return the platform's token of who asks, valid or not: that is the platform's to say.

        Raises:
            Refusal: nothing was sent, or nothing that can be read; the password is wrong, or was tried too often.
        """
        said = _read_basic(request)
        if said is not None:
            return (await self._recall(request, *said)).secret
        secret = _secret_of(_read_token(request))
        if not secret.startswith(_OURS):
            raise Refusal(401, f"The token is not one of this server, or it was cut off or changed. {_HOW}")
        self._logons.use(secret)
        return secret

    async def log_on(self, request: Request) -> Token:
        """Return a new token for the name and the password of a request.

        Raises:
            Refusal: as above.
        """
        said = _read_basic(request)
        if said is None:
            raise Refusal(401, "Name and password are missing. Send 'Authorization: Basic …'.")
        made = await self._make(request, *said)
        for old in self._logons.add(made.secret, made.user, made.id, made.expires_at, made.created_at):
            await self._revoke(request, made.secret, old)
        return made

    async def log_off(self, request: Request) -> None:
        """Revoke the token of a request; one that a logon did not make stays as it is.

        A password with the request only says who asks: what it stands for is all such requests' own.
        """
        said = _read_basic(request)
        if said is None:
            written = _read_token(request)
            secret = _secret_of(written)
        else:
            secret = (await self._recall(request, *said)).secret
            written = request.cookies.get(COOKIE, "")
        if written.count(".") == 2:
            await self._revoke(request, secret, _read_id(written))
            self._logons.end(_secret_of(written))

    async def _recall(self, request: Request, user: str, password: str) -> Token:
        """Return the token that stands for a name and a password; the same one while it is valid."""
        # The password cannot be read out of what is kept.
        key = hashlib.sha256(f"{user}\0{password}".encode()).hexdigest()
        async with self._turns[int(key[:8], 16) % _NUM_TURNS]:
            found = self._remembered.get(key)
            if found is not None and await self._is_valid(request, found):
                return found
            self._remembered[key] = made = await self._make(request, user, password)
            self._remembered.move_to_end(key)
            while len(self._remembered) > _MAX_REMEMBERED:
                self._remembered.popitem(last=False)
            return made

    async def _revoke(self, request: Request, secret: str, token: str) -> None:
        async with self._inside(request.scope) as client:
            await Platform(client, secret).ask("DELETE", f"tokens/{token}", allowed=(404,))

    async def _is_valid(self, request: Request, token: Token) -> bool:
        async with self._inside(request.scope) as client:
            answer = await Platform(client, token.secret).ask("GET", "me", allowed=(401,))
        return answer.status_code == 200

    async def _make(self, request: Request, user: str, password: str) -> Token:
        async with self._inside(request.scope) as client:
            body = {"user": user, "password": password, "name": _CALLED, "hours": LIFE_S / 3600}
            answer = await Platform(client, None).ask("POST", "login", json=body, allowed=(401, 422))
            if answer.status_code >= 400:
                raise Refusal(401, "Authentication error: the name or the password is wrong.")
            return _read_made(answer.json())


# ---------------------------------------------------------------- what is read of a request


def has_credentials(request: HTTPConnection) -> bool:
    """Return whether a request says at all who asks."""
    return any(name in request.headers for name in ("x-auth-token", "authorization")) or COOKIE in request.cookies


def _read_basic(request: Request) -> tuple[str, str] | None:
    if "x-auth-token" in request.headers:
        return None
    kind, _, said = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(said.strip(), validate=True).decode().partition(":")
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
        raise Refusal(401, f"Unable to find token from cookies or headers. {_HOW}")
    if len(written) > _MAX_LENGTH or not written.isascii() or not written.isprintable() or " " in written:
        raise Refusal(401, f"This is not a token. {_HOW}")
    return written


def _secret_of(written: str) -> str:
    """Return the platform's token in one of theirs, or what is one itself.

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
    raise Refusal(401, f"This is not a token. {_HOW}")


def _read_made(told: Any) -> Token:
    """Return a token as the platform shows a new one."""
    token = told["token"]
    return Token(told["secret"], token["id"], token["user"], token["created_at"], token["expires_at"])


def _encode(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part, separators=(",", ":")).encode()).rstrip(b"=").decode()


# ------------------------------------------------------------ tokens that logons have made


MOST_OF_ONE: Final = 100
"""A user has so many at once; a user who logs on and never off loses none that is in use."""


class _Logon(NamedTuple):
    user: str
    id: str
    expires_at: float


class Logons:
    """Remembers the tokens that were made here, the one that was not used for longest first.

    Of another run of the server, or another server, it knows none; those end by themselves.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Logon] = OrderedDict()

    def add(self, secret: str, user: str, token: str, expires_at: float, now: float) -> list[str]:
        """Remember a token, and return the ids of those that are too many of its user's now: they are to be revoked.

        Args:
            secret: of the token.
            user: the owner.
            token: its id.
            expires_at: seconds since 1970.
            now: likewise.

        >>> logons = Logons()
        >>> for number in range(MOST_OF_ONE):
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
        return [self._known.pop(key).id for key in own[:-MOST_OF_ONE]]

    def use(self, secret: str) -> None:
        """Note that a token is shown."""
        if (key := _hash(secret)) in self._known:
            self._known.move_to_end(key)

    def end(self, secret: str) -> None:
        """Forget a token that is over."""
        self._known.pop(_hash(secret), None)

    def __len__(self) -> int:
        return len(self._known)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
