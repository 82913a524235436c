"""A pool in which decisions are carried out: what is given back leaves first and is free in the next round."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from legato.core.speed import Speed
from legato.policy.policies import decide
from legato.policy.rules import Rules
from legato.policy.snapshot import DecisionKind, Decisions, JobDemand, Queue, Slot, Snapshot, Standing
from legato.policy.speeds import find_slowdown

EAGER = Rules(stability_s=0.0, cooldown_factor=0.0, gather_s=0.0)


def make_slots(num_slots: int, per_node: int = 4) -> tuple[Slot, ...]:
    return tuple(
        Slot(id=f"n{index // per_node}/g{index % per_node}", node=f"n{index // per_node}") for index in range(num_slots)
    )


def make_job(title: str, max_workers: int = 4, at: float = 0.0, queue: str = "all", **fields: object) -> JobDemand:
    owner, _, name = title.partition("/")
    if "speeds" in fields:
        fields["slowdown"] = find_slowdown(fields["speeds"], int(str(fields.get("min_workers", 1))), 100.0)  # type: ignore[arg-type]
    described = {"id": name or owner, "name": name or owner, "owner": owner, "queue": queue, "submitted_at": at}
    return msgspec.convert({**described, "max_workers": max_workers, **fields}, JobDemand)


def make_speed(num_workers: int, samples_per_s: float, num_nodes: int = 1) -> Speed:
    return Speed(num_workers=num_workers, num_nodes=num_nodes, samples_per_s=samples_per_s, measured_s=60.0, at=100.0)


def make_snapshot(
    num_slots: int, jobs: Iterable[JobDemand], queues: Iterable[Queue] = (), *, now: float = 100.0, per_node: int = 4
) -> Snapshot:
    return Snapshot(now=now, slots=make_slots(num_slots, per_node), jobs=tuple(jobs), queues=tuple(queues))


def carry_out(snapshot: Snapshot, decisions: Decisions, *, after_s: float = 1.0, slow: bool = False) -> Snapshot:
    """Return the pool a moment later.

    Args:
        snapshot: as it was decided on.
        decisions: of it.
        after_s: how much later.
        slow: workers that were asked to leave are still there.
    """
    owners = {slot: decision.job for decision in decisions.decisions for slot in decision.slots}
    workers = {slot: "+".join(held) for decision in decisions.decisions for held in decision.workers for slot in held}
    slots = []
    for slot in snapshot.slots:
        owner = owners.get(slot.id)
        if owner is not None:
            worker = workers.get(slot.id, "")
            slots.append(msgspec.structs.replace(slot, holder=owner, leaving=False, worker=worker))
        elif slot.holder is not None and (slow or not slot.leaving):
            slots.append(msgspec.structs.replace(slot, leaving=True))
        else:
            slots.append(msgspec.structs.replace(slot, holder=None, leaving=False, worker=""))
    jobs = []
    of = {decision.job: decision for decision in decisions.decisions}
    for job in snapshot.jobs:
        decision = of[job.id]
        standing = Standing.RUNNING
        if not decision.slots:
            paused = decision.kind is DecisionKind.PAUSE or job.standing is Standing.PAUSED
            standing = Standing.PAUSED if paused else Standing.WAITING
        changed = decision.kind in (DecisionKind.START, DecisionKind.GROW, DecisionKind.SHRINK)
        jobs.append(
            msgspec.structs.replace(
                job,
                standing=standing,
                machine_kind=decision.machine_kind or job.machine_kind,
                wanted=decision.wanted,
                wanted_since=decision.wanted_since,
                trial=decision.trial,
                num_trials=decision.num_trials,
                last_resized_at=snapshot.now if changed else job.last_resized_at,
            )
        )
    levels = {(one.queue, one.user): one.level for one in decisions.use_levels}
    use = tuple(msgspec.structs.replace(one, level=levels.get((one.queue, one.user), 0)) for one in snapshot.recent_use)
    return msgspec.structs.replace(
        snapshot, slots=tuple(slots), jobs=tuple(jobs), now=snapshot.now + after_s, recent_use=use
    )


def settle(snapshot: Snapshot, rules: Rules = EAGER, rounds: int = 60) -> tuple[Snapshot, Decisions]:
    """Carry decisions out until nothing changes any more."""
    for _ in range(rounds):
        decisions = decide(snapshot, rules)
        after = carry_out(snapshot, decisions)
        same = [job.standing for job in after.jobs] == [job.standing for job in snapshot.jobs]
        if same and after.slots == snapshot.slots and decisions.decide_again_at is None:
            return after, decide(after, rules)
        snapshot = after
    raise AssertionError(f"no rest after {rounds} rounds: {[decision.reason for decision in decisions.decisions]}")


def counts(decisions: Decisions) -> dict[str, int]:
    return {decision.job: len(decision.slots) for decision in decisions.decisions}


def wanted(decisions: Decisions) -> dict[str, int]:
    return {decision.job: decision.wanted for decision in decisions.decisions}


def with_job(snapshot: Snapshot, *jobs: JobDemand) -> Snapshot:
    return msgspec.structs.replace(snapshot, jobs=(*snapshot.jobs, *jobs))


def without_job(snapshot: Snapshot, job: str) -> Snapshot:
    """Return the pool after a job ended and its workers are gone."""
    slots = tuple(
        msgspec.structs.replace(slot, holder=None, leaving=False) if slot.holder == job else slot
        for slot in snapshot.slots
    )
    return msgspec.structs.replace(snapshot, slots=slots, jobs=tuple(j for j in snapshot.jobs if j.id != job))
