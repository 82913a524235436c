"""Sweeps on a real server: the example of the documentation, and a server that is killed in the middle of a sweep."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import LIMIT_S, ROOT, Asker, Server, servers_of
from typer.testing import CliRunner

from legato.cli import main
from legato.client.client import Client

EXAMPLE = ROOT / "examples/sweep"
SETTINGS: dict[str, Any] = {"slots": 4, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
OPTIONS: dict[str, Any] = {
    "metric": {"name": "accuracy", "direction": "maximize"},
    "parameters": {"lr": {"low": 0.0001, "high": 0.3, "log": True}, "width": {"low": 8, "high": 64, "step": 8}},
    "num_trials": 6,
    "seed": 1,
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", **SETTINGS))
        made[0].start()
        yield made[0]


def call(server: Server, *words: str) -> str:
    environment = {"LEGATO_SERVER": server.url, "LEGATO_TOKEN": server.secret}
    result = CliRunner().invoke(main.app, list(words), env=environment)
    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    return result.stdout


def read_weights(asker: Asker, job: str) -> list[str]:
    """Return the SHA-256 of the weights that a job has printed; a job that was stopped early printed none."""
    logs = [one["log"] for one in asker.get(f"jobs/{job}/logs")["items"] if one["log"].startswith("worker")]
    texts = [asker.http.get(f"jobs/{job}/logs/{log}").text for log in logs]
    return sorted({found for text in texts for found in re.findall(r"weights sha256 (\w+)", text)})


def run(server: Server, name: str, num_kills: int, **fields: Any) -> list[Any]:
    """Run a sweep; the server is killed whenever another trial has been recorded, and started again."""
    secret = server.secret
    with Client(server.url, secret) as client:
        script, epochs = EXAMPLE / "train.py", 4
        options = {**OPTIONS, **fields, "job": {"max_workers": 2}}
        sweep = client.start_sweep(name, script, "--epochs", epochs, code=EXAMPLE, **options)
    path = f"sweeps/{sweep.id}/trials"
    for number in range(num_kills):
        asker = Asker(server, secret)
        asker.wait(path, lambda found, at=number: len(found["items"]) > 2 * at)  # type: ignore[misc]
        server.kill()
        server.start()
    asker = Asker(server, secret)
    done = asker.wait(f"sweeps/{sweep.id}", lambda found: found["stage"] != "running", 3 * LIMIT_S)
    assert done["stage"] == "succeeded", done
    trials = asker.wait(
        path, lambda found: all(one["job_stage"] not in ("running", "stopping") for one in found["items"])
    )
    kept = ("number", "parameters", "state", "value", "reports")
    found = [{field: one[field] for field in kept} for one in trials["items"]]
    jobs = asker.get("jobs", label=f"sweep={sweep.id}", order="oldest")["items"]
    assert [job["id"] for job in jobs] == [one["job"] for one in trials["items"]]
    for one, trial in zip(found, trials["items"], strict=True):
        one["weights"] = read_weights(asker, trial["job"]) if one["state"] == "succeeded" else None
        assert one["weights"] is None or len(one["weights"]) == 1
    return found


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_example_is_searched_by_the_commands_of_the_documentation(server: Server, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    shutil.copytree(EXAMPLE, folder)
    file = folder / "sweep.yaml"
    file.write_text(file.read_text().replace("num_trials: 12", "num_trials: 4"))
    told = call(server, "sweep", str(file))
    assert "all 4 trials have ended; the best is trial" in told
    assert "digits" in call(server, "sweeps")
    shown = call(server, "sweeps", "show", "digits")
    assert len(shown.splitlines()) >= 5
    assert "legato clone" in call(server, "sweeps", "best", "digits")
    call(server, "projects", "create", "Digits")
    made = call(server, "sweeps", "best", "digits", "--save-as", "Best", "--project", "Digits", "-o", "json")
    with Client(server.url, server.secret) as client:
        best, definition = client.best_trial("digits"), client.definition("Best")
        assert definition.parameters == best.parameters
        assert definition.id in made
        assert (definition.command, definition.distributed) == ("train.py --epochs 9", "elastic")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "fields",
    [
        {"search": "tpe", "pruning": {"method": "halving", "factor": 2, "max_resource": 4}, "parallel": 1},
        {"search": "random", "parallel": 3, "max_slots": 6},
    ],
    ids=["tpe-halving", "random"],
)
def test_a_server_that_is_killed_goes_on_with_the_same_trials_and_weights(
    server: Server, fields: dict[str, Any]
) -> None:
    undisturbed = run(server, "undisturbed", 0, **fields)
    disturbed = run(server, "disturbed", 3, **fields)
    assert disturbed == undisturbed
    assert len(disturbed) == OPTIONS["num_trials"]
    if "pruning" in fields:
        assert {one["state"] for one in disturbed} == {"pruned", "succeeded"}
