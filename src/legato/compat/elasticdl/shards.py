"""Shards and tasks as programs know them, made of records and of the driver's tasks. Requests none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from legato.compat.elasticdl.stream import Record
from legato.compat.elasticdl.task_words import Task


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
