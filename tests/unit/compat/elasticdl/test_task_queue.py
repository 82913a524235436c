"""Batches of a loader that are handed out: in its order, the last one filled up, and no record lost at the end."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from legato.compat.elasticdl.client import LocalTasks
from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_queue import OrderedPass, TaskQueue, UnorderedPass
from legato.compat.elasticdl.task_types import DatasetParams, Task
from legato.compat.elasticdl.tasks_client import TasksUnreachable

LIMIT_S = 30.0


class Tasks(LocalTasks):
    def __init__(self) -> None:
        super().__init__(0)
        self.reports: list[tuple[int, str]] = []
        self.waits: list[bool] = []

    def get_task(self, dataset: str = "", *, wait: bool = True) -> Task | None:
        self.waits.append(wait)
        return super().get_task(dataset, wait=wait)

    def report_task_result(self, task: int, dataset: str = "", error: str = "") -> None:
        self.reports.append((task, error))
        super().report_task_result(task, dataset, error)


def hand_out(num_records: int, tasks: LocalTasks | None = None) -> TaskQueue:
    tasks = tasks or LocalTasks(0)
    tasks.report_params(
        DatasetParams(name="d", batch_size=4, num_epochs=1, dataset_size=num_records, num_minibatches_per_shard=1)
    )
    return TaskQueue(tasks, "d", 4)


@pytest.mark.parametrize("num_records", [1, 3, 4, 5, 30, 32])
@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_each_process_gets_its_own_batches_however_they_hurry(num_records: int, num_processes: int) -> None:
    handed = hand_out(num_records)
    in_order = OrderedPass(lambda: handed, 4)

    def load(process: int) -> dict[int, tuple[Record, ...]]:
        found, number = {}, process
        while (records := in_order.ask(number)) is not None:
            found[number] = records
            number += num_processes
        # The request that finds the end of the data shows it to all later requests.
        return found

    with ThreadPoolExecutor(num_processes) as threads:
        loaded = {
            number: records for found in threads.map(load, range(num_processes)) for number, records in found.items()
        }
    assert sorted(loaded) == list(range(-(-num_records // 4))), "no batch behind the end, none missing"
    assert {len(records) for records in loaded.values()} == {4}
    cut = [record.index for number in sorted(loaded) for record in loaded[number][: in_order.deliver(number)]]
    assert cut == list(range(num_records))


def test_a_loop_that_waits_for_a_batch_gets_the_end_when_the_loader_is_over() -> None:
    handed = hand_out(30)
    in_order = OrderedPass(lambda: handed, 4)
    told: list[object] = []
    waiting = threading.Thread(target=lambda: told.append(in_order.ask(1)))
    waiting.start()
    in_order.close()
    waiting.join(20)
    assert told == [None]
    assert in_order.ask(0) is None


def test_records_loaded_ahead_come_again_after_a_loop_was_left() -> None:
    tasks = Tasks()
    handed = hand_out(32, tasks)
    first = OrderedPass(lambda: handed, 4)
    for number in range(6):
        assert first.ask(number) is not None
    for number in range(2):
        first.deliver(number)
        handed.report(None, "")
    first.close()
    second = OrderedPass(lambda: handed, 4)
    came: list[int] = []
    for number in range(6):
        records = second.ask(number)
        assert records is not None
        came.extend(record.index for record in records)
        second.deliver(number)
        handed.report(4, "")
    assert came == list(range(8, 32))
    assert len(tasks.reports) == 8


def test_a_process_of_a_left_loop_takes_no_records_that_were_given_back() -> None:
    tasks = Tasks()
    handed = hand_out(16, tasks)
    left = UnorderedPass(lambda: handed)
    assert left.ask(0) is not None
    left.close()
    handed.settle()
    assert [error for _, error in tasks.reports] == ["the loop over the loader was left before its end"]
    assert left.ask(1) is None
    next_pass = UnorderedPass(lambda: handed)
    came = [record.index for number in range(4) for record in next_pass.ask(number) or ()]
    assert sorted(came) == list(range(16))
    next_pass.end()
    next_pass.close()
    assert len(tasks.reports) == 1, "at its end all was brought, and is the program's to report"


def test_reports_count_for_delivered_records_and_not_for_loaded_ones() -> None:
    tasks = Tasks()
    handed = hand_out(32, tasks)
    in_order = OrderedPass(lambda: handed, 4)
    for number in range(4):
        in_order.ask(number)
    handed.report(16, "")
    assert tasks.reports == []
    in_order.deliver(0)
    handed.report_all("given back")
    in_order.deliver(1)  # loaded before its task was given back
    assert in_order.ask(4) is not None
    in_order.deliver(4)
    handed.report(4, "")
    assert [error for _, error in tasks.reports] == ["given back"] * 4
    assert handed.report(4, "") and tasks.reports[-1][1] == ""


def test_records_of_tasks_that_were_given_back_are_not_taken_back() -> None:
    tasks = Tasks()
    handed = hand_out(8, tasks)
    in_order = OrderedPass(lambda: handed, 4)
    in_order.ask(0)
    handed.report_all("given back")
    in_order.close()
    assert [record.index for record in handed.next_batch()] == [4, 5, 6, 7]
    assert [record.index for record in handed.next_batch()] == [0, 1, 2, 3], "they come again by another task"
    assert handed.next_batch() == ()


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_a_part_of_a_task_repeats_the_task(failing: int) -> None:
    tasks = Tasks()
    handed = hand_out(4, tasks)
    assert len(handed.next_batch()) == 4 and handed.next_batch() == ()
    assert not handed.report(2, "broken" if failing == 0 else "")
    assert handed.report(2, "broken" if failing == 1 else "")
    assert [error for _, error in tasks.reports] == ["broken"]
    assert len(handed.next_batch()) == 4, "a worker that got the end asks again"
    assert handed.report(None, "")
    assert [error for _, error in tasks.reports] == ["broken", ""]


def test_never_more_records_are_done_than_were_delivered() -> None:
    tasks = Tasks()
    handed = hand_out(8, tasks)
    handed.next_task()
    assert handed.report(7, "")
    handed.next_task()
    assert not handed.report(1, "") and len(tasks.reports) == 1


def test_the_queue_waits_for_others_only_if_it_may() -> None:
    tasks = Tasks()
    hand_out(4, tasks)
    waits = iter([True, False, False])
    handed = TaskQueue(tasks, "d", 4, lambda: next(waits))
    handed.next_task()
    handed.next_task()
    handed.next_batch()
    assert tasks.waits == [True, False, False]


class Slow(Tasks):
    """A driver that does not answer a request for a task until the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.may_answer = threading.Event()
        self.given_back = threading.Event()

    def get_task(self, dataset: str = "", *, wait: bool = True) -> Task | None:
        self.is_asked.set()
        assert self.may_answer.wait(LIMIT_S)
        return super().get_task(dataset, wait=wait)

    def report_task_result(self, task: int, dataset: str = "", error: str = "") -> None:
        super().report_task_result(task, dataset, error)
        self.given_back.set()


def in_time(body: Callable[[], object]) -> object:
    """Run a function on another thread, and return its result; it must end."""
    found: list[object] = []
    running = threading.Thread(target=lambda: found.append(body()), daemon=True)
    running.start()
    running.join(LIMIT_S)
    assert found, "it waits"
    return found[0]


@pytest.mark.parametrize("make", [UnorderedPass, lambda take: OrderedPass(take, 4)])
def test_a_loop_ends_at_once_during_a_request_and_the_answer_goes_to_others(
    make: Callable[[Callable[[], TaskQueue]], UnorderedPass | OrderedPass],
) -> None:
    tasks = Slow()
    handed = hand_out(4, tasks)
    left = make(lambda: handed)
    asking = ThreadPoolExecutor(1).submit(left.ask, 0)
    assert tasks.is_asked.wait(LIMIT_S)
    in_time(left.close)
    assert asking.result(LIMIT_S) is None, "the loader's process ends, although the driver has not answered"
    in_time(lambda: handed.report(4, ""))
    tasks.may_answer.set()
    assert tasks.given_back.wait(LIMIT_S)
    assert [error for _, error in tasks.reports] == ["the loop over the loader was left before its end"]
    assert in_time(lambda: make(lambda: handed).ask(0)) == tuple(Record(0, index) for index in range(4))


def test_returned_tasks_are_reported_before_new_ones_are_requested() -> None:
    tasks = Tasks()
    handed = hand_out(4, tasks)
    left = UnorderedPass(lambda: handed)
    assert left.ask(0) is not None
    left.close()
    assert len(UnorderedPass(lambda: handed).ask(0) or ()) == 4, "else this worker would be at the end of the data"


@pytest.mark.parametrize("make", [UnorderedPass, lambda take: OrderedPass(take, 4)])
def test_a_finaliser_may_close_a_loop_wherever_the_collector_runs(
    make: Callable[[Callable[[], TaskQueue]], UnorderedPass | OrderedPass],
) -> None:
    tasks = Tasks()
    handed = hand_out(16, tasks)
    left = make(lambda: handed)
    assert left.ask(0) is not None

    def loop() -> Iterator[None]:
        try:
            yield
        finally:
            left.close()

    holder: dict[str, object] = {"loop": loop()}
    next(holder["loop"])  # type: ignore[call-overload]
    holder["self"] = holder
    del holder

    def collect(_batch: object) -> None:
        # The lock is held here, as if the garbage collector ran because a tuple is made.
        gc.collect()

    in_time(lambda: handed.take(collect))
    assert left.is_closed
    in_time(lambda: make(lambda: handed).ask(0))


def test_an_error_of_the_driver_is_raised_where_the_records_are_waited_for() -> None:
    class Gone(Tasks):
        def get_task(self, dataset: str = "", *, wait: bool = True) -> Task | None:
            raise TasksUnreachable("no driver")

    handed = hand_out(4, Gone())
    for _ in range(2):
        with pytest.raises(TasksUnreachable, match="no driver"):
            handed.next_batch()
