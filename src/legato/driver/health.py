"""Deadlines: which workers are overdue now, and when to look again. Pure but for `forgive`, which shifts deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from legato.core.lifecycle import JobState, WorkerPhase
from legato.driver.job import Job, Worker
from legato.driver.plan import propose_again_s

# These end by themselves or within their own deadline; a silent one is no reason to disturb the others.
_UNHEARD: Final = (WorkerPhase.STARTING, WorkerPhase.LEAVING, WorkerPhase.FAILED, WorkerPhase.FENCED)


def decide_lapses(job: Job) -> list[tuple[Worker, str]]:
    """Return the workers to fence now, each with the reason."""
    lapses = []
    for worker in job.present():
        if worker.deadline is not None and job.now >= worker.deadline:
            lapses.append((worker, worker.deadline_reason))
        elif _is_heard(worker) and job.now - worker.last_heard >= job.spec.heartbeat_limit_s:
            how = "has no connection and is" if worker.away else "is"
            lapses.append((worker, f"{how} silent for {job.now - worker.last_heard:.1f} s"))
    return lapses


def stall_s(job: Job, last_tick: float) -> float:
    """Return for how long the driver itself slept, 0.0 if its ticks came in time.

    A suspended driver has heard nobody, which says nothing about the workers.
    """
    late_s = job.now - last_tick - job.spec.heartbeat_interval_s
    return late_s if late_s > job.spec.heartbeat_limit_s / 2 else 0.0


def forgive(job: Job, stalled_s: float) -> None:
    """Move every deadline that was running by the time that the driver itself slept."""
    for worker in job.present():
        worker.last_heard = min(worker.last_heard + stalled_s, job.now)
        if worker.deadline is not None:
            worker.deadline += stalled_s
    job.in_force_since = min(job.in_force_since + stalled_s, job.now)
    job.proposed_at = min(job.proposed_at + stalled_s, job.now)
    if job.end_by is not None:
        job.end_by += stalled_s


def next_deadline(job: Job) -> float | None:
    """Return the next moment at which a tick may change something, None if only events can."""
    return min((moment for moment in _moments(job) if moment > job.now), default=None)


def _is_heard(worker: Worker) -> bool:
    return worker.phase not in _UNHEARD


def _moments(job: Job) -> Iterator[float]:
    spec = job.spec
    for worker in job.present():
        if worker.deadline is not None:
            yield worker.deadline
        if _is_heard(worker):
            yield worker.last_heard + spec.heartbeat_limit_s
        if worker.phase is WorkerPhase.WARM:
            yield worker.since + (spec.form_patience_s if job.state is JobState.FORMING else spec.join_patience_s)
    yield from job.rests.values()
    if job.broken_since is not None:
        yield job.broken_since + spec.broken_patience_s
    if job.current is not None and job.recovering is not None and job.unprepared(job.current):
        yield job.in_force_since + spec.prepare_limit_s
    if job.pending is not None:
        yield job.proposed_at + spec.prepare_limit_s
        if job.unbuilt is not None:
            yield job.proposed_at + propose_again_s(job)
    if job.end_by is not None:
        yield job.end_by
