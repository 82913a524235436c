"""How long jobs with a limit have held slots, and which jobs must stop. Writes nothing.

The loop asks the store once per attempt for the time so far; after that a monotonic clock counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from legato.control.records import Job, JobChange
from legato.control.stages import Stage
from legato.control.work import Work


@dataclass(frozen=True, slots=True)
class _Count:
    attempt: int
    held_s: float
    at: float


class RunTimes:
    """The run times of jobs with a limit, as one control loop knows them."""

    def __init__(self) -> None:
        self._counts: dict[str, _Count] = {}

    def list_unknown(self, jobs: Iterable[Job], works: Mapping[str, Work]) -> list[Job]:
        """Return the jobs whose time so far must be read from the store. Forgets jobs that hold no slots any more."""
        limited = {job.id: job for job in jobs if _limit_s(job, works) is not None}
        self._counts = {
            name: count
            for name, count in self._counts.items()
            if name in limited and limited[name].attempt == count.attempt
        }
        return [job for name, job in limited.items() if name not in self._counts]

    def note(self, job: Job, held_s: float, at: float) -> None:
        """Record for how many seconds a job had held slots at a moment of the clock, including its present attempt."""
        self._counts[job.id] = _Count(job.attempt, held_s, at)

    def list_overdue(self, jobs: Iterable[Job], works: Mapping[str, Work], at: float) -> list[JobChange]:
        """Return the changes that stop jobs which have reached their time limit."""
        changes = []
        for job in jobs:
            limit_s, count = _limit_s(job, works), self._counts.get(job.id)
            if limit_s is None or count is None or count.held_s + at - count.at < limit_s:
                continue
            reason = f"it has held slots for {limit_s:g} s, its maximum running time"
            changes.append(
                JobChange(
                    job=job.id, seen_stage=job.stage, seen_attempt=job.attempt, stage=Stage.STOPPING, reason=reason
                )
            )
        return changes


def _limit_s(job: Job, works: Mapping[str, Work]) -> float | None:
    work = works.get(job.id) if job.stage in (Stage.STARTING, Stage.RUNNING) else None
    return work.max_run_s if work is not None else None
