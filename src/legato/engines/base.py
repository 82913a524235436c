"""The interface to processes: start, stop and watch workers. Decides nothing; knows nothing of views or steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Protocol

import msgspec

from legato.system.processes import Vital


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One worker to start.

    Args:
        worker: its number, which the job never uses again.
        slot: the slot it occupies, from 0.
        program: the user's script and its arguments, as in ``sys.argv``.
        environment: variables that are added to the engine's environment. Variables that are read only when a process
            starts must be given to the engine itself. The engine sets the GPUs that the worker sees.
        directory: the working directory.
        log_path: file to which stdout and stderr are appended.
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
    """The worker's process has certainly ended; its slot is free.

    ``exit_code`` is negative for a signal. ``reason``: the cause, if the engine knows more than the exit code.
    """

    worker: int
    exit_code: int
    reason: str = ""


class StoreMoved(msgspec.Struct, frozen=True, tag=True):
    """The store has died, and a new, empty one listens at ``rendezvous`` (``host:port``)."""

    rendezvous: str


class Noted(msgspec.Struct, frozen=True, tag=True):
    """A message for the job's user; ``told`` is a sentence without its period."""

    told: str


EngineEvent = Started | Exited | StoreMoved | Noted


class Engine(Protocol):
    """Starts, stops and watches workers. Its processes outlive the driver: a new driver opens the same engine again."""

    async def open(self) -> None:
        """Start the engine's processes on its nodes, or find them again after a driver's death."""
        ...

    async def rendezvous(self) -> str:
        """Return ``host:port`` of the store through which workers find one another.

        The store outlives every worker. If it dies, the engine starts another one and reports its address as
        `StoreMoved`.
        """
        ...

    async def device_of(self, slot: int) -> str:
        """Return torch's name of a slot's device in its worker, which sees no other: ``cpu`` or ``cuda:0``."""
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
        """Return samples of the processes of workers; without those that the system does not show."""
        ...

    def events(self) -> AsyncIterator[EngineEvent]:
        """Yield the events of workers, each once, including those from a time without a driver."""
        ...

    async def close(self) -> None:
        """Kill the remaining workers, and end all that `open` has started, because the job has ended."""
        ...
