"""Uploaded code, and the outputs of jobs: logs, files, checkpoints and time series."""

from __future__ import annotations

from typing import Literal

import msgspec


class Log(msgspec.Struct, frozen=True):
    """A log of a job. ``log``: its name, ``driver`` or ``worker-N``."""

    log: str
    num_bytes: int
    modified_at: float


class File(msgspec.Struct, frozen=True):
    """A file or folder of a job. ``path``: relative to the job's directory; ``kind``: ``file`` or ``folder``."""

    path: str
    kind: str
    num_bytes: int
    modified_at: float


class Files(msgspec.Struct, frozen=True):
    """Files of a job. ``is_complete``: the list contains all of them."""

    items: tuple[File, ...]
    is_complete: bool


class Checkpoint(msgspec.Struct, frozen=True):
    """A checkpoint of a job. ``path``: the file of the job that contains it."""

    step: int
    path: str
    num_bytes: int
    modified_at: float


class JobValues(msgspec.Struct, frozen=True, kw_only=True):
    """What tables show of a job beside its record.

    Args:
        job: its id.
        parameters: with which it was submitted.
        metrics: the last value of each metric that its program logged by ``run.log``, of at most 200. None: that value
            was not finite.
        is_complete: false if the server has not read all metrics yet, because they are very long. The next request
            goes on.
    """

    job: str
    parameters: dict[str, str | bool | int | float]
    metrics: dict[str, float | None]
    is_complete: bool = True


class Series(msgspec.Struct, frozen=True):
    """The values of one metric, as columns of the same length.

    Args:
        source: ``log``: the program logged them with ``run.log``; ``backward``: the mean losses of the steps, as
            ``run.backward`` or ``run.note_loss`` got them.
    """

    name: str
    step: tuple[int, ...]
    epoch: tuple[int, ...]
    time: tuple[float, ...]
    value: tuple[float | None, ...]
    source: Literal["log", "backward"] = "log"


class Steps(msgspec.Struct, frozen=True):
    """The first commit of each step, as columns of the same length."""

    step: tuple[int, ...]
    epoch: tuple[int, ...]
    view: tuple[int, ...]
    time: tuple[float, ...]


class Metrics(msgspec.Struct, frozen=True):
    """The time series of a job: what its program logged, the losses of its steps, and its committed steps."""

    series: tuple[Series, ...]
    steps: Steps


class WorkerSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker used, as columns of the same length: averages that end at ``time``. None: not measured.

    Args:
        worker: its number, which is never used again.
        slot: its slot.
        time: seconds since 1970. A point without values is a gap: nothing was measured since the point before it.
        cpus: CPU cores that it and its processes used.
        memory_bytes: their resident memory; memory that several of them share counts for each.
        gpu_busy: the part of the time in which the GPUs of its slot computed, 0 to 1, for any program.
        gpu_memory_bytes: memory in use on these GPUs.
        data_wait: the part of the time of its steps in which it waited for data, 0 to 1.
    """

    worker: int
    slot: str
    time: tuple[float, ...]
    cpus: tuple[float | None, ...]
    memory_bytes: tuple[int | None, ...]
    gpu_busy: tuple[float | None, ...]
    gpu_memory_bytes: tuple[int | None, ...]
    data_wait: tuple[float | None, ...]


class GpuSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What all programs used of a GPU, at the times of its machine's series.

    Args:
        device: ``GPU-…``, or ``MIG-…`` for a part of one.
        name: its model.
        slots: numbers of the slots to which it belongs.
        total_bytes: its memory.
        busy: the part of the time in which it computed, 0 to 1. None: not measured.
        memory_bytes: memory in use. None: not measured.
    """

    device: str
    name: str
    slots: tuple[int, ...]
    total_bytes: int
    busy: tuple[float | None, ...]
    memory_bytes: tuple[int | None, ...]


class NodeSeries(msgspec.Struct, frozen=True, kw_only=True):
    """What all programs of a machine used, as columns of the same length; times and gaps as in `WorkerSeries`.

    Args:
        node: its name.
        num_cpus: its CPU cores.
        total_bytes: its memory.
        time: seconds since 1970.
        cpus: cores in use.
        memory_bytes: memory that is not available.
        gpus: those of its slots that NVML knows.
    """

    node: str
    num_cpus: int
    total_bytes: int
    time: tuple[float, ...]
    cpus: tuple[float | None, ...]
    memory_bytes: tuple[int | None, ...]
    gpus: tuple[GpuSeries, ...] = ()


class SystemSeries(msgspec.Struct, frozen=True):
    """What workers and machines used over time."""

    workers: tuple[WorkerSeries, ...]
    nodes: tuple[NodeSeries, ...]


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """Uploaded code. ``uploaded_by``: the user who uploaded it first; ``used_at``: when it was last used."""

    sha256: str
    num_bytes: int
    uploaded_by: str
    created_at: float
    used_at: float
