"""Batches of a loader that are handed out: in its order, the last one filled, and nothing lost at the end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from legato.compat.elasticdl.handing import HandedOut, InOrder
from legato.compat.elasticdl.local_tasks import LocalTasks
from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_words import DatasetParams


def hand_out(num_records: int) -> HandedOut:
    tasks = LocalTasks(0)
    tasks.report_params(
        DatasetParams(name="d", batch_size=4, num_epochs=1, dataset_size=num_records, num_minibatches_per_shard=1)
    )
    return HandedOut(tasks, "d", 4)


@pytest.mark.parametrize("num_records", [1, 3, 4, 5, 30, 32])
@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_each_process_gets_its_own_batches_however_they_hurry(num_records: int, num_processes: int) -> None:
    in_order = InOrder(hand_out(num_records).next_batch, 4)

    def load(process: int) -> dict[int, tuple[Record, ...]]:
        found, number = {}, process
        while (records := in_order.ask(number)) is not None:
            found[number] = records
            number += num_processes
        # Who has found the end lets all behind it find it too.
        return found

    with ThreadPoolExecutor(num_processes) as threads:
        loaded = {
            number: records for found in threads.map(load, range(num_processes)) for number, records in found.items()
        }
    assert sorted(loaded) == list(range(-(-num_records // 4))), "no batch behind the end, none missing"
    assert {len(records) for records in loaded.values()} == {4}
    cut = [record.index for number in sorted(loaded) for record in loaded[number][: in_order.size_of(number)]]
    assert cut == list(range(num_records))


def test_who_waits_for_a_batch_that_never_comes_is_told_when_the_loader_is_over() -> None:
    in_order = InOrder(hand_out(30).next_batch, 4)
    told: list[object] = []
    waiting = threading.Thread(target=lambda: told.append(in_order.ask(1)))
    waiting.start()
    in_order.close()
    waiting.join(20)
    assert told == [None]
    assert in_order.ask(0) is None
