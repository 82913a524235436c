"""The data shard services that programs make: they give numbers of records, either planned or handed out as tasks.

A service that is given to a controller is *planned*; any other one *hands out* the driver's tasks: `record_sources` has
a class for each. The service is what programs and their loaders call, in whichever process. See docs/design/0007.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from legato.compat.elasticdl.forms import read_service
from legato.compat.elasticdl.job_environment import num_minibatches_per_task, num_workers_asked, seed_alike
from legato.compat.elasticdl.loader_server import Address, LoaderServer
from legato.compat.elasticdl.loading import end_forked_with_parent, watch_loaders
from legato.compat.elasticdl.record_sources import (
    Batch,
    Feed,
    LoaderPass,
    PlannedSource,
    TaskSource,
    feed_of_loader,
)
from legato.compat.elasticdl.shards import HistoricTask, Shard, cut, historic, read_place
from legato.compat.elasticdl.stream import Record, Stream
from legato.compat.elasticdl.training import Training
from legato.core.errors import UsageError
from legato.train.data.seeds import seed_samples


class DataShardService:
    """Shards of a data set, for this worker.

    Its arguments are those of all releases: ``batch_size``, ``num_epochs``, ``dataset_size``, ``shuffle``,
    ``shuffle_shards``, ``task_type``, ``num_minibatches_per_shard``, ``dataset_name``; see `forms`.

    Raises:
        UsageError: a number is invalid.
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
        self._tasks = TaskSource(self._form)
        self._planned: PlannedSource | None = None
        self._server: LoaderServer | None = None
        self._feed: Feed | None = None
        self._feed_owner = 0
        self._shards: deque[tuple[Record, Shard]] = deque()
        self._current: Shard | None = None

    @property
    def _source(self) -> PlannedSource | TaskSource:
        return self._tasks if self._planned is None else self._planned

    # ------------------------------------------------------------ what a controller asks for

    @property
    def training(self) -> Training | None:
        """The training of these records; None without a controller."""
        return self._source.training

    @property
    def has_handed_out(self) -> bool:
        """Whether tasks were handed out, or the service continues from a checkpoint of tasks."""
        return self._source.has_handed_out

    @property
    def records_per_task(self) -> int:
        """The number of records of a task, except the last task of an epoch."""
        return self.batch_size * (self._form.num_minibatches_per_shard or num_minibatches_per_task())

    def plan(self, join: Callable[[], None]) -> Training:
        """Plan these records for training.

        Args:
            join: called to join the job, when the loader runs.

        Raises:
            UsageError: the service does not know how many records there are, or for how many epochs.
        """
        form = self._form
        if form.num_epochs is None or form.dataset_size is None:
            raise UsageError(
                f"A controller needs the size of the data. Give {type(self).__name__} num_epochs and "
                "dataset_size; shards of a master's own --training_data are not supported."
            )
        if form.num_epochs < 1:
            raise UsageError(f"{type(self).__name__}: num_epochs={form.num_epochs} is below 1. Give 1 or more.")
        if self._planned is not None:
            raise UsageError("This data shard service already has a controller. Make a separate service for each.")
        stream = Stream(
            form.dataset_size,
            form.num_epochs,
            form.batch_size,
            seed=self._seed,
            records_per_task=self.records_per_task,
            shuffle=form.shuffle,
            shuffle_shards=form.shuffle_shards,
        )
        training = Training(stream, self._seed, num_workers_asked(), self._epoch_of, self._start_place)
        self._planned = PlannedSource(
            training, join, self._wait_for_loaders, self._tasks.dataset, self.records_per_task
        )
        return training

    def _epoch_of(self, num_micro_batches: int) -> int:
        return num_micro_batches // max(self.get_minibatch_count_per_epoch(), 1)

    # ------------------------------------------------------------ what loaders ask for

    @property
    def is_planned(self) -> bool:
        """Whether a controller trains these records."""
        return self._planned is not None

    def begin_loading(self, num_processes: int, *, is_ordered: bool) -> LoaderPass | None:
        """Begin a pass of a loader, before its processes are started; return the object that tracks its batches."""
        begun = self._source.begin_pass(num_processes, is_ordered=is_ordered)
        self._generation = self._source.generation
        if begun is not None and begun.is_ordered:
            self._feed = None
        if num_processes:
            self._open_server()
        return begun

    def end_beginning(self) -> None:
        """Record that the loader's processes are started."""
        self._source.end_beginning()
        self._generation = self._source.generation

    def _open_server(self) -> Address:
        if self._server is None:
            self._server = LoaderServer(self._answer)
            self._address = self._server.address
        return self._server.address

    def _wait_for_loaders(self, num_processes: int, generation: int, may_come: Callable[[], bool]) -> None:
        if self._server is not None:
            self._server.wait_for(num_processes, generation, may_come)

    def _answer(self, number: int, generation: int) -> Batch | None:
        """Answer a loader process, on its own thread."""
        return self._source.ask(number, generation, is_direct=False)

    def _ask_directly(self, number: int, generation: int) -> Batch | None:
        return self._source.ask(number, generation, is_direct=True)

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
        if self._planned is None and self._owner == os.getpid():
            return self._tasks.next_shard()
        if not self._shards:
            self._shards.extend(cut(self._own_feed.next_batch(), is_whole=self._form.shuffle))
        if not self._shards:
            self._current = None
            return None
        first, self._current = self._shards.popleft()
        # The random numbers of the data set for these records depend on nothing else.
        seed_samples(self._seed, first.epoch, first.index)
        return self._current

    def get_task(self, task_type: int | None = None) -> HistoricTask:  # noqa: ARG002 - a service has tasks of one type
        """Return the next task; of type 0 at the end of the data."""
        shard = self.fetch_shard()
        if shard is None:
            return HistoricTask(0, None, 0)
        handed = None if self._planned is not None else self._tasks.newest
        return HistoricTask(0 if handed is None else handed.number, shard, self._form.task_type)

    def get_current_task(self) -> HistoricTask | None:
        """Return the oldest task that is not reported, None if there is none."""
        if self._planned is not None:
            return None if self._current is None else HistoricTask(0, self._current, self._form.task_type)
        task = self._tasks.oldest
        return None if task is None else historic(task)

    def report_batch_done(
        self,
        batch_size: int | None = None,
        err_msg: str = "",
        task_ids: Any = (),  # noqa: ARG002 - the oldest first
    ) -> bool:
        """Report that a mini-batch is done; return whether this completed a task.

        If a controller trains the records, the runtime knows which are done, and nothing is reported.
        """
        return self._source.report(batch_size, err_msg)

    def report_all_task_error(self, err_msg: str) -> None:
        """Return all unreported tasks to the driver."""
        self._source.report_all(err_msg)

    def get_minibatch_count_per_epoch(self) -> int:
        """Return the number of whole mini-batches of an epoch."""
        return (self._form.dataset_size or 0) // self.batch_size

    def get_current_epoch(self) -> int:
        """Return the epoch whose records are handed out or, if they are planned, trained; from 1."""
        return self._source.current_epoch()

    def reset_dataset(self) -> None:
        """Restart the data set.

        Raises:
            UsageError: a controller trains these records.
        """
        self._source.reset()

    def get_shard_checkpoint(self) -> str:
        """Return which records are not done, as JSON."""
        return self._source.checkpoint()

    def restore_shard_from_checkpoint(self, shard_checkpoint: str) -> bool:
        """Continue from a checkpoint; return False if it is of another version.

        Raises:
            DataError: the text is no checkpoint.
            UsageError: a controller trains these records already.
        """
        place = None if self._planned is not None else read_place(shard_checkpoint)
        if place is None:
            return self._source.restore(shard_checkpoint)
        self._start_place = place
        return True

    # ------------------------------------------------------------ in processes that are spawned

    def __getstate__(self) -> dict[str, Any]:
        return {
            "_form": self._form,
            "_seed": self._seed,
            "_owner": self._owner,
            "_address": self._open_server() if self._owner == os.getpid() else self._address,
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
        # The random numbers of the data set for this record depend on nothing else.
        seed_samples(self._seed, record.epoch, record.index)
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
    """Watch the program's loaders; called when this process has its first service."""
    if os.getpid() not in _watched:
        if not _watched:
            watch_loaders(DataShardService)
        end_forked_with_parent()
        _watched.append(os.getpid())


_watched: list[int] = []
