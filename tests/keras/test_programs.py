"""TensorFlow programs written for WMLA, unchanged: the same weights and logs, whatever befalls their workers."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integration.harness import (
    Act,
    Result,
    Stage,
    after_event,
    at_step,
    both,
    kill,
    nothing,
    scale,
    with_members,
)
from tests.mnist_files import write_digits

from legato.compat.wmla.site import launch

LIMIT_S = 110.0
PROGRAMS = Path(__file__).parent / "programs" / "wmla"
EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.timeout(300)
NEEDS_KERAS_2 = pytest.mark.skipif(importlib.util.find_spec("tf_keras") is None, reason="there is no tf_keras here")


class Job:
    """A program as it is in a job, and the same one trained alone."""

    def __init__(self, stage: Stage, name: str, *args: str, programs: Path = PROGRAMS, main: str = "main.py") -> None:
        self.stage = stage
        self.results, self.alone = stage.home.parent, stage.home.parent / "alone"
        for directory in (self.results, self.alone):
            shutil.copytree(programs / name, directory / "_submitted_code" / name)
        self.program = (f"_submitted_code/{name}/{main}", *args)

    def train_alone(self, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
        environment |= {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), **variables}
        command = [sys.executable, launch.__file__, *self.program]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.alone, env=environment, timeout=LIMIT_S)

    def run(self, **options: Any) -> Result:
        return self.stage.run(launch.__file__, *self.program, limit_s=LIMIT_S, **options)

    def check(self, result: Result, alone: subprocess.CompletedProcess[str], finishers: int) -> None:
        assert alone.returncode == 0, alone.stderr
        ((sha256, num_steps),) = re.findall(r"^sha256 (\w+) steps (\d+)$", alone.stdout, re.MULTILINE)
        assert result.outcome.outcome == "succeeded", result.story()
        assert len(result.digests) == finishers, result.story()
        assert set(result.digests.values()) == {(sha256, int(num_steps))}, result.story()
        for name in ("own.txt", "stdout"):
            mine, theirs = (list((where / "log").glob(f"driver-*/{name}")) for where in (self.results, self.alone))
            assert [_without_times(path) for path in mine] == [_without_times(path) for path in theirs]


def _without_times(path: Path) -> str:
    return re.sub(r"\[[^]]*\]|Timestamp: \d+", "", path.read_text())


@pytest.fixture
def stage(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.setenv("FABRIC_BACKEND", "tensorflow")
    return stage


def test_a_program_grows_loses_a_worker_and_shrinks(stage: Stage, keras: Any) -> None:
    job = Job(stage, "flow", "--epochs", "6")
    alone = job.train_alone()
    plan = [
        Act(at_step(2), scale(3), "grow"),
        Act(with_members(3), kill(0), "kill the one that speaks"),
        Act(with_members(3), scale(2), "shrink"),
        Act(with_members(2), nothing, "they go on"),
    ]
    job.check(job.run(workers=(1, 3, 1), plan=plan), alone, finishers=2)
    log = next(job.results.glob("log/driver-*/own.txt")).read_text().splitlines()
    assert [line.split()[1] for line in log if line.startswith("train")] == [str(n) for n in range(1, 14 * 6 + 1)]
    assert len([line for line in log if line.startswith("test")]) == 6
    names = sorted(path.name for path in (job.results / "model/train").iterdir())
    assert names == ["model_epoch_2.keras", "model_epoch_4.keras", "model_epoch_6.keras", "model_epoch_final.keras"]
    mine, theirs = (
        keras.models.load_model(where / "model/train/model_epoch_final.keras") for where in (job.results, job.alone)
    )
    for one, other in zip(mine.get_weights(), theirs.get_weights(), strict=True):
        assert np.array_equal(one, other)


@NEEDS_KERAS_2
def test_a_program_of_keras_2_runs_as_it_is(stage: Stage) -> None:
    job = Job(stage, "old", "--epochs", "4")
    alone = job.train_alone()
    assert "main.py uses Adam(lr=…) of Keras 2, so it runs with tf_keras" in alone.stdout
    plan = [Act(both(at_step(2), with_members(2)), kill(1), "kill"), Act(after_event("died"), nothing, "it is dead")]
    result = job.run(workers=(1, 2, 2), plan=plan)
    job.check(result, alone, finishers=len(result.digests))
    log = next(job.results.glob("log/driver-*/stdout")).read_text()
    assert "accuracy: " in log and "auc: " in log


@NEEDS_KERAS_2
def test_a_transitional_program_runs_with_the_helper_that_it_brings(stage: Stage) -> None:
    job = Job(stage, "transitional")
    done = job.train_alone()
    assert done.returncode == 0, done.stderr
    assert "main.py uses optimizers.legacy" in done.stdout
    (log,) = job.alone.glob("log/driver-*/stdout")
    lines = [line.split("] ", 1)[1].split(",\t") for line in log.read_text().splitlines()]
    # 53 samples of 16: an epoch is one step of 4 micro-batches, whatever engines_number says.
    assert [line[2:4] for line in lines if line[0] == "Train"] == [
        [f"Global steps: {n}", f"Iteration: {n}"] for n in range(1, 9)
    ]
    assert [line[0] for line in lines if line[0].startswith("Test")] == ["Test of epoch 0", "Test of epoch 1"]
    assert all([part.split(":")[0] for part in line[-2:]] == ["loss", "accuracy"] for line in lines)
    assert "failed with the error above" not in done.stderr
    names = sorted(path.name for path in (job.alone / "model/train").iterdir())
    assert names == ["model_epoch_1.keras", "model_epoch_2.keras", "model_epoch_final.keras"]


def test_the_error_of_a_keras_2_program_says_what_to_change(stage: Stage) -> None:
    ended = Job(stage, "old").train_alone(TF_USE_LEGACY_KERAS="0")
    assert ended.returncode == 1
    assert "Adam(lr=0.01)" in ended.stderr and "Argument(s) not recognized" in ended.stderr
    assert "Keras 3 is installed. Rename lr= to learning_rate=" in ended.stderr


def test_the_example_gives_the_same_weights_alone_and_with_workers(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(1)
    write_digits(tmp_path / "data", draw.integers(256, size=(300, 28, 28)), draw.integers(10, size=300), every=1)
    monkeypatch.setenv("DATA_DIR", str(tmp_path / "data"))
    job = Job(stage, "wmla", "--epochs", "2", programs=EXAMPLES, main="tensorflow_mnist_EDT.py")
    alone = job.train_alone()
    assert alone.returncode == 0, alone.stderr
    result = job.run(workers=(1, 2, 2))
    assert result.outcome.outcome == "succeeded", result.story()
    (want,) = re.findall(r"^weights sha256 (\w{64})$", alone.stdout, re.MULTILINE)
    assert all(want in log for log in result.logs.values()), result.story()
