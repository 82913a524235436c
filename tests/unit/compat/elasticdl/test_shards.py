"""Checkpoints of shards of a training: only the same stream can continue from them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from legato.compat.elasticdl import client
from legato.compat.elasticdl.controller import PyTorchAllReduceController
from legato.compat.elasticdl.data_service import RecordIndexService
from legato.compat.elasticdl.shards import read_place, write_checkpoint
from legato.compat.elasticdl.stream import Stream
from legato.compat.elasticdl.task_types import DatasetParams
from legato.compat.elasticdl.tasks import TaskManager
from legato.core.errors import DataError, UsageError

KNOWN: dict[str, Any] = {
    "batch_size": 64,
    "num_epochs": 1,
    "dataset_size": 1000,
    "shuffle": True,
    "num_minibatches_per_shard": 8,
}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORKER_NUM", "MASTER_ADDR", "LEGATO_SEED", "LEGATO_DRIVER_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client, "_known", [])


def write(place: int = 10, *, seed: int = 0, shuffle_shards: bool = False) -> str:
    stream = Stream(1000, 1, 64, seed=seed, shuffle=True, shuffle_shards=shuffle_shards, records_per_task=512)
    return write_checkpoint(stream, place, "train", 512)


def restore(content: str, **other: Any) -> int:
    service = RecordIndexService(**{**KNOWN, **other})
    assert service.restore_shard_from_checkpoint(content)
    controller = PyTorchAllReduceController(service)
    return controller.global_completed_batch_num


def test_the_same_stream_goes_on_and_may_have_more_epochs() -> None:
    assert restore(write()) == 10
    assert restore(write(), num_epochs=3, num_minibatches_per_shard=2) == 10


@pytest.mark.parametrize(
    ("content", "other", "told"),
    [
        (write(), {"batch_size": 32}, "batch_size=64, but now it is 32"),
        (write(), {"dataset_size": 500}, "dataset_size=1000, but now it is 500"),
        (write(), {"shuffle": False}, "shuffle=true, but now it is false"),
        (write(), {"shuffle_shards": True}, "shuffle_shards=false, but now it is true"),
        (write(seed=3), {}, "seed=3, but now it is 0"),
        (write(shuffle_shards=True), {"shuffle_shards": True, "num_minibatches_per_shard": 2}, "records_per_task=512"),
        (write(16), {"num_epochs": 2}, "num_epochs=1, but now it is 2"),
    ],
    ids=["batch", "size", "order", "order of tasks", "seed", "tasks", "behind the short batch"],
)
def test_another_stream_is_refused(content: str, other: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        restore(content, **other)


def test_a_checkpoint_of_tasks_is_refused_by_a_controller() -> None:
    tasks = TaskManager(seed=0)
    tasks.set_workers([0])
    tasks.register(DatasetParams(name="_EDL_DEFAULT_TRAINING_DATA", batch_size=64, num_epochs=1, dataset_size=1000))
    tasks.get(0)
    with pytest.raises(UsageError, match="continues from a checkpoint of tasks"):
        restore(tasks.checkpoint())


def test_a_checkpoint_without_an_order_is_refused() -> None:
    known = json.loads(write())
    del known["order"]
    with pytest.raises(DataError, match="does not contain the order of its records"):
        read_place(json.dumps(known))
    assert read_place(json.dumps({**known, "trained_minibatches": True})) is None
    assert read_place("[]") is None
