"""Sweeps: many trials of one program with other parameters, which are jobs, and the search for the best of them."""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

from legato.api.projects import Parameter

Number = int | float


class SearchMethod(enum.StrEnum):
    """How the parameters of the next trial are chosen."""

    GRID = "grid"  # every combination once
    RANDOM = "random"
    TPE = "tpe"  # tree-structured Parzen estimator: near the best ones so far
    LIST = "list"  # exactly the given ones


class PruningMethod(enum.StrEnum):
    """Which trials are stopped early."""

    HALVING = "halving"  # successive halving
    HYPERBAND = "hyperband"


class Direction(enum.StrEnum):
    """Which values of the metric are better."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"


class TrialState(enum.StrEnum):
    """What became of a trial."""

    RUNNING = "running"  # its job has not ended; it may wait for slots
    SUCCEEDED = "succeeded"  # it has a value
    PRUNED = "pruned"  # its metric was not among the best, so its job was stopped early
    FAILED = "failed"  # its job failed, or it has no finite value of the metric
    STOPPED = "stopped"  # its job, or the sweep, was stopped


class SweepMetric(msgspec.Struct, frozen=True):
    """The metric that the trials report, and which of its values are better."""

    name: str
    direction: Direction


class Tunable(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a parameter may have: either a list, or a range.

    Args:
        values: the list. None: a range.
        low: the lowest value. A range from one integer to another has integers only.
        high: the highest value.
        step: distance of two values. None: all values; of integers 1.
        log: values are chosen evenly on a logarithmic scale.
        is_float: of a range, as the server shows it: it has numbers between integers too. Plans leave it out: 1.0 is no
            integer there.
    """

    values: tuple[Parameter, ...] | None = None
    low: Number | None = None
    high: Number | None = None
    step: Number | None = None
    log: bool = False
    is_float: bool = False


class Pruning(msgspec.Struct, frozen=True, kw_only=True):
    """When trials are compared, and how many of them go on.

    Args:
        unit: of the resources: epochs or steps of training.
        min_resource: the resource at the first comparison.
        factor: of the trials that are compared, one of so many goes on; the next comparison is after ``factor`` times
            the resource.
        max_resource: the resource of a whole trial. None: not known; only for successive halving.
        parameter: only for Hyperband: the parameter that tells the program its resource. Then no trial is stopped; the
            best ones of a small resource are trained again with a larger one. None: trials are stopped.
    """

    method: PruningMethod
    unit: Literal["epoch", "step"] = "epoch"
    min_resource: int = 1
    factor: int = 3
    max_resource: int | None = None
    parameter: str | None = None


class SweepPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep searches, how, and its limits.

    Args:
        metric: of the trials.
        parameters: the values of each parameter of the program, by name.
        search: how the parameters of trials are chosen.
        pruning: stops trials early. None: each trial runs to its end.
        num_trials: number of trials.
        parallel: maximum number of trials whose jobs have not ended, at any time.
        max_slots: maximum number of slots that all trials hold together. None: no limit.
        max_failures: after so many failed trials in a row, the sweep fails.
        seed: of the search. The same seed and the same results give the same parameters.
        points: of the search ``list``: the parameters of each trial.
        max_run_s: so long after its start the sweep ends, and its jobs stop. None: no limit.
    """

    metric: SweepMetric
    parameters: dict[str, Tunable]
    search: SearchMethod = SearchMethod.RANDOM
    pruning: Pruning | None = None
    num_trials: int
    parallel: int = 4
    max_slots: int | None = None
    max_failures: int = 3
    seed: int = 0
    points: tuple[dict[str, Parameter], ...] = ()
    max_run_s: float | None = None


def list_names(plan: SweepPlan) -> list[str]:
    """Return the names of all parameters that the trials of a sweep may have."""
    resource = [] if plan.pruning is None or plan.pruning.parameter is None else [plan.pruning.parameter]
    return list(dict.fromkeys([*plan.parameters, *(name for point in plan.points for name in point), *resource]))


class Report(msgspec.Struct, frozen=True):
    """A value of the metric that was compared with those of other trials.

    Args:
        resource: epochs or steps that the trial had trained.
        value: None: it was not finite.
    """

    resource: int
    value: float | None


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial: a job with its own parameters.

    Args:
        number: from 0, in the order of their starts.
        job: id of the job. It may have been deleted because of its age.
        job_stage: the present stage of the job. None: it was deleted.
        num_slots: slots that the job holds.
        value: the last value of the metric. None: the trial has none yet, or its last value was not finite.
        reports: values that were compared with those of other trials.
        reason: why the trial has ended. None: it has not.
    """

    number: int
    job: str
    job_stage: str | None
    num_slots: int
    parameters: dict[str, Parameter]
    state: TrialState
    value: float | None
    reports: tuple[Report, ...]
    reason: str | None
    started_at: float
    ended_at: float | None


class Sweep(SweepPlan, frozen=True, kw_only=True):
    """A sweep, as the server shows it.

    Args:
        queue: of its jobs.
        stage: ``running``, ``succeeded``, ``failed`` or ``stopped``.
        reason: why it is in this stage.
        trials: number of trials by state; states without trials are left out.
        best: number of the best trial. None: no trial has succeeded.
        job: what the trials run, as it was submitted. Only the owner and admins see the values of ``environment``;
            others get null in their place.
    """

    id: str
    name: str
    owner: str
    queue: str
    stage: str
    reason: str
    trials: dict[str, int]
    best: int | None
    job: dict[str, Any]
    version: int
    created_at: float
    ended_at: float | None
