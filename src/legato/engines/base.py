"""The interface to processes: start, stop and watch workers. Decides nothing; knows nothing of views or steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Final, Protocol

import msgspec

from legato.core.system_metrics import SystemSample
from legato.system.processes import Vital

STORE_LOST: Final = "its process died or its node is out of reach"


def ignore(_told: str) -> None:
    """Take a sentence that is not needed."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One worker to start.

    Args:
        worker: its number, which the job never uses again.
        slot: the slot it occupies, as ``NODE/i``; ``NODE/i+j`` for a worker with several GPUs, which sees all of them.
        program: the user's script and its arguments, as in ``sys.argv``.
        environment: variables that are added to the engine's environment. Variables that are read only when a process
            starts must be given to the engine itself. The engine sets the GPUs that the worker sees.
        directory: the working directory.
        log_path: file to which stdout and stderr are appended.
    """

    worker: int
    slot: str
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
    """Another, empty store listens at ``rendezvous`` (``host:port``); ``reason``: a clause without its period."""

    rendezvous: str
    reason: str = STORE_LOST


class Noted(msgspec.Struct, frozen=True, tag=True):
    """A message for the job's user; ``told`` is a sentence without its period."""

    told: str
    is_warning: bool = True


class NodeLost(msgspec.Struct, frozen=True, tag=True):
    """A machine cannot be used: its agent is silent, or refuses the job. Its workers may have ended, or still run.

    An engine over several machines reports this when it has heard nothing of a machine for a time below the job's
    ``heartbeat_limit_s``, because the driver gives up workers of which nothing is known after that limit. If the store
    was on the machine, it reports `StoreMoved` before. The engine reports `Exited` of its workers when the agent does,
    or when the agent's lease and a margin are over, because the agent has killed them by then.

    Args:
        node: its name, as in the names of its slots.
        reason: a sentence without its period.
        silent_s: how long its agent has not been heard; 0: the reason is another one.
        is_refusal: it cannot run the job, and has no worker of it.
    """

    node: str
    reason: str
    silent_s: float = 0.0
    is_refusal: bool = False


class NodeBack(msgspec.Struct, frozen=True, tag=True):
    """A machine can be used again, or for the first time; it has these slots.

    What its agent reports of its workers follows as further events.
    """

    node: str
    slots: tuple[str, ...] = ()


EngineEvent = NodeLost | NodeBack | Started | Exited | StoreMoved | Noted


class Engine(Protocol):
    """Starts, stops and watches workers. Its processes outlive the driver: a new driver opens the same engine again.

    Attributes:
        remarks: after `close`: what the job's user must know of the end, without periods.
    """

    remarks: tuple[str, ...]

    async def open(self, term: int = 0) -> None:
        """Start the engine's processes on its nodes, or find them again after a driver's death.

        Args:
            term: of the driver. It is in the journal already; an engine over several machines shows it to them.
        """
        ...

    async def rendezvous(self) -> str:
        """Return ``host:port`` of the store through which workers find one another.

        The store outlives every worker. If it dies, the engine starts another one and reports its address as
        `StoreMoved`.
        """
        ...

    async def device_of(self, slot: str) -> str:
        """Return torch's name of a slot's first device in its worker, which sees only its own: ``cpu``, ``cuda:0``.

        This may wait for the slot's machine; the driver cancels it if it stops the worker meanwhile.
        """
        ...

    async def start(self, launch: Launch) -> None:
        """Start a worker. `Started` and, in the end, `Exited` follow as events.

        An error says that there is certainly no process. If that is unknown, because a node does not answer, there is
        no error, and an event follows.
        """
        ...

    async def stop(self, worker: int, *, force: bool) -> None:
        """Ask a worker to end (SIGTERM), or end it and its children at once (``force``, SIGKILL). Idempotent."""
        ...

    async def running(self) -> dict[int, int]:
        """Return worker → pid of all workers that run now, or may run; after `open`, those to adopt.

        Workers of machines that do not answer may run. `NodeLost`, and in the end `Exited`, follow as events.
        """
        ...

    async def examine(self, workers: Collection[int]) -> dict[int, Vital]:
        """Return samples of the processes of workers; without those that the system does not show.

        A worker whose machine does not answer at once is ``unreachable``.
        """
        ...

    async def measure(self) -> dict[str, SystemSample]:
        """Return the newest samples of its machines and of the workers there, by node; "": the driver's own machine.

        Machines that do not answer, or cannot be measured, are left out. Call it every ``MEASURE_EVERY_S``.
        """
        ...

    def is_away(self, worker: int) -> bool:
        """Return whether the checkpoints of a worker must be brought to this machine."""
        ...

    async def bring(self, worker: int, path: str) -> str:
        """Return where a checkpoint of a worker is on this machine; wait until all of it has come from its machine.

        Raises:
            LegatoError: it cannot come.
        """
        ...

    async def recover(self) -> None:
        """Wait for checkpoints that workers have saved while no driver led them, so that the next workers resume there.

        The wait is limited; a remark says what has not come.
        """
        ...

    def hasten(self, worker: int) -> None:
        """Bring the checkpoints of a worker as fast as the network allows; before, training goes first."""
        ...

    def events(self) -> AsyncIterator[EngineEvent]:
        """Yield the events of workers, each once, including those from a time without a driver."""
        ...

    def note_rank_0(self, slot: str) -> None:
        """Note the slot of the worker that is rank 0 from now on: of files that several machines have, its are kept."""
        ...

    def note_slots(self, slots: Collection[str]) -> None:
        """Note all slots that the job is to use: machines without any end what they keep for the job after a while."""
        ...

    async def close(self, note: Callable[[str], None] = ignore) -> None:
        """Kill the remaining workers, and end all that `open` has started, because the job has ended.

        Args:
            note: called with sentences, without their periods, about files that come from other machines meanwhile.
        """
        ...

    def abandon_results(self) -> None:
        """Bring no more files from other machines during `close`, because the job must end now."""
        ...
