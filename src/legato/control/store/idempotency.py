"""Idempotency keys in the store: a repeated request is answered with the first result. Knows no HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import bindparam, select, update

from legato.control.records import RequestKey
from legato.control.store.database import Database
from legato.control.store.schema import idempotency_keys as keys
from legato.control.store.transactions import Transaction
from legato.core.errors import InFlight, KeyReused

# Built once, because building a statement takes as long as running it.
_SETTLE: Final = (
    update(keys)
    .where(keys.c.user == bindparam("of_user"), keys.c.key == bindparam("of_key"))
    .values(answer=bindparam("made"))
)


class Requests:
    """Requests that clients repeat with the same key.

    Args:
        database: the store's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def find_answer(self, user: str, key: RequestKey) -> str | None:
        """Return the earlier answer to the same request; None: none yet. Claims nothing.

        Raises:
            KeyReused: the key was used for another request.
        """
        this = (keys.c.user == user, keys.c.key == key.key)
        with self._database.reading() as connection:
            found = connection.execute(select(keys).where(*this)).first()
        if found is None:
            return None
        _check_same(found.request_sha256, key)
        answer: str | None = found.answer
        return answer


def claim_key(transaction: Transaction, user: str, key: RequestKey, limit_s: float) -> str | None:
    """Claim the key of a request, in the transaction that also stores its answer (`settle_key`).

    Returns:
        None if the request is new, else its earlier answer.

    Raises:
        KeyReused: the key was used for another request.
        InFlight: another server has begun to answer the same request, less than ``limit_s`` seconds ago.
    """
    this = (keys.c.user == user, keys.c.key == key.key)
    row = {
        "user": user,
        "key": key.key,
        "request_sha256": key.request_sha256,
        "created_at": transaction.now,
        "answer": None,
    }
    while not transaction.insert_new(keys, row):
        found = transaction.connection.execute(select(keys).where(*this).with_for_update()).first()
        if found is None:
            continue  # another server has just abandoned it
        _check_same(found.request_sha256, key)
        if found.answer is not None:
            before: str = found.answer
            return before
        if found.created_at > transaction.now - limit_s:
            raise InFlight(
                f"Cannot answer yet: the same request, with the idempotency key '{key.key}', is still in progress. "
                "Repeat "
                "it in a moment."
            )
        transaction.connection.execute(update(keys).where(*this).values(created_at=transaction.now))
        break
    return None


def settle_key(transaction: Transaction, user: str, key: RequestKey, answer: str) -> None:
    """Store the answer to a claimed request, for repeated requests."""
    settle_keys(transaction, {(user, key.key): answer})


def settle_keys(transaction: Transaction, answers: Mapping[tuple[str, str], str]) -> None:
    """Store the answers to claimed requests, by user and key."""
    rows = [{"of_user": user, "of_key": key, "made": answer} for (user, key), answer in answers.items()]
    if rows:
        transaction.connection.execute(_SETTLE, rows)


def _check_same(request_sha256: str, key: RequestKey) -> None:
    if request_sha256 != key.request_sha256:
        raise KeyReused(
            f"Cannot answer: the idempotency key '{key.key}' was used for another request. Use a new key for a "
            "new request, and the same key only to repeat a request unchanged."
        )
