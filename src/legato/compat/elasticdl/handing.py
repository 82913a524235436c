"""Records that are handed out: tasks of the driver, worked off in the order in which they came, and reported.

At least once: what a worker had that is gone is handed out again. Knows nothing of training and loaders.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_words import Task
from legato.compat.elasticdl.tasks_client import TasksClient


class HandedOut:
    """The tasks of one data set, as one worker has them.

    Args:
        client: hands them out.
        dataset: its name.
        batch_size: records of a mini-batch, where a report does not say.
    """

    def __init__(self, client: TasksClient, dataset: str, batch_size: int) -> None:
        self._client = client
        self._dataset = dataset
        self._batch_size = batch_size
        self._lock = threading.Lock()
        self._pending: deque[Task] = deque()
        self._left: deque[Record] = deque()
        self._num_reported = 0
        self._is_at_end = False

    @property
    def oldest(self) -> Task | None:
        """The oldest task that is not reported."""
        return self._pending[0] if self._pending else None

    @property
    def newest(self) -> Task | None:
        """The newest one."""
        return self._pending[-1] if self._pending else None

    def next_task(self) -> Task | None:
        """Return the next task, None at the end of the data."""
        task = self._client.get_task(self._dataset)
        if task is not None:
            with self._lock:
                self._pending.append(task)
        return task

    def next_batch(self) -> tuple[Record, ...]:
        """Return the records of a mini-batch, across tasks; at the end of the data fewer, and then none."""
        with self._lock:
            found: list[Record] = []
            while len(found) < self._batch_size and self._fill():
                found.append(self._left.popleft())
            return tuple(found)

    def _fill(self) -> bool:
        while not self._left and not self._is_at_end:
            task = self._client.get_task(self._dataset)
            if task is None:
                self._is_at_end = True
            else:
                self._pending.append(task)
                self._left.extend(Record(task.epoch - 1, index) for index in task.records)
        return bool(self._left)

    def report(self, num_records: int | None, error: str) -> bool:
        """Note that so many records are done, the oldest first; returns whether tasks were completed by it."""
        with self._lock:
            self._num_reported += num_records or self._batch_size
            done = []
            while self._pending and self._num_reported >= self._pending[0].num_records:
                self._num_reported -= self._pending[0].num_records
                done.append(self._pending.popleft())
        for task in done:
            self._client.report_task_result(task.number, self._dataset, error)
        return bool(done)

    def report_all(self, error: str) -> None:
        """Give all tasks back that are not reported."""
        with self._lock:
            given_back, self._num_reported = list(self._pending), 0
            self._pending.clear()
            self._left.clear()
        for task in given_back:
            self._client.report_task_result(task.number, self._dataset, error)


class InOrder:
    """The batches of one pass of a loader, handed out in the loader's order, whichever process asks first.

    At the end of the data a loader throws away what it has of a batch, and all that comes behind. So only the last
    batch may be short, and it is filled with its last record; who has it from the loader cuts it again.

    Args:
        next_batch: returns the next records; fewer than a batch only at the end, and then none.
        batch_size: of all others.

    Attributes:
        is_closed: whether nothing is handed out any more.
    """

    def __init__(self, next_batch: Callable[[], tuple[Record, ...]], batch_size: int) -> None:
        self._next_batch = next_batch
        self._batch_size = batch_size
        self._turn = threading.Condition()
        self._next = 0
        self.is_closed = False
        self._sizes: dict[int, int] = {}

    def ask(self, number: int) -> tuple[Record, ...] | None:
        """Return the records of a batch by its number, when those before it are handed out; None at the end."""
        with self._turn:
            self._turn.wait_for(lambda: self._next >= number or self.is_closed)
            if self.is_closed:
                return None
            records = self._next_batch()
            self._next = max(self._next, number + 1)
            self._turn.notify_all()
        if 0 < len(records) < self._batch_size:
            self._sizes[number] = len(records)
            records += records[-1:] * (self._batch_size - len(records))
        return records or None

    def size_of(self, number: int) -> int | None:
        """Return how many records a batch has that was filled, None if it was not."""
        return self._sizes.get(number)

    def close(self) -> None:
        """Hand nothing out any more, also to those who wait."""
        with self._turn:
            self.is_closed = True
            self._turn.notify_all()
