"""Tasks of a program that runs alone: the same task manager as the driver's, in this process."""

from __future__ import annotations

import threading

from legato.compat.elasticdl.job_environment import num_minibatches_per_task
from legato.compat.elasticdl.task_words import DatasetParams, Standing, Task
from legato.compat.elasticdl.tasks import TaskManager


class LocalTasks:
    """A `TasksClient` without a driver.

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
        """The number of the worker that asks."""
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
        """Say that a task is done, or is not."""
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
        """Go on where a checkpoint was written."""
        with self._lock:
            return self._tasks.restore(content)

    def worker_sync(self, name: str) -> bool:
        """Say that this worker has reached a named point: all have."""
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
        """Return where this worker stands."""
        return Standing(rank=0, world_size=1, rendezvous=1)

    def report_training_loop(self, *, inside: bool) -> None:
        """Do nothing."""

    def close(self) -> None:
        """There is nothing to let go of."""
