"""The driver's facts of its job: workers, views, and the basic changes of them. Decides nothing; does no I/O."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from legato.core.lifecycle import ENDED, JOB_MOVES, WORKER_MOVES, JobState, WorkerPhase, check_move
from legato.core.slots import node_of, slot_key
from legato.core.spec import JobSpec
from legato.core.view import Member, View
from legato.core.wire import PROTOCOL, DriverMessage, Refused, Welcome
from legato.driver.events import Instruction, MembershipSnapshot, Record, Send, StartWorker, StopWorker
from legato.driver.liveness import Evidence

KEPT_VIEWS: Final = 32  # number of views that are kept; no worker is that many views behind
AWAY: Final = (WorkerPhase.FINISHED, WorkerPhase.FAILED, WorkerPhase.FENCED, WorkerPhase.GONE)
"""Of workers that have come to their end, or are given up."""


@dataclass(slots=True, kw_only=True)
class Worker:
    """One worker as its driver knows it.

    Args:
        deadline: it is fenced if it is still in its phase at this time; None: no deadline.
        view: the newest view for which it sent Joined; 0 before that.
        away: whether its connection is lost.
        farewell: why it ends, from its Goodbye or by the driver's order: finished, shrunk, stopped, orphaned,
            superseded, refused, dismissed. None: neither has come.
        finished_in: number and rank of the view in which its program ended.
        trained: whether its program has trained with Legato, as reported at its end; None before that.
        saved: the path of the last checkpoint that it reported.
        repeats: number of messages that it will repeat, because it has connected again.
        works: it works without training: it runs a plain command, or has done some of a plugin's work, as far as this
            driver knows.
        known_step: an earlier driver knew of checkpoints up to this step, which it may report again; -1: none.
        is_adopted: an earlier driver started it, and it has not reported to this one.
        is_waiting: whether its program waits for other workers or for the driver, as last reported. None: not reported;
            workers of an earlier release never report it.
        progressed_at: when it last showed progress: by a message other than a heartbeat, or by a heartbeat with a new
            round or another ``is_waiting``.
        evidence: samples of its process.
        is_spared: it has been silent for longer than the limit, but is not fenced because its process is healthy.
        is_cut_off: its node was lost, and it has not been heard since.
        is_in_doubt: another node was lost while this worker was silent too, and it has not been heard since.
        ends_with_connection: the engine cannot confirm its end any more; the end of its connection does.
        idle_warned_at: the ``progressed_at`` of the last warning that it only waits; None: no warning.
    """

    number: int
    slot: str
    last_heard: float
    phase: WorkerPhase = WorkerPhase.STARTING
    since: float = 0.0
    deadline: float | None = None
    deadline_reason: str = ""
    host: str = ""
    node: str = ""
    proves: bool = False
    eases_in: bool = False
    boot: str = ""
    pid: int | None = None
    away: bool = False
    view: int = 0
    num_rounds: int = 0
    fingerprint: dict[str, str] | None = None
    farewell: str | None = None
    finished_in: tuple[int, int | None] | None = None
    trained: bool | None = None
    saved: str | None = None
    repeats: str | None = None
    known_step: int = -1
    works: bool = False
    is_adopted: bool = False
    is_waiting: bool | None = None
    progressed_at: float = -math.inf
    evidence: Evidence = field(default_factory=Evidence)
    is_spared: bool = False
    is_cut_off: bool = False
    is_in_doubt: bool = False
    ends_with_connection: bool = False
    idle_warned_at: float | None = None
    history: list[str] = field(default_factory=list)

    def move(self, phase: WorkerPhase, now: float, why: str) -> None:
        """Change the phase. Raises TransitionError if the table does not have the move."""
        check_move(f"worker {self.number}", WORKER_MOVES, self.phase, phase, self.history)
        self.history.append(f"{now:.3f} {self.phase} -> {phase}: {why}")
        self.phase = phase
        self.since = now
        self.deadline = None

    @property
    def active(self) -> bool:
        """Whether it can take part in a view."""
        return self.phase in (WorkerPhase.WARM, WorkerPhase.MEMBER)

    @property
    def coming(self) -> bool:
        """Whether it has not reached its join point yet."""
        return self.phase in (WorkerPhase.STARTING, WorkerPhase.JOINING)

    @property
    def has_state(self) -> bool:
        """Whether it has the job's state and can send it to others."""
        return self.phase is WorkerPhase.MEMBER

    @property
    def only_works(self) -> bool:
        """Whether it works without a view: its program may never reach a join point."""
        return self.works and self.phase is WorkerPhase.JOINING

    @property
    def member(self) -> Member:
        return Member(self.number, self.host, self.node, self.proves)


@dataclass(slots=True, kw_only=True)
class JobFacts:
    """All facts of one job, and the instructions from the present event so far.

    Args:
        term: of its driver.
        peer_secret: by which its workers recognise one another.
        superseded: why this driver does not lead the job any more; None: it leads.
        wanted: the slots that it is to use.
        available: the slots from which it takes those that it wants, in this order; they may change while it runs.
            Empty if the platform assigns its slots.
        num_asked: number of workers that its user has asked for; fewer are wanted while fewer slots are available.
        given_up: slots of the job in which no worker is started again.
        refusals: nodes that cannot run the job, and why, as a part of a sentence.
        surplus: assigned slots that cannot help, because a step has too few micro-batches.
        num_micro_batches: per step, as its workers report; None: not known yet, or any number of workers helps.
        shares_freely: each step is divided among any number of workers, up to that number.
        is_assigned: the platform decides which slots it has.
        current: the view in force: the newest Recover, or the newest proposal that a worker switched to.
        in_force_since: when ``current`` was put in force.
        recovering: the reason of the Recover that made ``current``; None if a proposal did.
        pending: the open proposal, which is not in force.
        proposed_at: when ``pending`` was proposed.
        unbuilt: the report of a worker that could not connect ``pending``; None: no such report.
        num_unbuilt: number of proposals in a row that a worker could not connect.
        unconnected: the last such report since all workers were connected.
        open_views: the views in which a worker may complete a round; see `nodes`.
        lost_nodes: nodes whose agents cannot be reached → since when.
        kept_until: workers of lost nodes are kept until then, because they alone can have the state (infinite), or
            did so a moment ago; None: there are none to keep.
        awaited: the workers for whose certain end the job waits, as last reported.
        views: the newest views by number, including void proposals, to which a worker may have switched.
        prepared: view → the workers that are connected in it, for the newest views.
        torn: why ``current`` must be replaced although no member is known to be lost; None: no reason.
        broken_since: when a member first reported that ``current`` broke or could not be connected.
        broken_reason: what it reported.
        unreachable: pairs of workers of ``current`` of which the first says that it cannot connect to the second.
        num_breaks: number of breaks in a row without a dead worker and without a completed round.
        held: the workers that were asked to hold.
        deaths: slot → deaths in a row.
        retry_at: slot → when another start may be tried in it.
        best_step: the highest step ever committed; ``best_round`` likewise.
        step: the last committed step, as far as known; lower than ``best_step`` if the job had to begin again.
        num_steps: all steps of the job, as its workers report; None: not known.
        saved_step: step of the newest checkpoint, as far as known; None: none.
        reported_differences: reports of workers about what differs between them, without duplicates.
        reported_warnings: those of workers, each with the worker that reported it first.
        reported_deaths: descriptions of deaths of workers, without duplicates.
        differed_step: step after which the result was first found to depend on the workers; None: never.
        unsaved_step: step whose checkpoint could not be written, unless an equally new one was written since; else
            None.
        closed: rank 0 finished and exited with 0.
        tail: one worker repeats what rank 0 could not finish.
        work_left: a plugin has work that only workers can do.
        end_by: when the workers of an ending job are killed.
    """

    spec: JobSpec
    rendezvous: str
    checkpoint_dir: str
    now: float
    wanted: set[str]
    term: int = 0
    peer_secret: str = field(default="", repr=False)
    superseded: str | None = None
    available: tuple[str, ...] = ()
    num_asked: int = 0
    given_up: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    surplus: set[str] = field(default_factory=set)
    num_micro_batches: int | None = None
    shares_freely: bool = False
    is_assigned: bool = False
    state: JobState = JobState.FORMING
    workers: dict[int, Worker] = field(default_factory=dict)
    next_worker: int = 0
    last_view: int = 0
    current: View | None = None
    in_force_since: float = 0.0
    recovering: str | None = None
    pending: View | None = None
    proposed_at: float = 0.0
    unbuilt: str | None = None
    num_unbuilt: int = 0
    unconnected: str | None = None
    open_views: tuple[View, ...] = ()
    lost_nodes: dict[str, float] = field(default_factory=dict)
    kept_until: float | None = None
    awaited: frozenset[int] = frozenset()
    views: dict[int, View] = field(default_factory=dict)
    prepared: dict[int, set[int]] = field(default_factory=dict)
    torn: str | None = None
    broken_since: float | None = None
    broken_reason: str = ""
    unreachable: set[tuple[int, int]] = field(default_factory=set)
    num_breaks: int = 0
    held: frozenset[int] = frozenset()
    deaths: dict[str, int] = field(default_factory=dict)
    retry_at: dict[str, float] = field(default_factory=dict)
    best_step: int = 0
    best_round: int = 0
    step: int = 0
    num_steps: int | None = None
    saved_step: int | None = None
    differed_step: int | None = None
    reported_differences: set[str] = field(default_factory=set)
    reported_warnings: dict[str, int] = field(default_factory=dict)
    reported_deaths: set[str] = field(default_factory=set)
    unsaved_step: int | None = None
    resume: bool = False
    reference: dict[str, str] | None = None
    stopping: str | None = None
    finishing: bool = False
    closed: bool = False
    tail: bool = False
    work_left: bool = False
    end_by: float | None = None
    end_reason: str = ""
    exit_code: int = 0
    history: list[str] = field(default_factory=list)
    out: list[Instruction] = field(default_factory=list)

    # ------------------------------------------------------------ queries

    def present(self) -> Iterator[Worker]:
        """Yield the workers whose processes have not certainly ended, ordered by number."""
        return (worker for worker in self.workers.values() if worker.phase is not WorkerPhase.GONE)

    def where(self, test: Callable[[Worker], bool]) -> list[Worker]:
        """Return the workers that have not ended and pass the test, ordered by number."""
        return [worker for worker in self.present() if test(worker)]

    def occupant(self, slot: str) -> Worker | None:
        """Return the worker whose process may still hold the slot."""
        return next((worker for worker in self.present() if worker.slot == slot), None)

    def in_order(self, slots: Collection[str]) -> list[str]:
        """Return slots in the order of ``available``; others follow, ordered by name."""
        place = {slot: index for index, slot in enumerate(self.available)} if len(slots) > 1 else {}
        return sorted(slots, key=lambda slot: (place.get(slot, len(place)), slot_key(slot)))

    def startable(self) -> list[str]:
        """Return the wanted slots that no worker holds and in which a start may be tried now."""
        usable = (slot for slot in self.wanted if node_of(slot) not in self.lost_nodes)
        retryable = (slot for slot in usable if self.now >= self.retry_at.get(slot, self.now))
        return self.in_order([slot for slot in retryable if self.occupant(slot) is None])

    def is_lost(self, worker: Worker) -> bool:
        """Whether the node of a worker is lost."""
        return node_of(worker.slot) in self.lost_nodes

    def has_lost_worker(self, slot: str) -> bool:
        """Whether the last worker of a slot died before its program ended, without being asked to end."""
        last = max((worker.number for worker in self.workers.values() if worker.slot == slot), default=None)
        return last is not None and self.workers[last].farewell is None

    def members(self) -> list[Worker]:
        """Return the workers of the view in force, in rank order, including those that have ended."""
        return [self.workers[number] for number in self.current.workers] if self.current else []

    def in_view(self, worker: Worker) -> bool:
        """Whether a worker is in the view in force or in the pending one."""
        return any(view is not None and worker.number in view.workers for view in (self.current, self.pending))

    @property
    def settled(self) -> bool:
        """Whether every member of the view in force has reported Joined."""
        return self.current is not None and all(
            member.has_state and member.view == self.current.number for member in self.members()
        )

    def unprepared(self, view: View) -> list[int]:
        """Return the members of a view that have not reported that they are connected in it."""
        return [number for number in view.workers if number not in self.prepared.get(view.number, ())]

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def ending(self) -> bool:
        """Whether the job admits no further workers."""
        return self.ended or self.state in (JobState.FINISHING, JobState.STOPPING, JobState.FAILING)

    def snapshot(self) -> MembershipSnapshot:
        """Return the state that a new driver needs."""
        return MembershipSnapshot(
            last_view=self.last_view,
            next_worker=self.next_worker,
            slots={worker.number: worker.slot for worker in self.present()},
            wanted=tuple(sorted(self.wanted, key=slot_key)),
            available=self.available,
            num_asked=self.num_asked,
            given_up=tuple(sorted(self.given_up, key=slot_key)),
            surplus=tuple(sorted(self.surplus, key=slot_key)),
            num_micro_batches=self.num_micro_batches,
            shares_freely=self.shares_freely,
            is_assigned=self.is_assigned,
            current=self.current,
            pending=self.pending,
            open_views=self.open_views,
            fenced=tuple(worker.number for worker in self.present() if worker.phase is WorkerPhase.FENCED),
            lost_nodes=tuple(sorted(self.lost_nodes)),
            resume=self.resume,
            reference=self.reference,
            saved_step=self.saved_step,
            unsaved_step=self.unsaved_step,
            stopping=self.stopping,
            finishing=self.finishing,
            tail=self.tail,
            closed=self.closed,
        )

    # ------------------------------------------------------------ moves

    def move(self, state: JobState, why: str) -> None:
        """Change the state. Raises TransitionError if the table does not have the move."""
        check_move(f"job '{self.spec.name}'", JOB_MOVES, self.state, state, self.history)
        self.history.append(f"{self.now:.3f} {self.state} -> {state}: {why}")
        self.state = state

    def send(self, worker: Worker, message: DriverMessage) -> None:
        """Add the instruction to send a message to a worker."""
        self.out.append(Send(worker.number, message))

    def record(
        self, kind: str, reason: str, worker: Worker | None = None, level: str = "info", detail: str | None = None
    ) -> None:
        """Add the instruction to record an event with the job's present view and step."""
        self.out.append(
            Record(
                kind=kind,
                reason=reason,
                level=level,
                worker=worker.number if worker else None,
                view=self.current.number if self.current else None,
                step=self.step or None,
                detail=detail,
            )
        )

    def start(self, slot: str, why: str) -> None:
        """Start a new worker in a free slot."""
        worker = Worker(number=self.next_worker, slot=slot, last_heard=self.now, since=self.now)
        worker.deadline = self.now + self.spec.start_limit_s
        worker.deadline_reason = f"did not report within {self.spec.start_limit_s:g} s of its start"
        self.workers[worker.number] = worker
        self.next_worker += 1
        self.out.append(StartWorker(worker.number, slot))
        self.record("started", f"worker {worker.number} starts in slot {slot}: {why}", worker)

    def welcome(self, worker: Worker) -> None:
        """Send a worker the settings of the job."""
        spec = self.spec
        self.send(
            worker,
            Welcome(
                heartbeat_interval_s=spec.heartbeat_interval_s,
                away_limit_s=spec.away_limit_s,
                checkpoint_dir=self.checkpoint_dir,
                checkpoint_every=spec.checkpoint_every,
                keep=spec.keep,
                collective_limit_s=spec.collective_limit_s,
                resume=self.resume,
                term=self.term,
                protocol=PROTOCOL,
                peer_secret=self.peer_secret,
            ),
        )

    def send_refusal(self, number: int, reason: str) -> None:
        """Send a worker, which need not be one of this job, that it may not take part."""
        self.out.append(Send(number, Refused(reason=reason, term=self.term)))

    def leave_within(self, worker: Worker, limit_s: float, why: str) -> None:
        """Exclude a worker from all further views; it is killed unless it ends in time."""
        worker.move(WorkerPhase.LEAVING, self.now, why)
        worker.deadline = self.now + limit_s
        worker.deadline_reason = f"did not leave within {limit_s:g} s"

    def kill(self, worker: Worker, why: str) -> None:
        """Fence a worker: kill it and ignore its messages."""
        worker.move(WorkerPhase.FENCED, self.now, why)
        self.out.append(StopWorker(worker.number, force=True))

    def new_view(self, members: tuple[Member, ...]) -> View:
        """Make the next view, with a number above all earlier ones."""
        self.last_view += 1
        view = View(self.last_view, members, self.rendezvous, self._find_newcomers(members))
        self.views[view.number] = view
        for number in sorted(self.views)[:-KEPT_VIEWS]:
            del self.views[number]
            self.prepared.pop(number, None)
        remembered = {worker for old in self.views.values() for worker in old.workers}
        self.workers = {
            number: worker
            for number, worker in self.workers.items()
            if worker.phase is not WorkerPhase.GONE or number in remembered
        }
        return view

    def _find_newcomers(self, members: tuple[Member, ...]) -> tuple[int, ...]:
        """Return the newcomers of a view with these members, see `View.newcomers`."""
        workers = [self.workers[member.worker] for member in members]
        if self.current is None or not {worker.number for worker in workers}.issuperset(self.current.workers):
            return ()  # where workers are lost or leave, the others have to take over more
        if self.unbuilt is not None or self.num_unbuilt:
            return ()  # a worker could not connect the view before, perhaps for want of memory
        newcomers = tuple(worker.number for worker in workers if not worker.has_state)
        has_others = len(newcomers) < len(workers)
        return newcomers if has_others and all(worker.eases_in for worker in workers) else ()

    def learn(self, view: View) -> None:
        """Record a view of an earlier driver. Some of its members may have ended."""
        self.views[view.number] = view
        self.last_view = max(self.last_view, view.number)
        for number in set(view.workers) - set(self.workers):
            self.workers[number] = Worker(number=number, slot="", last_heard=self.now, phase=WorkerPhase.GONE)

    def propose(self, view: View) -> None:
        """Make a view the open proposal."""
        self.pending = view
        self.open_views = (*(one for one in self.open_views if one.number != view.number), view)
        self.proposed_at = self.now
        self.num_unbuilt += self.unbuilt is not None
        self.unbuilt = None

    def put_in_force(self, view: View, recovering: str | None) -> None:
        """Make a view the current one, by a Recover or because a worker switched to a proposal."""
        self.current = view
        # All ranks of the old view have agreed to leave it, or `plan` has found that none can train on.
        self.open_views = (view, *(other for other in self.open_views if other.number > view.number))
        self.awaited = frozenset()
        self.in_force_since = self.now
        self.recovering = recovering
        self.torn = None
        self.broken_since, self.broken_reason = None, ""
        self.unreachable = set()
        if recovering is not None or (self.pending and self.pending.number <= view.number):
            self.pending = None
            self.num_unbuilt = 0
            self.unconnected = None
