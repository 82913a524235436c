"""Records that are handed out: tasks of the driver, processed in the order in which they came, and reported.

At least once: what a worker had that is gone is handed out again, and done is only what the program has had, whatever
a loader had loaded ahead. Knows nothing of training and loaders.

Two rules make deadlocks impossible. Nothing is held while the driver is asked: a thread of its own asks, and loader
processes wait for a condition, from which the end of their loop frees them. And what a finaliser may call takes no
lock: the garbage collector may end a loop's generator on any thread, at any moment, within any lock. So `close` of a
pass sets a flag, and puts the rest into a queue that is made for finalisers. A thread works that off.
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
    """One pass of a loader over what is handed out.

    Args:
        take: returns whose records they are, at the first one.

    Attributes:
        is_closed: whether nothing is handed out any more.
        is_ordered: whether its batches are numbered from 0, in the order in which the loader brings them.
    """

    is_ordered = False

    def __init__(self, take: Callable[[], TaskQueue]) -> None:
        self._take = take
        self._task_queue: TaskQueue | None = None
        self.is_closed = False

    def start(self, num_processes: int, may_come: Callable[[], bool]) -> None:  # noqa: B027 - nothing is waited for
        """Do nothing when the loader's processes run."""

    def deliver(self, number: int) -> int | None:  # noqa: ARG002 - delivered as it was asked for
        """Note that the loader has brought a batch to the program; returns how many of its records count, or None."""
        return None

    def end(self) -> None:  # noqa: B027 - `close` does what a pass with an order needs
        """Note that the loader has come to the end of its data."""

    def close(self) -> None:
        """Hand nothing out any more, also to those who wait, and take back what is not done. At the end: do nothing.

        Takes no lock and sends no requests, because a finaliser calls it.
        """
        if not self.is_closed:
            self.is_closed = True
            if self._task_queue is not None:
                self._task_queue.leave(self)

    @abc.abstractmethod
    def undo(self) -> None:
        """Take back what the loader has not brought. Called with the lock of its `TaskQueue` held, once."""


class TaskQueue:
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
        self._changed = threading.Condition(threading.Lock())
        self._pending: dict[int, _Held] = {}
        self._left: deque[QueuedRecord] = deque()
        # What the program has and has not reported: numbers of tasks, and how many of their records.
        self._delivered: deque[tuple[int, int]] = deque()
        self._is_at_end = False
        self._is_asking = False
        self._num_asking = 0  # who waits for records now
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
        """The newest one."""
        held = next(reversed(tuple(self._pending.values())), None)
        return None if held is None else held.task

    def next_task(self) -> Task | None:
        """Return the next task, which the program then has; None at the end of the data."""
        self.settle()
        task = self._client.get_task(self._dataset, wait=self._may_wait())
        if task is not None:
            with self._changed:
                self._pending[task.number] = _Held(task)
                self._delivered.append((task.number, task.num_records))
        return task

    def next_batch(self) -> tuple[Record, ...]:
        """Return the records of a mini-batch, which the program then has; see `take`."""
        return tuple(given.record for given in self.take(self.note_delivered))

    def take(
        self,
        note: Callable[[tuple[QueuedRecord, ...]], None],
        *,
        is_over: Callable[[], bool] = lambda: False,
        is_turn: Callable[[], bool] = lambda: True,
    ) -> tuple[QueuedRecord, ...]:
        """Return the records of a mini-batch, across tasks; at the end of the data fewer, and then none.

        Args:
            note: takes note of them, in the moment in which they are taken; not if ``is_over``.
            is_over: nothing is to be taken any more: this returns none, at once.
            is_turn: nothing is to be taken yet.

        Raises:
            LegatoError: the driver cannot be asked.
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
        """Ask the driver for one task, on a thread of its own."""
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
                # If all was given back meanwhile, that was no answer to what is to be known now.
                self._is_at_end = num_restarts == self._num_restarts
            elif self._num_asking:
                self._pending[task.number] = _Held(task)
                self._left.extend(QueuedRecord(task.number, Record(task.epoch - 1, index)) for index in task.records)
            else:
                # The loop that wanted it was left meanwhile. Others may wait for it.
                self._to_give_back.append((task.number, _LEFT))
                _left_loops.put(self)
            self._changed.notify_all()

    def deliver(self, batch: Sequence[QueuedRecord]) -> None:
        """Note that the program has these records: it reports them next, behind what it had before."""
        with self._changed:
            self.note_delivered(batch)

    def note_delivered(self, batch: Sequence[QueuedRecord]) -> None:
        """Note the same with the lock held."""
        self._delivered.extend((given.task, 1) for given in batch)

    def put_back(self, batch: Sequence[QueuedRecord]) -> None:
        """Take back records that the program has not had: they are the next ones, unless their task was given back.

        Called with the lock held.
        """
        self._left.extendleft(given for given in reversed(batch) if given.task in self._pending)

    def leave(self, left: Pass) -> None:
        """Note that a loop was left, so that what it has not brought is taken back. Takes no lock: for finalisers."""
        self._left_passes.put(left)
        _left_loops.put(self)

    def settle(self) -> None:
        """Take back what loops that were left have not brought, and tell the driver what is to be handed out again."""
        while True:
            with self._changed:
                self._undo_left_passes()
                if not self._to_give_back:
                    return
                number, error = self._to_give_back[0]
            # Said twice if two threads do this at once: the driver skips what it knows.
            self._client.report_task_result(number, self._dataset, error)
            with self._changed:
                if self._to_give_back and self._to_give_back[0] == (number, error):
                    self._to_give_back.popleft()

    def _undo_left_passes(self) -> None:
        """Called with the lock held."""
        while not self._left_passes.empty():
            self._left_passes.get().undo()
            self._changed.notify_all()

    def report(self, num_records: int | None, error: str) -> bool:
        """Note that so many records are done, of those that the program has the oldest first.

        Args:
            num_records: how many; a mini-batch if it is not said.
            error: all tasks that they are of are to be done again.

        Returns:
            Whether tasks were completed by it.
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
                # They come again, perhaps to this worker.
                self._is_at_end = False
        for held in done:
            self._client.report_task_result(held.task.number, self._dataset, held.error)
        return bool(done)

    def report_all(self, error: str) -> None:
        """Give all tasks back that are not reported."""
        with self._changed:
            self.give_all_back(error)
        self.settle()

    def give_all_back(self, error: str) -> None:
        """Note that all tasks that are not reported are given back. Called with the lock held; `settle` tells it."""
        self._to_give_back.extend((number, error) for number in self._pending)
        self._pending.clear()
        self._left.clear()
        self._delivered.clear()
        self._is_at_end = False
        self._num_restarts += 1
        self._changed.notify_all()


class UnorderedPass(Pass):
    """One pass of a loader whose processes take what comes next; what of it they have brought is unknown."""

    def ask(self, number: int) -> tuple[Record, ...] | None:  # noqa: ARG002 - the processes count each for themselves
        """Return the records of the next batch; None at the end, and when the pass is over."""
        if self.is_closed:
            return None
        handed = self._task_queue = self._take()
        found = handed.take(handed.note_delivered, is_over=lambda: self.is_closed)
        return tuple(given.record for given in found) or None

    def end(self) -> None:
        """Note that the loader has brought all that was handed out: nothing is to be taken back."""
        self.is_closed = True

    def undo(self) -> None:
        """Give all tasks back."""
        assert self._task_queue is not None
        self._task_queue.give_all_back(_LEFT)


class OrderedPass(Pass):
    """The batches of one pass of a loader, handed out in the loader's order, whichever process asks first.

    At the end of the data a loader throws away what it has of a batch, and all that comes behind. So only the last
    batch may be short, and it is filled with its last record; who has it from the loader cuts it again. What the loader
    has not brought when the pass is over is taken back, for the next one.

    Args:
        take: as of `Pass`.
        batch_size: of all but the last.
    """

    is_ordered = True

    def __init__(self, take: Callable[[], TaskQueue], batch_size: int) -> None:
        super().__init__(take)
        self._batch_size = batch_size
        self._next = 0
        self._sizes: dict[int, int] = {}
        self._under_way: dict[int, tuple[QueuedRecord, ...]] = {}

    def ask(self, number: int) -> tuple[Record, ...] | None:
        """Return the records of a batch by its number, when those before it are handed out; None at the end."""
        if self.is_closed:
            return None
        handed = self._task_queue = self._take()

        def note(batch: tuple[QueuedRecord, ...]) -> None:
            if batch:
                self._under_way[number] = batch
            self._next = max(self._next, number + 1)

        batch = handed.take(note, is_over=lambda: self.is_closed, is_turn=lambda: self._next >= number)
        records = tuple(given.record for given in batch)
        if 0 < len(records) < self._batch_size:
            self._sizes[number] = len(records)
            records += records[-1:] * (self._batch_size - len(records))
        return records or None

    def deliver(self, number: int) -> int | None:
        """Note that the loader has brought a batch; returns how many records it has if it was filled, else None."""
        batch = self._under_way.pop(number, None)
        if batch is not None and self._task_queue is not None:
            self._task_queue.deliver(batch)
        return self._sizes.get(number)

    def undo(self) -> None:
        """Take back what the loader has not brought."""
        assert self._task_queue is not None
        batches = [self._under_way[number] for number in sorted(self._under_way)]
        self._under_way.clear()
        self._task_queue.put_back([given for batch in batches for given in batch])


_left_loops: Final[queue.SimpleQueue[TaskQueue]] = queue.SimpleQueue()
"""Whose loops were left: `SimpleQueue.put` may be called anywhere, a finaliser within another call of it included."""
_watching: Final[list[int]] = []
_starting: Final = threading.Lock()


def _watch_left_loops() -> None:
    """Have a thread of this process that works off what finalisers leave to do."""
    with _starting:
        if _watching != [os.getpid()]:
            _watching[:] = [os.getpid()]
            threading.Thread(target=_settle_forever, name="legato-left-loops", daemon=True).start()


def _settle_forever() -> None:
    while True:
        handed = _left_loops.get()
        try:
            handed.settle()
        except LegatoError as error:
            # There is no driver. The next one gives the tasks of this worker to others when it ends.
            _log.warning("Cannot give back the tasks of a loop that was left: %s", error)
        del handed
