"""Reads and writes of the control loop. Facts are of one moment; each job is written completely or not at all.

Every write names the fence of its lease; a write without the present fence changes nothing. Decides nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, case, func, insert, or_, select, update

from legato.control.records import (
    Allocation,
    Facts,
    Job,
    JobChange,
    Lease,
    Queue,
    Slot,
    StoredNode,
    Verdict,
    Written,
)
from legato.control.stages import HOLDING, OPEN, Stage
from legato.control.store.database import Database
from legato.control.store.earlier_runs import read_earlier_runs
from legato.control.store.job_rows import move_job, read_specs, select_jobs
from legato.control.store.lease import check_fence, claim_home, end_lease, give_up_lease, read_lease, take_lease
from legato.control.store.pilots import read_clusters
from legato.control.store.pool import ask_rows, close_rows, open_rows, select_nodes, select_open, select_slots
from legato.control.store.queues import read_each_queue
from legato.control.store.rows import Unreadable, read_each
from legato.control.store.schema import allocations, attempts, decisions, jobs
from legato.control.store.transactions import Transaction, writing
from legato.control.store.usage import Usage
from legato.core.errors import UnreadableRow
from legato.policy.earlier_runs import EarlierRun
from legato.policy.snapshot import RecentUse

_BATCH: Final = 5_000  # ids in one query; databases have a limit of some ten thousand

# Built once, because building a statement takes as long as running it.
_NEWEST: Final = update(jobs).where(jobs.c.id == bindparam("decided"))
_DECISION: Final = insert(decisions)

# Stages that this release does not know, as ranges between the known ones, which an index finds.
_KNOWN: Final = sorted(Stage)
_UNKNOWN_STAGE: Final = select_jobs().where(
    or_(
        jobs.c.stage < _KNOWN[0],
        jobs.c.stage > _KNOWN[-1],
        *((jobs.c.stage > low) & (jobs.c.stage < high) for low, high in itertools.pairwise(_KNOWN)),
    )
)


class Loop:
    """The control loop's interface to the store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take_lease(self, owner: str, now: float, length_s: float) -> Lease | None:
        """Take the lease if it is free or has expired, or extend the caller's own lease.

        A lease that would last for more than twice ``length_s`` counts as expired: a clock was set back.

        Args:
            owner: a name that no other loop has ever had, including earlier processes of this server.
            now: seconds since 1970.
            length_s: duration of the lease from ``now``, in seconds.

        Returns:
            The lease, with a higher fence if another loop had it before; None: another loop has it.
        """
        return take_lease(self._database, owner, now, length_s)

    def claim_home(self, home: str, now: float) -> str:
        """Record the home with the jobs' directories, unless the store names one; return the home that it names."""
        return claim_home(self._database, home, now)

    def give_up_lease(self, lease: Lease, now: float) -> None:
        """Release the lease, so that another loop can take it at once. Does nothing if another loop has it."""
        give_up_lease(self._database, lease, now)

    def end_lease(self, now: float) -> None:
        """Take the lease from its owner, for a caller that knows that no other server can run."""
        end_lease(self._database, now)

    def read_lease(self) -> Lease | None:
        """Return the present lease; None: no server has had it yet."""
        with self._database.reading() as connection:
            return read_lease(connection)

    def read_facts(self) -> Facts:
        """Return the facts that a round needs, as of one moment."""
        going_on = select_jobs().where(jobs.c.stage.in_(OPEN)).order_by(jobs.c.id)
        unreadable: dict[tuple[str, str], str] = {}
        with self._database.reading() as connection:
            found = read_each(connection, going_on, Job) + read_each(connection, _UNKNOWN_STAGE, Job)
            allocations = read_each(connection, select_open(), Allocation)
            queues = read_each_queue(connection)
            slots = read_each(connection, select_slots(), Slot)
            nodes = read_each(connection, select_nodes(), StoredNode)
            clusters = read_clusters(connection)
        unreadable |= _hold_back_nodes(slots, nodes)
        for kind, rows in (("queue", queues), ("slot", slots), ("job", found)):
            for row in rows:
                if isinstance(row, Unreadable):
                    unreadable[kind, row.record.name if kind == "queue" else row.record.id] = f"its {row.why}"
        for had in allocations:
            if isinstance(had, Unreadable):
                # A worker may be in the slot, so neither the slot nor the job is changed.
                unreadable["slot", had.record.slot] = unreadable["job", had.record.job] = f"its {had.why}"
            elif ("slot", had.slot) in unreadable:
                unreadable["job", had.job] = f"its slot {had.slot} is not known: {unreadable['slot', had.slot]}"
        unreadable |= _hold_back(slots, allocations)
        return Facts(
            jobs=tuple(job for job in found if isinstance(job, Job) and ("job", job.id) not in unreadable),
            queues=tuple(queue for queue in queues if isinstance(queue, Queue)),
            slots=tuple(slot for slot in slots if isinstance(slot, Slot) and ("slot", slot.id) not in unreadable),
            allocations=tuple(had for had in allocations if isinstance(had, Allocation)),
            unreadable=unreadable,
            nodes=tuple(node for node in nodes if isinstance(node, StoredNode)),
            clusters=clusters,
        )

    def read_specs(self, these: Sequence[str]) -> dict[str, dict[str, Any] | UnreadableRow]:
        """Return the submitted specs of jobs, by id, or why one cannot be read. Jobs that do not exist are left out.

        Workers, priority and queue may have changed since; the job's record has them.
        """
        with self._database.reading() as connection:
            return read_specs(connection, these)

    def read_held_s(self, job: str, now: float) -> float:
        """Return for how many seconds a job has held slots, over all attempts, the present one up to ``now``."""
        lasted = select(attempts.c.started_at, attempts.c.ended_at).where(attempts.c.job == job)
        with self._database.reading() as connection:
            rows: Sequence[Any] = connection.execute(lasted).all()
        # A negative duration, after a clock was set back, must not reduce the sum.
        return sum((max((now if row.ended_at is None else row.ended_at) - row.started_at, 0.0) for row in rows), 0.0)

    def count_usage(self, fence: int, now: float) -> None:
        """Count what users have used since the last count.

        Raises:
            FencedOut: another loop has the lease; nothing was written.
        """
        Usage(self._database).count(fence, now)

    def read_recent_use(self, now: float, half_life_s: float) -> tuple[RecentUse, ...]:
        """Return the decayed use of all users, as an average number of slots."""
        return Usage(self._database).read_recent(now, half_life_s)

    def read_earlier_runs(self, jobs: Sequence[str]) -> dict[str, tuple[EarlierRun, ...]]:
        """Return the newest earlier runs of each job's code that have measured speeds, the newest first.

        The jobs are of one user and have the same code; jobs that are not known are left out.
        """
        with self._database.reading() as connection:
            return read_earlier_runs(connection, jobs)

    def read_used_slot_s(self, now: float) -> dict[str, float]:
        """Return the seconds of slots that each job which has not ended has had in all attempts."""
        end = func.coalesce(allocations.c.until, now)
        lasted = case((end > allocations.c.since, end - allocations.c.since), else_=0.0)
        statement = (
            select(allocations.c.job, func.sum(lasted))
            .join(jobs, jobs.c.id == allocations.c.job)
            .where(jobs.c.stage.in_(OPEN))
            .group_by(allocations.c.job)
        )
        with self._database.reading() as connection:
            return {job: float(used) for job, used in connection.execute(statement)}

    def write(self, changes: Iterable[JobChange], fence: int, now: float) -> Written:
        """Write the observations or the decisions of a round in one transaction.

        A change is skipped and reported as stale if its job has left the stage or attempt that the loop has read. All
        slots are closed before slots are granted, so one write can move a slot from one job to another. A write may be
        repeated; the second one changes nothing.

        Raises:
            FencedOut: another loop has the lease; nothing was written.
            SlotTaken: another attempt has a slot, or a slot is not usable; nothing was written.
            TransitionError: a move is not in the table of moves; nothing was written.
        """
        wanted = sorted(changes, key=lambda change: change.job)
        assert len({change.job for change in wanted}) == len(wanted), "one change for each job"
        with writing(self._database, now) as transaction:
            check_fence(transaction.connection, fence)
            locked = _lock_jobs(transaction, [change.job for change in wanted])
            stale = tuple(change.job for change in wanted if not _is_current(change, locked.get(change.job)))
            current = [(locked[change.job], change) for change in wanted if change.job not in stale]
            for job, change in current:
                _close(transaction, job, change)
            attempts_now = {job.id: _write_one(transaction, job, change) for job, change in current}
            _decide(transaction, [(job, attempts_now[job.id], change.verdict) for job, change in current])
            return Written(stale)


def _hold_back_nodes(
    slots: Iterable[Slot | Unreadable], nodes: Iterable[StoredNode | Unreadable]
) -> dict[tuple[str, str], str]:
    """Return why no job may get the slots of some nodes: their kinds of machine cannot be read."""
    lost = {node.record.name: node.why for node in nodes if isinstance(node, Unreadable)}
    return {
        ("slot", slot.id): f"its node cannot be used: {lost[slot.node]}"
        for slot in slots
        if isinstance(slot, Slot) and slot.node in lost
    }


def _hold_back(
    slots: Iterable[Slot | Unreadable], allocations: Sequence[Allocation | Unreadable]
) -> dict[tuple[str, str], str]:
    """Return why no job may get a slot: an open allocation does not say its slot, so it may be any that seems free."""
    ids = {slot.record.id if isinstance(slot, Unreadable) else slot.id for slot in slots}
    lost = [had for had in allocations if isinstance(had, Unreadable) and had.record.slot not in ids]
    if not lost:
        return {}
    held = {had.record.slot if isinstance(had, Unreadable) else had.slot for had in allocations}
    return {("slot", slot): f"a worker may be in it: {lost[0].why}" for slot in ids - held}


def _lock_jobs(transaction: Transaction, ids: list[str]) -> dict[str, Job]:
    found: dict[str, Job] = {}
    for first in range(0, len(ids), _BATCH):
        meant = jobs.c.id.in_(ids[first : first + _BATCH])
        statement = select_jobs().where(meant).order_by(jobs.c.id).with_for_update(of=jobs)
        read = read_each(transaction.connection, statement, Job)
        found |= {job.id: job for job in read if isinstance(job, Job)}
    return found


def _is_current(change: JobChange, job: Job | None) -> bool:
    return job is not None and (job.stage, job.attempt) == (change.seen_stage, change.seen_attempt)


def _close(transaction: Transaction, job: Job, change: JobChange) -> None:
    if change.closed:
        attempt = job.attempt if change.closed_attempt is None else change.closed_attempt
        if close_rows(transaction, job.id, attempt, change.closed):
            _note_slots(transaction, "left", job.id, attempt, change.closed, change.reason or _gone_text(job, change))


def _gone_text(job: Job, change: JobChange) -> str:
    if len(change.closed) >= job.num_slots:
        return "its workers are gone"
    gone, present = (number // job.gpus_per_worker for number in (len(change.closed), job.num_slots))
    return f"{gone} of its {present} workers {'is' if gone == 1 else 'are'} gone"


def _write_one(transaction: Transaction, job: Job, change: JobChange) -> int:
    """Write a change without its verdict, and return the number of the job's attempt after it."""
    values: dict[str, Any] = {}
    if change.progress is not None:
        values["progress"] = msgspec.to_builtins(change.progress)
    if change.exit_code is not None:
        values["exit_code"] = change.exit_code
    if change.machine_kind is not None:
        values["machine_kind"] = change.machine_kind
    if change.is_retry:
        values["num_retries"] = job.num_retries + 1
    if change.note is not None:
        values["reason"] = change.note.reason
        transaction.note("driver", change.note.told, job=job.id, attempt=job.attempt)
    attempt = job.attempt
    if change.stage is not None and change.stage is not job.stage:
        assert change.note is None, (
            f"job {job.id} changes its stage: the reason of that change is recorded, and no note"
        )
        attempt = move_job(transaction, job, change.stage, change.reason, **values)
    elif values:
        transaction.connection.execute(update(jobs).where(jobs.c.id == job.id).values(values))
        transaction.change_quietly()
    if change.released and ask_rows(transaction, job.id, attempt, change.released):
        _note_slots(transaction, "released", job.id, attempt, change.released, change.reason)
    if change.granted:
        assert (change.stage or job.stage) in HOLDING, f"job {job.id} has no attempt that could have slots"
        open_rows(transaction, job.id, attempt, change.granted, change.workers)
        _note_slots(transaction, "granted", job.id, attempt, change.granted, change.reason)
    return attempt


def _decide(transaction: Transaction, decided: Sequence[tuple[Job, int, Verdict | None]]) -> None:
    """Write what was decided on jobs, each with its attempt. All rows of a table are written by one statement."""
    newest, rows = [], []
    for job, attempt, verdict in decided:
        if verdict is None or (job.decided_slots, job.decided_reason) == (verdict.num_slots, verdict.reason):
            continue
        newest.append({"decided": job.id, "decided_slots": verdict.num_slots, "decided_reason": verdict.reason})
        if not verdict.is_new:
            transaction.change_quietly()
            continue
        row = {"job": job.id, "attempt": attempt, "time": transaction.now}
        rows.append({**row, "num_slots": verdict.num_slots, "reason": verdict.reason})
        detail = {"num_slots": verdict.num_slots}
        transaction.note("decision", verdict.reason, job=job.id, attempt=attempt, detail=detail)
    if newest:
        transaction.connection.execute(_NEWEST, newest)
    if rows:
        transaction.connection.execute(_DECISION, rows)


def _note_slots(
    transaction: Transaction, kind: str, job: str, attempt: int, these: tuple[str, ...], reason: str
) -> None:
    transaction.note(kind, reason, job=job, attempt=attempt, detail={"slots": list(these)})
