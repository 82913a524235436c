"""Records that the store reads and writes: plain and frozen. Decides nothing and knows no SQL.

Times are seconds since 1970. ``sees_only`` in the store's functions is a user; the result is limited to the jobs and
queues that this user may see. None: no limit (`roles.Asker.sees_only`).
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

import msgspec

from legato.api import jobs, pool
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
    """The load of a queue.

    Args:
        num_slots: slots that its jobs hold.
        num_holding: jobs that hold slots or are about to get some.
        num_queued: waiting jobs.
    """

    num_slots: int = 0
    num_holding: int = 0
    num_queued: int = 0


LOCAL: Final = "local"
"""The engine of the server's own machine."""

AGENT: Final = "agent"
"""The engine of machines with an agent."""

GONE: Final = "gone"
"""Instead of the engine of a machine that belongs to the pool no more; it is listed only while jobs hold its slots."""


class DeclaredSlot(msgspec.Struct, frozen=True):
    """A slot as its engine declares it.

    Args:
        id: unique in the pool, such as ``node-1/0``.
        device: its device.
        gpu_type: model of the GPU, such as ``NVIDIA A100-SXM4-80GB``. None: no GPU, or unknown.
    """

    id: str
    device: str
    gpu_type: str | None = None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine, with all of its slots, as its engine declares it.

    Args:
        name: unique in the pool.
        engine: what starts workers on it.
        slots: all of them.
        kind: an opaque text; machines on which training gives the same bits have the same kind. A job uses machines of
            one kind only. None: as the store has it.
        traits: what makes the kind, for people: ``CPU capability`` → ``AVX512``, ``torch`` → ``2.13.0``. None: as the
            store has it.
        labels: jobs may ask for them. None: as the store has them.
        trouble: why its slots cannot be used now, a sentence without its period. None: they can.
    """

    name: str
    engine: str
    slots: tuple[DeclaredSlot, ...]
    trouble: str | None = None
    kind: str | None = None
    traits: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class StoredNode(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as the store has it; the fields are those of `Node`. None: it was declared without them."""

    name: str
    engine: str
    declared_at: float
    kind: str | None
    traits: dict[str, str] | None
    labels: dict[str, str] | None


BEAT_EVERY_S: Final = 2.0
"""An agent reports this often."""

AGENT_SILENT_S: Final = 45.0
"""Without a report of its agent for so long, a machine cannot be used, and jobs shrink off it.

Workers there may train on, so this is longer than the restart of an agent, and than two reports in a row that time out
(2 + 10 + 4 + 10 + 4 s). A job whose machine has crashed does not wait for it: its driver notices after seconds."""


class JoinToken(pool.JoinToken, frozen=True, kw_only=True):
    """A token with which machines join the pool, without its secret."""


class AgentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent reports of its machine.

    Args:
        devices: of its slots, by number.
        gpu_types: model of each; None: no GPU, or unknown.
        address: at which other machines reach it.
        version: of its Legato.
        kind, traits, labels: as in `Node`.
        leaving: it gives its slots back, and then ends.
    """

    devices: tuple[str, ...]
    gpu_types: tuple[str | None, ...]
    address: str
    version: str
    kind: str
    traits: dict[str, str] = {}
    labels: dict[str, str] = {}
    leaving: bool = False


SERVER_PREFIX: Final = "server-"
"""The identity of a server that keeps its own machine in the pool begins with this."""


class StoredAgent(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a machine, with its last report. A machine with one of several servers has such a row too.

    Args:
        joined_by: the user who made the token with which it joined.
        seen_at: time of its last report. None: there was none.
        left_at: since when it gives its slots back. None: it does not.
        drained_at, drained_by, drain_reason: since when, by whom and why its slots are not used. None: they are.
        cluster: kind of the cluster of which it is a pilot. None: it is none.
        owner: the only user whose jobs use the machine. None: all users' jobs do.
    """

    node: str
    identity: str
    joined_at: float
    joined_by: str
    version: str
    address: str
    devices: tuple[str, ...]
    gpu_types: tuple[str | None, ...]
    kind: str
    traits: dict[str, str]
    labels: dict[str, str]
    seen_at: float | None
    left_at: float | None
    drained_at: float | None
    drained_by: str | None
    drain_reason: str | None
    cluster: str | None = None
    owner: str | None = None

    @property
    def is_server(self) -> bool:
        """Whether a server keeps its machine in the pool."""
        return self.identity.startswith(SERVER_PREFIX)

    def is_silent(self, now: float) -> bool:
        """Return whether it has not reported for too long, or not since the server's clock was set back."""
        return self.seen_at is None or abs(now - self.seen_at) > AGENT_SILENT_S


class StoredPilot(msgspec.Struct, frozen=True, kw_only=True):
    """A pilot of a cluster, without the secret with which its agent joins.

    Args:
        node: name of its machine.
        cluster: kind of the cluster.
        created_at: when the server asked for it.
        expires_at: until when its agent can join.
        identity: of its agent. None: it has not joined.
        owner: the only user whose jobs use its machine. None: all users' jobs do.
        uid: number of the system user as whom it runs. None: that of the server.
    """

    node: str
    cluster: str
    created_at: float
    expires_at: float
    identity: str | None
    owner: str | None = None
    uid: int | None = None


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot in the store. A slot is not usable when its node no longer declares it."""

    id: str
    node: str
    device: str
    unusable_since: float | None
    unusable_reason: str | None
    gpu_type: str | None = None


class Allocation(jobs.Allocation, frozen=True, kw_only=True):
    """A slot that one attempt of a job held from ``since`` until ``until``; None: it still holds the slot."""

    job: str
    attempt: int


# ---------------------------------------------------------------- jobs


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job as submitted.

    Args:
        spec: what its driver needs, as JSON; stored unchanged.
        code: SHA-256 of its uploaded code. None: no uploaded code.
        max_retries: maximum number of attempts after a failure.
        gpus_per_worker: slots of each worker, all on one node.
        project, experiment, definition: ids of the project, experiment and definition of which it is a run. None: none.
        parent: id of the job that it is a clone of. None: no clone.
    """

    name: str
    spec: dict[str, Any]
    min_workers: int
    max_workers: int
    queue: str = "default"
    priority: int = 5000
    is_elastic: bool = True
    gpus_per_worker: int = 1
    max_retries: int = 0
    labels: dict[str, str] = {}
    code: str | None = None
    project: str | None = None
    experiment: str | None = None
    definition: str | None = None
    parent: str | None = None


class CheckedJob(NewJob, frozen=True, kw_only=True):
    """A job whose values `legato.control.store.check_new_job` has checked; functions that take one rely on that."""


class JobPatch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of a job. None: no change. ``labels`` replaces all labels."""

    min_workers: int | None = None
    max_workers: int | None = None
    priority: int | None = None
    queue: str | None = None
    labels: dict[str, str] | None = None
    notes: str | None = None


class Job(JobRecord, frozen=True, kw_only=True):
    """A job as it is now, without its spec (see ``Jobs.read_spec``).

    Args:
        version: for ``If-Match``.
        decided_reason: reason of the present decision, in its newest wording.
        project, experiment, definition, parent: ids of its origin, as long as that exists.
    """

    stage: Stage


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Name and slots of a job that affects another user's job. ``is_visible``: whether that user may see it."""

    id: str
    owner: str
    name: str
    num_slots: int
    is_visible: bool


class Submitted(msgspec.Struct, frozen=True):
    """The answer to a submission. If not ``is_new``, an earlier request with the same key made the job."""

    job: Job
    is_new: bool


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of jobs; a job must match all given fields. The last three are ids.

    Args:
        stages: empty: all stages.
        search: a part of the name or the id; upper and lower case are equal.
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
    """One page of a list. ``after``: argument for the next page; None: this is the last one."""

    items: tuple[T, ...]
    after: str | None


class Attempt(jobs.Attempt, frozen=True, kw_only=True):
    """One attempt of a job. ``outcome``: the stage into which the job went at its end."""

    job: str
    outcome: Stage | None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The policy's decision on a job: how many slots it should hold, and why."""

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
    """All facts that a round of the loop needs, read at one moment.

    Args:
        jobs: jobs that have not ended, by id.
        allocations: all open ones, including those of jobs that ended a moment ago.
        unreadable: why rows cannot be read, by kind (``job``, ``queue``, ``slot``) and name. None of them is
            in the fields above, so no decision is made for such a job, and no job gets such a slot.
        nodes: all machines.
        clusters: that give machines to the pool, as they were observed last, also long ago.
    """

    jobs: tuple[Job, ...]
    queues: tuple[Queue, ...]
    slots: tuple[Slot, ...]
    allocations: tuple[Allocation, ...]
    unreadable: dict[tuple[str, str], str] = {}
    nodes: tuple[StoredNode, ...] = ()
    clusters: tuple[pool.Cluster, ...] = ()


class Verdict(msgspec.Struct, frozen=True):
    """The policy's decision for one job, with what is new in it.

    Args:
        is_new: the decision differs from the last one; otherwise only the wording of the reason does.
    """

    num_slots: int
    reason: str
    is_new: bool = True


class Note(msgspec.Struct, frozen=True):
    """News about a job that stays in its stage.

    Args:
        reason: new reason of the stage.
        told: text of an event of kind ``driver``.
    """

    reason: str
    told: str


class JobChange(msgspec.Struct, frozen=True, kw_only=True):
    """The loop's changes of one job, written completely or not at all.

    Args:
        job: its id.
        seen_stage: the stage that the loop has read; if the job has left it since, nothing is written.
        seen_attempt: the same for the attempt.
        stage: the new stage. None: no move. A move to ``starting`` begins the next attempt.
        reason: reason of the move, and of slots that are granted or released.
        closed: slots of ``closed_attempt`` whose worker has certainly ended.
        closed_attempt: None: ``seen_attempt``.
        released: slots that the job must give back.
        granted: free slots that the job gets for its attempt after the move.
        workers: slot → all slots of its worker, as in `legato.core.slots.join_slots`, for granted slots of workers that
            have several.
        machine_kind: kind of the machines on which it trains. None: no change.
        verdict: stored only if it differs from the job's last one; an event is written only if it is new.
        progress: as the driver reports it.
        exit_code: exit code of a job that ends.
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
    workers: dict[str, str] = {}
    machine_kind: str | None = None
    verdict: Verdict | None = None
    progress: Progress | None = None
    exit_code: int | None = None
    is_retry: bool = False
    note: Note | None = None


class Written(msgspec.Struct, frozen=True):
    """The result of a write of the loop. ``stale``: jobs that had changed; the next round handles them."""

    stale: tuple[str, ...]


# ---------------------------------------------------------------- events, uploads, requests


class RequestKey(msgspec.Struct, frozen=True):
    """An idempotency key, with a fingerprint of its request.

    Raises:
        UsageError: the key is empty or too long.
    """

    key: str
    request_sha256: str

    def __post_init__(self) -> None:
        if not 1 <= len(self.key) <= _MAX_KEY_LENGTH:
            raise UsageError(
                f"Cannot use an idempotency key of {len(self.key)} characters. Give 1 to {_MAX_KEY_LENGTH}, such as "
                "a UUID."
            )
