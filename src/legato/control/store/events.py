"""Events and the audit log in the store. Nothing here changes or deletes what was written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, or_, select, update

from legato.api.jobs import Event
from legato.api.people import AuditEntry
from legato.control.store.database import Database
from legato.control.store.projects import KIND, LEAVER
from legato.control.store.queues import QUEUE
from legato.control.store.rows import at, read_all
from legato.control.store.schema import audit_log, counters, events, jobs, projects, queues
from legato.control.store.transactions import EVENTS, QUIET, writing
from legato.control.store.visibility import is_member, is_visible, sees_project

_FEW_JOBS: Final = 1_000  # of so many, events are found by the index of their jobs

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
        newer = select(events).where(events.c.seq > seq).order_by(events.c.seq).limit(limit)
        if job is not None:
            newer = newer.where(events.c.job == job)
        with self._database.reading() as connection:
            if sees_only is None:
                return read_all(connection, newer, Event)
            few = None if job is not None else _list_few_visible(connection, sees_only)
            if few is None:
                # The events are checked in order, because the user sees so many jobs that the page is soon full.
                return read_all(connection, newer.where(or_(_is_of_pool(sees_only), _is_of_visible(sees_only))), Event)
            of_pool = read_all(connection, newer.where(_is_of_pool(sees_only)), Event)
            of_jobs = read_all(connection, newer.where(events.c.seq.in_(_find_seqs(few, seq, limit))), Event)
        return tuple(sorted((*of_pool, *of_jobs), key=lambda event: event.seq)[:limit])

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


def _list_few_visible(connection: Connection, sees_only: str) -> Collection[str] | None:
    """Return the ids of the jobs that a user may see. None: there are more than `_FEW_JOBS`."""
    seen = connection.execute(select(jobs.c.id).where(is_visible(sees_only)).limit(_FEW_JOBS + 1)).scalars().all()
    return None if len(seen) > _FEW_JOBS else seen


def _find_seqs(these: Collection[str], after: int, limit: int) -> Select[tuple[int]]:
    """Return the query for the numbers of the first events of these jobs, which reads only an index."""
    statement = select(events.c.seq).where(events.c.job.in_(these), events.c.seq > after)
    return statement.order_by(events.c.seq).limit(limit)


def _is_of_visible(sees_only: str) -> ColumnElement[bool]:
    """Return the condition for events of jobs that the user may see."""
    return select(jobs.c.id).where(jobs.c.id == events.c.job, is_visible(sees_only)).correlate(events).exists()


def _is_of_pool(sees_only: str) -> ColumnElement[bool]:
    """Return the condition for events of no job that the user may see."""
    of_project = select(projects.c.id).where(
        projects.c.id == at(events.c.detail, "project").as_string(), sees_project(sees_only)
    )
    concerns_user = or_(of_project.correlate(events).exists(), at(events.c.detail, LEAVER).as_string() == sees_only)
    of_queue = select(queues.c.name).where(
        queues.c.name == at(events.c.detail, "queue").as_string(), is_member(sees_only)
    )
    is_of_own = or_(of_queue.correlate(events).exists(), at(events.c.detail, "is_open").as_boolean())
    return and_(
        events.c.job.is_(None),
        or_(
            events.c.kind.not_in((KIND, QUEUE)),
            and_(events.c.kind == KIND, concerns_user),
            and_(events.c.kind == QUEUE, is_of_own),
        ),
    )


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
