"""Reads the earlier runs of the code of each job, when it is new and again when it has started."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from legato.control.loop.left_out import describe
from legato.control.records import Job
from legato.control.stages import Stage
from legato.core.errors import StoreError
from legato.policy.earlier_runs import AlikeRuns, EarlierRun, merge_runs

_LONGEST_S: Final = 0.2  # for which a round reads, so that a server with many jobs starts quickly
_MOST_AT_ONCE: Final = 100

_log = structlog.get_logger(__name__)


class EarlierRuns:
    """The earlier runs of jobs that have not ended.

    Args:
        read: returns the earlier runs of jobs of one user with the same code, by job, the newest first. May block.
        now: seconds since 1970.
    """

    def __init__(
        self, read: Callable[[Sequence[str]], Mapping[str, Sequence[EarlierRun]]], now: Callable[[], float]
    ) -> None:
        self._read_from = read
        self._now = now
        # By job: the attempt before which they were read, and the runs.
        self._known: dict[str, tuple[int, tuple[AlikeRuns, ...]]] = {}

    def list_due(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the jobs whose earlier runs are to be read, and forget those of jobs that are not named."""
        jobs = tuple(jobs)
        for gone in self._known.keys() - {job.id for job in jobs}:
            del self._known[gone]
        return [
            job
            for job in jobs
            if job.code is not None and job.is_elastic and self._known.get(job.id, (None, ()))[0] != job.attempt
        ]

    def read(self, due: Iterable[Job], measured_speed_s: float) -> None:
        """Read the earlier runs of these jobs; a long work is continued by the next call. May block.

        Jobs that run go first, because they may be in a trial.

        Args:
            due: as `list_due` returns them.
            measured_speed_s: as in `Rules`.

        Raises:
            StoreError: the store is out of reach.
        """
        begun = self._now()
        ordered = sorted(due, key=lambda job: (job.stage is Stage.QUEUED, job.owner, job.code or ""))
        for _, group in itertools.groupby(ordered, key=lambda job: (job.owner, job.code)):
            jobs = tuple(group)
            for first in range(0, len(jobs), _MOST_AT_ONCE):
                if self._now() - begun >= _LONGEST_S:
                    return
                self._read(jobs[first : first + _MOST_AT_ONCE], measured_speed_s)

    def list_known(self) -> dict[str, tuple[AlikeRuns, ...]]:
        """Return the runs of all jobs that have some."""
        return {job: runs for job, (_, runs) in self._known.items() if runs}

    def _read(self, jobs: Sequence[Job], measured_speed_s: float) -> None:
        try:
            found = self._read_from([job.id for job in jobs])
            merged = {job.id: merge_runs(found.get(job.id, ()), measured_speed_s, self._now()) for job in jobs}
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 -- the job is scheduled without them
            if len(jobs) > 1:
                for job in jobs:
                    self._read((job,), measured_speed_s)
                return
            _log.error("the earlier runs of a job's code cannot be read", job=jobs[0].id, error=describe(error))
            merged = {}
        for job in jobs:
            # Those found before may be too many runs back by now.
            runs = merged.get(job.id) or self._known.get(job.id, (0, ()))[1]
            self._known[job.id] = (job.attempt, runs)
