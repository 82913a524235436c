"""WMLA's requests for hyperparameter searches, and the sweeps that they become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from legato.api.sweeps import SweepPlan
from legato.compat.wmla.searches import read_request
from legato.core.errors import UsageError
from legato.server.sweep_bodies import SweepBody
from legato.sweeps.checking import check_plan

ARGS = "--exec-start PyTorch --model-main main.py --model-dir tiny"
RATE = {"name": "learning_rate", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1}
RESOURCE = [{"name": "ResourceName", "value": "epochs"}, {"name": "ResourceValue", "value": "81"}]


def make_request(
    algorithm: str = "Random", parameters: Any = (RATE,), experiments: Any = None, **fields: Any
) -> dict[str, Any]:
    """Return a request in the form that notebooks send, also with the fields that they fill in without need."""
    definition = {"maxRunTime": -1, "maxJobNum": 4, "maxParalleJobNum": 2, "objectiveMetric": "loss"}
    made = {
        "modelSpec": {"sigName": "default", "args": ARGS},
        "algoDef": {"algorithm": algorithm, "objective": "minimize", **definition, **fields},
    }
    if experiments is not None:
        return {**made, "experiments": experiments}
    empty = {"discreteDbVal": [], "discreteIntVal": [], "discreateStrVal": [], "minIntVal": 0, "maxIntVal": 0}
    return {**made, "hyperParams": [empty | one for one in parameters]}


def plan_of(request: dict[str, Any]) -> SweepPlan:
    """Return the plan of a request, as the platform reads and checks it."""
    job = {"program": ["a"]}
    return check_plan(SweepBody(name="a", job=job, **read_request(request).fields).as_plan())  # type: ignore[arg-type]


def values_of(**parameter: Any) -> Any:
    plan = plan_of(make_request(parameters=[{"name": "a", **parameter}]))
    found = plan.parameters["a"]
    return list(found.values) if found.values is not None else (found.low, found.high, found.step, found.log)


def test_the_fields_of_a_search_are_those_of_a_sweep() -> None:
    wanted = read_request(
        make_request("random", objective="Maximize", maxRunTime=60, algoParams=[{"name": "RandomSeed", "value": "7"}])
    )
    assert wanted.args == ARGS
    assert wanted.fields == {
        "metric": {"name": "hpo_loss", "direction": "maximize"},
        "parameters": {"learning_rate": {"low": 0.001, "high": 0.1}},
        "search": "random",
        "num_trials": 4,
        "parallel": 2,
        "seed": 7,
        "max_run_s": 3600.0,
    }
    assert (wanted.search.algorithm, wanted.search.group, wanted.notices) == ("Random", "default", ())


@pytest.mark.parametrize(
    ("parameter", "want"),
    [
        ({"type": "Range", "dataType": "double", "minDbVal": 0, "maxDbVal": 1}, (0.0, 1.0, None, False)),
        # The last step that fits is the end of the range.
        (
            {"type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1, "step": "0.002"},
            (0.001, 0.099, 0.002, False),
        ),
        ({"type": "Range", "dataType": "INT", "minIntVal": 1, "maxIntVal": 14, "step": 1}, (1, 14, 1, False)),
        ({"type": "range", "dataType": "int", "minIntVal": 3, "maxIntVal": 3}, [3]),
        # With a power, the range is one of exponents.
        ({"type": "Range", "dataType": "DOUBLE", "minDbVal": -3, "maxDbVal": 0, "power": 10}, (0.001, 1.0, None, True)),
        (
            {"type": "Range", "dataType": "DOUBLE", "minDbVal": -3, "maxDbVal": 0, "power": "10", "step": "1"},
            [0.001, 0.01, 0.1, 1.0],
        ),
        ({"type": "Range", "dataType": "INT", "minIntVal": 4, "maxIntVal": 7, "power": 2}, [16, 32, 64, 128]),
        ({"type": "Discrete", "dataType": "DOUBLE", "discreteDbVal": [0.1, 1]}, [0.1, 1.0]),
        ({"type": "Discrete", "dataType": "INT", "discreteIntVal": [8, "16"]}, [8, 16]),
        ({"type": "Discrete", "dataType": "STR", "discreateStrVal": ["sgd", "adam"]}, ["sgd", "adam"]),
        ({"type": "Fix", "dataType": "INT", "fixedVal": "5"}, [5]),
    ],
)
def test_the_values_of_a_parameter(parameter: dict[str, Any], want: Any) -> None:
    found = values_of(**parameter)
    assert found == want
    assert [type(value) for value in found] == [type(value) for value in want]


def test_the_algorithms() -> None:
    assert [plan_of(make_request(name)).search for name in ("Random", "Tpe", "TPE", "Bayesian")] == [
        *("random", "tpe", "tpe", "tpe"),
    ]
    assert read_request(make_request("Bayesian")).notices == ("Bayesian is searched by TPE here.",)
    points = [
        {"id": 1, "hyperParams": [{"name": "lr", "dataType": "DOUBLE", "fixedVal": "0.1"}]},
        {"id": 2, "hyperParams": [{"name": "optimizer", "dataType": "STR", "fixedVal": "Adam"}]},
    ]
    request = make_request("ExperimentGridSearch", experiments=points, maxJobNum=-1)
    plan = plan_of(request)
    assert (plan.search, plan.points, plan.num_trials) == ("list", ({"lr": 0.1}, {"optimizer": "Adam"}), 2)
    assert read_request(request).search.ids == (1, 2)
    assert plan_of(make_request("ExperimentGridSearch", experiments=points, maxJobNum=1)).points == ({"lr": 0.1},)


def test_hyperband_gives_its_resource_to_the_program() -> None:
    request = make_request("Hyperband", hyperbandEta=3.0, algoParams=RESOURCE, maxJobNum=12)
    plan = plan_of(request)
    assert plan.pruning is not None
    assert (plan.pruning.parameter, plan.pruning.factor, plan.pruning.max_resource, plan.num_trials) == (
        "epochs",
        3,
        81,
        12,
    )
    assert read_request(request).search.kinds == {"learning_rate": "double", "epochs": "int"}
    assert plan_of(make_request("Hyperband", algoParams=RESOURCE, maxJobNum=-1)).num_trials == 206
    assert plan_of(make_request("Hyperband", algoParams=RESOURCE, maxJobNum=5000)).num_trials == 206


def test_what_has_no_effect_is_named() -> None:
    settings = [{"name": "WarmUp", "value": "20"}, {"name": "GoodRatio", "value": "0.25"}]
    unknown = {"maxParallelJobNum": 2, "zzz": 1}
    request = make_request("Tpe", algoParams=settings, hyperbandEta=3.0, maxJobNum=-1, **unknown)
    assert read_request(request).notices == (
        "Without maxJobNum, the search ends after 1000 trials.",
        "Accepted, but without effect here: WarmUp, GoodRatio, hyperbandEta.",
        "algoDef has no field 'maxParallelJobNum'; did you mean maxParalleJobNum?",
        "algoDef has no field 'zzz'.",
    )


def change(request: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    made = json.loads(json.dumps(request))
    place, *names = made, *path.split(".")
    for name in names[:-1]:
        place = place[int(name) if name.isdecimal() else name]
    place[names[-1]] = value
    return made


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("modelSpec", None, "'modelSpec' is missing"),
        ("modelSpec.args", "", "modelSpec.args is missing"),
        ("modelSpec.sigName", 3, "sigName is not a text"),
        ("hpoName", 3, "hpoName is not a text"),
        ("algoDef.algorithm", "mine", "There is no algorithm 'mine'. Use one of Random, TPE"),
        ("algoDef.objective", "up", "Write minimize or maximize"),
        ("algoDef.objectiveMetric", None, "objectiveMetric is missing"),
        ("algoDef.maxJobNum", 0, "or -1 for no limit"),
        ("algoDef.maxParalleJobNum", -1, "at least 1."),
        ("algoDef.maxRunTime", "soon", "maxRunTime is soon"),
        ("algoDef.algoParams", [{"name": "Depth"}], "algoParams has no parameter 'Depth'"),
        ("algoDef.algoParams", [{"name": "RandomSeed", "value": "-1"}], "RandomSeed is '-1'"),
        ("algoDef.algorithm", "Hyperband", "needs the algoParams ResourceName"),
        ("algoDef.algorithm", "ExperimentGridSearch", "searches 'experiments'"),
        ("experiments", [{}], "Only ExperimentGridSearch has 'experiments'"),
        ("hyperParams", [], "There are 0 hyperParams"),
        ("hyperParams", {}, "There are 0 hyperParams"),
        ("hyperParams", "lr", "hyperParams is not a list"),
        ("hyperParams", [RATE, RATE], "'learning_rate' is twice"),
        ("hyperParams.0.name", None, "hyperParams[0].name is missing"),
        ("hyperParams.0.dataType", "bool", "Use int, double or str"),
        ("hyperParams.0.dataType", "str", "range of texts"),
        ("hyperParams.0.type", "any", "Use Range, Discrete or Fix"),
        ("hyperParams.0.type", "Discrete", "has no list discreteDbVal"),
        ("hyperParams.0.minDbVal", None, "minDbVal is missing"),
        ("hyperParams.0.minDbVal", "nan", "between -2^53 and 2^53"),
        ("hyperParams.0.minDbVal", 1.0, "Exchange them"),
        ("hyperParams.0.step", 0, "above 0"),
        ("hyperParams.0.step", "1e-90", "too small"),
        ("hyperParams.0.step", "x", "Give a number"),
        ("hyperParams.0.power", 1, "power above 1"),
        ("hyperParams.0.power", "1e999", "Give a number"),
    ],
)
def test_what_cannot_be_searched_is_refused_by_name(path: str, value: Any, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_request(change(make_request(), path, value))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"algoParams": [RESOURCE[0]]}, "ResourceValue is ''"),
        ({"algoParams": [RESOURCE[0], {"name": "ResourceValue", "value": "0" * 19 + "1" + "0" * 50}]}, "ResourceValue"),
        ({"algoParams": [*RESOURCE, {"name": "eta", "value": "2.5"}]}, "eta is 2.5. Give a whole number"),
        (
            {"algoParams": [RESOURCE[0], {"name": "ResourceValue", "value": "100000"}], "maxJobNum": -1},
            "a search may have 1000",
        ),
    ],
)
def test_a_hyperband_that_cannot_run_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_request(make_request("Hyperband", **fields))
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("experiments", "told"),
    [
        ([1], "experiments[0] is not an object"),
        ([{"id": 1, "hyperParams": []}, {"id": 1, "hyperParams": []}], "a whole number of its own"),
        ([{"id": 1, "hyperParams": [{"name": "n", "dataType": "INT", "fixedVal": "x"}]}], "not of type int"),
        (
            [
                {"id": 1, "hyperParams": [{"name": "n", "dataType": "INT", "fixedVal": "1"}]},
                {"id": 2, "hyperParams": [{"name": "n", "dataType": "STR", "fixedVal": "1"}]},
            ],
            "two types",
        ),
    ],
)
def test_experiments_that_cannot_run_are_refused(experiments: Any, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_request(make_request("ExperimentGridSearch", experiments=experiments))
    assert told in str(refused.value)
