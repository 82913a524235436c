"""The records of a training as one stream: all epochs, one after the other, cut into micro-batches. Pure.

Micro-batch number ``place`` is the records from ``place * batch_size`` on, so that micro-batches run across epochs, as
ElasticDL's did; only the very last one may be smaller. The orders are those in which the driver would hand out the same
records.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from legato.compat.elasticdl.permutation import Permutation
from legato.core.errors import DataError
from legato.train.data.order import Key

_TASKS: Final = 1  # orders of one epoch: that of its tasks, and that of its records
_RECORDS: Final = 2
_MAX_ORDERS: Final = 4


class Record(NamedTuple):
    """A record of the stream.

    Args:
        epoch: from 0.
        index: its number in the data set.
    """

    epoch: int
    index: int  # type: ignore[assignment]  # hides tuple.index


class Stream:
    """The records of a training, in their order.

    Args:
        num_records: of the data set.
        num_epochs: how often each record is trained.
        batch_size: number of records of a micro-batch.
        seed: of the orders.
        records_per_task: size of the tasks that ``shuffle_shards`` shuffles.
        shuffle: another order of all records in each epoch.
        shuffle_shards: another order of the tasks in each epoch.

    Raises:
        DataError: a number is not above 0, or a batch is larger than the data set.

    >>> stream = Stream(5, 2, 4, seed=0)
    >>> stream.num_places, [record.index for record in stream.records(1)], stream.records(2)
    (3, [4, 0, 1, 2], (Record(epoch=1, index=3), Record(epoch=1, index=4)))
    """

    def __init__(
        self,
        num_records: int,
        num_epochs: int,
        batch_size: int,
        *,
        seed: int,
        records_per_task: int = 1,
        shuffle: bool = False,
        shuffle_shards: bool = False,
    ) -> None:
        known = (("dataset_size", num_records), ("num_epochs", num_epochs), ("batch_size", batch_size))
        for name, value in known:
            if value < 1:
                raise DataError(f"Cannot train on this data set: {name}={value} is below 1. Give 1 or more.")
        if batch_size > num_records:
            raise DataError(
                f"Cannot train on this data set: batch_size={batch_size} is larger than dataset_size={num_records}. "
                f"Take a batch_size of {num_records} or less."
            )
        self.num_records, self.num_epochs, self.batch_size = num_records, num_epochs, batch_size
        self._seed = seed
        self._records_per_task = records_per_task
        self._shuffle, self._shuffle_shards = shuffle, shuffle_shards
        self._orders: dict[tuple[int, int], Permutation] = {}
        self._short_places: dict[int, int] = {}

    @property
    def num_stream_records(self) -> int:
        """The number of trained records, each counted once per epoch."""
        return self.num_records * self.num_epochs

    @property
    def num_places(self) -> int:
        """The number of micro-batches."""
        return -(-self.num_stream_records // self.batch_size)

    @property
    def description(self) -> str:
        """The values that distinguish this stream from others."""
        order = (self._records_per_task * self._shuffle_shards, self._shuffle)
        return f"{self.num_records} records, {self.num_epochs} epochs, batches of {self.batch_size}, order {order}"

    @property
    def order(self) -> dict[str, int | bool | None]:
        """The values that decide which records each micro-batch has, by the names that programs use."""
        return {
            "dataset_size": self.num_records,
            "batch_size": self.batch_size,
            "shuffle": self._shuffle,
            "shuffle_shards": self._shuffle_shards,
            "records_per_task": self._records_per_task if self._shuffle_shards else None,
            "seed": self._seed if self._shuffle or self._shuffle_shards else None,
        }

    def num_records_of(self, place: int) -> int:
        """Return how many records a micro-batch has."""
        return min(self.batch_size, self.num_stream_records - place * self.batch_size)

    def records(self, place: int) -> tuple[Record, ...]:
        """Return the records of a micro-batch."""
        start = place * self.batch_size
        return tuple(map(self._record, range(start, start + self.num_records_of(place))))

    def _record(self, position: int) -> Record:
        epoch, within = divmod(position, self.num_records)
        if self._shuffle_shards:
            within = self._in_order_of_tasks(epoch, within)
        if self._shuffle:
            within = self._order(epoch, _RECORDS)[within]
        return Record(epoch, within)

    def _in_order_of_tasks(self, epoch: int, within: int) -> int:
        size = self._records_per_task
        num_short = self.num_records % size
        order = self._order(epoch, _TASKS)
        place, offset = divmod(within, size)
        if num_short:
            # The last task of the data set is a shorter one, wherever it comes.
            before = self._place_of_short_task(epoch) * size
            if before <= within < before + num_short:
                place, offset = before // size, within - before
            elif within >= before:
                place, offset = divmod(within - num_short, size)
                place += 1
        return order[place] * size + offset

    def _place_of_short_task(self, epoch: int) -> int:
        if epoch not in self._short_places:
            order = self._order(epoch, _TASKS)
            last = self.num_records // self._records_per_task
            self._short_places = {epoch: next(place for place in range(last + 1) if order[place] == last)}
        return self._short_places[epoch]

    def _order(self, epoch: int, what: int) -> Permutation:
        key = (epoch, what)
        if key not in self._orders:
            while len(self._orders) >= _MAX_ORDERS:
                del self._orders[min(self._orders)]
            num_tasks = -(-self.num_records // self._records_per_task)
            size = num_tasks if what == _TASKS else self.num_records
            # The driver counts epochs from 1.
            self._orders[key] = Permutation(size, (self._seed, epoch + 1, what))
        return self._orders[key]


class StreamSteps:
    """How a stream is divided into steps: each has ``num_micro_batches``, until `go_on` changes this.

    Args:
        stream: what is trained.
        num_micro_batches: number of micro-batches of a step.

    >>> steps = StreamSteps(Stream(10, 1, 2, seed=0), num_micro_batches=2)
    >>> steps.num_steps, steps.num_micro_batches_of(2), steps.num_samples_of(2)
    (3, 1, 2)
    >>> steps.go_on(step=1, place=2, num_micro_batches=1)
    >>> steps.num_steps, steps.place(Key(0, 2, 0)), steps.place_before(2)
    (4, 3, 3)
    >>> steps.num_epochs, steps.epochs_before(3), steps.epochs_before(4)
    (1, 0, 1)
    """

    def __init__(self, stream: Stream, num_micro_batches: int) -> None:
        self._stream = stream
        self._step, self._place, self._count = 0, 0, num_micro_batches

    def go_on(self, step: int, place: int, num_micro_batches: int) -> None:
        """Set where the coming steps begin, and how many micro-batches each of them has."""
        self._step, self._place, self._count = step, place, num_micro_batches

    @property
    def num_steps(self) -> int:
        """The number of steps of the stream, if nothing changes."""
        return self._step + -(-(self._stream.num_places - self._place) // self._count)

    @property
    def num_epochs(self) -> int:
        """The number of epochs of the stream."""
        return self._stream.num_epochs

    def epochs_before(self, step: int) -> int:
        """Return how many epochs have ended before a step; an epoch that ends within a micro-batch ends after it."""
        return min(self.place_before(step) * self._stream.batch_size // self._stream.num_records, self.num_epochs)

    def place_before(self, step: int) -> int:
        """Return how many micro-batches come before a step."""
        return min(self._place + (step - self._step) * self._count, self._stream.num_places)

    def place(self, key: Key) -> int:
        """Return the place of a key's micro-batch in the stream."""
        return self.place_before(key.step) + key.index

    def num_micro_batches_of(self, step: int) -> int:
        """Return the number of micro-batches of a step."""
        return self.place_before(step + 1) - self.place_before(step)

    def num_samples_of(self, step: int) -> int:
        """Return the number of records of a step."""
        first, end = self.place_before(step), self.place_before(step + 1)
        return sum(map(self._stream.num_records_of, range(first, end)))
