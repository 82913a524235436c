"""Idempotency keys, as the store keeps them: a request that comes twice is done once. Knows no HTTP."""

from __future__ import annotations

from sqlalchemy import delete, select, update

from legato.control.records import RequestKey
from legato.control.store.database import Database
from legato.control.store.schema import idempotency_keys as keys
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import InFlight, KeyReused


class Requests:
    """Requests that clients may repeat, for whatever takes more than one transaction to answer.

    Args:
        database: the store's.
        limit_s: a request without an answer for that long is taken for dead.
    """

    def __init__(self, database: Database, limit_s: float) -> None:
        self._database = database
        self._limit_s = limit_s

    def find_answer(self, user: str, key: RequestKey) -> str | None:
        """Return the answer that the same request got before; None: it got none yet. Nothing is claimed.

        Raises:
            KeyReused: the key came with another request before.
        """
        this = (keys.c.user == user, keys.c.key == key.key)
        with self._database.reading() as connection:
            found = connection.execute(select(keys).where(*this)).first()
        if found is None:
            return None
        _check_same(found.request_sha256, key)
        answer: str | None = found.answer
        return answer

    def claim(self, user: str, key: RequestKey, now: float) -> str | None:
        """Begin to answer a request.

        Returns:
            None: it is new, answer it and call `settle`, or `abandon`. Else the answer that it got before.

        Raises:
            KeyReused: the key came with another request before.
            InFlight: the same request is being answered at this moment.
        """
        with writing(self._database, now) as transaction:
            return claim_key(transaction, user, key, self._limit_s)

    def settle(self, user: str, key: RequestKey, answer: str, now: float) -> None:
        """Keep the answer of a claimed request for those who repeat it."""
        with writing(self._database, now) as transaction:
            settle_key(transaction, user, key, answer)

    def abandon(self, user: str, key: RequestKey, now: float) -> None:
        """Forget a claimed request that was not answered: it may come again."""
        with writing(self._database, now) as transaction:
            this = (keys.c.user == user, keys.c.key == key.key, keys.c.answer.is_(None))
            transaction.connection.execute(delete(keys).where(*this))


def claim_key(transaction: Transaction, user: str, key: RequestKey, limit_s: float) -> str | None:
    """Do what `Requests.claim` says, inside of a transaction."""
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
            continue  # it was abandoned a moment ago
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
    """Do what `Requests.settle` says, inside of a transaction."""
    this = (keys.c.user == user, keys.c.key == key.key)
    transaction.connection.execute(update(keys).where(*this).values(answer=answer))


def _check_same(request_sha256: str, key: RequestKey) -> None:
    if request_sha256 != key.request_sha256:
        raise KeyReused(
            f"Cannot answer: the idempotency key '{key.key}' was used for another request. Use a new key for a "
            "new request, and the same key only to repeat a request unchanged."
        )
