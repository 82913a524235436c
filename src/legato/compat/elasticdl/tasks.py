"""The task manager: data sets by name, which worker has which task, open tasks. Pure: no clock, no I/O, only a seed.

No record is ever dropped. Tasks of workers that are gone, and tasks that a worker reports as failed, are handed out
again, as often as necessary: after the other tasks of the present epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Final

import msgspec

from legato.compat.elasticdl.dataset import Dataset, DatasetState, read_checkpoint
from legato.compat.elasticdl.task_types import (
    DEFAULT_NUM_MINIBATCHES,
    DatasetParams,
    Task,
    TaskKind,
    default_name,
)
from legato.core.errors import DataError
from legato.system.decoding import decode

_SKIPPED: Final = 1000  # task numbers that a new driver does not use


class KnownDataset(msgspec.Struct, frozen=True, kw_only=True):
    """The values of a data set that a new driver needs."""

    params: DatasetParams
    records_per_task: int
    seed: int
    state: DatasetState


class TasksState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of all tasks that a new driver needs.

    Args:
        datasets: in the order in which they were registered.
        next_number: the number of the next task.
        workers: the present workers.
        restored: SHA-256 digests of the checkpoints that were restored.
    """

    datasets: tuple[KnownDataset, ...] = ()
    next_number: int = 1
    workers: tuple[int, ...] = ()
    restored: tuple[str, ...] = ()


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a report.

    Args:
        is_known: the reported task was handed out.
        num_failures: how often it has failed so far.
        worker: that had the task; None if the task is not known.
        dataset: name of its data set; empty if the task is not known.
    """

    is_known: bool
    num_failures: int = 0
    worker: int | None = None
    dataset: str = ""


class TaskManager:
    """The tasks of one job.

    Args:
        seed: of all orders.
        num_minibatches: mini-batches of a task of a data set that does not set the number.
        state: of an earlier driver at its end; None at the beginning.
    """

    def __init__(
        self, *, seed: int, num_minibatches: int = DEFAULT_NUM_MINIBATCHES, state: TasksState | None = None
    ) -> None:
        state = state if state is not None else TasksState()
        self._seed = seed
        self._num_minibatches = num_minibatches
        self._datasets = {
            known.params.name: Dataset(known.params, known.records_per_task, known.seed, known.state)
            for known in state.datasets
        }
        self._next_number = state.next_number
        self._workers = frozenset(state.workers)
        self._restored = dict.fromkeys(state.restored)

    @property
    def state(self) -> TasksState:
        """The state that a new driver needs. Shares mutable parts with this object: encode it at once."""
        return TasksState(
            datasets=tuple(
                KnownDataset(
                    params=dataset.params,
                    records_per_task=dataset.records_per_task,
                    seed=dataset.seed,
                    state=dataset.state,
                )
                for dataset in self._datasets.values()
            ),
            next_number=self._next_number,
            workers=tuple(sorted(self._workers)),
            restored=tuple(self._restored),
        )

    @property
    def workers(self) -> frozenset[int]:
        """The present workers."""
        return self._workers

    @property
    def names(self) -> Collection[str]:
        """The names of all data sets."""
        return self._datasets.keys()

    # ------------------------------------------------------------ handing out

    def register(self, params: DatasetParams) -> bool:
        """Register a data set; return False, without a change, if its name is known.

        Raises:
            DataError: a size is not above 0.
        """
        params = msgspec.structs.replace(params, name=params.name or default_name(params.kind))
        _check(params)
        if params.name in self._datasets:
            return False
        num_minibatches = params.num_minibatches_per_shard or self._num_minibatches
        self._datasets[params.name] = Dataset(params, params.batch_size * num_minibatches, self._seed)
        return True

    def get(self, worker: int, dataset: str = "", *, ask: str = "", names_records: bool = True) -> Task | TaskKind:
        """Hand out a task.

        Args:
            worker: number of the worker that asks.
            dataset: the name of the data set; empty for the default one.
            ask: names the request. A worker that got no answer repeats the request with this name, and gets the same
                task.
            names_records: False: the worker does not need the record numbers of a shuffled data set.

        Returns:
            The task. `TaskKind.WAIT`: no task is left, but other workers have tasks, which may come back. A worker that
            has tasks itself does not get this answer, because it may need the end of the data to complete its last
            batch. `TaskKind.NONE`: there is no task for this worker.
        """
        asked = self._find(dataset)
        if asked is None or worker not in self._workers:
            return TaskKind.NONE
        again = asked.find(worker, ask, names_records=names_records)
        if again is not None:
            return again
        task = asked.hand_out(worker, self._next_number, ask, names_records=names_records)
        if task is not None:
            self._next_number += 1
            return task
        holders = asked.holders
        return TaskKind.WAIT if holders and worker not in holders else TaskKind.NONE

    def order_of(self, name: str) -> tuple[int, int] | None:
        """Return the number of records and the seed of a shuffled data set; None if it is not shuffled, or unknown."""
        known = self._find(name)
        return (known.params.dataset_size, known.seed) if known is not None and known.params.shuffle else None

    def report(self, number: int, *, error: str = "") -> Reported:
        """Record that a task is done or, with an error, that it must be done again. Unknown numbers are ignored."""
        for name, dataset in self._datasets.items():
            holding = dataset.state.doing.get(number)
            if holding is not None:
                num_failures = dataset.take_failed(number) if error else dataset.take_done(number)
                return Reported(is_known=True, num_failures=num_failures, worker=holding.worker, dataset=name)
        return Reported(is_known=False)

    def set_workers(self, workers: Collection[int]) -> int:
        """Set all present workers, take back the tasks of others, and return how many tasks that were."""
        self._workers = frozenset(workers)
        return sum(dataset.take_back(self._workers) for dataset in self._datasets.values())

    def reopen(self) -> None:
        """Continue in a new driver, with task numbers that the previous driver cannot have used."""
        self._next_number += _SKIPPED

    # ------------------------------------------------------------ data sets

    def reset(self, dataset: str = "", worker: int = 0, *, ask: str = "") -> bool:
        """Restart a data set; return False if there is none of this name. See `Dataset.reset`."""
        asked = self._find(dataset)
        if asked is not None:
            asked.reset(worker, ask)
        return asked is not None

    def epoch(self, dataset: str = "") -> int:
        """Return the epoch from which tasks are handed out, from 1; 0 before the first, and for an unknown data set."""
        asked = self._find(dataset)
        return asked.state.epoch if asked is not None else 0

    def checkpoint(self, dataset: str = "") -> str:
        """Return which records are left, as JSON; empty if there is no data set of this name."""
        asked = self._find(dataset)
        return asked.checkpoint() if asked is not None else ""

    def restore(self, content: str) -> bool:
        """Continue from a checkpoint: all tasks that were open then are open again, and none is handed out.

        A job restores each checkpoint only once: all workers restore the same one, and a worker that joins later must
        not undo the work since then.

        Returns:
            False if the checkpoint is of another version.

        Raises:
            DataError: the text is no checkpoint.
        """
        name = _read_name(content)
        digest = hashlib.sha256(content.encode()).hexdigest()
        if digest in self._restored:
            return True
        restored = read_checkpoint(content, self._datasets.get(name), self._seed)
        if restored is None:
            return False
        self._datasets[name] = restored
        self._restored[digest] = None
        return True

    @property
    def is_work_left(self) -> bool:
        """Whether a data set that has an end was begun and is not finished."""
        return any(_is_left(dataset) for dataset in self._datasets.values())

    def describe_left(self) -> str | None:
        """Return a text about data sets that have an end, were begun and are not finished; None if there are none."""
        left = [
            f"'{name}' (epoch {dataset.state.epoch} of {dataset.params.num_epochs}, "
            f"{len(dataset.state.doing)} tasks handed out and not reported)"
            for name, dataset in self._datasets.items()
            if _is_left(dataset)
        ]
        return ", ".join(left) or None

    def _find(self, name: str) -> Dataset | None:
        return self._datasets.get(name or default_name(TaskKind.TRAINING))


def _is_left(dataset: Dataset) -> bool:
    # A data set without an end, or one that was not begun since its last reset, is not unfinished work.
    is_begun = dataset.state.epoch > 0 and dataset.params.num_epochs > 0
    return is_begun and not (dataset.is_at_end and not dataset.state.doing)


class _Named(msgspec.Struct):
    dataset_name: str


def _read_name(content: str) -> str:
    try:
        return decode(content, _Named).dataset_name
    except msgspec.MsgspecError as error:
        raise DataError(f"Cannot resume from this checkpoint of a data set: {error}. Pass it unchanged.") from error


def _check(params: DatasetParams) -> None:
    """Raise DataError unless tasks can be cut from these."""
    for field in ("batch_size", "dataset_size"):
        value = getattr(params, field)
        if value < 1:
            raise DataError(f"Cannot register data set '{params.name}': {field}={value} is below 1. Give 1 or more.")
    if params.num_minibatches_per_shard < 0:
        raise DataError(
            f"Cannot register data set '{params.name}': num_minibatches_per_shard="
            f"{params.num_minibatches_per_shard} is below 0. Give 1 or more, or 0 for what the job was submitted with."
        )
