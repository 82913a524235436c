"""The membership of one job as a pure state machine: events in, instructions out.

No I/O, no clock, no randomness, no logging: ``now`` comes with every event. The facts are in `job`. `message_handlers`
handles messages, `failures` losses, `slots` the job's slots, `plan` the next change, `health` deadlines, and `ending`
the end of the job. This module defines their order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from legato.core.errors import TransitionError, UsageError
from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.spec import JobSpec
from legato.core.wire import Hold, Prepare, Stop, WorkerMessage
from legato.core.wire import Recover as RecoverMessage
from legato.driver import health, plan
from legato.driver.ending import conclude, dismiss, fail, stop
from legato.driver.events import (
    Bringing,
    Event,
    GivenUp,
    Heard,
    Instruction,
    Journal,
    Lost,
    MembershipSnapshot,
    ScaleAsked,
    SlotsAssigned,
    StopAsked,
    StopWorker,
    TakenUp,
    Tick,
    Worked,
)
from legato.driver.failures import fence, give_up, leave_out, note_exited, note_taken_up, note_worked, refuse
from legato.driver.job import JobFacts, Worker
from legato.driver.message_handlers import handle_message
from legato.driver.nodes import await_end, fence_lost, lose_node, must_keep, note_loose_end, take_back_node
from legato.driver.slots import assign, scale
from legato.engines.base import STORE_LOST, EngineEvent, Exited, NodeBack, NodeLost, Noted, Started, StoreMoved
from legato.system.processes import Vital

# A worker that starts in the same slot later does not replace these.
_LEFT_ON_REQUEST: Final = ("shrunk", "dismissed", "superseded")


class Membership:
    """The membership of one job.

    Args:
        spec: the job.
        rendezvous: ``host:port`` of the store through which workers find one another.
        checkpoint_dir: the directory of the workers' checkpoints.
        now: monotonic seconds, as in every call.
        after: the snapshot of an earlier run of this name that did not end; its numbers are not used again.
        available: the slots from which the job takes those that it wants, in this order. Not used if the platform
            assigns its slots.
        slots: the job's first slots, if the platform assigns them; None: the job scales freely.
        term: of the driver, above those of all earlier drivers of the job.

    Raises:
        UsageError: fewer slots are available than the job's minimum of workers.
    """

    def __init__(
        self,
        spec: JobSpec,
        rendezvous: str,
        *,
        checkpoint_dir: str,
        now: float,
        after: MembershipSnapshot | None = None,
        available: Sequence[str] = (),
        slots: Collection[str] | None = None,
        term: int = 0,
    ) -> None:
        if slots is None and len(available) < spec.min_workers:
            raise UsageError(
                f"Cannot start job '{spec.name}': its only slots are {', '.join(available) or 'none'}, fewer than its "
                f"minimum of {spec.min_workers}. Give it more slots, or a lower minimum."
            )
        self.job = JobFacts(
            spec=spec,
            rendezvous=rendezvous,
            checkpoint_dir=checkpoint_dir,
            now=now,
            wanted=set(available[: spec.num_workers] if slots is None else slots),
            available=tuple(available) if slots is None else (),
            num_asked=spec.num_workers,
            term=term,
            is_assigned=slots is not None,
            resume=spec.resume,
            last_view=after.last_view if after else 0,
            next_worker=after.next_worker if after else 0,
        )
        self._adopted: MembershipSnapshot | None = None
        self._journaled: tuple[MembershipSnapshot, JobSpec] | None = None
        self._last_tick = now

    @classmethod
    def adopt(
        cls,
        spec: JobSpec,
        rendezvous: str,
        snapshot: MembershipSnapshot,
        running: Mapping[int, int],
        *,
        checkpoint_dir: str,
        now: float,
        term: int = 0,
    ) -> Membership:
        """Adopt the job of a driver that died.

        ``snapshot`` is from the driver's last journal; ``running`` has the process ids of the workers that run now.
        """
        membership = cls(spec, rendezvous, checkpoint_dir=checkpoint_dir, now=now, slots=snapshot.wanted, term=term)
        job = membership.job
        job.state = JobState.ADOPTING
        job.wanted, job.given_up, job.is_assigned = set(snapshot.wanted), set(snapshot.given_up), snapshot.is_assigned
        job.available = snapshot.available
        job.num_asked = snapshot.num_asked or len(snapshot.wanted)
        job.surplus, job.num_micro_batches = set(snapshot.surplus), snapshot.num_micro_batches
        job.shares_freely = snapshot.shares_freely
        job.next_worker = max([snapshot.next_worker, *(number + 1 for number in running)])
        job.last_view = snapshot.last_view
        job.resume, job.reference, job.stopping = snapshot.resume, snapshot.reference, snapshot.stopping
        job.finishing, job.tail, job.closed = snapshot.finishing, snapshot.tail, snapshot.closed
        job.saved_step, job.unsaved_step = snapshot.saved_step, snapshot.unsaved_step
        for number, slot in sorted(snapshot.slots.items()):
            worker = Worker(number=number, slot=slot, last_heard=now, since=now, pid=running.get(number))
            job.workers[number] = worker
            if number in running and number in snapshot.fenced:
                worker.move(WorkerPhase.FENCED, now, "an earlier driver gave it up")
                job.out.append(StopWorker(number, force=True))
            elif number in running:
                worker.known_step = -1 if snapshot.saved_step is None else snapshot.saved_step
                worker.is_adopted = True
            else:
                worker.move(WorkerPhase.GONE, now, "it was not running when the new driver started")
        for number in sorted(set(running) - set(snapshot.slots)):
            job.out.append(StopWorker(number, force=True))
        known = {view.number: view for view in (*snapshot.open_views, snapshot.current, snapshot.pending) if view}
        for view in known.values():
            job.learn(view)
        job.open_views = tuple(known.values())
        # The platform may have moved the job off a lost node. The engine then reports it only if it is used again.
        lost = [node for node in snapshot.lost_nodes if not snapshot.is_assigned or node in snapshot.nodes]
        job.lost_nodes = dict.fromkeys(lost, now)
        for worker in job.where(job.is_lost):
            worker.is_cut_off = True
        membership._adopted = snapshot
        return membership

    # ------------------------------------------------------------ what the driver calls

    def begin(self, now: float) -> list[Instruction]:
        """Return the first instructions; call it once, before any event."""
        self.job.now = self._last_tick = now
        self._advance()
        return self._drain()

    def handle(self, event: Event, now: float) -> list[Instruction]:
        """Handle an event, and return the instructions in order.

        Raises:
            UsageError: a request cannot be carried out; nothing has changed.
        """
        job = self.job
        if self._is_over:
            return []
        job.now = now
        self._take(event)
        if job.superseded is not None:
            out, job.out = job.out, []
            return out
        self._advance()
        return self._drain()

    def suspects(self, now: float) -> list[int]:
        """Return the workers whose processes the engine must examine for the next tick; see `Tick`."""
        return [] if self._is_over else health.suspects(self.job, now)

    def next_deadline(self) -> float | None:
        """Return the latest time of the next tick; None if there is no deadline."""
        return None if self._is_over else health.next_deadline(self.job)

    @property
    def _is_over(self) -> bool:
        return self.job.ended or self.job.superseded is not None

    # ------------------------------------------------------------ events

    def _take(self, event: Event) -> None:
        match event:
            case Heard(worker=number, message=message):
                self._hear(number, message)
            case Tick(vitals=vitals):
                self._tick(vitals)
            case Started() | Exited() | StoreMoved() | Noted() | NodeLost() | NodeBack():
                self._take_from_engine(event)
            case Lost(worker=number):
                self._lose_connection(number)
            case Bringing(worker=number):
                health.allow_transfer(self.job, number)
            case ScaleAsked(num_workers=num_workers, reason=reason):
                scale(self.job, num_workers, reason)
            case SlotsAssigned():
                assign(self.job, event)
            case StopAsked(now=at_once, reason=reason):
                stop(self.job, at_once=at_once, reason=reason)
            case Worked(is_left=is_left, by=by):
                note_worked(self.job, is_left=is_left, by=by)
            case TakenUp(by=by):
                note_taken_up(self.job, by)
            case GivenUp(worker=number, reason=reason):
                give_up(self.job, number, reason)

    def _take_from_engine(self, event: EngineEvent) -> None:
        job = self.job
        match event:
            case Exited(worker=number, exit_code=exit_code, reason=reason):
                worker = job.workers.get(number)
                if worker is not None and worker.phase is not WorkerPhase.GONE and not note_loose_end(job, worker):
                    note_exited(job, worker, exit_code, reason)
            case NodeLost(node=node, reason=reason, silent_s=silent_s, is_refusal=is_refusal):
                lose_node(job, node, reason, silent_s, is_refusal=is_refusal)
            case NodeBack(node=node, slots=slots):
                take_back_node(job, node, slots)
            case Noted(told=told, is_warning=is_warning):
                job.record("note", told, level="warning" if is_warning else "info")
            case Started(worker=number, pid=pid):
                if number in job.workers:
                    job.workers[number].pid = pid
            case StoreMoved(rendezvous=rendezvous, reason=reason):
                self._follow_store(rendezvous, reason)

    def _lose_connection(self, number: int) -> None:
        worker = self.job.workers.get(number)
        if worker is None:
            return
        worker.away = True
        if worker.ends_with_connection and worker.phase is not WorkerPhase.GONE:
            note_exited(self.job, worker, -9, "its agent had died, and the driver has refused it")

    def _hear(self, number: int, message: WorkerMessage) -> None:
        try:
            handle_message(self.job, number, message)
        except TransitionError as error:
            # An invalid message of one worker must not end the job; it is recorded as an event.
            self.job.record("note", f"worker {number} broke the protocol", level="error", detail=str(error))
            fence(self.job, self.job.workers[number], "broke the protocol")

    def _tick(self, vitals: Mapping[int, Vital]) -> None:
        job = self.job
        stalled_s = health.stall_s(job, self._last_tick)
        self._last_tick = job.now
        if stalled_s > 0:
            health.forgive(job, stalled_s)
            job.record(
                "note",
                f"the driver itself was paused for {stalled_s:.1f} s, so it does not count the workers' silence "
                "in that time",
                level="warning",
            )
        for number, vital in vitals.items():
            if number in job.workers:
                job.workers[number].evidence.take(vital, job.now, job.spec.heartbeat_limit_s)
        for worker, reason in health.decide_lapses(job):
            if worker.phase not in (WorkerPhase.FENCED, WorkerPhase.GONE):
                fence(job, worker, reason)
        for worker in job.where(lambda worker: not worker.is_spared and health.is_silent(job, worker)):
            worker.is_spared = True
            job.record("note", health.describe_spared(job, worker), worker, "warning")
        for worker in job.present():
            told = health.describe_idleness(job, worker)
            if told is not None and worker.idle_warned_at != worker.progressed_at:
                worker.idle_warned_at = worker.progressed_at
                job.record("note", told, worker, "warning")
        deadlock = health.find_deadlock(job)
        if deadlock is not None:
            job.broken_since = job.now
            job.record("broken", deadlock, level="warning")

    def _follow_store(self, rendezvous: str, reason: str) -> None:
        job = self.job
        if rendezvous == job.rendezvous:
            return
        job.rendezvous = rendezvous
        told = f"the store is at {rendezvous} now, because {reason}"
        job.record("note", told, level="warning" if reason == STORE_LOST else "info")
        view = job.current
        if view is not None and job.recovering is not None and job.unprepared(view):
            job.torn = f"the store was lost while view {view.number} was being connected"

    # ------------------------------------------------------------ consequences

    def _advance(self) -> None:
        """Make changes until the facts need no more changes."""
        if self.job.state is JobState.ADOPTING:
            self._conclude_adoption()
        fence_lost(self.job)
        self._dismiss_unwanted()
        while (change := plan.decide_change(self.job)) is not None:
            self._apply(change)
        self._await_leavers()
        self._fill_slots()
        conclude(self.job)

    def _drain(self) -> list[Instruction]:
        """Return the instructions so far, the journal first: a number must be on disk before it is used."""
        out, self.job.out = self.job.out, []
        known = self.job.snapshot(), self.job.spec
        if known != self._journaled:
            self._journaled = known
            out.insert(0, Journal(known[0]))
        return out

    def _apply(self, change: plan.Change) -> None:
        job = self.job
        match change:
            case plan.Recover():
                self._recover(change)
            case plan.Propose(members=members, reason=reason):
                view = job.new_view(members)
                job.propose(view)
                job.record("proposed", f"view {view.number}: {reason}")
                self._send_proposal(Prepare(proposed=view))
            case plan.HoldAll(survivors=survivors, saver=saver, reason=reason):
                if job.state is not JobState.HOLDING:
                    job.move(JobState.HOLDING, reason)
                job.held, job.pending = survivors, None
                job.record("held", reason, level="warning")
                for number in sorted(survivors):
                    job.send(job.workers[number], Hold(save=number == saver, reason=reason))
            case plan.StartOver(lost=lost, reason=reason):
                self._start_over(lost, reason)
            case plan.Refuse(worker=number, reason=reason):
                refuse(job, job.workers[number], reason)
            case plan.Await(workers=numbers):
                await_end(job, numbers)
            case plan.LeaveOut(node=node, reason=reason):
                leave_out(job, node, reason)
            case plan.GiveUp(reason=reason):
                fail(job, reason)

    def _recover(self, change: plan.Recover) -> None:
        job = self.job
        job.num_breaks = job.num_breaks + 1 if change.again else 0
        first = job.current is None
        proposed = [job.workers[number] for number in job.pending.workers] if job.pending else []
        concerned = [*job.members(), *proposed]
        job.put_in_force(job.new_view(change.members), recovering=change.reason)
        assert job.current is not None
        if not job.ending and job.state is not JobState.TRAINING:
            job.move(JobState.TRAINING, change.reason)
        job.held = frozenset()
        if job.reference is None:
            job.reference = job.members()[0].fingerprint
        job.record("proposed" if first else "recovered", f"view {job.current.number}: {change.reason}")
        # Workers that are left out get it too: one with the state leaves; one without waits for another proposal.
        hearers = {worker.number: worker for worker in (*job.members(), *concerned) if worker.active}
        for _, worker in sorted(hearers.items()):
            job.send(worker, RecoverMessage(proposed=job.current, reason=change.reason))
        if job.state is JobState.STOPPING:
            for worker in job.members():
                job.send(worker, Stop(reason=job.stopping or "stopped"))

    def _start_over(self, lost: bool, reason: str) -> None:
        job = self.job
        job.move(JobState.FORMING, reason)
        job.current = job.recovering = job.pending = job.torn = job.broken_since = job.reference = None
        job.held = job.awaited = frozenset()
        # The program may have changed by now, with other steps.
        job.num_micro_batches = job.num_steps = None
        job.step = 0
        if lost:
            job.resume = True
            job.record("resumed", f"{reason}: resuming from the newest checkpoint, or from the start", level="warning")
        for worker in job.where(lambda worker: worker.phase in (WorkerPhase.JOINING, WorkerPhase.WARM)):
            job.welcome(worker)  # it learned before this whether to resume

    def _send_proposal(self, message: Prepare) -> None:
        """Send a proposal to its members and to all incumbents. Leavers get it too, because all incumbents vote."""
        for worker in self.job.where(lambda worker: worker.active and self.job.in_view(worker)):
            self.job.send(worker, message)

    def _dismiss_unwanted(self) -> None:
        job = self.job
        if job.state in (JobState.ADOPTING, JobState.STOPPING, JobState.FAILING):
            return
        # A worker that waits for a state which no worker has any more would start the job from scratch.
        is_late = job.closed and not any(worker.has_state for worker in job.present())
        for worker in job.present():
            # In a job that does not train, the other workers also run the program to its end.
            not_needed = job.state is JobState.FINISHING and job.current is not None and not job.tail
            idle = worker.coming or (worker.phase is WorkerPhase.WARM and (is_late or not job.in_view(worker)))
            if idle and (not_needed or worker.slot not in job.wanted):
                dismiss(job, worker, "the training ends" if not_needed else "not needed any more")

    def _await_leavers(self) -> None:
        """Set a deadline for workers that are not in the view in force."""
        job = self.job
        for worker in job.where(lambda worker: worker.has_state):
            if job.in_view(worker):
                worker.deadline = None
            elif worker.deadline is None and job.settled:
                worker.deadline = job.now + job.spec.grace_s
                worker.deadline_reason = f"did not leave within {job.spec.grace_s:g} s"

    def _fill_slots(self) -> None:
        job = self.job
        if job.state is JobState.FINISHING and job.work_left and job.current is None:
            for slot in filter(job.has_lost_worker, job.startable()):
                job.start(slot, "others have finished, but work is left")
        if job.ending or job.state is JobState.ADOPTING:
            return
        for slot in job.startable():
            job.start(slot, self._why_start(slot))

    def _why_start(self, slot: str) -> str:
        job = self.job
        last = max((worker.number for worker in job.workers.values() if worker.slot == slot), default=None)
        if last is not None and job.workers[last].farewell not in _LEFT_ON_REQUEST:
            return f"in place of worker {last}, which died"
        return "the job grows" if job.last_view else "the job begins"

    # ------------------------------------------------------------ adoption

    def _conclude_adoption(self) -> None:
        """Continue after every running worker has reported or was fenced because it did not."""
        job, snapshot = self.job, self._adopted
        assert snapshot is not None
        if job.where(lambda worker: worker.phase is WorkerPhase.STARTING and not job.is_lost(worker)):
            return
        if self._awaits_lost(snapshot):
            return
        present = len(job.where(lambda worker: worker.phase is not WorkerPhase.FENCED))
        number = job.current.number if job.current else 0
        reason = f"a new driver adopted {present} workers in view {number}"
        if snapshot.pending is not None and number and snapshot.pending.number > number:
            job.propose(snapshot.pending)
        if job.finishing:
            job.move(JobState.FINISHING, reason)
        elif job.current is None:
            job.resume = job.resume or snapshot.current is not None
            job.move(JobState.FORMING, reason)
        else:
            job.move(JobState.TRAINING, reason)
        for worker in job.where(lambda worker: worker.phase is WorkerPhase.WARM):
            job.welcome(worker)  # only now it is known whether to resume
        job.record("adopted", reason, level="warning" if present < len(job.wanted) else "info")
        if job.current is not None:
            if snapshot.current is not None and snapshot.current.number > number:
                job.torn = f"view {snapshot.current.number} of the last driver did not reach all workers"
            elif not job.settled and not job.finishing:
                job.torn = "the workers were between two views when the last driver died"
        if job.torn is None and job.pending is not None:
            self._send_proposal(Prepare(proposed=job.pending))
        if job.stopping is not None:
            stop(job, at_once=False, reason=job.stopping)

    def _awaits_lost(self, snapshot: MembershipSnapshot) -> bool:
        """Whether only workers of lost nodes can have the newest view's state, or a moment ago only they could."""
        job = self.job
        silent = job.where(lambda worker: worker.phase is WorkerPhase.STARTING)
        newest = max(filter(None, (job.current, snapshot.current)), key=lambda view: view.number, default=None)
        if not silent or newest is None:
            return False
        has_state = any(worker.has_state and worker.number in newest.workers for worker in job.present())
        numbers = frozenset(worker.number for worker in silent)
        if not has_state and numbers != job.awaited:
            await_end(job, numbers)
        return must_keep(job, is_state_elsewhere=has_state)
