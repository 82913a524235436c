"""The messages of the historic protocol, all versions of it in one: names and numbers of fields. Data only.

Versions agree wherever they overlap; a version ignores fields that it does not have. Only fields that this code reads
or writes are named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Final

SERVICE: Final = "proto.Master"
MAX_MESSAGE_BYTES: Final = 256 * 1024 * 1024
MAX_REQUEST_BYTES: Final = 1024 * 1024
"""Of all requests but a `ShardCheckpoint`."""
ASK: Final = "legato-ask"
"""Metadata of a call for a task: the name of the request."""
WAITS: Final = "legato-waits"
"""Metadata of a call for a task: ``yes`` if the call waits while other workers have the last tasks, else ``no``."""


COMPUTES: Final = "legato-computes"
"""Metadata of a call for a task: ``yes`` if the caller computes the records of a shuffled task from its `Order`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Empty:
    """Nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Records of a task: ``indices``, or those from ``start`` to before ``end``."""

    name: Annotated[str, 1] = ""
    start: Annotated[int, 2] = 0
    end: Annotated[int, 3] = 0
    indices: Annotated[tuple[int, ...], 4] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The order of a shuffled data set's records: their number, and the seed."""

    size: Annotated[int, 1] = 0
    seed: Annotated[int, 2] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """A task; ``type`` is a `TaskKind`. ``epoch`` and ``order`` exist only in Legato: original programs ignore them."""

    task_id: Annotated[int, 1] = 0
    shard: Annotated[Shard, 2] = field(default_factory=Shard)
    model_version: Annotated[int, 3] = 0
    type: Annotated[int, 4] = 0
    epoch: Annotated[int, 100] = 0
    order: Annotated[Order, 101] = field(default_factory=Order)


@dataclass(frozen=True, slots=True, kw_only=True)
class GetTaskRequest:
    """Of ``get_task``."""

    worker_id: Annotated[int, 1] = 0
    task_type: Annotated[int, 2] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GetDatasetTaskRequest:
    """Of ``get_dataset_task``."""

    worker_id: Annotated[int, 1] = 0
    dataset_name: Annotated[str, 2] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportResultRequest:
    """Of ``report_task_result`` and, with a name, of ``report_dataset_task_result``."""

    task_id: Annotated[int, 1] = 0
    err_message: Annotated[str, 2] = ""
    dataset_name: Annotated[str, 4] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportParamsRequest:
    """Of ``report_training_params`` and, with a name and perhaps a type, of ``report_dataset_shard_params``."""

    batch_size: Annotated[int, 1] = 0
    num_epochs: Annotated[int, 2] = 0
    dataset_size: Annotated[int, 3] = 0
    shuffle: Annotated[bool, 4] = False
    shuffle_shards: Annotated[bool, 5] = False
    num_minibatches_per_shard: Annotated[int, 6] = 0
    dataset_name: Annotated[str, 7] = ""
    task_type: Annotated[int, 8] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRequest:
    """Of ``get_dataset_epoch`` and ``get_shard_checkpoint``."""

    dataset_name: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetRequest:
    """Of ``reset_dataset``. ``worker_id``, and ``ask``, the name of the request, exist only in Legato."""

    dataset_name: Annotated[str, 1] = ""
    worker_id: Annotated[int, 100] = 0
    ask: Annotated[str, 101] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochResponse:
    """From ``get_dataset_epoch``."""

    epoch: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardCheckpoint:
    """From ``get_shard_checkpoint``, and of ``report_shard_checkpoint``."""

    content: Annotated[str, 1] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class YesResponse:
    """``success``, ``ready``, ``reset`` or ``enabled``: all have the same number."""

    yes: Annotated[bool, 1] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberResponse:
    """``version`` or ``status``."""

    number: Annotated[int, 1] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """Of ``get_comm_rank``, ``reset_sync`` and ``barrier_sync``."""

    worker_host: Annotated[str, 1] = ""
    worker_local_process_id: Annotated[int, 2] = 0
    rendezvous_id: Annotated[int, 3] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommRankResponse:
    """From ``get_comm_rank``."""

    rank_id: Annotated[int, 1] = 0
    world_size: Annotated[int, 2] = 0
    rendezvous_id: Annotated[int, 3] = 0
    rendezvous_port: Annotated[int, 4] = 0
    local_rank: Annotated[int, 5] = 0
    local_size: Annotated[int, 6] = 0
    cross_rank: Annotated[int, 7] = 0
    cross_size: Annotated[int, 8] = 0
    master_port: Annotated[int, 9] = 0
    master_addr: Annotated[str, 10] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopStatusRequest:
    """Of ``report_training_loop_status``; ``status`` is 1 for the begin of the loop, 2 for its end."""

    worker_host: Annotated[str, 1] = ""
    status: Annotated[int, 2] = 0
    worker_local_process_id: Annotated[int, 3] = 0
    ddp_server_port: Annotated[int, 4] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSyncRequest:
    """Of ``worker_sync``."""

    sync_name: Annotated[str, 1] = ""
    worker_id: Annotated[int, 2] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSyncRequest:
    """Of ``wait_worker_sync``."""

    sync_name: Annotated[str, 1] = ""
    notify: Annotated[bool, 2] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteSyncRequest:
    """Of ``delete_worker_sync``."""

    sync_name: Annotated[str, 1] = ""
    delete_all: Annotated[bool, 2] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRequest:
    """Of the remote locks; ``timeout`` in seconds, 0 or less for none."""

    name: Annotated[str, 1] = ""
    timeout: Annotated[int, 2] = 0
