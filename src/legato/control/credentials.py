"""Secrets that are shown once and kept as hashes: tokens, codes of links and passwords. Stores nothing."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final

import argon2
from argon2.exceptions import Argon2Error, InvalidHashError

from legato.core.errors import UsageError

TOKEN_PREFIX: Final = "lgt_"  # scanners for leaked secrets recognise tokens by it  # noqa: S105
CODE_PREFIX: Final = "lgc_"
DEVICE_PREFIX: Final = "lgd_"
_TOKEN_BITS: Final = 256
_TOKEN: Final = re.compile(rf"{TOKEN_PREFIX}[0-9a-f]{{{_TOKEN_BITS // 4}}}")
_DEVICE_BITS: Final = 128
# This byte occurs in no UTF-8 text, so no token has the hash of a code.
_OF_CODES: Final = b"\xff"
_MIN_PASSWORD_LENGTH: Final = 8
_MAX_PASSWORD_LENGTH: Final = 1024


def make_secret(random_bits: Callable[[int], int]) -> str:
    """Make the secret of a token: a prefix and 256 random bits."""
    return f"{TOKEN_PREFIX}{random_bits(_TOKEN_BITS):064x}"


def hash_secret(secret: str) -> str:
    """Return what is stored of a token. A plain hash is enough: 256 random bits cannot be guessed."""
    return hashlib.sha256(secret.encode()).hexdigest()


def may_be_token(text: str) -> bool:
    """Return whether a text has the form of a token's secret. No server accepts a text of another form.

    >>> may_be_token(make_secret(lambda bits: 7)), may_be_token("lgt_7")
    (True, False)
    """
    return _TOKEN.fullmatch(text) is not None


def make_code(random_bits: Callable[[int], int]) -> str:
    """Make the code of a link that logs a user in once."""
    return f"{CODE_PREFIX}{random_bits(_TOKEN_BITS):064x}"


def hash_code(code: str) -> str:
    """Return what is stored of a code; no token has the same hash, so a code cannot be used as a token.

    >>> hash_code("lgc_0") == hash_secret("lgc_0")
    False
    """
    return hashlib.sha256(_OF_CODES + code.encode(errors="surrogatepass")).hexdigest()


def make_device(user: str, password_hash: str, random_bits: Callable[[int], int]) -> str:
    """Make the secret that identifies a device from which a user has logged in with this password.

    The store does not keep the secret. It is derived from the hash of the password, so it ends when the password
    changes. It does not log the user in.
    """
    number = f"{random_bits(_DEVICE_BITS):032x}"
    return f"{DEVICE_PREFIX}{number}.{_seal(user, password_hash, number)}"


def is_device(device: str, user: str, password_hash: str) -> bool:
    """Return whether `make_device` has made this for the user and the password.

    >>> made = make_device("ann", "hash", lambda bits: 7)
    >>> is_device(made, "ann", "hash"), is_device(made, "ben", "hash"), is_device(made, "ann", "other")
    (True, False, False)
    """
    number, _, seal = device.removeprefix(DEVICE_PREFIX).partition(".")
    return device.isascii() and hmac.compare_digest(seal, _seal(user, password_hash, number))


def _seal(user: str, password_hash: str, number: str) -> str:
    return hmac.new(password_hash.encode(), f"device\0{user}\0{number}".encode(), hashlib.sha256).hexdigest()


class Passwords:
    """Hashes passwords with argon2id.

    Args:
        hasher: the cost of a guess. None: what argon2-cffi recommends, some 50 ms and 64 MiB.
    """

    def __init__(self, hasher: argon2.PasswordHasher | None = None) -> None:
        self._hasher = hasher or argon2.PasswordHasher()
        # `is_right` checks this hash where a user has none, so that response times do not reveal which users exist.
        self._decoy = self._hasher.hash("decoy")

    def hash(self, password: str) -> str:
        """Return what is stored of a password.

        Raises:
            UsageError: the password is too short or too long.
        """
        if not _MIN_PASSWORD_LENGTH <= len(password) <= _MAX_PASSWORD_LENGTH:
            fault = "short" if len(password) < _MIN_PASSWORD_LENGTH else "long"
            raise UsageError(
                f"This password is too {fault}. Give {_MIN_PASSWORD_LENGTH} to {_MAX_PASSWORD_LENGTH} characters."
            )
        return self._hasher.hash(password)

    def is_right(self, password: str, stored: str | None) -> bool:
        """Return whether the password has this hash. The check takes equally long if there is no hash."""
        if len(password) > _MAX_PASSWORD_LENGTH:
            return False
        with contextlib.suppress(Argon2Error, InvalidHashError):
            self._hasher.verify(stored or self._decoy, password)
            return stored is not None
        return False
