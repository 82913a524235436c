"""Runs of the test program: alone, as a job of several workers, and under `legato verify`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import torch
from benchmarks.jobs import ROOT, BenchmarkError, Conduct, run_job_of
from benchmarks.parts import note_fact

TRAIN: Final = Path(__file__).parent / "programs" / "train.py"
_LIMIT_S: Final = 280.0  # a part has a shorter limit on a GPU


@dataclass
class Trained:
    """What a run left behind.

    Attributes:
        digest: SHA-256 of the weights and the optimizer's state, the same on all workers that finished.
        workers: what each worker that finished wrote.
        events: texts of the job's events; none alone.
        log: of the process from which the workers were forked.
    """

    digest: str
    workers: list[dict[str, Any]]
    events: list[str] = field(default_factory=list)
    log: str = ""


class Bench:
    """Starts runs on one device.

    Args:
        device: ``cpu`` or ``cuda``.
        path: of temporary files.
        monkeypatch: sets the environment of jobs.
    """

    def __init__(self, device: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.device = device
        self._path = path
        self._monkeypatch = monkeypatch
        self._num_runs = 0
        self.num_gpus = torch.cuda.device_count() if device == "cuda" else 0

    def devices(self, num_workers: int, *, shared: bool = False) -> str:
        """Return ``LEGATO_DEVICE`` for a number of workers: a GPU each while there are enough, or all share one."""
        if self.device == "cpu":
            return "cpu"
        return ",".join(f"cuda:{0 if shared else number % self.num_gpus}" for number in range(num_workers))

    def are_shared(self, num_workers: int) -> bool:
        """Return whether so many workers have to share GPUs."""
        return self.device == "cuda" and num_workers > self.num_gpus

    def train_alone(self, mode: str = "plain", **case: Any) -> Trained:
        """Run the program by itself, as ``python train.py`` does."""
        directory, argument = self._next(mode, case)
        environment = {**os.environ, "LEGATO_DEVICE": self.devices(1), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        done = subprocess.run(
            [sys.executable, str(TRAIN), argument],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return _read(directory)

    def train(
        self,
        num_workers: int,
        mode: str = "plain",
        *,
        max_workers: int | None = None,
        shared: bool = False,
        conduct: Conduct | None = None,
        variables: dict[str, str] | None = None,
        **case: Any,
    ) -> Trained:
        """Run the program as a job."""
        directory, argument = self._next(mode, case)
        with self._monkeypatch.context() as patch:
            patch.setenv("LEGATO_DEVICE", self.devices(max_workers or num_workers, shared=shared))
            patch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'src'}")
            for name, value in (variables or {}).items():
                patch.setenv(name, value)
            events = run_job_of(
                (str(TRAIN), argument),
                directory,
                num_workers=num_workers,
                max_workers=max_workers,
                conduct=conduct,
                limit_s=_LIMIT_S,
            )
        found = _read(directory) if conduct is None else Trained("", [])
        found.events = [event.reason for _, event in events]
        found.log = "".join(path.read_text() for path in directory.rglob("warm-parent.log"))
        return found

    def fail(self, mode: str) -> str:
        """Run the program as a job of one worker that must fail, and return why it did."""
        try:
            self.train(1, mode)
        except BenchmarkError as error:
            return str(error)
        raise AssertionError(f"the job in mode {mode} did not fail")

    def verify(self, mode: str = "plain", **case: Any) -> str:
        """Run ``legato verify`` with workers that join, leave and are killed; return what it wrote."""
        directory, argument = self._next(mode, case)
        (directory / "case.json").write_text(argument)
        environment = {**os.environ, "LEGATO_DEVICE": self.devices(3), "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        done = subprocess.run(
            [sys.executable, "-m", "legato.cli.main", "verify", "--steps", "12", str(TRAIN)],
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        told = done.stdout + done.stderr
        assert done.returncode == 0, told[-4000:]
        return told

    def _next(self, mode: str, case: dict[str, Any]) -> tuple[Path, str]:
        self._num_runs += 1
        directory = self._path / f"run-{self._num_runs}"
        directory.mkdir()
        return directory, json.dumps({"mode": mode, "directory": str(directory), **case})


def _read(directory: Path) -> Trained:
    workers = [json.loads(path.read_text()) for path in sorted(directory.glob("result-*.json"))]
    assert workers, "no worker finished"
    digests = {worker["digest"] for worker in workers}
    assert len(digests) == 1, f"the workers have different weights: {workers}"
    note_fact("run", digest=workers[0]["digest"][:16], workers=workers)
    return Trained(digests.pop(), workers)
