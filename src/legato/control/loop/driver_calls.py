"""The messages that drivers need after a round, as pure functions: the store compared with the drivers' reports.

A later round repeats a call that was lost in a crash, because the comparison finds the same difference. `driver_caller`
sends the messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from legato.control.drivers.drivers import Assignment, DriverReport, DriverState
from legato.control.loop.driver_failures import reason_with
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import Memory, RoundFacts, memory_of
from legato.control.records import Job
from legato.control.stages import HOLDING, Stage
from legato.control.work import find_bounds


class Start(msgspec.Struct, frozen=True):
    """Start the driver of a job's present attempt, or start it again if it died.

    ``slots``: one for each worker; those of a worker with several GPUs are joined to one.
    """

    job: Job
    slots: tuple[str, ...]


class GiveUp(msgspec.Struct, frozen=True):
    """End an attempt whose driver dies after each start."""

    job: Job
    reason: str


class Kill(msgspec.Struct, frozen=True):
    """Kill a driver that does not answer. A later round starts a new one."""

    job: Job


class SendSlots(msgspec.Struct, frozen=True):
    """Send a driver its slots."""

    job: Job
    said: Assignment


class End(msgspec.Struct, frozen=True):
    """Ask a driver to end its job with a checkpoint, or ``now`` without."""

    job: Job
    now: bool
    reason: str


Call = Start | GiveUp | Kill | SendSlots | End


def list_calls(
    pool: RoundFacts, reports: Mapping[str, DriverReport], memories: dict[str, Memory], now: float, left_out: LeftOut
) -> list[Call]:
    """Return the messages that make the drivers do what the store says."""
    calls: list[Call] = []
    for job in pool.facts.jobs:
        if job.stage in HOLDING:
            with left_out.unless_fails(job.id, "what its driver reports"):
                calls.extend(_list_calls_of_one(pool, job, reports.get(job.id), memories, now))
    return calls


def _list_calls_of_one(
    pool: RoundFacts, job: Job, report: DriverReport | None, memories: dict[str, Memory], now: float
) -> Sequence[Call]:
    if report is None or report.attempt != job.attempt:
        report = DriverReport(attempt=job.attempt, state=DriverState.UNKNOWN)
    if report.state in (DriverState.UNKNOWN, DriverState.GONE):
        return _starts_of(pool, job, report, memory_of(job, memories), now)
    if report.state in (DriverState.STARTING, DriverState.SILENT):
        return _kills_of(job, report, memory_of(job, memories), now)
    return _calls_of(pool, job, report)


def _starts_of(pool: RoundFacts, job: Job, report: DriverReport, memory: Memory, now: float) -> Sequence[Call]:
    is_gone, failures = report.state is DriverState.GONE, memory.failures
    if is_gone and failures.is_hopeless(now):
        memory.failures = failures.tried(now)
        return [GiveUp(job, failures.describe_end(report))]
    # Also start the driver of a job that is about to end: only a driver can end the processes that may still run.
    slots = tuple(pool.kept(job))
    is_startable = is_gone or (job.stage is Stage.STARTING and bool(slots) and not report.trouble)
    if not is_startable or not failures.may_try(now):
        return []
    memory.failures = failures.tried(now)
    return [Start(job, tuple(pool.workers(job, slots or [found.slot for found in pool.held(job)])))]


def _kills_of(job: Job, report: DriverReport, memory: Memory, now: float) -> Sequence[Call]:
    hurries = job.stage is Stage.STOPPING and job.stop_now
    if not memory.failures.is_lost(report.state, now, hurries=hurries):
        return []
    memory.failures = memory.failures.killed(now)
    return [Kill(job)]


def _calls_of(pool: RoundFacts, job: Job, report: DriverReport) -> Sequence[Call]:
    if report.state is not DriverState.RUNNING:
        return []
    if job.stage in (Stage.PAUSING, Stage.STOPPING):
        return [End(job, job.stage is Stage.STOPPING and job.stop_now, reason_with(job.reason, ""))]
    if pool.is_paused_by_policy(job):
        return [End(job, now=False, reason=job.decided_reason or "paused by the policy")]
    kept = frozenset(pool.kept(job))
    status: dict[str, Any] = report.status or {}
    workers = frozenset(pool.workers(job, kept))
    bounds = find_bounds(job, len(workers))
    if report.assigned == kept and bounds == (status["min_workers"], status["max_workers"]):
        return []
    reason = job.decided_reason or reason_with(job.reason, "")
    return [SendSlots(job, Assignment(slots=workers, min_workers=bounds[0], max_workers=bounds[1], reason=reason))]
