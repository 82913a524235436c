"""Makes shards and tasks in the form that programs know, and checkpoints of shards. Pure.

A checkpoint of a planned training has the historic keys, and the position in the stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Self

from legato.compat.elasticdl.stream import Record, Stream
from legato.compat.elasticdl.task_types import Task
from legato.core.errors import DataError, UsageError

_VERSION: Final = "v1.0"
_PLACE: Final = "trained_minibatches"
_ORDER: Final = "order"
_NUM_EPOCHS: Final = "num_epochs"


class Shard(NamedTuple):
    """Records to process.

    Args:
        name: of the file that contains them; always empty.
        start: the number of the first record.
        end: the number after the last record.
        indices: the numbers of the records; empty for ``range(start, end)``.
    """

    name: str = ""
    start: int = 0
    end: int = 0
    indices: tuple[int, ...] = ()


class HistoricTask(NamedTuple):
    """A task in the form that programs know; without arguments, the empty task at the end of the data.

    Args:
        task_id: its number; 0 at the end of the data, and for planned records.
        shard: its records; None if a service returns it at the end of the data.
        type: a number of the historic protocol; 0 at the end of the data.
        model_version: always 0.
    """

    task_id: int = 0
    shard: Shard | None = Shard()
    type: int = 0
    model_version: int = 0


def shard_of(task: Task) -> Shard:
    """Return the records of a task."""
    return Shard("", task.start, task.end, task.indices)


def historic(task: Task) -> HistoricTask:
    """Return a task of the driver in the form that programs know."""
    return HistoricTask(task.number, shard_of(task), int(task.kind))


def cut(records: tuple[Record, ...], *, is_whole: bool) -> Iterator[tuple[Record, Shard]]:
    """Cut a mini-batch into shards of consecutive records; yield each with its first record.

    Args:
        records: of the mini-batch.
        is_whole: make one shard of all records, which are shuffled.
    """
    indices = tuple(record.index for record in records)
    if indices and is_whole:
        yield records[0], Shard("", min(indices), min(indices) + len(indices), indices)
        return
    start = 0
    for end in range(1, len(indices) + 1):
        if end == len(indices) or indices[end] != indices[end - 1] + 1:
            yield records[start], Shard("", indices[start], indices[end - 1] + 1)
            start = end


class Start(int):
    """The number of trained micro-batches with which a training continues, and the order of their stream.

    Args:
        place: number of trained micro-batches.
        order: `Stream.order` of the training that wrote the checkpoint.
    """

    def __new__(cls, place: int, order: Mapping[str, Any]) -> Self:
        """Make the number. An ``int`` gets its value here, not in ``__init__``."""
        made = super().__new__(cls, place)
        made._order = dict(order)
        return made

    _order: dict[str, Any]

    def check(self, stream: Stream) -> None:
        """Raise UsageError if the checkpoint was written with another stream."""
        now = {**stream.order, _NUM_EPOCHS: stream.num_epochs}
        other = [
            f"{name}={json.dumps(self._order.get(name))}, but now it is {json.dumps(now.get(name))}"
            for name in sorted(stream.order.keys() | self._order.keys())
            if self._order.get(name) != now.get(name)
        ]
        if other:
            raise UsageError(
                f"Cannot resume from this checkpoint of shards: it was written with {'; '.join(other)}. Some records "
                "would be trained twice, and others never. Create the data shard service with the same arguments as "
                "before, or start from scratch."
            )


def write_checkpoint(stream: Stream, place: int, dataset: str, records_per_task: int) -> str:
    """Return the records that are left after ``place`` micro-batches, as JSON.

    The listed tasks are those of the present epoch, by their places in its order.
    """
    epoch, within = divmod(min(place * stream.batch_size, stream.num_stream_records), stream.num_records)
    todo = [
        [max(start, within), min(start + records_per_task, stream.num_records)]
        for start in range(0, stream.num_records, records_per_task)
        if start + records_per_task > within and epoch < stream.num_epochs
    ]
    order: dict[str, Any] = dict(stream.order)
    if place * stream.batch_size > stream.num_stream_records:
        # The last, short micro-batch is trained. With more epochs it would be a part of a full one.
        order[_NUM_EPOCHS] = stream.num_epochs
    content: dict[str, Any] = {
        "dataset_name": dataset,
        "todo": todo,
        "doing": [],
        "current_epoch": min(epoch + 1, stream.num_epochs),
        "num_epochs": stream.num_epochs,
        "records_per_task": records_per_task,
        "dataset_size": stream.num_records,
        "version": _VERSION,
        _PLACE: place,
        _ORDER: order,
    }
    return json.dumps(content)


def read_place(content: str) -> Start | None:
    """Return the number of trained micro-batches in a checkpoint; None if it is not of a planned training.

    Raises:
        DataError: the text is no checkpoint.
    """
    try:
        known = json.loads(content)
    except ValueError as error:
        raise DataError(f"Cannot resume from this checkpoint of shards: {error}. Pass it unchanged.") from error
    if not isinstance(known, dict) or known.get("version") != _VERSION:
        return None
    place, order = known.get(_PLACE), known.get(_ORDER)
    if type(place) is not int or place < 0:
        return None
    if not isinstance(order, dict):
        raise DataError(
            "Cannot resume from this checkpoint of shards: it does not contain the order of its records. Start from "
            "scratch."
        )
    return Start(place, order)
