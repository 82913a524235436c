"""Requests a worker's tasks over gRPC, from the plugin of the job's driver. Retries while a driver is being replaced.

Only the process that makes a client may use it, not the processes that it forks.
"""

from __future__ import annotations

import itertools
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import grpc

from legato.compat.elasticdl import messages as m
from legato.compat.elasticdl.dataset import order_of_records
from legato.compat.elasticdl.protobuf import decode, encode
from legato.compat.elasticdl.task_types import TRAINING_NAME, DatasetParams, Standing, Task, TaskKind
from legato.compat.elasticdl.tasks_client import TasksUnreachable
from legato.core.clock import Clock
from legato.core.errors import DataError

_AWAY_LIMIT_S: Final = 60.0  # as long as workers wait for a driver
_LISTENING_AGAIN_S: Final = 0.2
_ENTERED: Final = 1
_LEFT: Final = 2

_M = TypeVar("_M")


def connect_tasks(environment: Mapping[str, str] = os.environ) -> GrpcTasksClient:
    """Return the client of the worker that the environment describes.

    Raises:
        TasksUnreachable: the environment does not contain the address of the driver's plugin, or a worker's number.
    """
    address, worker = environment.get("MASTER_ADDR", ""), environment.get("WORKER_ID", "")
    if ":" not in address or not worker.isdigit():
        raise TasksUnreachable(
            "No driver hands out tasks here: MASTER_ADDR and WORKER_ID are not both set. Run the program as a job, "
            "with 'elasticdl train'."
        )
    return GrpcTasksClient(address, int(worker), environment.get("MY_POD_IP", "localhost"))


class GrpcTasksClient:
    """Requests of one worker about tasks; see `legato.compat.elasticdl.tasks_client.TasksClient`.

    Args:
        address: ``host:port`` of the driver's plugin.
        worker: the number of the worker that asks.
        host: identifies the worker in the training loop.
        away_limit_s: seconds for which the plugin may not answer before a call fails.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        address: str,
        worker: int,
        host: str = "localhost",
        *,
        away_limit_s: float = _AWAY_LIMIT_S,
        clock: Clock = time.monotonic,
    ) -> None:
        self._worker = worker
        self._host = host
        self._away_limit_s = away_limit_s
        self._clock = clock
        self._address = address
        self._process = os.getpid()
        # Names of requests must be unique, also among several processes with this worker's number.
        self._name = secrets.token_hex(4)
        self._numbers = itertools.count(1)
        self._closed = threading.Event()
        self._channel = grpc.insecure_channel(
            address,
            options=[
                ("grpc.max_send_message_length", m.MAX_MESSAGE_BYTES),
                ("grpc.max_receive_message_length", m.MAX_MESSAGE_BYTES),
                ("grpc.enable_http_proxy", 0),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )

    @property
    def worker(self) -> int:
        """The number of the worker that asks."""
        return self._worker

    # ------------------------------------------------------------ tasks

    def report_params(self, params: DatasetParams) -> None:
        """Register a data set; see `TasksClient`."""
        self._ask(
            "report_dataset_shard_params",
            m.ReportParamsRequest(
                batch_size=params.batch_size,
                num_epochs=params.num_epochs,
                dataset_size=params.dataset_size,
                shuffle=params.shuffle,
                shuffle_shards=params.shuffle_shards,
                num_minibatches_per_shard=params.num_minibatches_per_shard,
                dataset_name=params.name,
                task_type=params.kind,
            ),
            m.Empty,
        )

    def get_task(self, dataset: str = "", *, wait: bool = True) -> Task | None:
        """Return the next task, None at the end of the data; see `TasksClient`."""
        answer = self._ask(
            "get_dataset_task",
            m.GetDatasetTaskRequest(worker_id=self._worker, dataset_name=dataset),
            m.TaskMessage,
            {m.ASK: self._name_request(), m.WAITS: "yes" if wait else "no", m.COMPUTES: "yes"},
        )
        if answer.type in (TaskKind.NONE, TaskKind.WAIT):
            return None
        start, end, indices = answer.shard.start, answer.shard.end, answer.shard.indices
        if answer.order.size:
            # Computed here and not in the driver, which serves many workers.
            order = answer.order
            indices = order_of_records(order.size, order.seed, answer.epoch).take(start, end)
        return Task(
            number=answer.task_id,
            dataset=dataset or TRAINING_NAME,
            kind=TaskKind(answer.type),
            start=start,
            end=end,
            indices=indices,
            epoch=answer.epoch,
        )

    def report_task_result(self, task: int, dataset: str = "", error: str = "") -> None:
        """Report that a task is done or has failed; see `TasksClient`."""
        asked = m.ReportResultRequest(task_id=task, err_message=error, dataset_name=dataset)
        self._ask("report_dataset_task_result", asked, m.Empty)

    def reset_dataset(self, dataset: str = "") -> None:
        """Restart a data set; see `TasksClient`."""
        asked = m.ResetRequest(dataset_name=dataset, worker_id=self._worker, ask=self._name_request())
        self._ask("reset_dataset", asked, m.Empty)

    def get_dataset_epoch(self, dataset: str = "") -> int:
        """Return the epoch from which tasks are handed out; see `TasksClient`."""
        return self._ask("get_dataset_epoch", m.DatasetRequest(dataset_name=dataset), m.EpochResponse).epoch

    def get_checkpoint(self, dataset: str = "") -> str:
        """Return which records are left; see `TasksClient`."""
        return self._ask("get_shard_checkpoint", m.DatasetRequest(dataset_name=dataset), m.ShardCheckpoint).content

    def restore_checkpoint(self, content: str) -> bool:
        """Continue from a checkpoint; see `TasksClient`."""
        return self._ask("report_shard_checkpoint", m.ShardCheckpoint(content=content), m.YesResponse).yes

    # ------------------------------------------------------------ named points, the loop

    def worker_sync(self, name: str) -> bool:
        """Report that this worker has reached a named point; see `TasksClient`."""
        asked = m.WorkerSyncRequest(sync_name=name, worker_id=self._worker)
        return self._ask("worker_sync", asked, m.YesResponse).yes

    def wait_worker_sync(self, name: str, *, notify: bool = False) -> bool:
        """Return whether a named point was passed; see `TasksClient`."""
        return self._ask("wait_worker_sync", m.WaitSyncRequest(sync_name=name, notify=notify), m.YesResponse).yes

    def delete_worker_sync(self, name: str) -> None:
        """Forget a named point."""
        self._ask("delete_worker_sync", m.DeleteSyncRequest(sync_name=name), m.Empty)

    def delete_all_worker_syncs(self) -> None:
        """Forget all named points."""
        self._ask("delete_worker_sync", m.DeleteSyncRequest(delete_all=True), m.Empty)

    def get_standing(self) -> Standing:
        """Return the rank of this worker in the training loop; see `TasksClient`."""
        answer = self._ask("get_comm_rank", m.HostRequest(worker_host=self._host), m.CommRankResponse)
        return Standing(
            rank=answer.rank_id,
            world_size=answer.world_size,
            rendezvous=answer.rendezvous_id,
            port=answer.rendezvous_port,
        )

    def report_training_loop(self, *, inside: bool) -> None:
        """Report that this worker enters the training loop, or leaves it."""
        asked = m.LoopStatusRequest(worker_host=self._host, status=_ENTERED if inside else _LEFT)
        self._ask("report_training_loop_status", asked, m.Empty)

    def close(self) -> None:
        """Close the connection; calls of other threads raise `TasksUnreachable`."""
        self._closed.set()
        self._channel.close()

    # ------------------------------------------------------------ one call

    def _name_request(self) -> str:
        """Return a new name, for a request and its repetitions."""
        return f"{self._name}-{next(self._numbers)}"

    def _ask(self, method: str, request: Any, kind: type[_M], metadata: Mapping[str, str] | None = None) -> _M:
        """Call a method until it answers. The plugin may carry a call out twice without harm."""
        if os.getpid() != self._process:
            raise TasksUnreachable(
                "Only the process that made the client of tasks may use it. Pass records on to others, not the client."
            )
        call: Callable[..., bytes] = self._channel.unary_unary(f"/{m.SERVICE}/{method}")
        asked = encode(request)
        away_since: float | None = None
        while not self._closed.is_set():
            try:
                return decode(kind, call(asked, metadata=tuple((metadata or {}).items())))
            except grpc.RpcError as error:
                if error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                    raise DataError(error.details()) from None
                if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                    raise
                away_since = self._clock() if away_since is None else away_since
                if self._clock() - away_since >= self._away_limit_s:
                    raise TasksUnreachable(
                        f"The driver has not answered at {self._address} for {self._away_limit_s:g} s: "
                        f"{error.details()}."
                    ) from error
            except ValueError:
                if not self._closed.is_set():  # else the channel was closed under us
                    raise
            self._closed.wait(_LISTENING_AGAIN_S)
        raise TasksUnreachable("The client of tasks was closed.")
