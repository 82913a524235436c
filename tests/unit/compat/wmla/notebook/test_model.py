"""``train()`` in a notebook: submission, chart, output and download, for jobs that succeed, fail or are stopped."""

from __future__ import annotations

import io
import os
import re
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.unit.client.platform import NOW, Platform

from legato.compat.wmla import names
from legato.compat.wmla.notebook import model as notebook
from legato.compat.wmla.notebook import submitting
from legato.compat.wmla.notebook.notebook_bundle import open_bundle
from legato.core.errors import TrainingFailed, Unauthenticated, UsageError

WORKER_LOG = """Timestamp 1, Iteration 1
Traceback (most recent call last):
  an earlier one
Traceback (most recent call last):
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "<ipython-input-3>", line 2, in datasets
FileNotFoundError: no data here
"""


class WmlaPlatform(Platform):
    """A platform with WMLA's interface, where the test changes jobs while the notebook waits."""

    data_root = "/data"

    def __init__(self) -> None:
        super().__init__()
        self.happens: list[Callable[[], None]] = []
        self.waited = self._go_on
        self.series: list[dict[str, Any]] = []
        self.canned["allocations"] = {"items": []}

    def _do(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/platform/rest/deeplearning/v1/conf":
            assert request.headers["authorization"].startswith("Bearer lgt_")
            return httpx.Response(200, json={"DLI_DATA_FS": self.data_root}) if self.data_root else httpx.Response(404)
        return super()._do(request)

    def _look(self, request: httpx.Request, job: dict[str, Any], below: str) -> httpx.Response:
        if below != "metrics":
            return super()._look(request, job, below)
        # As in docs/rest.md: some series after a step.
        asked = request.url.params
        after = int(asked.get("after_step", -1))
        found = []
        for one in self.series:
            if one["name"] in asked.get_list("name"):
                kept = [index for index, step in enumerate(one["step"]) if step > after]
                columns = {key: [one[key][index] for index in kept] for key in ("step", "epoch", "time", "value")}
                found.append({"name": one["name"], **columns})
        assert asked["steps"] == "false"
        return httpx.Response(200, json={"series": found, "steps": {"step": [], "epoch": [], "view": [], "time": []}})

    def _go_on(self) -> None:
        if self.happens:
            self.happens.pop(0)()

    @property
    def job(self) -> dict[str, Any]:
        (found,) = self.jobs.values()
        return found

    # ------------------------------------------------------------ changes of a job

    def run(self) -> None:
        self.job["started_at"] = NOW
        self.move(self.job["id"], "running", "its workers train")

    def record(self, *rows: tuple[int, float, int, float], test_loss: float | None = None) -> None:
        """Record rows of (step, time, iteration, loss) of a training, and optionally a validation at the last one."""
        columns = {"step": [row[0] for row in rows], "epoch": [0] * len(rows), "time": [row[1] for row in rows]}
        self.series = [
            {"name": "iteration", **columns, "value": [row[2] for row in rows]},
            {"name": "loss", **columns, "value": [row[3] for row in rows]},
        ]
        if test_loss is not None:
            step, time, *_ = rows[-1]
            self.series.append(
                {"name": "test_loss", "step": [step], "epoch": [0], "time": [time], "value": [test_loss]}
            )
        slot = {"slot": "n/0", "job": None, "attempt": 1, "since": 0.0, "release_asked_at": None, "until": None}
        self.canned["allocations"]["items"] = [slot, slot]

    def end(self, stage: str, reason: str = "its program has ended") -> None:
        self.job["ended_at"] = NOW + 361.5625
        self.move(self.job["id"], stage, reason, 0)


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> WmlaPlatform:
    made = WmlaPlatform()
    for name in (names.BACKEND, names.DATA_DIRECTORY, "LEGATO_WORKER", "LEGATO_SERVER", "LEGATO_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(notebook, "Platform", partial(submitting.Platform, made.line()))
    return made


def datasets() -> tuple[Any, Any]:
    raise FileNotFoundError("the data are on the platform only")


def make() -> tuple[notebook.FabricModel, torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    made = notebook.FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer=optimizer)
    return made, model, optimizer


def leave_results(platform: WmlaPlatform) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Write a trained model into the job's files."""
    trained = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.125, momentum=0.9)
    trained(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    for thing, ending in ((trained, ""), (optimizer, "_optimizer_state")):
        content = io.BytesIO()
        torch.save(thing.state_dict(), content)
        platform.files[f"work/model/train/model_epoch_final{ending}.pth"] = content.getvalue()
    platform.files["work/model/trained_model.onnx"] = b"onnx"
    platform.files["work/other.txt"] = b"no result"
    return trained, optimizer


def finish(platform: WmlaPlatform) -> None:
    leave_results(platform)
    platform.happens = [platform.run, lambda: platform.end("succeeded")]


# ---------------------------------------------------------------- a training that succeeds


def test_a_training_from_its_submission_to_its_result(
    platform: WmlaPlatform, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    made, model, optimizer = make()
    trained, trained_optimizer = leave_results(platform)
    rows = [(1, NOW, 2, 3.0), (25, NOW + 10, 50, 2.0), (40, NOW + 20, 80, 1.5)]
    platform.happens = [
        platform.run,
        lambda: platform.record(*rows[:2]),
        lambda: platform.record(*rows, test_loss=0.25),
        lambda: platform.end("succeeded"),
    ]
    made.train(3, 128, 2, worker_memory="16G", driver_memory="1G")
    name = platform.job["name"]
    assert re.fullmatch(r"wmla-anna-notebook-\d{13}", name)
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \d+"
    want = [
        r"Accepted, but without effect here: worker_memory='16G', driver_memory='1G'\. .*",
        rf"{stamp} WARNING __init__\.<module> - FABRIC_BACKEND is not set\. .*",
        rf"{stamp} INFO __init__\.<module> - Using pytorch backend\.",
        rf"Job {name} \(j-\d+\) is queued: just submitted\.",
        rf"Job {name} \(j-\d+\) is running: its workers train\.",
        r"step 50  train loss: 2 test loss: -  avg steps per sec: 4\.8 gpus: 2",
        r"Waiting the job to stop\.\.\.",
        r"step 80  train loss: 1\.5 test loss: 0\.25  avg steps per sec: 3\.0 gpus: 2",
        r"--------END TRAINING: completed 80 iterations in 361\.5625 seconds\.--------",
        rf"Job {name} finishes with state FINISHED\.",
        rf"driver service subprocess {os.getpid()} stopped",
    ]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(want), lines
    for line, pattern in zip(lines, want, strict=True):
        assert re.fullmatch(pattern, line), line
    # The notebook's model has the trained weights.
    assert all(torch.equal(model.state_dict()[key], value) for key, value in trained.state_dict().items())
    assert optimizer.param_groups[0]["lr"] == 0.125
    mine, theirs = optimizer.state_dict()["state"], trained_optimizer.state_dict()["state"]
    assert torch.equal(mine[0]["momentum_buffer"], theirs[0]["momentum_buffer"])

    made.download(tmp_path / "out")
    path = tmp_path / f"out/{platform.job['id']}.zip"
    assert capsys.readouterr().out == f"Save model:  {path}\n"
    with zipfile.ZipFile(path) as packed:
        assert sorted(packed.namelist()) == [
            "model/train/model_epoch_final.pth",
            "model/train/model_epoch_final_optimizer_state.pth",
            "model/trained_model.onnx",
        ]
        assert packed.read("model/trained_model.onnx") == b"onnx"
    assert sorted(path.parent.iterdir()) == [path]


def test_the_job_is_one_of_wmla(platform: WmlaPlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, *_ = make()
    finish(platform)
    monkeypatch.setenv("EDT_LOSS_SCALE", "batch")
    made.train(3, 128, engines_number=2, checkpoint_freq=0)
    job, spec = platform.job, platform.specs[platform.job["id"]]
    assert job["max_workers"] == 2
    assert job["labels"] == {
        "wmla": "yes",
        "wmla.type": "NOTEBOOK",
        "wmla.framework": "edtPyTorch",
        "wmla.application": job["name"],
        "wmla.model": "_submitted_code/notebook/main.py",
        "wmla.devices": "1",
    }
    assert spec["program"] == ["launch_wmla.py", "_submitted_code/notebook/main.py"]
    assert spec["environment"] == {
        "FRAME_WORK": "edtPyTorch",
        "FABRIC_BACKEND": "pytorch",
        "DLI_IS_ELASTIC": "true",
        "EXEC_TYPE": "notebook",
        "DLI_SUBMIT_USERNAME": "anna",
        "WMLA_APPLICATION": job["name"],
        "WMLA_MAX_WORKERS": "2",
        "DLI_DATA_FS": "/data",
        "DATA_DIR": "/data",
        "DATA_PATH": "",
        "EDT_LOSS_SCALE": "batch",
    }
    with tarfile.open(fileobj=io.BytesIO(platform.code[job["code"]])) as tar:
        tar.extractall(tmp_path, filter="data")
    assert (tmp_path / "launch_wmla.py").read_bytes() == names.LAUNCHER_SOURCE
    sent = open_bundle(tmp_path / "_submitted_code/notebook")
    assert sent.asked == {
        "epoch_number": 3,
        "batch_size": 128,
        "engines_number": 2,
        "num_dataloader_threads": 4,
        "validation_freq": 1,
        "checkpoint_freq": 0,
        "effective_batch_size": None,
    }
    assert list(sent.given) == ["model", "datasets_function", "loss_function", "optimizer"]


def test_the_data_directory_is_passed_on_if_it_is_known(
    platform: WmlaPlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish(platform)
    platform.data_root = ""
    make()[0].train(1, 8)
    environment = platform.specs[platform.job["id"]]["environment"]
    assert not {"DATA_DIR", "DLI_DATA_FS"} & set(environment)
    assert (platform.job["max_workers"], environment["WMLA_MAX_WORKERS"]) == (1, "1")
    platform.jobs.clear()
    finish(platform)
    monkeypatch.setenv("DATA_DIR", "/gpfs/mydatafs")
    make()[0].train(1, 8)
    assert platform.specs[platform.job["id"]]["environment"]["DATA_DIR"] == "/gpfs/mydatafs"


@pytest.mark.parametrize(
    ("said", "workers", "engines"),
    [
        ({"hardware_spec": {"nodes": {"num_nodes": 3}}, "engines_number": 2, "worker_num": 9}, 3, 3),
        ({"engines_number": 2, "worker_num": 9}, 2, 2),
        ({"worker_num": 3, "worker_device_num": 2}, 6, 6),
        ({"worker_num": 2, "effective_batch_size": 64}, 2, 8),
        ({"engines_number": 2, "effective_batch_size": 64}, 8, 8),
    ],
)
def test_how_many_workers(
    platform: WmlaPlatform,
    capsys: pytest.CaptureFixture[str],
    said: dict[str, Any],
    workers: int,
    engines: int,
    tmp_path: Path,
) -> None:
    finish(platform)
    make()[0].train(1, 8, **said)
    assert platform.job["max_workers"] == workers
    with tarfile.open(fileobj=io.BytesIO(platform.code[platform.job["code"]])) as tar:
        tar.extractall(tmp_path, filter="data")
    assert open_bundle(tmp_path / "_submitted_code/notebook").asked["engines_number"] == engines
    told = "engines_number=2 has no effect" in capsys.readouterr().out
    assert told == (said.get("engines_number", engines) != engines)


# ---------------------------------------------------------------- a training that fails or is stopped


def test_a_failure_shows_the_traceback_of_the_job(platform: WmlaPlatform, capsys: pytest.CaptureFixture[str]) -> None:
    made, model, _ = make()
    before = model.weight.clone()
    platform.logs = {"driver": "nothing of interest\n", "worker-0": "I am well\n", "worker-1": WORKER_LOG}
    platform.happens = [platform.run, lambda: platform.end("failed", "worker 1 ended with exit code 1")]
    with pytest.raises(
        TrainingFailed, match=r"has no trained model: it failed: worker 1 ended with exit code 1. .*logs"
    ):
        made.train(1, 8)
    name = platform.job["name"]
    lines = capsys.readouterr().out.splitlines()
    first = lines.index("Traceback (most recent call last):")
    assert lines[first:-2] == WORKER_LOG.splitlines()[3:]
    assert lines[-2:] == [f"Job {name} finishes with state ERROR.", f"driver service subprocess {os.getpid()} stopped"]
    assert torch.equal(model.weight, before)


def test_a_failure_without_a_traceback_shows_the_last_lines(
    platform: WmlaPlatform, capsys: pytest.CaptureFixture[str]
) -> None:
    platform.logs = {"worker-0": "".join(f"line {number}\n" for number in range(50))}
    platform.happens = [lambda: platform.end("failed")]
    with pytest.raises(TrainingFailed):
        make()[0].train(1, 8)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("line ")] == [f"line {number}" for number in range(30, 50)]


def test_a_job_that_a_user_stops_is_killed(platform: WmlaPlatform, capsys: pytest.CaptureFixture[str]) -> None:
    platform.happens = [platform.run, lambda: platform.end("stopped", "'ben' asked to stop it")]
    with pytest.raises(TrainingFailed, match="it stopped: 'ben' asked to stop it"):
        make()[0].train(1, 8)
    out = capsys.readouterr().out
    assert f"finishes with state KILLED.\ndriver service subprocess {os.getpid()} stopped\n" in out
    assert "END TRAINING" not in out


def test_an_interrupt_stops_the_job(platform: WmlaPlatform, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    platform.happens = [platform.run, interrupt]
    with pytest.raises(KeyboardInterrupt):
        make()[0].train(1, 8)
    assert platform.job["stage"] == "stopping" and not platform.job["stop_now"]
    name = platform.job["name"]
    told = capsys.readouterr().out
    assert f"Interrupted: job {name} stops after its present step, with a checkpoint." in told
    assert f"legato stop --now {name}" in told


def test_a_server_that_is_away_is_waited_for(platform: WmlaPlatform, capsys: pytest.CaptureFixture[str]) -> None:
    leave_results(platform)

    def leave() -> None:
        platform.refuse_connection(20)

    platform.happens = [platform.run, leave, lambda: platform.end("succeeded")]
    make()[0].train(1, 8)
    out = capsys.readouterr().out
    assert out.count("this cell waits for the server") == 1
    assert f"finishes with state FINISHED.\ndriver service subprocess {os.getpid()} stopped\n" in out


def test_another_error_says_that_the_job_goes_on(platform: WmlaPlatform) -> None:
    platform.happens = [platform.run, lambda: platform.say("unauthenticated", 401, "The token was revoked.")]
    with pytest.raises(Unauthenticated) as caught:
        make()[0].train(1, 8)
    name = platform.job["name"]
    assert caught.value.__notes__ == [f"Job {name} keeps running without this notebook. To see it: legato ps"]


# ---------------------------------------------------------------- errors before the submission


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"engines_number": "2"}, "engines_number='2'"),
        ({"worker_num": -1}, "worker_num=-1"),
        ({"effective_batch_size": 9}, "effective_batch_size=9"),
    ],
)
def test_wrong_arguments_are_refused_here(platform: WmlaPlatform, said: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        make()[0].train(**{"epoch_number": 1, "batch_size": 8, **said})
    assert platform.requests == []


def test_a_model_on_a_gpu_is_refused(platform: WmlaPlatform) -> None:
    model = torch.nn.Linear(3, 2, device="meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    made = notebook.FabricModel(model, datasets, torch.nn.functional.cross_entropy, optimizer)
    with pytest.raises(UsageError, match=r"The model is on meta. Create it on the CPU, without .to\(device\)"):
        made.train(1, 8)
    assert platform.requests == []


def test_the_constructor_checks_as_a_program_does() -> None:
    with pytest.raises(UsageError, match="is not a PyTorch optimizer"):
        notebook.FabricModel(torch.nn.Linear(3, 2), datasets, torch.nn.functional.cross_entropy, "adam")


def test_without_a_server_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LEGATO_SERVER", "LEGATO_TOKEN", "LEGATO_WORKER"):
        monkeypatch.delenv(name, raising=False)
    # Or it would log in to a platform that runs in this account, and submit a job there.
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(Unauthenticated, match=r"legato login URL.*LEGATO_SERVER and LEGATO_TOKEN"):
        make()[0].train(1, 8)


def test_nothing_can_be_downloaded_before_a_training(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"train\(\) was not called"):
        make()[0].download(tmp_path)


def test_a_folder_that_does_not_exist_is_reported(platform: WmlaPlatform, tmp_path: Path) -> None:
    finish(platform)
    made, *_ = make()
    made.train(1, 8)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"Cannot write .*Name another out_dir"):
        made.download(tmp_path / "file/out")


@pytest.mark.parametrize(
    ("said", "told"), [("pytorch", []), ("PyTorch", []), ("tensorflow", ["FABRIC_BACKEND is tensorflow, but"])]
)
def test_the_backend_of_the_variable_is_logged(
    platform: WmlaPlatform,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    told: list[str],
) -> None:
    finish(platform)
    monkeypatch.setenv("FABRIC_BACKEND", said)
    make()[0].train(1, 8)
    out = capsys.readouterr().out
    assert ("WARNING" in out) == bool(told)
    assert all(text in out for text in told)
    assert " INFO __init__.<module> - Using pytorch backend.\n" in out


def test_inside_of_a_job_it_trains_there(platform: WmlaPlatform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEGATO_WORKER", "0")
    with pytest.raises(FileNotFoundError, match="the data are on the platform only"):
        make()[0].train(1, 8, worker_num=2)
    with pytest.raises(UsageError, match=r"train\(\) was not called\. Call it first"):
        make()[0].download()
    assert platform.requests == []
