"""Events and the audit log in the store. Nothing here changes or deletes what was written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import or_, select, update

from legato.api.jobs import Event
from legato.api.people import AuditEntry
from legato.control.store.database import Database
from legato.control.store.projects import KIND, LEAVER
from legato.control.store.queues import QUEUE
from legato.control.store.rows import at, read_all
from legato.control.store.schema import audit_log, counters, events, jobs, projects, queues
from legato.control.store.transactions import EVENTS, QUIET, writing
from legato.control.store.visibility import is_member, is_visible, sees_project

RESTORED: Final = "restored"
"""The kind of events that say that the store was restored from a backup."""


class Events:
    """The events of the platform, in one sequence for the whole store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(
        self,
        kind: str,
        reason: str,
        now: float,
        *,
        job: str | None = None,
        attempt: int | None = None,
        detail: dict[str, Any] | None = None,
    ) -> None:
        """Append an event that no other function of the store writes."""
        with writing(self._database, now) as transaction:
            transaction.note(kind, reason, job=job, attempt=attempt, detail=detail)

    def note_restore(self, made_at: str, these: Iterable[str], now: float) -> None:
        """Append an event for the pool and each of these jobs: the store was restored. ``made_at``: of the backup."""
        told = f"the store was restored from a backup of {made_at}; what happened after that is not in it"
        with writing(self._database, now) as transaction:
            transaction.note(RESTORED, told)
            for job in these:
                transaction.note(RESTORED, told, job=job)

    def read_after(
        self, seq: int, *, limit: int = 500, job: str | None = None, sees_only: str | None = None
    ) -> tuple[Event, ...]:
        """Return the events after the event ``seq``, oldest first; ``job``: only those of one job."""
        statement = select(events).where(events.c.seq > seq).order_by(events.c.seq).limit(limit)
        if job is not None:
            statement = statement.where(events.c.job == job)
        if sees_only is not None:
            # Checked for each event in order, because there may be many more jobs than events.
            seen = select(jobs.c.id).where(jobs.c.id == events.c.job, is_visible(sees_only)).correlate(events).exists()
            of_project = select(projects.c.id).where(
                projects.c.id == at(events.c.detail, "project").as_string(), sees_project(sees_only)
            )
            concerns_user = of_project.correlate(events).exists() | (
                at(events.c.detail, LEAVER).as_string() == sees_only
            )
            of_queue = select(queues.c.name).where(
                queues.c.name == at(events.c.detail, "queue").as_string(), is_member(sees_only)
            )
            is_of_own = of_queue.correlate(events).exists() | at(events.c.detail, "is_open").as_boolean()
            of_pool = events.c.job.is_(None) & (
                events.c.kind.not_in((KIND, QUEUE))
                | ((events.c.kind == KIND) & concerns_user)
                | ((events.c.kind == QUEUE) & is_of_own)
            )
            statement = statement.where(or_(of_pool, seen))
        with self._database.reading() as connection:
            return read_all(connection, statement, Event)

    def read_last_seq(self) -> int:
        """Return the number of the newest event, 0 if there is none."""
        with self._database.reading() as connection:
            value: int = connection.execute(select(counters.c.value).where(counters.c.name == EVENTS)).scalar_one()
            return value

    def read_version(self) -> tuple[int, int]:
        """Return a version of the lists of jobs of all users. Different lists have different versions."""
        statement = select(counters.c.name, counters.c.value).where(counters.c.name.in_((EVENTS, QUIET)))
        with self._database.reading() as connection:
            values = {row.name: row.value for row in connection.execute(statement)}
        return values[EVENTS], values[QUIET]

    def try_to_write(self) -> None:
        """Do a write that changes nothing, to test the database.

        Raises:
            StoreError: the write fails, for example because the disk is full.
        """
        with self._database.writing() as connection:
            connection.execute(update(counters).where(counters.c.name == QUIET).values(value=counters.c.value))


class Audit:
    """The audit log: which user did what, and when. The store writes most entries in the transaction of the action."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, who: str, action: str, target: str, now: float, detail: dict[str, Any] | None = None) -> None:
        """Append an entry for an action outside of the store, such as a refused log-in or a download."""
        with writing(self._database, now) as transaction:
            transaction.audit(who, action, target, detail)

    def read_before(self, entry: int | None = None, *, limit: int = 100) -> tuple[AuditEntry, ...]:
        """Return the entries before the one of this id, newest first; None: the newest."""
        statement = select(audit_log).order_by(audit_log.c.id.desc()).limit(limit)
        if entry is not None:
            statement = statement.where(audit_log.c.id < entry)
        with self._database.reading() as connection:
            return read_all(connection, statement, AuditEntry)
