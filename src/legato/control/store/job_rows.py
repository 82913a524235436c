"""Reads, locks and moves the row of one job within a transaction. Does not decide moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Select, func, insert, select, update

from legato.control.records import Job
from legato.control.stages import ENDED, HOLDING, MOVES, UNDECIDED, Stage
from legato.control.store.database import Undecodable
from legato.control.store.rows import Unreadable, describe_unreadable, fetch_each, read_each
from legato.control.store.schema import allocations, attempts, events, job_labels, jobs
from legato.control.store.transactions import Transaction
from legato.control.store.visibility import is_visible
from legato.core.errors import NotFound, UnreadableRow
from legato.core.lifecycle import check_move

MOVED: Final = "stage"  # the kind of the event of a move
_NUM_LISTED: Final = 20
_BATCH: Final = 5_000  # ids in one query; databases have a limit of some ten thousand

NUM_SLOTS: Final = (
    select(func.count())
    .select_from(allocations)
    .where(allocations.c.job == jobs.c.id, allocations.c.until.is_(None))
    .correlate(jobs)
    .scalar_subquery()
    .label("num_slots")
)
_NEW_LABELS: Final = job_labels.insert()


def select_jobs() -> Select[Any]:
    """Return the query for all jobs as records."""
    return select(*(column for column in jobs.c if column is not jobs.c.spec), NUM_SLOTS)


def show_jobs(connection: Connection, statement: Select[Any]) -> tuple[Job, ...]:
    """Run a query of `select_jobs`. A damaged row becomes a record with its readable fields and the reason."""
    return tuple(
        found if isinstance(found, Job) else _show_unreadable(found) for found in read_each(connection, statement, Job)
    )


def read_job(connection: Connection, statement: Select[Any], doing: str = "change") -> Job | None:
    """Run a query of `select_jobs` for one job. None: there is none.

    Args:
        connection: to the store.
        statement: the query.
        doing: to the job, as a verb.

    Raises:
        UnreadableRow: it cannot be read.
    """
    for found in read_each(connection, statement, Job):
        if isinstance(found, Job):
            return found
        raise UnreadableRow(f"Cannot {doing} job '{found.record.name or found.record.id}': its {found.why}.")
    return None


def _show_unreadable(found: Unreadable) -> Job:
    job: Job = found.record
    stage = job.stage
    if "column 'stage'" in found.why:
        # Of the possible stages, the one that fits its slots.
        stage = Stage.RUNNING if job.num_slots else Stage.QUEUED
    return msgspec.structs.replace(job, stage=stage, reason=f"its {found.why}", decided_slots=None, decided_reason=None)


def read_spec(connection: Connection, job: str) -> dict[str, Any]:
    """Return the submitted spec.

    Raises:
        NotFound: there is no such job.
        UnreadableRow: the spec is no JSON object.
    """
    found = read_specs(connection, [job]).get(job)
    if found is None:
        raise missing_job(job, None)
    if isinstance(found, UnreadableRow):
        raise found
    return found


def read_specs(connection: Connection, these: Sequence[str]) -> dict[str, dict[str, Any] | UnreadableRow]:
    """Return the submitted specs of jobs, by id, or why one cannot be read. Jobs that do not exist are left out."""
    found: dict[str, dict[str, Any] | UnreadableRow] = {}
    for first in range(0, len(these), _BATCH):
        statement = select(jobs.c.id, jobs.c.spec).where(jobs.c.id.in_(these[first : first + _BATCH]))
        for row in fetch_each(connection, statement):
            job, spec = row["id"], row["spec"]
            if isinstance(spec, dict):
                found[job] = spec
                continue
            why = spec.why if isinstance(spec, Undecodable) else "is no JSON object"
            told = describe_unreadable("jobs", job, f"column 'spec' {why}")
            found[job] = UnreadableRow(f"Cannot read what job '{job}' runs: its {told}.")
    return found


def lock_job(transaction: Transaction, job: str, sees_only: str | None) -> Job:
    """Read a job and lock it until the transaction ends.

    Raises:
        NotFound: there is none of this id that the user may see.
    """
    statement = select_jobs().where(jobs.c.id == job, is_visible(sees_only)).with_for_update(of=jobs)
    found = read_job(transaction.connection, statement)
    if found is None:
        raise missing_job(job, sees_only)
    return found


def missing_job(ref: str, sees_only: str | None) -> NotFound:
    """Return the error for a job that does not exist or that the user may not see. The message is the same for both.

    Args:
        ref: its id or name.
        sees_only: the user who may not see it. None: a user who sees all jobs.
    """
    if sees_only is None:
        return NotFound(f"There is no job '{ref}'. 'legato ps --all' lists all.")
    return NotFound(f"There is no job '{ref}' that you may see. 'legato ps --all' lists those that you may.")


def write_labels(transaction: Transaction, labels: Mapping[str, Mapping[str, str]]) -> None:
    """Write the labels of jobs that have none as rows, by the job's id."""
    rows = [{"key": key, "value": value, "job": job} for job, of in labels.items() for key, value in of.items()]
    if rows:
        transaction.connection.execute(_NEW_LABELS, rows)


def move_job(
    transaction: Transaction, job: Job, stage: Stage, reason: str, *, by: str | None = None, **values: Any
) -> int:
    """Move a locked job to a stage: update its times, attempts and version, and write the event.

    Args:
        transaction: the transaction that has locked the job.
        job: as it was read in this transaction.
        stage: the new stage.
        reason: why.
        by: the user who asked for it. None: no user did.
        values: further columns to set.

    Returns:
        The number of the job's attempt after the move.

    Raises:
        TransitionError: the table of moves does not have this move.
    """
    if stage not in MOVES[job.stage]:
        check_move(f"job '{job.name}' ({job.id})", MOVES, job.stage, stage, _describe_history(transaction, job.id))
    now = transaction.now
    attempt = job.attempt + 1 if stage is Stage.STARTING else job.attempt
    values |= {"stage": stage, "reason": reason, "attempt": attempt, "version": job.version + 1, "staged_at": now}
    if stage is Stage.STARTING and job.started_at is None:
        values["started_at"] = now
    if stage in ENDED:
        values["ended_at"] = now
        transaction.count_ended(stage, 1)
    if stage in UNDECIDED:
        values |= {"decided_slots": None, "decided_reason": None}
    where = (jobs.c.id == job.id, jobs.c.version == job.version)
    changed = transaction.connection.execute(update(jobs).where(*where).values(values)).rowcount
    assert changed == 1, f"job {job.id} was moved without its lock"
    if stage is Stage.STARTING:
        transaction.connection.execute(insert(attempts).values(job=job.id, attempt=attempt, started_at=now))
    elif job.stage in HOLDING and stage not in HOLDING:
        this = (attempts.c.job == job.id, attempts.c.attempt == attempt)
        transaction.connection.execute(update(attempts).where(*this).values(ended_at=now, outcome=stage, reason=reason))
    detail = {"from": job.stage, "to": stage} | ({} if by is None else {"by": by})
    transaction.note(MOVED, reason, job=job.id, attempt=attempt, detail=detail)
    return attempt


def _describe_history(transaction: Transaction, job: str) -> list[str]:
    told = select(events).where(events.c.job == job, events.c.kind == MOVED)
    newest = transaction.connection.execute(told.order_by(events.c.seq.desc()).limit(_NUM_LISTED)).all()
    moves = [(row, row.detail if isinstance(row.detail, dict) else {}) for row in reversed(newest)]
    return [f"{row.time:.3f} {how.get('from', '?')} -> {how.get('to', '?')}: {row.reason}" for row, how in moves]
