"""Records that are handed out: tasks of the driver, worked off in the order in which they came, and reported.

At least once: what a worker had that is gone is handed out again, and done is only what the program has had, whatever
a loader had loaded ahead. Knows nothing of training and loaders.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_words import Task
from legato.compat.elasticdl.tasks_client import TasksClient


class Given(NamedTuple):
    """A record, and the number of the task that it came with."""

    task: int
    record: Record


@dataclass
class _Held:
    task: Task
    num_reported: int = 0
    error: str = ""


class HandedOut:
    """The tasks of one data set, as one worker has them.

    Args:
        client: hands them out.
        dataset: its name.
        batch_size: records of a mini-batch, where a report does not say.
        may_wait: whether this worker may wait now for tasks that others hold.
    """

    def __init__(
        self, client: TasksClient, dataset: str, batch_size: int, may_wait: Callable[[], bool] = lambda: True
    ) -> None:
        self._client = client
        self._dataset = dataset
        self._batch_size = batch_size
        self._may_wait = may_wait
        self._lock = threading.Lock()
        self._pending: dict[int, _Held] = {}
        self._left: deque[Given] = deque()
        # What the program has and has not reported: numbers of tasks, and how many of their records.
        self._delivered: deque[tuple[int, int]] = deque()
        self._is_at_end = False

    @property
    def oldest(self) -> Task | None:
        """The oldest task that is not reported."""
        held = next(iter(tuple(self._pending.values())), None)
        return None if held is None else held.task

    @property
    def newest(self) -> Task | None:
        """The newest one."""
        held = next(reversed(tuple(self._pending.values())), None)
        return None if held is None else held.task

    def next_task(self) -> Task | None:
        """Return the next task, which the program then has; None at the end of the data."""
        task = self._client.get_task(self._dataset, wait=self._may_wait())
        if task is not None:
            with self._lock:
                self._pending[task.number] = _Held(task)
                self._delivered.append((task.number, task.num_records))
        return task

    def next_batch(self) -> tuple[Record, ...]:
        """Return the records of a mini-batch, which the program then has; see `next_given`."""
        found = self.next_given()
        self.deliver(found)
        return tuple(given.record for given in found)

    def next_given(self) -> tuple[Given, ...]:
        """Return the records of a mini-batch, across tasks; at the end of the data fewer, and then none."""
        with self._lock:
            found: list[Given] = []
            while len(found) < self._batch_size and self._fill():
                found.append(self._left.popleft())
            return tuple(found)

    def _fill(self) -> bool:
        while not self._left and not self._is_at_end:
            task = self._client.get_task(self._dataset, wait=self._may_wait())
            if task is None:
                self._is_at_end = True
            else:
                self._pending[task.number] = _Held(task)
                self._left.extend(Given(task.number, Record(task.epoch - 1, index)) for index in task.records)
        return bool(self._left)

    def deliver(self, batch: Sequence[Given]) -> None:
        """Note that the program has these records: it reports them next, behind what it had before."""
        with self._lock:
            self._delivered.extend((given.task, 1) for given in batch)

    def put_back(self, batch: Sequence[Given]) -> None:
        """Take back records that the program has not had: they are the next ones, unless their task was given back."""
        with self._lock:
            self._left.extendleft(given for given in reversed(batch) if given.task in self._pending)

    def report(self, num_records: int | None, error: str) -> bool:
        """Note that so many records are done, of those that the program has the oldest first.

        Args:
            num_records: how many; a mini-batch if it is not said.
            error: all tasks that they are of are to be done again.

        Returns:
            Whether tasks were completed by it.
        """
        done: list[_Held] = []
        with self._lock:
            num_left = num_records or self._batch_size
            while num_left > 0 and self._delivered:
                number, num_delivered = self._delivered.popleft()
                num_now = min(num_left, num_delivered)
                num_left -= num_now
                if num_now < num_delivered:
                    self._delivered.appendleft((number, num_delivered - num_now))
                held = self._pending.get(number)
                if held is not None:
                    held.num_reported += num_now
                    held.error = held.error or error
                    if held.num_reported >= held.task.num_records:
                        done.append(self._pending.pop(number))
            if any(held.error for held in done):
                # They come again, perhaps to this worker.
                self._is_at_end = False
        for held in done:
            self._client.report_task_result(held.task.number, self._dataset, held.error)
        return bool(done)

    def report_all(self, error: str) -> None:
        """Give all tasks back that are not reported."""
        with self._lock:
            given_back = list(self._pending)
            self._pending.clear()
            self._left.clear()
            self._delivered.clear()
            self._is_at_end = False
        for number in given_back:
            self._client.report_task_result(number, self._dataset, error)


class AsAsked:
    """One pass of a loader whose processes take what comes next; nobody knows what of it they have brought.

    Args:
        take: returns whose records they are, at the first one.

    Attributes:
        is_closed: whether nothing is handed out any more.
    """

    def __init__(self, take: Callable[[], HandedOut]) -> None:
        self._take = take
        self._turn = threading.Lock()
        self.is_closed = False

    def ask(self, number: int) -> tuple[Record, ...] | None:  # noqa: ARG002 - the processes count each for themselves
        """Return the records of the next batch; None at the end, and when the pass is over."""
        # Under the lock, so that a process that still runs takes nothing of what was just given back.
        with self._turn:
            return None if self.is_closed else self._take().next_batch() or None

    def end(self) -> None:
        """Note that the loader has brought all that was handed out."""
        with self._turn:
            self.is_closed = True

    def close(self) -> None:
        """Hand nothing out any more, and give all tasks back that are not reported. After the end it does nothing."""
        with self._turn:
            if not self.is_closed:
                self.is_closed = True
                self._take().report_all("the loop over the loader was left before its end")


class InOrder:
    """The batches of one pass of a loader, handed out in the loader's order, whichever process asks first.

    At the end of the data a loader throws away what it has of a batch, and all that comes behind. So only the last
    batch may be short, and it is filled with its last record; who has it from the loader cuts it again. What the loader
    has not brought when the pass is over is taken back, for the next one.

    Args:
        take: returns whose batches they are, at the first one.
        batch_size: of all but the last.

    Attributes:
        is_closed: whether nothing is handed out any more.
    """

    def __init__(self, take: Callable[[], HandedOut], batch_size: int) -> None:
        self._take = take
        self._batch_size = batch_size
        self._turn = threading.Condition()
        self._next = 0
        self.is_closed = False
        self._sizes: dict[int, int] = {}
        self._under_way: dict[int, tuple[Given, ...]] = {}

    def ask(self, number: int) -> tuple[Record, ...] | None:
        """Return the records of a batch by its number, when those before it are handed out; None at the end."""
        with self._turn:
            self._turn.wait_for(lambda: self._next >= number or self.is_closed)
            if self.is_closed:
                return None
            batch = self._take().next_given()
            if batch:
                self._under_way[number] = batch
            self._next = max(self._next, number + 1)
            self._turn.notify_all()
        records = tuple(given.record for given in batch)
        if 0 < len(records) < self._batch_size:
            self._sizes[number] = len(records)
            records += records[-1:] * (self._batch_size - len(records))
        return records or None

    def deliver(self, number: int) -> None:
        """Note that the loader has brought a batch to the program."""
        batch = self._under_way.pop(number, None)
        if batch is not None:
            self._take().deliver(batch)

    def size_of(self, number: int) -> int | None:
        """Return how many records a batch has that was filled, None if it was not."""
        return self._sizes.get(number)

    def close(self) -> None:
        """Hand nothing out any more, also to those who wait, and take back what the loader has not brought."""
        with self._turn:
            self.is_closed = True
            self._turn.notify_all()
            batches = [self._under_way[number] for number in sorted(self._under_way)]
            self._under_way.clear()
        if batches:
            self._take().put_back([given for batch in batches for given in batch])
