"""Chooses the source of this process's tasks: the driver, if the job has its endpoint; else this process itself."""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from legato.compat.elasticdl.job_environment import num_minibatches_per_task, seed_alike
from legato.compat.elasticdl.shards import HistoricTask, historic
from legato.compat.elasticdl.task_types import DatasetParams, Standing, Task, TaskKind, default_name
from legato.compat.elasticdl.tasks import TaskManager
from legato.compat.elasticdl.tasks_client import TasksClient
from legato.compat.elasticdl.variables import TASKS_ADDRESS
from legato.core.errors import UsageError

_START: Final = 1
_KINDS: Final = (TaskKind.TRAINING, TaskKind.EVALUATION, TaskKind.PREDICTION)


def take_client() -> TasksClient:
    """Return the one client of this process."""
    if not _known:
        _known.append(_connect())
    return _known[0]


def _connect() -> TasksClient:
    if TASKS_ADDRESS not in os.environ or "LEGATO_DRIVER_FILE" not in os.environ:
        return LocalTasks(seed_alike())
    from legato.compat.elasticdl.tasks_client_grpc import connect_tasks

    return connect_tasks()


class LocalTasks:
    """A `TasksClient` without a driver: the same task manager as the driver's, in this process.

    Args:
        seed: of all orders.
    """

    def __init__(self, seed: int) -> None:
        self._lock = threading.Lock()
        self._tasks = TaskManager(seed=seed, num_minibatches=num_minibatches_per_task())
        self._tasks.set_workers([self.worker])
        self._passed: set[str] = set()

    @property
    def worker(self) -> int:
        """The number of this worker."""
        return 0

    def report_params(self, params: DatasetParams) -> None:
        """Register a data set."""
        with self._lock:
            self._tasks.register(params)

    def get_task(self, dataset: str = "", *, wait: bool = True) -> Task | None:  # noqa: ARG002 - there is no other worker to wait for
        """Return the next task, None at the end of the data."""
        with self._lock:
            found = self._tasks.get(self.worker, dataset)
        return found if isinstance(found, Task) else None

    def report_task_result(self, task: int, dataset: str = "", error: str = "") -> None:  # noqa: ARG002 - numbers are the job's
        """Report that a task is done, or has failed."""
        with self._lock:
            self._tasks.report(task, error=error)

    def reset_dataset(self, dataset: str = "") -> None:
        """Restart a data set."""
        with self._lock:
            self._tasks.reset(dataset)

    def get_dataset_epoch(self, dataset: str = "") -> int:
        """Return the epoch from which tasks are handed out, from 1."""
        with self._lock:
            return self._tasks.epoch(dataset)

    def get_checkpoint(self, dataset: str = "") -> str:
        """Return which records are left, as JSON."""
        with self._lock:
            return self._tasks.checkpoint(dataset)

    def restore_checkpoint(self, content: str) -> bool:
        """Continue from a checkpoint."""
        with self._lock:
            return self._tasks.restore(content)

    def worker_sync(self, name: str) -> bool:
        """Report that this worker has reached a named point; in a process alone all have."""
        self._passed.add(name)
        return True

    def wait_worker_sync(self, name: str, *, notify: bool = False) -> bool:
        """Return whether a named point was passed."""
        if notify:
            self._passed.add(name)
        return name in self._passed

    def delete_worker_sync(self, name: str) -> None:
        """Forget a named point."""
        self._passed.discard(name)

    def delete_all_worker_syncs(self) -> None:
        """Forget all named points."""
        self._passed.clear()

    def get_standing(self) -> Standing:
        """Return the rank of this worker and the number of workers."""
        return Standing(rank=0, world_size=1, rendezvous=1)

    def report_training_loop(self, *, inside: bool) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _to_historic(task: Task | None) -> HistoricTask:
    return HistoricTask() if task is None else historic(task)


class CommRank:
    """The rank of a worker, in the form of the historic protocol."""

    def __init__(self, standing: Standing) -> None:
        self.rank_id = standing.rank
        self.world_size = standing.world_size
        self.rendezvous_id = standing.rendezvous
        self.rendezvous_port = standing.port


class MasterClient:
    """The client of the master, in the form that programs use.

    Args:
        channel: ignored: the process finds the source of its tasks itself.
        worker_id: ignored.
    """

    def __init__(self, channel: Any = None, worker_id: Any = None) -> None:
        """Do not connect yet: most programs only pass the client on."""

    @property
    def tasks(self) -> TasksClient:
        """The source of tasks."""
        return take_client()

    def get_task(self, task_type: int | None = None) -> HistoricTask:
        """Return the next task of the default data set of a type; an empty one, of type 0, at the end.

        Raises:
            UsageError: the type is unknown.
        """
        if task_type not in (None, *_KINDS):
            raise UsageError(
                f"There are no tasks of type {task_type}. Types are 1 training, 2 evaluation, 3 prediction."
            )
        kind = TaskKind.TRAINING if task_type is None else TaskKind(task_type)
        return _to_historic(self.tasks.get_task(default_name(kind)))

    def get_dataset_task(self, dataset_name: str) -> HistoricTask:
        """Return the next task of a data set; an empty one, of type 0, at the end."""
        return _to_historic(self.tasks.get_task(dataset_name))

    def report_task_result(
        self,
        task_id: int,
        err_msg: str,
        dataset_name: str | None = None,
        exec_counters: Any = None,  # noqa: ARG002 - as programs call it
    ) -> None:
        """Report that a task is done, or, with a message, that it has failed."""
        self.tasks.report_task_result(task_id, dataset_name or "", err_msg or "")

    def report_dataset_shard_params(
        self,
        batch_size: int,
        num_epochs: int,
        dataset_size: int,
        shuffle: bool = False,
        shuffle_shards: bool = False,
        num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None,
    ) -> None:
        """Register a data set."""
        self.tasks.report_params(
            DatasetParams(
                name=dataset_name or "",
                batch_size=batch_size,
                num_epochs=num_epochs or 0,
                dataset_size=dataset_size or 0,
                shuffle=shuffle,
                shuffle_shards=shuffle_shards,
                num_minibatches_per_shard=num_minibatches_per_shard,
            )
        )

    report_training_params = report_dataset_shard_params

    def get_comm_rank(self) -> CommRank:
        """Return the rank of this worker and the number of workers."""
        return CommRank(self.tasks.get_standing())

    def report_training_loop_status(self, status: int) -> None:
        """Report that this worker enters the training loop, or leaves it."""
        self.tasks.report_training_loop(inside=status == _START)

    def reset_dataset(self, dataset_name: str) -> None:
        """Restart a data set."""
        self.tasks.reset_dataset(dataset_name)

    def get_dataset_epoch(self, dataset_name: str) -> int:
        """Return the epoch of a data set, from 1."""
        return self.tasks.get_dataset_epoch(dataset_name)

    def get_shard_checkpoint(self, dataset_name: str) -> str:
        """Return which records of a data set are left."""
        return self.tasks.get_checkpoint(dataset_name)

    def report_shard_checkpoint(self, shard_checkpoint: str) -> bool:
        """Continue from a checkpoint."""
        return self.tasks.restore_checkpoint(shard_checkpoint)

    def worker_sync(self, sync_name: str) -> bool:
        """Report that this worker has reached a named point; return whether all have."""
        return self.tasks.worker_sync(sync_name)

    def wait_worker_sync(self, sync_name: str, notify: bool = False) -> bool:
        """Return whether a named point was passed."""
        return self.tasks.wait_worker_sync(sync_name, notify=notify)

    def delete_worker_sync(self, sync_name: str) -> None:
        """Forget a named point."""
        self.tasks.delete_worker_sync(sync_name)

    def delete_all_worker_sync(self) -> None:
        """Forget all named points."""
        self.tasks.delete_all_worker_syncs()

    def report_used_resource(self, memory: float, cpu_percent: float) -> None:
        """Do nothing: Legato measures what its processes use."""


def build_master_client(master_addr: str | None = None) -> MasterClient:  # noqa: ARG001 - as programs call it
    """Return the client of this process."""
    return MasterClient()


_known: list[TasksClient] = []
