"""Loader processes, however they are started: each record once, the batches in their order, and nobody left behind."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from legato.compat.elasticdl.site import launch

PROGRAM = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset
from elasticai_api.common.data_shard_service import RecordIndexService
from elasticai_api.pytorch.controller import PyTorchAllReduceController


class Hidden:
    __slots__ = ("service",)


class Records(Dataset):
    def __init__(self, service):
        self.service = service

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        index = self.service.fetch_record_index()
        return index, torch.rand(())


class HiddenRecords(Records):
    def __init__(self, service):
        self.box = Hidden()
        self.box.service = service

    @property
    def service(self):
        return self.box.service


def main(method, processes, kind):
    service = RecordIndexService(batch_size=3, num_epochs=2, dataset_size=10, shuffle=True)
    controller = PyTorchAllReduceController(service)
    model = torch.nn.Linear(1, 1)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    dataset = HiddenRecords(service) if kind == "hidden" else Records(service)
    loader = DataLoader(dataset, batch_size=3, num_workers=int(processes), multiprocessing_context=method)
    seen = []

    def train(index, noise):
        seen.extend(zip(index.tolist(), noise.tolist()))
        model(torch.ones(1, 1)).sum().backward()

    run = controller.elastic_run(train)
    with controller.scope():
        for index, noise in loader:
            run(index, noise)
    print(seen)
    assert sorted(index for index, _ in seen[:10]) == sorted(index for index, _ in seen[10:]) == list(range(10))


if __name__ == "__main__":
    main(*sys.argv[1:])
"""


def run(program: Path, *args: str) -> str:
    command = [sys.executable, launch.__file__, str(program), *args]
    environment = {"PYTHONPATH": str(Path(launch.__file__).parents[4]), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM))
    return path


@pytest.mark.timeout(300)
def test_processes_bring_what_the_program_itself_would_load_down_to_its_random_numbers(program: Path) -> None:
    want = run(program, "fork", "2", "plain")
    assert run(program, "forkserver", "1", "plain") == want
    assert run(program, "spawn", "1", "plain") == want


def test_a_loader_whose_data_set_hides_the_service_is_refused_in_words(program: Path) -> None:
    command = [sys.executable, launch.__file__, str(program), "fork", "1", "hidden"]
    environment = {"PYTHONPATH": str(Path(launch.__file__).parents[4])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, env=environment)
    assert done.returncode != 0
    assert "Let the data set that is given to the DataLoader keep the data shard service as an attribute" in done.stderr
