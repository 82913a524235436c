"""The command line: what it refuses before anything starts, its requests to drivers, and its output."""

from __future__ import annotations

import errno
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from typer.testing import CliRunner

from legato.cli import main
from legato.cli.local import resuming, run, watching
from legato.cli.platform import connecting, server
from legato.client.servers import find_start
from legato.core import wire
from legato.core.errors import JobNotFound, UsageError
from legato.core.spec import GuestSpec, JobSpec
from legato.driver import client
from legato.driver.journal import DriverFile, JobDirectory, JobJournal, Outcome
from legato.engines import cgroups
from legato.engines.cgroups import Support

RUNNER = CliRunner()
LIVING = {
    "name": "alpha",
    "state": "training",
    "num_workers": 2,
    "num_wanted": 2,
    "min_workers": 1,
    "max_workers": 4,
    "workers": [],
    "events": [],
    "outcome": None,
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("LEGATO_SERVER", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "my train.py").write_text("print('hello')\n")
    return "my train.py"


@pytest.fixture
def running() -> Iterator[JobDirectory]:
    directory = JobDirectory.of("alpha")
    directory.lock()
    yield directory
    directory.unlock()


@pytest.fixture
def driven(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Catch the arguments of the driver that would start."""
    caught: dict[str, Any] = {}

    def drive(directory: JobDirectory, spec: JobSpec | None, **options: Any) -> int:
        caught.update(options, directory=directory, spec=spec)
        return 7

    monkeypatch.setattr(run, "drive", drive)
    return caught


def call(*arguments: str) -> tuple[int, str, str]:
    result = RUNNER.invoke(main.app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


# ---------------------------------------------------------------- run


def test_run_passes_its_options_on(script: str, tmp_path: Path, driven: dict[str, Any]) -> None:
    options = ["-w", "2..4", "--keep", "5", "--checkpoint-every", "2epochs", "--threads", "2", "--heartbeat-limit", "1"]
    options += ["--memory", "2G", "--cpus", "1.5"]
    code, _, _ = call("run", *options, "--checkpoint-dir", "ck", "--resume", script, "--lr", "0.1", "-w", "9", "x")
    assert code == 7
    spec = driven["spec"]
    assert spec.program == (str(tmp_path / script), "--lr", "0.1", "-w", "9", "x")
    assert (spec.min_workers, spec.max_workers, spec.num_workers) == (2, 4, 4)
    assert (spec.keep, spec.checkpoint_every, spec.num_threads, spec.resume) == (5, "2epochs", 2, True)
    assert (spec.heartbeat_limit_s, spec.heartbeat_interval_s) == (1.0, 0.25)
    assert (spec.directory, spec.checkpoint_dir) == (str(tmp_path), str(tmp_path / "ck"))
    assert (spec.memory_bytes, spec.num_cpus, spec.must_limit) == (2**31, 1.5, True)
    assert spec.name == "my-train"
    again = resuming.make_resume_command(spec)
    assert again[:5] == ("legato", "run", "--name", "my-train", "--resume")
    assert again[-10:] == ("--memory", "2147483648", "--cpus", "1.5", script, "--lr", "0.1", "-w", "9", "x")


def test_run_refuses_limits_that_this_machine_cannot_enforce(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "prepare_server", lambda: None)
    monkeypatch.setattr(cgroups, "find_support", lambda: Support({}, "no control groups are mounted"))
    code, _, err = call("run", "--name", "tight", "--memory", "2G", script)
    assert code == 2
    told = "Cannot run job 'tight': this machine cannot limit memory of a job: no control groups are mounted. Or leave"
    assert told in " ".join(err.split())
    assert not JobDirectory.of("tight").path.exists(), "nothing was started"


@pytest.mark.parametrize("before", [["--"], []])
def test_arguments_after_the_script_with_or_without_dashes(
    script: str, driven: dict[str, Any], before: list[str]
) -> None:
    call("run", *before, script, "--", "--name", "x")
    assert driven["spec"].program[1:] == ("--name", "x")
    call("run", *before, script, "--name", "x")
    assert driven["spec"].program[1:] == ("--name", "x")


def test_the_resume_command_asks_for_the_same(script: str, driven: dict[str, Any]) -> None:
    call("run", "-w", "1..3", "--checkpoint-every", "60s", script, "--", "--lr", "1")
    first = driven["spec"]
    call(*resuming.make_resume_command(first)[1:])
    assert driven["spec"].resume
    assert {**_fields(first), "resume": True} == _fields(driven["spec"])


def test_a_job_that_resumes_keeps_its_plugin_and_its_variables(script: str, driven: dict[str, Any]) -> None:
    call("run", "--name", "alpha", "--guest", "my.guest:make size=4 seed=7", script)
    first = driven["spec"]
    assert first.guest == GuestSpec(entry="my.guest:make", options={"size": "4", "seed": "7"})
    directory = JobDirectory.of("alpha")
    directory.guest.mkdir(parents=True)
    last = structs.replace(first, environment={"SIZE": "4"})
    directory.write_journal(JobJournal(spec=last, token="", outcome=Outcome("stopped", 0, "Ctrl-C")))
    # Nothing was trained, so there is no checkpoint: the job continues from the state of its plugin.
    for options in ([], ["--resume"]):
        call("run", "--name", "alpha", *options, script)
        again = driven["spec"]
        assert (again.guest, again.environment, again.resume) == (first.guest, {"SIZE": "4"}, True)
    call("run", "--name", "alpha", "--resume", "--guest", "my.other:make", script)
    assert driven["spec"].guest == GuestSpec(entry="my.other:make")
    call("run", "--name", "alpha", "--no-resume", script)
    assert (driven["spec"].guest, driven["spec"].environment) == (None, {})


@pytest.mark.parametrize("guest", ["", "module", "module:", "a:b size", "a:b size=1 size=2", "a b:c"])
def test_a_plugin_that_cannot_be_read(script: str, guest: str) -> None:
    code, _, err = call("run", "--guest", guest, script)
    assert (code, "Cannot read the plugin" in err, "Write MODULE:FUNCTION" in err) == (2, True, True)


def test_fewer_workers_to_start_with(script: str, driven: dict[str, Any]) -> None:
    call("run", "-w", "1..4", "--initial-workers", "2", script)
    assert (driven["spec"].min_workers, driven["spec"].num_workers, driven["spec"].max_workers) == (1, 2, 4)
    code, _, err = call("run", "-w", "2..4", "--initial-workers", "1", script)
    assert code == 2
    assert "--initial-workers 1 is outside 2..4" in err


def _fields(spec: JobSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__struct_fields__}


def test_default_name_is_numbered_while_taken(script: str, driven: dict[str, Any]) -> None:
    first = JobDirectory.of("my-train")
    first.lock()
    call("run", script)
    assert driven["spec"].name == "my-train-2"
    first.unlock()
    call("run", script)
    assert driven["spec"].name == "my-train"


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["nowhere.py"], "Cannot run 'nowhere.py': there is no such file."),
        (["."], "it is a directory"),
        (["notes.ipynb"], "it is a notebook. Make a script of it: jupyter nbconvert --to script 'notes.ipynb'"),
        (["-w", "0", "SCRIPT"], "below 1"),
        (["-w", "-2", "SCRIPT"], "Cannot read the number of workers '-2'"),
        (["-w", "4..2", "SCRIPT"], "the minimum is above the maximum"),
        (["-w", "many", "SCRIPT"], "Write a number, 4, or a range, 1..4."),
        (["--checkpoint-every", "often", "SCRIPT"], "100steps, 2epochs or 60s"),
        (["--keep", "0", "SCRIPT"], "--keep 0 is below 1"),
        (["--name", "a/b", "SCRIPT"], "Cannot name a job 'a/b'"),
        (["--heartbeat-limit", "0", "SCRIPT"], "heartbeat"),
        (["--name", "alpha", "SCRIPT"], "legato attach alpha"),
    ],
)
def test_run_refuses_in_one_line_before_anything_starts(
    arguments: list[str], want: str, script: str, home: Path, driven: dict[str, Any], running: JobDirectory
) -> None:
    Path("notes.ipynb").write_text("{}")
    code, out, err = call("run", *[script if part == "SCRIPT" else part for part in arguments])
    assert (code, out) == (2, "")
    assert want in err
    assert err.startswith("legato: ")
    assert err.count("\n") == 1
    assert driven == {}
    assert [path.name for path in (home / "jobs").iterdir()] == ["alpha"]


@pytest.mark.parametrize("command", ["run", "verify"])
def test_a_syntax_error_is_shown_as_python_shows_it_before_anything_starts(
    command: str, script: str, home: Path, driven: dict[str, Any]
) -> None:
    Path(script).write_text("import legato\nfor epoch in range(3)\n    pass\n")
    code, out, err = call(command, script)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "legato: Cannot run 'my train.py': it has a syntax error.",
        '  File "my train.py", line 2',
        "    for epoch in range(3)",
        "                         ^",
        "SyntaxError: expected ':'",
    ]
    assert driven == {} and not home.exists()


def test_a_job_that_runs_already_is_not_reported_as_resumed(
    script: str, tmp_path: Path, driven: dict[str, Any], running: JobDirectory
) -> None:
    program = (str(tmp_path / script),)
    spec = JobSpec(name="alpha", program=program, directory=str(tmp_path), max_workers=1, num_workers=1)
    running.write_journal(JobJournal(spec=spec, token="t"))
    running.checkpoints.mkdir()
    (running.checkpoints / "step-00000007.legato").write_bytes(b"")
    code, out, err = call("run", "--name", "alpha", script)
    assert (code, out, driven) == (2, "", {})
    assert err.count("\n") == 1 and "goes on" not in err


@pytest.mark.parametrize("command", [["run", "SCRIPT"], ["attach", "alpha"]])
def test_a_home_that_cannot_be_used_is_reported_in_one_sentence(command: list[str], script: str, home: Path) -> None:
    home.write_text("a file where a directory should be")
    code, out, err = call(*[script if part == "SCRIPT" else part for part in command])
    assert (code, out) == (2, "")
    assert "LEGATO_HOME" in err and str(home) in err and err.count("\n") == 1


def test_a_home_on_a_read_only_disk_is_reported_before_anything_starts(
    script: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, mode: int = 0o777) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(os, "mkdir", refuse)
    code, out, err = call("run", script)
    assert (code, out) == (2, "")
    assert err.startswith(f"legato: Cannot use {home / 'jobs' / 'my-train'}: Read-only file system. ")
    assert "LEGATO_HOME" in err and err.count("\n") == 1


def test_run_refuses_a_port_in_use(script: str, driven: dict[str, Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = call("run", "--port", str(taken.getsockname()[1]), script)
    assert code == 2
    assert "in use" in err
    assert driven == {}


def test_run_refuses_more_workers_than_gpus(
    script: str, driven: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch)
    code, _, err = call("run", "-w", "3", script)
    assert code == 2
    assert "2 GPUs" in err
    call("run", script)
    assert driven["spec"].num_workers == 2
    assert driven["devices"] == ("GPU-a", "GPU-b")


def pretend_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr("legato.engines.gpus._ask_nvml", lambda: [["GPU-a"], ["GPU-b"]])


@pytest.mark.parametrize(
    ("asked", "workers", "devices"), [("cpu", 3, ()), ("cuda", 2, ("GPU-a", "GPU-b")), ("cuda:1", 1, ("GPU-b",))]
)
def test_run_trains_on_the_device_that_is_asked_for(
    script: str,
    driven: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    workers: int,
    devices: tuple[str, ...],
) -> None:
    pretend_gpus(monkeypatch)
    monkeypatch.setenv("LEGATO_DEVICE", asked)
    assert call("run", "-w", str(workers), script)[0] == 7
    assert driven["devices"] == devices
    call("run", script)
    assert driven["spec"].num_workers == (len(devices) or 1)


def test_run_refuses_a_gpu_that_is_not_there(
    script: str, driven: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch)
    monkeypatch.setenv("LEGATO_DEVICE", "cuda:2")
    code, _, err = call("run", script)
    assert (code, driven) == (2, {})
    assert "LEGATO_DEVICE=cuda:2: this machine offers 2 GPUs, from cuda:0 on" in err


def test_several_gpus_per_worker_are_checked_before_anything_starts(
    script: str, driven: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = call("run", "--gpus-per-worker", "2", script)
    assert (code, driven) == (2, {})
    assert "a worker with several GPUs needs a machine with GPUs, and here workers train on the CPU" in err
    pretend_gpus(monkeypatch)
    monkeypatch.delenv("LEGATO_DEVICE", raising=False)
    assert call("run", "--gpus-per-worker", "2", script)[0] == 7
    assert (driven["spec"].num_workers, driven["spec"].gpus_per_worker) == (1, 2)
    assert (
        "on 2 workers with 2 GPUs each: this machine offers 2 GPUs. Ask for 1 or fewer"
        in call("run", "-w", "2", "--gpus-per-worker", "2", script)[2]
    )
    assert "with 3 GPUs per worker: this machine offers 2." in call("run", "--gpus-per-worker", "3", script)[2]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Catch the arguments with which engines would be made."""
    made: list[dict[str, Any]] = []

    def make(job_directory: Path, devices: object = None, **options: Any) -> None:
        made.append({"job_directory": job_directory, "devices": devices, **options})
        raise UsageError("the test ends here")

    monkeypatch.setattr("legato.engines.local.LocalEngine", make)
    return made


def test_the_engine_gets_the_settings_of_the_job(
    script: str, engines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_gpus(monkeypatch)
    call("run", "--name", "alpha", "--start", "fresh", script)
    (made,) = engines
    assert made["job_directory"] == JobDirectory.of("alpha").path
    assert (made["devices"], made["environment"], made["start"]) == (("GPU-a", "GPU-b"), {}, "fresh")
    assert made["directory"] == str(Path.cwd())


def test_a_job_that_is_taken_over_keeps_its_variables(
    script: str, engines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec(
        name="alpha",
        program=(script,),
        directory="/elsewhere",
        environment={"OMP_PROC_BIND": "close"},
        max_workers=1,
        num_workers=1,
    )
    directory = JobDirectory.of("alpha")
    directory.path.mkdir(parents=True)
    directory.write_journal(JobJournal(spec=spec, token="", outcome=None))
    call("attach", "alpha")
    (made,) = engines
    assert (made["environment"], made["directory"]) == ({"OMP_PROC_BIND": "close"}, "/elsewhere")


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["scale", "a", "two"], "Cannot read the number of workers 'two'. Write a whole number, such as 2."),
        (["scale", "a", "-1"], "Cannot scale job 'a' to -1 workers: it needs at least 1."),
        (["status", "-o", "xml"], "Cannot read the output format 'xml'. Write table or wide or json or yaml or csv."),
        (["logs", "a", "-k", "all"], "Cannot read the worker 'all'. Write a whole number, such as 0."),
        (["run", "--port", "99999", "a.py"], "Cannot take the port 99999. Write a number from 0 to 65535."),
        (["run", "--keep", "few", "a.py"], "Cannot read how many checkpoints to keep 'few'. Write a whole number"),
        (["run", "--heartbeat-limit", "5s", "a.py"], "Cannot read the heartbeat limit '5s'. Write a number of seconds"),
        (["run", "--start", "cold", "a.py"], "Cannot read the way to start workers 'cold'. Write fork or fresh."),
    ],
)
def test_what_cannot_be_read_is_refused_in_our_words(arguments: list[str], want: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"legato: {want}")
    assert err.count("\n") == 1


def test_what_is_missing_is_named() -> None:
    code, _, err = call("scale", "a")
    assert code == 2
    assert "Missing argument 'WORKERS'" in err


# ---------------------------------------------------------------- jobs that run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[wire.Request]:
    requests: list[wire.Request] = []

    def request(name: str, what: wire.Request, home: Path | None = None) -> wire.Reply:
        requests.append(what)
        if isinstance(what, wire.ScaleRequest) and what.num_workers > 4:
            return wire.Reply(error="Cannot scale job 'alpha' to 9 workers: its maximum is 4.")
        return wire.Reply(status=LIVING)

    monkeypatch.setattr(client, "request", request)
    return requests


def test_scale_says_that_the_first_workers_are_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "request", lambda *_: wire.Reply(status={**LIVING, "num_workers": 0}))
    assert call("scale", "alpha", "3")[1] == "Job 'alpha' gets 3 workers. Its first workers are starting.\n"


def test_scale_and_stop_ask_the_driver(asked: list[wire.Request]) -> None:
    assert call("scale", "alpha", "3") == (0, "Job 'alpha' is resized from 2 to 3 workers while it trains.\n", "")
    assert call("stop", "alpha")[0] == 0
    assert call("stop", "alpha", "--now")[0] == 0
    assert call("scale", "alpha", "2")[1] == "Job 'alpha' has 2 workers.\n"
    del asked[-1]
    assert asked == [wire.ScaleRequest(num_workers=3), wire.StopRequest(), wire.StopRequest(now=True)]
    code, out, err = call("scale", "alpha", "9")
    assert (code, out) == (2, "")
    assert err == "legato: Cannot scale job 'alpha' to 9 workers: its maximum is 4.\n"


@pytest.mark.parametrize(
    "command", [["scale", "beta", "3"], ["stop", "beta"], ["attach", "beta"], ["status", "beta"], ["logs", "beta"]]
)
def test_unknown_jobs_are_refused_and_the_known_ones_listed(command: list[str], running: JobDirectory) -> None:
    over = JobDirectory.of("Betta")
    over.path.mkdir()
    spec = JobSpec(name="Betta", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    over.write_journal(JobJournal(spec=spec, token="t", outcome=Outcome("stopped", 0, "Ctrl-C")))
    JobDirectory.of("refused").path.mkdir()
    code, out, err = call(*command)
    assert (code, out) == (2, "")
    assert "there is no such job" in err
    assert err.rstrip().endswith("Did you mean 'Betta'? Known jobs: Betta, alpha (running).")


def test_where_no_job_is_known_it_is_said_how_to_start_one() -> None:
    code, _, err = call("logs", "beta")
    assert code == 2
    assert err.rstrip().endswith("No job is known yet; start one with 'legato run PROGRAM'.")


def test_of_many_jobs_some_are_named() -> None:
    told = client.render_known_jobs("job-7", ["zeta"], [f"job-{number}" for number in range(20)])
    assert told.startswith("Did you mean 'job-7'? Known jobs: job-7, ")
    assert told.endswith(" and 11 more, see 'legato status'.")
    assert "zeta (running)" in told


def test_status_as_table_and_json(asked: list[wire.Request], running: JobDirectory) -> None:
    running.write_driver_file(DriverFile(url="ws://127.0.0.1:1/worker", token="t", pid=1))
    JobDirectory.of("over").path.mkdir(parents=True)
    spec = JobSpec(name="over", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    outcome = Outcome("stopped", 130, "Ctrl-C")
    JobDirectory.of("over").ledger_file.write_text('{"step": 8}\n{"step": 7}\n{"st')
    JobDirectory.of("over").write_journal(JobJournal(spec=spec, token="t", outcome=outcome, num_steps=20))
    code, out, _ = call("status")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[1:]] == [["alpha", "training"], ["over", "stopped"]]
    assert all(line == line.rstrip() for line in out.splitlines())
    assert [found["name"] for found in json.loads(call("status", "-o", "json")[1])] == ["alpha", "over"]
    assert json.loads(call("status", "alpha", "-o", "json")[1]) == LIVING
    assert call("status", "over")[1] == "over  stopped  Ctrl-C (step 8 of 20)\n"
    assert call("status", "over", "-w")[1] == "over  stopped  Ctrl-C (step 8 of 20)\n"
    code, _, err = call("attach", "over")
    assert code == 2
    assert "it has ended (stopped: Ctrl-C)" in err


@pytest.mark.parametrize("outcome", ["stopped", "failed", "succeeded"])
def test_status_shows_how_to_go_on(tmp_path: Path, outcome: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = JobDirectory.of("over")
    program = (str(tmp_path / "my train.py"), "--lr", "1")
    spec = JobSpec(name="over", program=program, directory=str(tmp_path), max_workers=2, num_workers=1)
    directory.path.mkdir(parents=True)
    directory.write_journal(JobJournal(spec=spec, token="t", outcome=Outcome(outcome, 0, "as told")))
    assert "resume with" not in call("status", "over")[1], "there is no checkpoint"
    directory.checkpoints.mkdir()
    (directory.checkpoints / "step-00000007.legato").write_bytes(b"")
    command = "legato run --name over --resume --workers 1..2 'my train.py' --lr 1"
    want = None if outcome == "succeeded" else command
    assert json.loads(call("status", "over", "-o", "json")[1])["go_on_with"] == want
    shown = call("status", "over")[1].splitlines()
    assert shown == [f"over  {outcome}  as told"] + [f"resume with:  {want}"] * (want is not None)
    (tmp_path / "else where").mkdir()
    monkeypatch.chdir(tmp_path / "else where")
    assert (f"resume with:  cd {tmp_path} && {command}" in call("status", "over")[1]) == (want is not None)


def test_status_without_jobs() -> None:
    assert call("status") == (0, "No jobs on this machine. Start one with 'legato run'.\n", "")
    assert call("status", "-o", "json") == (0, "[]\n", "")


def test_a_job_that_starts_for_too_long(running: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_START_LIMIT_S", 0.0)
    assert call("status", "alpha")[1] == "alpha  starting\n"
    code, _, err = call("scale", "alpha", "2")
    assert code == 2
    assert "its driver is just starting. Try again in a moment." in err


@pytest.mark.parametrize("command", [("scale", "alpha", "2"), ("stop", "alpha")])
def test_what_is_asked_of_a_job_that_is_just_starting_waits_until_it_listens(
    running: JobDirectory, asked: list[wire.Request], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    looks = []

    def look(directory: JobDirectory) -> DriverFile | None:
        looks.append(len(asked))
        return None if len(looks) < 3 else DriverFile(url="ws://127.0.0.1:1/worker", token="t", pid=1)

    monkeypatch.setattr(JobDirectory, "read_driver_file", look)
    monkeypatch.setattr(client, "_LOOK_EVERY_S", 0.0)
    code, _, err = call(*command)
    assert (code, err) == (0, "legato: job 'alpha' is just starting; waiting until its driver answers\n")
    assert (looks, len(asked)) == ([0, 0, 0], 1), "asked once, when it listens"


def test_a_job_whose_driver_is_gone() -> None:
    directory = JobDirectory.of("left")
    directory.path.mkdir(parents=True)
    spec = JobSpec(name="left", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    directory.write_journal(JobJournal(spec=spec, token="t"))
    assert "legato attach left" in call("status", "left")[1]
    for command in (["stop", "left"], ["scale", "left", "2"]):
        code, _, err = call(*command)
        assert code == 2
        assert "legato attach left" in err


def test_attach_takes_over_a_job_without_driver(driven: dict[str, Any]) -> None:
    directory = JobDirectory.of("left")
    directory.path.mkdir(parents=True)
    spec = JobSpec(name="left", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    directory.write_journal(JobJournal(spec=spec, token="t"))
    code, _, err = call("attach", "left")
    assert code == 7
    assert driven["spec"] is None
    assert "takes over" in err


def test_attach_shows_a_running_job_until_its_end(running: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    log = running.log_path(0)
    spec = JobSpec(name="alpha", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    event = {"seq": 1, "time": None, "kind": "joined", "level": "info", "reason": "worker 0 is in view 1"}
    looks = 0

    def request(name: str, what: wire.Request, home: Path | None = None) -> wire.Reply:
        nonlocal looks
        looks += 1
        if looks == 1:
            log.write_text("of before\n")
        if looks == 2:
            log.write_text("of before\nepoch 3\n")
        if looks == 3:
            running.write_journal(JobJournal(spec=spec, token="t", outcome=Outcome("failed", 9, "as asked")))
            running.unlock()
        return wire.Reply(status={**LIVING, "workers": [{"worker": 0, "rank": 0}], "events": [event]})

    monkeypatch.setattr(client, "request", request)
    monkeypatch.setattr(watching, "_ASK_EVERY_S", 0.01)
    code, out, _ = call("attach", "alpha")
    assert code == 9
    assert out.splitlines() == [
        "legato: joined     worker 0 is in view 1",
        "epoch 3",
        "legato: job 'alpha' failed: as asked",
    ]


def test_attach_waits_for_the_outcome_of_a_driver_that_stopped_listening(
    running: JobDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = JobSpec(name="alpha", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    looks = 0

    def request(name: str, what: wire.Request, home: Path | None = None) -> wire.Reply:
        nonlocal looks
        looks += 1
        if looks == 1:
            return wire.Reply(status=LIVING)
        if looks == 20:
            running.write_journal(JobJournal(spec=spec, token="t", outcome=Outcome("succeeded", 0, "as told")))
            running.unlock()
        raise JobNotFound("connection refused")

    monkeypatch.setattr(client, "request", request)
    monkeypatch.setattr(watching, "_ASK_EVERY_S", 0.001)
    monkeypatch.setattr(watching, "_PATIENCE_S", 0.0)
    code, out, err = call("attach", "alpha")
    assert (code, looks) == (0, 20)
    assert out == "legato: job 'alpha' succeeded: as told\n"
    assert err == "legato: the driver of job 'alpha' lives but does not answer; waiting for it.\n", "said once"


def test_attach_waits_for_a_job_that_is_just_starting(running: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not confuse the end of the previous run with the end of this one."""
    spec = JobSpec(name="alpha", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    running.write_journal(JobJournal(spec=spec, token="t", outcome=Outcome("failed", 9, "the run before")))
    looks = 0

    def request(name: str, what: wire.Request, home: Path | None = None) -> wire.Reply:
        nonlocal looks
        looks += 1
        if looks == 10:
            running.unlock()
        return client.find_job(name, home)  # type: ignore[return-value]  # raises

    monkeypatch.setattr(client, "request", request)
    monkeypatch.setattr(watching, "_ASK_EVERY_S", 0.01)
    code, out, err = call("attach", "alpha")
    assert (code, looks) == (1, 10)
    assert out == "legato: importing torch; this may take some seconds\n"
    assert "Lost job 'alpha'" in err


def test_logs_of_one_and_of_all(running: JobDirectory) -> None:
    running.log_path(0).write_text("a\nb")
    running.log_path(10).write_text("c\n")
    assert call("logs", "alpha")[1].splitlines() == ["0 | a", "0 | b", "10 | c"]
    assert call("logs", "alpha", "--worker", "10")[1] == "c\n"
    (running.logs / "marks.jsonl").write_text('{"time": 1, "ends": {"10": 2}}\n{"time": 2, "ends": {"0": 2}}\n')
    assert call("logs", "alpha")[1].splitlines() == ["10 | c", "0 | a", "0 | b"], "in order of time"
    (running.logs / "marks.jsonl").unlink()
    (running.logs / "marks.jsonl").mkdir()
    assert call("logs", "alpha")[1].splitlines() == ["0 | a", "0 | b", "10 | c"], "what cannot be read is done without"
    running.log_path(10).write_text("1 %\r2 %\x0c\u2028\r\n\nd\n")
    assert call("logs", "alpha", "-k", "10")[1] == "1 %\r2 %\x0c\u2028\n\nd\n", "only a newline ends a line"
    code, _, err = call("logs", "alpha", "-k", "7")
    assert code == 2
    assert "there are 0, 10" in err


# ---------------------------------------------------------------- the command itself


def test_version_and_help() -> None:
    assert call("--version")[1].startswith("legato ")
    code, out, _ = call("--help")
    assert code == 0
    for command in ("run", "scale", "stop", "attach", "status", "logs"):
        assert command in out


def test_starts_fast_and_loads_no_torch() -> None:
    imported = "legato.cli.main, legato.cli.local.foreground, legato.cli.local.watching"
    told = f"import sys, {imported}; print({{'torch', 'numpy'}} & set(sys.modules))"
    source = str(Path(main.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": source}
    shown = subprocess.run([sys.executable, "-c", told], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == "set()\n"
    spent = []
    for _ in range(3):
        begun = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        subprocess.run([sys.executable, "-m", "legato.cli", "--version"], env=environment, check=True)
        spent.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begun)
    # CPU time, and the best of three runs, so that other load on the machine does not count.
    assert min(spent) < 0.3


@pytest.mark.parametrize("server", [None, "http://127.0.0.1:1"], ids=["unknown", "away"])
def test_without_the_server_a_command_says_which_jobs_still_train(
    server: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server is not None:
        monkeypatch.setenv("LEGATO_SERVER", server)
        monkeypatch.setenv("LEGATO_TOKEN", "lgt_secret")
        monkeypatch.setattr(connecting, "_FIRST_PATIENCE_S", 0.0)
    why = (
        "No server is known" if server is None else f"Cannot reach the server at {server}: Connection refused. Does it"
    )
    code, _, err = call("ps")
    assert code != 0 and err.startswith(f"legato: {why}")
    assert "train" not in err and "running" not in err, "this machine never had a platform"
    directories = [JobDirectory.of(f"j-000000000{number}") for number in range(5)]
    for directory in directories:
        directory.path.mkdir(parents=True)
        spec = JobSpec(name=directory.path.name, program=("/w/a.py",), directory="/w", max_workers=1, num_workers=1)
        directory.write_journal(JobJournal(spec=spec, token="t"))
        (directory.path / "lock").touch()
    assert call("ps")[2].endswith(" None of the platform's jobs on this machine is running.\n")
    directories[2].lock()
    one = " 1 job keeps training without the server: j-0000000002 (a.py). The next 'legato up' finds it.\n"
    assert call("ps")[2].endswith(one)
    (directories[2].path.parents[1] / "last-config").write_text("/etc/le gato.toml")
    with_config = one.replace("legato up", "legato up --config '/etc/le gato.toml'")
    assert call("ps")[2].endswith(with_config)
    assert "legato up'" not in call("ps")[2], "no hint starts a server with other settings"
    (directories[2].path.parents[1] / "last-config").unlink()
    for number in (0, 1, 3, 4):
        directories[number].lock()
    several = (
        "j-0000000000 (a.py), j-0000000001 (a.py), j-0000000002 (a.py) and 2 more. The next 'legato up' finds them."
    )
    assert call("ps")[2].endswith(f" 5 jobs keep training without the server: {several}\n")
    for directory in directories:
        directory.unlock()


def test_a_start_without_the_settings_file_of_the_last_start_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def start(config: str | None) -> str:
        server._note_config(tmp_path, None if config is None else Path(config))
        return capsys.readouterr().err

    assert start(None) == start("tls.toml") == ""
    assert find_start(tmp_path) == f"legato up --config {tmp_path}/tls.toml"
    assert start(None).endswith(f"press Ctrl-C and type: legato up --config {tmp_path}/tls.toml\n")
    assert find_start(tmp_path) == "legato up" and start(None) == ""
    start("tls.toml")
    (tmp_path / "legato.toml").touch()
    assert start(None) == "", "it reads the file of its home"


def test_the_same_name_resumes_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It resumes without an option, but only the same program, from a checkpoint, and if it has not succeeded."""
    from legato.cli.local.resuming import is_unfinished
    from legato.core.spec import JobSpec
    from legato.driver.journal import JobDirectory, JobJournal, Outcome

    monkeypatch.setenv("LEGATO_HOME", str(tmp_path))
    spec = JobSpec(name="n", program=("a.py",), directory="/", max_workers=1, num_workers=1)
    directory = JobDirectory.of("n")
    assert not is_unfinished(directory, spec)
    directory.checkpoints.mkdir(parents=True)

    def ended(outcome: str | None) -> None:
        how = Outcome(outcome, 0, "as told") if outcome else None
        directory.write_journal(JobJournal(spec=spec, token="t", outcome=how))

    ended("stopped")
    assert not is_unfinished(directory, spec), "there is no checkpoint yet"
    (directory.checkpoints / "step-00000007.legato").write_bytes(b"")
    for outcome, want in (("stopped", True), ("failed", True), (None, True), ("succeeded", False)):
        ended(outcome)
        assert is_unfinished(directory, spec) is want, outcome
    ended("stopped")
    other = JobSpec(name="n", program=("b.py",), directory="/", max_workers=1, num_workers=1)
    assert not is_unfinished(directory, other)


def test_another_script_of_the_same_name_gets_another_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a run of one project does not replace the checkpoints of another."""
    from legato.driver.journal import JobDirectory, JobJournal

    monkeypatch.setenv("LEGATO_HOME", str(tmp_path))
    spec = JobSpec(name="train", program=("/a/train.py",), directory="/a", max_workers=1, num_workers=1)
    directory = JobDirectory.of("train")
    directory.path.mkdir(parents=True)
    directory.write_journal(JobJournal(spec=spec, token="t"))
    assert main._free_name(Path("/a/train.py")) == "train"
    assert main._free_name(Path("/b/train.py")) == "train-2"
