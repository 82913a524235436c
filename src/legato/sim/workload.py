"""Workloads: jobs and their times of submission, read from CSV or drawn by a seed. Runs nothing."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from legato.core.errors import UsageError
from legato.policy.snapshot import DEFAULT_PRIORITY, MAX_PRIORITY
from legato.sim.load import Curve, Load


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True):
    """One job of a workload: its submission, the time of the submission, and its computation.

    Args:
        submitted_at: seconds from the beginning.
        code: its name; a job starts with the speeds that earlier jobs of its owner with the same code have measured.
            None: it has no earlier runs.
        asked_workers: its number of workers on a platform without elastic jobs. None: ``max_workers``.
        line: number of its line in the file.
    """

    name: str
    load: Load
    owner: str = "user"
    queue: str = "default"
    code: str | None = None
    submitted_at: float = 0.0
    min_workers: int = 1
    max_workers: int = 1
    asked_workers: int | None = None
    priority: int = DEFAULT_PRIORITY
    is_elastic: bool = True
    max_retries: int = 0
    line: int | None = None

    def at_most_asked(self) -> PlannedJob:
        """Return the same job with ``asked_workers`` as its maximum."""
        if self.asked_workers is None:
            return self
        return msgspec.structs.replace(self, max_workers=self.asked_workers)


def _whole(text: str) -> int:
    return int(text)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    answers = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    return answers[text.lower()]


def read_curve(text: str) -> Curve:
    """Read values for some numbers of workers, such as ``1:10 8:30``, or one value for all numbers.

    Raises:
        ValueError: the text is something else.

    >>> read_curve("1:10 8:30"), read_curve("2.5")
    (((1, 10.0), (8, 30.0)), ((1, 2.5),))
    """
    if ":" not in text:
        return ((1, _seconds(text)),)
    pairs = [part.split(":") for part in text.split()]
    read = tuple((int(number), _seconds(value)) for number, value in pairs)
    numbers = [number for number, _ in read]
    if numbers != sorted(set(numbers)) or numbers[0] < 1:
        raise ValueError(text)
    return read


def _speedups(text: str) -> Curve:
    read = read_curve(text)
    if ":" not in text or read[0][0] < 2 or not all(1e-3 <= speed <= 1e6 for _, speed in read):
        raise ValueError(text)
    return read


_Reader = tuple[Callable[[str], Any], str]
_WHOLE: Final[_Reader] = (_whole, "a whole number")
_SECONDS: Final[_Reader] = (_seconds, "seconds, 0 or more")
_TEXT: Final[_Reader] = (str, "text")

# The columns of a workload, and the reader of each.
COLUMNS: Final[dict[str, _Reader]] = {
    "name": _TEXT,
    "owner": _TEXT,
    "queue": _TEXT,
    "code": _TEXT,
    "submitted_at": _SECONDS,
    "min": _WHOLE,
    "max": _WHOLE,
    "asked": _WHOLE,
    "priority": _WHOLE,
    "static": (_boolean, "yes or no"),
    "steps": _WHOLE,
    "duration_s": _SECONDS,
    "step_s": _SECONDS,
    "num_micro_batches": _WHOLE,
    "overhead_s": _SECONDS,
    "a_s": _SECONDS,
    "b_s": _SECONDS,
    "node_s": _SECONDS,
    "speedups": (_speedups, "numbers of workers from 2 on, in rising order, with their speed: 2:1.9 4:3.4 8:2.8"),
    "resize_s": (read_curve, "seconds, or seconds for some numbers of workers in rising order: 1:10 8:30"),
}


def read_workload(path: Path) -> list[PlannedJob]:
    """Read a workload from a CSV file whose first line names its columns.

    Raises:
        UsageError: the file is invalid; the message says in which line, why, and what to write instead.
    """
    told = f"Cannot read workload '{path}'"
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{told}: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}.") from error
    rows = csv.DictReader(lines, restkey="", restval=None, skipinitialspace=True, strict=True)
    plans: list[PlannedJob] = []
    try:
        _check_columns(rows.fieldnames or (), told)
        for row in rows:
            where = f"{told}, line {rows.line_num}"
            if row.get(""):
                raise UsageError(f"{where}: there are more values than columns. Put values with commas into quotes.")
            values = {name: (value or "").strip() for name, value in row.items()}
            if not any(values.values()):
                continue
            plan = _read_row(values, rows.line_num, where)
            if plans and plan.submitted_at < plans[-1].submitted_at:
                raise UsageError(
                    f"{where}: submitted_at is {plan.submitted_at:g}, before the {plans[-1].submitted_at:g} of line "
                    f"{plans[-1].line}. Sort the lines by submitted_at."
                )
            plans.append(plan)
    except csv.Error as error:
        raise UsageError(f"{told}, line {rows.line_num}: it is not CSV: {error}.") from error
    if not plans:
        raise UsageError(f"{told}: it has no jobs. Write one line for each below the names of the columns.")
    return plans


def _check_columns(names: Sequence[str], told: str) -> None:
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        raise UsageError(f"{told}, line 1: there is no column '{unknown[0]}'. There are: {', '.join(COLUMNS)}.")
    if len(set(names)) < len(names):
        raise UsageError(f"{told}, line 1: a column is named twice. Name each once.")
    if "max" not in names or not {"steps", "duration_s"} & set(names):
        raise UsageError(f"{told}, line 1: name at least the columns max and steps, or max and duration_s.")


def _read_row(row: dict[str, str], line: int, where: str) -> PlannedJob:
    values: dict[str, Any] = {}
    for name, text in row.items():
        if not text:
            continue
        read, kind = COLUMNS[name]
        try:
            values[name] = read(text)
        except (ValueError, KeyError):
            raise UsageError(f"{where}: {name} is '{text}'. Write {kind}.") from None
    if "max" not in values:
        raise UsageError(f"{where}: max is empty. Write how many workers the job may have.")
    low, high = values.get("min", 1), values["max"]
    if not 1 <= low <= high:
        raise UsageError(
            f"{where}: {low}..{high} workers is not a range. Write a min of 1 or more that is not above max."
        )
    asked = values.get("asked")
    if asked is not None and not low <= asked <= high:
        raise UsageError(f"{where}: asked is {asked}. Write a number from min to max, {low} to {high}.")
    priority = values.get("priority", DEFAULT_PRIORITY)
    if not 1 <= priority <= MAX_PRIORITY:
        raise UsageError(f"{where}: priority is {priority}. Write a number from 1 to {MAX_PRIORITY}.")
    if values.get("num_micro_batches", 1) < 1:
        raise UsageError(f"{where}: num_micro_batches is below 1. Leave it empty if any number of workers helps.")
    return PlannedJob(
        name=values.get("name", f"line-{line}"),
        owner=values.get("owner", "user"),
        queue=values.get("queue", "default"),
        code=values.get("code"),
        submitted_at=values.get("submitted_at", 0.0),
        min_workers=low,
        max_workers=high,
        asked_workers=asked,
        priority=priority,
        is_elastic=not values.get("static", False),
        load=_read_load(values, where),
        line=line,
    )


def _read_load(values: dict[str, Any], where: str) -> Load:
    steps, duration_s, step_s = values.get("steps"), values.get("duration_s"), values.get("step_s")
    a_s, b_s = values.get("a_s"), values.get("b_s")
    if (steps is None) == (duration_s is None):
        raise UsageError(f"{where}: give either steps or duration_s, the seconds that it takes on one worker.")
    if b_s is not None and a_s is None:
        raise UsageError(f"{where}: b_s needs a_s: a step takes a_s / W + b_s seconds on W workers.")
    if a_s is not None and {"step_s", "overhead_s", "speedups"} & values.keys():
        raise UsageError(
            f"{where}: a_s and b_s are the time of a step, a_s / W + b_s on W workers. Leave step_s, overhead_s and "
            "speedups empty."
        )
    if a_s is not None:
        step_s = a_s
    step_s = 1.0 if step_s is None else step_s
    if step_s <= 0 or (steps is not None and steps < 1):
        raise UsageError(f"{where}: steps and {'step_s' if a_s is None else 'a_s'} must be above 0.")
    if steps is None:
        steps = max(round((duration_s or 0.0) / (step_s + (b_s or 0.0))), 1)
    return Load(
        num_steps=steps,
        step_s=step_s,
        num_micro_batches=values.get("num_micro_batches"),
        overhead_s=values.get("overhead_s", 0.0),
        fixed_s=b_s or 0.0,
        node_s=values.get("node_s", 0.0),
        speedups=values.get("speedups", ()),
        resize_s=values.get("resize_s", ()),
    )


def draw_workload(seed: int, num_jobs: int, *, mean_gap_s: float = 60.0, max_workers: int = 8) -> list[PlannedJob]:
    """Draw a random workload: many short jobs and a few long ones, most of them elastic, at random times.

    Args:
        seed: the same seed draws the same jobs.
        num_jobs: number of jobs.
        mean_gap_s: mean time between two submissions.
        max_workers: the largest maximum number of workers of a job.

    >>> [plan.name for plan in draw_workload(1, 2)]
    ['job-0', 'job-1']
    """
    source = random.Random(seed)
    plans, moment = [], 0.0
    for number in range(num_jobs):
        widest = source.choice([size for size in (1, 2, 4, 8, 16, 32) if size <= max_workers])
        is_elastic = source.random() < 0.8
        plans.append(
            PlannedJob(
                name=f"job-{number}",
                owner=source.choice(["ann", "ben", "cleo"]),
                submitted_at=round(moment, 3),
                min_workers=1 if is_elastic else widest,
                max_workers=widest,
                priority=source.choice([DEFAULT_PRIORITY] * 4 + [2500, 10_000]),
                is_elastic=is_elastic,
                load=Load(
                    num_steps=max(round(source.lognormvariate(6.0, 1.0)), 10),
                    step_s=source.choice([0.5, 1.0, 2.0]),
                    num_micro_batches=source.choice([None, widest, 2 * widest]),
                ),
            )
        )
        moment += source.expovariate(1 / mean_gap_s)
    return plans


def write_workload(path: Path, plans: Iterable[PlannedJob]) -> None:
    """Write a workload as CSV, so that `read_workload` reads the same."""
    names = [name for name in COLUMNS if name != "duration_s"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows(_write_row(plan) for plan in plans)


def _write_row(plan: PlannedJob) -> dict[str, object]:
    load = plan.load
    row: dict[str, object] = {
        "name": plan.name,
        "owner": plan.owner,
        "queue": plan.queue,
        "code": plan.code,
        "submitted_at": plan.submitted_at,
        "min": plan.min_workers,
        "max": plan.max_workers,
        "asked": plan.asked_workers,
        "priority": plan.priority,
        "static": "no" if plan.is_elastic else "yes",
        "steps": load.num_steps,
        "num_micro_batches": load.num_micro_batches,
        "node_s": load.node_s or None,
        "speedups": _write_curve(load.speedups),
        "resize_s": _write_curve(load.resize_s),
    }
    if load.fixed_s:
        return row | {"a_s": load.step_s, "b_s": load.fixed_s}
    return row | {"step_s": load.step_s, "overhead_s": load.overhead_s}


def _write_curve(curve: Curve) -> str:
    return " ".join(f"{number}:{value!r}" for number, value in curve)
