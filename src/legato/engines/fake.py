"""A simulated machine and an engine on it: the contract of engines, in memory. For tests of drivers; starts nothing.

The machine outlives its engines, as a real one does: open a second `FakeEngine` on it to play a driver's successor.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Final

from legato.core.errors import LegatoError, UsageError
from legato.engines.base import EngineEvent, Exited, Launch, Started, StoreMoved
from legato.system.processes import Vital

_FIRST_PID: Final = 2**22 + 1
"""Above all that a kernel gives out: no process has it."""

Behaviour = Callable[[Launch], Awaitable[int]]
"""What a worker does: returns its exit code. It is cancelled by SIGTERM; killed, it is not asked."""


async def run_until_stopped(_launch: Launch) -> int:
    """Behave as a worker that never ends by itself."""
    await asyncio.Event().wait()
    return 0


class FakeMachine:
    """The workers, the store and what was not yet acknowledged; shared by all engines opened on it.

    Args:
        behaviour: what every worker does.
        slots: how many there are; None for as many as are asked for.
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
        """Let the store die and another one start elsewhere."""
        self.rendezvous = f"127.0.0.1:{next(self._ports)}"
        if self.engine is not None:
            self.engine.hear(StoreMoved(self.rendezvous))

    def begin(self, launch: Launch) -> None:
        """Start a worker; a number that was used before is not started again."""
        if launch.worker in self.launches:
            return
        self.launches[launch.worker] = launch
        self._pid_of[launch.worker] = next(self._pids)
        self.tell(Started(worker=launch.worker, pid=self._pid_of[launch.worker]))
        self._lives[launch.worker] = asyncio.ensure_future(self._live(launch))

    def end(self, worker: int, exit_code: int) -> None:
        """Let a worker's process end at once, as by a crash or a signal; nothing if it does not run."""
        if self._pid_of.pop(worker, None) is None:
            return
        life = self._lives.pop(worker)
        if life is not asyncio.current_task():
            life.cancel()
        self.tell(Exited(worker=worker, exit_code=exit_code))

    def hang(self, worker: int) -> None:
        """Let a worker's process stop for good, as by SIGSTOP: it no longer hears when it is asked to end."""
        self._hanging.add(worker)

    def examine(self, worker: int) -> Vital:
        """Say whether a worker's process makes progress."""
        if worker not in self._pid_of:
            return Vital("gone", 0.0)
        return Vital("stopped" if worker in self._hanging else "waiting", 0.0)

    def interrupt(self, worker: int) -> None:
        """Send SIGTERM: the worker's behaviour is cancelled, and may still return an exit code of its own."""
        if worker in self._lives and worker not in self._hanging:
            self._lives[worker].cancel()

    def tell(self, event: EngineEvent) -> None:
        """Report an event to the engine that is there, or keep it for the next."""
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

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._error: LegatoError | None = None

    async def open(self) -> None:
        """Become the machine's engine; the previous one learns that it was replaced."""
        if self.machine.engine is not None:
            self.machine.engine.replace()
        self.machine.engine = self
        for event in self.machine.unacknowledged:
            self.hear(event)

    async def rendezvous(self) -> str:
        """Return where the store would be."""
        return self.machine.rendezvous

    async def device_of(self, slot: int) -> str:
        """Return ``cpu`` for every slot that there is."""
        if slot < 0 or (self.machine.slots is not None and slot >= self.machine.slots):
            raise UsageError(f"Cannot use slot {slot}: the machine has {self.machine.slots} slots. Ask for fewer.")
        return "cpu"

    async def start(self, launch: Launch) -> None:
        """Start a worker; nothing once another engine was opened."""
        if self._error is None:
            self.machine.begin(launch)

    async def stop(self, worker: int, *, force: bool) -> None:
        """Cancel a worker, or end it without asking; nothing once another engine was opened."""
        if self._error is not None:
            return
        if force:
            self.machine.end(worker, -9)
        else:
            self.machine.interrupt(worker)

    async def running(self) -> dict[int, int]:
        """Return worker → pid of all that run."""
        return self.machine.running

    async def examine(self, workers: Collection[int]) -> dict[int, Vital]:
        """Say that workers wait, or are stopped if they hang, or are gone."""
        return {worker: self.machine.examine(worker) for worker in workers}

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Yield events; one counts as known to the driver when the next is asked for."""
        while (event := await self._events.get()) is not None:
            yield event
            if event in self.machine.unacknowledged:
                self.machine.unacknowledged.remove(event)
        self._events.put_nowait(None)
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """End all workers, unless they are another engine's by now."""
        for worker in self.machine.running if self._error is None else {}:
            self.machine.end(worker, -9)
        await self.detach()

    async def detach(self) -> None:
        """Let go of the machine, as a driver that dies does."""
        if self.machine.engine is self:
            self.machine.engine = None
        self._events.put_nowait(None)

    def hear(self, event: EngineEvent) -> None:
        """Take an event from the machine."""
        self._events.put_nowait(event)

    def replace(self) -> None:
        """Learn that another engine was opened on the machine."""
        self._error = LegatoError("Another driver has taken over the workers of this machine.")
        self._events.put_nowait(None)
