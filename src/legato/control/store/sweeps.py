"""Sweeps and their trials in the store. Chooses no parameters.

A trial and its job are inserted in one transaction, so no crash makes a job without a trial, or a trial twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, delete, func, or_, select, true, update

from legato.api.sweeps import TrialState
from legato.control.ids import make_id
from legato.control.records import CheckedJob, Page, RequestKey
from legato.control.roles import Asker, Submitter, check_may_act
from legato.control.stages import ENDED, Action, Stage, stage_after
from legato.control.store.database import Database
from legato.control.store.idempotency import claim_key, settle_key
from legato.control.store.job_rows import NUM_SLOTS, lock_job, move_job
from legato.control.store.lease import check_fence
from legato.control.store.projects import check_version
from legato.control.store.rows import Unreadable, read_all, read_each, take
from legato.control.store.schema import jobs, queues, sweeps, trials
from legato.control.store.submit import check_may_use_queue, check_queued, insert_jobs, lock_code
from legato.control.store.transactions import Transaction, writing
from legato.control.store.visibility import is_member
from legato.control.sweep_records import (
    NewSweep,
    StoredSweep,
    StoredTrial,
    SweepStage,
    TrialChange,
    TrialSummary,
    describe_start,
)
from legato.core.errors import Conflict, NotFound, UnreadableRow

_STOPPING: Final = ENDED | {Stage.STOPPING}


class Sweeps:
    """The sweeps of the platform.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids.
        request_limit_s: as in `Jobs`.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int], request_limit_s: float) -> None:
        self._database = database
        self._random_bits = random_bits
        self._request_limit_s = request_limit_s

    # ------------------------------------------------------------ what users ask for

    def create(
        self,
        new: NewSweep,
        asker: Submitter,
        now: float,
        key: RequestKey | None = None,
        *,
        max_running: int | None = None,
    ) -> tuple[StoredSweep, bool]:
        """Start a sweep; return it and whether it is new. The loop of the deciding server then submits its trials.

        Args:
            new: the checked sweep.
            asker: the user who starts it.
            now: seconds since 1970.
            key: of the request; repeated requests with the same key start one sweep.
            max_running: maximum number of running sweeps of the asker, including this one. None: no limit.

        Raises:
            Conflict: so many sweeps of the asker are running already.
            Forbidden: the asker may not submit to the queue.
            NotFound: there is no such queue, or no such code that the asker may use.
            KeyReused, InFlight: as in `Jobs.submit`.
        """
        with writing(self._database, now) as transaction:
            if key is not None:
                before = claim_key(transaction, asker.name, key, self._request_limit_s)
                if before is not None:
                    return _get(transaction.connection, before), False
            doing = f"start sweep '{new.name}'"
            check_may_use_queue(transaction, doing, new.queue, asker)
            if (code := new.template.get("code")) is not None:
                lock_code(transaction, code, asker)
            transaction.lock_sequence()
            running = select(func.count()).where(sweeps.c.owner == asker.name, sweeps.c.stage == SweepStage.RUNNING)
            number: int = transaction.connection.execute(running).scalar_one()
            if max_running is not None and number >= max_running:
                raise Conflict(
                    f"Cannot {doing}: {number} sweeps of '{asker.name}' are running, and a user may have "
                    f"{max_running}. Wait until one has ended, or stop one: legato sweeps stop NAME."
                )
            last: object = transaction.connection.execute(select(func.max(sweeps.c.id))).scalar_one()
            made = make_id("s", now, self._random_bits, last)
            row = msgspec.structs.asdict(new) | {"id": made, "owner": asker.name, "role": asker.role}
            row |= {"stage": SweepStage.RUNNING, "reason": describe_start(asker.name), "version": 1}
            transaction.connection.execute(sweeps.insert(), row | {"created_at": now, "ended_at": None})
            transaction.audit(asker.name, "sweep.start", made, {"name": new.name, "queue": new.queue})
            if key is not None:
                settle_key(transaction, asker.name, key, made)
            return _get(transaction.connection, made), True

    def stop(self, sweep: str, asker: Asker, now: float, *, version: int | None = None) -> StoredSweep:
        """Stop a sweep and its jobs, each with a checkpoint. It starts no further trial.

        Raises:
            NotFound: there is no such sweep that the asker may see.
            StaleVersion: it has another version by now.
            Forbidden: it is not the asker's, and the asker is no admin.
            Conflict: it has ended.
        """
        with writing(self._database, now) as transaction:
            old = _lock(transaction, sweep, asker.sees_only)
            doing = f"stop sweep '{old.name}'"
            check_may_act(doing, asker, (old.owner,))
            check_version(doing, old.version, version)
            if old.stage is not SweepStage.RUNNING:
                raise Conflict(f"Cannot {doing}: it has already ended ({old.stage}).")
            transaction.audit(asker.name, "sweep.stop", sweep)
            _end(transaction, old, SweepStage.STOPPED, f"'{asker.name}' asked to stop it")
            return _get(transaction.connection, sweep)

    def delete(self, sweep: str, asker: Asker, now: float, *, version: int | None = None) -> None:
        """Delete a sweep that has ended. The jobs of its trials stay.

        Raises:
            NotFound, StaleVersion, Forbidden: as in `stop`.
            Conflict: it is running.
        """
        with writing(self._database, now) as transaction:
            old = _lock(transaction, sweep, asker.sees_only)
            doing = f"delete sweep '{old.name}'"
            check_may_act(doing, asker, (old.owner,))
            check_version(doing, old.version, version)
            if old.stage is SweepStage.RUNNING:
                raise Conflict(f"Cannot {doing}: it is running. Stop it first: legato sweeps stop {old.id}.")
            transaction.audit(asker.name, "sweep.delete", sweep, {"name": old.name})
            transaction.connection.execute(delete(sweeps).where(sweeps.c.id == sweep))  # with its trials

    # ------------------------------------------------------------ what users look at

    def find(self, ref: str, asker: Asker) -> StoredSweep:
        """Return a sweep by id, or the newest of that name: of the asker's own, else of all visible ones.

        Raises:
            NotFound: there is none.
            UnreadableRow: its row cannot be read.
        """
        seen = select(sweeps).where(_is_visible(asker.sees_only))
        named = seen.where(sweeps.c.name == ref).order_by(sweeps.c.id.desc())
        with self._database.reading() as connection:
            for way in (seen.where(sweeps.c.id == ref), named.where(sweeps.c.owner == asker.name), named):
                found = read_each(connection, way.limit(1), StoredSweep)
                if found:
                    return take(found[0], f"use sweep '{ref[:100]}'")
        raise _missing(ref)

    def list(self, *, sees_only: str | None = None, after: str | None = None, limit: int = 100) -> Page[StoredSweep]:
        """Return a page of sweeps, the newest first. ``after``: from the previous page.

        A row that cannot be read is shown with its reason; see `legato.control.store.rows`.
        """
        statement = select(sweeps).where(_is_visible(sees_only))
        if after is not None:
            statement = statement.where(sweeps.c.id < after)
        statement = statement.order_by(sweeps.c.id.desc()).limit(limit + 1)
        with self._database.reading() as connection:
            found = read_all(connection, statement, StoredSweep)
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def get(self, sweep: str) -> StoredSweep:
        """Return a sweep by id.

        Raises:
            NotFound: there is no such sweep.
            UnreadableRow: its row cannot be read.
        """
        with self._database.reading() as connection:
            return _get(connection, sweep)

    def list_trials(self, sweep: str) -> tuple[StoredTrial, ...]:
        """Return the trials of a sweep, in the order of their numbers.

        Raises:
            UnreadableRow: a row cannot be read.
        """
        with self._database.reading() as connection:
            found = read_each(connection, _select_trials(sweep), StoredTrial)
        return tuple(take(one, f"show the trials of sweep '{sweep}'") for one in found)

    def summarize(self, these: Sequence[str]) -> dict[str, TrialSummary]:
        """Return the trials of these sweeps in short, by the ids of the sweeps. At most 1000 sweeps."""
        of_these = trials.c.sweep.in_(these)
        counting = select(trials.c.sweep, trials.c.state, func.count()).where(of_these)
        counting = counting.group_by(trials.c.sweep, trials.c.state).order_by(trials.c.sweep, trials.c.state)

        def rank(value: ColumnElement[Any]) -> ColumnElement[int]:
            return func.row_number().over(partition_by=trials.c.sweep, order_by=(value, trials.c.number))

        ranks = (rank(trials.c.value.asc()).label("low"), rank(trials.c.value.desc()).label("high"))
        ranked = select(trials.c.sweep, trials.c.number, *ranks).where(
            of_these, trials.c.state == TrialState.SUCCEEDED, trials.c.value.is_not(None)
        )
        found = ranked.subquery()
        states: dict[str, dict[str, int]] = {sweep: {} for sweep in these}
        best: dict[str, dict[str, int]] = {sweep: {} for sweep in these}
        with self._database.reading() as connection:
            for sweep, state, number in connection.execute(counting):
                states[sweep][state] = number
            for row in connection.execute(select(found).where(or_(found.c.low == 1, found.c.high == 1))):
                best[row.sweep] |= {
                    name: row.number for name, at in (("lowest", row.low), ("highest", row.high)) if at == 1
                }
        return {sweep: TrialSummary(states[sweep], **best[sweep]) for sweep in these}

    # ------------------------------------------------------------ the loop of the deciding server

    def list_running(self) -> tuple[StoredSweep, ...]:
        """Return the sweeps that are running, the oldest first. Rows that cannot be read are left out."""
        running = select(sweeps).where(sweeps.c.stage == SweepStage.RUNNING).order_by(sweeps.c.id)
        with self._database.reading() as connection:
            found = read_each(connection, running, StoredSweep)
        return tuple(one for one in found if not isinstance(one, Unreadable))

    def add_trial(
        self,
        sweep: str,
        number: int,
        parameters: dict[str, Any],
        new: CheckedJob,
        submitter: Submitter,
        fence: int,
        now: float,
        *,
        max_queued: int | None = None,
    ) -> bool:
        """Record a trial and submit its job, both or none; return whether that was done.

        Nothing is done if the sweep has ended, or has a trial of this number.

        Args:
            sweep: its id.
            number: of the trial: the number of trials so far.
            parameters: of the trial.
            new: its job.
            submitter: the owner of the sweep.
            fence: of the loop's lease.
            now: seconds since 1970.
            max_queued: as in `Jobs.submit`.

        Raises:
            FencedOut: another loop has the lease.
            Conflict, Forbidden, NotFound: as in `Jobs.submit`.
        """
        with writing(self._database, now) as transaction:
            check_fence(transaction.connection, fence)
            if _lock(transaction, sweep).stage is not SweepStage.RUNNING:
                return False
            counting = select(func.count()).select_from(trials).where(trials.c.sweep == sweep)
            if transaction.connection.execute(counting).scalar_one() != number:
                return False
            check_queued(transaction, new, submitter, max_queued)
            (job,) = insert_jobs(transaction, [(new, submitter)], self._random_bits)
            row = {"sweep": sweep, "number": number, "job": job.id, "parameters": parameters, "started_at": now}
            row |= {"state": TrialState.RUNNING, "value": None, "reports": [], "marks": {}, "reason": None}
            transaction.connection.execute(trials.insert(), row | {"ended_at": None})
            return True

    def record(self, sweep: str, change: TrialChange, fence: int, now: float) -> bool:
        """Record what became of a running trial, and stop its job if it is pruned; return whether that was done.

        Nothing is done if the trial has ended.

        Raises:
            FencedOut: another loop has the lease.
            NotFound: there is no such sweep.
        """
        with writing(self._database, now) as transaction:
            check_fence(transaction.connection, fence)
            _lock(transaction, sweep)
            values: dict[str, Any] = msgspec.to_builtins(change)
            del values["number"]
            if change.state is not TrialState.RUNNING:
                values["ended_at"] = now
            this = (trials.c.sweep == sweep, trials.c.number == change.number, trials.c.state == TrialState.RUNNING)
            job = transaction.connection.execute(
                update(trials).where(*this).values(values).returning(trials.c.job)
            ).scalar_one_or_none()
            if job is None:
                return False
            if change.state is TrialState.PRUNED:
                _stop_job(transaction, job, change.reason or "pruned")
            return True

    def end(self, sweep: str, stage: SweepStage, reason: str, fence: int, now: float) -> None:
        """End a running sweep, and stop the jobs of its running trials. Nothing is done if it has ended.

        Raises:
            FencedOut: another loop has the lease.
        """
        with writing(self._database, now) as transaction:
            check_fence(transaction.connection, fence)
            old = _lock(transaction, sweep)
            if old.stage is SweepStage.RUNNING:
                _end(transaction, old, stage, reason)

    def explain(self, sweep: str, reason: str, fence: int, now: float) -> None:
        """Give a running sweep another reason.

        Raises:
            FencedOut: another loop has the lease.
        """
        with writing(self._database, now) as transaction:
            check_fence(transaction.connection, fence)
            this = (sweeps.c.id == sweep, sweeps.c.stage == SweepStage.RUNNING)
            transaction.connection.execute(update(sweeps).where(*this).values(reason=reason))


def _get(connection: Connection, sweep: str) -> StoredSweep:
    found = read_each(connection, select(sweeps).where(sweeps.c.id == sweep), StoredSweep)
    if not found:
        raise _missing(sweep)
    return take(found[0], f"use sweep '{sweep}'")


def _select_trials(sweep: str) -> Select[Any]:
    columns = [column for column in trials.c if column is not trials.c.sweep]
    joined = trials.outerjoin(jobs, jobs.c.id == trials.c.job)
    more = (jobs.c.stage.label("job_stage"), jobs.c.reason.label("job_reason"), NUM_SLOTS)
    return select(*columns, *more).select_from(joined).where(trials.c.sweep == sweep).order_by(trials.c.number)


def _is_visible(sees_only: str | None) -> ColumnElement[bool]:
    """Return the condition for sweeps that the user owns, or sees through their queue, as jobs. None: all."""
    if sees_only is None:
        return true()
    seen = select(queues.c.name).where(is_member(sees_only))
    return or_(sweeps.c.owner == sees_only, sweeps.c.queue.in_(seen))


def _lock(transaction: Transaction, sweep: str, sees_only: str | None = None) -> StoredSweep:
    statement = select(sweeps).where(sweeps.c.id == sweep, _is_visible(sees_only)).with_for_update()
    found = read_each(transaction.connection, statement, StoredSweep)
    if not found:
        raise _missing(sweep)
    return take(found[0], f"change sweep '{sweep}'")


def _end(transaction: Transaction, old: StoredSweep, stage: SweepStage, reason: str) -> None:
    now = transaction.now
    values = {"stage": stage, "reason": reason, "version": old.version + 1, "ended_at": now}
    transaction.connection.execute(update(sweeps).where(sweeps.c.id == old.id).values(values))
    running = (trials.c.sweep == old.id, trials.c.state == TrialState.RUNNING)
    told = f"sweep '{old.name}' has ended: {reason}"
    ending = update(trials).where(*running).values(state=TrialState.STOPPED, reason=told, ended_at=now)
    # In the order of their ids, so that two transactions that lock several jobs cannot deadlock.
    for job in sorted(transaction.connection.execute(ending.returning(trials.c.job)).scalars()):
        _stop_job(transaction, job, told)


def _stop_job(transaction: Transaction, job: str, reason: str) -> None:
    """Stop a job with a checkpoint, unless it has ended or is stopping."""
    try:
        found = lock_job(transaction, job, None)
    except (NotFound, UnreadableRow):
        return  # deleted because of its age; or only an administrator can repair it
    if found.stage not in _STOPPING:
        move_job(transaction, found, stage_after(Action.STOP, found.name, found.stage), reason, stop_now=False)


def _missing(ref: str) -> NotFound:
    return NotFound(f"There is no sweep '{ref[:100]}' that you may see. 'legato sweeps' lists those that you may.")
