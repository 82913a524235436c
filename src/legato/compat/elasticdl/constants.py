"""Constants of ElasticDL that programs import. Data only."""

from __future__ import annotations

from legato.compat.elasticdl.task_types import EVALUATION_NAME, TRAINING_NAME


class GRPC:
    """Sizes of messages."""

    MAX_SEND_MESSAGE_LENGTH = 256 * 1024 * 1024
    MAX_RECEIVE_MESSAGE_LENGTH = 256 * 1024 * 1024


class HorovodEnv:
    """Variables of Horovod. Legato reads none of them."""

    RENDEZVOUS_ADDR = "HOROVOD_GLOO_RENDEZVOUS_ADDR"
    RENDEZVOUS_PORT = "HOROVOD_GLOO_RENDEZVOUS_PORT"
    RANK = "HOROVOD_RANK"
    SIZE = "HOROVOD_SIZE"
    LOCAL_RANK = "HOROVOD_LOCAL_RANK"
    LOCAL_SIZE = "HOROVOD_LOCAL_SIZE"
    CROSS_RANK = "HOROVOD_CROSS_RANK"
    CROSS_SIZE = "HOROVOD_CROSS_SIZE"
    CONTROLLER = "HOROVOD_CONTROLLER"
    CPU_OPERATIONS = "HOROVOD_CPU_OPERATIONS"
    HOSTNAME = "HOROVOD_HOSTNAME"
    ELASTIC = "HOROVOD_ELASTIC"
    GLOO_TIMEOUT_SECONDS = "HOROVOD_GLOO_TIMEOUT_SECONDS"


class WorkerEnv:
    """Variables of a worker."""

    MASTER_ADDR = "MASTER_ADDR"
    WORKER_ID = "WORKER_ID"
    WORKER_NUM = "WORKER_NUM"


class PodEnv:
    """Variables of a pod."""

    RELAUNCHED_POD = "RELAUNCHED_POD"


class DDPEnv:
    """Variables of torch's collectives."""

    MASTER_ADDR = "MASTER_ADDR"
    MASTER_PORT = "MASTER_PORT"
    RANK = "RANK"
    WORLD_SIZE = "WORLD_SIZE"


class CommunicationBackend:
    """Names of libraries for collectives."""

    GLOO = "gloo"
    NCCL = "nccl"


class TrainingLoopStatus:
    """The states of its loop that a worker reports."""

    START = 1
    END = 2
    PENDING = 3


class TaskExecCounterKey:
    """Names of counters."""

    FAIL_COUNT = "fail_count"


class DefaultDatasetName:
    """Names of data sets for which a program gives no name."""

    TRAINING = TRAINING_NAME
    EVALUATION = EVALUATION_NAME
