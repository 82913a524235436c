"""Tasks: their sizes and numbers, repeated registrations, both shuffles, the end of the data, both checkpoint forms."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiers import examples

from legato.compat.elasticdl.permutation import Permutation
from legato.compat.elasticdl.task_types import EVALUATION_NAME, TRAINING_NAME, DatasetParams, Task, TaskKind
from legato.compat.elasticdl.tasks import TaskManager
from legato.core.errors import DataError


def make_params(**changes: object) -> DatasetParams:
    default = DatasetParams(name="digits", batch_size=64, num_epochs=1, dataset_size=1000, num_minibatches_per_shard=2)
    return msgspec.structs.replace(default, **changes)


def make_manager(*, workers: tuple[int, ...] = (0, 1), seed: int = 3, **changes: object) -> TaskManager:
    manager = TaskManager(seed=seed)
    manager.set_workers(workers)
    assert manager.register(make_params(**changes))
    return manager


def take(manager: TaskManager, worker: int = 0, dataset: str = "digits") -> Task:
    task = manager.get(worker, dataset)
    assert isinstance(task, Task)
    return task


def take_all(manager: TaskManager, dataset: str = "digits") -> list[Task]:
    tasks = []
    while isinstance(task := manager.get(0, dataset), Task):
        tasks.append(task)
        manager.report(task.number)
    return tasks


# ---------------------------------------------------------------- sizes


def test_the_last_task_of_an_epoch_is_short() -> None:
    tasks = take_all(make_manager(num_epochs=2))
    assert [task.num_records for task in tasks] == ([128] * 7 + [104]) * 2
    assert [task.number for task in tasks] == list(range(1, 17))
    assert [task.epoch for task in tasks] == [1] * 8 + [2] * 8
    assert [task.records for task in tasks[:1]] == [tuple(range(128))]
    assert tasks[0].indices == ()


@pytest.mark.parametrize(("asked", "records"), [(0, 24), (1, 3), (2, 6)])
def test_a_task_has_as_many_batches_as_asked_else_as_the_job_says(asked: int, records: int) -> None:
    manager = make_manager(batch_size=3, num_minibatches_per_shard=asked)
    assert take(manager).num_records == records


def test_a_task_is_no_larger_than_the_data_set() -> None:
    assert [task.num_records for task in take_all(make_manager(dataset_size=5))] == [5]


def test_the_first_registration_of_a_name_wins() -> None:
    manager = make_manager()
    assert not manager.register(make_params(dataset_size=10, shuffle=True))
    assert sum(task.num_records for task in take_all(manager)) == 1000


def test_data_sets_without_a_name_are_the_default_ones() -> None:
    manager = make_manager(name="")
    assert manager.register(make_params(name="", kind=TaskKind.EVALUATION))
    assert take(manager, dataset="").dataset == TRAINING_NAME
    assert take(manager, dataset=EVALUATION_NAME).kind is TaskKind.EVALUATION


@pytest.mark.parametrize("epochs", [0, -1])
def test_without_a_number_of_epochs_there_is_no_end(epochs: int) -> None:
    manager = make_manager(num_epochs=epochs, dataset_size=128)
    assert [take(manager).epoch for _ in range(5)] == [1, 2, 3, 4, 5]
    assert manager.describe_left() is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"batch_size": 0}, "batch_size=0 is below 1"),
        ({"dataset_size": -5}, "dataset_size=-5 is below 1"),
        ({"num_minibatches_per_shard": -1}, "num_minibatches_per_shard=-1 is below 0"),
    ],
    ids=["batch", "dataset", "shard"],
)
def test_sizes_that_make_no_tasks_are_refused(changes: dict[str, int], told: str) -> None:
    manager = TaskManager(seed=0)
    with pytest.raises(DataError, match=told):
        manager.register(make_params(**changes))
    assert manager.register(make_params())


def test_an_epoch_may_have_any_number_of_tasks() -> None:
    manager = make_manager(dataset_size=10**15, batch_size=1, num_minibatches_per_shard=1, shuffle_shards=True)
    tasks = [take(manager) for _ in range(1000)]
    assert len({task.start for task in tasks}) == 1000
    assert max(task.start for task in tasks) > 10**14


# ---------------------------------------------------------------- orders


def test_shuffled_records_are_another_order_each_epoch() -> None:
    tasks = take_all(make_manager(num_epochs=2, shuffle=True))
    first, second = ([i for task in tasks if task.epoch == epoch for i in task.indices] for epoch in (1, 2))
    assert sorted(first) == sorted(second) == list(range(1000))
    assert first != second
    assert first != sorted(first)
    assert [task.start for task in tasks[:3]] == [0, 128, 256]


def test_shuffled_tasks_keep_their_records_together() -> None:
    tasks = take_all(make_manager(num_epochs=2, shuffle_shards=True))
    starts = [task.start for task in tasks]
    assert sorted(starts[:8]) == sorted(starts[8:]) == list(range(0, 1000, 128))
    assert starts[:8] != starts[8:]
    assert all(task.indices == () and task.end == min(task.start + 128, 1000) for task in tasks)


def test_orders_follow_from_the_seed() -> None:
    def order(seed: int) -> list[tuple[int, ...]]:
        return [task.records for task in take_all(make_manager(seed=seed, shuffle=True, shuffle_shards=True))]

    assert order(1) == order(1) != order(2)


@pytest.mark.parametrize("size", [1, 2, 3, 255, 256, 257, 1000])
def test_a_permutation_has_every_number_once(size: int) -> None:
    order = Permutation(size, (5,)).take(0, size)
    assert sorted(order) == list(range(size))


@pytest.mark.parametrize("size", [5000, 2**20 + 1, 2**40 + 7])
def test_many_places_at_once_are_those_one_by_one(size: int) -> None:
    order = Permutation(size, (3, 1))
    start = size - 4000
    assert order.take(start, size) == tuple(order[place] for place in range(start, size))


def test_permutations_are_evenly_spread() -> None:
    orders = {Permutation(4, (seed,)).take(0, 4) for seed in range(2000)}
    assert orders == set(itertools.permutations(range(4)))
    at_first = [Permutation(1000, (seed,))[0] for seed in range(4000)]
    assert 480 < sum(at_first) / len(at_first) < 520


# ---------------------------------------------------------------- who holds what


def test_tasks_of_a_lost_worker_come_last_in_the_epoch_and_are_no_failures() -> None:
    manager = make_manager(num_epochs=2, dataset_size=384)
    lost = take(manager, 1)
    assert manager.set_workers([0]) == 1
    order = [(task.epoch, task.start) for task in take_all(manager)]
    assert order == [(1, 128), (1, 256), (1, lost.start), (2, 0), (2, 128), (2, 256)]
    assert not manager.report(lost.number).is_known


def test_a_task_is_handed_out_again_however_often_it_fails() -> None:
    manager = make_manager(dataset_size=10)
    for num_failures in range(1, 12):
        assert manager.report(take(manager).number, error="no luck").num_failures == num_failures
        if num_failures % 3 == 0:
            take(manager, 1)
            assert manager.set_workers([0]) == 1
            manager.set_workers([0, 1])
    assert len(take_all(manager)) == 1


def test_an_unknown_worker_gets_no_task() -> None:
    manager = make_manager()
    assert manager.get(7, "digits") is TaskKind.NONE
    assert len(take_all(manager)) == 8


def test_a_worker_that_got_no_answer_gets_the_same_task() -> None:
    manager = make_manager()
    task = manager.get(0, "digits", ask="a-1")
    assert manager.get(0, "digits", ask="a-1") == task
    assert manager.get(1, "digits", ask="a-1") != task
    assert isinstance(task, Task)
    manager.report(task.number)
    assert manager.get(0, "digits", ask="a-1") != task
    assert take(manager) != take(manager)  # requests without a name are never repetitions


# ---------------------------------------------------------------- the end


def test_only_a_worker_without_tasks_waits_for_tasks_of_others() -> None:
    manager = make_manager(dataset_size=256)
    mine, theirs = take(manager, 0), take(manager, 1)
    assert manager.get(0, "digits") is TaskKind.NONE
    manager.report(mine.number)
    assert manager.get(0, "digits") is TaskKind.WAIT
    manager.report(theirs.number)
    assert manager.get(0, "digits") is TaskKind.NONE
    assert manager.describe_left() is None


def test_a_waiting_worker_gets_the_tasks_of_a_dead_one() -> None:
    manager = make_manager(dataset_size=256)
    manager.report(take(manager, 0).number)
    theirs = take(manager, 1)
    assert manager.get(0, "digits") is TaskKind.WAIT
    assert manager.describe_left() == "'digits' (epoch 1 of 1, 1 tasks handed out and not reported)"
    manager.set_workers([0])
    assert take(manager, 0).start == theirs.start


def test_asking_before_anything_is_registered_costs_no_epoch() -> None:
    manager = TaskManager(seed=0)
    manager.set_workers([0])
    assert manager.get(0) is TaskKind.NONE
    assert manager.epoch() == 0
    assert manager.register(make_params(name="", num_epochs=2))
    assert len(take_all(manager, "")) == 16
    assert manager.epoch() == 2


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_has_the_historic_keys() -> None:
    manager = make_manager(dataset_size=300, num_epochs=2)
    take(manager)
    content = json.loads(manager.checkpoint("digits"))
    historic = {
        "dataset_name": "digits",
        "todo": [[128, 256], [256, 300]],
        "doing": [[0, 128]],
        "current_epoch": 1,
        "num_epochs": 2,
        "records_per_task": 128,
        "dataset_size": 300,
        "shuffle_shards": False,
        "version": "v1.0",
        "current_subepoch": 1,
    }
    assert {key: content[key] for key in historic} == historic


def test_what_a_checkpoint_leaves_is_what_was_not_done_also_in_another_job() -> None:
    first = make_manager(num_epochs=2, shuffle=True, shuffle_shards=True)
    done = [take(first) for _ in range(11)]
    for task in done[:10]:
        first.report(task.number)
    second = TaskManager(seed=99)
    second.set_workers([0])
    assert second.restore(first.checkpoint("digits"))
    records = [(task.epoch, i) for task in (*done[:10], *take_all(second)) for i in task.records]
    assert sorted(records) == [(epoch, i) for epoch in (1, 2) for i in range(1000)]


def test_a_checkpoint_lists_one_part_of_a_long_epoch() -> None:
    sizes = {"batch_size": 1, "num_minibatches_per_shard": 1, "dataset_size": 120_000}
    manager = make_manager(**sizes)
    assert json.loads(manager.checkpoint("digits"))["todo"] == []
    manager.report(take(manager).number)
    assert len(json.loads(manager.checkpoint("digits"))["todo"]) == 49_999
    again = TaskManager(seed=0)
    again.set_workers([0])
    assert again.restore(manager.checkpoint("digits"))
    assert sorted(task.start for task in take_all(again)) == list(range(1, 120_000))


def test_a_checkpoint_of_the_original_is_understood() -> None:
    content = {
        "dataset_name": "digits",
        "todo": [[128, 256]],
        "doing": [[0, 128]],
        "current_epoch": 2,
        "num_epochs": 2,
        "records_per_task": 128,
        "dataset_size": 300,
        "shuffle_shards": False,
        "version": "v1.0",
        "current_subepoch": 0,
    }
    manager = TaskManager(seed=0)
    manager.set_workers([0])
    assert manager.restore(json.dumps(content))
    assert [(task.epoch, task.start, task.end) for task in take_all(manager)] == [(2, 0, 128), (2, 128, 256)]
    assert not manager.restore(json.dumps(content | {"version": "v2.0"}))


@pytest.mark.parametrize(
    "changes",
    [
        {"todo": [[5, 3]]},
        {"doing": [[0, 301]]},
        {"todo_epochs": [1]},
        {"records_per_task": 0},
        {"todo": "all"},
        {"current_epoch": -1},
    ],
    ids=["backwards", "beyond", "epochs", "size", "kind", "before"],
)
def test_a_damaged_checkpoint_is_refused_and_changes_nothing(changes: dict[str, object]) -> None:
    manager = make_manager(dataset_size=300)
    content = json.loads(manager.checkpoint("digits")) | changes
    with pytest.raises(DataError, match="Cannot resume from this checkpoint"):
        manager.restore(json.dumps(content))
    assert len(take_all(manager)) == 3
    with pytest.raises(DataError, match="Cannot resume from this checkpoint"):
        manager.restore("")


def test_a_data_set_that_is_reset_starts_again() -> None:
    manager = make_manager()
    held = take(manager)
    assert manager.reset("digits")
    assert manager.epoch("digits") == 0
    assert not manager.report(held.number).is_known
    tasks = take_all(manager)
    assert len(tasks) == 8
    assert tasks[0].number == 2
    assert not manager.reset("other")


def test_a_data_set_restarts_once_however_often_the_answer_is_lost() -> None:
    manager = make_manager()
    assert manager.reset("digits", 0, ask="first")
    take(manager)
    assert manager.reset("digits", 0, ask="first"), "said again"
    assert take(manager).start == 128
    assert manager.reset("digits", 1, ask="second")
    assert manager.reset("digits", 0, ask="first"), "said again behind another one's"
    assert take(manager).start == 0
    assert manager.reset("digits", 0, ask="third")
    assert take(manager).start == 0
    assert manager.reset("digits") and manager.reset("digits"), "originals name no requests"
    assert take(manager).start == 0


def test_a_checkpoint_knows_the_epoch_of_what_came_back_late() -> None:
    first = make_manager(num_epochs=2, shuffle=True, dataset_size=384)
    take(first, 1)
    done = [take(first), take(first), take(first)]
    assert done[-1].epoch == 2
    for task in done:
        first.report(task.number)
    first.set_workers([0])
    second = TaskManager(seed=99)
    second.set_workers([0])
    assert second.restore(first.checkpoint("digits"))
    records = [(task.epoch, i) for task in (*done, *take_all(second)) for i in task.records]
    assert sorted(records) == [(epoch, i) for epoch in (1, 2) for i in range(384)]


_numbers = st.integers(-3, 40)
_pairs = st.lists(st.tuples(_numbers, _numbers), max_size=3)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "dataset_name": st.sampled_from(["digits", "other", ""]),
            "todo": _pairs,
            "doing": _pairs,
            "current_epoch": _numbers,
            "num_epochs": _numbers,
            "records_per_task": _numbers,
            "dataset_size": _numbers,
            "shuffle_shards": st.booleans(),
            "version": st.just("v1.0"),
            "current_subepoch": _numbers,
        },
        optional={
            "shuffle": st.booleans(),
            "seed": st.none() | _numbers,
            "todo_epochs": st.lists(_numbers, max_size=3),
            "doing_epochs": st.lists(_numbers, max_size=3),
        },
    )
)
def test_any_checkpoint_is_refused_or_its_records_are_done(content: dict[str, Any]) -> None:
    manager = make_manager()
    try:
        restored = manager.restore(json.dumps(content))
    except DataError:
        restored = False
    if not restored:
        assert len(take_all(manager)) == 8
        return
    for _ in range(100):
        task = manager.get(0, content["dataset_name"])
        if task is TaskKind.NONE:
            break
        assert isinstance(task, Task)
        assert set(task.records) <= set(range(content["dataset_size"]))
        assert len(set(task.records)) == task.num_records > 0
        manager.report(task.number)
    else:
        assert content["num_epochs"] <= 0 or content["dataset_size"] * content["num_epochs"] >= 100


def test_a_checkpoint_is_restored_once_per_job() -> None:
    first, second = make_manager(), make_manager()
    take(first)
    content = first.checkpoint("digits")
    assert second.restore(content)
    task = take(second)
    second.report(task.number)
    left = second.checkpoint("digits")
    assert second.restore(content)
    again = TaskManager(seed=0, state=second.state)
    assert again.restore(content), "also when another driver has gone on"
    assert left == second.checkpoint("digits") == again.checkpoint("digits")
