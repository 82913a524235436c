"""Submission of jobs within a transaction: their rules, ids and rows. Starts nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import String, bindparam, func, select, update

from legato.control.ids import make_id
from legato.control.records import CheckedJob, Job, NewJob
from legato.control.roles import Asker, Role
from legato.control.stages import Stage
from legato.control.store.job_rows import MOVED, write_labels
from legato.control.store.schema import code_uploads, definitions, experiments, jobs, projects, queues
from legato.control.store.transactions import Transaction
from legato.control.store.uploads import may_use, missing_code
from legato.control.store.visibility import is_member, read_queue_names
from legato.core.errors import Conflict, Forbidden, LayoutError, NotFound, UsageError
from legato.core.spec import check_name
from legato.core.spelling import ask_whether
from legato.policy.snapshot import TEST_LABEL

_MAX_PRIORITY: Final = 10_000
_MAX_RETRIES: Final = 1_000
_MAX_WORKERS: Final = 100_000
_MAX_GPUS_PER_WORKER: Final = 64
_MAX_LABELS: Final = 64
_LABEL_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_MAX_LABEL_LENGTH: Final = 255

_MEMBER: Final = (
    select(is_member(bindparam("asker", type_=String)))
    .where(queues.c.name == bindparam("wanted"))
    .with_for_update(read=True, key_share=True)
)
_NEW_JOB: Final = jobs.insert()
_LAST: Final = select(func.max(jobs.c.id))
_ORIGINS: Final = {"project": projects, "experiment": experiments, "definition": definitions, "parent": jobs}
_NOT_YET: Final[dict[str, Any]] = {
    **dict.fromkeys(("exit_code", "started_at", "ended_at", "decided_slots", "decided_reason", "progress")),
    "num_slots": 0,
}


def insert_jobs(
    transaction: Transaction, new: Sequence[tuple[CheckedJob, Asker]], random_bits: Callable[[int], int]
) -> tuple[Job, ...]:
    """Insert jobs, each with the user who submits it, with ids above those of all existing jobs.

    Raises:
        NotFound: there is no such queue, no such upload that the asker may use, or a job's origin no longer exists.
        Forbidden: the asker may not use the queue.
    """
    may_use: set[tuple[str, Asker]] = set()
    # Sorted by their code, so that two transactions that need the same uploads cannot deadlock.
    for one, asker in sorted(new, key=lambda each: each[0].code or ""):
        if (one.queue, asker) not in may_use:
            check_may_use_queue(transaction, f"submit job '{one.name}'", one.queue, asker)
            may_use.add((one.queue, asker))
        _lock_needed_rows(transaction, one, asker)
    # Ids become visible in ascending order, even if the clocks of servers differ, so that no page misses a job. All
    # other locks are taken by now, because a holder of the sequence must not wait for another lock.
    transaction.lock_sequence()
    last = transaction.connection.execute(_LAST).scalar_one()
    rows: list[dict[str, Any]] = []
    for one, asker in new:
        last = make_id("j", transaction.now, random_bits, last)
        rows.append(_make_row(last, one, asker, transaction.now))
        detail = {"from": None, "to": Stage.QUEUED}
        transaction.note(MOVED, f"submitted by '{asker.name}'", job=last, detail=detail)
        transaction.audit(asker.name, "job.submit", last, {"name": one.name, "queue": one.queue})
    if rows:
        transaction.connection.execute(_NEW_JOB, rows)
    write_labels(transaction, {row["id"]: row["labels"] for row in rows})
    return tuple(Job(**{name: value for name, value in row.items() if name != "spec"}, **_NOT_YET) for row in rows)


def _lock_needed_rows(transaction: Transaction, new: NewJob, asker: Asker) -> None:
    """Lock the origins and the code of a job until it is inserted, and record that the code is used."""
    connection = transaction.connection
    for column, table in _ORIGINS.items():
        origin = getattr(new, column)
        if origin is not None:
            holding = select(table.c.id).where(table.c.id == origin).with_for_update(read=True, key_share=True)
            if connection.execute(holding).first() is None:
                raise NotFound(f"Cannot submit job '{new.name}': its {column} '{origin}' was deleted a moment ago.")
    if new.code is not None:
        lock_code(transaction, new.code, asker)


def lock_code(transaction: Transaction, sha256: str, asker: Asker) -> None:
    """Lock an upload until the transaction ends, so that it is not purged meanwhile, and record that it is used.

    Raises:
        NotFound: there is no such upload that the asker may use.
    """
    using = update(code_uploads).where(code_uploads.c.sha256 == sha256, may_use(asker))
    if transaction.connection.execute(using.values(used_at=transaction.now)).rowcount == 0:
        raise missing_code(sha256)


def _make_row(job: str, new: NewJob, asker: Asker, now: float) -> dict[str, Any]:
    return {
        "id": job,
        **{name: getattr(new, name) for name in NewJob.__struct_fields__},
        "owner": asker.name,
        "stage": Stage.QUEUED,
        "reason": "waits for slots",
        "attempt": 0,
        "num_retries": 0,
        "stop_now": False,
        "version": 1,
        "submitted_at": now,
        "staged_at": now,
    }


def check_queued(
    transaction: Transaction, new: NewJob, asker: Asker, max_queued: int | None, *, num_new: int = 1
) -> None:
    """Raise Conflict if the asker would have too many waiting jobs and is no admin. None: no limit."""
    if max_queued is None or asker.role is Role.ADMIN:
        return
    waiting = select(func.count()).where(jobs.c.owner == asker.name, jobs.c.stage == Stage.QUEUED)
    num_queued: int = transaction.connection.execute(waiting).scalar_one()
    if num_queued + num_new > max_queued:
        raise Conflict(
            f"Cannot submit job '{new.name}': {num_queued} jobs of '{asker.name}' are already queued, and a user may "
            f"have {max_queued}. Submit it when some have started, stop some, or ask the operator to raise "
            "max_queued_jobs."
        )


def check_may_use_queue(transaction: Transaction, doing: str, queue: str, asker: Asker) -> None:
    """Check that the asker may use the queue, and lock the queue so that it is not deleted meanwhile.

    Raises:
        NotFound: there is no such queue.
        Forbidden: the asker may not use it.
    """
    may_use = transaction.connection.execute(_MEMBER, {"asker": asker.name, "wanted": queue}).scalar_one_or_none()
    if may_use is None:
        seen = read_queue_names(transaction.connection, asker.sees_only)
        hint = ask_whether(queue, seen)
        raise NotFound(
            f"Cannot {doing}: there is no queue '{queue}'.{hint} 'legato queues' lists those that you may use."
        )
    if not may_use and asker.role is not Role.ADMIN:
        raise Forbidden(
            f"Cannot {doing}: queue '{queue}' is closed to '{asker.name}'. Use another queue, or ask an admin to make "
            "you a member."
        )


def check_new_job(new: NewJob, *, is_test: bool = False) -> CheckedJob:
    """Check a job's own numbers and texts, and return it as checked.

    Args:
        new: the job.
        is_test: it tests a cluster.

    Raises:
        UsageError: one of them cannot be used.
    """
    check_name(new.name)
    doing = f"submit job '{new.name}'"
    check_workers(doing, new.min_workers, new.max_workers, is_elastic=new.is_elastic)
    check_priority(doing, new.priority)
    check_labels(doing, new.labels)
    if not is_test:
        check_is_no_test(doing, {*new.labels, *(new.spec.get("node_labels") or {})})
    if not 1 <= new.gpus_per_worker <= _MAX_GPUS_PER_WORKER:
        raise LayoutError(
            f"Cannot {doing}: gpus_per_worker={new.gpus_per_worker} is outside 1..{_MAX_GPUS_PER_WORKER}. Give the "
            "number of GPUs that each worker needs on one node."
        )
    if not 0 <= new.max_retries <= _MAX_RETRIES:
        raise UsageError(f"Cannot {doing}: max_retries={new.max_retries} is outside 0..{_MAX_RETRIES}.")
    return CheckedJob(**msgspec.structs.asdict(new))


def check_workers(doing: str, min_workers: int, max_workers: int, *, is_elastic: bool) -> None:
    """Raise LayoutError unless the minimum and maximum of workers are valid together."""
    if min_workers < 1:
        raise LayoutError(f"Cannot {doing}: min_workers={min_workers} is below 1. Give 1 or more.")
    if max_workers < min_workers:
        raise LayoutError(
            f"Cannot {doing}: min_workers={min_workers} is above max_workers={max_workers}. Lower the minimum or raise "
            "the maximum."
        )
    if max_workers > _MAX_WORKERS:
        raise LayoutError(f"Cannot {doing}: max_workers={max_workers} is above {_MAX_WORKERS}. Give fewer.")
    if not is_elastic and min_workers != max_workers:
        raise LayoutError(
            f"Cannot {doing}: it is static and has workers {min_workers}..{max_workers}. Give one number, or make it "
            "elastic."
        )


def check_priority(doing: str, priority: int) -> None:
    """Raise UsageError unless the number is a valid priority."""
    if not 1 <= priority <= _MAX_PRIORITY:
        raise UsageError(
            f"Cannot {doing}: priority={priority} is outside 1..{_MAX_PRIORITY}. 5000 is the usual value; a "
            "higher number means a higher priority."
        )


def check_labels(doing: str, labels: dict[str, str]) -> None:
    """Raise UsageError unless the labels can be stored and used in filters."""
    if len(labels) > _MAX_LABELS:
        raise UsageError(f"Cannot {doing}: {len(labels)} labels are more than {_MAX_LABELS}. Give fewer.")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key):
            raise UsageError(
                f"Cannot {doing}: '{key}' is not a valid name of a label. Use 1 to 63 letters, digits, '.', '_', '/' "
                "or '-', and begin with a letter or digit."
            )
        if len(value) > _MAX_LABEL_LENGTH:
            raise UsageError(f"Cannot {doing}: label '{key}' has more than {_MAX_LABEL_LENGTH} characters. Shorten it.")


def check_is_no_test(doing: str, labels: Collection[str]) -> None:
    """Raise UsageError if one of the labels, given by their names, is that of tests of clusters."""
    if TEST_LABEL in labels:
        raise UsageError(
            f"Cannot {doing}: only tests of clusters have the label {TEST_LABEL}. Remove it; an admin tests a cluster "
            "with 'legato clusters test'."
        )
