"""Explains a job's number of slots by the decisions on it, the holders of the slots, and the slots that it lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from legato.api import jobs
from legato.api.jobs import LostSlot, Party
from legato.control.records import Allocation, Holder, Job
from legato.control.roles import Asker, Role
from legato.control.stages import ENDED, UNDECIDED, Stage
from legato.control.store import Store
from legato.core.balance import cheap_numbers, describe_cheap_numbers
from legato.core.limits import render_size
from legato.core.speed import Speed
from legato.core.wire import NOTABLE_WAIT
from legato.policy.snapshot import Decision as PolicyDecision
from legato.policy.snapshot import JobDemand

_NUM_LOST: Final = 20
_NUM_NAMED: Final = 4
_MAX_NODES_NAMED: Final = 20

_STAGE_TEXTS: Final = {
    Stage.QUEUED: "waits in its queue",
    Stage.STARTING: "is starting",
    Stage.RUNNING: "is running",
    Stage.PAUSING: "is being paused",
    Stage.PAUSED: "is paused",
    Stage.STOPPING: "is being stopped",
    Stage.SUCCEEDED: "has succeeded",
    Stage.FAILED: "has failed",
    Stage.STOPPED: "was stopped",
}


class Explanation(jobs.Explanation, frozen=True, kw_only=True):
    """Why a job has its slots. ``docs/rest.md`` describes the fields."""

    ceiling: int | None


class Explainer:
    """Explains jobs to one asker.

    Args:
        store: the store with the jobs and decisions.
        asker: the user who gets the explanation.
        now: seconds since 1970.
    """

    def __init__(self, store: Store, asker: Asker, now: float) -> None:
        self._store = store
        self._asker = asker
        self._now = now

    def explain(
        self, job: Job, latest: PolicyDecision | None, limit: int, *, demand: JobDemand | None = None
    ) -> Explanation:
        """Explain one job.

        Args:
            job: a job that the asker may see.
            latest: the policy's last decision on the job. None: this server made none.
            limit: maximum number of decisions in the answer.
            demand: the job as the policy saw it. None: not known.
        """
        decisions = self._store.jobs.read_decisions(job.id, limit=max(limit, _NUM_LOST))
        freed = self._find_freed(job)
        lost = self._find_lost(job, {decision.time: decision.reason for decision in decisions})
        wants_more = self._wants_more(job, latest)
        # Other users who may see this job may not be allowed to see what other jobs of its owner have measured.
        sees_earlier = self._asker.name == job.owner or self._asker.role is Role.ADMIN
        speeds = _describe_speeds(job, demand, has_earlier=sees_earlier)
        holders = self._find_holders(job) if wants_more else ()
        return Explanation(
            job=job.id,
            sentences=self._write(job, holders, lost, freed, speeds),
            wanted=latest.wanted if latest else None,
            share=latest.share if latest else None,
            because=self._describe(latest.because if latest else ()),
            holders=holders,
            lost=(freed + lost)[:_NUM_LOST],
            decisions=tuple(
                jobs.Decision(one.time, one.attempt, one.num_slots, one.reason) for one in decisions[:limit]
            ),
            ceiling=latest.ceiling if latest else None,
        )

    def _write(
        self,
        job: Job,
        holders: tuple[Party, ...],
        lost: tuple[LostSlot, ...],
        freed: tuple[LostSlot, ...],
        speeds: tuple[str, ...],
    ) -> tuple[str, ...]:
        sentences = [f"{job.owner}/{job.name} {_STAGE_TEXTS[job.stage]}: {job.reason.rstrip('.')}."]
        if job.decided_reason and job.stage not in ENDED and job.stage not in UNDECIDED:
            sentences.append(f"The policy: {job.decided_reason.rstrip('.')}.")
        if where := self._describe_nodes(job):
            sentences.append(where)
        if job.progress is not None and (total := job.progress.num_micro_batches or 0) > job.max_workers:
            sentences.append(
                f"Each step has {total} micro-batches, enough for {total} workers; its maximum is {job.max_workers}."
            )
        if job.progress is not None and job.progress.unconnected and job.stage not in ENDED:
            told = job.progress.unconnected.rstrip(".")
            sentences.append(f"Some of its slots are held by workers that cannot connect and do not train: {told}.")
        if job.progress is not None and job.progress.sent_bytes and job.stage not in ENDED:
            size = render_size(job.progress.sent_bytes)
            sentences.append(f"In each step, its busiest machine sends {size} of gradients to other machines.")
        if job.progress is not None and (job.progress.data_wait or 0) >= NOTABLE_WAIT and job.stage is Stage.RUNNING:
            sentences.append(f"Its workers wait for data {job.progress.data_wait:.0%} of the time of a step.")
        if job.progress is not None and not job.progress.shares_freely and job.stage not in ENDED:
            total = job.progress.num_micro_batches or 0
            if job.is_elastic and job.max_workers > 1 and (cheap := cheap_numbers(total, job.max_workers)):
                sentences.append(describe_cheap_numbers(cheap))
        sentences.extend(speeds)
        if job.stage is Stage.PAUSED:
            sentences.append("It gets no slots until a user resumes it.")
            # Slots that it lost before the pause do not explain why it has none now.
            return (
                *sentences,
                *(f"The pause freed slot {one.slot}; {_describe_taker(one)}." for one in freed[:_NUM_NAMED]),
            )
        if holders:
            free = self._count_free()
            named = ", ".join(f"{party.title} {party.num_slots}" for party in holders[:_NUM_NAMED])
            more = f" and {len(holders) - _NUM_NAMED} more" if len(holders) > _NUM_NAMED else ""
            sentences.append(f"Slots that others hold: {named}{more}; free: {free}.")
        sentences.extend(self._describe_clusters(job) if could_use_more(job) else ())
        # Lost slots do not explain the state of a job that has ended.
        for one in lost[:_NUM_NAMED] if job.stage not in ENDED else ():
            why = f" ({one.reason})" if one.reason else ""
            sentences.append(f"It was asked to leave slot {one.slot}{why}; {_describe_taker(one)}.")
        return tuple(sentences)

    # ------------------------------------------------------------ reading the store

    @staticmethod
    def _wants_more(job: Job, latest: PolicyDecision | None) -> bool:
        if job.stage is Stage.QUEUED:
            return True
        if job.stage not in (Stage.STARTING, Stage.RUNNING):
            return False
        return job.num_slots < (latest.wanted if latest else job.max_workers * job.gpus_per_worker)

    def _find_holders(self, job: Job) -> tuple[Party, ...]:
        found = self._store.jobs.list_holders(self._asker.sees_only)
        return tuple(_make_party(holder) for holder in found if holder.id != job.id)

    def _find_lost(self, job: Job, reasons: dict[float, str]) -> tuple[LostSlot, ...]:
        had = sorted(self._store.jobs.read_allocations(job.id), key=lambda one: one.since)
        newest = {one.slot: one for one in had}.values()  # it may have had a slot several times
        now = [one for one in newest if one.until is None and one.release_asked_at is None]
        left = [one for one in newest if one.release_asked_at is not None and one.attempt == job.attempt]
        left = sorted(left, key=lambda one: -(one.release_asked_at or 0))[:_NUM_LOST]
        if job.stage not in ENDED:
            # All slots that it is leaving. Of those that it has left, as many as the job is short of its maximum.
            leaving, gone = ([one for one in left if (one.until is None) is is_open] for is_open in (True, False))
            left = leaving + gone[: max(job.max_workers * job.gpus_per_worker - len(now) - len(leaving), 0)]
        # The slot was asked back in the same transaction that stored the decision.
        return self._describe_lost([(one, one.release_asked_at or 0.0) for one in left], reasons)

    def _find_freed(self, job: Job) -> tuple[LostSlot, ...]:
        """Return the slots that a paused job held until it was paused."""
        if job.stage is not Stage.PAUSED:
            return ()
        had = self._store.jobs.read_allocations(job.id)
        last = [one for one in had if one.attempt == job.attempt and one.release_asked_at is None]
        left = [(one, one.until) for one in last if one.until is not None][:_NUM_LOST]
        return self._describe_lost(left, {until: job.reason for _, until in left})

    def _describe_lost(
        self, left: list[tuple[Allocation, float]], reasons: Mapping[float, str]
    ) -> tuple[LostSlot, ...]:
        """Return each slot with the time and the reason of its loss, and the job that has it now.

        Args:
            left: allocations that the job lost, with the times.
            reasons: known reasons, by time.
        """
        taken = self._find_takers([one for one, _ in left])
        takers = self._store.jobs.describe(frozenset(taken.values()), self._asker.sees_only)
        lost = []
        for one, time in left:
            taker = takers.get(taken.get(one.slot, ""))
            lost.append(
                LostSlot(
                    slot=one.slot,
                    time=time,
                    reason=reasons.get(time, ""),
                    job=taker.id if taker is not None and taker.is_visible else None,
                    title=None if taker is None else _title(taker),
                )
            )
        return tuple(lost)

    def _find_takers(self, left: list[Allocation]) -> dict[str, str]:
        """Return the job that holds each slot now, by slot. Slots that were not confirmed free are left out."""
        slots = {one.slot for one in left if one.until is not None}
        if not slots:
            return {}
        return {one.slot: one.job for one in self._store.pool.list_open() if one.slot in slots}

    def _describe_nodes(self, job: Job) -> str:
        """Say on which nodes a job has slots, and why on several; "": on none, or the pool has no more than one."""
        nodes = {slot.id: slot.node for slot in self._store.pool.list_slots()}
        if len(set(nodes.values())) < 2:
            return ""
        open_ones = (one for one in self._store.pool.list_open() if one.job == job.id and one.release_asked_at is None)
        held = Counter(nodes[one.slot] for one in open_ones if one.slot in nodes)
        told = [f"{node} ({number})" for node, number in sorted(held.items())]
        more = f" and {len(told) - _MAX_NODES_NAMED} more" if len(told) > _MAX_NODES_NAMED else ""
        if not told:
            return ""
        where = f"Its slots are on: {', '.join(told[:_MAX_NODES_NAMED])}{more}"
        if len(held) == 1:
            return f"{where}."
        if max(Counter(nodes.values()).values()) < held.total():
            return f"{where}; no node has {held.total()} slots."
        return f"{where}. A job keeps its slots, and fills the nodes that it has before it uses others."

    def _describe_clusters(self, job: Job) -> Iterator[str]:
        for cluster in self._store.pilots.read_states(self._now):
            yield from cluster.only_of(job.owner).describe()

    def _count_free(self) -> int:
        held = {one.slot for one in self._store.pool.list_open()}
        slots = self._store.pool.list_slots()
        return sum(1 for slot in slots if slot.unusable_since is None and slot.id not in held)

    def _describe(self, jobs: tuple[str, ...]) -> tuple[Party, ...]:
        """Return the jobs in the given order. Jobs that are no longer stored are left out."""
        known = self._store.jobs.describe(jobs, self._asker.sees_only)
        return tuple(_make_party(known[job]) for job in jobs if job in known)


def could_use_more(job: Job) -> bool:
    """Whether more machines of a cluster could make a job larger, also if it has all slots that there are for it."""
    most = job.max_workers * job.gpus_per_worker
    return job.stage is Stage.QUEUED or (job.stage in (Stage.STARTING, Stage.RUNNING) and job.num_slots < most)


def _describe_taker(lost: LostSlot) -> str:
    return f"{lost.title} has it now" if lost.title else "no job has it yet"


def _make_party(holder: Holder) -> Party:
    return Party(holder.id if holder.is_visible else None, _title(holder), holder.num_slots)


def _title(holder: Holder) -> str:
    return f"{holder.owner}/{holder.name}"


def _describe_speeds(job: Job, demand: JobDemand | None, *, has_earlier: bool) -> tuple[str, ...]:
    """Describe the speeds that a job has measured, and those of earlier runs that the policy expects of it."""
    own = () if job.progress is None else job.progress.speeds
    earlier = [one for one in demand.speeds if one.num_workers in demand.earlier] if demand and has_earlier else []
    told = [f"Its measured speed: {_list_speeds(own)}."] if own and job.stage not in ENDED else []
    told += [f"From earlier runs of the same code: {_list_speeds(earlier)}."] if earlier else []
    return tuple(told)


def _list_speeds(speeds: Iterable[Speed]) -> str:
    """Write measured speeds.

    >>> _list_speeds([Speed(num_workers=4, num_nodes=2, samples_per_s=812.36, measured_s=60.0, at=0.0)])
    '812.4 samples/s with 4 workers on 2 nodes'
    """
    told = []
    for one in sorted(speeds, key=lambda one: (one.num_workers, one.num_nodes)):
        workers = "1 worker" if one.num_workers == 1 else f"{one.num_workers} workers"
        nodes = f" on {one.num_nodes} nodes" if one.num_nodes > 1 else ""
        rate = f"{one.samples_per_s:.0f}" if one.samples_per_s >= 1000 else f"{one.samples_per_s:.4g}"
        told.append(f"{rate} samples/s with {workers}{nodes}")
    return ", ".join(told)
