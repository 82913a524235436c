"""One attempt of a simulated job: its driver, its workers and their progress. Reports; decides nothing about slots."""

from __future__ import annotations

import asyncio
import enum
from dataclasses import dataclass, field
from typing import Protocol

from legato.control.drivers.drivers import Assignment, DriverOrder, DriverReport, DriverState
from legato.core.slots import node_of
from legato.driver.journal import Outcome
from legato.sim.load import Costs, Load

_LEAST_MEASURED_S, _MOST_MEASURED_S = 16.0, 128.0  # as a real driver


@dataclass(slots=True)
class Saved:
    """The part of a job that outlives its attempts.

    Args:
        step: of its newest checkpoint.
        failed_at: the requested failures that have happened.
        num_successes: how often it ran to its end; more than once would be an error.
        num_resizes: how often the number of its workers changed while it trained.
        num_failures: how often its program raised, or the platform gave an attempt up.
        useful_s: slot-seconds in which it trained, counting only slots that made it faster.
        trained: when it trained with how many workers, one entry for each change.
    """

    step: float = 0.0
    failed_at: set[int] = field(default_factory=set)
    num_successes: int = 0
    num_resizes: int = 0
    num_failures: int = 0
    useful_s: float = 0.0
    trained: list[tuple[float, int]] = field(default_factory=list)


class Phase(enum.Enum):
    """The state of a simulated worker."""

    STARTING = "starting"
    MEMBER = "member"
    LEAVING = "leaving"


@dataclass(slots=True, eq=False)
class Worker:
    """A simulated process in one slot."""

    number: int
    slot: str
    phase: Phase = Phase.STARTING


class AttemptObserver(Protocol):
    """What an attempt reports to: it records the workers in slots, and news."""

    costs: Costs

    def on_news(self) -> None:
        """Called when the content of a report has changed."""

    def enter(self, slot: str, attempt: SimulatedAttempt) -> None:
        """Record a worker in a slot."""

    def leave(self, slot: str, attempt: SimulatedAttempt) -> None:
        """Record that a worker is gone."""

    def end(self, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """Record the outcome."""


class SimulatedAttempt:
    """One attempt.

    Args:
        order: with which the attempt was started.
        load: the computation of the job.
        saved: the part of the job that outlives the attempt.
        observer: to which the attempt reports.
    """

    def __init__(self, order: DriverOrder, load: Load, saved: Saved, observer: AttemptObserver) -> None:
        self.order = order
        self.load = load
        self.saved = saved
        self.state = DriverState.STARTING
        self.step = saved.step
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._bounds = (order.spec.min_workers, order.spec.max_workers)
        self._assigned = frozenset(order.slots)
        self._workers: list[Worker] = []
        self._num_workers_ever = 0
        self._at = self._loop.time()
        self._paused_until = self._at
        self._resized_at: float | None = None
        self._num_trained = 0
        self._measured: dict[tuple[int, int], tuple[float, float]] = {}
        self._ending: Outcome | None = None
        self._outcome: Outcome | None = None
        self._next: asyncio.TimerHandle | None = None
        self._away: asyncio.TimerHandle | None = None
        self._loop.call_later(observer.costs.driver_s, self._answer)

    @property
    def title(self) -> str:
        """The name of the attempt for error messages."""
        return f"attempt {self.order.attempt} of {self.order.job}"

    @property
    def members(self) -> list[Worker]:
        """The workers that compute."""
        return [worker for worker in self._workers if worker.phase is Phase.MEMBER]

    def report(self) -> DriverReport:
        """Return the report that the platform sees."""
        attempt = self.order.attempt
        if self.state is DriverState.ENDED:
            return DriverReport(
                attempt=attempt, state=self.state, in_use=frozenset(), outcome=self._outcome, step=int(self.step)
            )
        if self.state is not DriverState.RUNNING:
            return DriverReport(attempt=attempt, state=self.state)
        self._catch_up()
        in_use = frozenset(worker.slot for worker in self._workers)
        return DriverReport(
            attempt=attempt, state=self.state, assigned=self._assigned, in_use=in_use, status=self._status()
        )

    def _status(self) -> dict[str, object]:
        num_workers = len(self.members)
        rate = 1 / self._step_s() if num_workers else None
        return {
            "name": self.order.job,
            "state": "training" if num_workers else "forming",
            "step": int(self.step),
            "num_steps": self.load.num_steps,
            "epoch": 0,
            "loss": None,
            "samples_per_s": rate,
            "num_workers": num_workers,
            "num_wanted": len(self._assigned),
            "min_workers": self._bounds[0],
            "max_workers": self._bounds[1],
            "num_micro_batches": self.load.num_micro_batches if num_workers else None,
            "speeds": [
                {
                    "num_workers": size[0],
                    "num_nodes": size[1],
                    "samples_per_s": 1 / self.load.seconds_per_step(*size),
                    "measured_s": min(measured_s, _MOST_MEASURED_S),
                    "age_s": self._at - noted_at,
                }
                for size, (measured_s, noted_at) in self._measured.items()
                if measured_s >= _LEAST_MEASURED_S
            ],
            "workers": [
                {"worker": worker.number, "slot": worker.slot, "phase": worker.phase.value} for worker in self._workers
            ],
        }

    # ------------------------------------------------------------ requests

    def assign(self, said: Assignment) -> None:
        """Use these slots from now on."""
        self._catch_up()
        self._bounds, self._assigned = (said.min_workers, said.max_workers), said.slots
        self._fill()

    def stop(self, *, now: bool, reason: str) -> None:
        """End, with a checkpoint unless ``now``."""
        if self._ending is None:
            outcome = Outcome("stopped", 130 if now else 0, reason)
            self._begin_end(outcome, 0.0 if now else self._observer.costs.checkpoint_s, saves=not now)

    def fail(self, reason: str) -> None:
        """Make the program raise an error."""
        if self._ending is None and self.state is not DriverState.ENDED:
            self.saved.num_failures += 1
            self._begin_end(Outcome("failed", 1, reason), 0.0)

    def die(self) -> None:
        """Lose the driver, if there is one; there are no reports until it is started again."""
        if self.state in (DriverState.ENDED, DriverState.GONE):
            return
        self._catch_up()
        if self._ending is not None and self._ending.outcome == "stopped":
            # The request is not stored; the caller repeats it.
            self._ending = None
        self.state = DriverState.GONE
        self._away = self._loop.call_later(self._observer.costs.away_limit_s, self._give_up)
        self._observer.on_news()

    def hang(self) -> None:
        """Stop answering."""
        if self.state is DriverState.RUNNING:
            self.state = DriverState.SILENT

    def wake(self) -> None:
        """Answer again."""
        if self.state is DriverState.SILENT:
            self.state = DriverState.RUNNING
            self._fill()

    def start_again(self) -> None:
        """Start the driver again if it died; it adopts the running workers."""
        if self.state is DriverState.GONE:
            if self._away is not None:
                self._away.cancel()
            self.state = DriverState.STARTING
            self._loop.call_later(self._observer.costs.driver_s, self._answer)

    def give_up(self, reason: str) -> None:
        """Kill the workers if they have no driver, and let the attempt fail."""
        if self.state is not DriverState.GONE:
            return
        if self._away is not None:
            self._away.cancel()
        self._catch_up()
        self.saved.num_failures += 1
        self._ending = self._outcome = Outcome("failed", 1, reason)
        for worker in list(self._workers):
            self._workers.remove(worker)
            self._observer.leave(worker.slot, self)
        self.state = DriverState.ENDED
        self._observer.end(self, self._outcome)
        self._settle()

    # ------------------------------------------------------------ time passes

    def _answer(self) -> None:
        if self.state is DriverState.STARTING:
            self.state = DriverState.RUNNING
            self._fill()

    def _catch_up(self) -> None:
        """Compute what the members have done since the last call."""
        moment = self._loop.time()
        begun = max(self._at, min(self._paused_until, moment))
        self._at = moment
        num_workers = len(self.members)
        if num_workers >= self._bounds[0] and self._ending is None:
            spent_s = moment - begun
            done = spent_s / self._step_s()
            self.step = min(self.step + done, float(self.load.num_steps))
            self.saved.useful_s += spent_s * min(self.load.num_useful(num_workers), num_workers)
            size = (num_workers, self._count_nodes())
            self._measured[size] = (self._measured.get(size, (0.0, 0.0))[0] + spent_s, moment)
        every = self.load.checkpoint_every
        if every is not None:
            self.saved.step = max(self.saved.step, self.step // every * every)

    def _count_nodes(self) -> int:
        return len({node_of(worker.slot) for worker in self.members})

    def _step_s(self) -> float:
        return self.load.seconds_per_step(len(self.members), self._count_nodes())

    def _fill(self) -> None:
        """Start a worker in every assigned slot that has none, and dismiss the workers in other slots."""
        self._catch_up()
        if self._ending is None:
            if not self.members:
                # No remaining worker has the state.
                self.step = self.saved.step
            for slot in sorted(self._assigned - {worker.slot for worker in self._workers}):
                self._num_workers_ever += 1
                worker = Worker(self._num_workers_ever, slot)
                self._workers.append(worker)
                self._observer.enter(slot, self)
                self._loop.call_later(self._observer.costs.start_s, self._join, worker)
            self._dismiss_unwanted()
        self._settle()

    def _dismiss_unwanted(self) -> None:
        unwanted = [worker for worker in self._workers if worker.slot not in self._assigned]
        staying = [worker for worker in self.members if worker not in unwanted]
        coming = [worker for worker in self._workers if worker.phase is Phase.STARTING and worker not in unwanted]
        # A worker with the state sends it to another one before it leaves.
        keep = max(self._bounds[0] - len(staying), 0) if coming else 0
        for worker in unwanted:
            if worker.phase is Phase.MEMBER and keep:
                keep -= 1
            elif worker.phase is not Phase.LEAVING:
                self._dismiss(worker)

    def _join(self, worker: Worker) -> None:
        if worker.phase is not Phase.STARTING or worker not in self._workers or self._ending is not None:
            return
        if self.state is not DriverState.RUNNING:
            # No driver is there to admit it now; it tries again.
            self._loop.call_later(self._observer.costs.start_s, self._join, worker)
            return
        self._catch_up()
        worker.phase = Phase.MEMBER
        self._fill()

    def _dismiss(self, worker: Worker, after_s: float = 0.0) -> None:
        worker.phase = Phase.LEAVING
        self._loop.call_later(after_s + self._observer.costs.drain_s, self._go, worker)

    def _go(self, worker: Worker) -> None:
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        self._observer.leave(worker.slot, self)
        if self.state is DriverState.RUNNING:
            # Another worker starts in its slot if the slot was assigned to the job again meanwhile.
            self._fill()

    def _settle(self) -> None:
        """Find the next event after a change."""
        self._note_members()
        if self._ending is not None and not self._workers and self.state is DriverState.RUNNING:
            self._outcome, self.state = self._ending, DriverState.ENDED
            self._observer.end(self, self._ending)
        if self._next is not None:
            self._next.cancel()
            self._next = None
        num_workers = len(self.members)
        if self._ending is None and num_workers and num_workers >= self._bounds[0]:
            left_s = (self._next_stop() - self.step) * self._step_s()
            pause_s = max(self._paused_until - self._loop.time(), 0.0)
            self._next = self._loop.call_later(pause_s + max(left_s, 0.0), self._reach)
        self._observer.on_news()

    def _note_members(self) -> None:
        num_workers = len(self.members)
        if num_workers == self._num_trained:
            return
        moment, trained = self._loop.time(), self.saved.trained
        if trained and trained[-1][0] == moment:
            trained.pop()  # several at once are one change
        elif self._num_trained and num_workers and self._ending is None:
            self.saved.num_resizes += 1
            self._resized_at = moment
        if self._resized_at == moment:
            self._paused_until = moment + self.load.pause_s(num_workers, self._observer.costs)
        self._num_trained = num_workers
        trained.append((moment, num_workers))

    def _next_stop(self) -> int:
        due = [step for step in self.load.fail_at if step not in self.saved.failed_at and step >= self.step]
        return min([*due, self.load.num_steps])

    def _reach(self) -> None:
        """Handle the step at which the job fails or is done."""
        stop = self._next_stop()
        self._catch_up()
        # Rounding errors may have left the position a little below a whole step.
        self.step = float(max(stop, int(self.step)))
        if stop < self.load.num_steps:
            self.saved.failed_at.add(stop)
            self.fail(f"the program failed at step {stop}")
        else:
            self.saved.step = self.step
            self._begin_end(Outcome("succeeded", 0, "the program ran to its end"), 0.0)

    def _begin_end(self, outcome: Outcome, after_s: float, *, saves: bool = False) -> None:
        self._catch_up()
        if saves:
            # The members write it; without members there is nothing new to write.
            self.saved.step = self.step
        self._ending = outcome
        for worker in self._workers:
            if worker.phase is not Phase.LEAVING:
                self._dismiss(worker, after_s)
        self._settle()

    def _give_up(self) -> None:
        """Save, and end the workers, after too long a time without a driver."""
        self._catch_up()
        self.saved.step = max(self.saved.step, self.step)
        for worker in list(self._workers):
            self._workers.remove(worker)
            self._observer.leave(worker.slot, self)
        self._settle()
