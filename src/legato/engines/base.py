"""The interface to processes: start, stop and watch workers. Decides nothing; knows nothing of views or steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Protocol

import msgspec

from legato.system.processes import Vital


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One worker to start.

    Args:
        worker: its number in the job; never used twice.
        slot: the slot it occupies, from 0.
        program: the user's script and its arguments, as in ``sys.argv``.
        environment: added to the engine's own environment. What is read only when a process starts, the engine must
            have been given before; which GPUs the worker sees, the engine says.
        directory: the working directory.
        log_path: where stdout and stderr go, appended.
    """

    worker: int
    slot: int
    program: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    log_path: str


class Started(msgspec.Struct, frozen=True, tag=True):
    """The worker's process exists."""

    worker: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """The worker's process is confirmed gone; its slot is free.

    ``exit_code`` is negative for a signal. ``reason``: what ended it, if the engine knows more than that.
    """

    worker: int
    exit_code: int
    reason: str = ""


class StoreMoved(msgspec.Struct, frozen=True, tag=True):
    """The store has died and another one listens at ``rendezvous`` (``host:port``); it knows nothing of the old one."""

    rendezvous: str


class Noted(msgspec.Struct, frozen=True, tag=True):
    """Something that the job's user should know; ``told`` is a sentence without its full stop."""

    told: str


EngineEvent = Started | Exited | StoreMoved | Noted


class Engine(Protocol):
    """Starts, stops and watches workers. All of it outlives the driver: a new driver opens the same engine again."""

    async def open(self) -> None:
        """Start what the engine needs on its nodes, or find it again after a driver's death."""
        ...

    async def rendezvous(self) -> str:
        """Return ``host:port`` of the store over which workers find one another.

        It outlives every worker. If it dies all the same, the engine starts another one, and `StoreMoved` tells where.
        """
        ...

    async def device_of(self, slot: int) -> str:
        """Return what torch calls a slot's device in its worker: ``cpu``, or ``cuda:0``, as it sees no other GPU."""
        ...

    async def start(self, launch: Launch) -> None:
        """Start a worker. `Started` and, in the end, `Exited` follow as events."""
        ...

    async def stop(self, worker: int, *, force: bool) -> None:
        """Ask a worker to end (SIGTERM), or end it and its children at once (``force``, SIGKILL). Idempotent."""
        ...

    async def running(self) -> dict[int, int]:
        """Return worker → pid of all workers that run now; after `open`, those to adopt."""
        ...

    async def examine(self, workers: Collection[int]) -> dict[int, Vital]:
        """Say whether the processes of workers make progress, as far as the system tells it; others are missing."""
        ...

    def events(self) -> AsyncIterator[EngineEvent]:
        """Yield what happens to workers, each event once, also what happened while no driver was there."""
        ...

    async def close(self) -> None:
        """Kill the workers that still run and end all that `open` started: the job is over."""
        ...
