"""What machines and the processes of workers use: records of the samples. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, TypeVar

import msgspec

MEASURE_EVERY_S: Final = 10.0
"""Time between two samples."""

MAX_GPUS: Final = 256
"""In one sample."""

MAX_SLOTS: Final = 1024
"""Slots with higher numbers are left out of samples."""

MAX_SLOTS_OF_GPU: Final = 64

MAX_NAME: Final = 200

_MAX_AMOUNT: Final = 2**50
_MAX_SUM: Final = 2**53  # JSON has no larger numbers for all readers

_Number = TypeVar("_Number", int, float)

Amount = Annotated[int, msgspec.Meta(ge=0, le=_MAX_AMOUNT)]
Sum = Annotated[int, msgspec.Meta(ge=0, le=_MAX_SUM)]
Cores = Annotated[float, msgspec.Meta(ge=0, le=2**20)]
Part = Annotated[float, msgspec.Meta(ge=0, le=1)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
SlotNumber = Annotated[int, msgspec.Meta(ge=0, lt=MAX_SLOTS)]


class GpuMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU, or a part of one (MIG), as NVML sees it: all programs that use it, not only those of Legato.

    Args:
        device: its name in ``CUDA_VISIBLE_DEVICES``: ``GPU-…`` or ``MIG-…``.
        name: its model.
        slots: numbers of the slots of its machine to which it belongs.
        busy: the part of the time in which it computed, 0 to 1. None: NVML does not measure it, as for MIG.
        memory_bytes: memory in use.
        total_bytes: its memory.
    """

    device: Name
    name: Name
    slots: Annotated[tuple[SlotNumber, ...], msgspec.Meta(max_length=MAX_SLOTS_OF_GPU)]
    busy: Part | None
    memory_bytes: Amount
    total_bytes: Amount


class MachineMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What all programs of a machine use.

    Args:
        cpus: CPU cores in use, on average since the sample before.
        num_cpus: its cores.
        memory_bytes: memory that is not available to programs.
        total_bytes: its memory.
        gpus: those of its slots that NVML knows.
    """

    cpus: Cores
    num_cpus: Amount
    memory_bytes: Amount
    total_bytes: Amount
    gpus: Annotated[tuple[GpuMetrics, ...], msgspec.Meta(max_length=MAX_GPUS)] = ()


class WorkerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker uses, with the processes that it has started.

    Args:
        cpus: CPU cores in use, on average since the sample before. None: not known, because processes have ended.
        memory_bytes: resident memory. Memory that several of its processes share counts for each of them.
    """

    cpus: Cores | None
    memory_bytes: Amount


class SystemSample(msgspec.Struct, frozen=True, kw_only=True):
    """A sample of a machine, and of the workers of a job there. None and empty: not known, or not for the first time.

    CPU cores in use need two samples, so the first one has none of a process.
    """

    machine: MachineMetrics | None = None
    workers: dict[int, WorkerMetrics] = {}


class WorkerLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one worker used, on average over the time of a line. None: not measured.

    Args:
        slot: its slot.
        cpus: as in `WorkerMetrics`.
        memory_bytes: likewise.
        gpu_busy: as in `GpuMetrics`, the mean of the GPUs of its slot.
        gpu_memory_bytes: likewise, their sum.
        data_wait: the part of the time of its steps in which it waited for data, 0 to 1.
    """

    slot: str
    cpus: Cores | None = None
    memory_bytes: Amount | None = None
    gpu_busy: Part | None = None
    gpu_memory_bytes: Sum | None = None
    data_wait: Part | None = None


class SystemLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of ``system.jsonl``: what a job's workers and their machines used from ``time - span_s`` until ``time``.

    Args:
        time: seconds since 1970.
        span_s: of which the values are averages.
        workers: by number.
        nodes: by name.
    """

    time: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    span_s: Annotated[float, msgspec.Meta(gt=0, le=1e12)]
    workers: dict[int, WorkerLine]
    nodes: dict[str, MachineMetrics]

    @property
    def begins(self) -> float:
        """When it begins."""
        return self.time - self.span_s


def choose_gpus(sample: SystemSample, slots: set[int]) -> SystemSample:
    """Return a sample of a machine with the GPUs of some of its slots only: one for each slot, whatever it says.

    Args:
        sample: of the machine.
        slots: their numbers.
    """
    if sample.machine is None or not sample.machine.gpus:
        return sample
    chosen: dict[int, GpuMetrics] = {}
    for gpu in sample.machine.gpus:
        for slot in slots.intersection(gpu.slots):
            chosen.setdefault(slot, gpu)
    machine = msgspec.structs.replace(sample.machine, gpus=tuple(dict.fromkeys(chosen.values())))
    return msgspec.structs.replace(sample, machine=machine)


def describe_worker(slot: str, numbers: tuple[int, ...], sample: SystemSample | None, worker: int) -> WorkerLine:
    """Return what a sample of its machine says of a worker.

    Args:
        slot: of the worker.
        numbers: those of its slots on the machine.
        sample: None: there is none.
        worker: its number.
    """
    own = None if sample is None else sample.workers.get(worker)
    machine = None if sample is None else sample.machine
    gpus = [gpu for gpu in machine.gpus if set(gpu.slots) & set(numbers)] if machine is not None else []
    busy = [gpu.busy for gpu in gpus if gpu.busy is not None]
    return WorkerLine(
        slot=slot,
        cpus=None if own is None else own.cpus,
        memory_bytes=None if own is None else own.memory_bytes,
        gpu_busy=round(sum(busy) / len(busy), 3) if busy else None,
        gpu_memory_bytes=add_up(gpu.memory_bytes for gpu in gpus) if gpus else None,
    )


def add_up(amounts: Iterable[_Number]) -> _Number | int:
    """Return a sum that fits into JSON, whatever machines say.

    >>> add_up([1, 2]), add_up([2**50] * 1000) == 2**53
    (3, True)
    """
    return min(sum(amounts), _MAX_SUM)


def follows(line: SystemLine, before: SystemLine) -> bool:
    """Return whether a line continues another one, so that nothing is missing between them.

    >>> a, b = (SystemLine(time=time, span_s=10.0, workers={}, nodes={}) for time in (10.0, 21.0))
    >>> follows(b, a), follows(msgspec.structs.replace(b, time=60.0), a)
    (True, False)

    After a clock was set back, nothing follows what came before:

    >>> follows(msgspec.structs.replace(b, time=-100.0), a), follows(a, a)
    (False, False)
    """
    return abs(line.begins - before.time) < 1.5 * MEASURE_EVERY_S and line.begins > before.begins


def merge(one: SystemLine, other: SystemLine) -> SystemLine:
    """Return the averages over two lines, of which ``other`` follows ``one``."""

    def mean(a: Any, b: Any) -> Any:
        if a is None or b is None:
            return b if a is None else a
        found = (a * one.span_s + b * other.span_s) / max(one.span_s + other.span_s, 1e-9)
        return round(found) if isinstance(a, int) else round(found, 3)

    def join(a: Any, b: Any, names: tuple[str, ...]) -> Any:
        if a is None or b is None:
            return b if a is None else a
        return msgspec.structs.replace(b, **{name: mean(getattr(a, name), getattr(b, name)) for name in names})

    def join_machines(a: MachineMetrics | None, b: MachineMetrics | None) -> Any:
        joined = join(a, b, ("cpus", "memory_bytes"))
        if a is None or b is None:
            return joined
        earlier = {gpu.device: gpu for gpu in a.gpus}
        gpus = tuple(join(earlier.get(gpu.device), gpu, ("busy", "memory_bytes")) for gpu in b.gpus)
        return msgspec.structs.replace(joined, gpus=gpus)

    of_worker = ("cpus", "memory_bytes", "gpu_busy", "gpu_memory_bytes", "data_wait")
    return SystemLine(
        time=other.time,
        span_s=other.time - one.begins,
        workers={
            number: join(one.workers.get(number), other.workers.get(number), of_worker)
            for number in {**one.workers, **other.workers}
        },
        nodes={
            name: join_machines(one.nodes.get(name), other.nodes.get(name)) for name in {**one.nodes, **other.nodes}
        },
    )


def halve(lines: Iterable[SystemLine]) -> list[SystemLine]:
    """Return lines of which each two that follow one another are averaged, in the same order."""
    halved: list[SystemLine] = []
    is_pair = False
    for line in lines:
        if halved and not is_pair and follows(line, halved[-1]):
            halved[-1], is_pair = merge(halved[-1], line), True
        else:
            halved.append(line)
            is_pair = False
    return halved
