"""The sources of a data shard service's records: a class for each kind, and one interface for the next batch.

A service whose records a controller trains has a `PlannedSource`: the runtime knows this worker's micro-batches. Any
other service has a `TaskSource`, which hands out the driver's tasks. The process that needs the next batch, the
program's or a loader process, has a `Feed`, which asks the source of the program's process.
"""

from __future__ import annotations

import abc
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from torch.utils.data import get_worker_info

from legato.compat.elasticdl.client import take_client
from legato.compat.elasticdl.forms import ServiceForm
from legato.compat.elasticdl.loader_server import Address, LoaderClient
from legato.compat.elasticdl.shards import Shard, shard_of, write_checkpoint
from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_queue import OrderedPass, TaskQueue, UnorderedPass
from legato.compat.elasticdl.task_types import DatasetParams, Task, TaskKind, default_name
from legato.compat.elasticdl.tasks_client import TasksClient
from legato.compat.elasticdl.training import Training
from legato.core.errors import UsageError

Batch = tuple[Record, ...]


class LoaderPass(Protocol):
    """One pass of a loader over the records of a source."""

    @property
    def is_ordered(self) -> bool:
        """Whether its batches are numbered from 0, in the order in which the loader brings them."""
        ...

    def start(self, num_processes: int, may_come: Callable[[], bool]) -> None:
        """Record that the loader's processes run.

        Args:
            num_processes: of them.
            may_come: whether all of them may still send requests.
        """
        ...

    def deliver(self, number: int) -> int | None:
        """Record that the loader has returned a batch; return how many of its records count, None for all."""
        ...

    def end(self) -> None:
        """Record that the loader has reached the end of its data."""
        ...

    def close(self) -> None:
        """End the pass. Takes no lock and sends nothing, because a finaliser calls it."""
        ...


class RecordSource(abc.ABC):
    """The source of one service's records, in the process of the program.

    Attributes:
        training: of the records; None if they are handed out.
        generation: the pass to which loader processes that start now belong; 0 for none.
    """

    training: Training | None = None
    generation = 0

    @abc.abstractmethod
    def begin_pass(self, num_processes: int, *, is_ordered: bool) -> LoaderPass | None:
        """Begin a pass of a loader, before its processes are started.

        Args:
            num_processes: of the loader.
            is_ordered: its batches are those of the service, in their order.

        Returns:
            None if the pass need not be tracked.
        """

    @abc.abstractmethod
    def end_beginning(self) -> None:
        """Record that the loader's processes are started: a later process belongs to a loader that did not register."""

    @abc.abstractmethod
    def ask(self, number: int, generation: int, *, is_direct: bool) -> Batch | None:
        """Return the records of a batch, None at the end of the data; waits until either is known.

        Args:
            number: of the batch, in its pass.
            generation: of the pass, 0 if it is not known.
            is_direct: the program's own process requests it, so it has all earlier batches. False: a thread requests it
                for a loader process.
        """

    @property
    @abc.abstractmethod
    def has_handed_out(self) -> bool:
        """Whether tasks were handed out, or the records continue from a checkpoint of tasks."""

    @abc.abstractmethod
    def report(self, num_records: int | None, error: str) -> bool:
        """Record that a number of records is done, by default a mini-batch; return whether this completed a task."""

    @abc.abstractmethod
    def report_all(self, error: str) -> None:
        """Return all unreported tasks to the driver."""

    @abc.abstractmethod
    def current_epoch(self) -> int:
        """Return the epoch, from 1."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Restart the data set."""

    @abc.abstractmethod
    def checkpoint(self) -> str:
        """Return which records are not done, as JSON."""

    @abc.abstractmethod
    def restore(self, checkpoint: str) -> bool:
        """Continue from a checkpoint of tasks; return False if it is of another version."""


# ------------------------------------------------------------ planned


class PlannedSource(RecordSource):
    """Records that a controller trains: those of the micro-batches that the runtime gives to this worker.

    Args:
        training: of the records.
        join: called to join the job, when the loader runs.
        wait_for_loaders: waits for (number of processes, generation, whether they may still come).
        dataset: name of the data set.
        records_per_task: records of a task, as a checkpoint counts them.
    """

    training: Training

    def __init__(
        self,
        training: Training,
        join: Callable[[], None],
        wait_for_loaders: Callable[[int, int, Callable[[], bool]], None],
        dataset: str,
        records_per_task: int,
    ) -> None:
        self.training = training
        self._join = join
        self._wait_for_loaders = wait_for_loaders
        self._dataset = dataset
        self._records_per_task = records_per_task
        _trainings.append(training)

    def begin_pass(self, num_processes: int, *, is_ordered: bool) -> LoaderPass:  # noqa: ARG002 - tickets give the order
        """Begin a pass."""
        self.generation = self.training.plan.begin_generation()
        return _PlannedPass(self.training, self._join, self._wait_for_loaders, self.generation)

    def end_beginning(self) -> None:
        """Do nothing: processes that come later belong to the same pass."""

    def ask(self, number: int, generation: int, *, is_direct: bool) -> Batch | None:
        """Return the records of a ticket."""
        # A loader that did not register has no generation: its data set hides the service.
        if not self.training.has_begun and (is_direct or not generation):
            self._join()
        return self.training.plan.ask(number, generation, is_direct=is_direct)

    @property
    def has_handed_out(self) -> bool:
        """Always False: nothing is handed out."""
        return False

    def report(self, num_records: int | None, error: str) -> bool:  # noqa: ARG002 - the runtime knows what is done
        """Return whether the present step completes a task; nothing is reported."""
        per_task = self._records_per_task // self.training.stream.batch_size
        return self.training.has_stepped and self.training.place % per_task < self.training.num_micro_batches

    def report_all(self, error: str) -> None:
        """Do nothing: the runtime knows what is done."""

    def current_epoch(self) -> int:
        """Return the epoch that is trained."""
        stream = self.training.stream
        return min(self.training.place * stream.batch_size // stream.num_records, stream.num_epochs - 1) + 1

    def reset(self) -> None:
        """Raise UsageError."""
        raise UsageError("A data set that a controller trains cannot be reset. Make a service for each training.")

    def checkpoint(self) -> str:
        """Return the position in the stream."""
        return write_checkpoint(self.training.stream, self.training.place, self._dataset, self._records_per_task)

    def restore(self, checkpoint: str) -> bool:  # noqa: ARG002 - none is
        """Raise UsageError."""
        raise UsageError(
            "Records of a training that has a controller cannot be restored. Restore them before the controller is "
            "made; a job that resumes (legato run --resume) does so by itself."
        )


class _PlannedPass:
    """One pass of a loader over planned records; see `LoaderPass`."""

    is_ordered: Final = True

    def __init__(
        self,
        training: Training,
        join: Callable[[], None],
        wait_for_loaders: Callable[[int, int, Callable[[], bool]], None],
        generation: int,
    ) -> None:
        self._training = training
        self._join = join
        self._wait_for_loaders = wait_for_loaders
        self._generation = generation

    def start(self, num_processes: int, may_come: Callable[[], bool]) -> None:
        """Join the job once the processes have sent requests: then no worker waits for their start."""
        if num_processes:
            self._wait_for_loaders(num_processes, self._generation, may_come)
        self._join()

    def deliver(self, number: int) -> None:  # noqa: ARG002 - the plan counts
        """Record that the loader has returned a batch; the training counts its records."""
        self._training.plan.deliver()

    def end(self) -> None:
        """Do nothing: the plan knows the end."""

    def close(self) -> None:
        """Do nothing: the next pass takes the tickets back."""


def may_wait() -> bool:
    """Return whether this worker may wait for tasks that others have.

    In a planned training others may wait for this worker's next step while they have the tasks.
    """
    return not any(training.has_begun and not training.plan.is_closed for training in _trainings)


_trainings: Final[list[Training]] = []


# ------------------------------------------------------------ handed out


class TaskSource(RecordSource):
    """Records of tasks that the driver hands out.

    Args:
        form: the program's description of its data.
    """

    def __init__(self, form: ServiceForm) -> None:
        self._form = form
        self._task_queue: TaskQueue | None = None
        self._in_order: OrderedPass | None = None
        self._passes: dict[int, OrderedPass | UnorderedPass] = {}
        self._num_passes = 0
        self._lock = threading.Lock()

    @property
    def dataset(self) -> str:
        """The name of the data set."""
        return self._form.dataset_name or default_name(TaskKind(self._form.task_type))

    def begin_pass(self, num_processes: int, *, is_ordered: bool) -> LoaderPass | None:
        """Begin a pass. Requests no tasks: the processes may be forked."""
        begun: OrderedPass | UnorderedPass
        if is_ordered:
            if self._in_order is not None:
                self._in_order.close()
            self._in_order = begun = OrderedPass(self._queue, self._form.batch_size)
        elif num_processes:
            begun = UnorderedPass(self._queue)
        else:
            return None
        self._num_passes += 1
        self.generation = self._num_passes
        self._passes = {number: known for number, known in self._passes.items() if not known.is_closed}
        self._passes[self.generation] = begun
        return begun

    def end_beginning(self) -> None:
        """Record that the loader's processes are started."""
        self.generation = 0

    def ask(self, number: int, generation: int, *, is_direct: bool) -> Batch | None:
        """Return the records of a batch."""
        known: OrderedPass | UnorderedPass | None
        if is_direct:
            known = self._in_order if self._in_order is not None and not self._in_order.is_closed else None
        elif generation:
            known = self._passes.get(generation)
            if known is None:
                # A process of an earlier loop, which has not ended yet.
                return None
        else:
            known = None
        return self._queue().next_batch() or None if known is None else known.ask(number)

    def next_shard(self) -> Shard | None:
        """Return the next task, None at the end of the data."""
        task = self._queue().next_task()
        return None if task is None else shard_of(task)

    @property
    def newest(self) -> Task | None:
        """The newest task that is not reported."""
        return self._queue().newest

    @property
    def oldest(self) -> Task | None:
        """The oldest task that is not reported."""
        return self._queue().oldest

    @property
    def has_handed_out(self) -> bool:
        """Whether the driver has begun an epoch."""
        return self._task_queue is not None and self.current_epoch() > 0

    def report(self, num_records: int | None, error: str) -> bool:
        """Record that records are done."""
        return self._queue().report(num_records, error)

    def report_all(self, error: str) -> None:
        """Return all unreported tasks to the driver."""
        self._queue().report_all(error)

    def current_epoch(self) -> int:
        """Return the epoch from which tasks are handed out."""
        self._queue()
        return self._client.get_dataset_epoch(self.dataset)

    def reset(self) -> None:
        """Restart the data set."""
        self._queue()
        self._client.reset_dataset(self.dataset)
        self._task_queue = None

    def checkpoint(self) -> str:
        """Return which tasks are not done."""
        self._queue()
        return self._client.get_checkpoint(self.dataset)

    def restore(self, checkpoint: str) -> bool:
        """Continue from a checkpoint."""
        self._queue()
        return self._client.restore_checkpoint(checkpoint)

    def _queue(self) -> TaskQueue:
        """Return the tasks of this worker; the first call registers the data set with the driver."""
        handed = self._task_queue
        if handed is None:
            # Not under the lock, because this sends a request to the driver. A second registration has no effect.
            self._register()
            made = TaskQueue(self._client, self.dataset, self._form.batch_size, may_wait)
            with self._lock:
                if self._task_queue is None:
                    self._task_queue = made
                handed = self._task_queue
        return handed

    def _register(self) -> None:
        form = self._form
        if form.num_epochs and form.dataset_size:
            params = DatasetParams(
                name=self.dataset,
                batch_size=form.batch_size,
                num_epochs=form.num_epochs,
                dataset_size=form.dataset_size,
                shuffle=form.shuffle,
                shuffle_shards=form.shuffle_shards,
                num_minibatches_per_shard=form.num_minibatches_per_shard,
                kind=TaskKind(form.task_type),
            )
            self._client.report_params(params)

    @property
    def _client(self) -> TasksClient:
        return take_client()


# ------------------------------------------------------------ the next batch, in any process


class Feed:
    """The records of one process, one by one.

    Args:
        batch_size: of a batch.
        ask: a function of (number of a batch, generation), which returns None at the end.
        generation: of the loader.
        place: number of this loader process, and how many there are.
    """

    def __init__(
        self,
        batch_size: int,
        ask: Callable[[int, int], Batch | None],
        generation: int,
        place: tuple[int, int] = (0, 1),
    ) -> None:
        self.generation = generation
        self._batch_size = batch_size
        self._ask = ask
        self._index, self._num_processes = place
        self._num_batches = 0
        self._left: deque[Record] = deque()

    def next_batch(self) -> Batch:
        """Return the records of this process's next batch; empty at the end."""
        if self._left:
            found = tuple(self._left)
            self._left.clear()
            return found
        number = self._num_batches * self._num_processes + self._index
        records = self._ask(number, self.generation)
        if records:
            self._num_batches += 1
        return records or ()

    def next_record(self) -> Record | None:
        """Return the next record, None at the end."""
        if not self._left:
            self._left.extend(self.next_batch())
        return self._left.popleft() if self._left else None


def feed_of_loader(batch_size: int, address: Address, generation: int) -> Feed:
    """Return the feed of this process, which is a loader process."""
    info = get_worker_info()
    place = (0, 1) if info is None else (info.id, info.num_workers)
    return Feed(batch_size, LoaderClient(address).ask, generation, place)
