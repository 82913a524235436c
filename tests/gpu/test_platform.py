"""A platform on a machine with GPUs: `legato up`, a job, and what its users see of the GPUs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.jobs import ROOT
from benchmarks.parts import note_fact
from tests.gpu.runs import Bench

LIMIT_S = 100.0
PROGRAM = """
import torch, legato
run = legato.elastic(global_batch_size=4096, micro_batch_size=1024, seed=0)
model = torch.nn.Sequential(torch.nn.Linear(256, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10))
optimizer = torch.optim.Adam(model.parameters())
run.prepare(model, optimizer)
data = torch.utils.data.TensorDataset(torch.randn(65536, 256), torch.randint(0, 10, (65536,)))
for _ in run.epochs(10_000):
    for inputs, targets in run.batches(data):
        run.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
"""


class Platform:
    """The commands of a user of one platform."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self.environment = environment

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "legato.cli", *words],
            cwd=self._directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {(done.stdout + done.stderr)[-4000:]}"
        return done.stdout

    def read(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))

    def wait_for(self, look: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + LIMIT_S
        while not (found := look()):
            assert time.monotonic() < deadline, what
            time.sleep(0.5)
        return found


@pytest.fixture
def platform(bench: Bench, tmp_path: Path) -> Iterator[Platform]:
    for package in ("fastapi", "sqlalchemy", "uvicorn"):
        pytest.importorskip(package)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}", "LEGATO_CONFIG_HOME": str(tmp_path)}
    if bench.device == "cpu":
        environment["LEGATO_DEVICE"] = "cpu"
    log = tmp_path / "up.log"
    with log.open("wb") as file:
        up = subprocess.Popen(
            [sys.executable, "-m", "legato.cli", "up", "--port", "0"],
            cwd=tmp_path,
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    made = Platform(tmp_path, environment)

    def is_up() -> bool:
        assert up.poll() is None, log.read_text()
        with contextlib.suppress(AssertionError):
            return bool(made.read("nodes"))
        return False

    try:
        made.wait_for(is_up, "the platform answers")
        yield made
    finally:
        # The end of the platform does not end its jobs.
        with contextlib.suppress(AssertionError):
            made.run("stop", "one", "--now")
        with contextlib.suppress(ProcessLookupError):
            os.killpg(up.pid, signal.SIGTERM)
        up.wait(LIMIT_S)


def test_a_platform_shows_its_gpus_and_what_a_job_uses_of_them(
    bench: Bench, platform: Platform, tmp_path: Path
) -> None:
    slots = platform.read("slots")
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    platform.run("submit", "-d", "--name", "one", "--workers", "1..4", str(program))

    def look() -> Any:
        progress = platform.read("show", "one")["progress"] or {}
        is_measured = bench.device == "cpu" or progress.get("gpu_busy") is not None
        return progress if (progress.get("step") or 0) > 50 and is_measured else None

    progress = platform.wait_for(look, "the job trains, and the use of its GPU is measured")
    names = ("num_workers", "gpu_busy", "gpu_memory_bytes", "data_wait")
    note_fact("platform", slots=len(slots), **{name: progress[name] for name in names})
    if bench.device == "cuda":
        assert len(slots) == bench.num_gpus
        name = torch.cuda.get_device_name(0)
        assert name in platform.run("nodes", "-o", "wide"), name
        assert 0 < progress["gpu_busy"] <= 1 and progress["gpu_memory_bytes"] > 2**20, progress
        platform.run("submit", "-d", "--name", "other", "--gpu-type", "no such model", str(program))
        note_fact("a model that no node has", told=platform.read("show", "other")["reason"])
