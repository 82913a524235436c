"""Computes what would happen if a job were submitted, from the policy's view of the pool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from legato.control.loop.coming import ComingMachines
from legato.control.loop.deciding import make_snapshot
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import RoundFacts
from legato.control.records import Facts, NewJob, Queue
from legato.control.roles import Asker
from legato.control.store import Store
from legato.control.work import Work, read_work
from legato.core.errors import NotFound, UsageError
from legato.core.spelling import ask_whether
from legato.policy import snapshot as policy
from legato.policy.rules import Rules
from legato.policy.whatif import Plan, plan

_NEW: Final = "new"  # no job's id: those begin with "j-"


class WorkCache:
    """The work of jobs that have not ended. Reads it once for each job, because it never changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Work] = {}

    def of(self, facts: Facts) -> dict[str, Work]:
        """Return the work of each job, except for those that cannot be read."""
        found: dict[str, Work] = {}
        for job in facts.jobs:
            known = self._known.get(job.id)
            if known is None:
                try:
                    known = read_work(self._store.jobs.read_spec(job.id))
                except UsageError:
                    continue  # written by another version, or just deleted: the plan works without it
            found[job.id] = known
        self._known = found
        return found


class PoolView(NamedTuple):
    """The pool as the policy sees it, and the machines that clusters may give."""

    snapshot: policy.Snapshot
    coming: ComingMachines


def plan_submission(view: PoolView, new: NewJob, asker: Asker, rules: Rules, now: float) -> Plan:
    """Return what would happen if ``asker`` submitted ``new`` now."""
    work = read_work(new.spec)
    job = policy.JobDemand(
        id=_NEW,
        name=new.name,
        owner=asker.name,
        queue=new.queue,
        submitted_at=now,
        min_workers=new.min_workers,
        max_workers=new.max_workers,
        gpus_per_worker=new.gpus_per_worker,
        gpu_type=work.gpu_type,
        labels=work.node_labels,
        priority=new.priority,
        elastic=new.is_elastic,
        num_micro_batches=work.num_micro_batches,
    )
    return plan(view.snapshot, view.coming.add_to(job), rules)


def take_view(store: Store, works: WorkCache, now: float, recent_use: tuple[policy.RecentUse, ...] = ()) -> PoolView:
    """Return the policy's view of the pool, as if no job were being resized.

    Args:
        store: the store of the platform.
        works: programs and limits of the jobs, as far as known.
        now: seconds since 1970.
        recent_use: of the users, as far as it counts.
    """
    facts = store.loop.read_facts()
    snapshot = make_snapshot(RoundFacts(facts), {}, {}, works.of(facts), now, LeftOut())
    jobs = tuple(_as_settled(job) for job in snapshot.jobs)
    coming = ComingMachines(facts.clusters, {node.name for node in facts.nodes}, now)
    return PoolView(msgspec.structs.replace(snapshot, jobs=jobs, recent_use=recent_use), coming)


def with_queues(snapshot: policy.Snapshot, wanted: Sequence[Queue]) -> policy.Snapshot:
    """Return the pool with these queues, which replace existing ones of the same names."""
    queues = {queue.name: queue for queue in snapshot.queues}
    for queue in wanted:
        queues[queue.name] = policy.Queue(
            name=queue.name, weight=queue.weight, floor=queue.floor, ceiling=queue.ceiling
        )
    return msgspec.structs.replace(snapshot, queues=tuple(queues.values()))


def check_queue(store: Store, queue: str, asker: Asker) -> None:
    """Raise NotFound unless there is a queue of this name that the asker may use."""
    names = [found.name for found in store.queues.list(asker.sees_only)]
    if queue not in names:
        hint = ask_whether(queue, names)
        raise NotFound(f"There is no queue '{queue}' that you may use.{hint} 'legato queues' lists those that you may.")


def _as_settled(job: policy.JobDemand) -> policy.JobDemand:
    """Return a job as if it were not being resized, because a plan concerns the time after that."""
    if job.standing is not policy.Standing.RESIZING:
        return job
    return msgspec.structs.replace(job, standing=policy.Standing.RUNNING)
