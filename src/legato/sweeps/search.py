"""Chooses the parameters of trials, and which trials stop early, by Optuna's samplers and pruners.

Each choice depends only on the plan, its seed, the number of the trial and the recorded trials, which become a study in
memory. So a server that died before it recorded a choice makes the same one again. Optuna is imported at the first
choice, because that takes long, and platforms without sweeps need not have it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec

from legato.api.projects import Parameter
from legato.api.sweeps import Direction, Pruning, PruningMethod, Report, SearchMethod, SweepPlan, TrialState, Tunable
from legato.core.errors import UsageError
from legato.sweeps.checking import is_integer, pick_point
from legato.sweeps.rungs import find_rung

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_STUDY: Final = "sweep"  # one name for all, because Hyperband chooses the bracket of a trial by it
_MAX_STARTUP: Final = 10
_NEVER: Final = math.inf


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A trial as it is recorded.

    Args:
        number: from 0.
        parameters: by name.
        value: of its metric, if it has succeeded.
        reports: values that were compared with those of other trials.
        marks: what Optuna's pruner noted about it.
    """

    number: int
    parameters: dict[str, Parameter]
    state: TrialState = TrialState.RUNNING
    value: float | None = None
    reports: tuple[Report, ...] = ()
    marks: dict[str, Any] = {}


class Verdict(NamedTuple):
    """What a report of a trial led to: the trial as it is recorded next, and whether its job is stopped."""

    trial: Recorded
    is_pruned: bool


def check_library() -> None:
    """Raise UsageError if Optuna is not installed."""
    _import_optuna()


def choose_parameters(plan: SweepPlan, trials: Sequence[Recorded]) -> dict[str, Parameter] | None:
    """Return the parameters of the next trial. None: running trials must end before they can be chosen.

    Args:
        plan: the checked plan.
        trials: all trials so far, in the order of their numbers.

    Raises:
        UsageError: Optuna is not installed.
    """
    if plan.search is SearchMethod.GRID:
        return pick_point(plan.parameters, len(trials))
    if plan.search is SearchMethod.LIST:
        return dict(plan.points[len(trials)])
    if plan.pruning is not None and plan.pruning.parameter is not None:
        return _choose_in_rung(plan, plan.pruning, trials, plan.pruning.parameter)
    return _sample(plan, trials)


def _choose_in_rung(
    plan: SweepPlan, pruning: Pruning, trials: Sequence[Recorded], parameter: str
) -> dict[str, Parameter] | None:
    """Return the parameters of the next trial of Hyperband by whole trials."""
    rung = find_rung(pruning, len(trials))
    resource: dict[str, Parameter] = {parameter: rung.resource}
    if rung.before is None:
        return _sample(plan, trials) | resource
    group = trials[rung.before.first : rung.before.first + rung.before.size]
    if any(trial.state is TrialState.RUNNING for trial in group):
        return None
    best = rank([trial for trial in group if trial.state is TrialState.SUCCEEDED], plan.metric.direction)
    place = len(trials) - rung.first
    # If too few trials have succeeded, others take their place.
    return (best[place].parameters if place < len(best) else _sample(plan, trials)) | resource


def _sample(plan: SweepPlan, trials: Sequence[Recorded]) -> dict[str, Parameter]:
    # A random choice depends only on the seed and the number, and a study of many trials takes long to make.
    study = _make_study(plan, len(trials), trials if plan.search is SearchMethod.TPE else ())
    spaces = _make_spaces(plan)
    found: dict[str, Parameter] = study.ask(fixed_distributions=spaces).params
    return {name: found[name] for name in plan.parameters}


def next_comparison(pruning: Pruning | None, reports: Sequence[Report]) -> float:
    """Return the resource at which a trial is compared with others next; infinity: never.

    >>> pruning = Pruning(method=PruningMethod.HALVING, min_resource=2)
    >>> [next_comparison(pruning, [Report(at, 0.5)]) for at in (2, 5, 6)], next_comparison(pruning, [])
    ([6, 6, 18], 2)
    """
    if pruning is None or pruning.parameter is not None:
        return _NEVER
    reached = reports[-1].resource if reports else 0
    at = pruning.min_resource
    while at <= reached:
        at *= pruning.factor
    # A trial that has reached the end is not stopped for what it reports there.
    return _NEVER if pruning.max_resource is not None and at >= pruning.max_resource else at


def compare(plan: SweepPlan, trials: Sequence[Recorded], number: int, report: Report) -> Verdict:
    """Decide whether a trial goes on after a report.

    Args:
        plan: the checked plan, with pruning.
        trials: all trials so far, in the order of their numbers.
        number: of the trial.
        report: the new value of its metric.

    Raises:
        UsageError: Optuna is not installed.
    """
    trial = msgspec.structs.replace(trials[number], reports=(*trials[number].reports, report))
    # Pruners look only at reports, so the study has no parameters, which take long to check.
    now = [*trials[:number], trial, *trials[number + 1 :]]
    study = _make_study(plan, len(now), [msgspec.structs.replace(one, parameters={}) for one in now])
    is_pruned = study.pruner.prune(study, _find(study, number))
    marks = _find(study, number).system_attrs
    state = TrialState.PRUNED if is_pruned else TrialState.RUNNING
    value = report.value if is_pruned else None
    return Verdict(msgspec.structs.replace(trial, marks=marks, state=state, value=value), is_pruned)


# ---------------------------------------------------------------- the study


def _make_study(plan: SweepPlan, number: int, trials: Sequence[Recorded]) -> Study:
    """Return a study in memory with these trials, and a sampler for the trial of this number."""
    optuna = _import_optuna()
    study: Study = optuna.create_study(
        study_name=_STUDY,
        direction=plan.metric.direction.value,
        sampler=_make_sampler(plan, number),
        pruner=_make_pruner(plan.pruning),
    )
    spaces = _make_spaces(plan)
    study.add_trials([_as_optuna(trial, spaces) for trial in trials])
    return study


def _as_optuna(trial: Recorded, spaces: dict[str, BaseDistribution]) -> FrozenTrial:
    from optuna.trial import TrialState as State
    from optuna.trial import create_trial

    states = {
        TrialState.RUNNING: State.RUNNING,
        TrialState.SUCCEEDED: State.COMPLETE,
        TrialState.PRUNED: State.PRUNED,
        TrialState.FAILED: State.FAIL,
        TrialState.STOPPED: State.FAIL,
    }
    return create_trial(
        state=states[trial.state],
        params=cast("dict[str, Any]", trial.parameters),
        distributions={name: spaces[name] for name in trial.parameters},
        value=trial.value if trial.state in (TrialState.SUCCEEDED, TrialState.PRUNED) else None,
        intermediate_values={one.resource: math.nan if one.value is None else one.value for one in trial.reports},
        system_attrs=dict(trial.marks),
    )


def _make_sampler(plan: SweepPlan, number: int) -> BaseSampler:
    optuna = _import_optuna()
    seed = int.from_bytes(hashlib.sha256(f"{plan.seed}/{number}".encode()).digest()[:4], "big")
    if plan.search is not SearchMethod.TPE:
        random: BaseSampler = optuna.samplers.RandomSampler(seed=seed)
        return random
    # The first trials are random: a quarter of them, and at most ten.
    startup = min(max(plan.num_trials // 4, 1), _MAX_STARTUP)
    tpe: BaseSampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=startup, constant_liar=plan.parallel > 1)
    return tpe


def _make_pruner(pruning: Pruning | None) -> BasePruner:
    pruners = _import_optuna().pruners
    made: BasePruner
    if pruning is None:
        made = pruners.NopPruner()
    elif pruning.method is PruningMethod.HYPERBAND:
        made = pruners.HyperbandPruner(pruning.min_resource, pruning.max_resource, pruning.factor)
    else:
        made = pruners.SuccessiveHalvingPruner(pruning.min_resource, pruning.factor)
    return made


def _make_spaces(plan: SweepPlan) -> dict[str, BaseDistribution]:
    return {name: _make_distribution(tunable) for name, tunable in plan.parameters.items()}


def _make_distribution(tunable: Tunable) -> BaseDistribution:
    found = _import_optuna().distributions
    made: BaseDistribution
    if tunable.values is not None:
        made = found.CategoricalDistribution(tunable.values)
    elif is_integer(tunable):
        made = found.IntDistribution(tunable.low, tunable.high, log=tunable.log, step=tunable.step or 1)
    else:
        made = found.FloatDistribution(tunable.low, tunable.high, log=tunable.log, step=tunable.step)
    return made


def _find(study: Study, number: int) -> FrozenTrial:
    return study.get_trials(deepcopy=False)[number]


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UsageError(
            "Cannot search: Optuna is not installed where the server runs. The operator installs it with: pip install "
            "'legato[sweeps]'. Then start the server again."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def find_best(trials: Sequence[Recorded], direction: Direction) -> Recorded | None:
    """Return the best trial that has succeeded; of equal ones the first. None: none has.

    >>> trials = [
    ...     Recorded(number=number, parameters={}, state=TrialState.SUCCEEDED, value=value)
    ...     for number, value in enumerate([0.5, 0.9, 0.9])
    ... ]
    >>> find_best(trials, Direction.MAXIMIZE).number, find_best(trials, Direction.MINIMIZE).number
    (1, 0)
    """
    found = rank([one for one in trials if one.state is TrialState.SUCCEEDED], direction)
    return found[0] if found else None


def rank(trials: Sequence[Recorded], direction: Direction) -> list[Recorded]:
    """Return the trials with a value, the best one first; equal ones in their order."""
    sign = -1 if direction is Direction.MAXIMIZE else 1
    found = [(sign * one.value, one) for one in trials if one.value is not None]
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]
