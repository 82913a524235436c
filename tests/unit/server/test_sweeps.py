"""Sweeps: what is refused, and a loop that reads metrics, prunes, submits, and goes on exactly wherever it dies."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from tests.unit.server.conftest import NewPlatform
from tests.unit.server.platform import ADMIN, Platform, check_problem

from legato.api.sweeps import SweepPlan
from legato.control.roles import Role
from legato.control.stages import Stage
from legato.core.errors import StoreError
from legato.server import sweeps
from legato.server.sweeps import Sweeper

LR = {"lr": {"low": 0.001, "high": 0.1, "log": True}}
SWEEP: dict[str, Any] = {
    "name": "digits",
    "metric": {"name": "accuracy", "direction": "maximize"},
    "parameters": LR,
    "num_trials": 6,
    "parallel": 2,
    "job": {"program": ["train.py", "--epochs", "8"], "directory": "/d", "max_workers": 4},
}
HALVING = {"method": "halving", "factor": 2}


def start(platform: Platform, who: str = "ann", **fields: Any) -> str:
    answer = platform.ask("POST", "sweeps", SWEEP | fields, who=who)
    assert answer.status_code == 201, answer.text
    made: str = answer.json()["id"]
    return made


def trials_of(platform: Platform, sweep: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = platform.get(f"sweeps/{sweep}/trials")["items"]
    return found


def log(platform: Platform, job: str, values: list[float | None], name: str = "accuracy") -> None:
    """Write what a job has logged: one value after each epoch of ten steps. It has begun the next of 8 epochs."""
    write_values(platform, job, [(10 * (at + 1), at, value) for at, value in enumerate(values)], name)
    commit(platform, job, min(10 * len(values) + 1, 80))


def write_values(platform: Platform, job: str, values: list[tuple[int, int, float | None]], name: str) -> None:
    """Write what a job has logged: steps, epochs and values."""
    lines = (
        json.dumps({"index": at, "step": step, "epoch": epoch, "time": 0.0, "values": {name: value, "other": 1.0}})
        for at, (step, epoch, value) in enumerate(values)
    )
    (platform.directory(job) / "metrics.jsonl").write_text("".join(f"{line}\n" for line in lines))


def write_losses(platform: Platform, job: str, losses: list[float]) -> None:
    """Write the losses of the steps of a job, ten in each epoch."""
    steps = range(1, len(losses) + 1)
    line = {"step": [*steps], "epoch": [(step - 1) // 10 for step in steps], "time": [0.0 for _ in steps]}
    (platform.directory(job) / "losses.jsonl").write_text(json.dumps(line | {"loss": losses}) + "\n")


def commit(platform: Platform, job: str, num_steps: int) -> None:
    """Write the commits of the steps of a job, ten in each epoch."""
    lines = (json.dumps({"step": at + 1, "epoch": at // 10, "view": 1, "time": 0.0}) for at in range(num_steps))
    (platform.directory(job) / "ledger.jsonl").write_text("".join(f"{line}\n" for line in lines))


def begin(platform: Platform, job: str) -> None:
    if platform.store.jobs.get(job).stage is Stage.QUEUED:
        platform.start(job)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"parameters": {"lr": {"low": 1.0, "high": 0.1}}}, "body.parameters.lr.low", "below high"),
        ({"parameters": {"lr": {"low": 1, "high": 10**400}}}, "body.parameters.lr.high", "not a number between"),
        (
            {"parameters": {"lr": {"low": 1, "high": 10**400, "is_float": True}}},
            "body.parameters.lr.high",
            "not a number between",
        ),
        ({"parameters": {"lr": {"values": [1], "is_float": True}}}, "body.parameters.lr.is_float", "is for ranges"),
        ({"parameters": {"lr": {"low": "1e-3", "high": 0.1}}}, "body.parameters.lr.low.int", "whole number"),
        ({"parameters": {"bad name": {"values": [1]}}}, "body.job.parameters", "not a valid name of a parameter"),
        ({"parameters": {"lr": {"values": ["ok", "x" * 20_000]}}}, "body.job.parameters", "more than 10000 characters"),
        ({"parameters": {f"p{n}": {"values": [1]} for n in range(60)}}, "body.parameters", "at most 50 items"),
        ({"metric": {"name": "a", "direction": "up"}}, "body.metric.direction", "'minimize' or 'maximize'"),
        ({"nonsense": 1}, "body.nonsense", "is not known"),
        ({"num_trials": None}, "body.num_trials", "Give num_trials"),
        ({"search": "grid"}, "body.parameters.lr.step", "finite number of values"),
        ({"job": {"program": ["a.py"], "directory": "/d", "name": "x"}}, "body.job.name", "none"),
        ({"job": {"program": [], "directory": "/d"}}, None, "there is no program"),
        ({"job": {"program": ["a.py"]}}, None, "uploaded code or a directory"),
        (
            {"job": {"program": ["a.py"], "directory": "/d", "parameters": {"lr": 1}}},
            "body.job.parameters.lr",
            "Remove one",
        ),
        ({"job": {**SWEEP["job"], "labels": {"sweep": "x"}}}, "body.job.labels.sweep", "another name"),
        ({"job": {**SWEEP["job"], "labels": {f"l{n}": "" for n in range(64)}}}, None, "65 labels are more than 64"),
        ({"max_slots": 1}, "body.max_slots", "2 trials at once need 2 slots"),
        (
            {"max_slots": 7, "job": {**SWEEP["job"], "is_elastic": False}},
            "body.max_slots",
            "trials at once need 8 slots",
        ),
    ],
)
def test_a_sweep_that_cannot_run_is_refused(
    shared: Platform, fields: dict[str, Any], field: str | None, told: str
) -> None:
    answer = shared.ask("POST", "sweeps", SWEEP | fields)
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert told in problem["detail"].replace("None", "none"), problem
    if field is not None:
        assert field in [one["field"] for one in problem["errors"]]
    assert shared.get("sweeps")["items"] == []


def test_a_range_between_whole_numbers_has_others_too_if_the_request_says_so(platform: Platform) -> None:
    """JavaScript writes 1.0 as 1."""
    platform.lead()
    bounds = {"low": 0, "high": 1, "is_float": True}
    found = platform.get(f"sweeps/{start(platform, parameters={'dropout': bounds})}")
    range_of = {"values": None, "low": 0.0, "high": 1.0, "step": None, "log": False, "is_float": True}
    assert found["parameters"]["dropout"] == range_of
    again = {"dropout": range_of, "layers": {"low": 1, "high": 4}}
    shown = platform.get(f"sweeps/{start(platform, parameters=again)}")["parameters"]
    assert (shown["dropout"], shown["layers"]["is_float"]) == (range_of, False)
    assert Sweeper(platform.services, lambda: 0.0).round()
    values = [trial["parameters"]["dropout"] for trial in trials_of(platform, found["id"])]
    assert values
    assert all(0.0 < value < 1.0 for value in values)


def write_as_javascript(value: Any) -> Any:
    """Return a value as JavaScript reads and writes it: 1.0 becomes 1, and large integers lose digits."""
    if isinstance(value, dict):
        return {name: write_as_javascript(one) for name, one in value.items()}
    if isinstance(value, list):
        return [write_as_javascript(one) for one in value]
    is_whole = type(value) is int or (isinstance(value, float) and value.is_integer())
    return int(Decimal(repr(float(value)))) if is_whole else value


LARGE = {"data_seed": 2**60 + 1, "cutoff": 1.2345678901234568e20}


@pytest.mark.parametrize(
    "searched",
    [
        {"search": "grid", "parameters": {"scale": {"values": [1.0, 2.0, 3, False, "1.0"]}}},
        {"search": "grid", "parameters": {"scale": {"low": 0.0, "high": 2.0, "step": 1.0}}},
        {"search": "list", "parameters": {}, "points": [{"scale": 1.0}, {"scale": 2, "rate": 1e3}]},
        {"num_trials": 3, "parameters": {"scale": {"low": 1.0, "high": 4.0}, "rate": {"values": [0.0, 1.0]}}},
    ],
)
def test_the_trials_of_a_clone_have_exactly_the_parameters_of_the_original(
    platform: Platform, searched: dict[str, Any]
) -> None:
    platform.lead()
    fields = {"num_trials": None, "parallel": 9} | searched
    job = {**SWEEP["job"], "parameters": {"decay": 4.0, "layers": 4, "nesterov": True, **LARGE}}
    original = platform.get(f"sweeps/{start(platform, job=job, **fields)}")
    known = ("metric", "parameters", "points", "search", "num_trials", "parallel", "job", "seed")
    body = write_as_javascript({field: original[field] for field in known})
    assert "4.0" not in json.dumps(body) and str(LARGE["data_seed"]) not in json.dumps(body)
    clone = start(platform, clone_of=original["id"], **body)
    for _ in range(2):
        Sweeper(platform.services, lambda: 0.0).round()

    def read(sweep: str) -> str:
        return json.dumps(
            [platform.store.jobs.read_spec(one["job"])["parameters"] for one in trials_of(platform, sweep)]
        )

    assert read(clone) == read(original["id"]) != "[]"
    changed = body | {"parameters": {"scale": {"values": [7]}}, "search": "grid", "num_trials": 1, "points": []}
    others = {"layers": True, "nesterov": 1, "data_seed": 2**60 + 2, "cutoff": 10**400}
    changed["job"] = body["job"] | {"parameters": others}
    other = start(platform, clone_of=original["id"], **changed)
    Sweeper(platform.services, lambda: 0.0).round()
    (trial,) = trials_of(platform, other)
    assert json.dumps(trial["parameters"]) == '{"scale": 7}'
    had = platform.store.jobs.read_spec(trial["job"])["parameters"]
    assert json.dumps(had, sort_keys=True) == json.dumps(others | {"scale": 7}, sort_keys=True)


def test_a_definition_that_a_browser_makes_of_a_trial_has_its_numbers(platform: Platform) -> None:
    platform.lead()
    job = {**SWEEP["job"], "parameters": {"decay": 3.0}}
    scales = {"scale": {"values": [1.0, 2.0]}}
    sweep = start(platform, search="grid", num_trials=2, parameters=scales, job=job)
    Sweeper(platform.services, lambda: 0.0).round()
    project = platform.ask("POST", "projects", {"name": "digits"}).json()["id"]
    body = {"name": "best", "command": "train.py", "directory": "/d", "parameters": {"decay": 3, "scale": 2}}
    body["clone_of_trial"] = {"sweep": sweep, "number": 1}
    made = platform.ask("POST", f"projects/{project}/definitions", body).json()
    assert json.dumps(made["parameters"]) == '{"decay": 3.0, "scale": 2.0}'
    body["clone_of_trial"] = {"sweep": sweep, "number": 7}
    check_problem(platform.ask("POST", f"projects/{project}/definitions", body), 422, "invalid", "has no trial 7")


def test_a_clone_of_a_sweep_that_is_not_there_is_refused(shared: Platform) -> None:
    check_problem(shared.ask("POST", "sweeps", SWEEP | {"clone_of": "s-0"}), 404, "not-found", "s-0")


def test_viewers_start_none_and_closed_queues_take_none(shared: Platform) -> None:
    check_problem(shared.ask("POST", "sweeps", SWEEP, who="eye"), 403, "forbidden", "viewer")
    job = {**SWEEP["job"], "queue": "admins"}
    check_problem(shared.ask("POST", "sweeps", SWEEP | {"job": job}), 404, "not-found", "no queue 'admins'")
    job = {**SWEEP["job"], "code": "0" * 64}
    del job["directory"]
    check_problem(shared.ask("POST", "sweeps", SWEEP | {"job": job}), 404, "not-found")
    check_problem(shared.ask("GET", "sweeps/none"), 404, "not-found", "legato sweeps")


# ---------------------------------------------------------------- the course of a sweep


def test_trials_are_jobs_of_the_owner_within_the_limits(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, max_slots=4)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    assert sweeper.round()
    assert not sweeper.round()
    first, second = trials_of(platform, sweep)
    job = platform.get(f"jobs/{first['job']}")
    assert (job["name"], job["owner"], job["max_workers"]) == ("digits-0", "ann", 2)
    assert job["labels"] == {"sweep": sweep}
    spec = platform.get(f"jobs/{first['job']}/spec")
    assert spec["parameters"] == first["parameters"]
    assert first["parameters"] != second["parameters"]
    begin(platform, first["job"])
    log(platform, first["job"], [0.5, 0.75])
    platform.end(first["job"])
    assert sweeper.round()
    first, _, third = trials_of(platform, sweep)
    assert (first["state"], first["value"], first["job_stage"]) == ("succeeded", 0.75, "succeeded")
    assert third["state"] == "running"
    found = platform.get(f"sweeps/{sweep}")
    assert (found["trials"], found["best"], found["stage"]) == ({"running": 2, "succeeded": 1}, 0, "running")
    assert platform.get("sweeps", who="eye")["items"] == [found]


def test_a_trial_that_is_not_among_the_best_is_stopped_with_its_reason(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, pruning=HALVING)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    good, bad = (trial["job"] for trial in trials_of(platform, sweep))
    for job, value in ((good, 0.9), (bad, 0.1)):
        begin(platform, job)
        log(platform, job, [value])
    sweeper.round()
    kept, pruned, *_ = trials_of(platform, sweep)
    assert (kept["state"], kept["reports"]) == ("running", [{"resource": 1, "value": 0.9}])
    assert (pruned["state"], pruned["value"], pruned["job_stage"]) == ("pruned", 0.1, "stopping")
    assert pruned["reason"] == "pruned: accuracy 0.1 after epoch 1 is not among the best 1/2"
    assert platform.store.jobs.get(bad).reason == pruned["reason"]
    # A stopping job holds its slots, so no other trial takes its place yet.
    assert len(trials_of(platform, sweep)) == 2
    platform.end(bad, Stage.STOPPED)
    sweeper.round()
    assert len(trials_of(platform, sweep)) == 3
    # Epoch 3 is no comparison: those are after 1, 2, 4, ... epochs.
    log(platform, good, [0.9, 0.9, 0.9])
    sweeper.round()
    assert [one["resource"] for one in trials_of(platform, sweep)[0]["reports"]] == [1, 2]


def test_a_job_that_ran_on_without_a_server_is_pruned_by_the_report_that_decided_it(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, pruning=HALVING, parallel=1)
    Sweeper(platform.services, lambda: 0.0).round()
    (first,) = trials_of(platform, sweep)
    begin(platform, first["job"])
    log(platform, first["job"], [0.9] * 8)
    platform.end(first["job"])
    Sweeper(platform.services, lambda: 0.0).round()
    second = trials_of(platform, sweep)[1]
    begin(platform, second["job"])
    log(platform, second["job"], [0.95, 0.2, 0.99])
    platform.end(second["job"])
    Sweeper(platform.services, lambda: 0.0).round()
    done = trials_of(platform, sweep)[1]
    assert (done["state"], done["value"], done["job_stage"]) == ("pruned", 0.2, "succeeded")


def reports_of(platform: Platform, sweep: str, number: int = 0) -> list[tuple[int, float | None]]:
    return [(one["resource"], one["value"]) for one in trials_of(platform, sweep)[number]["reports"]]


def test_an_epoch_counts_when_it_is_over_by_its_last_value(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, pruning=HALVING)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    first, second = (trial["job"] for trial in trials_of(platform, sweep))
    begin(platform, first)
    every_step = [(step, (step - 1) // 10, step / 100) for step in range(1, 26)]
    for known in (1, 5, 10):
        write_values(platform, first, every_step[:known], "accuracy")
        commit(platform, first, known)
        sweeper.round()
        assert reports_of(platform, sweep) == []
    commit(platform, first, 11)
    sweeper.round()
    assert reports_of(platform, sweep) == [(1, 0.1)]
    write_values(platform, first, every_step, "accuracy")
    sweeper.round()
    assert reports_of(platform, sweep) == [(1, 0.1), (2, 0.2)]
    # A server that reads all at once records the same.
    begin(platform, second)
    write_values(platform, second, every_step, "accuracy")
    Sweeper(platform.services, lambda: 0.0).round()
    assert reports_of(platform, sweep, 1) == reports_of(platform, sweep)


def test_the_last_epoch_of_a_job_is_not_compared(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, pruning=HALVING, parallel=1)
    for number, value in enumerate((0.9, 0.1)):
        Sweeper(platform.services, lambda: 0.0).round()
        job = trials_of(platform, sweep)[number]["job"]
        begin(platform, job)
        write_values(platform, job, [(5, 0, 0.9), (10, 0, value)], "accuracy")
        commit(platform, job, 10)
        platform.end(job)
    Sweeper(platform.services, lambda: 0.0).round()
    assert [trial["state"] for trial in trials_of(platform, sweep)[:2]] == ["succeeded", "succeeded"]


def test_a_metric_means_the_same_whenever_it_is_read(platform: Platform) -> None:
    platform.lead()
    losses, logged = [1 / step for step in range(1, 31)], [(10, 0, 0.5), (20, 1, 0.4)]
    for metric, expected in (("loss", [(1, 0.5), (2, 0.4)]), ("step_loss", [(1, 1 / 10), (2, 1 / 20)])):
        sweep = start(platform, pruning=HALVING, metric={"name": metric, "direction": "minimize"})
        Sweeper(platform.services, lambda: 0.0).round()
        for number, trial in enumerate(trials_of(platform, sweep)):
            begin(platform, trial["job"])
            for known in (10, 11, 25, 30) if number == 0 else (30,):
                write_losses(platform, trial["job"], losses[:known])
                write_values(platform, trial["job"], [one for one in logged if one[0] < known - 4], "loss")
                commit(platform, trial["job"], known)
                Sweeper(platform.services, lambda: 0.0).round()
            assert reports_of(platform, sweep, number) == expected
            platform.end(trial["job"])


def test_a_trial_whose_program_logs_no_loss_says_how_the_losses_of_steps_are_named(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, metric={"name": "loss", "direction": "minimize"}, max_failures=1)
    Sweeper(platform.services, lambda: 0.0).round()
    job = trials_of(platform, sweep)[0]["job"]
    begin(platform, job)
    write_losses(platform, job, [0.5])
    platform.end(job)
    Sweeper(platform.services, lambda: 0.0).round()
    assert "never logged 'loss': it logged step_loss." in platform.get(f"sweeps/{sweep}")["reason"]


def test_trials_are_compared_by_steps_if_the_sweep_says_so(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, pruning={**HALVING, "unit": "step", "min_resource": 15})
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    job = trials_of(platform, sweep)[0]["job"]
    begin(platform, job)
    log(platform, job, [0.1, 0.2, 0.3, 0.4])  # at steps 10, 20, 30, 40
    sweeper.round()
    assert trials_of(platform, sweep)[0]["reports"] == [{"resource": 20, "value": 0.2}, {"resource": 30, "value": 0.3}]


@pytest.mark.parametrize(
    ("values", "name", "told"),
    [
        ([], "accuracy", "never logged 'accuracy': it logged no metric. Log it by run.log"),
        ([0.5], "acc", "never logged 'accuracy': it logged acc, other."),
        ([0.5, None], "accuracy", "the last value of 'accuracy' is not a finite number (step 20)"),
    ],
)
def test_a_trial_without_a_value_fails_and_several_in_a_row_end_the_sweep(
    platform: Platform, values: list[float | None], name: str, told: str
) -> None:
    platform.lead()
    sweep = start(platform, max_failures=2, parallel=3)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    for trial in trials_of(platform, sweep)[:2]:
        begin(platform, trial["job"])
        log(platform, trial["job"], values, name)
        platform.end(trial["job"])
    sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert found["stage"] == "failed"
    assert found["reason"].startswith("2 trials in a row have failed; the last one: ")
    assert told in found["reason"]
    states = [(trial["state"], trial["job_stage"]) for trial in trials_of(platform, sweep)]
    assert states == [("failed", "succeeded"), ("failed", "succeeded"), ("stopped", "stopped")]
    assert not sweeper.round()


def test_a_success_between_failures_begins_the_count_again(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, max_failures=2, parallel=1, num_trials=4)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    for stage in (Stage.FAILED, Stage.SUCCEEDED, Stage.FAILED, Stage.SUCCEEDED):
        sweeper.round()
        trial = trials_of(platform, sweep)[-1]
        begin(platform, trial["job"])
        log(platform, trial["job"], [0.5])
        platform.end(trial["job"], stage)
        platform.now += 1
    sweeper.round()
    sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert (found["stage"], found["best"]) == ("succeeded", 1)
    assert found["reason"] == "all 4 trials have ended; the best is trial 1 with accuracy 0.5"


def test_a_job_that_its_user_stops_or_that_was_deleted_ends_its_trial(platform: Platform) -> None:
    lease = platform.lead()
    sweep = start(platform, num_trials=2)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    stopped, deleted = (trial["job"] for trial in trials_of(platform, sweep))
    platform.ask("POST", f"jobs/{stopped}/stop")
    platform.ask("POST", f"jobs/{deleted}/stop")
    sweeper._here.store.jobs.get(deleted)
    platform.now += 1
    platform.store.retention.purge(
        lease.fence, platform.now, jobs_before=platform.now, uploads_before=None, keys_before=0
    )
    sweeper.round()
    one, other = trials_of(platform, sweep)
    assert (one["state"], other["state"]) == ("failed", "failed")
    assert "deleted because of its age" in other["reason"]


def test_the_owner_stops_a_sweep_and_its_jobs(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform)
    Sweeper(platform.services, lambda: 0.0).round()
    check_problem(platform.ask("POST", f"sweeps/{sweep}/stop", who="ben"), 403, "forbidden", "only 'ann'")
    check_problem(platform.ask("POST", f"sweeps/{sweep}/stop", If_Match='"7"'), 412, "stale-version")
    answer = platform.ask("POST", "sweeps/digits/stop", If_Match='"1"')
    assert (answer.status_code, answer.json()["stage"], answer.headers["etag"]) == (200, "stopped", '"2"')
    assert {trial["job_stage"] for trial in trials_of(platform, sweep)} == {"stopped"}
    check_problem(platform.ask("POST", f"sweeps/{sweep}/stop"), 409, "conflict", "already ended")
    assert not Sweeper(platform.services, lambda: 0.0).round()


def test_a_sweep_that_has_ended_is_deleted_without_its_jobs(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform)
    Sweeper(platform.services, lambda: 0.0).round()
    jobs = [trial["job"] for trial in trials_of(platform, sweep)]
    check_problem(platform.ask("DELETE", f"sweeps/{sweep}"), 409, "conflict", "it is running. Stop it first")
    platform.ask("POST", f"sweeps/{sweep}/stop")
    check_problem(platform.ask("DELETE", f"sweeps/{sweep}", who="ben"), 403, "forbidden", "only 'ann'")
    check_problem(platform.ask("DELETE", f"sweeps/{sweep}", If_Match='"1"'), 412, "stale-version")
    assert platform.ask("DELETE", f"sweeps/{sweep}").status_code == 204
    check_problem(platform.ask("DELETE", f"sweeps/{sweep}"), 404, "not-found")
    check_problem(platform.ask("GET", f"sweeps/{sweep}/trials"), 404, "not-found")
    assert [platform.get(f"jobs/{job}")["stage"] for job in jobs] == ["stopped", "stopped"]


@pytest.mark.parametrize(
    ("num_logged", "stage", "told"),
    [
        (0, "failed", "it has run for 60 s, its max_run_s, and none of its 2 trials has a value of 'accuracy'"),
        (1, "succeeded", "it has run for 60 s, its max_run_s; the best is trial 0 with accuracy 0.5"),
    ],
)
def test_a_sweep_ends_at_its_limit_of_time(platform: Platform, num_logged: int, stage: str, told: str) -> None:
    platform.lead()
    sweep = start(platform, max_run_s=60, max_failures=9, num_trials=2)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    first, other = (trial["job"] for trial in trials_of(platform, sweep))
    begin(platform, first)
    log(platform, first, [0.5] * num_logged)
    platform.end(first)
    platform.now += 59
    platform.lead()
    sweeper.round()
    assert platform.get(f"sweeps/{sweep}")["stage"] == "running"
    platform.now += 1
    sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert (found["stage"], found["reason"]) == (stage, told)
    assert platform.get(f"jobs/{other}")["stage"] == "stopped"


def test_a_list_and_whole_trials_of_hyperband_run_as_jobs(platform: Platform) -> None:
    platform.lead()
    points = [{"lr": 0.1}, {"width": 8}]
    listed = start(platform, search="list", parameters={}, points=points, num_trials=None)
    pruning = {"method": "hyperband", "factor": 2, "max_resource": 2, "parameter": "epochs"}
    job = {**SWEEP["job"], "program": ["train.py"]}
    whole = start(platform, name="whole", pruning=pruning, num_trials=4, job=job)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    assert [trial["parameters"] for trial in trials_of(platform, listed)] == points
    assert [trial["parameters"]["epochs"] for trial in trials_of(platform, whole)] == [1, 1]
    for trial, value in zip(trials_of(platform, whole), (0.5, 0.9), strict=True):
        assert len(trials_of(platform, whole)) == 2, "the next rung waits for both"
        begin(platform, trial["job"])
        log(platform, trial["job"], [value])
        platform.end(trial["job"])
        sweeper.round()
    found = trials_of(platform, whole)
    assert found[2]["parameters"] == {**found[1]["parameters"], "epochs": 2}
    field = {"parameters": {"epochs": 1}, **SWEEP["job"]}
    answer = platform.ask(
        "POST", "sweeps", SWEEP | {"name": "twice", "pruning": pruning, "num_trials": 4, "job": field}
    )
    check_problem(answer, 422, "invalid", "a parameter of the sweep and of the job")


def test_only_the_owner_and_admins_see_the_variables(platform: Platform) -> None:
    sweep = start(platform, job={**SWEEP["job"], "environment": {"KEY": "secret"}})
    seen = {
        who: platform.get(f"sweeps/{sweep}", who=who)["job"]["environment"] for who in ("ann", "admin", "ben", "eye")
    }
    assert seen == {"ann": {"KEY": "secret"}, "admin": {"KEY": "secret"}, "ben": {"KEY": None}, "eye": {"KEY": None}}
    assert "secret" not in json.dumps(platform.get("sweeps", who="ben"))


def test_a_repeated_request_starts_one_sweep(platform: Platform) -> None:
    answers = [platform.ask("POST", "sweeps", SWEEP, Idempotency_Key="once") for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json() == answers[1].json()
    other = platform.ask("POST", "sweeps", SWEEP | {"seed": 1}, Idempotency_Key="once")
    check_problem(other, 422, "key-reused")


def test_a_sweep_waits_while_too_many_jobs_are_queued(new_platform: NewPlatform) -> None:
    platform = new_platform(max_queued_jobs=1)
    platform.lead()
    sweep = start(platform)
    clock = [0.0]
    sweeper = Sweeper(platform.services, lambda: clock[0])
    sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert (found["stage"], found["trials"]) == ("running", {"running": 1})
    assert "already queued" in found["reason"]
    begin(platform, trials_of(platform, sweep)[0]["job"])
    assert not sweeper.round()
    clock[0] = 10.0
    assert sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert (found["reason"], found["trials"]) == ("started by 'ann'", {"running": 2})


def test_a_sweep_whose_choices_take_long_does_not_hold_up_others(platform: Platform) -> None:
    platform.lead()
    slow, other = start(platform, parallel=5), start(platform, name="other", parallel=5)
    ticks = itertools.count(step=0.15)
    sweeper = Sweeper(platform.services, lambda: next(ticks))
    for number in (1, 2, 3):
        sweeper.round()
        assert [len(trials_of(platform, sweep)) for sweep in (slow, other)] == [min(2 * number, 5)] * 2


def test_a_user_who_may_submit_no_more_ends_the_sweep(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform)
    platform.store.accounts.change("ann", ADMIN, platform.now, role=Role.VIEWER)
    Sweeper(platform.services, lambda: 0.0).round()
    found = platform.get(f"sweeps/{sweep}", who="admin")
    assert found["stage"] == "failed"
    assert "may submit no jobs any more" in found["reason"]


def test_without_optuna_a_sweep_waits_and_a_new_one_is_refused(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.lead()
    sweep = start(platform)
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    Sweeper(platform.services, lambda: 0.0).round()
    found = platform.get(f"sweeps/{sweep}")
    assert found["stage"] == "running"
    assert "pip install 'legato[sweeps]'" in found["reason"]
    check_problem(platform.ask("POST", "sweeps", SWEEP), 422, "invalid", "Optuna is not installed")


def test_a_server_that_does_not_lead_and_a_sweep_that_cannot_be_read_stop_no_other(platform: Platform) -> None:
    broken, sweep = start(platform), start(platform, name="other")
    assert not Sweeper(platform.services, lambda: 0.0).round()
    platform.lead()
    with platform.store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE sweeps SET plan = '{}' WHERE id = ?", (broken,))
    assert Sweeper(platform.services, lambda: 0.0).round()
    assert len(trials_of(platform, sweep)) == 2
    assert [one["id"] for one in platform.get("sweeps")["items"]] == [sweep]
    check_problem(platform.ask("GET", f"sweeps/{broken}"), 409, "conflict", "Cannot read the plan")


def test_an_unexpected_error_is_the_reason_and_at_last_ends_the_sweep(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.lead()
    sweep, other = start(platform), start(platform, name="other", parallel=1)
    sweeper = Sweeper(platform.services, lambda: 0.0)

    def choose(plan: SweepPlan, trials: Any) -> dict[str, Any]:
        if plan.parallel == 2:
            raise ValueError("not contained")
        return {"lr": 0.1}

    monkeypatch.setattr(sweeps, "choose_parameters", choose)
    for _ in range(9):
        sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    told = "the server cannot go on with it: ValueError: not contained"
    assert (found["stage"], found["reason"]) == ("running", told)
    assert sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert found["stage"] == "failed"
    assert found["reason"].startswith(f"{told}. This is an error of Legato")
    assert len(trials_of(platform, other)) == 1


def test_a_job_that_cannot_be_read_is_the_reason_and_ends_no_sweep(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform)
    with platform.store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE sweeps SET template = '{}' WHERE id = ?", (sweep,))
    sweeper = Sweeper(platform.services, lambda: 0.0)
    for _ in range(11):
        assert not sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert found["stage"] == "running"
    assert "Cannot read the job of sweep 'digits'" in found["reason"]


def test_a_disk_that_fails_for_a_while_ends_no_sweep(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.lead()
    sweep = start(platform, pruning=HALVING)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()

    def fail(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(sweeps, "read_values", fail)
        for _ in range(11):
            sweeper.round()
    found = platform.get(f"sweeps/{sweep}")
    assert (found["stage"], "Input/output error" in found["reason"]) == ("running", True)
    sweeper.round()
    assert platform.get(f"sweeps/{sweep}")["reason"] == "started by 'ann'"


def test_the_server_remembers_only_jobs_that_train(platform: Platform) -> None:
    platform.lead()
    sweep = start(platform, pruning=HALVING)
    sweeper = Sweeper(platform.services, lambda: 0.0)
    sweeper.round()
    jobs = [trial["job"] for trial in trials_of(platform, sweep)]
    for job in jobs:
        begin(platform, job)
        log(platform, job, [0.5])
    sweeper.round()
    assert set(sweeper._seen) == set(jobs)
    platform.ask("POST", f"sweeps/{sweep}/stop")
    sweeper.round()
    assert sweeper._seen == {}


# ---------------------------------------------------------------- death at any point


class Died(BaseException):
    """The server was killed."""


def advance(platform: Platform, sweep: str) -> None:
    """Let the pool work: the running trials log one more epoch, and end after eight."""
    for trial in platform.store.sweeps.list_trials(sweep):
        job = platform.store.jobs.get(trial.job)
        if job.stage is Stage.QUEUED:
            platform.start(job.id)
        elif job.stage in (Stage.STOPPING, Stage.RUNNING):
            lr = trial.parameters["lr"]
            assert isinstance(lr, float)
            file = platform.directory(job.id) / "metrics.jsonl"
            done = len(file.read_text().splitlines()) if file.exists() else 0
            log(platform, job.id, [1 - abs(math.log10(lr) + 2) - 1 / (epoch + 1) for epoch in range(min(done + 1, 8))])
            if job.stage is Stage.STOPPING or done >= 7:
                platform.end(job.id, Stage.STOPPED if job.stage is Stage.STOPPING else Stage.SUCCEEDED)


def run_sweep(platform: Platform, fields: dict[str, Any], dies: Callable[[], bool]) -> list[dict[str, Any]]:
    """Run a sweep to its end. Whenever ``dies`` says so, the server is killed before or after it writes."""
    store = platform.store.sweeps
    platform.now += 100
    platform.lead()
    sweep = start(platform, **fields)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("add_trial", "record", "end"):
            write = getattr(store, name)

            def write_or_die(*given: Any, write: Callable[..., Any] = write, **more: Any) -> Any:
                if dies():
                    raise Died
                done = write(*given, **more)
                if dies():
                    raise Died
                return done

            patch.setattr(store, name, write_or_die)
        sweeper = Sweeper(platform.services, lambda: 0.0)
        while store.get(sweep).stage == "running":
            try:
                sweeper.round()
            except Died:
                sweeper = Sweeper(platform.services, lambda: 0.0)
                continue
            advance(platform, sweep)
            platform.now += 1
    # Jobs that were stopped end in their own time.
    for _ in range(2):
        advance(platform, sweep)
    kept = ("number", "parameters", "state", "value", "reports", "marks")
    return [{name: getattr(one, name) for name in kept} for one in store.list_trials(sweep)]


CASES: list[dict[str, Any]] = [
    {"search": "tpe", "pruning": HALVING, "parallel": 1},
    {"search": "random", "parallel": 3},
    {
        "search": "tpe",
        "pruning": {"method": "hyperband", "factor": 2, "max_resource": 8},
        "parallel": 1,
        "num_trials": 9,
    },
]


@pytest.mark.parametrize("fields", CASES, ids=["tpe-halving", "random", "tpe-hyperband"])
def test_a_server_that_dies_anywhere_changes_no_trial(platform: Platform, fields: dict[str, Any]) -> None:
    undisturbed = run_sweep(platform, fields, lambda: False)
    assert len(undisturbed) == fields.get("num_trials", 6)
    if "pruning" in fields:
        assert {one["state"] for one in undisturbed} == {"pruned", "succeeded"}
    for every in (2, 3):
        numbers = itertools.count()
        assert run_sweep(platform, fields, lambda: next(numbers) % every == 1) == undisturbed  # noqa: B023


def test_a_store_that_cannot_be_reached_ends_no_sweep(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.lead()
    sweep = start(platform)

    def fail(*_: Any, **__: Any) -> Any:
        raise StoreError("gone")

    monkeypatch.setattr(platform.store.sweeps, "add_trial", fail)
    with pytest.raises(StoreError):
        Sweeper(platform.services, lambda: 0.0).round()
    monkeypatch.undo()
    assert platform.get(f"sweeps/{sweep}")["stage"] == "running"
