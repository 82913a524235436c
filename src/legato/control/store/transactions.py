"""A transaction of the store: its connection, its time, and its events. Only for modules of the store.

Events are written last. The row of their counter stays locked until the commit, so events become visible in the order
of their numbers. A reader that has read up to N never misses a later event with a lower number.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, Executable, Table, bindparam, select, update
from sqlalchemy.dialects import postgresql, sqlite

from legato.control.store.database import Database
from legato.control.store.schema import audit_log, counters, events

EVENTS: Final = "events"  # the name of their counter
QUIET: Final = "quiet"  # the counter of changes of jobs without an event

# Built once, because building a statement takes as long as running it.
_AUDIT: Final = audit_log.insert()
_NOTE: Final = events.insert()
_COUNT: Final = (
    update(counters)
    .where(counters.c.name == EVENTS)
    .values(value=counters.c.value + bindparam("step"))
    .returning(counters.c.value)
)
_COUNT_QUIET: Final = update(counters).where(counters.c.name == QUIET).values(value=counters.c.value + 1)


class Transaction:
    """A write that is under way.

    Args:
        connection: a connection with an open transaction.
        now: seconds since 1970; every row of this transaction has this time.
    """

    def __init__(self, connection: Connection, now: float) -> None:
        self.connection = connection
        self.now = now
        self._events: list[dict[str, Any]] = []
        self._has_quiet = False

    def change_quietly(self) -> None:
        """Count a change that lists of jobs show and that has no event."""
        self._has_quiet = True

    def note(
        self,
        kind: str,
        reason: str,
        *,
        job: str | None = None,
        attempt: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Add an event, which gets its number when the transaction ends."""
        self._events.append(
            {
                "time": self.now,
                "kind": kind,
                "reason": reason,
                "job": job,
                "attempt": attempt,
                "detail": detail,
            }
        )

    def audit(self, who: str, action: str, target: str, detail: dict[str, Any] | None = None) -> None:
        """Write an entry of the audit log."""
        row = {"time": self.now, "who": who, "action": action, "target": target, "detail": detail}
        self.connection.execute(_AUDIT, row)

    def insert_new(self, table: Table, row: dict[str, Any]) -> bool:
        """Insert a row unless its key exists, and return whether it was inserted.

        A second transaction that inserts the same key waits for the first one, and then returns False.
        """
        statement = _insert_new(table, self.connection.dialect.name)
        return self.connection.execute(statement, row).first() is not None

    def lock_sequence(self) -> None:
        """Lock the sequence of events: other transactions write events before or after this one, not in between.

        Call it after all other locks are taken: the holder of the sequence must not wait for another lock.
        """
        if self.connection.dialect.name != "sqlite":  # SQLite has one writer at a time anyway
            self.connection.execute(select(counters.c.value).where(counters.c.name == EVENTS).with_for_update())

    def finish(self) -> None:
        """Number the events and write them. All transactions lock the counters in the same order."""
        self._write_events()
        if self._has_quiet:
            self.connection.execute(_COUNT_QUIET)

    def _write_events(self) -> None:
        if not self._events:
            return
        step = len(self._events)
        last = self.connection.execute(_COUNT, {"step": step}).scalar_one()
        rows = [{"seq": last - step + 1 + place, **row} for place, row in enumerate(self._events)]
        self.connection.execute(_NOTE, rows)


@functools.cache
def _insert_new(table: Table, dialect: str) -> Executable:
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    statement: Executable = insert(table).on_conflict_do_nothing().returning(next(iter(table.primary_key)))
    return statement


@contextlib.contextmanager
def writing(database: Database, now: float) -> Iterator[Transaction]:
    """Open a writing transaction, and commit it if the block ends without an error."""
    with database.writing() as connection:
        transaction = Transaction(connection, now)
        yield transaction
        transaction.finish()
