"""A transaction of the store: its connection, its time, and its events. Only for modules of the store.

Events are written last. The row of their counter stays locked until the commit, so events become visible in the order
of their numbers. A reader that has read up to N never misses a later event with a lower number.
"""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Connection, Executable, Table, bindparam, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from legato.control.stages import ENDED, Stage
from legato.control.store.database import Database
from legato.control.store.schema import audit_log, counters, events, jobs

EVENTS: Final = "events"  # the name of their counter
QUIET: Final = "quiet"  # the counter of changes of jobs without an event
ENDED_AS: Final = {stage: f"jobs_{stage}" for stage in sorted(ENDED)}
"""The counters of jobs that have ended, by stage. Other jobs are few and are counted when a user asks."""

# Built once, because building a statement takes as long as running it.
_AUDIT: Final = audit_log.insert()
_NOTE: Final = events.insert()
_COUNT: Final = (
    update(counters)
    .where(counters.c.name == EVENTS)
    .values(value=counters.c.value + bindparam("step"))
    .returning(counters.c.value)
)
_COUNT_ENDED: Final = (
    update(counters).where(counters.c.name == bindparam("counter")).values(value=counters.c.value + bindparam("number"))
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
        self._audit_entries: list[dict[str, Any]] = []
        self._ended: Counter[Stage] = Counter()
        self._has_quiet = False

    def change_quietly(self) -> None:
        """Count a change that lists of jobs show and that has no event."""
        self._has_quiet = True

    def count_ended(self, stage: Stage, number: int) -> None:
        """Add to the counter of jobs that have ended in a stage. The transaction must have an event too.

        The row of the events' counter is locked before, so that two transactions cannot deadlock.
        """
        self._ended[stage] += number

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
        """Add an entry of the audit log, which is written when the transaction ends."""
        row = {"time": self.now, "who": who, "action": action, "target": target, "detail": detail}
        self._audit_entries.append(row)

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

    def recount_ended(self) -> None:
        """Set the counters of jobs that have ended to what the table of jobs says.

        Other transactions count before or after this one, so lock everything else before.
        """
        self.lock_sequence()
        counted = select(jobs.c.stage, func.count().label("num")).where(jobs.c.stage.in_(sorted(ENDED)))
        numbers = {row.stage: row.num for row in self.connection.execute(counted.group_by(jobs.c.stage))}
        for stage, name in ENDED_AS.items():
            # No row: it was deleted by hand. Without it, nothing would ever be counted again.
            row = {"name": name, "value": numbers.get(stage, 0)}
            if not self.insert_new(counters, row):
                self.connection.execute(update(counters).where(counters.c.name == name).values(value=row["value"]))

    def finish(self) -> None:
        """Write the audit entries, and number and write the events. All transactions lock in the same order."""
        if self._audit_entries:
            self.connection.execute(_AUDIT, self._audit_entries)
        self._write_events()
        if self._ended:
            rows = [{"counter": ENDED_AS[stage], "number": number} for stage, number in self._ended.items()]
            self.connection.execute(_COUNT_ENDED, rows)
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
