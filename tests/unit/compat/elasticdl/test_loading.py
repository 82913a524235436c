"""Loader processes, however started: each record once, the batches in order, and no process left behind."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest
from tests import fork_server

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
    done = fork_server.run(command, timeout=110, env=environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment() -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    return ours | {"PYTHONPATH": str(Path(launch.__file__).parents[4])}


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
    done = fork_server.run(command, timeout=110, env=environment())
    assert done.returncode != 0
    assert "Store the data shard service as an attribute of the data set that is given to the DataLoader" in done.stderr


LEFT_EARLY = """
import json
import sys
from torch.utils.data import DataLoader, Dataset, IterableDataset
from elasticai_api.common.data_shard_service import RecordIndexService


class Records(Dataset):
    def __init__(self, service):
        self.service = service

    def __len__(self):
        return sys.maxsize

    def __getitem__(self, index):
        return self.service.fetch_record_index()


class Stream(IterableDataset):
    def __init__(self, service):
        self.service = service

    def __iter__(self):
        return self.service.record_index_gen()


if __name__ == "__main__":
    kind, is_persistent = Records if sys.argv[1] == "records" else Stream, sys.argv[2] == "persistent"
    num_processes = 2 if kind is Records else 1
    service = RecordIndexService(batch_size=4, num_epochs=1, dataset_size=80, num_minibatches_per_shard=2)
    loader = DataLoader(kind(service), batch_size=4, num_workers=num_processes, persistent_workers=is_persistent)
    seen = []
    for number, batch in enumerate(loader):
        seen += batch.tolist()
        service.report_batch_done()
        if number == 1:
            break
    for batch in loader:
        seen += batch.tolist()
        service.report_batch_done()
    left = json.loads(service.get_shard_checkpoint())
    assert set(seen) == set(range(80)), set(range(80)) - set(seen)
    assert not left["todo"] and not left["doing"], left
    assert kind is Stream or len(seen) == 80
"""


@pytest.mark.parametrize("dataset", ["records", "stream"])
@pytest.mark.parametrize("processes", ["persistent", "anew"])
def test_a_loop_that_ends_early_and_starts_again_loses_nothing(tmp_path: Path, dataset: str, processes: str) -> None:
    program = tmp_path / "left_early.py"
    program.write_text(LEFT_EARLY)
    run(program, dataset, processes)


AT_ONCE = """
import sys
from torch.utils.data import DataLoader, IterableDataset
from elasticai_api.common.data_shard_service import RecordIndexService


class Seen(IterableDataset):
    def __init__(self, service):
        self.service = service

    def __iter__(self):
        return self.service.record_index_gen()


class Hidden(IterableDataset):
    def __init__(self, service):
        self.parts = [Seen(service)]

    def __iter__(self):
        return iter(self.parts[0])


if __name__ == "__main__":
    service = RecordIndexService(batch_size=4, num_epochs=1, dataset_size=80, num_minibatches_per_shard=2)
    seen = []

    def note(batch):
        seen.extend(batch.tolist())
        service.report_batch_done(len(batch))

    if sys.argv[1] == "two":
        first, second = (iter(DataLoader(Seen(service), batch_size=4, num_workers=1)) for _ in range(2))
        open_ones = [first, second]
        while open_ones:
            for one in [*open_ones]:
                batch = next(one, None)
                if batch is None:
                    open_ones.remove(one)
                else:
                    note(batch)
    else:
        for batch in DataLoader(Seen(service), batch_size=4, num_workers=1):
            note(batch)
            break
        for batch in DataLoader(Hidden(service), batch_size=4, num_workers=1):
            note(batch)
    assert set(seen) == set(range(80)), set(range(80)) - set(seen)
"""


@pytest.mark.parametrize("case", ["two", "hidden"])
def test_simultaneous_loops_and_loops_that_are_not_seen_have_all_records(tmp_path: Path, case: str) -> None:
    program = tmp_path / "at_once.py"
    program.write_text(AT_ONCE)
    run(program, case)


PLANNED = """
import sys
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler
from elasticai_api.common.data_shard_service import DataShardService, RecordIndexService
from elasticai_api.pytorch.controller import PyTorchAllReduceController
from legato.compat.elasticdl import record_sources
from legato.core.errors import ProgramError


class Records(Dataset):
    def __init__(self, service):
        self.service = service

    def __len__(self):
        return 1000

    def __getitem__(self, index):
        return torch.tensor(float(self.service.fetch_record_index()))


if __name__ == "__main__":
    service = RecordIndexService(batch_size=4, num_epochs=3, dataset_size=16)
    controller = PyTorchAllReduceController(service)
    model = torch.nn.Linear(1, 1)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    trained = []

    @controller.elastic_run
    def train(batch):
        trained.extend(batch.tolist())
        # Others may wait for the next step of this worker.
        assert not record_sources.may_wait()
        model(torch.ones(1, 1)).sum().backward()

    sampler = BatchSampler(SequentialSampler(range(1000)), 4, drop_last=False)
    try:
        iter(DataLoader(Records(service), batch_sampler=sampler, num_workers=2))
    except ProgramError as error:
        assert "batch_sampler" in str(error) and "one by one" not in str(error), error
    else:
        raise AssertionError("not refused")
    assert record_sources.may_wait()
    loader = DataLoader(Records(service), batch_size=4, num_workers=2, persistent_workers=True)
    with controller.scope():
        for epoch in range(3):
            for number, batch in enumerate(loader):
                train(batch)
                if number == 3:
                    break
    assert sorted(trained) == sorted(3 * list(range(16))), trained
    assert record_sources.may_wait()
"""


def test_a_planned_training_loses_nothing_with_processes_that_were_to_stay(tmp_path: Path) -> None:
    program = tmp_path / "planned.py"
    program.write_text(PLANNED)
    run(program)
