"""Hands out the records of the driver's tasks to one worker, in the order in which the tasks came, and reports them.

Each record is handed out at least once: tasks of a worker that is gone are handed out again. A record counts as done
only if the program has received it, even if a loader has loaded later ones. Knows nothing of training and loaders.

Two rules prevent deadlocks. No lock is held during a request to the driver: a separate thread sends it, and loader
processes wait for a condition, which the end of their loop wakes. And functions for finalisers take no lock: the
garbage collector may end a loop's generator on any thread, at any moment, inside of any lock. So `close` of a pass sets
a flag, and puts the rest of its work into a queue that finalisers may use. A thread does that work.
"""

from __future__ import annotations

import abc
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_types import Task
from legato.compat.elasticdl.tasks_client import TasksClient
from legato.core.errors import LegatoError

_log = logging.getLogger(__name__)

_LEFT: Final = "the loop over the loader was left before its end"


class QueuedRecord(NamedTuple):
    """A record, and the number of the task that it came with."""

    task: int
    record: Record


@dataclass
class _Held:
    task: Task
    num_reported: int = 0
    error: str = ""


class Pass(abc.ABC):
    """One pass of a loader over records that are handed out.

    Args:
        take: returns the queue of the records; not called before the first request for records.

    Attributes:
        is_closed: whether no more records are handed out.
        is_ordered: whether its batches are numbered from 0, in the order in which the loader returns them.
    """

    is_ordered = False

    def __init__(self, take: Callable[[], TaskQueue]) -> None:
        self._take = take
        self._task_queue: TaskQueue | None = None
        self.is_closed = False

    def start(self, num_processes: int, may_come: Callable[[], bool]) -> None:  # noqa: B027 - nothing is waited for
        """Do nothing: the pass does not wait for the loader's processes."""

    def deliver(self, number: int) -> int | None:  # noqa: ARG002 - delivered when it was requested
        """Record that the loader has returned a batch; return how many of its records count, None for all."""
        return None

    def end(self) -> None:  # noqa: B027 - `close` does what a pass with an order needs
        """Record that the loader has reached the end of its data."""

    def close(self) -> None:
        """Hand out no more records, also to waiting requests, and take back records that were not delivered.

        Does nothing if the pass is closed. Takes no lock and sends no requests, because a finaliser calls it.
        """
        if not self.is_closed:
            self.is_closed = True
            if self._task_queue is not None:
                self._task_queue.leave(self)

    @abc.abstractmethod
    def undo(self) -> None:
        """Take back records that the loader has not returned. Called once, with the lock of the `TaskQueue` held."""


class TaskQueue:
    """The tasks of one data set that one worker has.

    Args:
        client: hands them out.
        dataset: name of the data set.
        batch_size: number of records of a mini-batch.
        may_wait: returns whether this worker may wait now for tasks that other workers have.
    """

    def __init__(
        self, client: TasksClient, dataset: str, batch_size: int, may_wait: Callable[[], bool] = lambda: True
    ) -> None:
        self._client = client
        self._dataset = dataset
        self._batch_size = batch_size
        self._may_wait = may_wait
        self._changed = threading.Condition(threading.Lock())
        self._pending: dict[int, _Held] = {}
        self._left: deque[QueuedRecord] = deque()
        # Records that the program has and has not reported: the number of a task, and how many of its records.
        self._delivered: deque[tuple[int, int]] = deque()
        self._is_at_end = False
        self._is_asking = False
        self._num_asking = 0  # requests that wait for records now
        self._num_restarts = 0  # how often all tasks were given back
        self._error: Exception | None = None
        # Numbers of tasks that the driver must hand out again, and why. They are sent before the next request.
        self._to_give_back: deque[tuple[int, str]] = deque()
        self._left_passes: queue.SimpleQueue[Pass] = queue.SimpleQueue()
        _watch_left_loops()

    @property
    def oldest(self) -> Task | None:
        """The oldest task that is not reported."""
        held = next(iter(tuple(self._pending.values())), None)
        return None if held is None else held.task

    @property
    def newest(self) -> Task | None:
        """The newest task that is not reported."""
        held = next(reversed(tuple(self._pending.values())), None)
        return None if held is None else held.task

    def next_task(self) -> Task | None:
        """Deliver the next task to the program; return None at the end of the data."""
        self.settle()
        task = self._client.get_task(self._dataset, wait=self._may_wait())
        if task is not None:
            with self._changed:
                self._pending[task.number] = _Held(task)
                self._delivered.append((task.number, task.num_records))
        return task

    def next_batch(self) -> tuple[Record, ...]:
        """Deliver the records of a mini-batch to the program; see `take`."""
        return tuple(queued.record for queued in self.take(self.note_delivered))

    def take(
        self,
        note: Callable[[tuple[QueuedRecord, ...]], None],
        *,
        is_over: Callable[[], bool] = lambda: False,
        is_turn: Callable[[], bool] = lambda: True,
    ) -> tuple[QueuedRecord, ...]:
        """Return the records of a mini-batch, across tasks; at the end of the data fewer, and then none.

        Args:
            note: called with the records, and with the lock held, at the moment at which they are taken.
            is_over: whether the pass is over: then this returns no records at once, and does not call ``note``.
            is_turn: whether records may be taken now; otherwise this waits.

        Raises:
            LegatoError: the driver does not answer, or refuses the request.
        """
        with self._changed:
            self._num_asking += 1
            try:
                while True:
                    self._undo_left_passes()
                    if is_over():
                        return ()
                    if is_turn() and (len(self._left) >= self._batch_size or self._is_at_end):
                        batch = tuple(self._left.popleft() for _ in range(min(self._batch_size, len(self._left))))
                        note(batch)
                        return batch
                    if self._error is not None:
                        raise self._error
                    if is_turn() and not self._is_asking:
                        threading.Thread(target=self._ask, name="legato-tasks", daemon=True).start()
                        self._is_asking = True
                    self._changed.wait()
            finally:
                self._num_asking -= 1
                if not self._num_asking:
                    self._error = None
                self._changed.notify_all()

    def _ask(self) -> None:
        """Ask the driver for one task, on a separate thread."""
        task, error = None, None
        try:
            self.settle()
            num_restarts = self._num_restarts
            task = self._client.get_task(self._dataset, wait=self._may_wait())
        except Exception as problem:  # noqa: BLE001 - raised where the records are waited for
            error = problem
        with self._changed:
            self._is_asking = False
            self._undo_left_passes()
            if error is not None:
                self._error = error if self._num_asking else None
            elif task is None:
                # If all tasks were given back meanwhile, this answer is out of date.
                self._is_at_end = num_restarts == self._num_restarts
            elif self._num_asking:
                self._pending[task.number] = _Held(task)
                self._left.extend(QueuedRecord(task.number, Record(task.epoch - 1, index)) for index in task.records)
            else:
                # The loop that requested the task was left meanwhile. Other workers may wait for the task.
                self._to_give_back.append((task.number, _LEFT))
                _left_loops.put(self)
            self._changed.notify_all()

    def deliver(self, batch: Sequence[QueuedRecord]) -> None:
        """Record that the program has these records: it reports them after those that it already has."""
        with self._changed:
            self.note_delivered(batch)

    def note_delivered(self, batch: Sequence[QueuedRecord]) -> None:
        """Do the same as `deliver`. Called with the lock held."""
        self._delivered.extend((queued.task, 1) for queued in batch)

    def put_back(self, batch: Sequence[QueuedRecord]) -> None:
        """Take back records that the program has not received: they come next, unless their task was given back.

        Called with the lock held.
        """
        self._left.extendleft(queued for queued in reversed(batch) if queued.task in self._pending)

    def leave(self, left: Pass) -> None:
        """Record that a loop was left: its undelivered records are taken back later. Takes no lock: for finalisers."""
        self._left_passes.put(left)
        _left_loops.put(self)

    def settle(self) -> None:
        """Take back the undelivered records of loops that were left, and report to the driver the tasks given back."""
        while True:
            with self._changed:
                self._undo_left_passes()
                if not self._to_give_back:
                    return
                number, error = self._to_give_back[0]
            # Two threads may report the same task at once: the driver ignores the second report.
            self._client.report_task_result(number, self._dataset, error)
            with self._changed:
                if self._to_give_back and self._to_give_back[0] == (number, error):
                    self._to_give_back.popleft()

    def _undo_left_passes(self) -> None:
        """Take back the undelivered records of loops that were left. Called with the lock held."""
        while not self._left_passes.empty():
            self._left_passes.get().undo()
            self._changed.notify_all()

    def report(self, num_records: int | None, error: str) -> bool:
        """Record that records are done: the oldest ones that the program has.

        Args:
            num_records: how many; None or 0 for a mini-batch.
            error: if not empty, all tasks of these records must be done again.

        Returns:
            Whether this completed a task.
        """
        done: list[_Held] = []
        with self._changed:
            self._undo_left_passes()
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
                # The driver hands these tasks out again, perhaps to this worker.
                self._is_at_end = False
        for held in done:
            self._client.report_task_result(held.task.number, self._dataset, held.error)
        return bool(done)

    def report_all(self, error: str) -> None:
        """Give back all tasks that are not reported."""
        with self._changed:
            self.give_all_back(error)
        self.settle()

    def give_all_back(self, error: str) -> None:
        """Record that all unreported tasks are given back; `settle` reports it. Called with the lock held."""
        self._to_give_back.extend((number, error) for number in self._pending)
        self._pending.clear()
        self._left.clear()
        self._delivered.clear()
        self._is_at_end = False
        self._num_restarts += 1
        self._changed.notify_all()


class UnorderedPass(Pass):
    """One pass of a loader whose processes take the next records; which of them the loader has returned is unknown."""

    def ask(self, number: int) -> tuple[Record, ...] | None:  # noqa: ARG002 - the processes count each for themselves
        """Return the records of the next batch; None at the end, and when the pass is over."""
        if self.is_closed:
            return None
        tasks = self._task_queue = self._take()
        found = tasks.take(tasks.note_delivered, is_over=lambda: self.is_closed)
        return tuple(queued.record for queued in found) or None

    def end(self) -> None:
        """Record that the loader has returned all records: none are taken back."""
        self.is_closed = True

    def undo(self) -> None:
        """Give back all unreported tasks."""
        assert self._task_queue is not None
        self._task_queue.give_all_back(_LEFT)


class OrderedPass(Pass):
    """The batches of one pass of a loader, handed out in the loader's order, whichever process asks first.

    At the end of the data a loader drops an incomplete batch and everything after it. So only the last batch may be
    short, and it is filled up with its last record; `legato.compat.elasticdl.loading` cuts it when the loader returns
    it. Records that the loader has not returned when the pass is over are taken back, for the next pass.

    Args:
        take: as for `Pass`.
        batch_size: number of records of each batch but the last.
    """

    is_ordered = True

    def __init__(self, take: Callable[[], TaskQueue], batch_size: int) -> None:
        super().__init__(take)
        self._batch_size = batch_size
        self._next = 0
        self._sizes: dict[int, int] = {}
        self._under_way: dict[int, tuple[QueuedRecord, ...]] = {}

    def ask(self, number: int) -> tuple[Record, ...] | None:
        """Return the records of a batch, once the batches before it are handed out; None at the end."""
        if self.is_closed:
            return None
        tasks = self._task_queue = self._take()

        def note(batch: tuple[QueuedRecord, ...]) -> None:
            if batch:
                self._under_way[number] = batch
            self._next = max(self._next, number + 1)

        batch = tasks.take(note, is_over=lambda: self.is_closed, is_turn=lambda: self._next >= number)
        records = tuple(queued.record for queued in batch)
        if 0 < len(records) < self._batch_size:
            self._sizes[number] = len(records)
            records += records[-1:] * (self._batch_size - len(records))
        return records or None

    def deliver(self, number: int) -> int | None:
        """Record that the loader has returned a batch; return its number of records if it was filled up, else None."""
        batch = self._under_way.pop(number, None)
        if batch is not None and self._task_queue is not None:
            self._task_queue.deliver(batch)
        return self._sizes.get(number)

    def undo(self) -> None:
        """Take back records that the loader has not returned."""
        assert self._task_queue is not None
        batches = [self._under_way[number] for number in sorted(self._under_way)]
        self._under_way.clear()
        self._task_queue.put_back([queued for batch in batches for queued in batch])


_left_loops: Final[queue.SimpleQueue[TaskQueue]] = queue.SimpleQueue()
"""Task queues whose loops were left. A finaliser may call `SimpleQueue.put`, even inside of another call of it."""
_watching: Final[list[int]] = []
_starting: Final = threading.Lock()


def _watch_left_loops() -> None:
    """Start the thread that does the work that finalisers leave; one for each process."""
    with _starting:
        if _watching != [os.getpid()]:
            _watching[:] = [os.getpid()]
            threading.Thread(target=_settle_forever, name="legato-left-loops", daemon=True).start()


def _settle_forever() -> None:
    while True:
        tasks = _left_loops.get()
        try:
            tasks.settle()
        except LegatoError as error:
            # The driver does not answer. When this worker ends, its tasks are handed out again.
            _log.warning("Cannot give back the tasks of a loop that was left: %s", error)
        del tasks
