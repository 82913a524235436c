"""Decides the next change of membership, with its reason. Pure: reads the facts of a job and changes nothing."""

from __future__ import annotations

from collections import Counter

import msgspec

from legato.core.lifecycle import JobState, WorkerPhase
from legato.core.program import OF_FILE
from legato.core.slots import node_of
from legato.core.view import Member, next_members
from legato.driver.job import JobFacts, Worker
from legato.driver.nodes import find_out_of_reach, list_unconfirmed


class Recover(msgspec.Struct, frozen=True):
    """Put a view in force at once: the first one, or one after a loss. ``again``: the same members, with no loss."""

    members: tuple[Member, ...]
    reason: str
    again: bool = False


class Propose(msgspec.Struct, frozen=True):
    """Prepare a view in the background; the members switch when all are ready."""

    members: tuple[Member, ...]
    reason: str


class HoldAll(msgspec.Struct, frozen=True):
    """Ask the survivors to wait; ``saver`` writes a checkpoint first."""

    survivors: frozenset[int]
    saver: int
    reason: str


class StartOver(msgspec.Struct, frozen=True):
    """Form a first view again, because no worker has the state any more. ``lost``: there was a state before."""

    lost: bool
    reason: str


class Refuse(msgspec.Struct, frozen=True):
    """A worker differs from the others and may not take part."""

    worker: int
    reason: str


class LeaveOut(msgspec.Struct, frozen=True):
    """The workers of a node cannot be connected to the others, which continue without them."""

    node: str
    reason: str


class Await(msgspec.Struct, frozen=True):
    """Wait for the certain end of workers that may still train out of reach."""

    workers: frozenset[int]


class GiveUp(msgspec.Struct, frozen=True):
    """The job cannot continue."""

    reason: str


Change = Recover | Propose | HoldAll | StartOver | Await | Refuse | LeaveOut | GiveUp

_MAX_DOUBLINGS = 10
_OF_PROCESSOR = ("CPU capability", "oneDNN", "BLAS")  # parts of a fingerprint that --cpu-capability makes equal
_DECIDING = (JobState.FORMING, JobState.TRAINING, JobState.HOLDING, JobState.FINISHING, JobState.STOPPING)


def decide_change(job: JobFacts) -> Change | None:
    """Return the next change of membership with its reason, or None if there is none now."""
    change = _decide_joining(job) or _decide_change(job)
    if not isinstance(change, Recover | StartOver):
        return change
    # Workers without a view will be in the next one.
    members = change.members if isinstance(change, Recover) else [worker.member for worker in _reachable(job)]
    views = find_out_of_reach(job, [member.worker for member in members])
    if views and isinstance(change, Recover):
        # Joiners that are connected in these views cannot train in them if they enter the new one.
        joining = [worker for worker in _reachable(job) if any(worker.number in view.workers for view in views)]
        change = Recover((*change.members, *(worker.member for worker in joining)), change.reason, change.again)
        views = find_out_of_reach(job, [member.worker for member in change.members])
    if not views:
        return change
    waiting = frozenset(worker.number for worker in list_unconfirmed(job, views))
    return Await(waiting) if waiting != job.awaited else None


def _reachable(job: JobFacts) -> list[Worker]:
    return job.where(lambda worker: worker.active and not job.is_lost(worker))


def _decide_change(job: JobFacts) -> Change | None:
    if job.state not in _DECIDING or (job.current is None and job.ending and not job.tail):
        return None
    if job.current is None:
        return _decide_first(job)
    loss = describe_loss(job) or job.torn
    if loss is not None:
        return _decide_recovery(job, loss)
    if job.broken_since is not None or _is_overdue(job):
        return _decide_mending(job)
    if job.pending is not None:
        return _decide_repair(job)
    return _decide_planned(job) if job.settled and not job.ending else None


def describe_loss(job: JobFacts) -> str | None:
    """Describe the lost members of the view in force; None if there are none."""
    assert job.current is not None
    told = []
    for worker in job.members():
        if worker.farewell == "finished":
            if worker.finished_in is not None and worker.finished_in[0] < job.current.number:
                told.append(f"worker {worker.number} had finished before")
        elif not worker.active and not _left_with_all(job, worker):
            told.append(f"worker {worker.number} {_describe_end(worker)}")
    return ", ".join(told) or None


def propose_again_s(job: JobFacts) -> float:
    """Return the pause in seconds before the next proposal, after one that a worker could not connect."""
    doubled = job.spec.broken_patience_s * 2.0 ** min(job.num_unbuilt, _MAX_DOUBLINGS)
    return min(doubled, job.spec.prepare_limit_s)


def describe_difference(fingerprint: dict[str, str] | None, reference: dict[str, str] | None) -> str | None:
    """Describe how a worker's fingerprint differs from the job's; None if it does not, or one is unknown.

    >>> describe_difference({"model": "a"}, {"model": "b"})
    "its model is 'a', the job's is 'b'"
    """
    if fingerprint is None or reference is None or fingerprint == reference:
        return None
    parts = [part for part in sorted({*fingerprint, *reference}) if fingerprint.get(part) != reference.get(part)]
    # A worker that found prepared data may not have imported the modules that prepare them.
    both = fingerprint.keys() & reference.keys()
    parts = [part for part in parts if part in both or not part.startswith(OF_FILE)]
    if not parts:
        return None
    return "; ".join(
        f"its {part} is {fingerprint.get(part, 'missing')!r}, the job's is {reference.get(part, 'missing')!r}"
        for part in parts
    )


def describe_refusal(number: int, difference: str) -> str:
    """Describe why a worker may not take part, and what to do if only its machine differs.

    >>> describe_refusal(2, "its CPU capability is 'AVX2', the job's is 'AVX512'").split(". ")[-1]
    'Start the job with --cpu-capability and an instruction set that all machines have'
    """
    told = f"worker {number} runs something different from the others: {difference}"
    if any(f"its {part} is" in difference for part in _OF_PROCESSOR):
        told += ". Start the job with --cpu-capability and an instruction set that all machines have"
    return told


def _left_with_all(job: JobFacts, worker: Worker) -> bool:
    """Whether all workers have agreed that this one leaves, so that none waits for it in a collective."""
    agreed = worker.farewell in ("stopped", "orphaned")
    return agreed and (job.ending or worker.phase is not WorkerPhase.GONE)


def _describe_end(worker: Worker) -> str:
    if worker.farewell is not None:
        return f"left ({worker.farewell})"
    return {WorkerPhase.GONE: "died", WorkerPhase.FAILED: "failed"}.get(worker.phase, f"is {worker.phase}")


def _warm(job: JobFacts) -> list[Worker]:
    return job.where(lambda worker: worker.phase is WorkerPhase.WARM)


def _num_needed(job: JobFacts) -> int:
    # A job that ends only has to agree on its last step, which any number of workers can do.
    return 1 if job.ending else job.spec.min_workers


def _decide_first(job: JobFacts) -> Change | None:
    # Includes a worker whose Joined came late: it has the state of a view that was given up meanwhile.
    warm = job.where(lambda worker: worker.active)
    if len(warm) < _num_needed(job):
        return None
    coming = job.where(lambda worker: worker.coming)
    waited_s = job.now - min(worker.since for worker in warm)
    if coming and waited_s < job.spec.form_patience_s:
        return None
    if (change := _decide_address(job, warm, [], _find_usual(job, warm))) is not None:
        return change
    reference = job.reference or warm[0].fingerprint
    for worker in warm:
        difference = describe_difference(worker.fingerprint, reference)
        if difference is not None:
            return Refuse(worker.number, describe_refusal(worker.number, difference))
    late = f", {len(coming)} more did not come within {job.spec.form_patience_s:g} s" if coming else ""
    return Recover(tuple(worker.member for worker in warm), f"first view of {_count(warm)}{late}")


def _decide_joining(job: JobFacts) -> Change | None:
    """Return what happens to a joining worker that cannot be connected to those of the view in force."""
    if job.current is None or job.ending or job.state not in _DECIDING:
        return None
    joining = [worker for worker in _warm(job) if worker.slot in job.wanted]
    return _decide_address(job, joining, job.members(), job.current.members[0].host)


def _is_ipv6(host: str) -> bool:
    return ":" in host


def _find_usual(job: JobFacts, workers: list[Worker]) -> str:
    """Return an address of the family that most nodes announce; of equal numbers, that of the store."""
    counted = Counter(is_ipv6 for _, is_ipv6 in {(node_of(worker.slot), _is_ipv6(worker.host)) for worker in workers})
    is_stores = _is_ipv6(job.rendezvous.rpartition(":")[0])
    hosts = [worker.host for worker in workers]
    return max(hosts, key=lambda host: (counted[_is_ipv6(host)], _is_ipv6(host) is is_stores))


def _decide_address(job: JobFacts, workers: list[Worker], others: list[Worker], usual: str) -> Change | None:
    """Return what happens to a worker at whose address ``others``, or those before it, cannot reach it.

    Its address is of another family than ``usual``, or another machine has the same one.
    """
    for index, worker in enumerate(workers):
        reason = _explain_family(worker, usual) or _explain_twin(worker, [*others, *workers[:index]])
        if reason is None:
            continue
        node = node_of(worker.slot)
        if any(node_of(member.slot) == node for member in job.members()):
            return Refuse(worker.number, reason)  # the node's address has changed since these began
        return LeaveOut(node, reason)
    return None


def _explain_family(worker: Worker, usual: str) -> str | None:
    """Explain that a worker's address is of another family than ``usual``: gloo connects no such two."""
    if _is_ipv6(worker.host) is _is_ipv6(usual):
        return None
    families = ("IPv6", "IPv4") if _is_ipv6(worker.host) else ("IPv4", "IPv6")
    return (
        f"node {node_of(worker.slot)} announces the {families[0]} address {worker.host}, and the others {families[1]} "
        f"addresses such as {usual}. Name their network with --network of 'legato agent' there or of 'legato run', or "
        "on a server's machine with its setting network"
    )


def _explain_twin(worker: Worker, others: list[Worker]) -> str | None:
    """Explain that another machine has a worker's address too, such as that of a bridge for containers."""
    for other in others:
        is_elsewhere = node_of(other.slot) != node_of(worker.slot) and "" != other.boot != worker.boot != ""
        if is_elsewhere and other.host == worker.host:
            return (
                f"node {node_of(worker.slot)} announces the address {worker.host}, and so does node "
                f"{node_of(other.slot)}, which is another machine. Name a network in which each machine has an address "
                "of its own with --network of 'legato agent' on both or of 'legato run', or on a server's machine with "
                "its setting network"
            )
    return None


def _decide_recovery(job: JobFacts, loss: str) -> Change | None:
    survivors = [worker for worker in job.members() if worker.has_state]
    if not survivors:
        # A worker that is about to leave still has the state, so it is asked to stay.
        survivors = job.where(lambda worker: worker.has_state)
    if not survivors:
        if job.ending:
            return None
        return StartOver(lost=any(worker.view for worker in job.members()), reason=f"{loss}; no worker has the state")
    if len(survivors) >= _num_needed(job):
        return Recover(tuple(worker.member for worker in survivors), f"{loss}; continuing with {_count(survivors)}")
    joining = [worker for worker in _warm(job) if worker not in survivors]
    if len(survivors) + len(joining) >= _num_needed(job):
        members = tuple(worker.member for worker in (*survivors, *joining))
        return Recover(members, f"{loss}; continuing with {_count(survivors)} and {len(joining)} new")
    numbers = frozenset(worker.number for worker in survivors)
    if numbers == job.held:
        return None
    saver = max(survivors, key=lambda worker: (worker.num_rounds, -worker.number))
    return HoldAll(
        numbers, saver.number, f"{loss}; {len(survivors)} left, below the minimum of {job.spec.min_workers}: waiting"
    )


def _is_overdue(job: JobFacts) -> bool:
    """Whether a worker has neither connected the view of a Recover nor reported why it cannot."""
    if job.current is None or job.recovering is None or not job.unprepared(job.current):
        return False
    return job.now - job.in_force_since >= job.spec.prepare_limit_s


def _decide_mending(job: JobFacts) -> Change | None:
    assert job.current is not None
    number = job.current.number
    if any(worker.is_spared for worker in job.members()):
        # It cannot connect now although the connections work. Another try would only count as a break.
        return None
    if _is_overdue(job):
        missing = job.unprepared(job.current)
        what = f"workers {missing} did not connect view {number} within {job.spec.prepare_limit_s:g} s"
    elif job.broken_since is not None and job.now - job.broken_since >= job.spec.broken_patience_s:
        what = f"view {number} broke, or could not be connected, although no worker died"
    else:
        return None
    if job.num_breaks >= job.spec.max_breaks:
        if (node := _find_cut_off(job)) is not None:
            return LeaveOut(node, job.broken_reason.removesuffix("."))
        return GiveUp(
            f"the workers' connections broke {job.num_breaks + 1} times in a row without a completed round although "
            f"no worker died. The last time, {job.broken_reason.removesuffix('.') or what}. Check the network between "
            "the workers and their logs."
        )
    members = tuple(worker.member for worker in job.members() if worker.active)
    return Recover(members, f"{what}: the same workers try again", again=True)


def _find_cut_off(job: JobFacts) -> str | None:
    """Return the node that most reports of connections between nodes name; of several, that of the highest rank.

    None if there is no such report, or if too few workers would be left without the node.
    """
    reports = [(node_of(job.workers[one].slot), node_of(job.workers[other].slot)) for one, other in job.unreachable]
    counted = Counter(node for pair in reports if pair[0] != pair[1] for node in pair)
    nodes = [node_of(member.slot) for member in job.members()]
    if not counted:
        return None
    worst = max(counted, key=lambda node: (counted[node], nodes.index(node) if node in nodes else -1))
    left = sum(node != worst for node in nodes)
    return worst if left >= _num_needed(job) else None


def _decide_repair(job: JobFacts) -> Change | None:
    assert job.pending is not None
    dead = [number for number in job.pending.workers if not job.workers[number].active]
    if dead:
        told = ", ".join(f"worker {number} {_describe_end(job.workers[number])}" for number in dead)
        return _propose(job, f"{told} while joining")
    if job.unbuilt is not None and job.now - job.proposed_at >= propose_again_s(job):
        return _propose(job, job.unbuilt)
    missing = job.unprepared(job.pending)
    if missing and job.pending.rendezvous != job.rendezvous:
        return _propose(job, f"the store was lost while view {job.pending.number} was being connected")
    if missing and job.now - job.proposed_at >= job.spec.prepare_limit_s:
        return _propose(job, f"workers {missing} did not prepare within {job.spec.prepare_limit_s:g} s")
    return None


def _decide_planned(job: JobFacts) -> Change | None:
    joining, leaving = _movers(job)
    if not leaving:
        if not joining:
            return None
        coming = job.where(lambda worker: worker.coming and worker.slot in job.wanted)
        waited_s = job.now - min(worker.since for worker in joining)
        if coming and waited_s < job.spec.join_patience_s:
            return None
    names = [f"worker {worker.number} joins" for worker in joining]
    names += [f"worker {worker.number} leaves" for worker in leaving]
    return _propose(job, ", ".join(names))


def _movers(job: JobFacts) -> tuple[list[Worker], list[Worker]]:
    members = job.members()
    joining = [worker for worker in _warm(job) if worker.slot in job.wanted and worker not in members]
    leaving = [worker for worker in members if worker.slot not in job.wanted]
    staying = len(members) - len(leaving)
    # A worker with the state must stay to send it to others, and the minimum must be kept.
    keep = max(1 - staying, job.spec.min_workers - staying - len(joining), 0)
    return joining, leaving[keep:]


def _propose(job: JobFacts, reason: str) -> Propose:
    joining, leaving = _movers(job)
    members = next_members(
        (worker.member for worker in job.members()),
        {worker.number for worker in leaving},
        (worker.member for worker in joining),
    )
    return Propose(members, reason)


def _count(workers: list[Worker]) -> str:
    return "1 worker" if len(workers) == 1 else f"{len(workers)} workers"
