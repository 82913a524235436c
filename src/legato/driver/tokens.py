"""Tokens of a driver: one secret for clients, one token for each worker, one secret among the workers. Pure.

A worker's token is derived from the secret and the worker's number. So a new driver that has the secret can derive the
tokens of all workers, and nothing else must be stored. The secret cannot be found from a worker's token, nor from the
secret by which the workers recognise one another.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import Final

_FORM: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.[0-9a-f]{64}")


def make_worker_token(secret: str, worker: int) -> str:
    """Return the token that authenticates one worker to its driver.

    Args:
        secret: of the job's attempt.
        worker: its number.
    """
    signed = hmac.new(secret.encode(), f"worker {worker}".encode(), hashlib.sha256).hexdigest()
    return f"{worker}.{signed}"


def make_peer_secret(secret: str, attempt: int) -> str:
    """Return the secret by which the workers of an attempt prove to one another that they belong to it.

    Args:
        secret: of the job's attempt.
        attempt: its number.
    """
    return hmac.new(secret.encode(), f"peers of attempt {attempt}".encode(), hashlib.sha256).hexdigest()


def find_worker(secret: str, shown: str) -> int | None:
    """Return the worker that a token belongs to; None if it is no worker's token.

    >>> find_worker("secret", make_worker_token("secret", 7)), find_worker("other", make_worker_token("secret", 7))
    (7, None)
    """
    found = _FORM.fullmatch(shown)
    if found is None:
        return None
    worker = int(found[1])
    return worker if is_same(make_worker_token(secret, worker), shown) else None


def is_same(secret: str, shown: str) -> bool:
    """Return whether a text is the secret, in constant time."""
    return hmac.compare_digest(secret.encode(), shown.encode())


def name_attempt(secret: str) -> str:
    """Return a name of the job's attempt that all its workers share and that does not reveal the secret."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16]
