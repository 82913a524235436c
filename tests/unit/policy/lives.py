"""Lets random pools live for a while: jobs come and end, machines fail, users change what they asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import msgspec
from tests.unit.policy.world import carry_out, make_job, make_speed, with_job

from legato.policy.policies import decide
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.snapshot import (
    OWN_MACHINE,
    OWNER_LABEL,
    Decisions,
    JobDemand,
    Node,
    Queue,
    RecentUse,
    Slot,
    Snapshot,
    Standing,
)
from legato.policy.speeds import find_slowdown

BOUND: Final = "it reads a private file"
_QUEUES: Final = ("a", "b", "c")
_USERS: Final = ("ann", "ben", "cleo")
_NODES: Final = 5


def draw_rules(source: random.Random) -> Rules:
    eager = source.random() < 0.4
    return Rules(
        policy=source.choice([Policy.FAIR, Policy.FAIR, Policy.PRIORITY, Policy.FIFO, Policy.THROUGHPUT]),
        fair_by=source.choice(list(FairBy)),
        usage_half_life_s=source.choice([None, 3600.0]),
        stability_s=0.0 if eager else 3.0,
        cooldown_factor=0.0 if eager else 20.0,
        gather_s=0.0 if eager else 10.0,
        reserve_after_s=source.choice([None, None, 0.0, 20.0]),
        ageing_s=source.choice([None, None, 10.0]),
        fair_finish_s=source.choice([None, None, 20.0]),
        long_job_slot_s=source.choice([None, 40.0]),
    )


def live(source: random.Random, rules: Rules, *, rounds: int = 10) -> Iterator[tuple[Snapshot, Decisions]]:
    """Yield a pool at several moments, each with its decisions."""
    draw = _Draw(source)
    snapshot = draw.pool()
    for _ in range(rounds):
        for _ in range(source.choice([0, 0, 1, 1, 3])):
            snapshot = with_job(snapshot, draw.job(snapshot.now))
        decisions = decide(snapshot, rules)
        yield snapshot, decisions
        after_s = source.choice([0.5, 4.0, 4.0, 30.0])
        snapshot = draw.account(carry_out(snapshot, decisions, after_s=after_s, slow=source.random() < 0.4), decisions)
        for _ in range(source.choice([0, 0, 1, 2])):
            snapshot = source.choice(draw.events)(snapshot)


class _Draw:
    """Draws pools, jobs and what happens to them. Every pool has a character of its own: some facts are rare in it."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._number = 0
        self._mixed = source.random() < 0.4
        self._picky = source.choice([0.0, 0.0, 0.2, 0.6])
        self._owned = source.choice([0.0, 0.0, 0.6])
        self._one_user = source.random() < 0.2
        self._one_queue = source.random() < 0.4
        self._wide = source.random() < 0.3
        self.events = (
            self._end_job,
            self._lose_node,
            self._lose_slot,
            self._repair,
            self._change_job,
            self._change_queues,
            self._resize_slowly,
            self._measure,
        )

    def pool(self) -> Snapshot:
        source = self._source
        nodes, slots = [], []
        gpus = source.random() < 0.6
        for index in range(source.randint(1, _NODES)):
            name = f"n{index}"
            labels = source.choice([{}, {}, {"site": "x"}, {"site": "y", "disk": "ssd"}]) if self._picky else {}
            if source.random() < self._owned:
                labels = {**labels, OWNER_LABEL: source.choice(_USERS)}
            if self._picky and not index:
                labels = {**labels, OWN_MACHINE[0]: OWN_MACHINE[1]}
            kind = source.choice(["k1", "k1", "k2"]) if self._mixed else ""
            traits = {"CPU capability": kind} if kind else {}
            nodes.append(Node(name=name, kind=kind, traits=traits, labels=labels))
            gpu_type = source.choice(["A100", "A100", "T4"]) if self._mixed else "A100"
            device = "GPU-1" if gpus else "cpu"
            model = gpu_type if gpus else ""
            slots += [
                Slot(id=f"{name}/{number}", node=name, device=device, gpu_type=model)
                for number in range(source.randint(1, 5))
            ]
        use = tuple(
            RecentUse(queue=queue, user=user, num_slots=source.choice([0.0, 0.5, 2.0, 5.0, 40.0]))
            for queue in _QUEUES
            for user in _USERS
        )
        return Snapshot(
            now=100.0, slots=tuple(slots), jobs=(), queues=self._queues(), nodes=tuple(nodes), recent_use=use
        )

    def job(self, now: float) -> JobDemand:
        source, self._number = self._source, self._number + 1
        low = source.choice([1, 1, 1, 2, 3, 5] if self._wide else [1, 1, 1, 1, 2])
        fields: dict[str, object] = {}
        if source.random() < self._picky:
            fields["gpus_per_worker"] = source.choice([1, 1, 1, 2, 3])
            fields["gpu_type"] = source.choice([None, None, "A100", "T4"])
            fields["labels"] = source.choice([{}, {"site": "x"}, {"site": "y"}, {"site": "z"}])
            fields["refusals"] = source.choice(
                [{}, {}, {"n0": "no data"}, {"n0": "no data", "n1": "full"}, {f"n{i}": "no data" for i in range(4)}]
            )
            if source.random() < 0.15:
                fields["labels"] = {OWN_MACHINE[0]: OWN_MACHINE[1]}
                fields["bound_because"] = BOUND
        job = make_job(
            f"{_USERS[0] if self._one_user else source.choice(_USERS)}/j{self._number}",
            low + source.choice([0, 0, 1, 2, 4, 7]),
            at=now - source.choice([0.0, 0.0, 5.0, 30.0]),
            queue="a" if self._one_queue else source.choice(_QUEUES),
            min_workers=low,
            priority=source.choice([1000, 5000, 5000, 5000, 10_000]),
            elastic=source.random() < 0.8,
            num_micro_batches=source.choice([None, None, None, 1, 2, 4, 6, 8]),
            shares_freely=source.random() < 0.2,
            standing=source.choice([Standing.WAITING] * 4 + [Standing.PAUSED]),
            machine_kind=source.choice([None] * 6 + ["gone/cpu"]) if self._mixed else None,
            **fields,
        )
        return self._measured(job) if source.random() < 0.3 else job

    def account(self, snapshot: Snapshot, decisions: Decisions) -> Snapshot:
        """Count the seconds of slots of every job, as the control loop does."""
        of = {decision.job: decision for decision in decisions.decisions}
        jobs = tuple(
            msgspec.structs.replace(
                job,
                due_slot_s=job.due_slot_s + 4 * of[job.id].due,
                served_slot_s=job.served_slot_s + 4 * len(of[job.id].slots),
                used_slot_s=job.used_slot_s + 4 * len(of[job.id].slots),
                behind=of[job.id].behind,
                resize_cost_s=job.resize_cost_s or self._source.choice([None, 0.1, 2.5]),
                standing=Standing.RUNNING if job.standing is Standing.RESIZING else job.standing,
            )
            for job in snapshot.jobs
        )
        return msgspec.structs.replace(snapshot, jobs=jobs)

    def _queues(self) -> tuple[Queue, ...]:
        source = self._source
        return tuple(
            Queue(
                name=name,
                weight=source.choice([1.0, 1.0, 2.0, 0.5]),
                floor=(floor := source.choice([0, 0, 0, 2, 5])),
                ceiling=source.choice([None, None, None, max(floor, 1), floor + 3]),
            )
            for name in _QUEUES
            if source.random() < 0.6
        )

    def _replace_job(self, snapshot: Snapshot, job: JobDemand) -> Snapshot:
        jobs = tuple(job if each.id == job.id else each for each in snapshot.jobs)
        return msgspec.structs.replace(snapshot, jobs=jobs)

    def _end_job(self, snapshot: Snapshot) -> Snapshot:
        gone = self._source.randrange(len(snapshot.jobs)) if snapshot.jobs else 0
        return msgspec.structs.replace(snapshot, jobs=(*snapshot.jobs[:gone], *snapshot.jobs[gone + 1 :]))

    def _lose_node(self, snapshot: Snapshot) -> Snapshot:
        """A node is lost or drained; of a lost one, workers may still run until the lease is over."""
        node = self._source.choice(snapshot.nodes).name
        trouble = self._source.choice(["", "its agent does not answer", "ann drains its machine"])
        slots = tuple(
            msgspec.structs.replace(slot, usable=False, trouble=trouble) if slot.node == node else slot
            for slot in snapshot.slots
        )
        if not trouble.startswith("its"):
            return msgspec.structs.replace(snapshot, slots=slots)
        holders = {slot.holder for slot in slots if slot.node == node}
        jobs = tuple(
            msgspec.structs.replace(job, lost_nodes=(node,), standing=Standing.RESIZING) if job.id in holders else job
            for job in snapshot.jobs
        )
        return msgspec.structs.replace(snapshot, slots=slots, jobs=jobs)

    def _lose_slot(self, snapshot: Snapshot) -> Snapshot:
        index = self._source.randrange(len(snapshot.slots))
        broken = msgspec.structs.replace(snapshot.slots[index], usable=False)
        return msgspec.structs.replace(snapshot, slots=(*snapshot.slots[:index], broken, *snapshot.slots[index + 1 :]))

    def _repair(self, snapshot: Snapshot) -> Snapshot:
        slots = tuple(msgspec.structs.replace(slot, usable=True, trouble="") for slot in snapshot.slots)
        jobs = tuple(msgspec.structs.replace(job, lost_nodes=()) for job in snapshot.jobs)
        return msgspec.structs.replace(snapshot, slots=slots, jobs=jobs)

    def _change_job(self, snapshot: Snapshot) -> Snapshot:
        if not snapshot.jobs:
            return snapshot
        source, job = self._source, self._source.choice(snapshot.jobs)
        changed = source.choice(
            [
                {"priority": source.choice([1000, 5000, 10_000])},
                {"max_workers": max(job.min_workers, job.max_workers - source.randint(1, 4))},
                {"max_workers": job.max_workers + 2},
                {"num_micro_batches": source.choice([None, 2, 4, 6])},
                {"queue": source.choice(_QUEUES)},
                {"min_workers": 1},
            ]
        )
        return self._replace_job(snapshot, msgspec.structs.replace(job, **changed))

    def _change_queues(self, snapshot: Snapshot) -> Snapshot:
        return msgspec.structs.replace(snapshot, queues=self._queues())

    def _resize_slowly(self, snapshot: Snapshot) -> Snapshot:
        running = [job for job in snapshot.jobs if job.standing is Standing.RUNNING]
        if not running:
            return snapshot
        return self._replace_job(
            snapshot, msgspec.structs.replace(self._source.choice(running), standing=Standing.RESIZING)
        )

    def _measure(self, snapshot: Snapshot) -> Snapshot:
        return (
            self._replace_job(snapshot, self._measured(self._source.choice(snapshot.jobs)))
            if snapshot.jobs
            else (snapshot)
        )

    def _measured(self, job: JobDemand) -> JobDemand:
        source = self._source
        ratio, peak = source.choice([0.02, 0.1, 0.5]), source.choice([2, 3, 99, 99])
        speeds = tuple(
            make_speed(number, 1 / (1 / min(number, peak) + ratio) * (0.7 if number > peak else 1.0))
            for number in (1, 2, 4, 6)
            if source.random() < 0.7
        )
        slowdown = find_slowdown(speeds, job.min_workers, 100.0)
        return msgspec.structs.replace(job, speeds=speeds, slowdown=slowdown)
