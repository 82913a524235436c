"""Programs whose result silently depends on the workers, or does not repeat, as ``legato verify`` finds them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from tests.unit.train.jobs import Worker, job_of
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from legato.cli.local.comparing import Finding, Moment, compare, read_run
from legato.core.verification import VARIABLE, Orders
from legato.train.data.order import Layout

LAYOUT = Layout(6, 2)  # three micro-batches
NUM_SAMPLES = 18  # three steps
INPUTS = torch.linspace(-1.0, 2.0, 2 * NUM_SAMPLES).reshape(NUM_SAMPLES, 2)


class Net(nn.Module):
    """A linear layer, and something that forward adds to its inputs."""

    def __init__(self, added: Callable[[Worker, Net], float], worker: Worker) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        nn.init.constant_(self.layer.weight, 0.1)
        nn.init.constant_(self.layer.bias, 0.1)
        self.generator = np.random.default_rng(0)
        self.fresh = np.random.default_rng()
        self.count = 0
        self.added, self.worker = added, worker

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(inputs + self.added(self.worker, self)).squeeze(1)
        return output


def count(_: Worker, model: Net) -> float:
    model.count += 1
    return model.count / 10


class Cached(Dataset[Any]):
    """Augments a sample in the first epoch in which this worker loads it, and keeps it so."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.kept: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> Any:
        return (self.kept.setdefault(index, INPUTS[index] + self.worker.run.epoch),)


def train(
    added: Callable[[Worker, Net], float] = lambda *_: 0.0, *, hooks: bool = False, caches: bool = False
) -> Callable[[Worker], None]:
    def program(worker: Worker) -> None:
        run, model = worker.run, Net(added, worker)
        calls: list[int] = []

        def scale(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return output * len(calls)

        if hooks:
            model.layer.register_forward_hook(scale)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        run.prepare(model, optimizer)
        data: Dataset[Any] = Cached(worker) if caches else TensorDataset(INPUTS)
        for _ in run.epochs(2):
            for (inputs,) in run.batches(data):
                run.backward(model(inputs).square().mean())
                optimizer.step()
                optimizer.zero_grad()

    return program


def record(program: Callable[[Worker], None], num_workers: int, directory: Path, monkeypatch: Any) -> dict[int, Moment]:
    directory.mkdir()
    orders = Orders(directory=str(directory), num_steps=1000)
    monkeypatch.setenv(VARIABLE, msgspec.json.encode(orders).decode())
    with job_of(LAYOUT) as job:
        for worker in job.begin(num_workers, program):
            assert worker.end() is None
    return read_run(directory)


@pytest.mark.parametrize(
    ("program", "kind", "step"),
    [
        (train(), None, 0),
        (train(lambda worker, _: worker.run.rank / 10), "number", 1),
        (train(lambda *_: time.monotonic_ns() % 1000 / 1000), "repeat", 1),
        (train(lambda *_: random.Random().random()), "repeat", 1),
        (train(lambda _, model: model.fresh.random()), "repeat", 1),
        (train(lambda _, model: model.generator.random()), "number", 1),
        (train(count), "number", 1),
        (train(hooks=True), "number", 1),
        (train(caches=True), "number", 4),
    ],
    ids=["right", "rank", "clock", "no seed", "default_rng()", "own generator", "attribute", "hook", "cache"],
)
def test_programs_that_depend_on_their_workers_are_found(
    program: Callable[[Worker], None], kind: str | None, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [record(program, num, tmp_path / str(index), monkeypatch) for index, num in enumerate((1, 1, 3))]
    assert [max(run) for run in runs] == [6, 6, 6]
    assert {moment.num_workers for moment in runs[2].values()} == {3}
    found = compare(*runs)
    if kind is None:
        assert found is None
    else:
        assert isinstance(found, Finding)
        assert (found.kind, found.step) == (kind, step)
        assert found.names[0] == "the loss" and "parameter layer.weight" in found.names


def test_a_recorded_job_does_not_stop_where_its_workers_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are wanted, whatever the program asks for."""

    def program(worker: Worker) -> None:
        run, model = worker.run, Net(lambda *_: 0.0, worker)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        run.prepare(model, optimizer)
        for (inputs,) in run.batches(TensorDataset(INPUTS)):
            run.backward(model(inputs).square().mean())
            optimizer.step()
            with torch.no_grad():
                model.layer.bias.add_(run.rank)

    runs = [record(program, num, tmp_path / str(index), monkeypatch) for index, num in enumerate((1, 1, 3))]
    assert max(runs[2]) == 3
    found = compare(*runs)
    assert found is not None
    assert (found.kind, found.step, found.names) == ("workers", 1, ["parameter layer.bias"])
