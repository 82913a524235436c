"""Everything that changes the plugin's state, as data that can be stored and carried out again. Pure.

The same commands in the same order lead to the same state: so a new driver continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from legato.compat.elasticdl.syncs import Point, Syncs
from legato.compat.elasticdl.task_types import DEFAULT_NUM_MINIBATCHES, DatasetParams, Task, TaskKind
from legato.compat.elasticdl.tasks import TaskManager, TasksState
from legato.compat.elasticdl.world import World, WorldState


class _Command(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """A command."""


class Register(_Command, frozen=True):
    """Register a data set."""

    params: DatasetParams


class Get(_Command, frozen=True):
    """Hand out a task."""

    worker: int
    dataset: str = ""
    ask: str = ""


class Report(_Command, frozen=True):
    """Record the result of a task."""

    number: int
    error: str = ""


class SetWorkers(_Command, frozen=True):
    """Set the present workers."""

    workers: tuple[int, ...]


class Reset(_Command, frozen=True):
    """Restart a data set."""

    dataset: str = ""
    worker: int = 0
    ask: str = ""


class Restore(_Command, frozen=True):
    """Continue from a checkpoint of a data set."""

    content: str


class Reach(_Command, frozen=True):
    """A worker has reached a named point."""

    name: str
    worker: int


class Notify(_Command, frozen=True):
    """A named point is passed."""

    name: str


class Forget(_Command, frozen=True):
    """Forget a named point; None for all of them."""

    name: str | None = None


class Enter(_Command, frozen=True):
    """A worker enters the training loop."""

    worker: int
    port: int = 0


class Leave(_Command, frozen=True):
    """A worker leaves the training loop."""

    worker: int


class Stand(_Command, frozen=True):
    """A worker asks for its rank."""

    worker: int


class Meet(_Command, frozen=True):
    """A worker is at a barrier of a world."""

    name: str
    worker: int
    number: int


class Reopen(_Command, frozen=True):
    """Another driver continues."""


Command = (
    Register
    | Get
    | Report
    | SetWorkers
    | Reset
    | Restore
    | Reach
    | Notify
    | Forget
    | Enter
    | Leave
    | Stand
    | Meet
    | Reopen
)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All that a new driver must know."""

    tasks: TasksState
    points: dict[str, Point]
    world: WorldState


class StateMachine:
    """The state of the plugin, which only commands change.

    Args:
        seed: of all random orders.
        num_minibatches: mini-batches of a task of a data set that does not set the number.
        state: of an earlier driver at its end; None at the beginning.
    """

    def __init__(
        self, *, seed: int, num_minibatches: int = DEFAULT_NUM_MINIBATCHES, state: State | None = None
    ) -> None:
        self.tasks = TaskManager(seed=seed, num_minibatches=num_minibatches, state=state.tasks if state else None)
        self.syncs = Syncs(state.points if state else None)
        self.world = World(state.world if state else None)

    @property
    def state(self) -> State:
        """All that a new driver must know. Shares mutable parts with this object: encode it at once."""
        return State(tasks=self.tasks.state, points=self.syncs.points, world=self.world.state)

    def carry_out(self, command: Command) -> Any:
        """Carry out a command; return its result.

        Raises:
            DataError: the command is invalid; nothing has changed.
        """
        return _CARRIED_OUT[type(command)](self, command)

    def get(self, command: Get, *, names_records: bool) -> Task | TaskKind:
        """Hand out a task; see `TaskManager.get`."""
        return self.tasks.get(command.worker, command.dataset, ask=command.ask, names_records=names_records)

    def repeat(self, command: Command) -> None:
        """Carry out a command that was answered before: without the numbers of records, which would take time again.

        Raises:
            DataError: the command is invalid; nothing has changed.
        """
        if isinstance(command, Get):
            self.get(command, names_records=False)
        else:
            self.carry_out(command)

    def set_workers(self, workers: Collection[int]) -> int:
        """Set the present workers; return how many tasks came back from others."""
        self.syncs.set_workers(workers)
        self.world.set_workers(workers)
        return self.tasks.set_workers(workers)


_CARRIED_OUT: Final[Mapping[type[Command], Callable[[StateMachine, Any], Any]]] = {
    Register: lambda machine, command: machine.tasks.register(command.params),
    Get: lambda machine, command: machine.get(command, names_records=True),
    Report: lambda machine, command: machine.tasks.report(command.number, error=command.error),
    SetWorkers: lambda machine, command: machine.set_workers(command.workers),
    Reset: lambda machine, command: machine.tasks.reset(command.dataset, command.worker, ask=command.ask),
    Restore: lambda machine, command: machine.tasks.restore(command.content),
    Reach: lambda machine, command: machine.syncs.reach(command.name, command.worker, machine.tasks.workers),
    Notify: lambda machine, command: machine.syncs.notify(command.name),
    Forget: lambda machine, command: machine.syncs.forget(command.name),
    Enter: lambda machine, command: machine.world.enter(command.worker, command.port),
    Leave: lambda machine, command: machine.world.leave(command.worker),
    Stand: lambda machine, command: machine.world.stand(command.worker),
    Meet: lambda machine, command: machine.world.meet(command.name, command.worker, command.number),
    Reopen: lambda machine, _command: machine.tasks.reopen(),
}
