"""The interface to drivers: start one per job, send it its slots, stop it, read its report. Decides nothing.

A driver outlives the platform. The platform numbers the *attempts* of a job. Each call and each report names its
attempt, so that a late message of an earlier attempt has no effect. Every call may be repeated.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from legato.core.spec import JobSpec
from legato.driver.journal import Outcome


class DriverOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One driver to start.

    Args:
        job: the job's id; also ``spec.name``.
        attempt: number of the attempt, from 1.
        spec: what to train; ``spec.resume`` if it continues from a checkpoint.
        slots: the slots with which it starts, by their names in the pool: one for each worker. Those of a worker with
            several GPUs are joined to one, as in `legato.core.slots.join_slots`.
        code: a folder with the job's code, which is not changed: the first attempt copies it, and all attempts run in
            that copy. None: the job runs in ``spec.directory``.
        code_folder: folder of the working directory into which the code is copied; "": the working directory itself.
        script: the file of the program, from the working directory on, or absolute. "": it is the first word of
            ``spec.program``; None: unknown.
        preloads: whether the warm parent may import the packages of the script before it forks the workers.
        owner: the user of the platform who owns the job. "": unknown, because an earlier release started the job.
        is_local: it can run on the server's machine only.
        term: the driver takes a higher one. It grows with each takeover by another server; 0: an earlier release gave
            the order.
    """

    job: str
    attempt: int
    spec: JobSpec
    slots: tuple[str, ...]
    code: str | None = None
    code_folder: str = ""
    script: str | None = ""
    preloads: bool = True
    owner: str = ""
    is_local: bool = False
    term: int = 0

    def find_script(self) -> str | None:
        """Return the file of the program, relative to the working directory or absolute. None: unknown."""
        return None if self.script is None else self.script or self.spec.program[0]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """All slots of a job, and the bounds of their number.

    Args:
        slots: as in `DriverOrder`.
        reason: for the job's events.
    """

    slots: frozenset[str]
    min_workers: int
    max_workers: int
    reason: str


class DriverState(enum.StrEnum):
    """The state of a driver."""

    UNKNOWN = "unknown"  # this platform never started it
    STARTING = "starting"  # its process runs, but has not answered yet
    RUNNING = "running"  # it answers
    SILENT = "silent"  # its process runs; it answered before but does not now
    GONE = "gone"  # it died before its job ended; a new driver of the same attempt adopts the workers
    ENDED = "ended"  # the job has its outcome, and all of its processes have ended


class DriverReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one attempt's driver.

    Args:
        attempt: of the job.
        state: state of the driver.
        assigned: the slots that the driver received last, as it reports; None if it does not answer. Here and below,
            each slot of a worker with several GPUs counts.
        in_use: slots in which a process of the job may still run; None if unknown. Empty after the job has ended.
        given_up: slots in which the driver starts no worker again.
        refusals: nodes that cannot run the job, and why.
        lost_nodes: lost machines on which a worker of the job may still run, in order.
        surplus: slots without a worker, because a step of the job has too few micro-batches for more workers.
        status: what the driver says of its job, as documented in ``docs/cli.md``; None if it does not answer.
        outcome: how the job ended, None before.
        step: the last committed step; None if the job has ended and the step is unknown.
        epoch: of that step.
        loss: of that step; None: unknown, or the job has not ended; NaN: it is not finite.
        num_steps: all steps of a job that has ended; None if unknown.
        num_micro_batches: of each of its steps; None if unknown.
        shares_freely: each of its steps was divided among any number of workers.
        trouble: why the driver does not answer or has died, as far as known; "": it answers. With the state UNKNOWN:
            the attempt runs on another machine, out of reach.
        is_under_way: its start is not complete, so there may be no process yet that can answer.
        is_local: the attempt can use slots of the server's machine only.
    """

    attempt: int
    state: DriverState
    assigned: frozenset[str] | None = None
    in_use: frozenset[str] | None = None
    given_up: frozenset[str] = frozenset()
    refusals: dict[str, str] = {}
    lost_nodes: tuple[str, ...] = ()
    surplus: frozenset[str] = frozenset()
    status: dict[str, object] | None = None
    outcome: Outcome | None = None
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    num_steps: int | None = None
    num_micro_batches: int | None = None
    shares_freely: bool = False
    trouble: str = ""
    is_under_way: bool = False
    is_local: bool = False


def always() -> bool:
    """Return True."""
    return True


class Drivers(Protocol):
    """Starts drivers, and exchanges messages with them."""

    async def start(self, order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
        """Start a driver unless it runs. It adopts the workers that still run from an earlier start of its attempt.

        This may take long, where there is much code to copy.

        Args:
            order: for the driver.
            is_wanted: called after each slow step. If it returns False, nothing is started.

        Raises:
            LegatoError: the driver cannot be started on this machine.
        """
        ...

    async def kill(self, job: str, attempt: int) -> None:
        """Kill the process of a driver that does not answer; do nothing if it has ended. The workers train on.

        Raises:
            LegatoError: the driver's process is unknown.
        """
        ...

    async def give_up(self, job: str, attempt: int, reason: str, term: int = 0) -> None:
        """End an attempt whose driver has died and cannot be started again, and kill its remaining processes.

        Later reports say that the attempt has failed, for this reason.

        Args:
            job: the job's id.
            attempt: number of the attempt.
            reason: why it is given up.
            term: as in `DriverOrder`: no driver of an earlier server, on a machine out of reach, leads the attempt any
                more.

        Raises:
            LegatoError: a process of the attempt may still run.
        """
        ...

    async def assign(self, job: str, attempt: int, said: Assignment) -> bool:
        """Send a driver the list of all slots of its job.

        Returns:
            Whether the driver has received the message. If not, its next report shows the old slots, and the loop sends
            the message again.

        Raises:
            UsageError: the driver refuses, because its job may not have that many slots.
        """
        ...

    async def stop(self, job: str, attempt: int, *, now: bool, reason: str) -> bool:
        """Ask a job to end with a checkpoint, or ``now`` without. Returns whether its driver has received this."""
        ...

    async def reports(self, attempts: Mapping[str, int]) -> dict[str, DriverReport]:
        """Return a report on the present attempt of each job."""
        ...

    async def close(self) -> None:
        """Close the connections to all drivers. The drivers continue."""
        ...
