"""The client of the master, as programs call it: data sets by their types, tasks as they were."""

from __future__ import annotations

import pytest

from legato.compat.elasticdl import client
from legato.compat.elasticdl.client import MasterClient
from legato.compat.elasticdl.task_types import EVALUATION_NAME, DatasetParams, TaskKind
from legato.core.errors import UsageError


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.setattr(client, "_known", [])


@pytest.mark.parametrize("kind", [TaskKind.TRAINING, TaskKind.EVALUATION, TaskKind.PREDICTION])
def test_tasks_of_a_type_are_those_of_its_default_data_set(kind: TaskKind) -> None:
    master = MasterClient("localhost:1", 0)
    master.tasks.report_params(
        DatasetParams(batch_size=2, num_epochs=1, dataset_size=3, num_minibatches_per_shard=1, kind=kind)
    )
    found = []
    while (task := master.get_task(int(kind))).type:
        found.append((task.shard.start, task.shard.end, task.shard.name, task.shard.indices, task.type))
        master.report_task_result(task.task_id, "")
    assert found == [(0, 2, "", (), kind), (2, 3, "", (), kind)]
    assert (task.task_id, task.shard.start, task.shard.end, task.type) == (0, 0, 0, 0)


def test_a_task_of_a_data_set_by_its_name_is_as_those_of_a_type() -> None:
    master = MasterClient()
    master.report_dataset_shard_params(2, 1, 2, shuffle=True, dataset_name="own")
    task = master.get_dataset_task("own")
    assert sorted(task.shard.indices) == [0, 1] and task.task_id > 0
    assert not master.get_task().type and not master.get_dataset_task(EVALUATION_NAME).type


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(UsageError, match="no tasks of type 7"):
        MasterClient().get_task(7)
