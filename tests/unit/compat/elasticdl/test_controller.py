"""A program's loop, alone in this process: what is trained, counted and refused."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from legato.compat.elasticdl import job_environment
from legato.compat.elasticdl.controller import PyTorchAllReduceController, create_elastic_controller
from legato.compat.elasticdl.data_service import DataShardService, RecordIndexService
from legato.compat.elasticdl.optimizer import distribute
from legato.compat.elasticdl.training import observe_losses
from legato.core.errors import ProgramError, UsageError

SIZE, BATCH = 14, 4


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run a test as if it had its own process, whose program ends after it."""
    endings: list[Callable[[], None]] = []
    monkeypatch.setattr("legato.train.process.job.at_end", endings.append)
    for name in ("WORKER_NUM", "MASTER_ADDR", "LEGATO_SEED", "LEGATO_DRIVER_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(job_environment, "_seeded", [os.getpid()])
    with torch.random.fork_rng():
        yield
        for ending in endings:
            ending()


class Records(Dataset[Any]):
    def __init__(self, service: RecordIndexService) -> None:
        self.service = service
        self.read: list[int] = []

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: int) -> Any:
        index = self.service.fetch_record_index()
        self.read.append(index)
        return torch.ones(3), index


class Program:
    """A loop as programs have it; the weights show which records were trained."""

    def __init__(self, controller: PyTorchAllReduceController, *, fixed: bool = True, batch_size: int = BATCH) -> None:
        self.controller = controller
        self.dataset = Records(controller.data_shard_service)
        self.loader = DataLoader(self.dataset, batch_size=batch_size)
        self.model = torch.nn.Linear(SIZE, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        self.optimizer = distribute(torch.optim.SGD(self.model.parameters(), lr=1.0), fixed_global_batch_size=fixed)
        controller.set_broadcast_model(self.model)
        controller.set_broadcast_optimizer(self.optimizer)
        self.train_one_batch = controller.elastic_run(self.train)
        self.batches: list[list[int]] = []
        self.epochs: list[int] = []

    def train(self, data: torch.Tensor, index: torch.Tensor) -> int:
        assert len(data) == len(index)
        self.batches.append(index.tolist())
        self.optimizer.zero_grad()
        (self.model.weight[0, index] * data[:, 0]).mean().backward()
        self.optimizer.step()
        return len(self.batches)

    def run(self) -> list[int]:
        with self.controller.scope():
            for data, index in self.loader:
                self.train_one_batch(data, index)
                self.epochs.append(self.controller.get_current_epoch())
        return self.epochs


def make(num_epochs: int = 2, **options: Any) -> PyTorchAllReduceController:
    return create_elastic_controller(BATCH, num_epochs, SIZE, **options)


def test_all_records_are_trained_once_per_epoch_the_last_few_too() -> None:
    program = Program(make())
    assert program.run() == [0, 0, 1, 1, 1, 2, 2]
    assert [index for batch in program.batches for index in batch] == [*range(SIZE), *range(SIZE)]
    assert program.batches[-1] == [10, 11, 12, 13]
    assert program.controller.global_completed_batch_num == 7


def test_the_last_batch_is_cut_to_what_is_left() -> None:
    program = Program(make(num_epochs=1))
    program.run()
    assert [len(batch) for batch in program.batches] == [4, 4, 4, 2]
    assert program.dataset.read[-4:] == [12, 13, 13, 13]
    want = torch.cat([torch.full((12,), -1 / 4), torch.full((2,), -1 / 2)])
    assert torch.equal(program.model.weight[0], want)


def test_the_loss_of_a_step_is_known_though_the_program_does_not_report_it() -> None:
    program = Program(make(num_epochs=1))
    original = torch.Tensor.backward
    losses = []
    with program.controller.scope():
        for data, index in program.loader:
            losses.append((program.model.weight[0, index] * data[:, 0]).mean().item())
            program.train_one_batch(data, index)
            training = program.controller.data_shard_service.training
            assert training._run.loss == pytest.approx(losses[-1])
    assert len(losses) == 4
    assert torch.Tensor.backward is original


def test_a_scaled_loss_is_reported_unscaled() -> None:
    heard: list[float] = []
    weight = torch.ones((), requires_grad=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=65536.0)
    scale = torch.amp.GradScaler.scale
    with observe_losses(heard.append):
        scaler.scale(weight * 2.0).backward()
        (weight * 3.0).backward()
        (weight * torch.ones(2)).backward(torch.ones(2))
    assert heard == [2.0, 3.0]
    assert torch.amp.GradScaler.scale is scale


def test_a_step_is_the_mean_over_its_mini_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_NUM", "3")
    program = Program(make(num_epochs=1))
    program.run()
    want = torch.cat([torch.full((12,), -1 / 12), torch.full((2,), -1 / 2)])
    torch.testing.assert_close(program.model.weight[0].detach(), want)
    assert program.epochs == [0, 0, 1, 1]


def test_without_a_fixed_batch_a_worker_alone_acts_on_each_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_NUM", "3")
    program = Program(make(num_epochs=1), fixed=False)
    program.run()
    assert torch.equal(program.model.weight[0, :12], torch.full((12,), -1 / 4))
    assert program.epochs == [0, 0, 1, 1]


def test_each_epoch_has_another_order_if_it_is_shuffled() -> None:
    program = Program(make(shuffle=True))
    program.run()
    order = [index for batch in program.batches for index in batch]
    assert sorted(order[:SIZE]) == sorted(order[SIZE:]) == list(range(SIZE))
    assert order[:SIZE] != order[SIZE:] and order[:SIZE] != list(range(SIZE))


def test_a_program_may_count_from_an_epoch_on() -> None:
    program = Program(make())
    program.controller.set_resume_epoch(5)
    assert program.run() == [5, 5, 6, 6, 6, 7, 7]
    with pytest.raises(UsageError, match="no such epoch"):
        program.controller.set_resume_epoch(-1)


def test_a_loop_may_be_left_and_started_again() -> None:
    program = Program(make(num_epochs=1))
    for number, (data, index) in enumerate(program.loader):
        if number == 1:
            break
        program.train_one_batch(data, index)
    program.run()
    assert program.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]


def test_records_of_a_hand_made_loop_are_trained_alike() -> None:
    program = Program(make(num_epochs=1))
    with program.controller.scope():
        batch: list[int] = []
        for index in program.controller.data_shard_service.record_index_gen():
            batch.append(index)
            if len(batch) == BATCH:
                program.train_one_batch(torch.ones(BATCH, 3), torch.tensor(batch))
                batch = []
    assert program.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]


def test_shards_are_mini_batches_and_run_to_the_end_of_an_epoch() -> None:
    controller = PyTorchAllReduceController(DataShardService(BATCH, 2, SIZE))
    program = Program(controller)
    found = []
    with controller.scope():
        left: list[int] = []
        while (shard := controller.data_shard_service.fetch_shard()) is not None:
            found.append((shard.start, shard.end))
            left += range(shard.start, shard.end)
            if len(left) == BATCH:
                program.train_one_batch(torch.ones(BATCH, 3), torch.tensor(left))
                left = []
    assert found == [(0, 4), (4, 8), (8, 12), (12, 14), (0, 2), (2, 6), (6, 10), (10, 14)]
    assert len(program.batches) == 7


def test_what_is_drawn_for_a_shard_depends_on_the_shard_alone() -> None:
    def draw(num_before: int) -> list[float]:
        service, drawn = DataShardService(BATCH, 2, SIZE), []
        program = Program(PyTorchAllReduceController(service))
        with program.controller.scope():
            while (shard := service.fetch_shard()) is not None:
                drawn.append(torch.rand(1).item())
                # Other random numbers are drawn in between, as on a worker that has trained other batches.
                torch.rand(num_before)
                if shard.end % BATCH == 0 or len(drawn) > 4:
                    program.train_one_batch(torch.ones(BATCH, 3), torch.arange(BATCH))
        return drawn

    drawn = draw(0)
    assert drawn == draw(5)
    assert len(set(drawn)) == len(drawn) == 8, "of each epoch its own"


def test_a_checkpoint_of_shards_begins_where_it_was_written() -> None:
    first = Program(make(num_epochs=1))
    for number, (data, index) in enumerate(first.loader):
        first.train_one_batch(data, index)
        if number == 1:
            break
    content = first.controller.data_shard_service.get_shard_checkpoint()
    known = json.loads(content)
    assert known["version"] == "v1.0" and known["current_epoch"] == 1 and known["todo"] == [[8, 14]]
    service = RecordIndexService(batch_size=BATCH, num_epochs=1, dataset_size=SIZE)
    assert service.restore_shard_from_checkpoint(content)
    second = Program(PyTorchAllReduceController(service))
    second.run()
    assert second.batches == [[8, 9, 10, 11], [12, 13]]


def test_a_service_without_a_controller_hands_out_tasks() -> None:
    service = DataShardService(BATCH, 1, SIZE, num_minibatches_per_shard=2, dataset_name="own")
    first = service.fetch_shard()
    assert first is not None and (first.start, first.end) == (0, 8)
    assert [service.report_batch_done() for _ in range(2)] == [False, True]
    second = service.get_task()
    assert second.shard is not None and (second.shard.start, second.shard.end, second.type) == (8, 14, 1)
    assert json.loads(service.get_shard_checkpoint())["doing"] == [[8, 14]]
    assert service.get_current_epoch() == 1 and service.get_minibatch_count_per_epoch() == 3
    assert service.report_batch_done(6) and service.fetch_shard() is None and service.get_task().type == 0
    service.reset_dataset()
    assert service.fetch_shard() == first


def test_a_service_for_a_test_gives_each_number_once() -> None:
    service = RecordIndexService(batch_size=5, num_epochs=1, dataset_size=SIZE, task_type=2)
    assert list(service.record_index_gen()) == list(range(SIZE))


@pytest.mark.parametrize(
    ("make_one", "told"),
    [
        (PyTorchAllReduceController, "has no data shard service"),
        (lambda: PyTorchAllReduceController(object(), "localhost:1"), "has no data shard service"),
        (lambda: PyTorchAllReduceController(DataShardService(4)), "Give DataShardService num_epochs and dataset_size"),
        (lambda: create_elastic_controller(4, -1, 10), "num_epochs=-1 is below 1"),
        (lambda: create_elastic_controller(4, 1, 0), "dataset_size=0: there are no records"),
        (lambda: create_elastic_controller(40, 1, 10), "batch_size=40 is larger than dataset_size=10"),
    ],
    ids=["nothing", "no service", "no size", "negative epochs", "no records", "large batch"],
)
def test_what_cannot_be_trained_is_refused_before_anything_starts(make_one: Callable[[], Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make_one()


@pytest.mark.parametrize("said", ["0", "-2", "two", "1.5"])
def test_an_invalid_number_of_workers_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_NUM", said)
    with pytest.raises(UsageError, match=f"WORKER_NUM={said} is not a whole number above 0"):
        make()


def test_a_service_has_one_controller() -> None:
    controller = make()
    with pytest.raises(UsageError, match="already has a controller"):
        PyTorchAllReduceController(controller.data_shard_service)
    with pytest.raises(UsageError, match="cannot be reset"):
        controller.data_shard_service.reset_dataset()
    with pytest.raises(UsageError, match="cannot be restored"):
        controller.data_shard_service.restore_shard_from_checkpoint("{}")


def test_a_loader_of_another_batch_size_is_refused() -> None:
    program = Program(make(), batch_size=3)
    with pytest.raises(ProgramError, match="DataLoader has batch_size=3, and the data shard service was made with"):
        program.run()
    assert not program.batches


def test_batches_of_another_size_are_refused_where_no_loader_says() -> None:
    program = Program(make())
    program.controller.data_shard_service.fetch_record_index()
    with pytest.raises(ProgramError, match="batches of 3 records"):
        program.train_one_batch(torch.ones(3, 3), torch.arange(3))
    assert not program.batches


def test_a_model_must_be_there_before_the_loop() -> None:
    controller = make()
    with pytest.raises(ProgramError, match="the program has not called set_broadcast_model"):
        controller.elastic_run(print)()
    controller.set_broadcast_model(torch.nn.Linear(1, 1))
    with pytest.raises(ProgramError, match="the program has not called set_broadcast_optimizer"):
        controller.elastic_run(print)()


def test_a_loop_that_keeps_batches_gets_an_error() -> None:
    program = Program(make(num_epochs=1))
    for number, (data, index) in enumerate(program.loader):
        if number != 2:
            program.train_one_batch(data, index)
    with pytest.raises(ProgramError, match="Call it once for every batch"):
        program.controller.notify_train_loop_end()
