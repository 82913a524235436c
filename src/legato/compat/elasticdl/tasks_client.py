"""The interface between a worker and the source of its tasks. Types only; `tasks_client_grpc` speaks gRPC.

All calls block, may be made from any thread of the process that made the client, and outlast a driver that is
replaced: they are tried again until the driver answers, or has not answered for as long as a worker waits for one.
"""

from __future__ import annotations

from typing import Protocol

from legato.compat.elasticdl.task_types import DatasetParams, Standing, Task
from legato.core.errors import LegatoError


class TasksUnreachable(LegatoError):
    """Who hands out tasks does not answer any more, or the client was closed meanwhile."""


class TasksClient(Protocol):
    """Tasks, as one worker asks for them.

    Everywhere ``dataset`` is a name; empty for the default training data set. Every call raises `TasksUnreachable` if
    no driver answers, and `legato.core.errors.DataError` if what is asked makes no sense.
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

        While nothing is left to hand out, but other workers still hold tasks, this waits: one of them may die. It does
        not wait while this worker itself holds a task of the data set, because its last batch may only be made up once
        the end is known; ask again when all is reported.

        Args:
            dataset: its name.
            wait: False to return None instead of waiting.
        """
        ...

    def report_task_result(self, task: int, dataset: str = "", error: str = "") -> None:
        """Say that a task is done, or, with an error, that it is not: it is then handed out again.

        A number that is not handed out (any more) is skipped.
        """
        ...

    def reset_dataset(self, dataset: str = "") -> None:
        """Restart a data set: its first epoch, no task done; tasks that are handed out count no more."""
        ...

    def get_dataset_epoch(self, dataset: str = "") -> int:
        """Return the epoch from which tasks are handed out, from 1; 0 if the data set is unknown or not begun."""
        ...

    def get_checkpoint(self, dataset: str = "") -> str:
        """Return which records are left, as JSON; empty if the data set is unknown."""
        ...

    def restore_checkpoint(self, content: str) -> bool:
        """Continue where a checkpoint was written: all that was not done then is to do. False if it cannot be read."""
        ...

    def worker_sync(self, name: str) -> bool:
        """Say that this worker has reached a named point. True once all have that ran when the first reached it."""
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
        """Return where this worker stands among those in the training loop."""
        ...

    def report_training_loop(self, *, inside: bool) -> None:
        """Say that this worker enters the training loop, or leaves it."""
        ...

    def close(self) -> None:
        """Let go of the connection; calls of other threads raise `TasksUnreachable`."""
        ...
