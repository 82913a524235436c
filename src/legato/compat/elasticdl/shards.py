"""Shards and tasks as programs know them, made of records and of the driver's tasks, and checkpoints of shards. Pure.

A checkpoint of a training that the runtime plans has the historic keys, and where the stream stands.
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
    """Records to work off.

    Args:
        name: of the file that they are in; empty.
        start: the first.
        end: behind the last.
        indices: their numbers; empty for ``range(start, end)``.
    """

    name: str = ""
    start: int = 0
    end: int = 0
    indices: tuple[int, ...] = ()


class HistoricTask(NamedTuple):
    """A task as programs know it; without arguments the empty one of the end of the data.

    Args:
        task_id: its number; 0 where nothing is handed out.
        shard: its records; where a service says that the data is at its end, None.
        type: a number of the historic protocol; 0 at the end of the data.
        model_version: 0.
    """

    task_id: int = 0
    shard: Shard | None = Shard()
    type: int = 0
    model_version: int = 0


def shard_of(task: Task) -> Shard:
    """Return the records of a task."""
    return Shard("", task.start, task.end, task.indices)


def historic(task: Task) -> HistoricTask:
    """Return a task of the driver as programs know it."""
    return HistoricTask(task.number, shard_of(task), int(task.kind))


def cut(records: tuple[Record, ...], *, is_whole: bool) -> Iterator[tuple[Record, Shard]]:
    """Cut a mini-batch into shards of records that follow one another; yields each with its first record.

    Args:
        records: of the mini-batch.
        is_whole: it stays whole, as its records are shuffled.
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
    """After how many micro-batches a training continues; knows of which stream a checkpoint has said so.

    Args:
        place: micro-batches that are trained.
        order: `Stream.order` of the training that was left.
    """

    def __new__(cls, place: int, order: Mapping[str, Any]) -> Self:
        """Make one; numbers are made, not initialised."""
        made = super().__new__(cls, place)
        made._order = dict(order)
        return made

    _order: dict[str, Any]

    def check(self, stream: Stream) -> None:
        """Raise UsageError unless the stream is the one that was left."""
        now = {**stream.order, _NUM_EPOCHS: stream.num_epochs}
        other = [
            f"{name}={json.dumps(self._order.get(name))}, and now {json.dumps(now.get(name))}"
            for name in sorted(stream.order.keys() | self._order.keys())
            if self._order.get(name) != now.get(name)
        ]
        if other:
            raise UsageError(
                f"Cannot resume from this checkpoint of shards: it was written with {'; '.join(other)}. Other records "
                "would be trained twice, or never. Create the data shard service with the same arguments as "
                "then, or start from scratch."
            )


def write_checkpoint(stream: Stream, place: int, dataset: str, records_per_task: int) -> str:
    """Return as JSON what is left after so many micro-batches.

    The tasks are those of the present epoch, by their places in its order.
    """
    epoch, within = divmod(min(place * stream.batch_size, stream.num_stream_records), stream.num_records)
    todo = [
        [max(start, within), min(start + records_per_task, stream.num_records)]
        for start in range(0, stream.num_records, records_per_task)
        if start + records_per_task > within and epoch < stream.num_epochs
    ]
    order: dict[str, Any] = dict(stream.order)
    if place * stream.batch_size > stream.num_stream_records:
        # The last, short one is trained: another number of epochs would begin in the midst of a whole one.
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
    """Return after how many micro-batches a checkpoint was written; None if it is not of a training.

    Raises:
        DataError: it is no checkpoint.
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
            "Cannot resume from this checkpoint of shards: it does not say of what order. Start from scratch."
        )
    return Start(place, order)
