"""Records that the store reads and writes: plain and frozen. Decides nothing and knows no SQL.

Times are seconds since 1970. ``sees_only`` in the store's functions is the user to whose jobs and queues the view is
limited; None sees all (`roles.Asker.sees_only`).
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from legato.api import jobs
from legato.api.jobs import JobRecord, Progress
from legato.api.pool import QueueSettings
from legato.control.stages import Stage
from legato.core.errors import UsageError

T = TypeVar("T")

_MAX_KEY_LENGTH: Final = 255

# ---------------------------------------------------------------- queues and slots


class Queue(QueueSettings, frozen=True, kw_only=True):
    """A queue as the store keeps it."""


class QueueLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a queue.

    Args:
        num_slots: that its jobs hold.
        num_holding: jobs that hold slots or are about to.
        num_queued: jobs that wait.
    """

    num_slots: int = 0
    num_holding: int = 0
    num_queued: int = 0


class DeclaredSlot(msgspec.Struct, frozen=True):
    """A slot as its engine declares it. ``id`` is unique in the pool: ``node-1/cuda:0``."""

    id: str
    device: str


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, with all of its slots, as its engine declares it."""

    name: str
    engine: str
    slots: tuple[DeclaredSlot, ...]


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot as the store knows it. Not usable: its node declared itself without it."""

    id: str
    node: str
    device: str
    unusable_since: float | None
    unusable_reason: str | None


class Allocation(jobs.Allocation, frozen=True, kw_only=True):
    """A slot in the hands of one attempt of a job, from ``since`` until ``until``; None: still."""

    job: str
    attempt: int


# ---------------------------------------------------------------- jobs


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as submitted.

    Args:
        spec: all that its driver needs, as JSON; kept as it is.
        code: SHA-256 of its uploaded code. None: it needs none.
        max_retries: attempts beyond the first that may fail.
        project, experiment, definition: ids of what it is a run of. None: of none.
        parent: id of the job that it is a clone of. None: of none.
    """

    name: str
    spec: dict[str, Any]
    min_workers: int
    max_workers: int
    queue: str = "default"
    priority: int = 5000
    is_elastic: bool = True
    max_retries: int = 0
    labels: dict[str, str] = {}
    code: str | None = None
    project: str | None = None
    experiment: str | None = None
    definition: str | None = None
    parent: str | None = None


class CheckedJob(NewJob, frozen=True, kw_only=True):
    """A job whose values were checked (`legato.control.store.check_new_job`): what takes one does not check again."""


class JobPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a job. None: stays. ``labels`` replaces all."""

    min_workers: int | None = None
    max_workers: int | None = None
    priority: int | None = None
    queue: str | None = None
    labels: dict[str, str] | None = None


class Job(JobRecord, frozen=True, kw_only=True):
    """A job as it is now, without its spec (see ``Jobs.read_spec``).

    Args:
        version: for ``If-Match``.
        decided_reason: why, in the words that are right now.
        project, experiment, definition, parent: ids of where it came from, as long as that is there.
    """

    stage: Stage


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is named to the owner of a job that it affects. ``is_visible``: whether that user may see it."""

    id: str
    owner: str
    name: str
    num_slots: int
    is_visible: bool


class Submitted(msgspec.Struct, frozen=True):
    """The answer to a submission. Not new: the same request came before, and this is the job it made."""

    job: Job
    is_new: bool


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are meant; all that is given must hold. The last three are ids.

    Args:
        stages: empty: any.
        search: a part of the name or the id, in small or large letters.
    """

    stages: frozenset[Stage] = frozenset()
    owner: str | None = None
    queue: str | None = None
    labels: dict[str, str] = {}
    name_prefix: str | None = None
    search: str | None = None
    project: str | None = None
    experiment: str | None = None
    definition: str | None = None


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A part of a list. ``after``: give it to get the next part; None: there is none."""

    items: tuple[T, ...]
    after: str | None


class Attempt(jobs.Attempt, frozen=True, kw_only=True):
    """One life of a job's driver. ``outcome``: the stage into which the job went from it."""

    job: str
    outcome: Stage | None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's word on a job: how many slots it should hold, and why."""

    job: str
    attempt: int
    time: float
    num_slots: int
    reason: str


# ---------------------------------------------------------------- the control loop


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to be the one control loop. ``fence`` grows with each owner; every write of the loop names it."""

    owner: str
    expires_at: float
    fence: int


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a round of the loop starts from, read at one moment.

    Args:
        jobs: those that have not ended, by id.
        allocations: all that are open, also those of jobs that ended a moment ago.
        unreadable: why rows cannot be read, by kind and name: of ``job``, ``queue``, ``slot``. None of these is in the
            above, so that nothing is decided for such a job, and no job gets such a slot.
    """

    jobs: tuple[Job, ...]
    queues: tuple[Queue, ...]
    slots: tuple[Slot, ...]
    allocations: tuple[Allocation, ...]
    unreadable: dict[tuple[str, str], str] = {}


class Verdict(msgspec.Struct, frozen=True):
    """What the policy decided for one job.

    Args:
        is_new: something else was decided than before; otherwise the same is only said in other words.
    """

    num_slots: int
    reason: str
    is_new: bool = True


class Note(msgspec.Struct, frozen=True):
    """What is to be known of a job that stays in its stage.

    Args:
        reason: of the stage, from now on.
        told: what has happened, for an event of kind ``driver``.
    """

    reason: str
    told: str


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """What the loop changes of one job, whole or not at all.

    Args:
        job: its id.
        seen_stage: the stage on which this rests; if the job has left it since, nothing of this is written.
        seen_attempt: the same for the attempt.
        stage: where the job goes. None: it stays. To ``starting`` begins the next attempt.
        reason: of the move, and of slots given or asked back.
        closed: slots of ``closed_attempt`` whose worker is confirmed gone.
        closed_attempt: None: ``seen_attempt``.
        released: slots that the job is to leave.
        granted: free slots that the job gets, for the attempt that it has after the move.
        verdict: stored only if it differs from the last one of the job; if it is not new, without an event.
        progress: as the driver reports it.
        exit_code: of a job that ends.
        is_retry: the move to ``queued`` is one of its retries.
        note: of a job that stays in its stage.
    """

    job: str
    seen_stage: Stage
    seen_attempt: int
    stage: Stage | None = None
    reason: str = ""
    closed: tuple[str, ...] = ()
    closed_attempt: int | None = None
    released: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    verdict: Verdict | None = None
    progress: Progress | None = None
    exit_code: int | None = None
    is_retry: bool = False
    note: Note | None = None


class Written(msgspec.Struct, frozen=True):
    """What became of a write of the loop. ``stale``: jobs that had moved on; the next round sees them again."""

    stale: tuple[str, ...]


# ---------------------------------------------------------------- events, uploads, requests


class RequestKey(msgspec.Struct, frozen=True):
    """An idempotency key, with a fingerprint of the request that came with it.

    Raises:
        UsageError: the key is empty or too long.
    """

    key: str
    request_sha256: str

    def __post_init__(self) -> None:
        if not 1 <= len(self.key) <= _MAX_KEY_LENGTH:
            raise UsageError(
                f"Cannot use an idempotency key of {len(self.key)} characters. Give 1 to {_MAX_KEY_LENGTH}; a UUID is "
                "good."
            )
