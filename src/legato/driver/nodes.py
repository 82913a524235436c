"""Loss and return of nodes: which workers are given up, and which views may still train out of reach. Pure.

A lost node is one whose agent the engine cannot reach. Its workers may have died with it, or they train on out of the
driver's reach. So the driver concludes nothing from its silence: a worker of a lost node has ended when the engine says
so. The engine says so when the agent does, or when the lease is over after which the agent has killed the worker.

*Open views* are those in which a worker may complete a round. A view stops being open when another one is put in force,
and that needs a worker of each open view: one that enters the new view, or one that has certainly left the old one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.slots import join_by, node_of, slot_key
from legato.core.view import View
from legato.driver.events import StopWorker
from legato.driver.job import JobFacts, Worker

_SELF_SAID: Final = ("finished", "shrunk", "stopped", "orphaned", "superseded")
"""Farewells of workers that have left their view themselves."""
_REUNION_LIMITS: Final = 2
"""In units of ``heartbeat_limit_s``: an agent's attempt to connect that began before the link was back takes 5 s."""
_ENDING: Final = (WorkerPhase.LEAVING, WorkerPhase.FINISHED, WorkerPhase.FAILED, WorkerPhase.FENCED)


def lose_node(job: JobFacts, node: str, reason: str, silent_s: float = 0.0, *, is_refusal: bool = False) -> None:
    """Handle the loss of a node. `fence_lost` gives up its workers.

    If the node was silent, workers elsewhere that have been silent for the same time are in doubt: the driver may be
    cut off from their nodes too, and these losses are reported one after the other. Heartbeats of workers come many
    times in half of an engine's limit of silence.

    Args:
        job: the facts.
        node: its name.
        reason: text after "node X is lost: ".
        silent_s: how long the node was silent; 0: it was not.
        is_refusal: it is not out of reach, but cannot run the job, and no worker runs there.
    """
    if node in job.lost_nodes:
        return
    job.lost_nodes[node] = job.now
    job.awaited = frozenset()  # if the job waits for workers of this node, the event says so again
    here = [worker for worker in job.present() if node_of(worker.slot) == node]
    for worker in here:
        worker.is_cut_off = True
    for worker in job.present():
        worker.is_in_doubt |= silent_s > 0 and job.now - worker.last_heard > silent_s / 2
    if is_refusal:
        told = f"node {node} cannot be used: {reason.rstrip('.')}. No worker runs there"
        job.record("refused", f"{told}. Its slots are not used until it can run the job", level="warning")
        return
    told = f"node {node} is lost: {reason}. "
    told += f"{_name(here).capitalize()} may still run there. " if here else "No worker was on it. "
    job.record("lost", f"{told}Its slots are not used until it is back", level="warning")


def take_back_node(job: JobFacts, node: str, slots: Sequence[str]) -> None:
    """Handle that the agent of a node answers again, or for the first time.

    Args:
        job: the facts.
        node: its name.
        slots: all single slots of the node, if they are known.
    """
    _learn_slots(job, join_by(slots, job.spec.gpus_per_worker))
    job.refusals.pop(node, None)
    lost_at = job.lost_nodes.pop(node, None)
    if lost_at is None:
        return
    here = [worker for worker in job.present() if node_of(worker.slot) == node]
    fenced = [worker for worker in here if worker.phase is WorkerPhase.FENCED]
    kept = [worker for worker in here if worker.phase is not WorkerPhase.FENCED]
    for worker in fenced:
        job.out.append(StopWorker(worker.number, force=True))  # it could not be killed while the node was lost
    for worker in kept:
        # While the node was lost, silence said nothing.
        worker.last_heard = worker.progressed_at = job.now
        if worker.deadline is not None:
            worker.deadline += job.now - lost_at
    told = f"node {node} is back after {job.now - lost_at:.0f} s"
    if fenced:
        told += f"; it ends {_name(fenced)}, given up meanwhile"
    if kept:
        told += f"; {_name(kept)} can continue"
    job.record("returned", told)


def fence_lost(job: JobFacts) -> None:
    """Give up the workers of lost nodes, except those without which the job's state may be gone.

    If a worker on another node has the state of the view in force, the others continue at once, and the workers of the
    lost node are refused from then on. Otherwise those that may have the state are kept: they train on without a driver
    for ``away_limit_s``, as after a driver's death, and this driver continues with them when their node is back.
    """
    if not job.lost_nodes:
        job.kept_until = None
    if not job.lost_nodes or job.state is JobState.ADOPTING:
        return
    lost = [worker for worker in job.where(job.is_lost) if worker.phase not in _ENDING]
    if any(_may_have_state(job, worker) for worker in lost):
        others = (member for member in job.members() if not (job.is_lost(member) or member.is_in_doubt))
        is_kept = must_keep(job, is_state_elsewhere=any(member.has_state for member in others))
    else:
        is_kept, job.kept_until = False, None
    for worker in lost:
        if not is_kept or not _may_have_state(job, worker):
            node = node_of(worker.slot)
            job.kill(worker, f"node {node} is lost")
            job.send_refusal(worker.number, f"node {node} is lost: its agent does not answer")
            told = f"worker {worker.number} is given up, because node {node} is lost; it is refused if it comes back"
            job.record("fenced", told, worker, "warning")
    _take_other_slots(job)


def must_keep(job: JobFacts, *, is_state_elsewhere: bool) -> bool:
    """Return whether workers of lost nodes that may have the state must be kept.

    When the first of several such nodes is back, the others are kept a little longer: they were probably cut off
    together with it, and their agents connect again within a few seconds.
    """
    if not is_state_elsewhere:
        job.kept_until = math.inf
    elif job.kept_until == math.inf:
        job.kept_until = job.now + _REUNION_LIMITS * job.spec.heartbeat_limit_s
    return job.kept_until is not None and job.now < job.kept_until


def _may_have_state(job: JobFacts, worker: Worker) -> bool:
    return worker.has_state or (worker.active and any(worker.number in view.workers for view in job.open_views))


def find_out_of_reach(job: JobFacts, members: Collection[int]) -> list[View]:
    """Return the open views in which workers may still train although a new view of ``members`` is put in force.

    In each of them, no worker is a member of the new view, and none has certainly left.
    """
    return [
        view
        for view in job.open_views
        if not any(number in members or _has_left(job, number) for number in view.workers)
    ]


def list_unconfirmed(job: JobFacts, views: Iterable[View]) -> list[Worker]:
    """Return the workers of views that may still run."""
    numbers = {number for view in views for number in view.workers}
    return job.where(lambda worker: worker.number in numbers)


def await_end(job: JobFacts, numbers: frozenset[int]) -> None:
    """Record that the job waits until these workers have certainly ended."""
    job.awaited = numbers
    job.record("held", _describe_wait(job, [job.workers[number] for number in sorted(numbers)]), level="warning")


def await_lost(job: JobFacts, workers: Collection[Worker]) -> None:
    """Record that an ending job only waits for workers of lost nodes, unless that is recorded already."""
    numbers = frozenset(worker.number for worker in workers)
    if numbers == job.awaited:
        return
    job.awaited = numbers
    where, until = _describe_lost(job, workers)
    told = f"{_name(workers)}{where} may still run: the job ends when {until}"
    job.record("held", told, level="warning")


def _describe_wait(job: JobFacts, workers: Collection[Worker]) -> str:
    where, until = _describe_lost(job, workers)
    return (
        f"{_name(workers)}{where} may still train, and no other worker has the newest state. Legato does not train a "
        f"second time beside them: the job waits until {until}"
    )


def _describe_lost(job: JobFacts, workers: Collection[Worker]) -> tuple[str, str]:
    """Return on which lost nodes workers are, and until when they may run."""
    nodes = sorted({node_of(worker.slot) for worker in workers if job.is_lost(worker)})
    if not nodes:
        return "", "they have ended"
    where = f" on lost nodes {', '.join(nodes)}" if len(nodes) > 1 else f" on lost node {nodes[0]}"
    limit_s = job.spec.away_limit_s + job.spec.stop_limit_s
    return where, f"the node is back, or its agent has ended what runs there (within about {limit_s:g} s)"


def _has_left(job: JobFacts, number: int) -> bool:
    worker = job.workers.get(number)  # only workers that are gone are forgotten
    if worker is None or worker.phase in (WorkerPhase.GONE, WorkerPhase.FAILED):
        return True
    return worker.farewell in _SELF_SAID


def _take_other_slots(job: JobFacts) -> None:
    """Let a job that scales freely use other slots in place of those of lost nodes, as far as there are any."""
    kept = {worker.slot for worker in job.present() if worker.phase is not WorkerPhase.FENCED}
    lost = sorted((slot for slot in job.wanted - kept if node_of(slot) in job.lost_nodes), key=slot_key)
    free = [
        slot
        for slot in job.available
        if slot not in job.wanted and slot not in job.given_up and node_of(slot) not in job.lost_nodes
    ]
    taken = free[: len(lost)]
    if taken:
        job.wanted = job.wanted.difference(lost[: len(taken)]).union(taken)
        job.record("scaled", f"slots {', '.join(taken)} are used in place of {', '.join(lost[: len(taken)])}")


def _learn_slots(job: JobFacts, slots: Collection[str]) -> None:
    if job.is_assigned:
        return
    new = [slot for slot in slots if slot not in job.available]
    job.available += tuple(new)
    most = job.num_asked if job.num_micro_batches is None else min(job.num_asked, job.num_micro_batches)
    taken = [slot for slot in new if slot not in job.wanted][: max(most - len(job.wanted), 0)]
    if taken:
        job.wanted = job.wanted.union(taken)
        job.record("scaled", f"{len(job.wanted)} workers: slots {', '.join(taken)} have become available")


def note_loose_end(job: JobFacts, worker: Worker) -> bool:
    """Handle that the engine takes a worker for ended although it is connected: its agent has died, and it has not.

    Returns:
        Whether that is so. Then it is refused, and it has ended when its connection ends.
    """
    is_heard = not worker.away and not worker.is_cut_off  # since the loss; an adopted worker may never have connected
    is_alive = is_heard and job.now - worker.last_heard < job.spec.heartbeat_limit_s
    if not job.is_lost(worker) or worker.phase in (WorkerPhase.STARTING, WorkerPhase.GONE) or not is_alive:
        return False
    worker.ends_with_connection = True
    if worker.phase is not WorkerPhase.FENCED:
        job.kill(worker, "its agent has died")
        told = (
            f"worker {worker.number} still runs, but its agent on node {node_of(worker.slot)} has died: it is refused"
        )
        job.record("fenced", told, worker, "warning")
    job.send_refusal(worker.number, "its agent has died")
    return True


def _name(workers: Collection[Worker]) -> str:
    numbers = ", ".join(str(worker.number) for worker in workers)
    return f"worker {numbers}" if len(workers) == 1 else f"workers {numbers}"
