"""Time series of a job, out of the files that its driver writes. Pure but for reading a file; draws nothing."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from legato.core.errors import NotFound
from legato.server.job_files import open_file

T = TypeVar("T")


class Series(msgspec.Struct, frozen=True):
    """What a program logged under one name, as columns of the same length."""

    name: str
    step: tuple[int, ...]
    epoch: tuple[int, ...]
    time: tuple[float, ...]
    value: tuple[float | None, ...]


class Steps(msgspec.Struct, frozen=True):
    """The first commit of each step, as columns of the same length."""

    step: tuple[int, ...]
    epoch: tuple[int, ...]
    view: tuple[int, ...]
    time: tuple[float, ...]


class JobMetrics(msgspec.Struct, frozen=True):
    """All series of a job."""

    series: tuple[Series, ...]
    steps: Steps


class _Logged(msgspec.Struct, frozen=True):
    step: int
    epoch: int
    time: float
    values: dict[str, float | None]


class _Committed(msgspec.Struct, frozen=True):
    step: int
    epoch: int
    view: int
    time: float


def read_metrics(
    metrics_file: Path, ledger_file: Path, *, names: Collection[str], after_step: int | None, num_points: int
) -> JobMetrics:
    """Read the series of a job.

    Args:
        metrics_file: need not exist yet.
        ledger_file: need not exist yet.
        names: of the series that are wanted. Empty: all.
        after_step: only later ones. None: from the beginning.
        num_points: of each series at most.
    """
    first = after_step if after_step is not None else -math.inf
    logged: dict[str, list[tuple[_Logged, float | None]]] = {}
    for line in read_lines(metrics_file, _Logged):
        if line.step > first:
            for name, value in line.values.items():
                if not names or name in names:
                    logged.setdefault(name, []).append((line, value))
    series = []
    for name in sorted(logged):
        points = thin_out(logged[name], [value for _, value in logged[name]], num_points)
        series.append(
            Series(
                name,
                tuple(line.step for line, _ in points),
                tuple(line.epoch for line, _ in points),
                tuple(line.time for line, _ in points),
                tuple(value for _, value in points),
            )
        )
    found = [line for line in read_lines(ledger_file, _Committed) if line.step > first]
    steps = thin_out(found, [float(line.step) for line in found], num_points)
    return JobMetrics(
        tuple(series),
        Steps(
            tuple(line.step for line in steps),
            tuple(line.epoch for line in steps),
            tuple(line.view for line in steps),
            tuple(line.time for line in steps),
        ),
    )


def read_lines(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the lines of a file that is being written; what a crash cut off is left out. It need not be there yet."""
    try:
        file = open_file(path.parent, (path.name,))
    except NotFound:
        return
    with file:
        for line in file:
            try:
                yield msgspec.json.decode(line, type=kind)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue


def thin_out(points: Sequence[T], values: Sequence[float | None], most: int) -> list[T]:
    """Return at most so many of the points, in order: of each stretch the one that is smallest and the one largest.

    >>> values = [0.0, 1.0, 0.0, 0.0, 9.0, 0.0, 0.0, -5.0]
    >>> thin_out(values, values, 4)
    [0.0, 1.0, 9.0, -5.0]
    """
    if len(points) <= most:
        return list(points)
    num_stretches = most // 2
    kept: list[T] = []
    for number in range(num_stretches):
        first, last = (len(points) * end // num_stretches for end in (number, number + 1))
        places = [place for place in range(first, last) if _is_finite(values[place])] or [first]
        low = min(places, key=lambda place: values[place] or 0.0)
        high = max(places, key=lambda place: values[place] or 0.0)
        kept.extend(points[place] for place in sorted({low, high}))
    return kept


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
