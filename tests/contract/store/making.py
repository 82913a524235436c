"""What the tests of the store put into it."""

from __future__ import annotations

from typing import Any

from legato.control.records import CheckedJob, DeclaredSlot, Job, JobChange, Lease, NewJob, Node
from legato.control.roles import Asker, Role
from legato.control.stages import Stage
from legato.control.store import Store, check_new_job

NOW = 1_800_000_000.0
ADMIN = Asker("admin", Role.ADMIN)
ANN = Asker("ann", Role.USER)
BEN = Asker("ben", Role.USER)
EYE = Asker("eye", Role.VIEWER)


def make_people(store: Store) -> None:
    made = store.tokens.create_first(NOW)
    assert made is not None
    for asker in (ANN, BEN, EYE):
        store.accounts.create(asker.name, asker.role, ADMIN, NOW)


def make_job(**changes: Any) -> CheckedJob:
    values: dict[str, Any] = {"name": "mnist", "spec": {"program": ["train.py"]}, "min_workers": 1, "max_workers": 4}
    return check_new_job(NewJob(**{**values, **changes}))


def make_pool(store: Store, num_slots: int, now: float = NOW) -> tuple[Lease, list[str]]:
    """Take the lease and declare one node."""
    lease = store.loop.take_lease("loop", now, 1e9)
    assert lease is not None
    ids = [f"node/cpu:{number}" for number in range(num_slots)]
    store.pool.declare([make_node(ids)], lease.fence, now)
    return lease, ids


def make_node(ids: list[str], name: str = "node") -> Node:
    return Node(name=name, engine="local", slots=tuple(DeclaredSlot(slot, slot.partition("/")[2]) for slot in ids))


def change(job: Job, **changes: Any) -> JobChange:
    """A change that rests on the job as it was read."""
    return JobChange(job=job.id, seen_stage=job.stage, seen_attempt=job.attempt, **changes)


def write(store: Store, fence: int, job: Job, now: float = NOW, **changes: Any) -> Job:
    """Write one change of the loop, and return the job as it is then."""
    assert store.loop.write([change(job, **changes)], fence, now).stale == ()
    return store.jobs.get(job.id)


def start(store: Store, fence: int, job: Job, slots: tuple[str, ...] = (), now: float = NOW) -> Job:
    """Bring a queued job to running."""
    starting = write(store, fence, job, now, stage=Stage.STARTING, granted=slots, reason="its share")
    return write(store, fence, starting, now, stage=Stage.RUNNING, reason="its workers train")
