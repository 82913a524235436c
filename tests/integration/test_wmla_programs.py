"""Unchanged programs for WMLA: the same weights and complete logs when workers join, leave and die."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import torch
from tests.integration.harness import (
    PROGRAMS,
    Act,
    Result,
    Stage,
    Truth,
    after_event,
    at_step,
    both,
    kill,
    nothing,
    run_alone,
    scale,
    stop,
    with_members,
)
from tests.mnist_files import write_mnist

from legato.compat.wmla.site import launch

LAUNCHER = launch.__file__
_PULL = ("EDT_PULL_WEIGHT_TIME_OUT", "EDT_PULL_FAILED_LIMITS")
_TIMES = re.compile(r"\[[^]]*\]|Timestamp: \d+")


class Job:
    """A program of `programs/wmla` in a job, and the same program in one process."""

    def __init__(self, stage: Stage, name: str, data: Path, *args: str) -> None:
        self.stage = stage
        self.results = stage.home.parent
        self.program = (f"_submitted_code/{name}/main.py", *args)
        alone = self.results / "alone"
        for directory in (self.results, alone):
            shutil.copytree(PROGRAMS / "wmla" / name, directory / "_submitted_code" / name)
        os.environ["DATA_DIR"], os.environ["WMLA_TEST_PROGRAMS"] = str(data), str(PROGRAMS)
        self.want = self._train_alone(alone)
        self.alone = alone

    def _train_alone(self, directory: Path) -> Truth:
        truth = run_alone(LAUNCHER, *self.program, directory=directory)
        assert truth.metrics
        return truth

    def run(self, **options: object) -> Result:
        return self.stage.run(LAUNCHER, *self.program, **options)  # type: ignore[arg-type]

    def check_logs(self) -> None:
        """Assert that the driver's files are those of one process, except for times and numbers of workers."""
        mine, theirs = _driver_log(self.results), _driver_log(self.alone)
        assert _TIMES.sub("", (mine / "stdout").read_text()) == _TIMES.sub("", (theirs / "stdout").read_text())
        assert _figures(mine) == _figures(theirs)
        lines = (mine / "program-stdout.txt").read_text().splitlines()
        assert lines.count("--------START TRAINING--------") == 1
        told = (theirs / "program-stdout.txt").read_text().splitlines()
        marks = ("epoch=", "save models")
        assert [line for line in lines if line.startswith(marks)] == [line for line in told if line.startswith(marks)]
        ends = [number for number, line in enumerate(lines) if line.startswith("--------END TRAINING: ")]
        assert len(ends) == 1 and "completed epoch " in lines[ends[0]]
        # The program's output is there once, in its place. The lines of a worker about itself are not.
        words = [number for number, line in enumerate(lines) if line.startswith("sha256 ")]
        assert len(words) == 1 and words[0] > ends[0]
        assert not [line for line in lines if line.startswith(("Timestamp ", "batches :", "PULL_FAILED"))]
        assert not list((self.results / "log").glob(".*")), "scratch directories are gone"

    def trained(self) -> dict[str, bytes]:
        """Return the bytes of the files of trained models."""
        return {path.name: path.read_bytes() for path in (self.results / "model/train").iterdir()}


def _driver_log(results: Path) -> Path:
    (found,) = (results / "log").glob("driver-*")
    return found


def _figures(log: Path) -> list[tuple[str, dict[str, object], dict[str, object]]]:
    lines = [json.loads(line) for line in (log / "evaluation-metrics.txt").read_text().splitlines()]
    return [(line["grouplabel"], line["etimes"]["iteration"], line["values"]) for line in lines]


@pytest.fixture
def stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    for name in ("DATA_DIR", "WMLA_TEST_PROGRAMS", "EDT_ENGINE_ARGUMENTS", "WMLA_MAX_WORKERS", *_PULL):
        monkeypatch.setenv(name, "")  # restored afterwards, if the test sets them
        monkeypatch.delenv(name)
    return stage


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
def test_mnist_grows_and_shrinks(stage: Stage, tmp_path: Path) -> None:
    write_mnist(tmp_path / "data", every=20)
    job = Job(stage, "mnist", tmp_path / "data", "--epochs", "5")
    plan = [
        Act(at_step(3), scale(4), "grow to 4"),
        Act(with_members(4), scale(2), "shrink to 2"),
        Act(with_members(2), nothing, "2 at the end"),
    ]
    result = job.run(plan=plan)
    result.check(job.want, finishers=2)
    # The submission asks for 1 worker unless it says otherwise. A program with a larger step gets one notice.
    (told,) = [event for event in result.of_kind("note") if "Each step trains" in event["reason"]]
    assert told["level"] == "warning" and "the submission asks for 1 worker" in told["reason"]
    job.check_logs()
    gathered = json.loads((job.results / "val_dict_list.json").read_text())
    assert [step for step, _ in gathered] == list(range(1, 5 * 63 + 1))
    assert gathered == json.loads((job.alone / "val_dict_list.json").read_text())
    assert sorted(job.trained()) == [
        f"model_epoch_{label}{suffix}" for label in (5, "final") for suffix in (".pth", "_optimizer_state.pth")
    ]
    final = torch.load(job.results / "model/train/model_epoch_final.pth")
    alone = torch.load(job.alone / "model/train/model_epoch_final.pth")
    assert all(torch.equal(final[name], alone[name]) for name in final | alone)
    # The callback that needs a GPU fails on the worker that saves the model; the training continues.
    failed = [
        path for path in (job.results / "log").glob("executor-*/program-stderr.txt") if "failed" in path.read_text()
    ]
    assert len(failed) == 1 and "TrainCallback.on_epoch_end failed with the error above." in failed[0].read_text()


@pytest.mark.soak
def test_a_frozen_network_of_one_step_per_epoch_survives_its_first_worker(stage: Stage, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(4)
    for part, number in (("train", 26), ("val", 9)):
        for label, name in enumerate(("ants", "bees")):
            (tmp_path / "data" / part / name).mkdir(parents=True)
            for index in range(number):
                image = torch.rand(3, 8, 8, generator=generator) + label / 4
                torch.save(image, tmp_path / "data" / part / name / f"{index}.pt")
    os.environ["EDT_ENGINE_ARGUMENTS"], os.environ["WMLA_MAX_WORKERS"] = "1", "16"
    job = Job(stage, "folder", tmp_path / "data", "--epochs", "30")
    plan = [
        Act(both(at_step(3), with_members(3)), kill(0), "the first worker dies"),
        Act(both(after_event("recovered"), with_members(3)), kill(0), "and the next one"),
        Act(both(after_event("recovered"), with_members(3)), nothing, "all are back"),
    ]
    result = job.run(workers=(1, 3, 3), plan=plan)
    result.check(job.want)
    job.check_logs()
    labels = [5, 10, 15, 20, 25, 30, "final"]
    assert set(job.trained()) == {f"model_epoch_{n}{s}" for n in labels for s in (".pth", "_optimizer_state.pth")}
    text = "".join(result.logs.values())
    assert "each epoch is one step of them, not of engines_number=16" in text, result.story()
    assert "not known: --dataControlSchema 0 --weightSyncInterval 5 --usegpuNumPerWorker 1 " in text
    (frozen,) = {torch.load(job.results / f"model/train/model_epoch_{n}.pth")["0.weight"].sum().item() for n in labels}
    assert frozen


@pytest.mark.soak
def test_fn_step_train_continues_after_a_pause(stage: Stage, tmp_path: Path) -> None:
    job = Job(stage, "custom", tmp_path)
    stopped = job.run(workers=(1, 3, 3), plan=[Act(both(at_step(9), with_members(3)), stop, "stop")])
    assert stopped.outcome.outcome == "stopped", stopped.story()
    before = (_driver_log(job.results) / "stdout").read_text()
    assert before.count("Train,") >= 9
    result = job.run(workers=(1, 2, 2), resume=True)
    assert set(result.digests.values()) == {(job.want.sha256, job.want.num_steps)}, result.story()
    job.check_logs()
    has_onnx = importlib.util.find_spec("onnxscript") is not None
    onnx = {"model_epoch_final.onnx"} if has_onnx else set()
    assert set(job.trained()) == {"model_epoch_final.pth", "model_epoch_final_optimizer_state.pth", *onnx}
    if not has_onnx:
        assert "not exported to ONNX. torch.onnx needs the package onnxscript" in "".join(result.logs.values())


@pytest.mark.soak
def test_a_worker_with_late_weights_stops_and_the_job_continues(stage: Stage, tmp_path: Path) -> None:
    os.environ["EDT_PULL_WEIGHT_TIME_OUT"], os.environ["EDT_PULL_FAILED_LIMITS"] = "0.01", "0"
    job = Job(stage, "custom", tmp_path)
    plan = [
        Act(at_step(2), scale(2), "one more is wanted"),
        Act(after_event("died"), scale(1), "it has stopped"),
        Act(with_members(1), nothing, "the first one is alone"),
    ]
    result = job.run(workers=(1, 2, 1), plan=plan)
    result.check(job.want, finishers=1)
    job.check_logs()
    assert "PULL_FAILED" not in result.logs[0] and result.logs[1].count("PULL_FAILED: the model weights") == 2
    told = "PULL_FAILED more than 0 times (EDT_PULL_FAILED_LIMITS): this worker stops."
    assert told in result.logs[1], result.story()
