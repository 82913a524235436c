"""The interface to drivers: start one per job, send it its slots, stop it, read its report. Decides nothing.

A driver outlives the platform. Its starter says which *attempt* of the job it is, and everything is asked and
answered for that attempt only, so that nothing late is taken for news. Every call may be repeated.
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
        attempt: which life of the job it is, from 1.
        spec: what to train; ``spec.resume`` if it continues from a checkpoint.
        slots: those that it has at first, by their names in the pool.
        code: a folder with the job's code, which stays as it is: the job runs in a copy of its own, made by its first
            attempt and kept for those after it. None: it runs in ``spec.directory``, wherever that is.
        code_folder: of the working directory, into which the code is copied; "": it is the working directory.
        script: the file of the program, from the working directory on, or absolute. "": it is the first word of
            ``spec.program``; None: it is not known which.
        preloads: what the script imports may be loaded before the workers are forked.
        owner: the user of the platform whose job it is. "": not known, of a job that an earlier release started.
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

    def find_script(self) -> str | None:
        """Return the file of the program, from the working directory on, or absolute. None: it is not known which."""
        return None if self.script is None else self.script or self.spec.program[0]


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The slots of a job, all of them, and within which bounds they may change.

    Args:
        slots: by their names in the pool.
        reason: for the job's events.
    """

    slots: frozenset[str]
    min_workers: int
    max_workers: int
    reason: str


class DriverState(enum.StrEnum):
    """How a driver does."""

    UNKNOWN = "unknown"  # it was never asked for here
    STARTING = "starting"  # its process lives; it does not answer yet
    RUNNING = "running"  # it answers
    SILENT = "silent"  # its process lives; it answered before and does not now
    GONE = "gone"  # it died before its job ended: start it again for the same attempt, and it adopts the workers
    ENDED = "ended"  # the job has its outcome, and none of its processes is left


class DriverReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one attempt's driver.

    Args:
        attempt: of the job.
        state: how the driver does.
        assigned: the slots that it received last, by its own report; None if it does not answer.
        in_use: slots in which a process of the job may still live; None if it is not known. Empty once it has ended.
        given_up: slots in which the driver starts no worker again.
        surplus: slots that cannot help, because a step of the job has too few micro-batches; no worker is in them.
        status: what the driver says of its job, as documented in ``docs/cli.md``; None if it does not answer.
        outcome: how the job ended, None before.
        step: the last one that was committed; of a job that has ended, None where that is not known.
        epoch: of that step.
        trouble: why it is silent or gone, as far as that is known; "": it is not.
        is_under_way: its start is not over yet, so that there may be no process that could answer.
    """

    attempt: int
    state: DriverState
    assigned: frozenset[str] | None = None
    in_use: frozenset[str] | None = None
    given_up: frozenset[str] = frozenset()
    surplus: frozenset[str] = frozenset()
    status: dict[str, object] | None = None
    outcome: Outcome | None = None
    step: int | None = None
    epoch: int | None = None
    trouble: str = ""
    is_under_way: bool = False


def always() -> bool:
    """Return True."""
    return True


class Drivers(Protocol):
    """Starts drivers and speaks with them."""

    async def start(self, order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
        """Start a driver, unless it runs. Of an attempt that was started before, the workers that live are adopted.

        This may take long, where there is much code to copy.

        Args:
            order: for the driver.
            is_wanted: asked after whatever takes long; if it is not needed any more, nothing is started.

        Raises:
            LegatoError: it cannot be started here.
        """
        ...

    async def kill(self, job: str, attempt: int) -> None:
        """Kill the process of a driver that does not answer; nothing if it does not live. The workers train on.

        Raises:
            LegatoError: which process it is, is not known.
        """
        ...

    async def give_up(self, job: str, attempt: int, reason: str) -> None:
        """End an attempt whose driver is gone and cannot run: what is left of it is killed.

        From then on it is reported as ended; as failed, for this reason.

        Raises:
            LegatoError: a process of it may still live.
        """
        ...

    async def assign(self, job: str, attempt: int, said: Assignment) -> bool:
        """Tell a driver which slots its job has, all of them.

        Returns:
            Whether it has received the message. If not, the next report shows it, and the message is sent again.

        Raises:
            UsageError: it refuses: its job may not have that many.
        """
        ...

    async def stop(self, job: str, attempt: int, *, now: bool, reason: str) -> bool:
        """Ask a job to end with a checkpoint, or ``now`` without. Returns whether its driver has heard."""
        ...

    async def reports(self, attempts: Mapping[str, int]) -> dict[str, DriverReport]:
        """Return a report on each of the jobs, asked for by their present attempt."""
        ...

    async def close(self) -> None:
        """Let go of all drivers; they continue."""
        ...
