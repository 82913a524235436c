"""Commands and the client on sweeps, on a real server: what files are refused, and what the commands show and save."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.platform import Platform
from typer.testing import CliRunner

from legato.cli import main
from legato.cli.terminal import output
from legato.client.client import Client
from legato.client.sweeps import list_unsaved
from legato.core.errors import Conflict, UsageError
from legato.server.sweeps import Sweeper

FILE = """
name: digits
metric: {name: accuracy, direction: maximize}
parameters:
  lr: {low: 1e-3, high: 0.1, log: true}
  optimizer: {values: [sgd, adam]}
num_trials: 2
job:
  program: train.py --epochs 3
  workers: 1..4
  environment: {DEPTH: 3}
"""

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    platform.lead()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("train.py").write_text("print('trained')\n")
    Path("sweep.yaml").write_text(FILE)
    environment = {"LEGATO_SERVER": platform.url, "LEGATO_TOKEN": platform.secrets["ann"], "COLUMNS": "200"}
    environment |= {"XDG_CONFIG_HOME": str(tmp_path / "config")}

    def call(*words: str) -> tuple[int, str, str]:
        result = CliRunner().invoke(main.app, list(words), env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.stdout, result.stderr

    return call


@pytest.fixture
def client(platform: Platform, call: Call) -> Iterator[Client]:
    with Client(platform.url, platform.secrets["ann"]) as client:
        yield client


def finish(platform: Platform, value: float = 0.5) -> None:
    """Let all trials of all sweeps succeed, each with a higher value."""
    sweeper = Sweeper(platform.services)
    while sweeper.round():
        for sweep in platform.store.sweeps.list_running():
            for trial in platform.store.sweeps.list_trials(sweep.id):
                if trial.state == "running" and trial.job_stage == "queued":
                    platform.start(trial.job, f"node/{trial.number}")
                    values = {"accuracy": value + trial.number / 10}
                    line = json.dumps({"step": 30, "epoch": 2, "time": 0.0, "values": values})
                    (platform.directory(trial.job) / "metrics.jsonl").write_text(f"{line}\n")
                    platform.end(trial.job)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("num_trials", "num_trails"), "a sweep has no field 'num_trails'. Did you mean num_trials?"),
        (("  workers: 1..4", "  worker: 1..4"), "the job of a sweep has no field 'worker'"),
        (("name: digits", ""), "the field 'name' is missing"),
        (("name: digits", "name: 7"), "'name' in 'sweep.yaml': it must be a text"),
        (("{values: [sgd, adam]}", "[sgd, adam]"), "each needs a line such as"),
        (("num_trials: 2", "num_trials: [2"), "at line"),
        (("low: 1e-3", "low: 1"), "'parameters.lr' has low=1 and high=0.1"),
        (("low: 1e-3", "low: much"), "parameters.lr.low"),
        (("num_trials: 2", "num_trials: 5000"), "num_trials=5000 is outside 1..1000"),
        (("direction: maximize", "direction: up"), "metric.direction must be 'minimize' or 'maximize'"),
        (("  environment: {DEPTH: 3}", "  parameters: {lr: 1}"), "parameter of the sweep and of the job"),
        (("program: train.py --epochs 3", "program: none.py"), "there is no such file"),
    ],
)
def test_a_file_that_describes_no_sweep_is_refused(
    call: Call, platform: Platform, change: tuple[str, str], told: str
) -> None:
    Path("sweep.yaml").write_text(FILE.replace(*change))
    code, out, err = call("sweep", "sweep.yaml")
    assert (code, out) == (2, "")
    assert told in err
    assert platform.get("sweeps")["items"] == []


def test_the_example_is_the_one_of_the_documentation_and_is_accepted(call: Call, platform: Platform) -> None:
    root = Path(__file__).parents[3]
    text = (root / "examples/sweep/sweep.yaml").read_text().partition("\n")[2]
    assert f"```yaml\n{text}```" in (root / "docs/sweeps.md").read_text()
    assert call("sweep", str(root / "examples/sweep/sweep.yaml"), "-d")[0] == 0
    assert platform.get("sweeps/digits")["job"]["max_workers"] == 2


def test_a_program_with_a_syntax_error_starts_no_sweep(call: Call) -> None:
    Path("train.py").write_text("while\n")
    code, _, err = call("sweep", "sweep.yaml")
    assert code == 2
    assert "it has a syntax error" in err


def test_a_sweep_is_started_shown_and_saved(call: Call, platform: Platform, client: Client) -> None:
    assert call("sweeps")[1].startswith("There are none.")
    code, out, _ = call("sweep", "sweep.yaml", "--detach", "--key", "once")
    assert code == 0
    (sweep,) = client.sweeps()
    assert f"sweep 'digits' is started as {sweep.id}. To watch it: legato sweeps show {sweep.id} --watch." in out
    assert sweep.parameters["lr"].low == 0.001
    code, out, _ = call("sweep", "sweep.yaml", "--key", "once", "-o", "json")
    assert (code, json.loads(out)["id"]) == (0, sweep.id)
    with pytest.raises(Conflict, match="no best trial"):
        client.best_trial("digits")
    finish(platform)
    code, out, _ = call("sweeps", "show", "digits")
    assert code == 0
    assert out.splitlines()[0].split() == ["TRIAL", "JOB", "STATE", "GPUS", "accuracy", "lr", "optimizer"]
    assert "1 *" in out
    assert "digits: succeeded, all 2 trials have ended" in out
    assert [one["value"] for one in json.loads(call("sweeps", "show", "digits", "-o", "json")[1])] == [0.5, 0.6]
    assert "2/2" in call("sweeps")[1]
    best = client.best_trial("digits")
    assert f"trial 1 ({best.job}): accuracy 0.6" in call("sweeps", "best", "digits")[1]
    assert call("sweeps", "best", "digits", "--save-as", "Best")[0] == 2
    client.add_project("Digits")
    code, _, err = call("sweeps", "best", "digits", "--save-as", "Bare", "--project", "Digits")
    assert (code, "does not have: environment. To save" in err) == (0, True)
    assert client.definition("Bare").environment == {}
    saving = ("sweeps", "best", "digits", "--save-as", "Best", "--project", "Digits", "--with-environment")
    code, _, err = call(*saving)
    assert (code, err) == (0, "")
    made = client.definition("Best")
    assert (made.command, made.distributed, made.min_nodes, made.max_nodes) == ("train.py --epochs 3", "elastic", 1, 4)
    assert made.parameters == best.parameters
    assert made.environment == {"DEPTH": "3"}
    assert made.code == platform.get(f"jobs/{best.job}")["code"]
    assert made.description == f"trial 1 of sweep digits ({sweep.id}): accuracy 0.6"


def test_a_sweep_is_watched_until_it_ends_and_its_end_is_the_exit_code(
    call: Call, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(_: float) -> None:
        finish(platform)

    monkeypatch.setattr(output.time, "sleep", act)
    code, out, _ = call("sweep", "sweep.yaml")
    assert code == 0
    assert "sweep 'digits' succeeded: all 2 trials have ended; the best is trial 1 with accuracy 0.6" in out
    assert "legato sweeps best s-" in out
    Path("sweep.yaml").write_text(FILE.replace("accuracy", "other") + "max_failures: 1\n")
    code, out, err = call("sweep", "sweep.yaml")
    assert code == 1
    assert "sweep 'digits' failed: " in err
    assert "never logged 'other': it logged accuracy" in err


def test_ctrl_c_stops_watching_and_says_how_to_come_back(
    call: Call, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(output.time, "sleep", interrupt)
    code, _, err = call("sweep", "sweep.yaml")
    assert code == 0
    assert "detached; the sweep goes on. To watch it again: legato sweeps show s-" in err
    assert platform.get("sweeps/digits")["stage"] == "running"


@pytest.mark.parametrize("words", [("sweep", "sweep.yaml"), ("sweeps", "show", "digits", "--watch")])
def test_a_sweep_that_is_stopped_while_it_is_watched_is_no_success(
    call: Call, platform: Platform, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    if words[0] == "sweeps":
        call("sweep", "sweep.yaml", "-d")
    monkeypatch.setattr(output.time, "sleep", lambda _: platform.ask("POST", "sweeps/digits/stop"))
    assert call(*words)[0] == 1


def test_yaml_numbers_with_exponents_are_numbers_and_quoted_ones_are_texts(call: Call, platform: Platform) -> None:
    old, new = "{values: [sgd, adam]}", "{values: [1e-3, 0.1, 2E2]}\n  size: {values: [1e-3, small]}"
    Path("sweep.yaml").write_text(FILE.replace(old, new))
    assert call("sweep", "sweep.yaml", "-d")[0] == 0
    found = platform.get("sweeps/digits")["parameters"]
    assert (found["optimizer"]["values"], found["size"]["values"]) == ([0.001, 0.1, 200.0], ["1e-3", "small"])
    Path("sweep.yaml").write_text(FILE.replace("high: 0.1", "high: '64'"))
    code, _, err = call("sweep", "sweep.yaml", "-d")
    assert (code, "parameters.lr.high" in err) == (2, True)


def test_the_points_of_a_list_are_read_and_shown(call: Call, platform: Platform) -> None:
    listed = "search: list\npoints: [{lr: 1e-3}, {size: '64'}]\n"
    begin, end = FILE.index("parameters:"), FILE.index("job:")
    Path("sweep.yaml").write_text(FILE[:begin] + listed + FILE[end:])
    assert call("sweep", "sweep.yaml", "-d")[0] == 0
    assert platform.get("sweeps/digits")["points"] == [{"lr": 0.001}, {"size": "64"}]
    Sweeper(platform.services).round()
    _, out, _ = call("sweeps", "show", "digits")
    assert out.splitlines()[0].split()[-2:] == ["lr", "size"]
    assert "0.001" in out.splitlines()[1]
    Path("sweep.yaml").write_text(FILE.replace("parameters:", "points: 3\nother:"))
    assert call("sweep", "sweep.yaml", "-d")[0] == 2
    Path("sweep.yaml").write_text(FILE[:begin] + "search: list\npoints: [3]\n" + FILE[end:])
    code, _, err = call("sweep", "sweep.yaml", "-d")
    assert (code, "must be a list of points" in err) == (2, True)


def test_a_sweep_is_stopped(call: Call, platform: Platform) -> None:
    call("sweep", "sweep.yaml", "-d")
    Sweeper(platform.services).round()
    code, out, _ = call("sweeps", "stop", "digits")
    assert (code, out.startswith("Sweep 'digits' is stopped.")) == (0, True)
    code, _, err = call("sweeps", "stop", "digits")
    assert code == 2
    assert "already ended" in err
    assert call("sweeps", "show", "none")[0] == 2


def test_only_who_sees_the_variables_saves_them(client: Client, platform: Platform) -> None:
    options: dict[str, Any] = {"metric": {"name": "accuracy", "direction": "maximize"}, "num_trials": 1}
    options |= {"parameters": {"lr": {"values": [0.1]}}}
    options["job"] = {"environment": {"KEY": "secret"}, "priority": 7, "labels": {"of": "ann"}}
    sweep = client.start_sweep("hidden", "train.py", **options)
    finish(platform)
    assert list_unsaved(client.sweep(sweep.id)) == ["priority", "labels", "environment"]
    with Client(platform.url, platform.secrets["ben"]) as other:
        other.add_project("Digits of Ben")
        with pytest.raises(UsageError, match="only 'ann', who started it, and admins see the values"):
            other.save_best(sweep.id, "Digits of Ben", "Best", with_environment=True)


def test_jobs_that_no_definition_can_run_are_not_saved(client: Client, platform: Platform) -> None:
    options: dict[str, Any] = {"metric": {"name": "accuracy", "direction": "maximize"}, "num_trials": 1}
    options |= {"parameters": {"lr": {"values": [0.1]}}, "job": {"keep": 1}}
    sweep = client.start_sweep("kept", "train.py", **options)
    finish(platform)
    client.add_project("Digits")
    with pytest.raises(UsageError, match=r"no field 'keep'.*legato clone j-"):
        client.save_best(sweep.id, "Digits", "Best")
    with pytest.raises(UsageError, match="no such field"):
        client.start_sweep("wrong", "train.py", trials=3, **options)  # type: ignore[call-arg]
