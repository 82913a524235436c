"""Events and instructions: the input and the output of the membership state machine. Data only."""

from __future__ import annotations

import msgspec

from legato.core.slots import node_of
from legato.core.view import View
from legato.core.wire import DriverMessage, WorkerMessage
from legato.engines.base import EngineEvent
from legato.system.processes import Vital

# ---------------------------------------------------------------- events: what happened


class Heard(msgspec.Struct, frozen=True):
    """A worker sent a message."""

    worker: int
    message: WorkerMessage


class Lost(msgspec.Struct, frozen=True):
    """A worker's connection is lost; its process may still run."""

    worker: int


class Bringing(msgspec.Struct, frozen=True):
    """A worker has ended, or ends, and a checkpoint of it is still on its way to this machine; repeated meanwhile."""

    worker: int


class Tick(msgspec.Struct, frozen=True):
    """Time passed. Comes at least every ``heartbeat_interval_s``; only ticks check deadlines.

    Args:
        vitals: the engine's samples of the processes of the workers that `Membership.suspects` names.
    """

    vitals: dict[int, Vital] = {}


class ScaleAsked(msgspec.Struct, frozen=True):
    """A user asks for another number of workers."""

    num_workers: int
    reason: str


class SlotsAssigned(msgspec.Struct, frozen=True):
    """The platform assigns all slots of the job, and its bounds; None: as before."""

    slots: tuple[str, ...]
    reason: str
    min_workers: int | None = None
    max_workers: int | None = None


class StopAsked(msgspec.Struct, frozen=True):
    """A user or the platform asks the job to end; with ``now``, without a checkpoint."""

    now: bool
    reason: str


class Worked(msgspec.Struct, frozen=True):
    """A plugin's work made progress.

    Args:
        is_left: whether work is left that only workers can do.
        by: the worker that has just done some of it, if any.
    """

    is_left: bool
    by: int | None = None


class TakenUp(msgspec.Struct, frozen=True):
    """A worker has some of a plugin's work in hand.

    Args:
        by: number of the worker.
    """

    by: int


class GivenUp(msgspec.Struct, frozen=True):
    """A plugin gives a worker up.

    Args:
        worker: its number; it is killed if it runs.
        reason: text after "worker N", such as what it did.
    """

    worker: int
    reason: str


Event = (
    Heard | Lost | Bringing | Tick | ScaleAsked | SlotsAssigned | StopAsked | Worked | TakenUp | GivenUp | EngineEvent
)

# ---------------------------------------------------------------- instructions: what to do, in this order


class StartWorker(msgspec.Struct, frozen=True):
    """Start a worker through the engine."""

    worker: int
    slot: str


class StopWorker(msgspec.Struct, frozen=True):
    """Stop a worker through the engine."""

    worker: int
    force: bool


class Send(msgspec.Struct, frozen=True):
    """Send a message to a worker; without a connection to it, drop the message (its next Hello is answered in full)."""

    worker: int
    message: DriverMessage


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Record an event and show it.

    Args:
        kind: one word: started, joining, warm, proposed, joined, left, died, fenced, broken, recovered, held, saved,
            differed, scaled, refused, failed, stopped, finished, adopted, resumed, lost, returned, note.
        level: ``info``, ``warning`` or ``error``.
        reason: one line.
        detail: further lines to show once, such as a traceback.
    """

    kind: str
    reason: str
    level: str = "info"
    worker: int | None = None
    view: int | None = None
    step: int | None = None
    detail: str | None = None


class MembershipSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state that a new driver needs to adopt the job.

    Args:
        last_view: the highest view number ever used.
        next_worker: the next free worker number.
        slots: worker → slot of all workers that may run.
        wanted: the slots that the job is to use.
        available: the slots from which a job takes those that it wants, in this order; empty if the platform assigns
            them.
        given_up: slots of the job in which no worker is started again.
        surplus: slots without a worker, because a step has too few micro-batches for more workers.
        num_micro_batches: per step; None: unknown, or no limit.
        shares_freely: each step is divided among any number of workers, up to that number.
        num_asked: number of workers that the user has asked for; 0: an earlier release wrote this.
        is_assigned: the platform decides which slots the job has.
        current: the view in force.
        pending: the open proposal.
        open_views: the views in which a worker may complete a round; empty if an earlier release wrote this.
        fenced: the workers that are given up and may still run; they stay given up.
        lost_nodes: the nodes whose agents could not be reached; the engine reports those that can be reached now.
        resume: whether workers start from the newest checkpoint.
        reference: the fingerprint that every worker must have; None before the first view.
        saved_step: of the newest checkpoint, None for none.
        unsaved_step: step whose checkpoint could not be written; None if none is missing.
        stopping: reason of the stop that is under way; None: no stop.
        finishing: a worker's program ran to its end.
        tail: one worker repeats what rank 0 could not finish.
        closed: rank 0 finished and exited with 0.
    """

    last_view: int
    next_worker: int
    slots: dict[int, str]
    wanted: tuple[str, ...]
    available: tuple[str, ...] = ()
    num_asked: int = 0
    given_up: tuple[str, ...] = ()
    surplus: tuple[str, ...] = ()
    num_micro_batches: int | None = None
    shares_freely: bool = False
    is_assigned: bool = False
    current: View | None = None
    pending: View | None = None
    open_views: tuple[View, ...] = ()
    fenced: tuple[int, ...] = ()
    lost_nodes: tuple[str, ...] = ()
    resume: bool = False
    reference: dict[str, str] | None = None
    saved_step: int | None = None
    unsaved_step: int | None = None
    stopping: str | None = None
    finishing: bool = False
    tail: bool = False
    closed: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that the job uses: those of its slots, and of workers that may run."""
        return tuple(dict.fromkeys(node_of(slot) for slot in (*self.wanted, *self.slots.values())))


class Journal(msgspec.Struct, frozen=True):
    """Write this to disk before the next instruction."""

    snapshot: MembershipSnapshot


class End(msgspec.Struct, frozen=True):
    """The job is over; no instruction follows.

    Args:
        outcome: ``succeeded``, ``unsaved``, ``failed`` or ``stopped``.
        exit_code: what ``legato run`` exits with.
    """

    outcome: str
    exit_code: int
    reason: str


class StepDown(msgspec.Struct, frozen=True):
    """Stop leading at once: send and write nothing more, also of earlier instructions, and leave the workers alone.

    Args:
        reason: a sentence without its period.
    """

    reason: str


Instruction = StartWorker | StopWorker | Send | Record | Journal | End | StepDown
