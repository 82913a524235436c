"""Makes the policy's input from the facts, and changes of the store from its decisions.

No I/O and no clock. The functions are pure, apart from the memory of earlier speeds, which only saves time.
`legato.policy` decides which job gets which slots.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from legato.api.jobs import Progress
from legato.control.drivers.drivers import DriverReport, DriverState
from legato.control.loop.coming import ComingMachines
from legato.control.loop.left_out import LeftOut, describe
from legato.control.loop.loop_state import Memory, RoundFacts
from legato.control.records import LOCAL, Job, JobChange, Verdict
from legato.control.stages import HOLDING, Stage
from legato.control.work import Work, needs_server
from legato.core.slots import join_slots
from legato.core.speed import Speed, is_possible
from legato.policy import snapshot as policy
from legato.policy.earlier_runs import AlikeRuns, find_earlier_speeds
from legato.policy.faults import find_job_fault, find_queue_fault, find_slot_fault
from legato.policy.kinds import CPU, kind_of
from legato.policy.policies import decide
from legato.policy.rules import Rules
from legato.policy.snapshot import Standing
from legato.policy.speeds import find_slowdown

NOTHING_USED: Final[Mapping[str, float]] = {}
_KEPT: Final = "it is kept for a test of its cluster"

_FIND_AGAIN_S: Final = 600.0
"""Old measurements count no more, so earlier speeds are found again after so long."""
_SpeedsKey = tuple[tuple[Speed, ...], str, int | None]  # measured by the job, its kind of machine, its micro-batches

_log = structlog.get_logger(__name__)


class EarlierSpeeds(NamedTuple):
    """The speeds of earlier runs that one job can expect, and from what and when they were found."""

    runs: Sequence[AlikeRuns]
    key: _SpeedsKey
    at: float
    speeds: tuple[Speed, ...]


def make_snapshot(
    pool: RoundFacts,
    reports: Mapping[str, DriverReport],
    memories: Mapping[str, Memory],
    works: Mapping[str, Work],
    now: float,
    left_out: LeftOut,
    *,
    expects_agents: bool = False,
    measured_speed_s: float | None = None,
    earlier_runs: Mapping[str, Sequence[AlikeRuns]] = MappingProxyType({}),
    earlier_speeds: dict[str, EarlierSpeeds] | None = None,
    used_slot_s: Mapping[str, float] = NOTHING_USED,
) -> policy.Snapshot:
    """Return the snapshot of the pool for the policy.

    A job on which the policy cannot decide is left out, together with the slots that it holds; ``left_out`` says why.

    Args:
        pool: the facts.
        reports: of the drivers.
        memories: of the loop.
        works: programs and limits of the jobs, as far as known.
        now: the present time.
        left_out: jobs that it names already do not enter the snapshot. Jobs on which the policy cannot decide are added
            to it.
        expects_agents: machines with agents may join at any time; otherwise only those count that have joined.
        measured_speed_s: as in `Rules`.
        earlier_runs: of the same code, by job, as `legato.policy.earlier_runs.merge_runs` returns them.
        earlier_speeds: what was found in them, by job, so that the next call need not find it again. None: no memory.
        used_slot_s: seconds of slots that jobs have had; 0 for jobs that are missing.
    """
    left_out.add(pool.facts.unreadable)
    queues = _describe_queues(pool, left_out)
    has_agents = expects_agents or any(node.engine != LOCAL for node in pool.facts.nodes)
    in_play = {job.id: job for job in pool.facts.jobs if _is_in_play(job, works, memories.get(job.id), now)}
    kept = dict.fromkeys((node.name for node in pool.facts.nodes if policy.TEST_LABEL in (node.labels or {})), _KEPT)
    only_kind = _find_only_kind(pool)
    memory = {} if earlier_speeds is None else earlier_speeds
    for gone in memory.keys() - in_play.keys():
        del memory[gone]
    coming = ComingMachines(pool.facts.clusters, {node.name for node in pool.facts.nodes}, now)
    jobs = []
    for job in in_play.values():
        if job.id in left_out.jobs:
            continue
        with left_out.unless_fails(job.id, "what is known of it"):
            described = _describe(pool, job, reports.get(job.id), memories.get(job.id), works.get(job.id))
            if measured_speed_s is not None:
                runs = earlier_runs.get(job.id, ())
                described = _add_speeds(pool, described, job, runs, memory, only_kind, measured_speed_s, now)
            if used := used_slot_s.get(job.id):
                described = msgspec.structs.replace(described, used_slot_s=used)
            if kept and policy.TEST_LABEL not in described.labels:
                described = msgspec.structs.replace(described, refusals=described.refusals | kept)
            bound = _find_bond(described, reports.get(job.id), works.get(job.id)) if has_agents else None
            if bound is not None:
                labels = dict([*described.labels.items(), policy.OWN_MACHINE])
                described = msgspec.structs.replace(described, labels=labels, bound_because=bound)
            described = coming.add_to(described)
            fault = find_job_fault(described)
            if job.queue in left_out.queues:
                fault = f"its queue '{job.queue}' cannot be used: {left_out.queues[job.queue]}"
            if fault is None:
                jobs.append(described)
            else:
                left_out.jobs[job.id] = fault
    slots = _describe_slots(pool, in_play, left_out)
    nodes = tuple(
        policy.Node(
            name=node.name,
            kind=node.kind or "",
            traits=node.traits or {},
            labels=dict(
                [*(node.labels or {}).items(), *((policy.OWN_MACHINE,) if has_agents and node.engine == LOCAL else ())]
            ),
        )
        for node in pool.facts.nodes
    )
    return policy.Snapshot(now=now, slots=slots, jobs=tuple(jobs), queues=queues, nodes=nodes)


def _complete_kinds(pool: RoundFacts, runs: Sequence[AlikeRuns]) -> Sequence[AlikeRuns]:
    if not any(run.machine_kind.startswith("/") for run in runs):
        return runs
    return [msgspec.structs.replace(run, machine_kind=_complete_kind(pool, run.machine_kind)) for run in runs]


def _add_speeds(
    pool: RoundFacts,
    described: policy.JobDemand,
    job: Job,
    runs: Sequence[AlikeRuns],
    memory: dict[str, EarlierSpeeds],
    only_kind: str | None,
    measured_speed_s: float,
    now: float,
) -> policy.JobDemand:
    """Add the measured speeds of a job that count, and those of earlier runs for other numbers of workers."""
    known = () if job.progress is None else job.progress.speeds
    speeds = tuple(one for one in known if one.measured_s >= measured_speed_s and is_possible(one))
    earlier: tuple[Speed, ...] = ()
    kind = described.machine_kind or only_kind
    if runs and kind is not None:
        key = (speeds, kind, described.num_micro_batches)
        found = memory.get(job.id)
        if found is None or found.runs is not runs or found.key != key or not 0 <= now - found.at < _FIND_AGAIN_S:
            found = memory[job.id] = EarlierSpeeds(runs, key, now, _find_speeds(pool, job, runs, key, now))
        at = now if job.started_at is None else min(job.started_at, now)
        earlier = tuple(msgspec.structs.replace(one, at=at) for one in found.speeds)
    if not speeds and not earlier:
        return described
    speeds += earlier
    return msgspec.structs.replace(
        described,
        speeds=speeds,
        earlier=tuple(sorted({one.num_workers for one in earlier})),
        slowdown=find_slowdown(speeds, job.min_workers, now),
    )


def _find_speeds(
    pool: RoundFacts, job: Job, runs: Sequence[AlikeRuns], key: _SpeedsKey, now: float
) -> tuple[Speed, ...]:
    speeds, kind, num_micro_batches = key
    try:
        return find_earlier_speeds(
            _complete_kinds(pool, runs),
            speeds,
            machine_kind=kind,
            num_micro_batches=num_micro_batches,
            started_at=now,
            now=now,
        )
    except Exception as error:  # noqa: BLE001 -- rows of other jobs must not take this one out of scheduling
        _warn(job.id, describe(error))
        return ()


@functools.lru_cache(maxsize=1024)
def _warn(job: str, why: str) -> None:
    _log.error("the earlier runs of a job's code cannot be used", job=job, error=why)


def _find_only_kind(pool: RoundFacts) -> str | None:
    """Return the kind of machine of a job that has not begun. None: the pool has several kinds, or no slots."""
    kinds = {node.name: node.kind or "" for node in pool.facts.nodes}
    models = {(kinds.get(slot.node, ""), slot.device == CPU, slot.gpu_type or "") for slot in pool.facts.slots}
    if len(models) != 1:
        return None
    kind, is_cpu, gpu_type = models.pop()
    node = policy.Node(name="", kind=kind)
    return kind_of(node, policy.Slot(id="", node="", device=CPU if is_cpu else "", gpu_type=gpu_type))


def keep_levels(found: Iterable[policy.RecentUse], before: Iterable[policy.RecentUse]) -> tuple[policy.RecentUse, ...]:
    """Return the recent use that was found, with the levels of the last decision."""
    levels = {(one.queue, one.user): one.level for one in before}
    return tuple(msgspec.structs.replace(one, level=levels.get((one.queue, one.user))) for one in found)


def note_levels(use: Iterable[policy.RecentUse], decisions: policy.Decisions) -> tuple[policy.RecentUse, ...]:
    """Return the recent use with the levels of these decisions, which are an input of the next ones."""
    levels = {(one.queue, one.user): one.level for one in decisions.use_levels}
    return tuple(msgspec.structs.replace(one, level=levels.get((one.queue, one.user), 0)) for one in use)


def _find_bond(described: policy.JobDemand, report: DriverReport | None, work: Work | None) -> str | None:
    """Return why a job can use slots of the server's machine only, as a part of a sentence; None: it can use others."""
    if work is not None and needs_server(work):
        return "workers of WMLA and ElasticDL programs find one another on one machine only"
    if report is not None and report.is_local and described.standing in (Standing.RUNNING, Standing.RESIZING):
        return "it began before other machines joined: pause and resume it to use them"
    return None


def _describe_queues(pool: RoundFacts, left_out: LeftOut) -> tuple[policy.Queue, ...]:
    queues = []
    for queue in pool.facts.queues:
        described = policy.Queue(name=queue.name, weight=queue.weight, floor=queue.floor, ceiling=queue.ceiling)
        fault = find_queue_fault(described)
        if fault is None:
            queues.append(described)
        else:
            left_out.queues[queue.name] = f"{fault}; an administrator changes it with 'legato queues set'"
    return tuple(queues)


def _describe_slots(pool: RoundFacts, in_play: Mapping[str, Job], left_out: LeftOut) -> tuple[policy.Slot, ...]:
    holders = {found.slot: found for found in pool.facts.allocations}
    slots: dict[str, policy.Slot] = {}
    for slot in pool.facts.slots:
        holder = holders[slot.id].job if slot.id in holders else None
        described = policy.Slot(
            id=slot.id,
            node=slot.node,
            device=slot.device,
            gpu_type=slot.gpu_type or "",
            worker=(holders[slot.id].worker or "") if slot.id in holders else "",
            holder=holder,
            leaving=slot.id in holders and (holders[slot.id].release_asked_at is not None or holder not in in_play),
            # The slots of a job that is left out are not available to other jobs.
            usable=slot.unusable_since is None and holder not in left_out.jobs,
            trouble=(slot.unusable_reason or "") if slot.unusable_since is not None else "",
        )
        fault = "two slots have this id" if slot.id in slots else find_slot_fault(described)
        if fault is None:
            slots[slot.id] = described
        else:
            left_out.slots[slot.id] = fault
    return tuple(slots.values())


def decide_apart(snapshot: policy.Snapshot, rules: Rules, left_out: LeftOut) -> policy.Decisions:
    """Decide. If the policy fails, find the jobs that cause it, leave them out and decide on all others.

    Raises:
        Exception: no single jobs are the cause of the failure.
    """
    try:
        return decide(snapshot, rules)
    except Exception:  # noqa: BLE001 -- raised again below, unless single jobs are the cause
        decide(_with_only((), snapshot), rules)
        able = _find_able(snapshot.jobs, snapshot, rules, left_out)
        return decide(_with_only(able, snapshot), rules)


def _find_able(
    jobs: tuple[policy.JobDemand, ...], snapshot: policy.Snapshot, rules: Rules, left_out: LeftOut
) -> tuple[policy.JobDemand, ...]:
    """Return the jobs on which the policy can decide. Bisects, because usually one job of many is the cause."""
    try:
        decide(_with_only(jobs, snapshot), rules)
    except Exception as error:  # noqa: BLE001 -- any error concerns only these jobs
        if len(jobs) == 1:
            left_out.jobs[jobs[0].id] = f"the policy fails on it: {describe(error)}"
            return ()
        half = len(jobs) // 2
        first = _find_able(jobs[:half], snapshot, rules, left_out)
        return first + _find_able(jobs[half:], snapshot, rules, left_out)
    return jobs


def _with_only(jobs: tuple[policy.JobDemand, ...], snapshot: policy.Snapshot) -> policy.Snapshot:
    gone = {job.id for job in snapshot.jobs} - {job.id for job in jobs}
    slots = tuple(
        msgspec.structs.replace(slot, usable=False) if slot.holder in gone else slot for slot in snapshot.slots
    )
    return msgspec.structs.replace(snapshot, jobs=jobs, slots=slots)


def _is_in_play(job: Job, works: Mapping[str, Work], memory: Memory | None, now: float) -> bool:
    if job.stage is Stage.QUEUED and memory is not None and memory.attempt == job.attempt and now < memory.again_at:
        return False
    # A job whose spec cannot be read cannot be started. If it runs already, its driver knows the spec.
    return job.stage in (Stage.STARTING, Stage.RUNNING) or (job.stage is Stage.QUEUED and job.id in works)


def _describe(
    pool: RoundFacts, job: Job, report: DriverReport | None, memory: Memory | None, work: Work | None
) -> policy.JobDemand:
    max_workers = job.max_workers
    if memory is not None and memory.most is not None and job.stage in HOLDING and memory.attempt == job.attempt:
        # After a failure in one slot, a worker would probably fail in another slot too, until the job is started again.
        max_workers = max(job.min_workers, min(max_workers, memory.most // job.gpus_per_worker))
    # The report of its workers counts more than the value of the submission.
    measured = job.progress
    num_micro_batches = measured.num_micro_batches if measured is not None else None
    if num_micro_batches is None and work is not None:
        num_micro_batches = work.num_micro_batches
    return policy.JobDemand(
        id=job.id,
        name=job.name,
        owner=job.owner,
        queue=job.queue,
        submitted_at=job.submitted_at,
        min_workers=job.min_workers,
        max_workers=max_workers,
        gpus_per_worker=job.gpus_per_worker,
        gpu_type=None if work is None else work.gpu_type,
        labels={} if work is None else work.node_labels,
        machine_kind=_complete_kind(pool, job.machine_kind),
        refusals=dict(memory.refusals) if memory else {},
        priority=job.priority,
        elastic=job.is_elastic,
        num_micro_batches=num_micro_batches,
        shares_freely=measured is not None and measured.shares_freely,
        standing=_standing(pool, job, report),
        lost_nodes=report.lost_nodes if report is not None else (),
        wanted=memory.wanted if memory else None,
        wanted_since=memory.wanted_since if memory else None,
        trial=memory.trial if memory else None,
        num_trials=memory.num_trials if memory else 0,
        last_resized_at=memory.cools_since if memory else None,
        resize_cost_s=job.progress.resize_s if job.progress else None,
        due_slot_s=memory.account.due_slot_s if memory else 0.0,
        served_slot_s=memory.account.served_slot_s if memory else 0.0,
        behind=memory.account.behind if memory else 0,
    )


def _complete_kind(pool: RoundFacts, kind: str | None) -> str | None:
    """Return the kind of machine on which a job began; earlier releases recorded no name for that of the server."""
    if kind is None or not kind.startswith("/"):
        return kind
    own = next((node.kind for node in pool.facts.nodes if node.engine == LOCAL and node.kind), "")
    return f"{own}{kind}"


def _standing(pool: RoundFacts, job: Job, report: DriverReport | None) -> Standing:
    if job.stage is Stage.QUEUED:
        return Standing.PAUSED if job.attempt > 0 else Standing.WAITING
    if report is None or report.status is None or report.state is not DriverState.RUNNING:
        # Its driver starts, hangs, or was killed. Until its state is known, the job gets no more slots.
        return Standing.RESIZING
    status: dict[str, Any] = report.status
    unused = report.given_up | report.surplus
    settled = report.assigned == frozenset(pool.kept(job)) and report.in_use == report.assigned - unused
    trains = status["num_workers"] * job.gpus_per_worker == len((report.assigned or frozenset()) - unused)
    return Standing.RUNNING if settled and trains else Standing.RESIZING


def carry_out(
    pool: RoundFacts, decisions: policy.Decisions, memories: dict[str, Memory], left_out: LeftOut
) -> list[JobChange]:
    """Return the changes of the store that the policy's decisions need, with the reason for each job that was left out.

    A decision is new if it changes the job's slots or its target; otherwise only the text of the reason changes.
    """
    jobs = {job.id: job for job in pool.facts.jobs}
    changes = []
    for decision in decisions.decisions:
        with left_out.unless_fails(decision.job, "what was decided for it"):
            change = _carry_out_one(pool, jobs[decision.job], decision, memories)
            if change is not None:
                changes.append(change)
    for name, why in left_out.jobs.items():
        job = jobs.get(name)
        if job is not None and job.stage in (Stage.QUEUED, Stage.STARTING, Stage.RUNNING):
            changes.append(_leave(pool, job, why))
    return changes


def _forget_speeds(pool: RoundFacts, job: Job, kind: str | None) -> Progress | None:
    """Return the progress of a job that continues on another kind of machine, without its speeds. None: no change."""
    before = _complete_kind(pool, job.machine_kind)
    if kind is None or before is None or kind == before or job.progress is None or not job.progress.speeds:
        return None
    return msgspec.structs.replace(job.progress, speeds=())


def _leave(pool: RoundFacts, job: Job, why: str) -> JobChange:
    """Record in the store, with an event, why no decision was made for a job, unless the store says so already."""
    verdict = Verdict(len(pool.kept(job)), f"the scheduler ignores this job, and does not change its slots: {why}")
    return JobChange(job=job.id, seen_stage=job.stage, seen_attempt=job.attempt, verdict=verdict)


def _carry_out_one(
    pool: RoundFacts, job: Job, decision: policy.Decision, memories: dict[str, Memory]
) -> JobChange | None:
    memory = memories.setdefault(job.id, Memory(job.attempt))
    wanted_before = memory.wanted
    memory.wanted, memory.wanted_since = decision.wanted, decision.wanted_since
    memory.trial, memory.num_trials = decision.trial, decision.num_trials
    memory.account = memory.account.after(decision)
    kept = set(pool.kept(job))
    if decision.wanted_since is None and len(kept) == len(pool.held(job)):
        memory.is_hurried = False
    granted = sorted(set(decision.slots) - kept)
    if granted and pool.is_paused_by_policy(job):
        # The job starts again after its driver has ended.
        return None
    released = sorted(kept - set(decision.slots))
    is_same = job.decided_slots == len(decision.slots) and wanted_before in (None, decision.wanted)
    is_new = bool(granted or released or not is_same)
    kind = decision.machine_kind if decision.machine_kind != job.machine_kind else None
    if not is_new and job.decided_reason == decision.reason and kind is None:
        return None
    starts = job.stage is Stage.QUEUED and bool(granted)
    return JobChange(
        job=job.id,
        seen_stage=job.stage,
        seen_attempt=job.attempt,
        stage=Stage.STARTING if starts else None,
        reason=decision.reason,
        granted=tuple(granted),
        released=tuple(released),
        workers={slot: join_slots(slots) for slots in decision.workers for slot in slots if slot in granted},
        machine_kind=kind,
        verdict=Verdict(len(decision.slots), decision.reason, is_new),
        progress=_forget_speeds(pool, job, kind),
    )
