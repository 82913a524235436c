"""Makes time series of what workers and machines used, with a gap where nothing was measured. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from legato.api.outputs import GpuSeries, NodeSeries, SystemSeries, WorkerSeries
from legato.core.errors import NotFound
from legato.core.system_metrics import MAX_GPUS, GpuMetrics, SystemLine, follows, halve
from legato.driver.system_log import read_lines
from legato.server.job_files import open_file

_MAX_BYTES: Final = 2**22  # a driver writes less
_MAX_SERIES: Final = 10_000

_Key = TypeVar("_Key", int, str)


def read_system_lines(path: Path) -> list[SystemLine]:
    """Read the lines that a driver has written; none if the file does not exist."""
    try:
        with open_file(path.parent, (path.name,)) as file:
            return read_lines(file.read(_MAX_BYTES))
    except NotFound:
        return []


def make_series(lines: Sequence[SystemLine], since: float | None, num_points: int) -> SystemSeries:
    """Return the series of all workers and machines in some lines.

    Args:
        lines: in any order.
        since: leave out lines that end before. None: all lines.
        num_points: maximum number of points of a series, beside its gaps: neighbouring lines are averaged.
    """
    # A clock that was set back leaves times that came before.
    chosen = sorted((line for line in lines if since is None or line.time > since), key=lambda line: line.time)
    while len(chosen) > num_points:
        shorter = halve(chosen)
        # Lines that do not follow one another are not averaged: the newest ones count.
        chosen = shorter if len(shorter) < len(chosen) else chosen[-num_points:]
    workers: dict[int, _Columns] = {}
    nodes: dict[str, _Columns] = {}
    for line in chosen:
        _add(workers, line, line.workers)
        _add(nodes, line, line.nodes)
    return SystemSeries(
        tuple(_series_of_worker(number, workers[number]) for number in sorted(workers)),
        tuple(_series_of_node(name, nodes[name]) for name in sorted(nodes)),
    )


def _add(columns: dict[_Key, _Columns], line: SystemLine, records: Mapping[_Key, Any]) -> None:
    for key, record in records.items():
        if key in columns or len(columns) < _MAX_SERIES:
            columns.setdefault(key, _Columns()).add(line, record)


class _Columns:
    """The points of one worker or machine. A point without a record is a gap."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.records: list[Any] = []
        self._last: SystemLine | None = None

    def add(self, line: SystemLine, record: Any) -> None:
        if self._last is not None and not follows(line, self._last):
            self.times.append(max(line.begins, self._last.time))
            self.records.append(None)
        self.times.append(line.time)
        self.records.append(record)
        self._last = line

    def column(self, name: str) -> tuple[Any, ...]:
        return tuple(getattr(record, name, None) for record in self.records)

    @property
    def newest(self) -> Any:
        return self.records[-1]


def _series_of_worker(number: int, columns: _Columns) -> WorkerSeries:
    return WorkerSeries(
        worker=number,
        slot=columns.newest.slot,
        time=tuple(columns.times),
        cpus=columns.column("cpus"),
        memory_bytes=columns.column("memory_bytes"),
        gpu_busy=columns.column("gpu_busy"),
        gpu_memory_bytes=columns.column("gpu_memory_bytes"),
        data_wait=columns.column("data_wait"),
    )


def _series_of_node(name: str, columns: _Columns) -> NodeSeries:
    newest = columns.newest
    gpus: dict[str, list[GpuMetrics | None]] = {}
    for number, record in enumerate(columns.records):
        for gpu in () if record is None else record.gpus:
            if gpu.device in gpus or len(gpus) < MAX_GPUS:
                gpus.setdefault(gpu.device, [None] * len(columns.records))[number] = gpu
    return NodeSeries(
        node=name,
        num_cpus=newest.num_cpus,
        total_bytes=newest.total_bytes,
        time=tuple(columns.times),
        cpus=columns.column("cpus"),
        memory_bytes=columns.column("memory_bytes"),
        gpus=tuple(_series_of_gpu(found) for found in gpus.values()),
    )


def _series_of_gpu(found: Sequence[GpuMetrics | None]) -> GpuSeries:
    newest = next(gpu for gpu in reversed(found) if gpu is not None)
    return GpuSeries(
        device=newest.device,
        name=newest.name,
        slots=newest.slots,
        total_bytes=newest.total_bytes,
        busy=tuple(None if gpu is None else gpu.busy for gpu in found),
        memory_bytes=tuple(None if gpu is None else gpu.memory_bytes for gpu in found),
    )
