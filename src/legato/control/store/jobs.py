"""Jobs in the store: requests of users. The control loop's writes are in `loop`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, delete, func, select, update

from legato.control.ids import is_job_id
from legato.control.records import (
    Allocation,
    Attempt,
    CheckedJob,
    Decision,
    Holder,
    Job,
    JobFilter,
    JobPatch,
    Page,
    RequestKey,
    Submitted,
)
from legato.control.roles import Asker, Submitter
from legato.control.stages import OPEN, Action, Stage, check_ask
from legato.control.store.database import Database
from legato.control.store.idempotency import claim_key, settle_key, settle_keys
from legato.control.store.job_filter import filter_jobs, list_matching
from legato.control.store.job_rows import (
    NUM_SLOTS,
    lock_job,
    missing_job,
    move_job,
    read_job,
    read_spec,
    select_jobs,
    show_jobs,
    write_labels,
)
from legato.control.store.rows import at, fetch, fetch_each, read_all
from legato.control.store.schema import allocations, attempts, counters, decisions, job_labels, jobs
from legato.control.store.submission_groups import Submission, SubmissionGroups
from legato.control.store.submit import (
    check_labels,
    check_may_use_queue,
    check_priority,
    check_queued,
    check_workers,
    insert_jobs,
)
from legato.control.store.transactions import ENDED_AS, Transaction, writing
from legato.control.store.visibility import is_visible
from legato.core.errors import Conflict, StaleVersion, UsageError
from legato.policy.snapshot import TEST_LABEL

MAX_NOTES: Final = 1_000
"""Characters of the notes of a job. Lists of jobs contain them."""
_BATCH: Final = 5_000  # ids in one query; databases have a limit of some ten thousand


class Jobs:
    """The jobs of the platform.

    Args:
        database: the store's.
        random_bits: returns a random number of so many bits; for ids.
        request_limit_s: after so many seconds without an answer, another server may answer a request.
    """

    def __init__(self, database: Database, random_bits: Callable[[int], int], request_limit_s: float) -> None:
        self._database = database
        self._random_bits = random_bits
        self._request_limit_s = request_limit_s
        self._groups = SubmissionGroups(database, self._submit_each) if database.is_sqlite else None

    # ------------------------------------------------------------ what users ask for

    def submit(
        self,
        new: CheckedJob,
        asker: Submitter,
        now: float,
        key: RequestKey | None = None,
        *,
        max_queued: int | None = None,
        test_of: str | None = None,
    ) -> Submitted:
        """Queue a job. Repeated requests with the same key make one job, even if several servers receive them.

        The types show that the caller has checked the user's role and the job's own values. This method checks what
        another request could change meanwhile: the key, the queue, the number of waiting jobs, the origin and the code.

        Args:
            new: the job.
            asker: the user who submits.
            now: seconds since 1970.
            key: of the request.
            max_queued: maximum number of waiting jobs of the asker, including this one; does not limit admins. None: no
                limit.
            test_of: the cluster that the job tests. None: it tests none.

        Raises:
            Conflict: the maximum number of jobs waits already, or another job tests the cluster.
            Forbidden: the asker may not submit to this queue.
            NotFound: there is no such queue or upload.
            KeyReused: the key was used for another request.
            InFlight: another server is answering a request with this key.
        """
        submission = Submission(new, asker, now, key, max_queued, test_of)
        if self._groups is not None:
            return self._groups.submit(submission)
        with writing(self._database, now) as transaction:
            return self._submit_each(transaction, [submission])[0]

    def _submit_each(self, transaction: Transaction, submissions: Sequence[Submission]) -> list[Submitted]:
        """Queue several jobs, all or none. Raises the error of the first one that is refused."""
        made: dict[int, Submitted] = {}
        num_new: Counter[str] = Counter()
        for place, one in enumerate(submissions):
            if one.key is not None:
                # Another thread or server may be answering the same request: one of them claims the key.
                before = claim_key(transaction, one.asker.name, one.key, self._request_limit_s)
                if before is not None:
                    made[place] = Submitted(_reread(transaction, before), is_new=False)
                    continue
            num_new[one.asker.name] += 1
            check_queued(transaction, one.new, one.asker, one.max_queued, num_new=num_new[one.asker.name])
        new = [(place, one) for place, one in enumerate(submissions) if place not in made]
        inserted = insert_jobs(transaction, [(one.new, one.asker) for _, one in new], self._random_bits)
        answers: dict[tuple[str, str], str] = {}
        for (place, one), job in zip(new, inserted, strict=True):
            made[place] = Submitted(job, is_new=True)
            # `insert_jobs` lets one transaction insert at a time, so one of two tests sees the other.
            test_of = one.test_of
            if test_of is not None and (other := _find_test(transaction.connection, test_of, besides=job.id)):
                raise Conflict(
                    f"Cannot test cluster '{test_of}': job {other} tests it already. Wait, or stop that job."
                )
            if one.key is not None:
                answers[one.asker.name, one.key.key] = job.id
        settle_keys(transaction, answers)
        return [made[place] for place in range(len(submissions))]

    def submit_runs(
        self,
        new: Sequence[CheckedJob],
        asker: Submitter,
        now: float,
        key: RequestKey | None = None,
        *,
        max_queued: int | None = None,
    ) -> tuple[tuple[Job, ...], bool]:
        """Queue several jobs, all or none; return them and whether they are new. Arguments and errors as in `submit`.

        With a key, a repeated request returns the jobs of the first one, as far as the store still has them.
        """
        with writing(self._database, now) as transaction:
            if key is not None:
                before = claim_key(transaction, asker.name, key, self._request_limit_s)
                if before is not None:
                    return tuple(_reread(transaction, job) for job in before.split()), False
            check_queued(transaction, new[0], asker, max_queued, num_new=len(new))
            made = insert_jobs(transaction, [(one, asker) for one in new], self._random_bits)
            if key is not None:
                settle_key(transaction, asker.name, key, " ".join(job.id for job in made))
            return made, True

    def pause(self, job: str, asker: Asker, now: float, *, version: int | None = None) -> Job:
        """Ask a job to save its state and to give all slots back. Errors as in `change`."""
        return self._ask(Action.PAUSE, job, asker, now, version)

    def resume(self, job: str, asker: Asker, now: float, *, version: int | None = None) -> Job:
        """Queue a paused job again; it continues from its checkpoint. Errors as in `change`."""
        return self._ask(Action.RESUME, job, asker, now, version)

    def stop(self, job: str, asker: Asker, now: float, *, version: int | None = None, stop_now: bool = False) -> Job:
        """Ask a job to end, with a checkpoint unless ``stop_now``. Errors as in `change`.

        A second request to a stopping job has an effect only with ``stop_now``: the job then ends without its
        checkpoint.
        """
        return self._ask(Action.STOP, job, asker, now, version, stop_now=stop_now)

    def change(self, job: str, patch: JobPatch, asker: Asker, now: float, *, version: int | None = None) -> Job:
        """Change a job's minimum and maximum of workers, its priority, queue, labels or notes.

        Args:
            job: its id.
            patch: the changes.
            asker: the user who sends the request, with the role of the token.
            now: seconds since 1970.
            version: the version that the asker has read. None: any version.

        Raises:
            NotFound: there is no such job that the asker may see, or no such queue.
            StaleVersion: the job has another version by now.
            Forbidden: the asker may not change the job, or may not use the queue.
            Conflict: the job's stage does not allow this.
            UsageError: the values do not fit together.
        """
        with writing(self._database, now) as transaction:
            old = self._lock(transaction, job, asker, version)
            values = _check_patch(transaction, old, patch, asker)
            if values:
                # Notes can be long: the event has them in its detail.
                said = ", ".join(
                    name if name == "notes" else f"{name} from {getattr(old, name)} to {value}"
                    for name, value in values.items()
                )
                transaction.connection.execute(
                    update(jobs).where(jobs.c.id == job).values(**values, version=old.version + 1)
                )
                if "labels" in values:
                    transaction.connection.execute(delete(job_labels).where(job_labels.c.job == job))
                    write_labels(transaction, {job: values["labels"]})
                transaction.note("changed", f"'{asker.name}' changed {said}", job=job, detail=values)
                transaction.audit(asker.name, "job.change", job, values)
            return _reread(transaction, job)

    def _ask(self, action: Action, job: str, asker: Asker, now: float, version: int | None, **values: Any) -> Job:
        with writing(self._database, now) as transaction:
            old = self._lock(transaction, job, asker, version)
            stage = check_ask(action, old.name, old.owner, old.stage, asker)
            if stage is old.stage and (old.stop_now or not values.get("stop_now")):
                return old
            if stage is old.stage:
                where = jobs.c.id == job
                transaction.connection.execute(update(jobs).where(where).values(**values, version=old.version + 1))
                transaction.note("changed", f"'{asker.name}' asked to {action} it at once", job=job, detail=values)
                transaction.audit(asker.name, f"job.{action}", job, values)
                return _reread(transaction, job)
            move_job(transaction, old, stage, f"'{asker.name}' asked to {action} it", by=asker.name, **values)
            transaction.audit(asker.name, f"job.{action}", job, values or None)
            return _reread(transaction, job)

    @staticmethod
    def _lock(transaction: Transaction, job: str, asker: Asker, version: int | None) -> Job:
        old = lock_job(transaction, job, asker.sees_only)
        if version is not None and version != old.version:
            raise StaleVersion(
                f"Cannot change job '{old.name}': it was changed since you read it: it has version "
                f"{old.version}, and you gave {version}. Read it again, and repeat your change if you still want it."
            )
        return old

    # ------------------------------------------------------------ what users look at

    def get(self, job: str, sees_only: str | None = None) -> Job:
        """Return a job by id.

        Raises:
            NotFound: there is no such job that the user may see.
        """
        with self._database.reading() as connection:
            found = show_jobs(connection, select_jobs().where(jobs.c.id == job, is_visible(sees_only)))
        if not found:
            raise missing_job(job, sees_only)
        return found[0]

    def read_specs(self, ids: Sequence[str], asker: Asker) -> dict[str, dict[str, Any]]:
        """Return the specs of those of the jobs that the asker may see, by id. Damaged ones are left out."""
        statement = select(jobs.c.id, jobs.c.spec).where(jobs.c.id.in_(ids), is_visible(asker.sees_only))
        with self._database.reading() as connection:
            found = fetch_each(connection, statement)
        return {row["id"]: row["spec"] for row in found if isinstance(row["spec"], dict)}

    def find(self, ref: str, asker: Asker) -> Job:
        """Return a job by id, or the newest job of that name: of the asker's own jobs, else of all visible ones.

        Raises:
            NotFound: there is none.
        """
        visible = select_jobs().where(is_visible(asker.sees_only))
        named = visible.where(jobs.c.name == ref).order_by(jobs.c.id.desc())
        ways = [named.where(jobs.c.owner == asker.name), named]
        if is_job_id(ref):
            ways.insert(0, visible.where(jobs.c.id == ref))
        with self._database.reading() as connection:
            for way in ways:
                if found := show_jobs(connection, way.limit(1)):
                    return found[0]
        raise missing_job(ref, asker.sees_only)

    def list(
        self,
        wanted: JobFilter | None = None,
        *,
        sees_only: str | None = None,
        after: str | None = None,
        limit: int = 100,
        oldest_first: bool = False,
    ) -> Page[Job]:
        """Return a page of jobs, the newest first. ``after``: from the previous page."""
        with self._database.reading() as connection:
            found = list_matching(
                connection,
                wanted or JobFilter(),
                sees_only=sees_only,
                after=after,
                limit=limit + 1,
                oldest_first=oldest_first,
            )
        return Page(found[:limit], found[limit - 1].id if len(found) > limit else None)

    def find_test(self, cluster: str) -> str | None:
        """Return the id of a job that tests a cluster and has not ended. None: there is none.

        It is known by the label of the machine that it asks for. The job's own labels prove nothing.
        """
        with self._database.reading() as connection:
            return _find_test(connection, cluster)

    def count(self, wanted: JobFilter | None = None, *, sees_only: str | None = None) -> int:
        """Return the number of jobs that match."""
        statement = filter_jobs(select(func.count()).select_from(jobs), wanted or JobFilter()).where(
            is_visible(sees_only)
        )
        with self._database.reading() as connection:
            number: int = connection.execute(statement).scalar_one()
            return number

    def count_by_stage(self, *, sees_only: str | None = None) -> dict[Stage, int]:
        """Return the number of jobs in each stage; empty stages are left out."""
        statement = select(jobs.c.stage, func.count()).where(is_visible(sees_only)).group_by(jobs.c.stage)
        if sees_only is None:
            statement = statement.where(jobs.c.stage.in_(sorted(OPEN)))
        with self._database.reading() as connection:
            # A newer release may have stages that this one does not know; their jobs are not counted.
            found = {Stage(stage): number for stage, number in connection.execute(statement) if stage in set(Stage)}
            if sees_only is None:
                found |= _read_num_ended(connection)
        return found

    def which_visible(self, these: Collection[str], sees_only: str | None) -> frozenset[str]:
        """Return those of the jobs, by id, that the user may see."""
        if sees_only is None:
            return frozenset(these)
        seen: set[str] = set()
        meant = sorted(these)
        with self._database.reading() as connection:
            for first in range(0, len(meant), _BATCH):
                part = jobs.c.id.in_(meant[first : first + _BATCH])
                seen.update(connection.execute(select(jobs.c.id).where(part, is_visible(sees_only))).scalars())
        return frozenset(seen)

    def list_holders(self, sees_only: str | None) -> tuple[Holder, ...]:
        """Return all jobs that hold slots, visible or not, those with most slots first."""
        num_slots = func.count().label("num_slots")
        held = select(allocations.c.job, num_slots).where(allocations.c.until.is_(None)).group_by(allocations.c.job)
        slots = held.subquery()
        statement = _select_holders(slots.c.num_slots, sees_only).join(slots, slots.c.job == jobs.c.id)
        with self._database.reading() as connection:
            return _read_holders(connection, statement.order_by(slots.c.num_slots.desc(), jobs.c.id))

    def describe(self, these: Collection[str], sees_only: str | None) -> dict[str, Holder]:
        """Return names and slots of these jobs, by id, including jobs that the user may not see."""
        found: dict[str, Holder] = {}
        meant = sorted(these)
        with self._database.reading() as connection:
            for first in range(0, len(meant), _BATCH):
                statement = _select_holders(NUM_SLOTS, sees_only).where(jobs.c.id.in_(meant[first : first + _BATCH]))
                found |= {holder.id: holder for holder in _read_holders(connection, statement)}
        return found

    def read_spec(self, job: str) -> dict[str, Any]:
        """Return the submitted spec. Workers, priority and queue may have changed since; the job's record has them.

        Raises:
            NotFound: there is no such job.
            UnreadableRow: the spec cannot be read.
        """
        with self._database.reading() as connection:
            return read_spec(connection, job)

    def check_may_clone(self, job: str) -> None:
        """Raise UnreadableRow if a column of the job cannot be read: a clone would have an empty value there."""
        with self._database.reading() as connection:
            read_job(connection, select_jobs().where(jobs.c.id == job), "clone")

    def read_attempts(self, job: str) -> tuple[Attempt, ...]:
        """Return the job's attempts, the first one first."""
        statement = select(attempts).where(attempts.c.job == job).order_by(attempts.c.attempt)
        with self._database.reading() as connection:
            return read_all(connection, statement, Attempt)

    def read_allocations(self, job: str) -> tuple[Allocation, ...]:
        """Return the job's allocations of slots, the oldest first."""
        statement = select(allocations).where(allocations.c.job == job).order_by(allocations.c.id)
        with self._database.reading() as connection:
            return read_all(connection, statement, Allocation)

    def read_decisions(self, job: str, *, limit: int = 100) -> tuple[Decision, ...]:
        """Return the decisions on the job, the newest first."""
        statement = select(decisions).where(decisions.c.job == job).order_by(decisions.c.id.desc()).limit(limit)
        with self._database.reading() as connection:
            return read_all(connection, statement, Decision)


def _read_num_ended(connection: Connection) -> dict[Stage, int]:
    """Return the number of jobs in each stage in which jobs end; empty stages are left out."""
    statement = select(counters.c.name, counters.c.value).where(counters.c.name.in_(ENDED_AS.values()))
    values = {row.name: row.value for row in connection.execute(statement)}
    return {stage: values[name] for stage, name in ENDED_AS.items() if values.get(name)}


def _find_test(connection: Connection, cluster: str, besides: str = "") -> str | None:
    asked = at(jobs.c.spec, ("node_labels", TEST_LABEL)).as_string()
    statement = select(jobs.c.id).where(jobs.c.stage.in_(sorted(OPEN)), asked == cluster, jobs.c.id != besides)
    found: str | None = connection.execute(statement.limit(1)).scalar_one_or_none()
    return found


def _select_holders(num_slots: ColumnElement[int], sees_only: str | None) -> Select[Any]:
    return select(
        jobs.c.id, jobs.c.owner, jobs.c.name, num_slots.label("num_slots"), is_visible(sees_only).label("is_visible")
    )


def _read_holders(connection: Connection, statement: Select[Any]) -> tuple[Holder, ...]:
    return tuple(
        # SQLite has numbers instead of truth values.
        Holder(**{**row, "is_visible": bool(row["is_visible"])})
        for row in (found._mapping for found in fetch(connection, statement))
    )


def _reread(transaction: Transaction, job: str) -> Job:
    found = read_job(transaction.connection, select_jobs().where(jobs.c.id == job))
    if found is None:
        raise missing_job(job, None)  # only jobs that a key names may be missing: retention has deleted them
    return found


def _check_patch(transaction: Transaction, old: Job, patch: JobPatch, asker: Asker) -> dict[str, Any]:
    """Check a patch of a locked job, and return the columns that change."""
    given = {name: getattr(patch, name) for name in JobPatch.__struct_fields__}
    values = {name: value for name, value in given.items() if value is not None and value != getattr(old, name)}
    actions = {
        "min_workers": Action.RESIZE,
        "max_workers": Action.RESIZE,
        "priority": Action.PRIORITIZE,
        "queue": Action.MOVE,
        "labels": Action.LABEL,
        "notes": Action.NOTE,
    }
    asked = [actions[name] for name, value in given.items() if value is not None]
    for action in asked or [Action.LABEL]:
        check_ask(action, old.name, old.owner, old.stage, asker)
    doing = f"change job '{old.name}'"
    if Action.RESIZE in asked:
        low, high = values.get("min_workers", old.min_workers), values.get("max_workers", old.max_workers)
        check_workers(doing, low, high, is_elastic=old.is_elastic)
    if "priority" in values:
        check_priority(doing, values["priority"])
    if "labels" in values:
        check_labels(doing, values["labels"])
        if values["labels"].get(TEST_LABEL) != old.labels.get(TEST_LABEL):
            raise UsageError(
                f"Cannot {doing}: only tests of clusters have the label {TEST_LABEL}, and they keep it. Leave this "
                "label as it is."
            )
    if len(values.get("notes", "")) > MAX_NOTES:
        raise UsageError(
            f"Cannot {doing}: its notes have {len(values['notes'])} characters. Give at most {MAX_NOTES}, and keep "
            "longer texts in a file of the job."
        )
    if "queue" in values:
        check_may_use_queue(transaction, doing, values["queue"], asker)
    return values
