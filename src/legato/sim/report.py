"""The results of a workload: times, allocation and resizes as numbers, and slots over time. Simulates nothing.

Times are seconds. A job's time runs from its submission: it *waits* until it has slots for the first time, and is
*complete* when it has succeeded. Its completion time is compared with the time that it would take alone, with all slots
that help it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import msgspec

from legato.control.records import Job
from legato.control.stages import ENDED, Stage
from legato.drawing.axis import format_elapsed
from legato.drawing.holdings import Holding, Mark, Panel
from legato.sim.load import Costs, Load
from legato.sim.schemes import Scheme, find_limit
from legato.sim.simulated_attempt import Saved
from legato.sim.simulation import Setting, World, simulate
from legato.sim.workload import PlannedJob


class Spread(msgspec.Struct, frozen=True):
    """Statistics of values; percentiles by nearest rank. None if there are no values."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Describe values.

        >>> Spread.of([4.0, 1.0, 2.0, 3.0])
        Spread(mean=2.5, p50=2.0, p95=4.0, p99=4.0, max=4.0)
        """
        found = sorted(values)
        if not found:
            return cls(None, None, None, None, None)
        at = [found[max(math.ceil(rank * len(found)) - 1, 0)] for rank in (0.5, 0.95, 0.99)]
        return cls(math.fsum(found) / len(found), at[0], at[1], at[2], found[-1])


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one job.

    Args:
        stage: at the end; ``succeeded``, or another one if the simulation ended before.
        reason: of the stage.
        waiting_s: until it had slots for the first time. None: it never had slots.
        completion_s: until it had succeeded. None: it has not.
        slowdown: ``completion_s`` divided by the time that it would have taken alone.
        slot_s: slot-seconds that it had.
        num_resizes: how often the number of its workers changed while it trained.
        num_pauses: how often the policy took all of its slots.
    """

    id: str
    name: str
    owner: str
    queue: str
    submitted_at: float
    stage: Stage
    reason: str
    waiting_s: float | None
    completion_s: float | None
    slowdown: float | None
    slot_s: float
    num_resizes: int
    num_pauses: int


class UserReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the jobs of one user. Times are means in seconds; None: no job has one.

    Args:
        slot_s: slot-seconds that they had.
    """

    user: str
    num_jobs: int
    mean_waiting_s: float | None
    mean_completion_s: float | None
    slot_s: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a workload under one policy.

    Args:
        policy: the name of the scheme.
        num_jobs: of the workload.
        num_unfinished: jobs that have not succeeded; they are not part of the statistics of completion.
        makespan_s: from the first submission to the last end; to the end of the simulation if a job had slots then.
        allocation: slot-seconds that jobs had, divided by those of the pool in the makespan.
        useful_allocation: the same, counting only time in which workers trained and helped.
        resizes_per_job: mean number per job; ``pauses_per_job`` likewise.
        users: by name.
        jobs: in order of submission.
    """

    policy: str
    num_jobs: int
    num_unfinished: int
    completion_s: Spread
    waiting_s: Spread
    slowdown: Spread
    makespan_s: float
    allocation: float
    useful_allocation: float
    resizes_per_job: float
    pauses_per_job: float
    users: tuple[UserReport, ...]
    jobs: tuple[JobReport, ...]


# ---------------------------------------------------------------- numbers


def time_alone(load: Load, sizes: Iterable[int], costs: Costs) -> float:
    """Return how many seconds a job takes alone in the pool, on the best number of workers.

    >>> time_alone(Load(num_steps=100, step_s=2.0), range(1, 5), Costs(driver_s=1, start_s=2))
    53.0
    """
    return costs.driver_s + costs.start_s + load.num_steps * min(load.seconds_per_step(size) for size in sizes)


def make_report(world: World, plans: Sequence[PlannedJob], scheme: Scheme) -> Report:
    """Return the results of a workload as numbers.

    Args:
        world: after the simulation.
        plans: of the workload, in order of submission, before the scheme has changed anything.
        scheme: under which the workload ran.
    """
    jobs = [world.store.jobs[job] for job in sorted(world.store.jobs)]
    begin = min((job.submitted_at for job in jobs), default=0.0)
    end = max((job.ended_at for job in jobs if job.ended_at is not None), default=begin)
    if world.store.open:
        end = max(end, world.ended_at)
    slot_s = dict.fromkeys(world.store.jobs, 0.0)
    for allocation in [*world.store.closed, *world.store.open.values()]:
        until = end if allocation.until is None else allocation.until
        slot_s[allocation.job] += max(until - allocation.since, 0.0)
    told = [_report_one(job, plan, world, slot_s[job.id]) for job, plan in zip(jobs, plans, strict=False)]
    available_s = world.setting.num_slots * (end - begin)
    useful_s = sum(saved.useful_s for saved in world.drivers.saved.values())
    return Report(
        policy=scheme.name,
        num_jobs=len(plans),
        num_unfinished=len(plans) - sum(job.completion_s is not None for job in told),
        completion_s=Spread.of(job.completion_s for job in told if job.completion_s is not None),
        waiting_s=Spread.of(job.waiting_s for job in told if job.waiting_s is not None),
        slowdown=Spread.of(job.slowdown for job in told if job.slowdown is not None),
        makespan_s=end - begin,
        allocation=sum(slot_s.values()) / available_s if available_s else 0.0,
        useful_allocation=useful_s / available_s if available_s else 0.0,
        resizes_per_job=sum(job.num_resizes for job in told) / max(len(told), 1),
        pauses_per_job=sum(job.num_pauses for job in told) / max(len(told), 1),
        users=_report_users(told),
        jobs=tuple(told),
    )


def _report_users(jobs: Iterable[JobReport]) -> tuple[UserReport, ...]:
    own: dict[str, list[JobReport]] = {}
    for job in jobs:
        own.setdefault(job.owner, []).append(job)
    return tuple(
        UserReport(
            user=user,
            num_jobs=len(inside),
            mean_waiting_s=Spread.of(job.waiting_s for job in inside if job.waiting_s is not None).mean,
            mean_completion_s=Spread.of(job.completion_s for job in inside if job.completion_s is not None).mean,
            slot_s=math.fsum(job.slot_s for job in inside),
        )
        for user, inside in sorted(own.items())
    )


def _report_one(job: Job, plan: PlannedJob, world: World, slot_s: float) -> JobReport:
    setting = world.setting
    completion_s = job.ended_at - job.submitted_at if job.stage is Stage.SUCCEEDED and job.ended_at else None
    sizes = range(plan.min_workers, min(plan.max_workers, find_limit(plan, setting)) + 1)
    alone_s = time_alone(plan.load, sizes if plan.is_elastic and sizes else (plan.max_workers,), setting.costs)
    saved = world.drivers.saved.get(job.id, Saved())
    return JobReport(
        id=job.id,
        name=job.name,
        owner=job.owner,
        queue=job.queue,
        submitted_at=job.submitted_at,
        stage=job.stage,
        reason=job.reason if job.stage in ENDED else job.decided_reason or job.reason,
        waiting_s=None if job.started_at is None else job.started_at - job.submitted_at,
        completion_s=completion_s,
        slowdown=None if completion_s is None else completion_s / alone_s,
        slot_s=slot_s,
        num_resizes=saved.num_resizes,
        num_pauses=max(job.attempt - 1 - job.num_retries, 0),
    )


def compare(reports: Sequence[Report]) -> list[dict[str, float | None]]:
    """Return each report's figures divided by those of the first report; None if that is 0 or missing.

    >>> from legato.sim.schemes import SCHEMES
    >>> report = make_report(simulate([], Setting()), [], SCHEMES["fair"])
    >>> compare([report])[0]["makespan_s"] is None
    True
    """
    figures = [list_figures(report) for report in reports]
    return [{name: _ratio(value, figures[0][name]) for name, value in own.items()} for own in figures]


def _ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def list_figures(report: Report) -> dict[str, float | None]:
    """Return the figures of a report by which policies are compared, by name."""
    return {
        "mean_completion_s": report.completion_s.mean,
        "p50_completion_s": report.completion_s.p50,
        "p95_completion_s": report.completion_s.p95,
        "p99_completion_s": report.completion_s.p99,
        "mean_waiting_s": report.waiting_s.mean,
        "p95_waiting_s": report.waiting_s.p95,
        "p95_slowdown": report.slowdown.p95,
        "makespan_s": report.makespan_s,
        "allocation": report.allocation,
        "useful_allocation": report.useful_allocation,
        "resizes_per_job": report.resizes_per_job,
        "pauses_per_job": report.pauses_per_job,
    }


# ---------------------------------------------------------------- the picture


def make_panel(world: World, report: Report) -> Panel:
    """Return which job had which slots when, and the events, as a panel for `legato.drawing.timeline`."""
    holdings = [
        Holding(slot=allocation.slot, job=allocation.job, since=allocation.since, until=allocation.until)
        for allocation in [*world.store.closed, *world.store.open.values()]
    ]
    mean_s = report.completion_s.mean
    told = f"makespan {format_elapsed(int(report.makespan_s))}, {report.allocation:.0%} of the slots allocated"
    if mean_s is not None:
        told = f"mean completion time {format_elapsed(int(mean_s))}, {told}"
    return Panel(
        holdings=holdings,
        slots=world.setting.slots(),
        marks=[*_list_ends(world), *_list_changes(world)],
        title=report.policy,
        told=told,
    )


def list_names(world: World) -> dict[str, str]:
    """Return the displayed names of the jobs, by their ids."""
    return {job.id: f"{job.owner}/{job.name}" for job in world.store.jobs.values()}


def _list_ends(world: World) -> list[Mark]:
    names = list_names(world)
    return [
        Mark(job.ended_at, f"{names[job.id]} has {job.stage}")
        for job in world.store.jobs.values()
        if job.ended_at is not None
    ]


def _list_changes(world: World) -> list[Mark]:
    """List the decisions that changed the slots of a job, and the first decision on each job that had to wait."""
    names, slots, marks = list_names(world), dict[str, int](), []
    for decision in world.store.decisions:
        if slots.get(decision.job) != decision.num_slots:
            marks.append(Mark(decision.time, f"{names[decision.job]} {decision.reason}"))
        slots[decision.job] = decision.num_slots
    return marks


# ---------------------------------------------------------------- all of it


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A workload after its simulation under one scheme: its report, its panel, and the names of its jobs."""

    report: Report
    panel: Panel
    names: dict[str, str]


def run_scheme(
    plans: Sequence[PlannedJob],
    setting: Setting,
    scheme: Scheme,
    *,
    limit_s: float = float("inf"),
    on_progress: Callable[[int, float], None] = lambda _ended, _now: None,
) -> Run:
    """Simulate a workload under one scheme.

    Args:
        plans: of the workload, in order of submission.
        setting: the platform; the policy of its rules is the scheme's.
        scheme: the way to share the pool.
        limit_s: virtual seconds after which the simulation ends, also with unfinished jobs.
        on_progress: see `simulate`.
    """
    applied, setting = scheme.apply(plans, setting)
    world = simulate(applied, setting, limit_s=limit_s, on_progress=on_progress)
    report = make_report(world, plans, scheme)
    return Run(report=report, panel=make_panel(world, report), names=list_names(world))
