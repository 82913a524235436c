"""The interface between a worker and the source of its tasks. Types only; `tasks_client_grpc` speaks gRPC.

All calls block, and may come from any thread of the process that made the client. They outlast a driver that is
replaced: the client repeats them until the driver answers, or until the time has passed for which a worker waits for a
driver.
"""

from __future__ import annotations

from typing import Protocol

from legato.compat.elasticdl.task_types import DatasetParams, Standing, Task
from legato.core.errors import LegatoError


class TasksUnreachable(LegatoError):
    """The driver, which hands out tasks, is unknown or does not answer, or the client was closed."""


class TasksClient(Protocol):
    """Requests of one worker about tasks.

    Everywhere ``dataset`` is a name; empty for the default training data set. Every call raises `TasksUnreachable` if
    no driver answers, and `legato.core.errors.DataError` if the request is invalid.
    """

    @property
    def worker(self) -> int:
        """The number of the worker that asks."""
        ...

    def report_params(self, params: DatasetParams) -> None:
        """Register a data set. The first registration of a name wins; later ones change nothing, even if they differ.

        Raises:
            DataError: a size is not above 0.
        """
        ...

    def get_task(self, dataset: str = "", *, wait: bool = True) -> Task | None:
        """Return the next task, None at the end of the data.

        If no task is left, but other workers still have tasks, the call waits: a worker may die, and its tasks come
        back. It does not wait while this worker itself has a task of the data set, because the worker may need the end
        of the data to complete its last batch. Then call it again when all tasks are reported.

        Args:
            dataset: its name.
            wait: False to return None instead of waiting.
        """
        ...

    def report_task_result(self, task: int, dataset: str = "", error: str = "") -> None:
        """Report that a task is done or, with an error, that it has failed and must be handed out again.

        The number of a task that is not handed out (any more) is ignored.
        """
        ...

    def reset_dataset(self, dataset: str = "") -> None:
        """Restart a data set from its first epoch. Tasks that are handed out do not count any more."""
        ...

    def get_dataset_epoch(self, dataset: str = "") -> int:
        """Return the epoch from which tasks are handed out, from 1; 0 if the data set is unknown or not begun."""
        ...

    def get_checkpoint(self, dataset: str = "") -> str:
        """Return which records are left, as JSON; empty if the data set is unknown."""
        ...

    def restore_checkpoint(self, content: str) -> bool:
        """Continue from a checkpoint: the records that were not done then are open. False if it cannot be read."""
        ...

    def worker_sync(self, name: str) -> bool:
        """Report that this worker has reached a named point; return whether all have that ran at the first report."""
        ...

    def wait_worker_sync(self, name: str, *, notify: bool = False) -> bool:
        """Return whether a named point was passed: a client declared so with ``notify``, or all have reached it."""
        ...

    def delete_worker_sync(self, name: str) -> None:
        """Forget a named point."""
        ...

    def delete_all_worker_syncs(self) -> None:
        """Forget all named points."""
        ...

    def get_standing(self) -> Standing:
        """Return the rank of this worker in the training loop, and the number of workers in it."""
        ...

    def report_training_loop(self, *, inside: bool) -> None:
        """Report that this worker enters the training loop, or leaves it."""
        ...

    def close(self) -> None:
        """Close the connection; calls of other threads raise `TasksUnreachable`."""
        ...
