"""Types for tasks: data sets, tasks, positions of workers. Data only; does nothing."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

TRAINING_NAME: Final = "_EDL_DEFAULT_TRAINING_DATA"
EVALUATION_NAME: Final = "_EDL_DEFAULT_EVALUATION_DATA"
DEFAULT_NUM_MINIBATCHES: Final = 8


class TaskKind(enum.IntEnum):
    """What a task is for; the numbers are those of the historic protocol."""

    NONE = 0  # there is none, and there will be none
    TRAINING = 1
    EVALUATION = 2
    PREDICTION = 3
    WAIT = 4  # there is none now, but one may come back


class DatasetParams(msgspec.Struct, frozen=True, kw_only=True):
    """A data set as a worker registers it; the first registration of a name counts for the whole job.

    Args:
        name: of the data set; empty for the default one of its kind.
        batch_size: records of a mini-batch.
        num_epochs: how often each record is handed out; 0 or less for without end.
        dataset_size: records.
        shuffle: another order of all records in each epoch; tasks then name their records one by one.
        shuffle_shards: another order of the tasks in each epoch.
        num_minibatches_per_shard: mini-batches of a task; 0 for what the job was submitted with.
        kind: what its tasks are for.
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
    """Records that one worker is to work off.

    Args:
        number: names this handing out in the whole job, from 1; a task that is handed out again has another one.
        dataset: the name of its data set.
        kind: what it is for.
        start: the first of its places in the order of the epoch.
        end: the place behind the last.
        indices: its records; empty if they are ``range(start, end)``.
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
        """The numbers of its records, in the order in which they are meant to be worked off."""
        return self.indices or tuple(range(self.start, self.end))


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where a worker stands among those that are in the training loop now.

    Args:
        rank: from 0, the oldest first; -1 if it is not among them.
        world_size: how many they are.
        rendezvous: grows with each change of who they are.
        port: of a rendezvous for collectives; 0 if there is none.
    """

    rank: int
    world_size: int
    rendezvous: int
    port: int = 0


def default_name(kind: TaskKind) -> str:
    """Return what a data set without a name is called.

    >>> default_name(TaskKind.TRAINING), default_name(TaskKind.EVALUATION)
    ('_EDL_DEFAULT_TRAINING_DATA', '_EDL_DEFAULT_EVALUATION_DATA')
    """
    return EVALUATION_NAME if kind is TaskKind.EVALUATION else TRAINING_NAME
