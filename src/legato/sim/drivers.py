"""Simulated drivers on the running loop's clock, for `legato.control.drivers.drivers`. They start no process.

They behave like real drivers in all that the platform can see: actions take time, drivers die and hang on request, and
workers outlive their driver. They also check what no real driver could: `clashes` lists every slot in which two jobs
had a worker at the same time, and every job that ran to its end twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from legato.control.drivers.drivers import Assignment, DriverOrder, DriverReport, DriverState, always
from legato.core.errors import LegatoError, UsageError
from legato.driver.journal import Outcome
from legato.sim.load import Costs, Load
from legato.sim.simulated_attempt import Saved, SimulatedAttempt


class SimulatedDrivers:
    """See `legato.control.drivers.drivers.Drivers`.

    Args:
        costs: times that workers and drivers need besides the steps.
        on_news: called whenever the content of a report changes, except for the steps.
    """

    def __init__(self, costs: Costs, *, on_news: Callable[[], None] = lambda: None) -> None:
        self.costs = costs
        self.on_news = on_news
        self.clashes: list[str] = []
        self.attempts: dict[str, SimulatedAttempt] = {}
        self.saved: dict[str, Saved] = {}
        self._occupied: dict[str, SimulatedAttempt] = {}
        self._refused: dict[str, int] = {}

    # ------------------------------------------------------------ the contract

    async def start(self, order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
        """Start a driver, unless it runs or its attempt has ended."""
        last = self.attempts.get(order.job)
        if not is_wanted():
            return
        if self._refused.get(order.job):
            self._refused[order.job] -= 1
            raise LegatoError(f"The driver of {order.job} cannot be started: as planned for this test.")
        if last is not None and last.order.attempt > order.attempt:
            raise LegatoError(f"Attempt {order.attempt} of job {order.job} is over: {last.order.attempt} has begun.")
        if last is not None and last.order.attempt == order.attempt:
            last.start_again()
            return
        if last is not None and last.state is not DriverState.ENDED:
            raise LegatoError(f"Attempt {last.order.attempt} of job {order.job} has not ended yet.")
        _check_bounds(order.job, len(order.slots), order.spec.min_workers, order.spec.max_workers)
        saved = self.saved.setdefault(order.job, Saved())
        if not order.spec.resume:
            saved.step = 0.0
        self.attempts[order.job] = SimulatedAttempt(order, Load.from_program(order.spec.program), saved, self)

    async def kill(self, job: str, attempt: int) -> None:
        """Kill a driver."""
        simulated = self._find(job, attempt)
        if simulated is not None:
            simulated.die()

    async def give_up(self, job: str, attempt: int, reason: str, term: int = 0) -> None:  # noqa: ARG002 -- it has none
        """Kill the workers of an attempt that has no driver."""
        simulated = self._find(job, attempt)
        if simulated is not None:
            simulated.give_up(reason)

    async def assign(self, job: str, attempt: int, said: Assignment) -> bool:
        """Give a driver its slots."""
        simulated = self._find(job, attempt)
        if simulated is None or simulated.state is not DriverState.RUNNING:
            return False
        _check_bounds(job, len(said.slots), said.min_workers, said.max_workers)
        simulated.assign(said)
        return True

    async def stop(self, job: str, attempt: int, *, now: bool, reason: str) -> bool:
        """Ask a job to end."""
        simulated = self._find(job, attempt)
        if simulated is None or simulated.state is not DriverState.RUNNING:
            return False
        simulated.stop(now=now, reason=reason)
        return True

    async def reports(self, attempts: Mapping[str, int]) -> dict[str, DriverReport]:
        """Return the present reports."""
        found = {}
        for job, attempt in attempts.items():
            simulated = self._find(job, attempt)
            unknown = DriverReport(attempt=attempt, state=DriverState.UNKNOWN)
            found[job] = unknown if simulated is None else simulated.report()
        return found

    async def close(self) -> None:
        """Do nothing: the drivers continue."""

    def _find(self, job: str, attempt: int) -> SimulatedAttempt | None:
        simulated = self.attempts.get(job)
        return simulated if simulated is not None and simulated.order.attempt == attempt else None

    # ------------------------------------------------------------ faults

    def kill_driver(self, job: str) -> None:
        """Kill a job's driver; its workers continue to train for a while."""
        self.attempts[job].die()

    def refuse(self, job: str, num_starts: int) -> None:
        """Make the next starts of a job's driver fail."""
        self._refused[job] = num_starts

    def hang(self, job: str) -> None:
        """Make a job's driver stop answering, while its workers continue."""
        self.attempts[job].hang()

    def wake(self, job: str) -> None:
        """Make a hanging driver answer again."""
        self.attempts[job].wake()

    def fail(self, job: str, reason: str) -> None:
        """Make a job's program raise an error."""
        self.attempts[job].fail(reason)

    # ------------------------------------------------------------ called by the simulated attempts

    @property
    def occupied(self) -> Mapping[str, SimulatedAttempt]:
        """The slots with workers, and their jobs."""
        return self._occupied

    def enter(self, slot: str, attempt: SimulatedAttempt) -> None:
        """Record that a worker has started in a slot."""
        other = self._occupied.get(slot)
        if other is not None and other is not attempt:
            self.clashes.append(f"{slot}: {attempt.title} entered while {other.title} was there")
        self._occupied[slot] = attempt

    def leave(self, slot: str, attempt: SimulatedAttempt) -> None:
        """Record that a worker is gone."""
        if self._occupied.get(slot) is attempt:
            del self._occupied[slot]

    def end(self, attempt: SimulatedAttempt, outcome: Outcome) -> None:
        """Record how an attempt ended."""
        if outcome.outcome == "succeeded":
            saved = attempt.saved
            saved.num_successes += 1
            if saved.num_successes > 1:
                self.clashes.append(f"{attempt.title}: it was run to its end twice")


def _check_bounds(job: str, num_workers: int, low: int, high: int) -> None:
    """Raise UsageError in cases in which a real driver would let the job fail."""
    if not 1 <= low <= num_workers <= high:
        raise UsageError(f"Cannot run job '{job}': num_workers={num_workers} is outside {low}..{high}.")
