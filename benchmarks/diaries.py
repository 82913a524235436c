"""What the workers of `programs/events.py` wrote down, and what follows from it. Reads files; runs nothing."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.jobs import BenchmarkError


@dataclass
class Diary:
    """One worker's diary.

    Attributes:
        moments: when it ``begun``, ``built``, ``entered``, ``loaded``.
        commits: of each step, when it was committed here and among how many workers.
    """

    moments: dict[str, float] = field(default_factory=dict)
    commits: dict[int, tuple[float, int]] = field(default_factory=dict)

    def interval(self, step: int) -> float | None:
        """Return the time from the commit before to this commit, None if this worker did not see both."""
        if step not in self.commits or step - 1 not in self.commits:
            return None
        return self.commits[step][0] - self.commits[step - 1][0]


def read_diaries(directory: Path) -> dict[int, Diary]:
    """Return the diaries by worker number."""
    diaries = {}
    for path in directory.glob("worker-*.jsonl"):
        diary = diaries[int(path.stem.removeprefix("worker-"))] = Diary()
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["what"] == "step":
                diary.commits[entry["step"]] = (entry["at"], entry["num_workers"])
            else:
                diary.moments[entry["what"]] = entry["at"]
    return diaries


def first_step_among(diaries: dict[int, Diary], num_workers: int, after: float) -> int:
    """Return the first step that was committed among so many workers after a moment.

    Raises:
        BenchmarkError: there is none.
    """
    steps = [
        step
        for diary in diaries.values()
        for step, (at, among) in diary.commits.items()
        if at > after and among == num_workers
    ]
    if not steps:
        raise BenchmarkError(f"No step was committed among {num_workers} workers after the request.")
    return min(steps)


def median_step(diaries: dict[int, Diary], num_workers: int, begin: float, end: float) -> float | None:
    """Return the median time of a step that so many workers made, begun and committed between two moments."""
    intervals = [
        interval
        for diary in diaries.values()
        for step, (at, among) in diary.commits.items()
        if among == num_workers
        and (interval := diary.interval(step)) is not None
        and begin < at - interval
        and at < end
    ]
    return statistics.median(intervals) if intervals else None
