"""Changes of the store that follow from the drivers' reports. Pure functions.

No I/O and no clock. `deciding` makes the decisions; `driver_calls` makes the messages to drivers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from legato.api.jobs import Progress
from legato.control.drivers.drivers import DriverReport, DriverState
from legato.control.loop.driver_failures import pause_after, reason_with
from legato.control.loop.left_out import describe
from legato.control.loop.loop_state import Memory, RoundFacts, memory_of
from legato.control.records import Job, JobChange, Note
from legato.control.stages import HOLDING, Stage
from legato.core.slots import node_of
from legato.core.speed import MAX_SPEEDS, Speed, is_possible
from legato.driver.ending import EXIT_KILLED
from legato.driver.journal import Outcome

_PROGRESS_EVERY_S: Final = 1.0
_MAX_REASON: Final = 1000
_LONG_S: Final = 120.0
_EXIT_REFUSED: Final = 2  # the exit code of a program that could not be started
_NOT_STARTED: Final = "the scheduler took its slots back before it started; it resumes by itself when slots are free"
_ELSEWHERE: Final = (
    "was not found: the job's directory is in another home, or was deleted. Restore it, or stop the "
    "job: Legato then no longer waits for its driver and its workers"
)


def attempts_to_ask(pool: RoundFacts) -> dict[str, int]:
    """Return the attempts whose drivers are asked for a report."""
    return {job.id: job.attempt for job in pool.facts.jobs if job.stage in HOLDING}


def fail_unreadable(pool: RoundFacts, unreadable: Mapping[str, str]) -> list[JobChange]:
    """Return changes that fail waiting jobs with an unreadable spec. ``unreadable``: the reason, by job."""
    return [
        JobChange(
            job=job.id,
            seen_stage=job.stage,
            seen_attempt=job.attempt,
            stage=Stage.FAILED,
            reason=f"it cannot be started: {unreadable[job.id].removesuffix('.')}. Submit it again",
            exit_code=_EXIT_REFUSED,
        )
        for job in pool.facts.jobs
        if job.stage is Stage.QUEUED and job.id in unreadable
    ]


def learn(
    pool: RoundFacts, reports: Mapping[str, DriverReport], memories: dict[str, Memory], now: float
) -> list[JobChange]:
    """Return the changes that the reports cause: stages, slots that are confirmed free, progress."""
    changes = []
    usable = pool.usable_nodes()
    for memory in memories.values():
        memory.forget_nodes(memory.refusals.keys() - usable)
    for job in pool.facts.jobs:
        report = reports.get(job.id)
        try:
            change = _learn_one(pool, job, report, memories, now)
        except Exception as error:  # noqa: BLE001 -- a report may contain anything; the other reports are still used
            change = _with_note(job, None, f"sends an invalid report: {describe(error)}")
        if change is not None:
            changes.append(change)
    for job_id in set(memories) - {job.id for job in pool.facts.jobs}:
        del memories[job_id]
    return changes


def _learn_one(
    pool: RoundFacts, job: Job, report: DriverReport | None, memories: dict[str, Memory], now: float
) -> JobChange | None:
    if (known := memories.get(job.id)) is not None:
        wants = job.stage in (Stage.QUEUED, Stage.STARTING, Stage.RUNNING)
        known.forget_the_future(now)
        known.account = known.account.until(now, len(pool.held(job)), goes_on=wants)
    if report is None or report.attempt != job.attempt or job.stage not in HOLDING:
        return None
    memory = memory_of(job, memories)
    memory.see_bounds(job)
    memory.failures = memory.failures.after(report.state, now, is_under_way=report.is_under_way)
    change = None
    if report.state is DriverState.ENDED:
        memory.note_refusals(report.refusals, report.refusals)
        change = _learn_end(pool, job, report, now)
        if report.refusals and change.stage in (Stage.FAILED, Stage.QUEUED):
            change = _go_elsewhere(pool, job, memory, change)
    elif report.state is DriverState.RUNNING:
        change = _learn_progress(pool, job, report, memory, now)
    elif report.state is DriverState.UNKNOWN:
        change = _learn_absence(pool, job, report, memory, now)
    is_elsewhere = report.state is DriverState.UNKNOWN and _is_elsewhere(pool, job, report)
    if change is not None and change.is_retry and change.stage is Stage.QUEUED:
        # Without a pause, a program that fails at its start would use up the job's retries in a moment.
        memory.again_at = now + pause_after(job.num_retries)
    return _with_note(
        job, change, (report.trouble or _ELSEWHERE) if is_elsewhere else memory.failures.describe(report, now)
    )


def _with_note(job: Job, change: JobChange | None, trouble: str | None) -> JobChange | None:
    """Add the driver's failure to a job's reason, unless the reason has it or the job changes its stage anyway."""
    reason = job.reason if trouble is None else reason_with(job.reason, trouble)
    if reason == job.reason or (change is not None and change.stage is not None):
        return change
    note = Note(reason, f"its driver {trouble or 'answers again'}")
    if change is not None:
        return msgspec.structs.replace(change, note=note)
    return JobChange(job=job.id, seen_stage=job.stage, seen_attempt=job.attempt, note=note)


def _learn_absence(pool: RoundFacts, job: Job, report: DriverReport, memory: Memory, now: float) -> JobChange | None:
    """Handle an attempt of which nothing was ever started: end it if it is not needed any more or cannot be started."""
    outcome, reason = None, reason_with(job.reason, "")
    if _is_elsewhere(pool, job, report):
        # Its workers may still train. The user who stops the job is responsible for them.
        if job.stage is not Stage.STOPPING:
            return None
        outcome = Outcome(
            "stopped", EXIT_KILLED, f"{reason}; its driver was not found, and Legato no longer waits for it"
        )
    elif job.stage is not Stage.STARTING or not pool.kept(job):
        outcome = Outcome("stopped", 0, f"{reason}; it had not started")
    elif memory.failures.is_hopeless(now):
        outcome = Outcome("failed", _EXIT_REFUSED, memory.failures.describe_end(report))
    if outcome is not None:
        ended = DriverReport(attempt=job.attempt, state=DriverState.ENDED, outcome=outcome)
        change = _learn_end(pool, job, ended, now)
        if change.stage is Stage.QUEUED and not change.is_retry:
            return msgspec.structs.replace(change, reason=_NOT_STARTED)
        return change
    closed = tuple(found.slot for found in pool.held(job) if found.release_asked_at is not None)
    if not closed:
        return None
    return JobChange(job=job.id, seen_stage=job.stage, seen_attempt=job.attempt, closed=closed)


def _is_elsewhere(pool: RoundFacts, job: Job, report: DriverReport) -> bool:
    """Whether the present attempt has run where this server does not see its driver.

    The report says that it is on another machine; or the store says that it has run, although this home has no files of
    its driver.
    """
    if report.trouble:
        return True
    if job.stage in (Stage.STARTING, Stage.RUNNING) or job.progress is None:
        return job.stage is Stage.RUNNING
    return any(job.progress.time >= found.since for found in pool.held(job))


def _learn_end(pool: RoundFacts, job: Job, report: DriverReport, now: float) -> JobChange:
    outcome = report.outcome
    assert outcome is not None
    # A job without its last checkpoint is incomplete; a retry repeats the missing steps.
    is_unsaved = outcome.outcome == "unsaved"
    stage, is_retry, reason = Stage.FAILED if is_unsaved else Stage(outcome.outcome), False, outcome.reason
    may_retry = job.stage is not Stage.STOPPING and job.num_retries < job.max_retries
    if stage is Stage.FAILED and may_retry:
        is_retry, wait = True, " when it is resumed" if job.stage is Stage.PAUSING else ""
        stage = Stage.PAUSED if job.stage is Stage.PAUSING else Stage.QUEUED
        reason = f"is retried{wait} ({job.num_retries + 1} of {job.max_retries}): {outcome.reason}"
    elif stage is Stage.STOPPED and job.stage is Stage.PAUSING:
        stage, reason = Stage.PAUSED, _describe_unsaved(outcome, "when it is resumed, it will go back") or reason
    elif stage is Stage.STOPPED and job.stage is Stage.STOPPING:
        reason = _describe_stop(job, outcome)
    elif stage is Stage.STOPPED and pool.is_paused_by_policy(job):
        unsaved = _describe_unsaved(outcome, "it will go back")
        stage = Stage.QUEUED
        reason = f"{unsaved or 'paused, its state is saved'}; it resumes by itself when slots are free"
    return JobChange(
        job=job.id,
        seen_stage=job.stage,
        seen_attempt=job.attempt,
        stage=stage,
        reason=reason,
        closed=tuple(found.slot for found in pool.held(job)),
        progress=_last_progress(job, report, now),
        exit_code=None if stage in (Stage.QUEUED, Stage.PAUSED) else outcome.exit_code,
        is_retry=is_retry,
    )


def _go_elsewhere(pool: RoundFacts, job: Job, memory: Memory, change: JobChange) -> JobChange:
    """Let a job that only failed because machines refused it begin on others, if the pool has any."""
    if job.stage not in (Stage.STARTING, Stage.RUNNING) or pool.usable_nodes() <= memory.refusals.keys():
        return change
    told = "; ".join(f"node {node} has refused it: {memory.refusals[node]}" for node in sorted(memory.reported))
    return msgspec.structs.replace(
        change,
        stage=Stage.QUEUED,
        exit_code=None,
        is_retry=False,
        reason=f"{told}; it starts on others when slots are free",
    )


def _describe_stop(job: Job, outcome: Outcome) -> str:
    """Return the reason of a job that was stopped, also if its driver had ended it before for another reason."""
    asked = reason_with(job.reason, "")
    if outcome.reason.startswith(asked):
        return outcome.reason
    # Such as a pause: the driver had not received the stop yet.
    return asked if outcome.exit_code == 0 else f"{asked}; it was ending already: {outcome.reason}"


def _last_progress(job: Job, report: DriverReport, now: float) -> Progress | None:
    """Return a job's last step, epoch and loss, and the numbers of all steps and of their micro-batches.

    None if the driver had reported them all before.
    """
    seen = job.progress or Progress(time=now)
    if report.step is None or report.step <= (seen.step or 0):
        known = seen
    else:
        epoch = seen.epoch if report.epoch is None else report.epoch
        known = msgspec.structs.replace(seen, step=report.step, epoch=epoch)
    if report.loss is not None and (report.step or 0) >= (seen.step or 0):
        # The loss that the driver reported may be that of an earlier step.
        known = msgspec.structs.replace(known, loss=report.loss if math.isfinite(report.loss) else None)
    if report.num_steps is not None:
        known = msgspec.structs.replace(known, num_steps=report.num_steps)
    if known.num_micro_batches is None and (report.num_micro_batches or 0) > 0:
        # The job ended before a round of the loop had its status.
        known = msgspec.structs.replace(
            known, num_micro_batches=report.num_micro_batches, shares_freely=report.shares_freely
        )
    return None if known == seen else known


def _describe_unsaved(outcome: Outcome, what_follows: str) -> str | None:
    """Return the warning that a job was paused without a checkpoint of its last step; None if there is one."""
    if outcome.exit_code == 0:
        return None
    why = "its workers were killed" if outcome.exit_code == EXIT_KILLED else outcome.reason
    return f"paused, but its state could not be saved: {why}; {what_follows} to the last checkpoint"


def _learn_progress(pool: RoundFacts, job: Job, report: DriverReport, memory: Memory, now: float) -> JobChange | None:
    status: dict[str, Any] = report.status or {}
    assert report.in_use is not None and report.assigned is not None
    returned = {node_of(slot) for slot in pool.kept(job) if slot in report.given_up}
    memory.note_refusals(report.refusals, returned)
    # Slots of other machines can replace those of a machine that cannot run the job.
    failed = {slot for slot in report.given_up if node_of(slot) not in report.refusals}
    if failed - memory.given_up:
        memory.given_up |= failed
        memory.most = len(set(pool.kept(job)) - report.given_up)
    if memory.num_workers != status["num_workers"]:
        # The start of an attempt is not a resize.
        memory.resized_at = now if memory.num_workers else None
        memory.num_workers = status["num_workers"]
    memory.pace = memory.pace.after(status["step"], status["num_workers"], now)
    # The slot is free: its driver knows that it must give the slot back, and the worker has ended.
    busy = report.in_use | report.assigned
    closed = [f.slot for f in pool.held(job) if f.release_asked_at is not None and f.slot not in busy]
    released = [slot for slot in pool.kept(job) if slot in report.given_up | report.surplus]
    trains = job.stage is Stage.STARTING and status["num_workers"] > 0
    does = "work" if status.get("state") == "working" else "train"
    before = job.progress
    progress, division = None, _division_of(before, status)
    is_news = before is None or division != (before.num_micro_batches, before.shares_freely)
    if is_news or before is None or not 0 <= now - before.time < _PROGRESS_EVERY_S or trains:
        progress = Progress(
            time=now,
            num_workers=status["num_workers"],
            step=status["step"],
            num_steps=status.get("num_steps"),
            epoch=status["epoch"],
            loss=status["loss"],
            samples_per_s=status["samples_per_s"],
            step_s=memory.pace.step_s,
            resize_s=_resize_s(job, status, memory),
            speeds=_merge_speeds(before, status, now),
            num_micro_batches=division[0],
            shares_freely=division[1],
            differed_step=status.get("differed_step"),
            sent_bytes=max((status.get("sent_bytes") or {}).values(), default=None),
            unconnected=(status.get("unconnected") or "")[:_MAX_REASON] or None,  # written by a worker
            data_wait=status.get("data_wait"),
            **{name: status.get(name) for name in ("cpus", "memory_bytes", "gpu_busy", "gpu_memory_bytes")},
        )
    if not (closed or released or trains or progress):
        return None
    return JobChange(
        job=job.id,
        seen_stage=job.stage,
        seen_attempt=job.attempt,
        stage=Stage.RUNNING if trains else None,
        reason=f"its workers {does}" if trains else _why_released(released, report, division[0]),
        closed=tuple(closed),
        released=tuple(released),
        progress=progress,
    )


def _division_of(before: Progress | None, status: Mapping[str, Any]) -> tuple[int | None, bool]:
    """Return the number of micro-batches per step, and whether each step is divided among any number of workers.

    Until a worker of this attempt reports them, the values of the attempt before count. The program may have changed
    since.
    """
    known = status.get("num_micro_batches")
    if known is None and before is not None and not status["num_workers"]:
        return before.num_micro_batches, before.shares_freely
    if known is not None and known < 1:
        # A program may report any value, and the policy divides by it in a decision on all jobs.
        known = None
    return known, bool(status.get("shares_freely"))


def _why_released(released: Sequence[str], report: DriverReport, num_micro_batches: int | None) -> str:
    if not released:
        return ""
    if not report.surplus.issuperset(released):
        told = [f"node {node} has refused it: {reason}" for node, reason in sorted(report.refusals.items())]
        return "; ".join(told) or "no worker can train in this slot"
    many = "micro-batch" if num_micro_batches == 1 else "micro-batches"
    return f"its step has only {num_micro_batches} {many}, so another worker cannot help"


def _merge_speeds(before: Progress | None, status: Mapping[str, Any], now: float) -> tuple[Speed, ...]:
    """Return the speeds that the driver has measured, and those of earlier drivers and attempts for other sizes."""
    speeds = {(speed.num_workers, speed.num_nodes): speed for speed in before.speeds} if before is not None else {}
    for told in status.get("speeds") or ():
        speed = Speed(
            num_workers=told["num_workers"],
            num_nodes=told["num_nodes"],
            samples_per_s=told["samples_per_s"],
            measured_s=told["measured_s"],
            at=now - max(told["age_s"], 0.0),
        )
        size = (speed.num_workers, speed.num_nodes)
        known = speeds.get(size)
        if not is_possible(speed) or (known is not None and speed.measured_s < min(known.measured_s, _LONG_S)):
            continue  # a new driver has measured for less time than the one before
        speeds[size] = speed
    return tuple(sorted(speeds.values(), key=lambda speed: speed.at)[-MAX_SPEEDS:])


def _resize_s(job: Job, status: Mapping[str, Any], memory: Memory) -> float | None:
    """Return the cost of a resize in seconds: measured by the driver, else by this loop, else the last known value."""
    before = job.progress.resize_s if job.progress else None
    known = (status.get("resize_s"), memory.pace.resize_s, before)
    return next((resize_s for resize_s in known if resize_s is not None), None)
