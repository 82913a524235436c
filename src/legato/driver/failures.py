"""Losses of workers: exits, fences, deaths in a row. Does not decide what the rest of the job does."""

from __future__ import annotations

import signal
from typing import Final

from legato.core.exits import EXIT_LOST_LINK, EXIT_REFUSED, EXIT_UNSTARTED
from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.slots import node_of
from legato.core.wire import Failed
from legato.driver.ending import fail, give_up_slot, note_failed
from legato.driver.job import AWAY, JobFacts, Worker

_SIGNALLED = 128  # a shell or container reports a death by signal N as 128 + N
# Exit codes that are not the program's fault, so another worker is started.
_BLAMELESS_EXITS = {
    EXIT_LOST_LINK: "its connection to the driver failed; its log says why",
    EXIT_UNSTARTED: "no process could be started for it",
}
_BEFORE_ITS_END = (WorkerPhase.STARTING, WorkerPhase.JOINING, WorkerPhase.WARM, WorkerPhase.MEMBER)
_FIRST_RETRY_PAUSE_S = 1.0  # doubled with each death in a row


def note_exited(job: JobFacts, worker: Worker, exit_code: int, reason: str = "") -> None:
    """Handle the confirmed end of a worker's process, which frees its slot. ``reason``: what ended it, if known."""
    was = worker.phase
    if exit_code == EXIT_REFUSED:
        _note_refused(job, worker, reason)
    elif was in _BEFORE_ITS_END:
        blamed = 0 < exit_code < _SIGNALLED and exit_code not in _BLAMELESS_EXITS
        if blamed and job.state is not JobState.FAILING:
            told = reason or f"exited with code {exit_code} without a reason; its log may have one"
            note_failed(job, worker, Failed(error=told, traceback="", exit_code=exit_code))
    was_failed = worker.phase is WorkerPhase.FAILED
    worker.move(WorkerPhase.GONE, job.now, describe_exit(exit_code, reason))
    if job.state is JobState.FAILING or was_failed or exit_code == EXIT_REFUSED:
        return
    match was:
        case WorkerPhase.FENCED:
            job.record("left", f"fenced worker {worker.number} is gone", worker)
        case WorkerPhase.LEAVING:
            level = "info" if exit_code == 0 else "warning"
            job.record("left", f"worker {worker.number} left: {describe_exit(exit_code, reason)}", worker, level)
        case WorkerPhase.FINISHED if exit_code == 0:
            if worker.finished_in is not None and worker.finished_in[1] == 0:
                job.closed = True
            job.record("left", f"worker {worker.number} exited after finishing", worker)
        case WorkerPhase.FINISHED:
            note_death(job, worker, f"{describe_exit(exit_code, reason)} during its exit, after its program finished")
        case _ if worker.is_cut_off:
            # Not its slot's fault: without its driver it ended itself, or its agent ended it.
            told = f"worker {worker.number}, whose node was lost, has ended: {describe_exit(exit_code, reason)}"
            job.record("left", told, worker, "warning")
        case _:
            how = "exited without finishing" if exit_code == 0 else describe_exit(exit_code, reason)
            note_death(job, worker, how, is_explained=bool(reason))
    if exit_code == EXIT_UNSTARTED:
        # The machine has too little memory, or too many processes, for the moment.
        pause_s = _FIRST_RETRY_PAUSE_S * 2.0 ** (job.deaths.get(worker.slot, 1) - 1)
        job.retry_at[worker.slot] = job.now + pause_s


def _note_refused(job: JobFacts, worker: Worker, reason: str) -> None:
    """Give up the slot of a worker that was refused: by its machine, if there is a reason, or else by the driver."""
    # The machine counts as lost, so the worker that never started may be fenced already.
    is_by_machine = bool(reason) and worker.phase in (*_BEFORE_ITS_END, WorkerPhase.FENCED)
    if job.ending or not (is_by_machine or worker.phase in _BEFORE_ITS_END):
        return
    node = node_of(worker.slot)
    if is_by_machine and worker.slot in job.wanted:
        job.refusals[node] = reason
    told = f"cannot run on node {node}: {reason}" if reason else "reports that it was refused"
    give_up_slot(job, worker, "refused", f"worker {worker.number} {told}")


def fence(job: JobFacts, worker: Worker, reason: str) -> None:
    """Give a worker up and kill it. The other workers treat this as its death."""
    was = worker.phase
    job.kill(worker, reason)
    job.record("fenced", f"worker {worker.number} {reason}; it is killed", worker, "warning")
    if was not in (WorkerPhase.LEAVING, WorkerPhase.FAILED) and not _is_superseded(job, worker):
        _count_death(job, worker, reason)


def note_death(job: JobFacts, worker: Worker, how: str, *, is_explained: bool = False) -> None:
    """Handle the death of a worker that was not asked to end or given up. ``is_explained``: the cause is known."""
    # Give the advice once, because it is the same for all workers that die of the same cause.
    told = how.partition(". ")[0] if how in job.reported_deaths else how
    job.reported_deaths.add(how)
    job.record("died", f"worker {worker.number} died: {told}", worker, "warning")
    _count_death(job, worker, how, is_explained=is_explained)


def refuse(job: JobFacts, worker: Worker, reason: str) -> None:
    """Exclude a worker whose fingerprint differs from the others'."""
    job.leave_within(worker, job.spec.grace_s, reason)
    worker.farewell = "refused"
    job.send_refusal(worker.number, reason)
    give_up_slot(job, worker, "refused", reason)


def leave_out(job: JobFacts, node: str, reason: str) -> None:
    """Give up the workers of a node that cannot connect to the others, and their slots."""
    job.refusals[node] = reason
    job.record("refused", f"the job continues without node {node}: {reason}", level="error")
    for worker in job.where(lambda worker: node_of(worker.slot) == node and worker.phase not in AWAY):
        job.kill(worker, f"node {node} is left out")
        job.send_refusal(worker.number, f"node {node} is left out: {reason}")
        give_up_slot(job, worker, "refused", f"worker {worker.number} on node {node} is killed")


def note_commit(job: JobFacts, worker: Worker, *, step: int = 0, num_rounds: int = 0) -> None:
    """Reset the counts of failures after a member has made progress."""
    if not worker.has_state or (step <= job.best_step and num_rounds <= job.best_round):
        return
    job.best_step = max(job.best_step, step)
    job.best_round = max(job.best_round, num_rounds)
    job.num_breaks = 0
    for member in job.members():
        job.deaths.pop(member.slot, None)


def give_up(job: JobFacts, number: int, reason: str) -> None:
    """Fence a worker that a plugin gives up, unless it has ended already."""
    worker = job.workers.get(number)
    if worker is not None and worker.phase not in AWAY:
        fence(job, worker, reason)


def note_worked(job: JobFacts, *, is_left: bool, by: int | None) -> None:
    """Handle progress of a plugin's work: reset the failures of the slot of the worker that did it."""
    job.work_left = is_left
    if by in job.workers:
        job.deaths.pop(job.workers[by].slot, None)


def note_taken_up(job: JobFacts, by: int) -> None:
    """Note that a worker has begun some of a plugin's work. Failures stay: the work may be their cause."""
    if by in job.workers:
        job.workers[by].works = True


_KILLED: Final = "killed by SIGKILL"


def describe_exit(exit_code: int, reason: str = "") -> str:
    """Describe how a process ended; ``reason``: what ended it, if the engine knows.

    >>> describe_exit(-9), describe_exit(137), describe_exit(3)
    ('killed by SIGKILL', 'killed by SIGKILL', 'exit code 3')
    """
    if reason:
        return reason
    if exit_code in _BLAMELESS_EXITS:
        return f"exit code {exit_code}: {_BLAMELESS_EXITS[exit_code]}"
    number = -exit_code if exit_code < 0 else exit_code - _SIGNALLED
    if number > 0:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exit code {exit_code}"


def _is_superseded(job: JobFacts, worker: Worker) -> bool:
    """Whether a worker was in a view, but is not in the one in force: a leaver that has not ended yet."""
    return worker.view > 0 and job.current is not None and worker.number not in job.current.workers


def _count_death(job: JobFacts, worker: Worker, how: str, *, is_explained: bool = False) -> None:
    deaths = job.deaths.get(worker.slot, 0) + 1
    job.deaths[worker.slot] = deaths
    if deaths <= job.spec.max_deaths or job.state in (JobState.STOPPING, JobState.FAILING):
        return
    reason = f"slot {worker.slot} lost {deaths} workers in a row with no new step committed; the last one: {how}"
    if worker.view == 0 and any(other.has_state for other in job.present()) and not job.ending:
        give_up_slot(job, worker, "failed", reason)
    else:
        if not is_explained and job.best_step > 0 and job.spec.checkpoint_every is None and job.saved_step is None:
            reason += "; the job has no checkpoint_every, so it starts at step 0 when all its workers are lost"
        # The kernel names no cause to a process that may not read its counters, as in most containers.
        hint = ". The machine or its container may be out of memory: use a smaller micro-batch or fewer workers"
        fail(job, f"{reason}{hint if how == _KILLED else ''}. See the workers' logs")
