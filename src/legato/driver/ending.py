"""Ends of a job: the program's end, its failure, a stop; and the slots that it gives up. Only adds instructions."""

from __future__ import annotations

from typing import Final

from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.slots import node_of, slot_key
from legato.core.wire import Failed, Stop
from legato.driver.events import End, StopWorker
from legato.driver.job import JobFacts, Worker
from legato.driver.nodes import await_lost

EXIT_UNSAVED: Final = 1  # the job was stopped, but its checkpoint could not be written
EXIT_LAST_UNSAVED: Final = 3  # the program ran to its end, but without its last checkpoint
EXIT_NOWHERE: Final = 2  # machines refused the job, and the others of its slots are fewer than its minimum
EXIT_KILLED: Final = 130  # exit code of an interrupted program; a completed stop is no failure


def note_finished(job: JobFacts, worker: Worker, view_number: int) -> None:
    """Handle the end of a worker's program: the job finishes, unless the worker is a joiner that never trained."""
    if worker.phase is WorkerPhase.FINISHED:
        return
    was = worker.phase
    worker.move(WorkerPhase.FINISHED, job.now, "its program ran to its end")
    worker.farewell = "finished"
    if was is WorkerPhase.LEAVING:
        return
    if was is not WorkerPhase.MEMBER and job.state in (JobState.TRAINING, JobState.HOLDING):
        give_up_slot(job, worker, "failed", f"worker {worker.number} ended without joining the training")
        return
    view = job.views.get(view_number)
    # A program that does not train has no view, so the end of every worker counts.
    rank = view.rank_of(worker.number) if view else 0 if job.current is None else None
    worker.finished_in = (view_number, rank)
    job.finishing = True
    job.pending = None
    job.record("finished", f"worker {worker.number} finished its program", worker)
    if not job.ending and job.state is not JobState.ADOPTING:
        job.move(JobState.FINISHING, f"worker {worker.number} finished")


def note_failed(job: JobFacts, worker: Worker, failed: Failed) -> None:
    """Handle an error of a worker's program: the job fails, unless only this worker is the cause."""
    was = worker.phase
    if was is WorkerPhase.FAILED:
        return
    worker.move(WorkerPhase.FAILED, job.now, failed.error)
    worker.deadline = job.now + job.spec.grace_s
    worker.deadline_reason = f"did not exit within {job.spec.grace_s:g} s of its failure"
    trained = was in (WorkerPhase.MEMBER, WorkerPhase.FINISHED)
    others_train = any(other.has_state for other in job.present())
    reason = f"worker {worker.number}: {failed.error}"
    if job.state is JobState.FAILING:
        alike = failed.error in job.end_reason
        told = f"worker {worker.number} failed in the same way" if alike else reason
        job.record("failed", told, worker, "info" if alike else "error")
    elif failed.mismatch:
        worker.farewell = "refused"
        give_up_slot(job, worker, "refused", reason, failed.traceback)
    elif job.ending and not trained and not job.tail and not _needs_all(job):
        job.record("failed", f"{reason} (it was no longer part of the job)", worker, "warning", failed.traceback)
    elif others_train and not trained:
        give_up_slot(job, worker, "failed", f"{reason} (before it joined; the others continue)", failed.traceback)
    else:
        fail(job, f"the program failed in {reason}", failed.exit_code or 1, failed.traceback, worker)


def give_up_slot(job: JobFacts, worker: Worker, kind: str, reason: str, detail: str | None = None) -> None:
    """Start no worker in this worker's slot again; the job continues with the other workers."""
    if worker.slot not in job.wanted:
        # The job does not own a leaver's slot any more, so it cannot give the slot up.
        job.record(kind, f"{reason}; the job no longer uses slot {worker.slot}", worker, "warning", detail or None)
        return
    job.wanted.discard(worker.slot)
    job.given_up.add(worker.slot)
    spare = _find_spare(job)
    told = f"slot {worker.slot} is given up"
    if spare is not None:
        job.surplus.discard(spare)
        job.wanted.add(spare)
        told += f", and slot {spare} is used in its place"
    job.record(kind, f"{reason}; {told}", worker, "error", detail or None)
    left = len(job.wanted)
    if left < job.spec.min_workers and not job.ending:
        told = f"the job can use only {left} of its slots, fewer than its minimum of {job.spec.min_workers}: {reason}"
        fail(job, told, EXIT_NOWHERE if node_of(worker.slot) in job.refusals else 1)


def _find_spare(job: JobFacts) -> str | None:
    """Return an unused slot of the job in which another worker would help; None: there is none."""
    if job.is_assigned:
        # The slot was surplus while a step had too few micro-batches; with one worker less it is useful.
        return min(job.surplus, key=slot_key, default=None)
    if len(job.wanted) >= job.spec.min_workers:
        return None
    unused = [slot for slot in job.available if slot not in job.wanted | job.given_up]
    return min(unused, key=lambda slot: node_of(slot) in job.lost_nodes, default=None)


def fail(
    job: JobFacts, reason: str, exit_code: int = 1, detail: str | None = None, worker: Worker | None = None
) -> None:
    """End the job as failed: all workers are asked to stop, and killed after the grace period."""
    job.move(JobState.FAILING, reason)
    job.end_reason = reason
    job.exit_code = exit_code
    job.pending = None
    job.end_by = job.now + job.spec.grace_s
    job.record("failed", reason, worker, "error", detail or None)
    for other in job.where(lambda other: other.phase not in (WorkerPhase.FAILED, WorkerPhase.FENCED)):
        if other.phase is not WorkerPhase.STARTING:
            job.send(other, Stop(reason=reason))
        job.out.append(StopWorker(other.number, force=False))


def stop(job: JobFacts, *, at_once: bool, reason: str) -> None:
    """End the job as stopped: with a checkpoint, or at once."""
    if job.state is JobState.ADOPTING and not at_once:
        job.stopping = reason  # done after the running workers have reported
        return
    if job.state is not JobState.FAILING:
        if job.state is not JobState.STOPPING:
            job.move(JobState.STOPPING, reason)
            job.record("stopped", f"stopping: {reason}")
            job.end_by = job.now + job.spec.stop_limit_s
        job.stopping = reason
        job.pending = None
    if at_once:
        if job.state is JobState.STOPPING:
            job.exit_code = EXIT_KILLED
        job.record("stopped", f"killing all workers: {reason}", level="warning")
        kill_all(job, reason)
        return
    for worker in job.present():
        if worker.phase is WorkerPhase.STARTING:
            job.kill(worker, reason)
        elif worker.has_state or (worker.active and job.in_view(worker)):
            job.send(worker, Stop(reason=reason))
        elif worker.phase in (WorkerPhase.JOINING, WorkerPhase.WARM):
            dismiss(job, worker, reason)


def dismiss(job: JobFacts, worker: Worker, reason: str) -> None:
    """Dismiss a worker that does not have the job's state."""
    if worker.phase is WorkerPhase.STARTING:
        job.kill(worker, reason)
    else:
        job.leave_within(worker, job.spec.grace_s, reason)
        job.send(worker, Stop(reason=reason))
    worker.farewell = "dismissed"


def kill_all(job: JobFacts, reason: str) -> None:
    """Kill every worker that is not being killed yet."""
    for worker in job.where(lambda worker: worker.phase is not WorkerPhase.FENCED):
        job.kill(worker, reason)


def conclude(job: JobFacts) -> None:
    """End the job if all is done, start a worker for an unfinished end, and kill workers that do not end in time."""
    if not job.ending or job.ended:
        return
    if job.end_by is not None and job.now >= job.end_by:
        job.end_by = None
        late = [worker.number for worker in job.present()]
        if job.state is JobState.STOPPING:
            job.exit_code = EXIT_KILLED
        job.record("fenced", f"killing workers {late}: they did not end in time", level="warning")
        kill_all(job, "did not end in time")
    if job.state is JobState.FINISHING and not job.closed:
        _start_tail(job)
    left = list(job.present())
    if left:
        if all(map(job.is_lost, left)):
            await_lost(job, left)
        return
    if job.state is JobState.FAILING:
        _end(job, JobState.FAILED, job.end_reason)
    elif job.closed and _needs_all(job) and (missing := _missing_ends(job)):
        fail(job, f"{missing}; the program trains nothing with Legato, so each worker must run to its end")
        _end(job, JobState.FAILED, job.end_reason)
    elif job.closed:
        _end_succeeded(job)
    elif job.state is JobState.STOPPING:
        _end_stopped(job)


def _start_tail(job: JobFacts) -> None:
    """Start one worker to repeat what rank 0 did not finish. It starts from the final checkpoint."""
    for worker in job.present():
        closing = worker.phase is WorkerPhase.FINISHED and worker.finished_in and worker.finished_in[1] == 0
        # A worker that was given up may still run the end of the program.
        is_unconfirmed = worker.phase is WorkerPhase.FENCED and worker.view > 0
        if worker.active or worker.coming or closing or is_unconfirmed:
            return
    free = job.startable()
    if free:
        job.tail = True
        job.resume = True
        job.current = job.recovering = job.broken_since = None
        job.start(free[0], "rank 0 did not reach the end of the program; one worker runs the end again")


def _needs_all(job: JobFacts) -> bool:
    """Return whether every worker must reach its end. In a static job that does not train, workers are independent."""
    has_trained = job.views or job.current is not None
    if job.state is not JobState.FINISHING or has_trained or job.spec.guest is not None:
        return False
    is_static = 1 < job.spec.min_workers == job.spec.max_workers
    return is_static and not any(worker.trained for worker in job.workers.values())


def _missing_ends(job: JobFacts) -> str:
    """Describe the workers that did not reach their end, as far as this driver knows; "": none."""
    ended = {worker.slot for worker in job.workers.values() if worker.farewell == "finished"}
    lost = {worker.slot: worker for worker in job.workers.values() if worker.slot in job.wanted - ended}
    return "; ".join(f"worker {worker.number} was lost: {_last_event_of(worker)}" for worker in lost.values())


def _last_event_of(worker: Worker) -> str:
    return worker.history[-1].partition(": ")[2] if worker.history else "the driver does not know how it ended"


def _end_succeeded(job: JobFacts) -> None:
    reason = "the program ran to its end"
    if job.num_steps is not None and job.step < job.num_steps:
        reason += f", after {job.step} of {job.num_steps} steps"
    told = [worker.trained for worker in job.workers.values() if worker.trained is not None]
    # Of workers that ended while no driver ran, only their membership in a view is known.
    if told and not any(told) and job.current is None and job.spec.guest is None:
        alone = f"each of its {len(told)} workers" if len(told) > 1 else "its worker"
        reason += f", but never called legato.elastic: {alone} ran the whole program, and Legato saved nothing"
        job.record("note", reason, level="warning")
    if job.unsaved_step is None:
        _end(job, JobState.SUCCEEDED, reason)
        return
    job.exit_code = EXIT_LAST_UNSAVED
    _end(job, JobState.UNSAVED, f"{reason}; but {_describe_missing_checkpoint(job, job.unsaved_step)}")


def _end_stopped(job: JobFacts) -> None:
    reason = job.stopping or "stopped"
    # A loss of one step is not reported: the only worker that had it may have died during the stop.
    if job.exit_code == 0 and job.step > 0 and (job.saved_step is None or job.saved_step < job.step - 1):
        job.exit_code = EXIT_UNSAVED
        reason += f"; but {_describe_missing_checkpoint(job, job.step)}"
    _end(job, JobState.STOPPED, reason)


def _describe_missing_checkpoint(job: JobFacts, step: int) -> str:
    newest = "there is none" if job.saved_step is None else f"the newest is of step {job.saved_step}"
    return f"no checkpoint of step {step} was written ({newest}); look for the cause in its events and logs"


def _end(job: JobFacts, state: JobState, reason: str) -> None:
    job.move(state, reason)
    job.out.append(End(str(state), 0 if state is JobState.SUCCEEDED else job.exit_code, reason))
