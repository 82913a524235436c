"""Constants that programs import."""

from legato.compat.elasticdl.constants import (
    GRPC,
    CommunicationBackend,
    DDPEnv,
    DefaultDatasetName,
    HorovodEnv,
    PodEnv,
    TaskExecCounterKey,
    TrainingLoopStatus,
    WorkerEnv,
)

__all__ = [
    "GRPC",
    "CommunicationBackend",
    "DDPEnv",
    "DefaultDatasetName",
    "HorovodEnv",
    "PodEnv",
    "TaskExecCounterKey",
    "TrainingLoopStatus",
    "WorkerEnv",
]
