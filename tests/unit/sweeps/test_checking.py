"""A plan that cannot be searched is refused before anything starts; the error names the field and what to do."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st
from tests.tiers import examples

from legato.api.sweeps import SweepPlan, Tunable
from legato.core.errors import BadField
from legato.sweeps.checking import check_plan, count_grid, pick_point, pick_sample, share_slots

WHOLE: dict[str, Any] = {"method": "hyperband", "max_resource": 9, "parameter": "epochs"}
LR: dict[str, Any] = {"lr": {"low": 0.001, "high": 0.1, "log": True}}


def make_plan(**changes: Any) -> SweepPlan:
    fields = {"metric": {"name": "loss", "direction": "minimize"}, "parameters": LR, "num_trials": 8}
    return msgspec.convert(fields | changes, SweepPlan)


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"parameters": {}}, "parameters", "There are 0 parameters"),
        ({"parameters": {f"p{n}": {"values": [1]} for n in range(51)}}, "parameters", "51 parameters"),
        ({"parameters": {"lr": {}}}, "parameters.lr", "has no values"),
        ({"parameters": {"lr": {"low": 1.0}}}, "parameters.lr", "has no values"),
        ({"parameters": {"lr": {"values": [1], "low": 1.0}}}, "parameters.lr", "values and a range"),
        ({"parameters": {"lr": {"low": 2.0, "high": 1.0}}}, "parameters.lr.low", "below high"),
        ({"parameters": {"lr": {"low": 1, "high": 1}}}, "parameters.lr.low", "below high"),
        ({"parameters": {"lr": {"low": 0.0, "high": 1.0, "log": True}}}, "parameters.lr.low", "begins above 0"),
        ({"parameters": {"lr": {"low": -1, "high": 5, "log": True}}}, "parameters.lr.low", "begins above 0"),
        ({"parameters": {"lr": {"low": 1, "high": 9, "step": 2, "log": True}}}, "parameters.lr.step", "one of the two"),
        ({"parameters": {"lr": {"low": 1, "high": 9, "step": 0}}}, "parameters.lr.step", "above 0"),
        ({"parameters": {"lr": {"low": 0.1, "high": 0.95, "step": 0.2}}}, "parameters.lr.step", "high=0.9,"),
        ({"parameters": {"lr": {"low": 1, "high": 10, "step": 4}}}, "parameters.lr.step", "high=9,"),
        ({"parameters": {"lr": {"low": 0.0, "high": 1e9, "step": 0.1}}}, "parameters.lr.step", "too small"),
        ({"parameters": {"lr": {"low": 0.0, "high": 1.0, "step": 1e-300}}}, "parameters.lr.step", "too small"),
        ({"parameters": {"lr": {"low": 0.0, "high": 1e15, "step": 1e-20}}}, "parameters.lr.step", "larger step"),
        ({"parameters": {"lr": {"low": 1e9, "high": 1e9 + 1, "step": 0.1}}}, "parameters.lr.step", "too small"),
        ({"parameters": {"lr": {"low": 0.0, "high": 1e15, "step": 5e-324}}}, "parameters.lr.step", "larger step"),
        ({"parameters": {"lr": {"low": 1, "high": 2**60}}}, "parameters.lr.high", "2^53"),
        ({"parameters": {"lr": {"values": [1, -(10**400)]}}}, "parameters.lr.values", "not between -2^53 and 2^53"),
        ({"parameters": {"lr": {"values": []}}}, "parameters.lr.values", "has 0 values"),
        ({"parameters": {"lr": {"values": list(range(1001))}}}, "parameters.lr.values", "1001 values"),
        ({"parameters": {"lr": {"values": [2, 1, 1.0]}}}, "parameters.lr.values", "twice"),
        ({"parameters": {"lr": {"values": [True, 1]}}}, "parameters.lr.values", "twice"),
        ({"metric": {"name": "", "direction": "minimize"}}, "metric.name", "run.log"),
        ({"metric": {"name": "a" * 256, "direction": "minimize"}}, "metric.name", "256 characters"),
        ({"metric": {"name": "a\x1b[2J", "direction": "minimize"}}, "metric.name", "cannot be printed"),
        ({"metric": {"name": "a\nb", "direction": "minimize"}}, "metric.name", "line ends"),
        ({"num_trials": 0}, "num_trials", "outside 1..1000"),
        ({"num_trials": 1001}, "num_trials", "outside 1..1000"),
        ({"parallel": 0}, "parallel", "outside 1..100"),
        ({"parallel": 101}, "parallel", "outside 1..100"),
        ({"max_slots": 0}, "max_slots", "outside"),
        ({"max_failures": 0}, "max_failures", "outside"),
        ({"seed": -1}, "seed", "outside"),
        ({"pruning": {"method": "hyperband"}}, "pruning.max_resource", "whole trial"),
        ({"pruning": {"method": "halving", "factor": 1}}, "pruning.factor", "outside 2..100"),
        ({"pruning": {"method": "halving", "min_resource": 0}}, "pruning.min_resource", "outside"),
        ({"pruning": {"method": "halving", "min_resource": 4, "max_resource": 3}}, "pruning.max_resource", "outside"),
        ({"max_run_s": 0.5}, "max_run_s", "outside 1.."),
        ({"points": [{"lr": 0.1}]}, "points", "has no points"),
        ({"search": "list", "points": [{"lr": 0.1}], "num_trials": 1}, "parameters", "Leave parameters out"),
        ({"search": "list", "parameters": {}}, "points", "There are 0 points"),
        ({"search": "list", "parameters": {}, "points": [{"a": 1}] * 7}, "num_trials", "more than the 7 points"),
        ({"search": "list", "parameters": {}, "points": [{}] * 8}, "points.0", "0 parameters"),
        ({"search": "list", "parameters": {}, "points": [{"a": math.inf}] * 8}, "points.0.a", "not finite"),
        ({"search": "list", "parameters": {}, "points": [{f"p{n}": 1} for n in range(51)]}, "points", "51 parameters"),
        ({"pruning": {"method": "halving", "parameter": "n"}}, "pruning.parameter", "Only Hyperband"),
        ({"pruning": {**WHOLE, "parameter": "lr"}}, "pruning.parameter", "a parameter of the search too"),
        ({"pruning": WHOLE, "search": "tpe"}, "search", "Use 'random'"),
        ({"pruning": WHOLE, "num_trials": 23}, "num_trials", "more than 22"),
        ({"search": "grid"}, "parameters.lr.step", "finite number of values"),
        ({"search": "grid", "parameters": {"n": {"low": 1, "high": 8, "log": True}}}, "parameters.n.log", "a list"),
        ({"search": "grid", "parameters": {"n": {"low": 1, "high": 9}}}, "num_trials", "is not 9"),
        (
            {"search": "grid", "parameters": {name: {"low": 1, "high": 50} for name in "abcdefgh"}},
            "parameters",
            "a sweep may have 1000",
        ),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_searched_is_refused_with_its_field(
    changes: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(BadField, match=r".*") as refused:
        check_plan(make_plan(**changes))
    assert refused.value.field == field
    assert told in str(refused.value)


def as_values(found: list[int]) -> Tunable:
    return Tunable(values=(*found,))


@rules(max_examples=examples(100))
@given(
    st.dictionaries(
        st.text("abc", min_size=1, max_size=3),
        st.one_of(
            st.lists(st.integers(-5, 5), unique=True, min_size=1, max_size=4).map(
                lambda found: Tunable(values=(*found,))
            ),
            st.tuples(st.integers(-9, 9), st.integers(1, 5), st.integers(1, 4)).map(
                lambda found: Tunable(low=found[0], high=found[0] + found[1] * found[2], step=found[1])
            ),
            st.tuples(st.integers(-9, 9), st.integers(1, 4)).map(
                lambda found: Tunable(low=found[0] / 10, high=(found[0] + found[1]) / 10, step=0.1)
            ),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_a_grid_has_each_point_once_and_in_order(parameters: dict[str, Tunable]) -> None:
    size = count_grid(parameters)
    points = [pick_point(parameters, number) for number in range(size)]
    assert len({tuple(point.values()) for point in points}) == size
    for name, tunable in parameters.items():
        if tunable.values is None:
            assert tunable.low is not None
            assert tunable.high is not None
            found = {point[name] for point in points}
            assert min(found) == tunable.low  # type: ignore[type-var]
            assert max(found) == tunable.high  # type: ignore[type-var]
    assert check_plan(make_plan(search="grid", parameters=msgspec.to_builtins(parameters), num_trials=size))


def test_a_sample_is_the_longest_value_of_each_parameter() -> None:
    plan = make_plan(parameters={**LR, "optimizer": {"values": ["sgd", "adam"]}})
    assert pick_sample(plan) == {"lr": 0.001, "optimizer": "adam"}


@pytest.mark.parametrize(
    ("max_slots", "parallel", "minimum", "gpus", "workers"),
    [(None, 4, 1, 1, 8), (8, 4, 1, 1, 2), (8, 2, 1, 2, 2), (100, 4, 1, 1, 8), (9, 4, 2, 1, 2)],
)
def test_the_limit_of_slots_is_divided_among_the_parallel_trials(
    max_slots: int | None, parallel: int, minimum: int, gpus: int, workers: int
) -> None:
    plan = make_plan(max_slots=max_slots, parallel=parallel)
    assert share_slots(plan, minimum, 8, gpus) == workers


def test_few_trials_share_the_limit_of_slots_among_themselves() -> None:
    assert share_slots(make_plan(max_slots=8, parallel=4, num_trials=2), 1, 8, 1) == 4


def test_a_limit_of_slots_below_the_minimum_of_the_trials_is_refused() -> None:
    with pytest.raises(BadField, match="4 trials at once need 8 slots"):
        share_slots(make_plan(max_slots=7), 2, 8, 1)
