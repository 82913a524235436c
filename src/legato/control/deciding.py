"""Before and behind the policy, as pure functions: what it sees of the platform, and what its decisions change there.

No I/O and no clock. Who gets what is decided in `legato.policy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legato.control.drivers import DriverReport, DriverState
from legato.control.memories import Memory, Pool
from legato.control.records import Job, JobChange, Verdict
from legato.control.stages import HOLDING, Stage
from legato.control.work import Work
from legato.policy import snapshot as policy
from legato.policy.snapshot import Standing


def make_snapshot(
    pool: Pool,
    reports: Mapping[str, DriverReport],
    memories: Mapping[str, Memory],
    works: Mapping[str, Work],
    now: float,
) -> policy.Snapshot:
    """Return what the policy sees.

    Args:
        pool: the facts.
        reports: of the drivers.
        memories: of the loop.
        works: what the jobs run, as far as known.
        now: this moment.
    """
    holders = {found.slot: found for found in pool.facts.allocations}
    in_play = {job.id: job for job in pool.facts.jobs if _is_in_play(job, works, memories.get(job.id), now)}
    slots = tuple(
        policy.Slot(
            id=slot.id,
            node=slot.node,
            device=slot.device,
            holder=holders[slot.id].job if slot.id in holders else None,
            leaving=slot.id in holders
            and (holders[slot.id].release_asked_at is not None or holders[slot.id].job not in in_play),
            usable=slot.unusable_since is None,
        )
        for slot in pool.facts.slots
    )
    queues = tuple(
        policy.Queue(name=queue.name, weight=queue.weight, floor=queue.floor, ceiling=queue.ceiling)
        for queue in pool.facts.queues
    )
    jobs = tuple(
        _describe(pool, job, reports.get(job.id), memories.get(job.id), works.get(job.id)) for job in in_play.values()
    )
    return policy.Snapshot(now=now, slots=slots, jobs=jobs, queues=queues)


def _is_in_play(job: Job, works: Mapping[str, Work], memory: Memory | None, now: float) -> bool:
    if job.stage is Stage.QUEUED and memory is not None and memory.attempt == job.attempt and now < memory.again_at:
        return False
    # What cannot be read cannot be started; what runs already is known to its driver.
    return job.stage in (Stage.STARTING, Stage.RUNNING) or (job.stage is Stage.QUEUED and job.id in works)


def _describe(
    pool: Pool, job: Job, report: DriverReport | None, memory: Memory | None, work: Work | None
) -> policy.Job:
    max_workers = job.max_workers
    if memory is not None and memory.most is not None and job.stage in HOLDING and memory.attempt == job.attempt:
        # What failed in one slot would fail in the next one too, until the job is started anew.
        max_workers = max(job.min_workers, min(max_workers, memory.most))
    # What its workers say counts more than what was said of it when it was submitted.
    measured = job.progress
    num_micro_batches = measured.num_micro_batches if measured is not None else None
    if num_micro_batches is None and work is not None:
        num_micro_batches = work.num_micro_batches
    return policy.Job(
        id=job.id,
        name=job.name,
        owner=job.owner,
        queue=job.queue,
        submitted_at=job.submitted_at,
        min_workers=job.min_workers,
        max_workers=max_workers,
        priority=job.priority,
        elastic=job.is_elastic,
        num_micro_batches=num_micro_batches,
        shares_freely=measured is not None and measured.shares_freely,
        standing=_standing(pool, job, report),
        wanted=memory.wanted if memory else None,
        wanted_since=memory.wanted_since if memory else None,
        last_resized_at=memory.cools_since if memory else None,
        resize_cost_s=job.progress.resize_s if job.progress else None,
        due_slot_s=memory.account.due_slot_s if memory else 0.0,
        served_slot_s=memory.account.served_slot_s if memory else 0.0,
        behind=memory.account.behind if memory else 0,
    )


def _standing(pool: Pool, job: Job, report: DriverReport | None) -> Standing:
    if job.stage is Stage.QUEUED:
        return Standing.PAUSED if job.attempt > 0 else Standing.WAITING
    if report is None or report.status is None or report.state is not DriverState.RUNNING:
        # Its driver starts, or hangs, or was killed: until that is known nothing is added to it.
        return Standing.RESIZING
    status: dict[str, Any] = report.status
    unused = report.given_up | report.surplus
    settled = report.assigned == frozenset(pool.kept(job)) and report.in_use == report.assigned - unused
    trains = status["num_workers"] == len((report.assigned or frozenset()) - unused)
    return Standing.RUNNING if settled and trains else Standing.RESIZING


def carry_out(pool: Pool, decisions: policy.Decisions, memories: dict[str, Memory]) -> list[JobChange]:
    """Return what the policy's decisions change in the store.

    A decision is new if the job's slots change, or how many it should have in the end; otherwise only the words change.
    """
    jobs = {job.id: job for job in pool.facts.jobs}
    changes = []
    for decision in decisions.decisions:
        job = jobs[decision.job]
        memory = memories.setdefault(job.id, Memory(job.attempt))
        wanted_before = memory.wanted
        memory.wanted, memory.wanted_since = decision.wanted, decision.wanted_since
        memory.account = memory.account.after(decision)
        kept = set(pool.kept(job))
        if decision.wanted_since is None and len(kept) == len(pool.held(job)):
            memory.is_hurried = False
        granted = sorted(set(decision.slots) - kept)
        if granted and pool.is_paused_by_policy(job):
            # It begins anew when its driver has ended.
            continue
        released = sorted(kept - set(decision.slots))
        is_same = job.decided_slots == len(decision.slots) and wanted_before in (None, decision.wanted)
        is_new = bool(granted or released or not is_same)
        if not is_new and job.decided_reason == decision.reason:
            continue
        starts = job.stage is Stage.QUEUED and bool(granted)
        changes.append(
            JobChange(
                job=job.id,
                seen_stage=job.stage,
                seen_attempt=job.attempt,
                stage=Stage.STARTING if starts else None,
                reason=decision.reason,
                granted=tuple(granted),
                released=tuple(released),
                verdict=Verdict(len(decision.slots), decision.reason, is_new),
            )
        )
    return changes
