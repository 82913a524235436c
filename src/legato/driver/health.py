"""Deadlines: finds the workers that are overdue, and the time of the next check. Pure, except `forgive`.

A silent worker is not necessarily lost: a program may hold Python's lock for a minute, or the machine may be
overloaded. So the engine examines its process, and the result decides:

- stopped: fenced when it has neither said nor computed anything for `stopped_limit_s`;
- gone: fenced when it has neither said nor computed anything for ``heartbeat_limit_s``;
- busy: not replaced while it is busy;
- neither, so it only waits: fenced after ``collective_limit_s`` without progress; one that trains alone is only
  warned of as long as its heartbeats come and no worker is ready to join, because no other worker waits for it;
- its heartbeats do not say whether it waits for others, because it is of an earlier release: fenced when no worker of
  its view has made progress or computed for twice that time. After once that time such workers give up by themselves;
- the engine cannot tell: fenced when it has been silent for ``heartbeat_limit_s``;
- its machine does not answer: given up after ``collective_limit_s``. The engine reports the loss of the machine, or its
  answers come again, long before that;
- its node is lost: not judged here, see `nodes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.spec import JobSpec
from legato.driver.job import JobFacts, Worker
from legato.driver.plan import propose_again_s

_STOPPED_SHARE: Final = 0.2
# Workers in these phases end by themselves or by their deadline, so their silence does not matter.
_UNHEARD: Final = (WorkerPhase.STARTING, WorkerPhase.LEAVING, WorkerPhase.FAILED, WorkerPhase.FENCED)


def stopped_limit_s(spec: JobSpec) -> float:
    """Return for how many seconds a stopped process may be silent: less than others, because no load stops a process.

    It is a part of ``heartbeat_limit_s``, so that who debugs a worker raises both by one option.
    """
    return max(spec.heartbeat_limit_s * _STOPPED_SHARE, 2 * spec.heartbeat_interval_s)


def suspects(job: JobFacts, now: float) -> list[int]:
    """Return the workers whose processes the engine must examine for the next tick."""
    limit_s = job.spec.heartbeat_limit_s
    found = []
    for worker in job.present():
        if _is_heard(job, worker):
            is_silent = now - worker.last_heard >= stopped_limit_s(job.spec) / 2
            is_due = now - worker.evidence.taken_at >= limit_s / 4
            if is_silent or (is_due and _may_be_stuck(job, worker) and now - worker.progressed_at >= limit_s):
                found.append(worker.number)
        elif job.is_lost(worker):
            continue
        elif worker.phase is WorkerPhase.STARTING and worker.deadline is not None and now >= worker.deadline - limit_s:
            found.append(worker.number)
    return found


def decide_lapses(job: JobFacts) -> list[tuple[Worker, str]]:
    """Return the workers to fence now, with the reason for each."""
    lapses = []
    for worker in job.present():
        reason = None
        if job.is_lost(worker):
            continue
        if worker.deadline is not None and job.now >= worker.deadline:
            # A start may take long where the machine is busy.
            if not (worker.phase is WorkerPhase.STARTING and _is_busy(job, worker)):
                reason = worker.deadline_reason
        elif _is_heard(job, worker):
            judge = _judge_silence if is_silent(job, worker) else _judge_idleness
            reason = _judge_stop(job, worker) or judge(job, worker)
        if reason is not None:
            lapses.append((worker, reason))
    return lapses


def is_silent(job: JobFacts, worker: Worker) -> bool:
    """Whether no message of a worker has come within the limit."""
    return _is_heard(job, worker) and job.now - worker.last_heard >= job.spec.heartbeat_limit_s


def describe_spared(job: JobFacts, worker: Worker) -> str:
    """Describe why a silent worker is not fenced."""
    told = f"worker {worker.number} is silent for {job.now - worker.last_heard:.1f} s, but its process"
    if _is_busy(job, worker) or worker.evidence.state == "running":
        return (
            f"{told} computes, so Legato does not replace it. Either the machine is overloaded, or a library that the "
            "program "
            "calls holds Python's lock (the GIL) that long"
        )
    limit_s = job.spec.collective_limit_s
    if worker.evidence.unreachable_at > worker.evidence.taken_at:
        return (
            f"worker {worker.number} is silent for {job.now - worker.last_heard:.1f} s, and its machine does not answer"
        )
    return f"{told} is alive and waits for something; it is given up if it makes no progress within {limit_s:g} s"


def find_deadlock(job: JobFacts) -> str | None:
    """Describe a deadlock: all members have waited for one another for too long. None if there is none."""
    view, limit_s = job.current, job.spec.collective_limit_s
    if view is None or job.broken_since is not None or not all(_may_be_stuck(job, m) for m in job.members()):
        return None
    idle_s = _view_idle_s(job)
    if idle_s < limit_s or not all(member.is_waiting for member in job.members()):
        return None
    return f"all workers of view {view.number} have waited for one another for {idle_s:.0f} s: a deadlock"


def _view_idle_s(job: JobFacts) -> float:
    """Return for how many seconds no member of the view in force has made progress or computed."""
    latest = max(max(member.progressed_at, member.evidence.busy_at) for member in job.members())
    return job.now - max(latest, job.in_force_since)


def describe_idleness(job: JobFacts, worker: Worker) -> str | None:
    """Describe that the only worker of a job has waited for long; None if it has not, or if others wait for it."""
    idle_s = _idle_s(job, worker)
    if idle_s is None or not _is_alone(job) or idle_s < job.spec.collective_limit_s:
        return None
    return (
        f"worker {worker.number} has made no progress for {idle_s:.0f} s and uses no CPU. Legato does not replace "
        "it, because no "
        "other worker waits for it: it may sleep, or wait for a slow disk. If its program hangs, stop the job. This "
        "warning comes after collective_limit_s (--collective-limit)"
    )


def _judge_stop(job: JobFacts, worker: Worker) -> str | None:
    evidence, limit_s = worker.evidence, stopped_limit_s(job.spec)
    # Two samples at least: one may hit a moment in which a debugger or a tracer looks at the process.
    is_stopped = (
        job.now - evidence.taken_at <= limit_s / 2 and evidence.taken_at - evidence.stopped_since >= limit_s / 4
    )
    if not is_stopped or job.now - max(worker.last_heard, evidence.busy_at) < limit_s:
        return None
    return f"{_describe_silence(job, worker)}: its process is stopped"


def _describe_silence(job: JobFacts, worker: Worker) -> str:
    how = "is not connected and is" if worker.away else "is"
    return f"{how} silent for {job.now - worker.last_heard:.1f} s"


def _judge_silence(job: JobFacts, worker: Worker) -> str | None:
    spec, evidence = job.spec, worker.evidence
    told = _describe_silence(job, worker)
    if job.now - evidence.unreachable_at <= spec.heartbeat_limit_s / 2:
        is_late = job.now - worker.last_heard >= spec.collective_limit_s
        return f"{told}, and its machine does not answer" if is_late else None
    if job.now - evidence.taken_at > spec.heartbeat_limit_s / 2:
        return told
    if evidence.state == "gone" and worker.phase is WorkerPhase.FINISHED:
        return None  # expected; the engine will report the exit code
    lost_s = job.now - max(worker.last_heard, evidence.busy_at)
    if evidence.state == "stopped":
        return None  # see `_judge_stop`
    if evidence.state == "gone":
        return f"{told}: its process is gone" if lost_s >= spec.heartbeat_limit_s else None
    return f"{told} and uses no CPU: it hangs" if lost_s >= spec.collective_limit_s else None


def _judge_idleness(job: JobFacts, worker: Worker) -> str | None:
    """Judge a worker whose heartbeats come: its program may hang nevertheless."""
    limit_s, idle_s = job.spec.collective_limit_s, _idle_s(job, worker)
    if idle_s is None or _is_alone(job):
        return None
    if worker.is_waiting is None:
        # It may wait for another worker that computes, so it hangs only if no member of the view makes progress.
        idle_s = _view_idle_s(job)
        if idle_s < 2 * limit_s:
            return None
        return (
            f"has made no progress for {idle_s:.0f} s, and neither has any other worker of its view, so its program "
            "hangs. It runs an earlier release of Legato, which does not report whether it waits for others"
        )
    if idle_s < limit_s:
        return None
    return (
        f"has made no progress for {idle_s:.0f} s, uses no CPU and waits for no other worker: its program hangs. If "
        "it waits that long on purpose, raise the job's collective_limit_s (--collective-limit)"
    )


def _idle_s(job: JobFacts, worker: Worker) -> float | None:
    """Return for how many seconds the program of a worker with heartbeats has only waited; None if unknown."""
    is_known = job.now - worker.evidence.taken_at <= 2 * job.spec.heartbeat_limit_s
    if worker.is_waiting or not is_known or not _may_be_stuck(job, worker):
        return None
    return job.now - max(worker.progressed_at, worker.evidence.busy_at, job.in_force_since)


def _is_alone(job: JobFacts) -> bool:
    """Whether no other worker waits for this one: the view in force has one worker, and none is ready to join."""
    is_single = job.current is not None and len(job.current.workers) == 1
    return is_single and not job.where(lambda worker: worker.phase is WorkerPhase.WARM)


def _is_busy(job: JobFacts, worker: Worker) -> bool:
    return job.now - worker.evidence.busy_at <= job.spec.heartbeat_limit_s


def _may_be_stuck(job: JobFacts, worker: Worker) -> bool:
    """Whether a worker must make progress, because it is in the view in force of a job that trains.

    A worker that still enters the view or receives the state counts too: all others wait for it, and operations between
    workers have no time limit.
    """
    is_member = job.current is not None and worker.number in job.current.workers
    return job.state is JobState.TRAINING and worker.active and is_member


def stall_s(job: JobFacts, last_tick: float) -> float:
    """Return for how many seconds the driver itself was suspended; 0.0 if its ticks came in time.

    A suspended driver receives no messages, so silence during that time says nothing about the workers.
    """
    late_s = job.now - last_tick - job.spec.heartbeat_interval_s
    return late_s if late_s > job.spec.heartbeat_limit_s / 2 else 0.0


def forgive(job: JobFacts, stalled_s: float) -> None:
    """Shift every active deadline by the time for which the driver was suspended."""
    for worker in job.present():
        worker.last_heard = min(worker.last_heard + stalled_s, job.now)
        worker.progressed_at = min(worker.progressed_at + stalled_s, job.now)
        worker.evidence.forgive(stalled_s, job.now)
        if worker.deadline is not None:
            worker.deadline += stalled_s
    job.in_force_since = min(job.in_force_since + stalled_s, job.now)
    job.proposed_at = min(job.proposed_at + stalled_s, job.now)
    if job.end_by is not None:
        job.end_by += stalled_s


def allow_transfer(job: JobFacts, number: int) -> None:
    """Move the deadlines of a worker whose checkpoint is on its way: it is not late, and what it has said waits."""
    worker = job.workers.get(number)
    if worker is None or worker.phase in (WorkerPhase.FENCED, WorkerPhase.GONE):
        return
    later = job.now + job.spec.heartbeat_limit_s
    worker.last_heard = worker.progressed_at = job.now
    if worker.deadline is not None:
        worker.deadline = max(worker.deadline, later)
    if job.end_by is not None:
        job.end_by = max(job.end_by, later)


def next_deadline(job: JobFacts) -> float | None:
    """Return the next time at which a tick may change something; None if only events can."""
    return min((moment for moment in _moments(job) if moment > job.now), default=None)


def _is_heard(job: JobFacts, worker: Worker) -> bool:
    if job.is_lost(worker):
        return False  # its silence says nothing; the engine reports its end
    return worker.phase not in _UNHEARD or (worker.is_adopted and worker.phase is WorkerPhase.STARTING)


def _moments(job: JobFacts) -> Iterator[float]:
    spec = job.spec
    for worker in job.present():
        if job.is_lost(worker):
            continue
        if worker.deadline is not None:
            yield worker.deadline
        if _is_heard(job, worker):
            yield worker.last_heard + stopped_limit_s(spec)
            yield worker.last_heard + spec.heartbeat_limit_s
        if worker.phase is WorkerPhase.WARM:
            yield worker.since + (spec.form_patience_s if job.state is JobState.FORMING else spec.join_patience_s)
    yield from job.retry_at.values()
    if job.kept_until is not None and job.kept_until < math.inf:
        yield job.kept_until
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
