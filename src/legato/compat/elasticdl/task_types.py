"""Types for tasks: data sets, tasks, positions of workers. Data only; does nothing."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

TRAINING_NAME: Final = "_EDL_DEFAULT_TRAINING_DATA"
EVALUATION_NAME: Final = "_EDL_DEFAULT_EVALUATION_DATA"
DEFAULT_NUM_MINIBATCHES: Final = 8


class TaskKind(enum.IntEnum):
    """The purpose of a task; the numbers are those of the historic protocol."""

    NONE = 0  # there is no task, and there will be none
    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3
    WAIT = 4  # there is no task now, but one may come back


class DatasetParams(msgspec.Struct, frozen=True, kw_only=True):
    """A data set as a worker registers it; the first registration of a name counts for the whole job.

    Args:
        name: of the data set; empty for the default one of its kind.
        batch_size: records of a mini-batch.
        num_epochs: how often each record is handed out; 0 or less: without end.
        dataset_size: records.
        shuffle: another order of all records in each epoch; tasks then name their records one by one.
        shuffle_shards: another order of the tasks in each epoch.
        num_minibatches_per_shard: mini-batches of a task; 0 for the number with which the job was submitted.
        kind: the purpose of its tasks.
    """

    name: str = ""
    batch_size: int
    num_epochs: int
    dataset_size: int
    shuffle: bool = False
    shuffle_shards: bool = False
    num_minibatches_per_shard: int = 0
    kind: TaskKind = TaskKind.TRAINING


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Records for one worker to process.

    Args:
        number: unique in the job, from 1; records that are handed out again come in a task with a new number.
        dataset: the name of its data set.
        kind: its purpose.
        start: the first of its places in the order of the epoch.
        end: the place after the last.
        indices: the numbers of its records; empty if they are ``range(start, end)``.
        epoch: from 1.
    """

    number: int
    dataset: str
    kind: TaskKind
    start: int
    end: int
    indices: tuple[int, ...] = ()
    epoch: int = 1

    @property
    def num_records(self) -> int:
        return self.end - self.start

    @property
    def records(self) -> tuple[int, ...]:
        """The numbers of its records, in the order in which to process them."""
        return self.indices or tuple(range(self.start, self.end))


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The rank of a worker among the workers in the training loop.

    Args:
        rank: from 0, the oldest worker first; -1 if the worker is not in the loop.
        world_size: the number of workers in the loop.
        rendezvous: a number that grows with each change of these workers.
        port: of a rendezvous for collectives; 0 if there is none.
    """

    rank: int
    world_size: int
    rendezvous: int
    port: int = 0


def default_name(kind: TaskKind) -> str:
    """Return the name of a data set for which the program gives no name.

    >>> default_name(TaskKind.TRAINING), default_name(TaskKind.EVALUATION)
    ('_EDL_DEFAULT_TRAINING_DATA', '_EDL_DEFAULT_EVALUATION_DATA')
    """
    return EVALUATION_NAME if kind is TaskKind.EVALUATION else TRAINING_NAME
