"""The data shard services that programs make: numbers of records, planned for training or handed out.

A service that is given to a controller is *planned*: the runtime knows which micro-batches are this worker's, and the
service gives their records to the loader. Any other one *hands out* the driver's tasks. See docs/design/0007.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from legato.compat.elasticdl.client import take_client
from legato.compat.elasticdl.forms import read_service
from legato.compat.elasticdl.job_environment import num_minibatches_per_task, num_workers_asked, seed_alike
from legato.compat.elasticdl.loader_server import Address, Office
from legato.compat.elasticdl.loading import Feed, end_forked_with_parent, feed_of_loader, watch_loaders
from legato.compat.elasticdl.shard_checkpoint import read_place, write_checkpoint
from legato.compat.elasticdl.shards import HistoricTask, Shard, cut, historic, shard_of
from legato.compat.elasticdl.stream import Record, Stream
from legato.compat.elasticdl.task_queue import AsAsked, HandedOut, InOrder
from legato.compat.elasticdl.task_words import DatasetParams, TaskKind, default_name
from legato.compat.elasticdl.tasks_client import TasksClient
from legato.compat.elasticdl.training import Training
from legato.core.errors import UsageError
from legato.train.data.seeds import seed_sample

_NONE: Final = 0


class DataShardService:
    """Shards of a data set, for this worker.

    Its arguments are those of all releases: ``batch_size``, ``num_epochs``, ``dataset_size``, ``shuffle``,
    ``shuffle_shards``, ``task_type``, ``num_minibatches_per_shard``, ``dataset_name``; see `forms`.

    Raises:
        UsageError: the numbers make no sense.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._form = read_service(type(self).__name__, args, kwargs)
        _watch()
        self._seed = seed_alike()
        self._owner = os.getpid()
        self._address: Address | None = None
        self._generation = 0
        self._start_place = 0
        self._begin_process()

    def _begin_process(self) -> None:
        self.batch_size = self._form.batch_size
        self.training: Training | None = None
        self._join: Callable[[], None] | None = None
        self._handed: HandedOut | None = None
        self._pass: InOrder | None = None
        self._passes: dict[int, InOrder | AsAsked] = {}
        self._num_loops = 0
        self._office: Office | None = None
        self._feed: Feed | None = None
        self._feed_owner = 0
        self._shards: deque[tuple[Record, Shard]] = deque()
        self._current: Shard | None = None
        self._lock = threading.Lock()

    # ------------------------------------------------------------ who brings the records

    @property
    def is_planned(self) -> bool:
        """Whether a controller trains these records."""
        return self.training is not None

    @property
    def has_handed_out(self) -> bool:
        """Whether tasks were handed out, or a checkpoint of tasks is gone on from."""
        return self._handed is not None and self.get_current_epoch() > 0

    @property
    def records_per_task(self) -> int:
        """Records of a task, but for the last one of an epoch."""
        return self.batch_size * (self._form.num_minibatches_per_shard or num_minibatches_per_task())

    def plan(self, join: Callable[[], None]) -> Training:
        """Have these records trained.

        Args:
            join: joins the job, when the loader runs.

        Raises:
            UsageError: the service does not know how many records there are, or for how many epochs.
        """
        form = self._form
        if form.num_epochs is None or form.dataset_size is None:
            raise UsageError(
                f"A controller needs to know what there is to train. Give {type(self).__name__} num_epochs and "
                "dataset_size; shards of a master's own --training_data are not supported."
            )
        if form.num_epochs < 1:
            raise UsageError(f"{type(self).__name__}: num_epochs={form.num_epochs} is below 1. Give 1 or more.")
        if self.training is not None:
            raise UsageError("This data shard service has a controller already. Make one of its own for each.")
        stream = Stream(
            form.dataset_size,
            form.num_epochs,
            form.batch_size,
            seed=self._seed,
            records_per_task=self.records_per_task,
            shuffle=form.shuffle,
            shuffle_shards=form.shuffle_shards,
        )
        self._join = join
        self.training = Training(stream, self._seed, num_workers_asked(), self._epoch_of, self._start_place)
        _trainings.append(self.training)
        return self.training

    def _epoch_of(self, num_micro_batches: int) -> int:
        return num_micro_batches // max(self.get_minibatch_count_per_epoch(), 1)

    def _hand_out(self) -> HandedOut:
        handed = self._handed
        if handed is None:
            # Not under the lock, for the driver is asked. Registered twice it is registered once.
            self._register()
            made = HandedOut(self._client(), self._dataset, self.batch_size, _may_wait)
            with self._lock:
                if self._handed is None:
                    self._handed = made
                handed = self._handed
        return handed

    def _register(self) -> None:
        form = self._form
        if form.num_epochs and form.dataset_size:
            params = DatasetParams(
                name=self._dataset,
                batch_size=form.batch_size,
                num_epochs=form.num_epochs,
                dataset_size=form.dataset_size,
                shuffle=form.shuffle,
                shuffle_shards=form.shuffle_shards,
                num_minibatches_per_shard=form.num_minibatches_per_shard,
                kind=TaskKind(form.task_type),
            )
            self._client().report_params(params)

    def _client(self) -> TasksClient:
        return take_client()

    @property
    def _dataset(self) -> str:
        return self._form.dataset_name or default_name(TaskKind(self._form.task_type))

    # ------------------------------------------------------------ what loaders ask for

    def begin_loading(self, num_processes: int, *, is_ordered: bool) -> InOrder | AsAsked | None:
        """Take note that a loader begins, before its processes are started; returns what hands out its batches."""
        handing: InOrder | AsAsked | None = None
        # No tasks are requested before the processes run: they may be forked.
        if self.training is not None:
            self._generation = self.training.plan.begin_generation()
            self._feed = None
        elif is_ordered:
            if self._pass is not None:
                self._pass.close()
            self._pass = handing = InOrder(self._hand_out, self.batch_size)
            self._feed = None
        elif num_processes:
            handing = AsAsked(self._hand_out)
        if handing is not None:
            self._num_loops += 1
            self._generation = self._num_loops
            self._passes = {number: known for number, known in self._passes.items() if not known.is_closed}
            self._passes[self._generation] = handing
        if num_processes:
            self._open_office()
        return handing

    def end_beginning(self) -> None:
        """Take note that the loader's processes are started: a later one belongs to a loader that did not register."""
        if self.training is None:
            self._generation = 0

    def join(self, num_processes: int, may_come: Callable[[], bool]) -> None:
        """Join the job, when so many processes of the loader run."""
        if num_processes and self._office is not None:
            self._office.wait_for(num_processes, self._generation, may_come)
        if self._join is not None:
            self._join()

    def deliver(self) -> None:
        """Take note that the loader has brought a batch."""
        if self.training is not None:
            self.training.plan.deliver()

    def _open_office(self) -> Address:
        if self._office is None:
            self._office = Office(self._answer)
            self._address = self._office.address
        return self._office.address

    def _answer(self, number: int, generation: int) -> tuple[Record, ...] | None:
        """Answer a loader process, on a thread of its own."""
        if self.training is None:
            if not generation:
                return self._hand_out().next_batch() or None
            # None for a process of a loop that was left, which has not ended yet.
            known = self._passes.get(generation)
            return None if known is None else known.ask(number)
        if not self.training.has_begun and not generation and self._join is not None:
            # This loader did not register: its data set hides the service.
            self._join()
        return self.training.plan.ask(number, generation)

    def _ask_directly(self, number: int, generation: int) -> tuple[Record, ...] | None:
        if self.training is None:
            in_order = self._pass if self._pass is not None and not self._pass.is_closed else None
            return in_order.ask(number) if in_order is not None else self._hand_out().next_batch() or None
        if not self.training.has_begun and self._join is not None:
            self._join()
        return self.training.plan.ask(number, generation, is_direct=True)

    @property
    def _own_feed(self) -> Feed:
        """The records of this process."""
        if self._feed is None or self._feed_owner != os.getpid():
            self._feed_owner = os.getpid()
            if self._owner == self._feed_owner:
                self._feed = Feed(self.batch_size, self._ask_directly, self._generation)
            elif self._address is None:
                raise UsageError(
                    "A loader process asks for records, but its loader did not register with Legato. Store the data "
                    "shard service as an attribute of the data set that is given to the DataLoader."
                )
            else:
                self._feed = feed_of_loader(self.batch_size, self._address, self._generation)
        return self._feed

    # ------------------------------------------------------------ what programs call

    def fetch_shard(self) -> Shard | None:
        """Return the next shard (``name``, ``start``, ``end``, ``indices``); None at the end of the data."""
        if not self.is_planned and self._owner == os.getpid():
            task = self._hand_out().next_task()
            return None if task is None else shard_of(task)
        if not self._shards:
            self._shards.extend(cut(self._own_feed.next_batch(), is_whole=self._form.shuffle))
        if not self._shards:
            self._current = None
            return None
        first, self._current = self._shards.popleft()
        # What the data set draws for its records depends on nothing else.
        seed_sample(self._seed, first.epoch, first.index)
        return self._current

    def get_task(self, task_type: int | None = None) -> HistoricTask:  # noqa: ARG002 - a service has tasks of one type
        """Return the next task; of type 0 at the end of the data."""
        shard = self.fetch_shard()
        if shard is None:
            return HistoricTask(0, None, _NONE)
        handed = None if self.is_planned else self._hand_out().newest
        return HistoricTask(0 if handed is None else handed.number, shard, self._form.task_type)

    def get_current_task(self) -> HistoricTask | None:
        """Return the oldest task that is not reported, None if there is none."""
        if self.is_planned:
            return None if self._current is None else HistoricTask(0, self._current, self._form.task_type)
        task = self._hand_out().oldest
        return None if task is None else historic(task)

    def report_batch_done(
        self,
        batch_size: int | None = None,
        err_msg: str = "",
        task_ids: Any = (),  # noqa: ARG002 - the oldest first
    ) -> bool:
        """Say that a mini-batch is done; returns whether a task was completed by it.

        Of records that a controller trains the runtime knows what is done, and nothing is reported.
        """
        if self.training is not None:
            per_task = self.records_per_task // self.batch_size
            return self.training.has_stepped and self.training.place % per_task < self.training.num_micro_batches
        return self._hand_out().report(batch_size, err_msg)

    def report_all_task_error(self, err_msg: str) -> None:
        """Give all tasks back that are not reported."""
        if self.training is None:
            self._hand_out().report_all(err_msg)

    def get_minibatch_count_per_epoch(self) -> int:
        """Return how many whole mini-batches an epoch has."""
        return (self._form.dataset_size or 0) // self.batch_size

    def get_current_epoch(self) -> int:
        """Return the epoch from which records are handed out, from 1; of records that are planned, are trained."""
        if self.training is None:
            self._hand_out()
            return self._client().get_dataset_epoch(self._dataset)
        stream = self.training.stream
        return min(self.training.place * self.batch_size // stream.num_records, stream.num_epochs - 1) + 1

    def reset_dataset(self) -> None:
        """Restart the data set.

        Raises:
            UsageError: a controller trains these records.
        """
        if self.is_planned:
            raise UsageError("A data set that a controller trains cannot be reset. Make a service for each training.")
        self._hand_out()
        self._client().reset_dataset(self._dataset)
        self._handed = None

    def get_shard_checkpoint(self) -> str:
        """Return which records are not done, as JSON."""
        if self.training is None:
            self._hand_out()
            return self._client().get_checkpoint(self._dataset)
        return write_checkpoint(self.training.stream, self.training.place, self._dataset, self.records_per_task)

    def restore_shard_from_checkpoint(self, shard_checkpoint: str) -> bool:
        """Go on where a checkpoint was written; False if it is of another version.

        Raises:
            DataError: it is no checkpoint.
            UsageError: a controller trains these records already.
        """
        if self.training is not None:
            raise UsageError(
                "Records of a training that has a controller cannot be restored. Restore them before the controller is "
                "made; a job that goes on (legato run --resume) does so by itself."
            )
        place = read_place(shard_checkpoint)
        if place is not None:
            self._start_place = place
            return True
        self._hand_out()
        return self._client().restore_checkpoint(shard_checkpoint)

    # ------------------------------------------------------------ in processes that are spawned

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_form": self._form,
            "_seed": self._seed,
            "_owner": self._owner,
            "_address": self._open_office() if self._owner == os.getpid() else self._address,
            "_generation": self._generation,
            "_start_place": self._start_place,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_process()


class RecordIndexService(DataShardService):
    """Numbers of records, one by one, for a map-style data set."""

    def fetch_record_index(self) -> int:
        """Return the number of the next record.

        Raises:
            StopIteration: at the end of the data.
        """
        record = self._own_feed.next_record()
        if record is None:
            raise StopIteration
        # What the data set draws for it depends on nothing else.
        seed_sample(self._seed, record.epoch, record.index)
        return record.index

    def record_index_gen(self) -> Iterator[int]:
        """Yield the numbers of all records that are this worker's."""
        while True:
            try:
                index = self.fetch_record_index()
            except StopIteration:
                return
            yield index


def build_data_shard_service(*args: Any, **kwargs: Any) -> DataShardService:
    """Make a `DataShardService`; its arguments are those of all releases."""
    return DataShardService(*args, **kwargs)


def _watch() -> None:
    """See what this process's program does with loaders; not before it has one of these services."""
    if os.getpid() not in _watched:
        if not _watched:
            watch_loaders(DataShardService)
        end_forked_with_parent()
        _watched.append(os.getpid())


def _may_wait() -> bool:
    # In a planned training others may wait for this worker's next step, and hold the tasks meanwhile.
    return not any(training.has_begun and not training.plan.is_closed for training in _trainings)


_watched: list[int] = []
_trainings: list[Training] = []
