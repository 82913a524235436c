"""The search depends on the plan and the recorded trials alone, so it goes on exactly after any crash."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import optuna
import pytest
from hypothesis import given
from hypothesis import settings as rules
from hypothesis import strategies as st
from tests.tiers import examples

from legato.api.sweeps import Direction, Report, SweepPlan, TrialState
from legato.core.errors import UsageError
from legato.sweeps import search
from legato.sweeps.checking import check_plan
from legato.sweeps.rungs import count_trials
from legato.sweeps.search import Recorded, choose_parameters, compare, find_best, next_comparison

PARAMETERS: dict[str, Any] = {
    "lr": {"low": 0.001, "high": 0.1, "log": True},
    "width": {"low": 8, "high": 64, "step": 8},
    "optimizer": {"values": ["sgd", "adam", True]},
}
HALVING: dict[str, Any] = {"method": "halving", "factor": 2}
HYPERBAND: dict[str, Any] = {"method": "hyperband", "factor": 2, "max_resource": 8}


def make_plan(**changes: Any) -> SweepPlan:
    fields = {"metric": {"name": "loss", "direction": "minimize"}, "parameters": PARAMETERS, "num_trials": 8}
    return msgspec.convert(fields | changes, SweepPlan)


def measure(parameters: dict[str, Any], epoch: int) -> float:
    """The metric of a trial: how good its parameters are, and better with each epoch."""
    return abs(math.log10(parameters["lr"]) + 2) + parameters["width"] / 64 + 4.0 / epoch


def through_json(trials: Sequence[Recorded]) -> list[Recorded]:
    """Return trials as a store gives them back."""
    return msgspec.json.decode(msgspec.json.encode(list(trials)), type=list[Recorded])


def run(plan: SweepPlan, epochs: int = 8, died: frozenset[int] = frozenset(), num_trials: int = 8) -> list[Recorded]:
    """Run a sweep with one trial after the other. At the choices with these numbers, the server dies before it records.

    After each death, all that is left are the recorded trials.
    """
    trials: list[Recorded] = []
    choices = itertools.count()

    def dies() -> bool:
        nonlocal trials
        if next(choices) not in died:
            return False
        trials = through_json(trials)
        return True

    for number in range(num_trials):
        parameters = choose_parameters(plan, trials)
        if dies():
            again = choose_parameters(plan, trials)
            assert again == parameters
            assert list(map(type, again.values())) == list(map(type, parameters.values()))
        trials.append(Recorded(number=number, parameters=parameters))
        for epoch in range(1, epochs + 1):
            if epoch < next_comparison(plan.pruning, trials[number].reports):
                continue
            report = Report(epoch, measure(parameters, epoch))
            verdict = compare(plan, trials, number, report)
            if dies():
                assert compare(plan, trials, number, report) == verdict
            trials[number] = verdict.trial
            if verdict.is_pruned:
                break
        else:
            done = {"state": TrialState.SUCCEEDED, "value": measure(parameters, epochs)}
            trials[number] = msgspec.structs.replace(trials[number], **done)
    return trials


@pytest.mark.parametrize("pruning", [None, HALVING, HYPERBAND], ids=["all", "halving", "hyperband"])
@pytest.mark.parametrize("method", ["random", "tpe"])
@rules(max_examples=examples(5), deadline=None)
@given(died=st.frozensets(st.integers(0, 40)), seed=st.integers(0, 2**53), parallel=st.sampled_from([1, 4]))
def test_a_sweep_that_dies_between_choice_and_record_has_the_same_trials(
    method: str, pruning: dict[str, Any] | None, died: frozenset[int], seed: int, parallel: int
) -> None:
    plan = make_plan(search=method, pruning=pruning, seed=seed, parallel=parallel)
    assert run(plan, died=died) == run(plan)


def test_other_seeds_and_other_numbers_give_other_parameters() -> None:
    found = [one.parameters["lr"] for seed in (1, 2) for one in run(make_plan(seed=seed))]
    assert len(set(found)) == len(found)


def test_the_values_keep_to_their_ranges_steps_and_types() -> None:
    for one in run(make_plan(search="tpe"), num_trials=20):
        lr, width, optimizer = one.parameters.values()
        assert isinstance(lr, float)
        assert 0.001 <= lr <= 0.1
        assert isinstance(width, int)
        assert width in range(8, 65, 8)
        assert optimizer in ("sgd", "adam", True)


def test_tpe_learns_from_trials_and_random_does_not() -> None:
    def spread(method: str) -> float:
        plan = make_plan(search=method, num_trials=40)
        late = run(plan, num_trials=40)[20:]
        return sum(one.value or 0 for one in late) / len(late)

    assert spread("tpe") < spread("random")
    # What trials report changes the next choice of TPE only.
    for method, learns in (("tpe", True), ("random", False)):
        plan = make_plan(search=method)
        trials = run(plan)
        other = [msgspec.structs.replace(one, value=-(one.value or 0)) for one in trials]
        assert (choose_parameters(plan, trials) != choose_parameters(plan, other)) is learns


@pytest.mark.parametrize("pruning", [HALVING, HYPERBAND], ids=["halving", "hyperband"])
def test_trials_are_pruned_as_optuna_prunes_them(pruning: dict[str, Any]) -> None:
    plan = make_plan(pruning=pruning)
    made = run(plan, num_trials=12)
    assert {one.state for one in made} == {TrialState.SUCCEEDED, TrialState.PRUNED}
    pruner: Any = (
        optuna.pruners.SuccessiveHalvingPruner(1, 2) if pruning is HALVING else optuna.pruners.HyperbandPruner(1, 8, 2)
    )
    study = optuna.create_study(study_name="sweep", pruner=pruner)
    for one in made:
        # Here each epoch is reported; Legato reports only those at which Optuna can decide.
        trial = study.ask()
        for epoch in range(1, 9):
            trial.report(measure(one.parameters, epoch), epoch)
            if epoch < 8 and trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                assert (one.state, one.reports[-1].resource) == (TrialState.PRUNED, epoch)
                break
        else:
            study.tell(trial, measure(one.parameters, 8))
            assert one.state is TrialState.SUCCEEDED


def test_a_value_that_is_not_finite_is_pruned() -> None:
    plan = make_plan(pruning=HALVING)
    verdict = compare(plan, [Recorded(number=0, parameters=choose_parameters(plan, []))], 0, Report(1, None))
    assert verdict.is_pruned
    assert verdict.trial.value is None
    assert choose_parameters(plan, [verdict.trial])


def test_failed_and_stopped_trials_do_not_stop_the_search() -> None:
    plan = make_plan(search="tpe")
    states = [TrialState.FAILED, TrialState.STOPPED, TrialState.RUNNING]
    trials = [
        Recorded(number=number, parameters=choose_parameters(plan, []), state=state)
        for number, state in enumerate(states)
    ]
    assert choose_parameters(plan, trials)
    assert find_best(trials, Direction.MINIMIZE) is None


def test_the_last_resource_is_not_compared() -> None:
    pruning = make_plan(pruning=HYPERBAND).pruning
    assert next_comparison(pruning, [Report(4, 1.0)]) == math.inf
    assert next_comparison(None, []) == math.inf


def test_without_optuna_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install 'legato\[sweeps\]'"):
        search.check_library()
    grid = make_plan(search="grid", parameters={"n": {"values": [1, 2]}}, num_trials=2)
    assert choose_parameters(grid, []) == {"n": 1}


def test_a_random_choice_and_a_comparison_need_no_study_of_all_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    create = optuna.trial.create_trial

    def note(**given: Any) -> Any:
        made.append(given["params"])
        return create(**given)

    monkeypatch.setattr(optuna.trial, "create_trial", note)
    plan = make_plan(search="random", pruning={"method": "halving"})
    trials: list[Recorded] = []
    for number in range(4):
        trials.append(Recorded(number=number, parameters=choose_parameters(plan, trials)))
    assert made == []
    compare(plan, trials, 1, Report(1, 0.5))
    assert made == [{}] * 4


def test_the_smallest_step_that_is_allowed_can_be_searched() -> None:
    for low, high, step in ((0.0, 1e5, 0.1), (-3e4, 7e4, 0.1), (1e6 - 3, 1e6, 1.0)):
        plan = make_plan(parameters={"x": {"low": low, "high": high, "step": step}}, num_trials=100)
        check_plan(plan)
        trials: list[Recorded] = []
        for number in range(100):
            trials.append(Recorded(number=number, parameters=choose_parameters(plan, trials)))


def test_optuna_is_not_loaded_before_the_first_choice() -> None:
    told = "import sys, json; import legato.server.sweeps, legato.server.app, legato.cli.main; "
    told += "print(json.dumps([name for name in ('optuna', 'numpy') if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


# ---------------------------------------------------------------- lists, and Hyperband by whole trials


def test_a_list_has_exactly_its_points() -> None:
    points = [{"lr": 0.1}, {"width": 8, "optimizer": "sgd"}]
    plan = check_plan(make_plan(search="list", parameters={}, points=points, num_trials=2))
    first = Recorded(number=0, parameters={})
    assert [choose_parameters(plan, []), choose_parameters(plan, [first])] == points


WHOLE: dict[str, Any] = {"method": "hyperband", "factor": 2, "max_resource": 4, "parameter": "epochs"}


def test_hyperband_by_whole_trials_trains_the_best_again() -> None:
    plan = check_plan(make_plan(pruning=WHOLE, num_trials=count_trials(make_plan(pruning=WHOLE).pruning)))
    trials: list[Recorded] = []
    for number in range(plan.num_trials):
        parameters = choose_parameters(plan, trials)
        assert parameters is not None
        assert choose_parameters(plan, through_json(trials)) == parameters
        value = measure(parameters, int(parameters["epochs"]))
        trials.append(Recorded(number=number, parameters=parameters, state=TrialState.SUCCEEDED, value=value))
        assert next_comparison(plan.pruning, ()) == math.inf
    assert [one.parameters["epochs"] for one in trials] == [1] * 4 + [2] * 2 + [4] + [2] * 3 + [4] + [4] * 3
    best = sorted(trials[:4], key=lambda one: one.value or 0)
    assert [one.parameters for one in trials[4:7]] == [
        best[0].parameters | {"epochs": 2},
        best[1].parameters | {"epochs": 2},
        best[0].parameters | {"epochs": 4},
    ]
    assert len({str(one.parameters) for one in trials[:4]}) == 4


def test_hyperband_by_whole_trials_waits_for_a_rung_and_fills_the_places_of_failed_trials() -> None:
    plan = check_plan(make_plan(pruning=WHOLE))
    states = [TrialState.FAILED, TrialState.SUCCEEDED, TrialState.STOPPED, TrialState.RUNNING]
    trials = [
        Recorded(number=number, parameters={"lr": 0.01, "epochs": 1}, state=state, value=float(number))
        for number, state in enumerate(states)
    ]
    assert choose_parameters(plan, trials) is None
    trials[3] = msgspec.structs.replace(trials[3], state=TrialState.FAILED)
    assert choose_parameters(plan, trials) == {"lr": 0.01, "epochs": 2}
    trials.append(Recorded(number=4, parameters={"lr": 0.01, "epochs": 2}))
    found = choose_parameters(plan, trials)
    assert found is not None
    assert found["epochs"] == 2
    assert found["lr"] != 0.01
