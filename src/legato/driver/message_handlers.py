"""Applies the messages of workers to the facts of the job. Decides no change of membership."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from legato.core import wire
from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.slots import node_of
from legato.driver.ending import note_failed, note_finished
from legato.driver.events import StepDown
from legato.driver.failures import note_commit, refuse
from legato.driver.job import JobFacts, Worker
from legato.driver.plan import describe_difference, describe_refusal
from legato.driver.slots import leave_out_surplus

_COURSE: Final = (
    WorkerPhase.STARTING,
    WorkerPhase.JOINING,
    WorkerPhase.WARM,
    WorkerPhase.MEMBER,
    WorkerPhase.FINISHED,
)


def handle_message(job: JobFacts, number: int, message: wire.WorkerMessage) -> None:
    """Handle a message. Raises TransitionError if the worker cannot send it in its phase."""
    if isinstance(message, wire.Hello) and message.term > job.term:
        # Also if this driver does not know the worker: the later driver may have started it.
        step_down(job, f"worker {number} has seen a driver of term {message.term}; this driver has term {job.term}")
        return
    worker = job.workers.get(number)
    if worker is None or worker.phase in (WorkerPhase.FENCED, WorkerPhase.GONE):
        if isinstance(message, wire.Hello):
            what = f"worker {number} is {worker.phase}" if worker else f"there is no worker {number} in this job"
            job.send_refusal(number, f"{what}: the driver refuses it")
        elif worker is not None and isinstance(message, wire.Saved):
            # It has ended while its checkpoint was on its way.
            _handle_saved(job, worker, message)
        return
    if worker.is_spared:
        job.record("note", f"worker {number} answers again after {job.now - worker.last_heard:.1f} s", worker)
    worker.last_heard = job.now
    worker.away = worker.is_spared = worker.is_cut_off = worker.is_in_doubt = False
    if not isinstance(message, wire.Heartbeat):
        worker.progressed_at = job.now
    if worker.has_state or isinstance(message, wire.Joined):
        # A joiner sends messages from a proposed view as soon as it is connected, long before the others switch.
        _follow_switch(job, message.view)
    # A worker that sends from a view is connected in it; its Prepared may be lost.
    _note_prepared(job, worker, message.view)
    _HANDLERS[type(message)](job, worker, message)


def step_down(job: JobFacts, reason: str) -> None:
    """Stop leading the job; another driver leads it, or will. The workers train on."""
    job.superseded = reason
    job.out = [StepDown(reason)]


def brief(job: JobFacts, worker: Worker) -> None:
    """Send a worker that has just connected the messages that it may have missed. It may get a message twice."""
    if worker.phase is WorkerPhase.LEAVING and worker.farewell == "refused":
        job.send_refusal(worker.number, "refused before")
        return
    job.welcome(worker)
    view = job.current
    behind = view is not None and worker.view < view.number
    concerned = worker.has_state or (worker.active and job.in_view(worker))
    if view is not None and job.recovering is not None and behind and concerned:
        job.send(worker, wire.Recover(proposed=view, reason=job.recovering))
    if worker.active and job.pending is not None and job.in_view(worker):
        job.send(worker, wire.Prepare(proposed=job.pending))
    if worker.has_state and job.state is JobState.HOLDING:
        job.send(worker, wire.Hold(save=False, reason="waiting for more workers"))
    if job.state in (JobState.STOPPING, JobState.FAILING) or worker.farewell == "dismissed":
        job.send(worker, wire.Stop(reason=job.stopping or job.end_reason or "not needed any more"))


def _follow_switch(job: JobFacts, view_number: int) -> None:
    """Put a view in force when a message from it arrives, because all its incumbents switch after the same step."""
    view = job.views.get(view_number)
    if view is not None and job.current is not None and view.number > job.current.number:
        job.put_in_force(view, recovering=None)


def _handle_hello(job: JobFacts, worker: Worker, hello: wire.Hello) -> None:
    misfit = wire.describe_misfit(f"worker {worker.number}", hello.protocol)
    if misfit is not None:
        _refuse_misfit(job, worker, misfit)
        return
    fresh = worker.phase is WorkerPhase.STARTING
    worker.host, worker.node, worker.pid = hello.host, hello.node, hello.pid
    worker.proves, worker.eases_in, worker.boot = hello.proves, hello.eases_in, hello.boot
    worker.repeats = worker.saved
    view = hello.current
    took_part = hello.phase in (WorkerPhase.MEMBER, WorkerPhase.FINISHED)
    if view is not None and took_part and job.state is JobState.ADOPTING:
        job.learn(view)
        if job.current is None or view.number > job.current.number:
            job.put_in_force(view, recovering=None)
    _catch_up(job, worker, hello)
    brief(job, worker)
    if fresh and worker.phase is WorkerPhase.JOINING:
        job.record("joining", f"worker {worker.number} has started on {worker.host}", worker)


def _refuse_misfit(job: JobFacts, worker: Worker, misfit: str) -> None:
    """Refuse a worker of a release that is too far from this one."""
    if job.state is JobState.ADOPTING:
        # It trains, and would end without a checkpoint if it was refused. Without a driver it writes one and ends.
        step_down(
            job,
            f"{misfit}. The workers train on for {job.spec.away_limit_s:g} s, then they write a checkpoint and end. "
            "Continue from that checkpoint, or let the release that started them adopt them before that",
        )
    elif worker.farewell != "refused":
        refuse(job, worker, misfit)
    else:
        brief(job, worker)


def _catch_up(job: JobFacts, worker: Worker, hello: wire.Hello) -> None:
    """Update a worker's progress from its Hello, because messages of a lost connection may be lost too."""
    # A worker of another release may have unknown phases; every Hello implies at least joining.
    claimed = WorkerPhase(hello.phase) if hello.phase in set(WorkerPhase) else WorkerPhase.JOINING
    if worker.phase not in _COURSE or claimed not in _COURSE:
        return
    finished = claimed is WorkerPhase.FINISHED
    for phase in _COURSE[_COURSE.index(worker.phase) + 1 : _COURSE.index(claimed) + 1]:
        if phase is WorkerPhase.FINISHED:
            note_finished(job, worker, hello.current.number if hello.current else 0)
        elif not (finished and hello.current is None and phase in (WorkerPhase.WARM, WorkerPhase.MEMBER)):
            worker.move(phase, job.now, "reported this phase when it connected")
    if hello.current is not None and worker.phase in (WorkerPhase.MEMBER, WorkerPhase.FINISHED):
        # Its Joined may be lost. If it still comes, it changes nothing.
        worker.view = max(worker.view, hello.current.number)
        worker.num_rounds = max(worker.num_rounds, hello.num_rounds)


def _handle_warm(job: JobFacts, worker: Worker, warm: wire.Warm) -> None:
    if worker.phase in (WorkerPhase.STARTING, WorkerPhase.JOINING):
        worker.move(WorkerPhase.WARM, job.now, "said Warm")
        job.record("warm", f"worker {worker.number} is ready to join", worker)
    if worker.phase is not WorkerPhase.WARM:
        return
    worker.fingerprint = warm.fingerprint
    difference = describe_difference(warm.fingerprint, job.reference)
    if difference is not None and not job.ending:
        refuse(job, worker, describe_refusal(worker.number, difference))
    elif job.num_micro_batches is None and (warm.num_micro_batches or 0) > 0:
        # Ignore other values: any program may send messages in the name of a worker.
        job.num_micro_batches, job.shares_freely = warm.num_micro_batches, warm.shares_freely
        leave_out_surplus(job)


def _handle_joined(job: JobFacts, worker: Worker, joined: wire.Joined) -> None:
    if worker.phase in (WorkerPhase.STARTING, WorkerPhase.JOINING, WorkerPhase.WARM):
        worker.move(WorkerPhase.MEMBER, job.now, f"joined view {joined.view}")
    if not worker.has_state:
        return
    worker.view = max(worker.view, joined.view)
    worker.num_rounds = max(worker.num_rounds, joined.num_rounds)
    # The rounds with which a worker enters a view are no progress: a job that repeatedly dies in the same step makes
    # none.
    job.best_round = max(job.best_round, joined.num_rounds)
    job.record("joined", f"worker {worker.number} is in view {joined.view} after {joined.pause_s:.3f} s", worker)


def _handle_broken(job: JobFacts, worker: Worker, broken: wire.Broken) -> None:
    _handle_rounds(job, worker, broken.num_rounds)
    if job.current is None or broken.view != job.current.number or not worker.active:
        return
    _note_broken(job, worker, f"view {broken.view} broke for worker {worker.number}: {broken.reason}")


def _note_broken(job: JobFacts, worker: Worker, told: str) -> None:
    if job.broken_since is None:
        job.broken_since, job.broken_reason = job.now, told
        job.record("broken", told, worker, "warning")


def _handle_rounds(job: JobFacts, worker: Worker, num_rounds: int) -> None:
    worker.num_rounds = max(worker.num_rounds, num_rounds)
    note_commit(job, worker, num_rounds=num_rounds)


def _handle_leaving(job: JobFacts, worker: Worker, leaving: wire.Leaving) -> None:
    _handle_rounds(job, worker, leaving.num_rounds)
    if worker.phase in (WorkerPhase.LEAVING, WorkerPhase.FINISHED, WorkerPhase.FAILED):
        return
    job.leave_within(worker, job.spec.grace_s, f"said that it leaves: {leaving.reason}")
    worker.farewell = leaving.reason


def _handle_progress(job: JobFacts, worker: Worker, progress: wire.Progress) -> None:
    note_commit(job, worker, step=progress.last_step)
    job.step, job.num_steps = max(job.step, progress.last_step), progress.num_steps
    if job.differed_step is None:
        job.differed_step = progress.differed_step
    if progress.resumed:
        job.saved_step = max(job.saved_step or 0, progress.last_step)


def _handle_heartbeat(job: JobFacts, worker: Worker, heartbeat: wire.Heartbeat) -> None:
    if heartbeat.num_rounds > worker.num_rounds or heartbeat.is_waiting != worker.is_waiting:
        worker.progressed_at = job.now
    worker.is_waiting = heartbeat.is_waiting
    worker.works |= heartbeat.is_independent
    _handle_rounds(job, worker, heartbeat.num_rounds)


def _handle_saved(job: JobFacts, worker: Worker, saved: wire.Saved) -> None:
    job.saved_step = max(job.saved_step or 0, saved.step)
    if job.unsaved_step is not None and job.unsaved_step <= saved.step:
        job.unsaved_step = None
    is_repeated = saved.path == worker.repeats or saved.step <= worker.known_step
    worker.saved, worker.repeats, worker.known_step = saved.path, None, -1
    if not is_repeated:
        job.record("saved", f"checkpoint of step {saved.step} at {saved.path}", worker)


def _handle_unsaved(job: JobFacts, _worker: Worker, unsaved: wire.Unsaved) -> None:
    if job.saved_step is None or job.saved_step < unsaved.step:
        job.unsaved_step = unsaved.step


def _handle_note(job: JobFacts, worker: Worker, note: wire.Note) -> None:
    # Several workers may warn of the same, such as all that join.
    if note.level != "warning" or job.reported_warnings.setdefault(note.text, worker.number) == worker.number:
        job.record("note", note.text, worker, note.level)


def _handle_differed(job: JobFacts, _worker: Worker, differed: wire.Differed) -> None:
    if job.differed_step is None:
        job.differed_step = differed.step
    if differed.text not in job.reported_differences:
        # All workers report it, so that the report arrives even if one of them dies.
        job.reported_differences.add(differed.text)
        reason, _, detail = differed.text.partition("\n")
        job.record("differed", reason, level="warning", detail=detail)


def _handle_finished(job: JobFacts, worker: Worker, finished: wire.Finished) -> None:
    worker.trained = finished.trained
    note_finished(job, worker, finished.view)


def _handle_prepared(job: JobFacts, worker: Worker, prepared: wire.Prepared) -> None:
    _note_prepared(job, worker, prepared.prepared)


def _note_prepared(job: JobFacts, worker: Worker, view_number: int) -> None:
    if view_number in job.views:
        job.prepared.setdefault(view_number, set()).add(worker.number)


def _handle_unbuilt(job: JobFacts, worker: Worker, unbuilt: wire.Unbuilt) -> None:
    told = _describe_unbuilt(job, worker, unbuilt)
    if job.current is not None and unbuilt.failed == job.current.number and worker.active:
        if unbuilt.peer is not None and unbuilt.peer in job.current.workers:
            job.unreachable.add((worker.number, unbuilt.peer))
        _note_broken(job, worker, told)
    elif job.pending is not None and unbuilt.failed == job.pending.number and job.unbuilt is None:
        job.unbuilt = job.unconnected = told
        job.record("broken", told, worker, "warning")


def _describe_unbuilt(job: JobFacts, worker: Worker, unbuilt: wire.Unbuilt) -> str:
    """Describe which worker could not connect to which, and on which nodes they are if these are two."""
    who, whom = f"worker {worker.number}", ""
    peer = None if unbuilt.peer is None else job.workers.get(unbuilt.peer)
    if peer is not None:
        whom = f" to worker {peer.number}"
        if node_of(peer.slot) != node_of(worker.slot):
            who += f" on node {node_of(worker.slot)}"
            whom += f" on node {node_of(peer.slot)}"
    return f"{who} could not connect view {unbuilt.failed}{whom}: {unbuilt.reason}"


def _ignore_metrics(_job: JobFacts, _worker: Worker, _message: wire.Message) -> None:
    """The record handles metrics."""


_HANDLERS: Final[Mapping[type[wire.Message], Callable[[JobFacts, Worker, Any], None]]] = {
    wire.Hello: _handle_hello,
    wire.Warm: _handle_warm,
    wire.Prepared: _handle_prepared,
    wire.Unbuilt: _handle_unbuilt,
    wire.Joined: _handle_joined,
    wire.Broken: _handle_broken,
    wire.Progress: _handle_progress,
    wire.Metrics: _ignore_metrics,
    wire.Saved: _handle_saved,
    wire.Unsaved: _handle_unsaved,
    wire.Note: _handle_note,
    wire.Differed: _handle_differed,
    wire.Leaving: _handle_leaving,
    wire.Finished: _handle_finished,
    wire.Failed: note_failed,
    wire.Heartbeat: _handle_heartbeat,
}
