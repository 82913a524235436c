"""The platform's store in memory, for the control loop and for simulated users. Never decides anything.

It keeps the same promises as the real store: every change of the loop is written completely or not at all, a loop whose
lease another one has taken over writes nothing, a slot has one owner at most, and jobs only make the moves of
`legato.control.stages`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from legato.control.records import (
    Allocation,
    Decision,
    Facts,
    Job,
    JobChange,
    JobPatch,
    Lease,
    NewJob,
    Queue,
    Slot,
    Verdict,
    Written,
)
from legato.control.stages import ENDED, MOVES, UNDECIDED, Action, Stage, stage_after
from legato.core.errors import FencedOut, NotFound, SlotTaken, UnreadableRow, UsageError
from legato.core.lifecycle import check_move
from legato.policy.earlier_runs import EarlierRun
from legato.policy.snapshot import RecentUse

_NUM_RUNS: Final = 32  # as of the store

_replace = msgspec.structs.replace


class MemoryLoopStore:
    """See `legato.control.loop.loop.LoopStore`.

    Args:
        slots: the pool; names like ``node-1/0``.
        clock: returns seconds.
        queues: with their settings; a queue that only jobs name has weight 1.
        on_news: called after each action of a user.
    """

    def __init__(
        self,
        slots: Iterable[str],
        clock: Callable[[], float],
        *,
        queues: Iterable[Queue] = (),
        on_news: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = clock
        self._on_news = on_news
        self.queues = {queue.name: queue for queue in queues}
        self.slots = {name: _make_slot(name) for name in slots}
        self.jobs: dict[str, Job] = {}
        self.open: dict[str, Allocation] = {}
        self.closed: list[Allocation] = []
        self.decisions: list[Decision] = []
        self.lease: Lease | None = None
        self._unfinished: dict[str, Job] = {}
        self._specs: dict[str, dict[str, Any]] = {}
        self._closed_slot_s: dict[str, float] = {}

    # ------------------------------------------------------------ the control loop

    def take_lease(self, owner: str, now: float, length_s: float) -> Lease | None:
        """Take or renew the lease; its number grows with each owner."""
        held = self.lease
        if held is not None and held.owner != owner and 0 < held.expires_at - now <= 2 * length_s:
            return None
        fence = 1 if held is None else held.fence + (held.owner != owner)
        self.lease = Lease(owner=owner, expires_at=now + length_s, fence=fence)
        return self.lease

    def read_facts(self) -> Facts:
        """Return the present facts."""
        held: dict[str, int] = {}
        for allocation in self.open.values():
            held[allocation.job] = held.get(allocation.job, 0) + 1
        return Facts(
            jobs=tuple(_replace(job, num_slots=held.get(job.id, 0)) for job in self._unfinished.values()),
            queues=tuple(self.queues.values()),
            slots=tuple(self.slots.values()),
            allocations=tuple(self.open.values()),
        )

    def read_specs(self, these: Sequence[str]) -> dict[str, dict[str, Any] | UnreadableRow]:
        """Return the specs of jobs."""
        return {job: self._specs[job] for job in these}

    def read_held_s(self, job: str, now: float) -> float:
        """Return for how many seconds the attempts of a job have held slots."""
        spans: dict[int, tuple[float, float]] = {}
        for found in (*self.closed, *self.open.values()):
            if found.job == job:
                begun, ended = spans.get(found.attempt, (found.since, found.since))
                until = now if found.until is None else found.until
                spans[found.attempt] = (min(begun, found.since), max(ended, until))
        return sum(ended - begun for begun, ended in spans.values())

    def count_usage(self, fence: int, now: float) -> None:
        """Do nothing: all allocations are kept."""

    def read_recent_use(self, now: float, half_life_s: float) -> tuple[RecentUse, ...]:
        """Return the decayed use of all users, as an average number of slots."""
        totals: dict[tuple[str, str], float] = {}
        for found in (*self.closed, *self.open.values()):
            job = self.jobs[found.job]
            ages = [max(now - (now if at is None else at), 0.0) for at in (found.until, found.since)]
            newest, oldest = (0.5 ** (age / half_life_s) for age in ages)
            totals[job.queue, job.owner] = totals.get((job.queue, job.owner), 0.0) + newest - oldest
        return tuple(
            RecentUse(queue=queue, user=user, num_slots=number) for (queue, user), number in sorted(totals.items())
        )

    def read_earlier_runs(self, jobs: Sequence[str]) -> dict[str, tuple[EarlierRun, ...]]:
        """Return the newest earlier runs of each job's code that have measured speeds, the newest first."""
        return {job: tuple(itertools.islice(self._list_earlier_runs(job), _NUM_RUNS)) for job in jobs}

    def _list_earlier_runs(self, job: str) -> Iterator[EarlierRun]:
        own = self.jobs[job]
        for other in reversed(self.jobs.values()):
            is_same = other.id != job and (other.owner, other.code) == (own.owner, own.code)
            if is_same and other.machine_kind is not None and other.progress is not None and other.progress.speeds:
                yield EarlierRun(
                    machine_kind=other.machine_kind,
                    num_micro_batches=other.progress.num_micro_batches,
                    has_same_parameters=True,
                    speeds=other.progress.speeds,
                )

    def read_used_slot_s(self, now: float) -> dict[str, float]:
        """Return the seconds of slots that each job which has not ended has had."""
        used = {job: self._closed_slot_s.get(job, 0.0) for job in self._unfinished}
        for found in self.open.values():
            used[found.job] += now - found.since
        return used

    def write(self, changes: Sequence[JobChange], fence: int, now: float) -> Written:
        """Write changes, each completely or not at all; after an error nothing is written."""
        if self.lease is None or self.lease.fence != fence:
            raise FencedOut(f"Cannot write as the control loop with number {fence}: the lease is lost.")
        assert len({change.job for change in changes}) == len(changes), "one change for each job"
        pending = _PendingWrite(self, now)
        current = [change for change in changes if self._is_current(change)]
        for change in current:
            pending.close(change)
        for change in current:
            pending.write(change)
        pending.keep()
        return Written(tuple(change.job for change in changes if change not in current))

    def _is_current(self, change: JobChange) -> bool:
        job = self._unfinished.get(change.job)
        return job is not None and (job.stage, job.attempt) == (change.seen_stage, change.seen_attempt)

    # ------------------------------------------------------------ users

    def submit(self, new: NewJob, owner: str) -> Job:
        """Put a job into its queue."""
        now = self._clock()
        job = Job(
            id=f"j-{len(self.jobs):010d}",
            name=new.name,
            owner=owner,
            queue=new.queue,
            priority=new.priority,
            min_workers=new.min_workers,
            max_workers=new.max_workers,
            is_elastic=new.is_elastic,
            gpus_per_worker=new.gpus_per_worker,
            max_retries=new.max_retries,
            labels=new.labels,
            code=new.code,
            stage=Stage.QUEUED,
            reason="submitted",
            attempt=0,
            num_retries=0,
            exit_code=None,
            stop_now=False,
            version=1,
            submitted_at=now,
            staged_at=now,
            started_at=None,
            ended_at=None,
            decided_slots=None,
            decided_reason=None,
            progress=None,
            num_slots=0,
        )
        self._specs[job.id] = new.spec
        self._put(job)
        self._on_news()
        return job

    def pause(self, job: str) -> None:
        """Pause a job: it frees its slots until it is resumed."""
        self._ask(Action.PAUSE, job)

    def resume(self, job: str) -> None:
        """Let a paused job continue."""
        self._ask(Action.RESUME, job)

    def stop(self, job: str, *, now: bool = False) -> None:
        """Stop a job; ``now``: without a checkpoint, also if it is already being stopped with one."""
        found = self.get(job)
        if found.stage is Stage.STOPPING:
            self._put(_replace(found, stop_now=found.stop_now or now))
            self._on_news()
        else:
            self._ask(Action.STOP, job, stop_now=now)

    def patch(self, job: str, patch: JobPatch) -> None:
        """Change the settings of a job."""
        found = self.get(job)
        is_asked = {
            Action.RESIZE: (patch.min_workers, patch.max_workers) != (None, None),
            Action.PRIORITIZE: patch.priority is not None,
            Action.MOVE: patch.queue is not None,
            Action.LABEL: patch.labels is not None,
        }
        for action in (action for action, asked in is_asked.items() if asked):
            stage_after(action, found.name, found.stage)
        wanted = {name: value for name, value in msgspec.structs.asdict(patch).items() if value is not None}
        changed = _replace(found, version=found.version + 1, **wanted)
        if not 1 <= changed.min_workers <= changed.max_workers:
            raise UsageError(
                f"Cannot resize job '{found.name}': {changed.min_workers}..{changed.max_workers} is not a range. "
                "Give a minimum of 1 or more that is not above the maximum."
            )
        self._put(changed)
        self._on_news()

    def break_slot(self, slot: str, reason: str) -> None:
        """Make a slot unusable until `mend_slot` is called."""
        self.slots[slot] = _replace(self.slots[slot], unusable_since=self._clock(), unusable_reason=reason)
        self._on_news()

    def mend_slot(self, slot: str) -> None:
        """Make a slot usable again."""
        self.slots[slot] = _replace(self.slots[slot], unusable_since=None, unusable_reason=None)
        self._on_news()

    def note_use(self, closed: Iterable[Allocation]) -> None:
        """Note that slots are no longer allocated."""
        for found in closed:
            assert found.until is not None
            self._closed_slot_s[found.job] = self._closed_slot_s.get(found.job, 0.0) + found.until - found.since

    @property
    def num_unfinished(self) -> int:
        """The number of jobs that have not ended."""
        return len(self._unfinished)

    def get(self, job: str) -> Job:
        """Return the present state of a job."""
        if job not in self.jobs:
            raise NotFound(f"There is no job '{job}'.")
        return self.jobs[job]

    def _ask(self, action: Action, job: str, **values: Any) -> None:
        found = self.get(job)
        stage = stage_after(action, found.name, found.stage)
        self._put(moved(found, stage, f"asked to {action}", self._clock(), **values))
        self._on_news()

    def _put(self, job: Job) -> None:
        self.jobs[job.id] = job
        if job.stage in ENDED:
            self._unfinished.pop(job.id, None)
        else:
            self._unfinished[job.id] = job


class _PendingWrite:
    """The changes of one write, until they are kept."""

    def __init__(self, store: MemoryLoopStore, now: float) -> None:
        self._store = store
        self._now = now
        self._jobs: dict[str, Job] = {}
        self._open = dict(store.open)
        self._closed: list[Allocation] = []
        self._decisions: list[Decision] = []

    def close(self, change: JobChange) -> None:
        attempt = change.seen_attempt if change.closed_attempt is None else change.closed_attempt
        for slot in change.closed:
            found = self._open.get(slot)
            if found is not None and (found.job, found.attempt) == (change.job, attempt):
                self._closed.append(_replace(self._open.pop(slot), until=self._now))

    def write(self, change: JobChange) -> None:
        job = self._store.jobs[change.job]
        if change.progress is not None:
            job = _replace(job, progress=change.progress)
        if change.exit_code is not None:
            job = _replace(job, exit_code=change.exit_code)
        if change.machine_kind is not None:
            job = _replace(job, machine_kind=change.machine_kind)
        if change.is_retry:
            job = _replace(job, num_retries=job.num_retries + 1)
        if change.note is not None:
            job = _replace(job, reason=change.note.reason)
        if change.stage is not None and change.stage is not job.stage:
            job = moved(job, change.stage, change.reason, self._now)
        for slot in change.released:
            found = self._open.get(slot)
            owned = found is not None and (found.job, found.attempt) == (job.id, job.attempt)
            if found is not None and owned and found.release_asked_at is None:
                self._open[slot] = _replace(found, release_asked_at=self._now)
        for slot in change.granted:
            self._grant(slot, job)
        verdict = change.verdict
        if verdict is not None and (job.decided_slots, job.decided_reason) != (verdict.num_slots, verdict.reason):
            job = _replace(job, decided_slots=verdict.num_slots, decided_reason=verdict.reason)
            if verdict.is_new:
                self._decisions.append(_make_decision(job, verdict, self._now))
        self._jobs[job.id] = job

    def _grant(self, slot: str, job: Job) -> None:
        found, known = self._open.get(slot), self._store.slots.get(slot)
        if found is not None and (found.job, found.attempt) == (job.id, job.attempt):
            return
        if found is not None or known is None or known.unusable_since is not None:
            why = "not usable" if found is None else f"held by attempt {found.attempt} of job {found.job}"
            raise SlotTaken(f"Cannot give slot {slot} to job {job.id}, attempt {job.attempt}: it is {why}.")
        self._open[slot] = Allocation(
            slot=slot, job=job.id, attempt=job.attempt, since=self._now, release_asked_at=None, until=None
        )

    def keep(self) -> None:
        for job in self._jobs.values():
            self._store._put(job)
        self._store.open = self._open
        self._store.closed += self._closed
        self._store.note_use(self._closed)
        self._store.decisions += self._decisions


def moved(job: Job, stage: Stage, reason: str, now: float, **values: Any) -> Job:
    """Return a job after a move, with all fields that the move changes.

    Raises:
        TransitionError: the move is illegal.
    """
    check_move(f"job '{job.name}' ({job.id})", MOVES, job.stage, stage, ())
    values |= {"stage": stage, "reason": reason, "version": job.version + 1, "staged_at": now}
    if stage is Stage.STARTING:
        values["attempt"] = job.attempt + 1
        values["started_at"] = now if job.started_at is None else job.started_at
    if stage in ENDED:
        values["ended_at"] = now
    if stage in UNDECIDED:
        values |= {"decided_slots": None, "decided_reason": None}
    return _replace(job, **values)


def _make_decision(job: Job, verdict: Verdict, now: float) -> Decision:
    return Decision(job=job.id, attempt=job.attempt, time=now, num_slots=verdict.num_slots, reason=verdict.reason)


def _make_slot(name: str) -> Slot:
    node = name.rpartition("/")[0]
    return Slot(id=name, node=node, device="made-up", unusable_since=None, unusable_reason=None)
