"""One job's driver: carries out the instructions of the membership. Moves bytes and decides nothing.

Events come from workers, clients, the engine and the clock; each is handled at once in memory. Instructions go through
one queue, in order, because a view number must be in the journal before a worker receives it. Engine calls run beside
the queue, in order for each worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from legato.core import wire
from legato.core.clock import Clock
from legato.core.errors import JobNotFound, LegatoError, Superseded, UsageError
from legato.core.exits import EXIT_UNSTARTED
from legato.core.lifecycle import WorkerPhase
from legato.core.program import PROGRAM_VARIABLE
from legato.core.slots import join_by, list_slots, name_slot, node_of
from legato.core.spec import JobSpec
from legato.core.system_metrics import MEASURE_EVERY_S
from legato.core.terms import is_of_later_lease, next_term
from legato.driver import events
from legato.driver.arrivals import Arrivals
from legato.driver.connections import Connections
from legato.driver.ending import EXIT_KILLED, EXIT_NOWHERE
from legato.driver.journal import DriverFile, JobDirectory, JobJournal, Outcome, refuse_other_checkpoints
from legato.driver.log_caps import LogCaps
from legato.driver.log_marks import LogMarks
from legato.driver.membership import Membership
from legato.driver.numbered_slots import number_status
from legato.driver.plugin import PluginHost
from legato.driver.record import Event, Records
from legato.driver.snapshot import take_snapshot
from legato.driver.status import NUM_EVENTS, Meter, build_status
from legato.driver.system_log import SystemLog
from legato.driver.tokens import make_peer_secret, make_worker_token
from legato.engines.base import Engine, Exited, Launch
from legato.system.door import LOOPBACK, Door
from legato.system.hosts import name_this_machine

_log = logging.getLogger(__name__)

_PACKAGE: Final = Path(__file__).resolve().parents[1]  # the folder of Legato's package
_MIN_TICK_S: Final = 0.01  # deadlines that are closer together are handled together


class Observer(Protocol):
    """Watches the job, such as a terminal. Called on the driver's event loop, so it must return quickly."""

    def on_event(self, event: Event) -> None:
        """Show one event; the same as in ``events.jsonl``."""

    def on_status(self, status: dict[str, Any]) -> None:
        """Show the job's status; called with every heartbeat."""


class Driver:
    """The driver of one job.

    Args:
        spec: the job. None: the journal of the directory has it, and the driver adopts the job.
        engine: where its workers run.
        directory: the job's files.
        observer: receives events and the status; None: no observer.
        slots: the job's first slots, if the platform assigns them; None: the job scales freely.
        available: the slots from which a new job takes those that it wants, in this order; an adopted job keeps those
            of its journal. Not used if the platform assigns its slots. A function returns them when the engine is open.
            None: as many slots of ``node`` as the job's maximum of workers needs.
        node: the name of this machine, to which slots belong that an earlier release knew only by their numbers. None:
            its host name.
        numbers_slots: a server of an earlier release has ordered this attempt, and may still run: statuses and the
            journal have numbers of slots.
        attempt: number of the job's attempt, for the journal.
        term: below that of this driver, from the server that started it; 0: no server did.
        port: to listen on, on the loopback address; 0 for any free one.
        door: where workers, clients and agents connect. None: a door of its own, on ``port``.
        drops_stop: an adopted job does not carry out the stop that was under way in its last driver.
        clock: monotonic seconds.
        wall_clock: seconds since 1970, for records.
    """

    def __init__(
        self,
        spec: JobSpec | None,
        engine: Engine,
        directory: JobDirectory,
        *,
        observer: Observer | None = None,
        slots: Collection[str] | None = None,
        available: Sequence[str] | Callable[[], Sequence[str]] | None = None,
        node: str | None = None,
        numbers_slots: bool = False,
        attempt: int = 1,
        term: int = 0,
        port: int = 0,
        door: Door | None = None,
        drops_stop: bool = False,
        clock: Clock = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._asked = spec
        self._engine = engine
        self._directory = directory
        self._observer = observer
        self._slots = slots
        self._available = available
        self._node = node or name_this_machine()
        self._numbers_slots = numbers_slots
        self._attempt = attempt
        self._term = term
        self._has_begun = self._is_superseded = False
        self._first_slot = ""  # of rank 0
        self._wanted: frozenset[str] = frozenset()
        self._door = door if door is not None else Door(port=port)
        self._drops_stop = drops_stop
        self._clock = clock
        self._records = Records(directory, wall_clock)
        self._log_marks = LogMarks(directory, clock, wall_clock)
        self._meter = Meter()
        self._system = SystemLog(directory.system_file)
        self._wall_clock = wall_clock
        self._arrivals = Arrivals(engine, self._feed_safely, self._warn, self._note)
        self._num_steps: int | None = None
        self._events: deque[Event] = deque(maxlen=NUM_EVENTS)
        self._instructions: asyncio.Queue[events.Instruction] = asyncio.Queue()
        self._engine_calls: dict[int, asyncio.Task[None]] = {}
        self._devices: dict[int, asyncio.Future[str]] = {}  # of workers that are not started yet
        self._outcome: Outcome | None = None
        self._broken: asyncio.Future[None] | None = None
        self._woken = asyncio.Event()
        # Known once `run` has read the journal and opened the engine.
        self._spec: JobSpec
        self._token: str
        self._has_worker_tokens: bool
        self._membership: Membership
        self._connections: Connections
        self._plugin: PluginHost

    # ------------------------------------------------------------ the whole life

    async def run(self) -> Outcome:
        """Drive the job to its end.

        If this is cancelled, the workers train on, and another driver may adopt them.

        Raises:
            UsageError: the job cannot run here, because it runs already or the port is in use.
            Superseded: another driver leads the job; the workers train on.
            LegatoError: the journal cannot be written, so this driver cannot lead.
        """
        await asyncio.to_thread(self._directory.lock)
        try:
            await self._door.open()
            return await self._lead()
        finally:
            await self._door.close()
            self._directory.unlock()

    async def _lead(self) -> Outcome:
        journal = await asyncio.to_thread(self._directory.read_journal, self._node)
        if journal is None and self._asked is None:
            raise self._nothing_left()
        known = await asyncio.to_thread(self._directory.read_term)
        if is_of_later_lease(known, self._term):
            raise Superseded(
                f"This driver does not lead job '{self._directory.path.name}': the server that started it has lost its "
                f"lease, and a later server has started a driver, with term {known}."
            )
        self._term = next_term(known, self._term)
        await asyncio.to_thread(self._claim_term, journal)
        try:
            return await self._lead_from(journal)
        except BaseException:
            if journal is None and not self._has_begun and self._directory.read_term() == self._term:
                # There is no job to take over.
                await asyncio.to_thread(self._directory.journal_file.unlink, missing_ok=True)
            raise

    async def _lead_from(self, journal: JobJournal | None) -> Outcome:
        # A worker may connect, and be heard, before `_work` waits for this.
        self._broken = asyncio.get_running_loop().create_future()
        await self._engine.open(self._term)
        self._enqueue(await self._take_over_or_begin(journal))
        self._plugin = PluginHost(
            self._spec, self._directory.guest, self._feed, self._record_event, self._directory.user
        )
        self._connections = Connections(
            self._token,
            hear=self._on_message,
            lose=self._on_lost,
            answer=self._answer,
            admits_old_workers=not self._has_worker_tokens,
        )
        try:
            try:
                await self._plugin.open(self._membership.job)
                url = self._connections.open(self._door)
                driver_file = DriverFile(url, self._token, os.getpid(), self._door.certificate)
                await asyncio.to_thread(self._directory.write_driver_file, driver_file)
                self._has_begun = True
                outcome = await self._work()
            finally:
                self._connections.close_workers()
                await self._plugin.close()
            # Closing the engine ends the agents, which another driver may lead by now.
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self._check_term)
            # Clients are answered meanwhile: files may come from other machines for a long time.
            await self._engine.close(self._note)
        finally:
            self._connections.close()
        for told in self._engine.remarks:
            self._warn(told)
        await self._records.flush()
        await asyncio.to_thread(self._write_end, outcome)
        return outcome

    def scale(self, num_workers: int, reason: str) -> None:
        """Ask for another number of workers. Raises UsageError if the job may not have that many."""
        self._feed(events.ScaleAsked(num_workers, reason))

    def assign(self, said: events.SlotsAssigned) -> None:
        """Set all slots of the job. Raises UsageError if the job may not have that many."""
        self._feed(said)

    def stop(self, reason: str, *, now: bool = False) -> None:
        """Ask the job to end, with a checkpoint unless ``now``."""
        if self._outcome is not None:
            if now:
                self._engine.abandon_results()
            return
        self._feed(events.StopAsked(now, reason))
        if now:
            self._arrivals.give_up()

    def status(self) -> dict[str, Any]:
        """Return the job's status."""
        return build_status(self._membership.job, self._meter, self._events, self._outcome, self._clock(), self._system)

    async def _take_over_or_begin(self, journal: JobJournal | None) -> list[events.Instruction]:
        """Set up the membership: adopt the workers that run, or start new ones. Returns the first instructions."""
        directory, name = self._directory, self._directory.path.name
        left = journal if journal is not None and journal.outcome is None and journal.snapshot is not None else None
        running = await self._engine.running() if left is not None else {}
        if self._asked is None and left is None:
            raise self._nothing_left()
        if self._asked is not None and running and left is not None and not self._asked.is_same_job(left.spec):
            raise UsageError(
                f"Cannot run job '{name}': {len(running)} workers of an earlier job of this name, with other settings, "
                f"still run without a driver. 'legato attach {name}' adopts them; otherwise they end after a minute."
            )
        adopting = left is not None and (self._asked is None or bool(running))
        spec = left.spec if left is not None and adopting else self._asked
        assert spec is not None
        self._spec = spec.validate()
        self._token = left.token if left is not None and adopting else secrets.token_urlsafe(32)
        self._has_worker_tokens = left.has_worker_tokens if left is not None and adopting else True
        self._attempt = left.attempt if left is not None and adopting else self._attempt
        self._num_steps = left.num_steps if left is not None and adopting else None
        rendezvous = await self._engine.rendezvous()
        checkpoint_dir = spec.checkpoint_dir or str(directory.checkpoints)
        now = self._clock()
        if left is not None and adopting:
            assert left.snapshot is not None
            snapshot = msgspec.structs.replace(left.snapshot, stopping=None) if self._drops_stop else left.snapshot
            self._membership = Membership.adopt(
                spec, rendezvous, snapshot, running, checkpoint_dir=checkpoint_dir, now=now, term=self._term
            )
        else:
            if not spec.resume:
                refuse_other_checkpoints(spec)
                await asyncio.to_thread(directory.set_aside_records)
            await asyncio.to_thread(self._keep_program, spec)
            after = left.snapshot if left is not None else None
            each = spec.gpus_per_worker
            available = self._available() if callable(self._available) else self._available
            if available is None:
                available = list_slots(self._node, spec.max_workers * each)
            self._membership = Membership(
                spec,
                rendezvous,
                checkpoint_dir=checkpoint_dir,
                now=now,
                after=after,
                available=join_by(available, each) if each > 1 else available,
                slots=self._slots,
                term=self._term,
            )
        self._membership.job.peer_secret = make_peer_secret(self._token, self._attempt)
        await asyncio.to_thread(self._records.load)
        return self._membership.begin(now)

    async def _work(self) -> Outcome:
        """Run all tasks of the driver until the job ends or one of them fails."""
        assert self._broken is not None
        ended = asyncio.create_task(self._carry_out())
        tasks = [ended] + [
            asyncio.create_task(work)
            for work in (
                self._watch_engine(),
                self._keep_time(),
                self._records.write_forever(),
                self._log_marks.write_forever(),
                LogCaps(self._directory, self._spec.log_max_bytes, self._warn).watch_forever(),
                self._measure_forever(),
            )
        ]
        try:
            await asyncio.wait([*tasks, self._broken], return_when=asyncio.FIRST_COMPLETED)
            for done in (self._broken, *tasks):
                if done is not ended and done.done():
                    done.result()
            outcome = ended.result() if ended.done() else None
            if outcome is None:
                raise RuntimeError("the engine's stream of events ended before the job")
            return outcome
        except Superseded:
            self._is_superseded = True
            self._records.drop()
            raise
        finally:
            tasks += self._engine_calls.values()
            for task in [*tasks, *self._devices.values()]:
                task.cancel()
            await asyncio.gather(*tasks, *self._devices.values(), return_exceptions=True)
            self._broken.cancel()
            await self._arrivals.close()
            with contextlib.suppress(asyncio.CancelledError):
                await self._records.flush()

    def _warn(self, told: str) -> None:
        self._record_event(events.Record(kind="note", reason=told, level="warning"))

    def _note(self, told: str) -> None:
        self._record_event(events.Record(kind="note", reason=told))

    def _write_end(self, outcome: Outcome) -> None:
        # Also shorten logs that workers have written to since the last check.
        LogCaps(self._directory, self._spec.log_max_bytes, self._warn).drop()
        snapshot = self._membership.job.snapshot()
        self._write_journal(self._journal(snapshot, outcome))
        self._directory.remove_driver_file()

    # ------------------------------------------------------------ events in

    def _feed(self, event: events.Event) -> None:
        if self._is_superseded:
            return
        self._enqueue(self._membership.handle(event, self._clock()))
        self._plugin.note(self._membership.job)
        members = self._membership.job.members()
        if members and members[0].slot not in ("", self._first_slot):
            self._first_slot = members[0].slot
            self._engine.note_rank_0(self._first_slot)
        if self._wanted != self._membership.job.wanted:
            self._wanted = frozenset(self._membership.job.wanted)
            self._engine.note_slots(self._wanted)
        self._woken.set()

    def _feed_safely(self, event: events.Event) -> None:
        """Handle an event from a callback, whose caller would swallow an error of the driver."""
        try:
            self._feed(event)
        except Exception as error:  # noqa: BLE001 -- any error ends the driver; the workers train on
            if self._broken is not None and not self._broken.done():
                self._broken.set_exception(error)

    def _enqueue(self, instructions: list[events.Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, events.StepDown):
                self._step_down(instruction.reason)
                return
            self._instructions.put_nowait(instruction)

    def _step_down(self, reason: str) -> None:
        """Stop leading at once: another driver may write the job's files and send views to its workers now."""
        self._is_superseded = True
        while not self._instructions.empty():
            self._instructions.get_nowait()
        self._connections.close()
        self._records.drop()
        if self._broken is not None and not self._broken.done():
            name = self._directory.path.name
            self._broken.set_exception(Superseded(f"This driver stops leading job '{name}': {reason}."))

    def _on_message(self, number: int, message: wire.WorkerMessage) -> None:
        if self._is_superseded:
            return
        worker = self._membership.job.workers.get(number)
        if worker is not None and worker.phase not in (WorkerPhase.FENCED, WorkerPhase.GONE):
            self._note_reports(number, message)
        if isinstance(message, wire.Saved) and self._engine.is_away(number):
            self._arrivals.await_checkpoint(number, message)
        else:
            self._arrivals.pass_on(number, events.Heard(number, message))

    def _note_reports(self, number: int, message: wire.WorkerMessage) -> None:
        if isinstance(message, wire.Progress):
            num_new, complaint = self._records.note_progress(number, message)
            job = self._membership.job
            members = job.members() if job.current is not None and job.current.number == message.view else []
            size = (len(members), len({node_of(member.slot) for member in members})) if members else None
            self._meter.note_sent(number, message)
            self._meter.data_waits.note(number, message, self._clock())
            self._meter.note(
                message, num_new, self._clock(), size=size, is_planned=bool(members) and job.recovering is None
            )
            if complaint is not None:
                self._record_event(events.Record(kind="note", reason=complaint, level="error", worker=number))
        elif isinstance(message, wire.Metrics):
            if self._records.note_metrics(message):
                self._meter.note_metrics(message)
        elif isinstance(message, wire.Hello):
            self._records.note_connected(number)
            self._meter.data_waits.note_connected(number)

    def _on_lost(self, number: int) -> None:
        self._feed_safely(events.Lost(number))

    async def _answer(self, request: wire.ClientRequest) -> wire.Reply:
        error = None
        if self._outcome is not None:
            return self._answer_at_end(request)
        try:
            if isinstance(request, wire.ScaleRequest):
                self.scale(request.num_workers, request.reason)
            elif isinstance(request, wire.AssignRequest):
                slots = tuple(name_slot(slot, self._node) for slot in request.slots)
                self.assign(events.SlotsAssigned(slots, request.reason, request.min_workers, request.max_workers))
            elif isinstance(request, wire.StopRequest):
                self.stop(request.reason, now=request.now)
        except UsageError as refusal:
            error = str(refusal)
        status = self.status()
        return wire.Reply(error=error, status=number_status(status) if self._numbers_slots else status)

    def _answer_at_end(self, request: wire.ClientRequest) -> wire.Reply:
        """Answer while files come from other machines: the job has not ended yet, and needs no slots any more."""
        error = None
        if isinstance(request, wire.ScaleRequest):
            error = f"Cannot scale job '{self._spec.name}': it is ending."
        elif isinstance(request, wire.StopRequest):
            self.stop(request.reason, now=request.now)
        status = build_status(self._membership.job, self._meter, self._events, None, self._clock(), self._system)
        status["slots"]["wanted"] = []
        return wire.Reply(error=error, status=number_status(status) if self._numbers_slots else status)

    async def _watch_engine(self) -> None:
        async for event in self._engine.events():
            if isinstance(event, Exited):
                self._arrivals.pass_on(event.worker, event)
            else:
                self._feed(event)

    async def _keep_time(self) -> None:
        interval_s = self._spec.heartbeat_interval_s
        next_beat = self._clock()
        while True:
            now = self._clock()
            asked = self._membership.suspects(now)
            self._feed(events.Tick(await self._engine.examine(asked) if asked else {}))
            if now >= next_beat:
                next_beat = now + interval_s
                self._connections.beat(self._records.num_metrics, self._records.losses_to_step)
                self._notify(lambda observer: observer.on_status(self.status()))
                if num_lost := self._records.take_lost():
                    self._warn(f"{num_lost} lines of the job's records (events, metrics, losses) could not be written")
            self._woken.clear()
            deadline = self._membership.next_deadline()
            due = next_beat if deadline is None else min(next_beat, deadline)
            with contextlib.suppress(TimeoutError):
                # Any event may make the next deadline earlier.
                async with asyncio.timeout(max(due - self._clock(), _MIN_TICK_S)):
                    await self._woken.wait()
                    await asyncio.sleep(_MIN_TICK_S)

    async def _measure_forever(self) -> None:
        """Note what workers and machines use. A sample that fails must not end a training."""
        await asyncio.to_thread(self._measure_safely, self._system.load)
        while True:
            try:
                found = await self._engine.measure()
            except Exception:  # noqa: BLE001 -- such as an engine that closes
                _log.debug("The machines of job '%s' cannot be measured", self._spec.name, exc_info=True)
                found = {}
            samples = {node or self._node: sample for node, sample in found.items()}
            slots = {worker.number: worker.slot for worker in self._membership.job.present()}
            waits = self._meter.data_waits.take()
            self._measure_safely(partial(self._system.note, self._wall_clock(), samples, slots, waits))
            if not self._is_superseded:
                await asyncio.to_thread(self._measure_safely, self._system.write)
            await asyncio.sleep(MEASURE_EVERY_S)

    def _measure_safely(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # noqa: BLE001 -- the records of machines are no part of the training
            _log.exception("Cannot keep what the machines of job '%s' use", self._spec.name)

    # ------------------------------------------------------------ instructions out

    async def _carry_out(self) -> Outcome:
        while True:
            instruction = await self._instructions.get()
            match instruction:
                case events.Send(worker=worker, message=message):
                    self._connections.send(worker, message)
                case events.Journal(snapshot=snapshot):
                    await asyncio.to_thread(self._write_journal, self._journal(snapshot, None))
                case events.Record():
                    self._record_event(instruction)
                case events.StartWorker(worker=worker, slot=slot):
                    self._devices[worker] = asyncio.ensure_future(self._engine.device_of(slot))
                    self._call_engine(worker, partial(self._start_worker, worker, slot))
                case events.StopWorker(worker=worker, force=force):
                    if worker in self._devices:
                        # Its machine may not have come yet.
                        self._devices[worker].cancel()
                    self._call_engine(worker, partial(self._engine.stop, worker, force=force))
                case events.End():
                    saved_step = self._membership.job.saved_step
                    await self._arrivals.finish(-1 if saved_step is None else saved_step)
                    return self._end(instruction)

    def _end(self, end: events.End) -> Outcome:
        gap = self._records.describe_gap()
        if gap is not None:
            self._record_event(events.Record(kind="note", reason=gap, level="error"))
        lost = self._records.describe_lost_metrics()
        if lost is not None:
            self._warn(lost)
        left = self._plugin.describe_left()
        if left is not None:
            # The user who ends a job early knows that it is incomplete.
            is_news = end.outcome in ("succeeded", "unsaved")
            self._record_event(events.Record(kind="note", reason=left, level="warning" if is_news else "info"))
        reason = end.reason
        if (step := self._membership.job.differed_step) is not None:
            reason += f"; not exact since step {step}: its result depends on the workers"
        level = "info" if end.exit_code in (0, EXIT_KILLED) else "error"
        kind = "finished" if end.outcome in ("succeeded", "unsaved") else end.outcome
        self._record_event(events.Record(kind=kind, reason=f"the job {_ENDED[end.outcome]}: {reason}", level=level))
        refusals = dict(self._membership.job.refusals) if end.exit_code == EXIT_NOWHERE else {}
        self._outcome = Outcome(end.outcome, end.exit_code, reason, refusals)
        self._notify(lambda observer: observer.on_status(self.status()))
        return self._outcome

    def _record_event(self, record: events.Record) -> None:
        if self._is_superseded:
            return
        event = self._records.note_event(record)
        self._events.append(event)
        self._notify(lambda observer: observer.on_event(event))

    def _notify(self, call: Callable[[Observer], None]) -> None:
        if self._observer is None:
            return
        try:
            call(self._observer)
        except Exception:  # noqa: BLE001 -- a terminal that cannot show something must not end a training
            _log.exception("The observer of job '%s' failed", self._spec.name)

    def _journal(self, snapshot: events.MembershipSnapshot, outcome: Outcome | None) -> JobJournal:
        if self._meter.last is not None:
            self._num_steps = self._meter.last.num_steps
        return JobJournal(
            spec=self._membership.job.spec,
            token=self._token,
            attempt=self._attempt,
            snapshot=snapshot,
            outcome=outcome,
            has_worker_tokens=self._has_worker_tokens,
            num_steps=self._num_steps,
            term=self._term,
        )

    def _nothing_left(self) -> JobNotFound:
        name = self._directory.path.name
        return JobNotFound(f"Cannot take over job '{name}': this machine has no unfinished job of this name.")

    def _claim_term(self, journal: JobJournal | None) -> None:
        """Write the term to the journal before anything is sent with it, so that no later driver takes the same."""
        if journal is None:
            assert self._asked is not None
            # Of no attempt: a job of this attempt has not begun.
            journal = JobJournal(spec=self._asked, token="", attempt=0)
        try:
            self._directory.write_journal(msgspec.structs.replace(journal, term=self._term))
        except OSError as error:
            raise LegatoError(
                f"Cannot write the journal {self._directory.journal_file}: {error.strerror or error}. A driver leads a "
                "job only after it has written its term there. Make room on the disk, or make the directory writable."
            ) from error

    def _write_journal(self, journal: JobJournal) -> None:
        if self._is_superseded:
            return
        try:
            self._directory.write_journal(journal, numbers_slots=self._numbers_slots, check=self._check_term)
        except OSError as error:
            # Only a new driver needs the journal, so this job continues.
            _log.warning("Cannot write the journal %s: %s", self._directory.journal_file, error)

    def _check_term(self) -> None:
        """Raise Superseded if a driver with a higher term leads the job."""
        newest = self._directory.read_term()
        if newest > self._term:
            raise Superseded(
                f"This driver stops leading job '{self._directory.path.name}': its journal has a driver of term "
                f"{newest}; this driver has term {self._term}."
            )

    def _call_engine(self, worker: int, call: Callable[[], Awaitable[None]]) -> None:
        """Call the engine beside the queue: a start may be slow, and workers must receive a new view meanwhile."""
        before = self._engine_calls.get(worker)

        async def call_in_turn() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await call()
            except Exception as error:  # noqa: BLE001 -- reported as an event; the membership decides what follows
                _log.exception("The engine could not start or stop worker %d", worker)
                told = f"the engine could not start or stop worker {worker}: {error}"
                self._record_event(events.Record(kind="note", reason=told, level="error", worker=worker))

        task = asyncio.create_task(call_in_turn())
        self._engine_calls[worker] = task
        task.add_done_callback(lambda done: self._engine_calls.pop(worker) if self._engine_calls[worker] is done else 0)

    def _identify(self, worker: int) -> dict[str, str]:
        """Return the variables with which a worker finds its driver and authenticates."""
        if not self._has_worker_tokens:
            # The warm parent is of an earlier release too, and so are the workers that it forks.
            return {"LEGATO_DRIVER_FILE": str(self._directory.driver_file)}
        return {
            "LEGATO_DRIVER_FILE": str(self._directory.address_file),
            "LEGATO_WORKER_TOKEN": make_worker_token(self._token, worker),
        }

    def _keep_program(self, spec: JobSpec) -> None:
        """Keep the sources of a program that its user may edit while it runs, unless the job has a copy."""
        script = Path(spec.directory, spec.program[0])
        ours = (self._directory.path, _PACKAGE)
        is_ours = any(script.is_relative_to(place) for place in ours)
        # A driver with more rights than the job's user must not follow a link of that user.
        reads_for_another = self._directory.user is not None
        try:
            # Sources of an earlier run must not be used, even if none can be kept now.
            self._directory.keep_program(None)
            if not is_ours and not reads_for_another:
                self._directory.keep_program(take_snapshot(script))
        except (OSError, RuntimeError) as error:
            # Workers then read the present files, and are compared when they join.
            _log.warning("Cannot keep the program's sources in %s: %s", self._directory.program_file, error)

    def _point_to_program(self) -> dict[str, str]:
        file = self._directory.program_file
        return {PROGRAM_VARIABLE: str(file)} if file.is_file() else {}

    async def _start_worker(self, number: int, slot: str) -> None:
        try:
            await self._arrivals.recover(number)
            await asyncio.wait([self._devices[number]])
            found = self._devices.pop(number)
            if found.cancelled():
                self._feed_safely(Exited(number, EXIT_UNSTARTED, "it was stopped before it was started"))
                return
            device = found.result()
            await self._engine.start(
                Launch(
                    worker=number,
                    slot=slot,
                    program=self._spec.program,
                    environment={
                        **self._spec.variables,
                        **self._plugin.variables_of(number),
                        **self._identify(number),
                        **self._point_to_program(),
                        "LEGATO_WORKER": str(number),
                        "LEGATO_HOST": LOOPBACK,
                        "LEGATO_DEVICE": device,
                        "LEGATO_THREADS": str(self._spec.num_threads),
                    },
                    directory=self._spec.directory,
                    log_path=str(self._directory.log_path(number)),
                )
            )
        except Exception:
            # There is no process, so the engine will not report its end.
            self._feed_safely(Exited(number, EXIT_UNSTARTED))
            raise


_ENDED: Final = {
    "succeeded": "succeeded",
    "unsaved": "ended without its last checkpoint",
    "failed": "failed",
    "stopped": "was stopped",
}
