"""Checks the plan of a sweep before anything starts, and lists the points of a grid. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from legato.api.projects import Parameter
from legato.api.sweeps import Number, Pruning, PruningMethod, SearchMethod, SweepPlan, Tunable
from legato.core.errors import BadField
from legato.sweeps.rungs import count_trials

MAX_TRIALS: Final = 1_000
MAX_PARAMETERS: Final = 50
MAX_VALUES: Final = 1_000
MAX_PARALLEL: Final = 100
MAX_RESOURCE: Final = 10**9
MAX_INT: Final = 2**53
_MAX_FACTOR: Final = 100
_MAX_SEED: Final = 2**53
_MAX_METRIC: Final = 255
_MAX_RUN_S: Final = 10**9
_MAX_STEPS: Final = 10**6  # of more, Optuna does not find its own values among the steps, because floats are inexact


def check_plan(plan: SweepPlan) -> SweepPlan:
    """Return the plan of a sweep after a check of its own values.

    Raises:
        BadField: a value cannot be used; the error names the field and says what to do.
    """
    if not 0 < len(plan.metric.name) <= _MAX_METRIC:
        raise BadField(
            "metric.name",
            f"The name of the metric has {len(plan.metric.name)} characters. Give 1 to {_MAX_METRIC}: the name that "
            "the program passes to run.log, such as 'accuracy'.",
        )
    if not plan.metric.name.isprintable():
        raise BadField(
            "metric.name",
            "The name of the metric has characters that cannot be printed, such as line ends. Remove them.",
        )
    _check_number("num_trials", plan.num_trials, 1, MAX_TRIALS)
    _check_number("parallel", plan.parallel, 1, MAX_PARALLEL)
    _check_number("max_failures", plan.max_failures, 1, MAX_TRIALS)
    _check_number("seed", plan.seed, 0, _MAX_SEED)
    if plan.max_slots is not None:
        _check_number("max_slots", plan.max_slots, 1, MAX_INT)
    if plan.max_run_s is not None and not 1 <= plan.max_run_s <= _MAX_RUN_S:
        raise BadField(
            "max_run_s", f"max_run_s={plan.max_run_s:g} is outside 1..{_MAX_RUN_S}. Give seconds in this range."
        )
    _check_points(plan)
    if plan.search is not SearchMethod.LIST and not 1 <= len(plan.parameters) <= MAX_PARAMETERS:
        raise BadField(
            "parameters",
            f"There are {len(plan.parameters)} parameters. Give 1 to {MAX_PARAMETERS}, such as "
            "'lr: {low: 0.001, high: 0.1, log: true}'.",
        )
    for name, tunable in plan.parameters.items():
        _check_tunable(f"parameters.{name[:100]}", tunable)
    if plan.pruning is not None:
        _check_pruning(plan.pruning)
        _check_resource(plan, plan.pruning)
    if plan.search is SearchMethod.GRID:
        size = count_grid(plan.parameters)
        if size != plan.num_trials:
            raise BadField(
                "num_trials",
                f"num_trials={plan.num_trials} is not {size}, the number of points of the grid. Leave num_trials out, "
                "or let the grid have so many points.",
            )
    return plan


def count_grid(parameters: Mapping[str, Tunable]) -> int:
    """Return the number of points of a grid of checked parameters, which is the number of trials.

    Raises:
        BadField: a parameter has endless values, or there are too many points.
    """
    size = 1
    for name, tunable in parameters.items():
        _check_tunable(f"parameters.{name[:100]}", tunable)
        if tunable.values is None and tunable.step is None and not is_integer(tunable):
            raise BadField(
                f"parameters.{name}.step",
                f"A grid needs a finite number of values, and '{name}' has none: give it a step, or a list of values.",
            )
        if tunable.values is None and tunable.log:
            raise BadField(
                f"parameters.{name}.log", f"A grid has no logarithmic scale: give '{name}' a list of values instead."
            )
        size *= len(tunable.values) if tunable.values is not None else _count_steps(tunable)
    if size > MAX_TRIALS:
        raise BadField(
            "parameters",
            f"The grid has {size} points, and a sweep may have {MAX_TRIALS} trials. Give fewer values, or use the "
            "search 'random' or 'tpe'.",
        )
    return size


def pick_point(parameters: Mapping[str, Tunable], number: int) -> dict[str, Parameter]:
    """Return one point of a grid. The last parameter changes fastest.

    >>> grid = {"a": Tunable(low=0.1, high=0.3, step=0.1), "b": Tunable(values=("x", "y"))}
    >>> [pick_point(grid, number) for number in (0, 1, 5)]
    [{'a': 0.1, 'b': 'x'}, {'a': 0.1, 'b': 'y'}, {'a': 0.3, 'b': 'y'}]
    """
    points = itertools.product(*map(_list_values, parameters.values()))
    return dict(zip(parameters, next(itertools.islice(points, number, None)), strict=True))


def pick_sample(plan: SweepPlan) -> dict[str, Parameter]:
    """Return all parameters that a trial could have, with their longest values, to check what trials would run."""
    found: dict[str, Parameter] = {}
    for point in plan.points:
        found |= {name: value for name, value in point.items() if len(str(value)) >= len(str(found.get(name, "")))}
    if plan.pruning is not None and plan.pruning.parameter is not None:
        found[plan.pruning.parameter] = plan.pruning.max_resource or 1
    for name, tunable in plan.parameters.items():
        value = tunable.low if tunable.values is None else max(tunable.values, key=lambda each: len(str(each)))
        assert value is not None, "the plan was checked"
        found[name] = value
    return found


def is_integer(tunable: Tunable) -> bool:
    """Return whether a range has integers only."""
    return all(isinstance(value, int) for value in (tunable.low, tunable.high, tunable.step) if value is not None)


def share_slots(plan: SweepPlan, min_workers: int, max_workers: int, gpus_per_worker: int) -> int:
    """Return the maximum number of workers of each trial, so that all trials together keep the limit of slots.

    Args:
        plan: the checked plan.
        min_workers: of the job.
        max_workers: of the job.
        gpus_per_worker: slots of each worker.

    Raises:
        BadField: a trial would have fewer workers than its minimum.
    """
    if plan.max_slots is None:
        return max_workers
    at_once = min(plan.parallel, plan.num_trials)
    workers = plan.max_slots // at_once // gpus_per_worker
    if workers < min_workers:
        needed = at_once * min_workers * gpus_per_worker
        raise BadField(
            "max_slots",
            f"max_slots={plan.max_slots} is too low: {at_once} trials at once need {needed} slots for their "
            "minimum of workers. Raise max_slots, or lower parallel.",
        )
    return min(max_workers, workers)


def _check_number(field: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadField(field, f"{field}={value} is outside {low}..{high}. Give a number in this range.")


def _check_tunable(field: str, tunable: Tunable) -> None:
    if tunable.values is not None:
        if (tunable.low, tunable.high, tunable.step, tunable.log) != (None, None, None, False):
            raise BadField(field, f"'{field}' has values and a range. Give either values, or low and high.")
        _check_values(f"{field}.values", tunable.values)
        return
    low, high, step = tunable.low, tunable.high, tunable.step
    if low is None or high is None:
        raise BadField(field, f"'{field}' has no values. Give a list 'values', or 'low' and 'high'.")
    for name, value in (("low", low), ("high", high), ("step", step)):
        if value is not None and not abs(value) <= MAX_INT:  # also NaN
            raise BadField(f"{field}.{name}", f"'{field}.{name}' is not a number between -2^53 and 2^53.")
    if low >= high:
        raise BadField(
            f"{field}.low", f"'{field}' has low={low} and high={high}. Give a low that is below high, or one value."
        )
    if tunable.log and low <= 0:
        raise BadField(f"{field}.low", f"'{field}' has log=true and low={low}. A logarithmic scale begins above 0.")
    if step is not None:
        _check_step(field, tunable, low, high, step)


def _check_step(field: str, tunable: Tunable, low: Number, high: Number, step: Number) -> None:
    field = f"{field}.step"
    if tunable.log:
        raise BadField(field, f"'{field}' is given with log=true. Give one of the two.")
    if step <= 0:
        raise BadField(field, f"'{field}' is {step}. Give a step above 0.")
    # Before the exact check, which such numbers make fail.
    if not is_integer(tunable) and max(abs(low), abs(high), high - low) / step > _MAX_STEPS:
        raise BadField(
            field,
            f"'{field}' is {step}, which is too small beside low={low} and high={high}: a step may be at least a "
            "millionth of the largest number. Give a larger step, or none.",
        )
    if (_exact(high) - _exact(low)) % _exact(step) != 0:
        last = _exact(low) + (_exact(high) - _exact(low)) // _exact(step) * _exact(step)
        raise BadField(
            field,
            f"'{field}' is {step}, and no whole number of steps leads from low={low} to high={high}. Give "
            f"high={last.normalize():f}, or another step.",
        )


def _check_values(field: str, values: tuple[Parameter, ...]) -> None:
    if not 1 <= len(values) <= MAX_VALUES:
        raise BadField(field, f"'{field}' has {len(values)} values. Give 1 to {MAX_VALUES}.")
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise BadField(field, f"'{field}' has a value that is not finite. Give finite numbers, or texts.")
        if isinstance(value, int) and abs(value) > MAX_INT:
            raise BadField(field, f"'{field}' has a value that is not between -2^53 and 2^53. Give it as a text.")
    if len(set(values)) < len(values):  # 1, 1.0 and true are equal
        twice = next(value for place, value in enumerate(values) if value in values[:place])
        raise BadField(field, f"'{field}' has {twice!r} twice, or an equal value. Remove one.")


def _check_pruning(pruning: Pruning) -> None:
    _check_number("pruning.min_resource", pruning.min_resource, 1, MAX_RESOURCE)
    _check_number("pruning.factor", pruning.factor, 2, _MAX_FACTOR)
    if pruning.max_resource is None:
        if pruning.method is PruningMethod.HYPERBAND:
            raise BadField(
                "pruning.max_resource",
                "Hyperband needs pruning.max_resource: the number of epochs or steps of a whole trial.",
            )
        return
    _check_number("pruning.max_resource", pruning.max_resource, pruning.min_resource, MAX_RESOURCE)


def _check_points(plan: SweepPlan) -> None:
    if plan.search is not SearchMethod.LIST:
        if plan.points:
            raise BadField("points", f"The search '{plan.search}' has no points. Leave them out, or use 'list'.")
        return
    if plan.parameters:
        raise BadField("parameters", "The search 'list' has its parameters in points. Leave parameters out.")
    if not 1 <= len(plan.points) <= MAX_TRIALS:
        raise BadField("points", f"There are {len(plan.points)} points. Give 1 to {MAX_TRIALS}.")
    if plan.num_trials > len(plan.points):
        raise BadField(
            "num_trials", f"num_trials={plan.num_trials} is more than the {len(plan.points)} points. Lower it."
        )
    for place, point in enumerate(plan.points):
        if not 1 <= len(point) <= MAX_PARAMETERS:
            raise BadField(f"points.{place}", f"Point {place} has {len(point)} parameters. Give 1 to {MAX_PARAMETERS}.")
        for name, value in point.items():
            _check_values(f"points.{place}.{name[:100]}", (value,))
    if len(names := {name for point in plan.points for name in point}) > MAX_PARAMETERS:
        raise BadField("points", f"The points have {len(names)} parameters together. Give at most {MAX_PARAMETERS}.")


def _check_resource(plan: SweepPlan, pruning: Pruning) -> None:
    """Raise BadField if the parameter with the resource cannot be used."""
    if pruning.parameter is None:
        return
    if pruning.method is not PruningMethod.HYPERBAND:
        raise BadField("pruning.parameter", "Only Hyperband has pruning.parameter. Leave it out.")
    if plan.search is not SearchMethod.RANDOM:
        raise BadField(
            "search", f"Hyperband with pruning.parameter chooses at random, not by '{plan.search}'. Use 'random'."
        )
    if pruning.parameter in plan.parameters:
        raise BadField(
            "pruning.parameter", f"'{pruning.parameter[:100]}' is a parameter of the search too. Remove one of the two."
        )
    if plan.num_trials > (size := count_trials(pruning)):
        raise BadField(
            "num_trials", f"num_trials={plan.num_trials} is more than {size}, all trials of Hyperband. Lower it."
        )


def _count_steps(tunable: Tunable) -> int:
    assert tunable.low is not None and tunable.high is not None, "it was checked"
    return int((_exact(tunable.high) - _exact(tunable.low)) // _exact(tunable.step or 1)) + 1


def _list_values(tunable: Tunable) -> tuple[Parameter, ...]:
    if tunable.values is not None:
        return tunable.values
    assert tunable.low is not None, "it was checked"
    low, step = _exact(tunable.low), _exact(tunable.step or 1)
    kind = int if is_integer(tunable) else float
    return tuple(kind(low + place * step) for place in range(_count_steps(tunable)))


def _exact(value: Number) -> Decimal:
    """Return a number as it is written: 0.1 is a tenth."""
    return Decimal(repr(value))
