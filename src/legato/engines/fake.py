"""A simulated machine and its engine, in memory, for tests of drivers. Starts no processes.

The machine outlives its engines, like a real one: open a second `FakeEngine` on it to test a driver's successor.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Final

from legato.core.errors import LegatoError, UsageError
from legato.core.slots import index_of
from legato.core.system_metrics import SystemSample
from legato.engines.base import EngineEvent, Exited, Launch, Started, StoreMoved, ignore
from legato.system.processes import Vital

_FIRST_PID: Final = 2**22 + 1
"""Above all that a kernel gives out: no process has it."""

Behaviour = Callable[[Launch], Awaitable[int]]
"""What a worker does: returns its exit code. It is cancelled by SIGTERM; killed, it is not asked."""


async def run_until_stopped(_launch: Launch) -> int:
    """Behave like a worker that never ends by itself."""
    await asyncio.Event().wait()
    return 0


class FakeMachine:
    """The workers, the store and the unacknowledged events, shared by all engines that are opened on it.

    Args:
        behaviour: coroutine that each worker runs.
        slots: number of slots; None: no limit.
    """

    def __init__(self, behaviour: Behaviour = run_until_stopped, slots: int | None = None) -> None:
        self.behaviour = behaviour
        self.slots = slots
        self.launches: dict[int, Launch] = {}
        self.unacknowledged: list[EngineEvent] = []
        self.engine: FakeEngine | None = None
        self.rendezvous = ""
        self._ports = itertools.count(40001)
        self._pids = itertools.count(_FIRST_PID)
        self._pid_of: dict[int, int] = {}
        self._lives: dict[int, asyncio.Task[None]] = {}
        self._hanging: set[int] = set()
        self.move_store()

    @property
    def running(self) -> dict[int, int]:
        """Worker → pid."""
        return dict(self._pid_of)

    def move_store(self) -> None:
        """End the store, and start another one at a new address."""
        self.rendezvous = f"127.0.0.1:{next(self._ports)}"
        if self.engine is not None:
            self.engine.hear(StoreMoved(self.rendezvous))

    def begin(self, launch: Launch) -> None:
        """Start a worker unless its number was used before."""
        if launch.worker in self.launches:
            return
        self.launches[launch.worker] = launch
        self._pid_of[launch.worker] = next(self._pids)
        self.tell(Started(worker=launch.worker, pid=self._pid_of[launch.worker]))
        self._lives[launch.worker] = asyncio.ensure_future(self._live(launch))

    def end(self, worker: int, exit_code: int) -> None:
        """End a worker's process at once, like a crash or a signal; do nothing if it does not run."""
        if self._pid_of.pop(worker, None) is None:
            return
        life = self._lives.pop(worker)
        if life is not asyncio.current_task():
            life.cancel()
        self.tell(Exited(worker=worker, exit_code=exit_code))

    def hang(self, worker: int) -> None:
        """Stop a worker's process permanently, like SIGSTOP: it does not react when it is asked to end."""
        self._hanging.add(worker)

    def examine(self, worker: int) -> Vital:
        """Return a sample of a worker's process."""
        if worker not in self._pid_of:
            return Vital("gone", 0.0)
        return Vital("stopped" if worker in self._hanging else "waiting", 0.0)

    def interrupt(self, worker: int) -> None:
        """Send SIGTERM: the worker's behaviour is cancelled, which may return an exit code."""
        if worker in self._lives and worker not in self._hanging:
            self._lives[worker].cancel()

    def tell(self, event: EngineEvent) -> None:
        """Report an event to the present engine, or keep it for the next one."""
        self.unacknowledged.append(event)
        if self.engine is not None:
            self.engine.hear(event)

    async def _live(self, launch: Launch) -> None:
        try:
            exit_code = await self.behaviour(launch)
        except asyncio.CancelledError:
            exit_code = -15
        self.end(launch.worker, exit_code)


class FakeEngine:
    """An engine on a `FakeMachine`; see `legato.engines.base.Engine`."""

    remarks: tuple[str, ...] = ()

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self.term = 0
        self._error: LegatoError | None = None

    async def open(self, term: int = 0) -> None:
        """Become the machine's engine; the previous one learns that it was replaced."""
        self.term = term
        if self.machine.engine is not None:
            self.machine.engine.replace()
        self.machine.engine = self
        for event in self.machine.unacknowledged:
            self.hear(event)

    async def rendezvous(self) -> str:
        """Return the simulated address of the store."""
        return self.machine.rendezvous

    async def device_of(self, slot: str) -> str:
        """Return ``cpu`` for every existing slot."""
        if self.machine.slots is not None and index_of(slot) >= self.machine.slots:
            raise UsageError(f"Cannot use slot {slot}: the machine has {self.machine.slots} slots. Ask for fewer.")
        return "cpu"

    async def start(self, launch: Launch) -> None:
        """Start a worker; do nothing after another engine was opened."""
        if self._error is None:
            self.machine.begin(launch)

    async def stop(self, worker: int, *, force: bool) -> None:
        """Cancel a worker, or end it at once; do nothing after another engine was opened."""
        if self._error is not None:
            return
        if force:
            self.machine.end(worker, -9)
        else:
            self.machine.interrupt(worker)

    async def running(self) -> dict[int, int]:
        """Return worker → pid of all running workers."""
        return self.machine.running

    async def examine(self, workers: Collection[int]) -> dict[int, Vital]:
        """Return samples: workers wait, are stopped if they hang, or have ended."""
        return {worker: self.machine.examine(worker) for worker in workers}

    async def measure(self) -> dict[str, SystemSample]:
        """Return no samples: there are no processes."""
        return {}

    def is_away(self, _worker: int) -> bool:
        """Return False: the workers are on this machine."""
        return False

    async def bring(self, _worker: int, path: str) -> str:
        """Return the path itself: the workers are on this machine."""
        return path

    async def recover(self) -> None:
        """Return at once: all checkpoints are on this machine."""

    def hasten(self, _worker: int) -> None:
        """Do nothing: no checkpoint is on its way."""

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Yield events. An event counts as received when the driver asks for the next one."""
        while (event := await self._events.get()) is not None:
            yield event
            if event in self.machine.unacknowledged:
                self.machine.unacknowledged.remove(event)
        self._events.put_nowait(None)
        if self._error is not None:
            raise self._error

    def note_rank_0(self, _slot: str) -> None:
        """Do nothing: all files of the program are on this machine."""

    def note_slots(self, _slots: Collection[str]) -> None:
        """Do nothing: the job leaves this machine at its end only."""

    def abandon_results(self) -> None:
        """Do nothing: no files come from other machines."""

    async def close(self, _note: Callable[[str], None] = ignore) -> None:
        """End all workers, unless another engine was opened."""
        for worker in self.machine.running if self._error is None else {}:
            self.machine.end(worker, -9)
        await self.detach()

    async def detach(self) -> None:
        """Detach from the machine, like a driver that dies."""
        if self.machine.engine is self:
            self.machine.engine = None
        self._events.put_nowait(None)

    def hear(self, event: EngineEvent) -> None:
        """Receive an event from the machine."""
        self._events.put_nowait(event)

    def replace(self) -> None:
        """Handle that another engine was opened on the machine."""
        self._error = LegatoError("Another driver has taken over the workers of this machine.")
        self._events.put_nowait(None)
