"""Sweeps and trials, as records of the store. Knows no SQL.

Times are seconds since 1970.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from legato.api.projects import Parameter
from legato.api.sweeps import Report, TrialState
from legato.control.roles import Role


class SweepStage(enum.StrEnum):
    """Where a sweep is."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"  # all trials have ended, and at least one has a value
    FAILED = "failed"
    STOPPED = "stopped"


class NewSweep(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep to start.

    Args:
        queue: of its jobs.
        plan: a `legato.api.sweeps.SweepPlan`, as plain values.
        job: what the trials run, as it was submitted.
        template: the `legato.control.records.NewJob` of a trial, as plain values, without its name and parameters.
    """

    name: str
    queue: str
    plan: dict[str, Any]
    job: dict[str, Any]
    template: dict[str, Any]


class StoredSweep(NewSweep, frozen=True, kw_only=True):
    """A sweep. ``role``: of the request that started it."""

    id: str
    owner: str
    role: Role
    stage: SweepStage
    reason: str
    version: int
    created_at: float
    ended_at: float | None = None


class StoredTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial, with the stage of its job; the fields are those of `legato.api.sweeps.Trial`."""

    number: int
    job: str
    parameters: dict[str, Parameter]
    state: TrialState
    value: float | None = None
    reports: tuple[Report, ...] = ()
    marks: dict[str, Any] = {}
    reason: str | None = None
    started_at: float
    ended_at: float | None = None
    job_stage: str | None = None
    job_reason: str | None = None
    num_slots: int = 0


class TrialChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a trial that was running.

    Args:
        reason: why it has ended. None: it goes on.
    """

    number: int
    state: TrialState = TrialState.RUNNING
    value: float | None = None
    reports: tuple[Report, ...] = ()
    marks: dict[str, Any] = {}
    reason: str | None = None


class TrialSummary(msgspec.Struct, frozen=True):
    """The trials of a sweep in short.

    Args:
        states: number of trials by state; states without trials are left out.
        lowest: number of the succeeded trial with the lowest value; of equal ones the first. None: none has succeeded.
        highest: number of the one with the highest value.
    """

    states: dict[str, int]
    lowest: int | None = None
    highest: int | None = None


def describe_start(owner: str) -> str:
    """Return the reason of a sweep that is running."""
    return f"started by '{owner}'"
