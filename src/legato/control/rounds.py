"""One round of the control loop as pure functions: what the reports mean, what the policy sees, what is to be done.

No I/O and no clock. `learn` turns reports into changes of the store; `make_snapshot` and `carry_out` stand before and
behind the policy; `list_calls` compares what the store says with what the drivers say, and returns what to tell them.
Because it compares, a call that was lost in a crash is simply made in a later round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from legato.control.drivers import Assignment, DriverReport, DriverState
from legato.control.records import Allocation, Facts, Job, JobChange, Progress, Verdict
from legato.control.stages import HOLDING, Stage
from legato.control.work import Work
from legato.policy import snapshot as policy
from legato.policy.snapshot import Standing

_PROGRESS_EVERY_S: Final = 1.0
_STEP_SMOOTHING: Final = 0.3


@dataclass(slots=True)
class Memory:
    """What the loop remembers of one attempt of a job. If it is lost, the next decisions only come a little later.

    Args:
        attempt: of the job.
        wanted: of the policy's last decision, handed back to it.
        wanted_since: likewise.
        num_workers: as last reported.
        resized_at: when that changed.
        given_up: slots that the driver uses no more; the job is given none in their place.
        last_step: number and moment of the last step that was reported.
        step_s: seconds per step, smoothed.
    """

    attempt: int
    wanted: int | None = None
    wanted_since: float | None = None
    num_workers: int | None = None
    resized_at: float | None = None
    given_up: set[str] = field(default_factory=set)
    last_step: tuple[int, float] | None = None
    step_s: float | None = None


class Start(msgspec.Struct, frozen=True):
    """Start the driver of a job's present attempt, or start it again if it died."""

    job: Job
    slots: tuple[str, ...]
    reason: str


class Tell(msgspec.Struct, frozen=True):
    """Tell a driver its slots."""

    job: Job
    said: Assignment


class End(msgspec.Struct, frozen=True):
    """Ask a driver to end its job with a checkpoint, or ``now`` without."""

    job: Job
    now: bool
    reason: str


Call = Start | Tell | End


class Pool:
    """The facts of a round, sorted by job.

    Args:
        facts: as read from the store.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.allocations: dict[str, list[Allocation]] = {}
        for allocation in facts.allocations:
            self.allocations.setdefault(allocation.job, []).append(allocation)

    def held(self, job: Job) -> list[Allocation]:
        """Return the open allocations of a job's present attempt."""
        return [found for found in self.allocations.get(job.id, []) if found.attempt == job.attempt]

    def kept(self, job: Job) -> list[str]:
        """Return the slots that a job holds and was not asked to leave."""
        return sorted(found.slot for found in self.held(job) if found.release_asked_at is None)

    def is_paused_by_policy(self, job: Job) -> bool:
        """Whether a job has slots left only because its workers are still going."""
        return job.stage in (Stage.STARTING, Stage.RUNNING) and bool(self.held(job)) and not self.kept(job)


# ---------------------------------------------------------------- observe


def attempts_to_ask(pool: Pool) -> dict[str, int]:
    """Return the attempts whose drivers have something to report."""
    return {job.id: job.attempt for job in pool.facts.jobs if job.stage in HOLDING}


def stop_overdue(pool: Pool, works: Mapping[str, Work], now: float) -> list[JobChange]:
    """Return the stops of jobs that have run for as long as they may."""
    changes = []
    for job in pool.facts.jobs:
        limit_s = works[job.id].max_run_s if job.id in works else None
        if job.stage is not Stage.RUNNING or limit_s is None or job.started_at is None:
            continue
        if now - job.started_at >= limit_s:
            reason = f"it has run for the {limit_s:g} s that it may"
            change = JobChange(
                job=job.id, seen_stage=job.stage, seen_attempt=job.attempt, stage=Stage.STOPPING, reason=reason
            )
            changes.append(change)
    return changes


def learn(pool: Pool, reports: Mapping[str, DriverReport], memories: dict[str, Memory], now: float) -> list[JobChange]:
    """Return what the reports change: stages, slots that are confirmed free, progress."""
    changes = []
    for job in pool.facts.jobs:
        report = reports.get(job.id)
        if report is None or report.attempt != job.attempt or job.stage not in HOLDING:
            continue
        memory = memories.get(job.id)
        if memory is None or memory.attempt != job.attempt:
            memory = memories[job.id] = Memory(job.attempt)
        change = None
        if report.state is DriverState.ENDED:
            change = _learn_end(pool, job, report)
        elif report.state is DriverState.RUNNING:
            change = _learn_progress(pool, job, report, memory, now)
        if change is not None:
            changes.append(change)
    for job_id in set(memories) - {job.id for job in pool.facts.jobs}:
        del memories[job_id]
    return changes


def _learn_end(pool: Pool, job: Job, report: DriverReport) -> JobChange:
    outcome = report.outcome
    assert outcome is not None
    stage, is_retry, reason = Stage(outcome.outcome), False, outcome.reason
    may_retry = job.stage in (Stage.STARTING, Stage.RUNNING) and job.num_retries < job.max_retries
    if stage is Stage.FAILED and may_retry:
        stage, is_retry = Stage.QUEUED, True
        reason = f"tries again ({job.num_retries + 1} of {job.max_retries}): {outcome.reason}"
    elif stage is Stage.STOPPED and job.stage is Stage.PAUSING:
        stage = Stage.PAUSED
    elif stage is Stage.STOPPED and pool.is_paused_by_policy(job):
        stage, reason = Stage.QUEUED, "paused, its state is saved; goes on by itself when slots are free"
    return JobChange(
        job=job.id,
        seen_stage=job.stage,
        seen_attempt=job.attempt,
        stage=stage,
        reason=reason,
        closed=tuple(found.slot for found in pool.held(job)),
        exit_code=None if stage in (Stage.QUEUED, Stage.PAUSED) else outcome.exit_code,
        is_retry=is_retry,
    )


def _learn_progress(pool: Pool, job: Job, report: DriverReport, memory: Memory, now: float) -> JobChange | None:
    status: dict[str, Any] = report.status or {}
    assert report.in_use is not None and report.assigned is not None
    memory.given_up |= report.given_up
    if memory.num_workers != status["num_workers"]:
        memory.resized_at = now if memory.num_workers is not None else None
        memory.num_workers = status["num_workers"]
    _measure_steps(memory, status["step"], now)
    # Neither in use nor about to be: its driver has heard that it is to leave, and its worker is gone.
    busy = report.in_use | report.assigned
    closed = [f.slot for f in pool.held(job) if f.release_asked_at is not None and f.slot not in busy]
    released = [slot for slot in pool.kept(job) if slot in report.given_up]
    trains = job.stage is Stage.STARTING and status["num_workers"] > 0
    progress = None
    if job.progress is None or now - job.progress.time >= _PROGRESS_EVERY_S or trains:
        progress = Progress(
            time=now,
            num_workers=status["num_workers"],
            step=status["step"],
            epoch=status["epoch"],
            loss=status["loss"],
            samples_per_s=status["samples_per_s"],
            step_s=memory.step_s,
        )
    if not (closed or released or trains or progress):
        return None
    return JobChange(
        job=job.id,
        seen_stage=job.stage,
        seen_attempt=job.attempt,
        stage=Stage.RUNNING if trains else None,
        reason="its workers train" if trains else "no worker can train in this slot" if released else "",
        closed=tuple(closed),
        released=tuple(released),
        progress=progress,
    )


def _measure_steps(memory: Memory, step: int | None, now: float) -> None:
    if step is None:
        return
    if memory.last_step is not None:
        last, at = memory.last_step
        if step <= last:
            return
        step_s = (now - at) / (step - last)
        known = memory.step_s
        memory.step_s = step_s if known is None else known + _STEP_SMOOTHING * (step_s - known)
    memory.last_step = (step, now)


# ---------------------------------------------------------------- decide


def make_snapshot(
    pool: Pool,
    reports: Mapping[str, DriverReport],
    memories: Mapping[str, Memory],
    works: Mapping[str, Work],
    now: float,
) -> policy.Snapshot:
    """Return what the policy sees.

    Args:
        pool: the facts.
        reports: of the drivers.
        memories: of the loop.
        works: what the jobs run, as far as known.
        now: this moment.
    """
    holders = {found.slot: found for found in pool.facts.allocations}
    in_play = {job.id: job for job in pool.facts.jobs if _is_in_play(job)}
    slots = tuple(
        policy.Slot(
            id=slot.id,
            node=slot.node,
            device=slot.device,
            holder=holders[slot.id].job if slot.id in holders else None,
            leaving=slot.id in holders
            and (holders[slot.id].release_asked_at is not None or holders[slot.id].job not in in_play),
            usable=slot.unusable_since is None,
        )
        for slot in pool.facts.slots
    )
    queues = tuple(
        policy.Queue(name=queue.name, weight=queue.weight, floor=queue.floor, ceiling=queue.ceiling)
        for queue in pool.facts.queues
    )
    jobs = tuple(
        _describe(pool, job, reports.get(job.id), memories.get(job.id), works.get(job.id)) for job in in_play.values()
    )
    return policy.Snapshot(now=now, slots=slots, jobs=jobs, queues=queues)


def _is_in_play(job: Job) -> bool:
    return job.stage in (Stage.QUEUED, Stage.STARTING, Stage.RUNNING)


def _describe(
    pool: Pool, job: Job, report: DriverReport | None, memory: Memory | None, work: Work | None
) -> policy.Job:
    max_workers = job.max_workers
    if memory is not None and memory.given_up:
        # What failed in one slot would fail in the next one too, until the job is started anew.
        max_workers = max(job.min_workers, min(max_workers, len(pool.kept(job))))
    return policy.Job(
        id=job.id,
        name=job.name,
        owner=job.owner,
        queue=job.queue,
        submitted_at=job.submitted_at,
        min_workers=job.min_workers,
        max_workers=max_workers,
        priority=job.priority,
        elastic=job.is_elastic,
        num_micro_batches=work.num_micro_batches if work else None,
        standing=_standing(pool, job, report),
        wanted=memory.wanted if memory else None,
        wanted_since=memory.wanted_since if memory else None,
        last_resized_at=memory.resized_at if memory else None,
        resize_cost_s=job.progress.resize_s if job.progress else None,
    )


def _standing(pool: Pool, job: Job, report: DriverReport | None) -> Standing:
    if job.stage is Stage.QUEUED:
        return Standing.PAUSED if job.attempt > 0 else Standing.WAITING
    if report is None or report.status is None or report.state is not DriverState.RUNNING:
        # Its driver starts, or hangs, or was killed: until that is known nothing is added to it.
        return Standing.RESIZING
    status: dict[str, Any] = report.status
    settled = report.assigned == frozenset(pool.kept(job)) and report.in_use == report.assigned - report.given_up
    trains = status["num_workers"] == len(report.assigned or ()) - len(report.given_up)
    return Standing.RUNNING if settled and trains else Standing.RESIZING


def carry_out(pool: Pool, decisions: policy.Decisions, memories: dict[str, Memory]) -> list[JobChange]:
    """Return what the policy's decisions change in the store."""
    jobs = {job.id: job for job in pool.facts.jobs}
    changes = []
    for decision in decisions.decisions:
        job = jobs[decision.job]
        memory = memories.setdefault(job.id, Memory(job.attempt))
        memory.wanted, memory.wanted_since = decision.wanted, decision.wanted_since
        kept = set(pool.kept(job))
        granted = sorted(set(decision.slots) - kept)
        if job.stage is not Stage.QUEUED and not kept:
            # Paused by the policy, and still leaving: it begins anew when it is gone.
            granted = []
        verdict = Verdict(len(decision.slots), decision.reason)
        changed = (job.decided_slots, job.decided_reason) != (verdict.num_slots, verdict.reason)
        released = sorted(kept - set(decision.slots))
        if not (granted or released or changed):
            continue
        starts = job.stage is Stage.QUEUED and bool(granted)
        changes.append(
            JobChange(
                job=job.id,
                seen_stage=job.stage,
                seen_attempt=job.attempt,
                stage=Stage.STARTING if starts else None,
                reason=decision.reason,
                granted=tuple(granted),
                released=tuple(released),
                verdict=verdict,
            )
        )
    return changes


# ---------------------------------------------------------------- apply


def list_calls(pool: Pool, reports: Mapping[str, DriverReport]) -> list[Call]:
    """Return what the drivers must be told so that they do what the store says."""
    calls: list[Call] = []
    for job in pool.facts.jobs:
        if job.stage in HOLDING:
            report = reports.get(job.id)
            if report is None or report.attempt != job.attempt:
                report = DriverReport(attempt=job.attempt, state=DriverState.UNKNOWN)
            calls.extend(_calls_of(pool, job, report))
    return calls


def _calls_of(pool: Pool, job: Job, report: DriverReport) -> Sequence[Call]:
    if report.state in (DriverState.UNKNOWN, DriverState.GONE):
        # Also of a job that is to end: only its driver can end what may still run.
        slots = tuple(pool.kept(job)) or tuple(sorted(found.slot for found in pool.held(job)))
        reason = "its driver died" if report.state is DriverState.GONE else job.reason
        return [Start(job, slots, reason)]
    if report.state is not DriverState.RUNNING:
        return []
    if job.stage in (Stage.PAUSING, Stage.STOPPING):
        return [End(job, job.stage is Stage.STOPPING and job.stop_now, job.reason)]
    if pool.is_paused_by_policy(job):
        return [End(job, now=False, reason=job.decided_reason or "paused by the policy")]
    kept = frozenset(pool.kept(job))
    status: dict[str, Any] = report.status or {}
    bounds = (status["min_workers"], status["max_workers"])
    if report.assigned == kept and bounds == (job.min_workers, job.max_workers):
        return []
    reason = job.decided_reason or job.reason
    said = Assignment(slots=kept, min_workers=job.min_workers, max_workers=job.max_workers, reason=reason)
    return [Tell(job, said)]
