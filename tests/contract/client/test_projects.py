"""Projects, training definitions and experiments: the client and the commands ask a real server."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.contract.client.conftest import NewClient
from tests.unit.server import conftest
from tests.unit.server.platform import Platform
from typer.testing import CliRunner

from legato.cli import main
from legato.cli.platform import completion
from legato.client.client import Client
from legato.core.errors import Conflict, Forbidden, NotFound, UsageError

# What commands write is read here, and the server is in the same process.
no_log = conftest.no_log


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, in the current directory."""
    folder = tmp_path / "cnn"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    with zipfile.ZipFile(tmp_path / "cnn.zip", "w") as packed:
        packed.write(folder / "train.py", "train.py")
    monkeypatch.chdir(tmp_path)
    return folder


def test_every_call(ann: Client, client_of: NewClient, program: Path) -> None:
    project = ann.add_project("Digits & co.", description="d", members=["ben"])
    assert [one.name for one in ann.frameworks()] == ["legato", "command"]
    assert ann.project("Digits & co.") == project == ann.projects()[0]
    sent: list[str] = []
    one = ann.add_definition(
        project.id, "CNN", "python train.py", code="cnn.zip", before_upload=lambda packed: sent.append(packed.sha256)
    )
    two = ann.add_definition(
        "Digits & co.", "Folder", "train.py", code=program, distributed="elastic", max_nodes=4, parameters={"x": 1}
    )
    three = ann.add_definition(project.id, "Again", "train.py", code=sent[0])
    assert (one.code, three.code) == (sent[0], sent[0]) and two.code != one.code
    assert {found.name for found in ann.definitions(project.id)} == {"CNN", "Folder", "Again"}
    assert ann.definition("CNN") == one
    assert ann.change_definition("Again", name="Third").name == "Third"
    ann.delete_definition("Third")
    assert ann.plan_definition("Folder").effects == ()
    experiment = ann.add_experiment(project.id, "Both", [one.id, two.id], data="/data")
    assert ann.change_experiment("Both", arguments="--y 2", data="").data is None
    ben = client_of("ben")
    jobs = ben.run_experiment("Both", key="k", parameters={"x": 2}, max_nodes=1)
    assert [job.id for job in ben.run_experiment("Both", key="k", parameters={"x": 2}, max_nodes=1)] == [
        job.id for job in jobs
    ]
    assert [job.name for job in jobs] == ["Both-CNN", "Both-Folder"]
    assert jobs[1].spec().parameters == {"x": 2}
    assert [job.id for job in ann.jobs(project=project.id)] == [jobs[1].id, jobs[0].id]
    assert [job.id for job in ann.jobs(definition="CNN")] == [jobs[0].id]
    assert ann.experiments(project.id)[0].runs == (jobs[1].id, jobs[0].id)
    assert [one.id for one in ben.iterate_experiments()] == [experiment.id]
    assert {one.name for one in ben.iterate_definitions()} == {"CNN", "Folder"}
    assert ann.change_project(project.id, name="Digits", members=[]).members == ()
    with pytest.raises(NotFound):
        ben.project(project.id)
    with pytest.raises(Forbidden):
        client_of("eye").run_experiment(experiment.id)
    with pytest.raises(Conflict):
        ann.delete_project("Digits")
    with pytest.raises(NotFound, match="Give its id"):
        ann.project("a/b")
    with pytest.raises(UsageError, match="give either code or directory"):
        ann.add_definition(project.id, "None", "train.py")
    ann.delete_experiment("Both")
    for definition in ("CNN", "Folder"):
        ann.delete_definition(definition)
    ann.delete_project("Digits")
    assert ann.projects() == []


class Shell:
    """Types commands as ann."""

    def __init__(self, platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in (
            ("LEGATO_HOME", str(tmp_path / "none")),
            ("XDG_CONFIG_HOME", str(tmp_path / "none")),
            ("LEGATO_SERVER", platform.url),
            ("LEGATO_TOKEN", platform.secrets["ann"]),
        ):
            monkeypatch.setenv(name, value)

    def type(self, *words: str, want: int = 0) -> str:
        result = CliRunner().invoke(main.app, list(words))
        assert result.exit_code == want, (words, result.output)
        return result.output


@pytest.fixture
def shell(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path) -> Shell:
    return Shell(platform, tmp_path, monkeypatch)


def test_the_commands_from_a_project_to_its_runs(shell: Shell, ann: Client) -> None:
    assert "'legato projects create NAME' makes one" in shell.type("projects")
    assert "Project 'Digits' is created: p-" in shell.type("projects", "create", "Digits", "--member", "ben")
    create = ("definitions", "create", "--project", "Digits", "--command")
    flags = (
        "--nodes",
        "2..4",
        "--param",
        "rate=0.1",
        "--param",
        "wide",
        "-e",
        "A=b",
        "--threads",
        "2",
        "--cpu-capability",
        "avx2",
        "--retries",
        "1",
    )
    made = json.loads(shell.type(*create, "python train.py", "CNN", "--code", "cnn.zip", *flags, "-o", "json"))
    want = {"distributed": "elastic", "min_nodes": 2, "max_nodes": 4, "num_threads": 2, "max_retries": 1}
    want |= {"cpu_capability": "avx2"}
    want |= {"parameters": {"rate": 0.1, "wide": True}, "environment": {"A": "b"}, "framework": "legato"}
    assert {name: made[name] for name in want} == want
    shell.type(*create, "sh -c true", "Shell", "--code", "cnn", "-f", "command", "--nodes", "2")
    listed = list(csv.DictReader(io.StringIO(shell.type("definitions", "--project", "Digits", "-o", "csv"))))
    assert [(row["name"], row["distributed"]) for row in listed] == [("Shell", "static"), ("CNN", "elastic")]
    assert "2..4" in shell.type("definitions") and "python train.py" in shell.type("definitions", "show", "CNN")
    experiment = ("experiments", "create", "First", "--project", "Digits", "-d", "CNN")
    assert "To run it: legato experiments run" in shell.type(*experiment, "-d", made["id"], "--data", "/data")
    shell.type("experiments", "change", "First", "-d", "CNN", "-d", "Shell", "--arguments", "--x 1")
    assert f"CNN ({made['id']}), Shell" in shell.type("experiments", "show", "First", "-o", "wide").replace("\n", "")
    runs = json.loads(shell.type("experiments", "run", "First", "--param", "rate=0.2", "-l", "a=b", "-o", "json"))
    assert [job["name"] for job in runs] == ["First-CNN", "First-Shell"]
    told = shell.type("show", runs[0]["id"])
    assert made["id"] in told and "rate=0.2,wide=true" in told
    assert "workers that are silent for 5 s, or hang for 1800 s" in told
    assert ann.job(runs[0]["id"]).spec().cpu_capability == "avx2"
    assert shell.type("ps", "--project", "Digits").count("First-") == 2
    counts = [shell.type("ps", "--search", text).count("First-") for text in ("ST-shell", runs[0]["id"], "%")]
    assert counts == [1, 1, 0]
    assert shell.type("ps", "--experiment", "First").count("First-") == 2
    assert shell.type("ps", "--definition", "CNN").count("First-") == 1
    one = json.loads(shell.type("experiments", "run", "First", "-d", "CNN", "--nodes", "1", "-o", "json"))
    assert [(job["name"], job["max_workers"]) for job in one] == [("First-CNN", 1)]
    assert "version 2" in shell.type("projects", "change", "Digits", "--description", "all of them")
    assert "experiments  First" in shell.type("projects", "show", "Digits")
    shell.type("definitions", "change", "Shell", "--name", "Bash")
    assert "It would" in shell.type("definitions", "plan", "Bash") or "It" in shell.type("definitions", "plan", "Bash")
    for words in (
        ("experiments", "delete", "First"),
        ("definitions", "delete", "CNN"),
        ("definitions", "delete", "Bash"),
    ):
        assert "is deleted" in shell.type(*words)
    assert "Project 'Digits' is deleted" in shell.type("projects", "delete", "Digits")


def test_a_command_line_is_submitted_with_parameters(shell: Shell, program: Path, ann: Client) -> None:
    (program / "run.sh").write_text("echo trained\n")
    said = ("submit", "-d", "--framework", "command", "--code", "cnn", "--parameter", "rate=0.1", "--parameter", "wide")
    shell.type(*said, "--name", "bash", "bash", "run.sh", "--x", "1")
    spec = ann.job("bash").spec()
    assert (spec.framework, spec.program) == ("command", ("bash", "run.sh", "--x", "1"))
    assert spec.parameters == {"rate": 0.1, "wide": True}
    Path("cnn/job.yaml").write_text(
        "program: [bash, run.sh]\nframework: command\nname: file\nparameters: {rate: 1, title: a b}\n"
    )
    shell.type("submit", "-d", "--parameter", "rate=2.5", "cnn/job.yaml")
    spec = ann.job("file").spec()
    assert (spec.framework, spec.parameters) == ("command", {"rate": 2.5, "title": "a b"})
    told = shell.type("submit", "-d", "--framework", "comand", "--code", "cnn", "bash", "run.sh", want=2)
    assert "There is no framework 'comand' here. Did you mean 'command'? There are legato, command." in told
    told = shell.type("submit", "-d", "--framework", "command", "--code", "cnn", "bash", "none.sh", want=2)
    assert "The file 'none.sh' is not in the code" in told
    listed = shell.type("frameworks", "-o", "csv")
    assert [row["name"] for row in csv.DictReader(io.StringIO(listed))] == ["legato", "command"]
    assert "single, static" in shell.type("frameworks")


def test_code_is_brought_back(shell: Shell, ann: Client, client_of: NewClient, tmp_path: Path) -> None:
    shell.type("projects", "create", "Digits", "--member", "ben")
    create = ("definitions", "create", "--project", "Digits", "--command", "train.py")
    shell.type(*create, "A CNN", "--code", "cnn.zip")
    shell.type(*create, "Far", "--directory", "/work")
    assert (
        shell.type("definitions", "code", "A CNN")
        == "The code of training definition 'A CNN' is in 'A-CNN-code.zip'.\n"
    )
    told = shell.type("definitions", "code", "A CNN", want=2)
    assert "'A-CNN-code.zip' exists already. Choose another place, or overwrite with --overwrite." in told
    Path("A-CNN-code.zip").write_text("old")
    shell.type("definitions", "code", "A CNN", "--force")
    shell.type("definitions", "code", "A CNN", "-o", "new/cnn.zip")
    ann.submit("train.py", code=ann.definition("A CNN").code, name="mnist")
    assert shell.type("download", "mnist", "--code") == "The code of job 'mnist' is in 'mnist-code.zip'.\n"
    assert "overwrite with --overwrite" in shell.type("download", "mnist", "--code", want=2)
    shell.type("download", "mnist", "--code", "--force")
    shell.type("download", "mnist", "--code", "--to", "there")
    for name in ("A-CNN-code.zip", "new/cnn.zip", "mnist-code.zip", "there/mnist-code.zip"):
        with zipfile.ZipFile(name) as packed:
            assert packed.read("train.py") == b"print('trained')\n", name
    assert "but lies in '/work'" in " ".join(shell.type("definitions", "code", "Far", want=2).split())
    assert "one of the options out" in shell.type("download", "mnist", "--code", "--checkpoint", want=2)
    ann.submit("train.py", directory=tmp_path / "cnn", name="far")
    assert "on the machines" in shell.type("download", "far", "--code", want=2)
    ben = client_of("ben")
    for job in ("mnist", "ann/mnist"):
        ben.job(job).download_code("b.zip", overwrite=True)
        assert Path("b.zip").read_bytes() == Path("mnist-code.zip").read_bytes(), job
    Path("own").mkdir()
    Path("own/train.py").write_text("print('secret')\n")
    ann.submit("own/train.py", name="private")
    with pytest.raises(
        UsageError, match=r"job 'private': it belongs to 'ann'.*ask 'ann' to make a training definition"
    ):
        ben.job("private").download_code("c.zip")
    with pytest.raises(UsageError, match="job 'mnist': it belongs to 'ann', and you are a viewer"):
        client_of("eye").job("ann/mnist").download_code("c.zip")
    assert not Path("c.zip").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("definitions", "create", "X", "--project", "P", "--command", "tarin.py", "--code", "cnn"),
            "Did you mean 'train.py'",
        ),
        (("definitions", "create", "X", "--project", "P", "--command", "a.py", "--code", "none.zip"), "none.zip"),
        (("definitions", "create", "X", "--project", "Q", "--command", "a.py", "--code", "cnn"), "no project 'Q'"),
        (("definitions", "create", "X", "--project", "P", "--command", "a.py"), "give either code or directory"),
        (
            (
                "definitions",
                "create",
                "X",
                "--project",
                "P",
                "--command",
                "train.py",
                "--code",
                "cnn",
                "--distributed",
                "many",
            ),
            "Write single, static or elastic",
        ),
        (("experiments", "create", "X", "--project", "P"), "Name one with --definition"),
        (("experiments", "create", "X", "--project", "P", "-d", "None"), "has no training definition 'None'"),
        (("experiments", "run", "X"), "There is no experiment 'X'"),
        (("projects", "change", "P"), "no change is given"),
        (("projects", "create", "P"), "already has a project of this name"),
        (("ps", "--project", "Q"), "There is no project 'Q'"),
    ],
    ids=lambda given: "-".join(given)[:50] if isinstance(given, tuple) else None,
)
def test_what_is_refused(shell: Shell, words: tuple[str, ...], told: str) -> None:
    shell.type("projects", "create", "P")
    assert told in " ".join(shell.type(*words, want=2).split())


def test_names_are_completed(shell: Shell, ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "_open_quickly", lambda: ann)
    shell.type("projects", "create", "Digits")
    shell.type("definitions", "create", "CNN", "--project", "Digits", "--command", "train.py", "--code", "cnn")
    shell.type("experiments", "create", "First", "--project", "Digits", "-d", "CNN")
    found: Any = [
        completion.complete_projects("D"),
        completion.complete_definitions(""),
        completion.complete_experiments("F"),
        completion.complete_experiments("x"),
        completion.complete_frameworks("c"),
    ]
    assert found == [["Digits"], ["CNN"], ["First"], [], ["command"]]
