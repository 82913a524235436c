"""Checkpoints of shards of a training that the runtime plans: the historic keys, and where the stream stands. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from legato.compat.elasticdl.stream import Stream
from legato.core.errors import DataError

_VERSION: Final = "v1.0"
_PLACE: Final = "trained_minibatches"


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
    }
    return json.dumps(content)


def read_place(content: str) -> int | None:
    """Return after how many micro-batches a checkpoint was written; None if it is not of a training.

    Raises:
        DataError: it is no checkpoint.
    """
    try:
        known = json.loads(content)
    except ValueError as error:
        raise DataError(f"Cannot go on from this checkpoint of shards: {error}. Give it as it was got.") from error
    place = known.get(_PLACE) if isinstance(known, dict) else None
    return place if isinstance(place, int) and place >= 0 and known.get("version") == _VERSION else None
