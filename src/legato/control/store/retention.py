"""Deletes old data from the store. The audit log, users and slots stay forever."""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import ColumnElement, delete, exists, select, update

from legato.control.people import TokenKind
from legato.control.stages import ENDED, Stage
from legato.control.store.database import Database
from legato.control.store.lease import check_fence
from legato.control.store.schema import (
    allocations,
    code_uploads,
    definitions,
    events,
    idempotency_keys,
    jobs,
    sweeps,
    tokens,
)
from legato.control.store.transactions import Transaction, writing
from legato.control.store.webhooks import delete_old_deliveries

# Rows per transaction, so that other writers do not wait long. Repeated calls purge the rest.
_BATCH: Final = 200
_SWEEPS_BATCH: Final = 5  # each with up to a thousand trials
_EVENTS_BATCH: Final = 10_000
_DELIVERIES_S: Final = 7 * 86_400.0
"""So long deliveries of webhooks are kept after they were accepted or given up."""


class Purged(msgspec.Struct, frozen=True):
    """The jobs and uploads that retention deleted from the store; their files are deleted next.

    Args:
        num_sweeps: number of sweeps that it deleted; they have no files.
        has_more: there may be more old deliveries of webhooks, which have no files either.
    """

    jobs: tuple[str, ...]
    uploads: tuple[str, ...]
    num_sweeps: int = 0
    has_more: bool = False


class Retention:
    """Deletes old rows."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def purge(
        self,
        fence: int,
        now: float,
        *,
        jobs_before: float | None,
        uploads_before: float | None,
        keys_before: float,
    ) -> Purged:
        """Delete a batch of rows that are older than these times; None: no row of this kind.

        Args:
            fence: of the loop's lease.
            now: seconds since 1970.
            jobs_before: deletes jobs that ended before this and hold no slot, with their rows in other tables; also
                sweeps that ended before this, older events of the pool, and tokens that expired or were revoked
                before this.
            uploads_before: deletes code that was last used before this, and that no job, no training definition and
                no running sweep names.
            keys_before: deletes idempotency keys from before this, and tokens of log-ins and links that ended before
                this.

        Returns:
            What was deleted.

        Raises:
            FencedOut: another loop has the lease.
        """
        with writing(self._database, now) as transaction:
            check_fence(transaction.connection, fence)
            old_keys = idempotency_keys.c.created_at < keys_before
            transaction.connection.execute(delete(idempotency_keys).where(old_keys))
            has_more = delete_old_deliveries(transaction, now - _DELIVERIES_S)
            of_logins = tokens.c.kind != TokenKind.TOKEN
            transaction.connection.execute(delete(tokens).where(of_logins, _ended_before(keys_before)))
            gone, num_sweeps = ((), 0) if jobs_before is None else _purge_jobs(transaction, jobs_before)
            unused = () if uploads_before is None else _purge_uploads(transaction, uploads_before)
            if gone or unused:
                told = f"{len(gone)} jobs and {len(unused)} uploads were deleted because of their age"
                transaction.note("purged", told, detail={"jobs": list(gone), "uploads": list(unused)})
            return Purged(gone, unused, num_sweeps, has_more)


def _purge_jobs(transaction: Transaction, before: float) -> tuple[tuple[str, ...], int]:
    """Delete a batch of jobs, sweeps, events and tokens; return the jobs, and the number of sweeps."""
    connection = transaction.connection
    holds = exists().where(allocations.c.job == jobs.c.id, allocations.c.until.is_(None))
    # Checks the stage too, so that a job with an unknown stage or a wrong time is not deleted.
    has_ended = jobs.c.stage.in_(ENDED) & (jobs.c.ended_at < before)
    old = select(jobs.c.id).where(has_ended, ~holds).order_by(jobs.c.id).limit(_BATCH)
    gone = tuple(connection.execute(old).scalars())
    connection.execute(update(jobs).where(jobs.c.parent.in_(gone)).values(parent=None))
    # Deletes attempts, allocations, decisions and events with their job.
    for stage in connection.execute(delete(jobs).where(jobs.c.id.in_(gone)).returning(jobs.c.stage)).scalars().all():
        transaction.count_ended(Stage(stage), -1)
    old_sweeps = select(sweeps.c.id).where(sweeps.c.ended_at < before).order_by(sweeps.c.id).limit(_SWEEPS_BATCH)
    num_sweeps = connection.execute(delete(sweeps).where(sweeps.c.id.in_(old_sweeps))).rowcount  # with their trials
    of_pool = select(events.c.seq).where(events.c.job.is_(None), events.c.time < before).limit(_EVENTS_BATCH)
    connection.execute(delete(events).where(events.c.seq.in_(of_pool)))
    connection.execute(delete(tokens).where(_ended_before(before)))
    return gone, num_sweeps


def _ended_before(before: float) -> ColumnElement[bool]:
    return (tokens.c.revoked_at < before) | (tokens.c.expires_at < before)


def _purge_uploads(transaction: Transaction, before: float) -> tuple[str, ...]:
    connection = transaction.connection
    for users in (jobs, definitions):
        # Such a row is damaged, and any upload may be the one that it named.
        lost = users.c.code.is_not(None) & ~exists().where(code_uploads.c.sha256 == users.c.code)
        if connection.execute(select(exists().where(lost))).scalar_one():
            return ()
    of_job = exists().where(jobs.c.code == code_uploads.c.sha256)
    # A running sweep needs it for its next trials.
    of_sweep = exists().where(
        sweeps.c.ended_at.is_(None), sweeps.c.template["code"].as_string() == code_uploads.c.sha256
    )
    named = of_job | of_sweep | exists().where(definitions.c.code == code_uploads.c.sha256)
    # Locks the uploads: a submission that uses one is either complete, or does not find it.
    old = select(code_uploads.c.sha256).where(code_uploads.c.used_at < before, ~named).limit(_BATCH).with_for_update()
    unused = tuple(connection.execute(old).scalars())
    deleting = delete(code_uploads).where(code_uploads.c.sha256.in_(unused), ~named)
    return tuple(connection.execute(deleting.returning(code_uploads.c.sha256)).scalars())
