"""The state at the start of a round of the control loop: facts by job, and memory of each job. Pure.

What is remembered is in memory only: if it is lost, the next decisions come a little later, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from legato.control.loop.driver_failures import NUM_TRIES, Trouble, pause_after
from legato.control.loop.pace import Pace
from legato.control.loop.slot_account import Account
from legato.control.records import Allocation, Facts, Job
from legato.control.stages import Stage


@dataclass(slots=True)
class Memory:
    """What the loop remembers of one attempt of a job. If it is lost, the next decisions only come a little later.

    Args:
        attempt: of the job.
        wanted: of the policy's last decision, handed back to it.
        wanted_since: likewise.
        num_workers: as last reported.
        resized_at: when that changed.
        bounds: its least, its most and its priority, as last seen.
        is_hurried: a user has changed those, and the job has not reached them yet.
        given_up: slots that the driver uses no more.
        most: slots that were left to it when it gave up the last one; it is given none in their place. None: any.
        pace: how fast it trains.
        account: what was due to it, and what it had, over all attempts.
        trouble: with its driver.
        again_at: not before this is an attempt that failed tried again.
    """

    attempt: int
    wanted: int | None = None
    wanted_since: float | None = None
    num_workers: int | None = None
    resized_at: float | None = None
    bounds: tuple[int, int, int] | None = None
    is_hurried: bool = False
    given_up: set[str] = field(default_factory=set)
    most: int | None = None
    pace: Pace = field(default_factory=Pace)
    account: Account = field(default_factory=Account)
    trouble: Trouble = field(default_factory=Trouble)
    again_at: float = 0.0

    @property
    def cools_since(self) -> float | None:
        """Since when it is spared another resize. None: it is not; what a person asks for does not wait for that."""
        return None if self.is_hurried else self.resized_at

    def see_bounds(self, job: Job) -> None:
        """Note whether a user has changed the job's bounds or priority."""
        bounds = (job.min_workers, job.max_workers, job.priority)
        self.is_hurried |= self.bounds not in (None, bounds)
        self.bounds = bounds

    def forget_the_future(self, now: float) -> None:
        """Have nothing wait for a moment again that was before the clock was set back."""
        if self.wanted_since is not None:
            self.wanted_since = min(self.wanted_since, now)
        if self.resized_at is not None:
            self.resized_at = min(self.resized_at, now)
        if self.again_at - now > pause_after(NUM_TRIES):
            # A pause is never longer.
            self.again_at = now


def memory_of(job: Job, memories: dict[str, Memory]) -> Memory:
    """Return what is remembered of a job's present attempt."""
    found = memories.get(job.id)
    if found is None or found.attempt != job.attempt:
        # What is wanted for it is still wanted; all else was the last attempt's.
        last = found or Memory(job.attempt)
        found = Memory(job.attempt, last.wanted, last.wanted_since, account=last.account)
        memories[job.id] = found
    return found


class RoundFacts:
    """The facts of a round, sorted by job.

    Args:
        facts: as read from the store.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.allocations: dict[str, list[Allocation]] = {}
        for allocation in facts.allocations:
            self.allocations.setdefault(allocation.job, []).append(allocation)

    def held(self, job: Job) -> list[Allocation]:
        """Return the open allocations of a job's present attempt."""
        return [found for found in self.allocations.get(job.id, []) if found.attempt == job.attempt]

    def kept(self, job: Job) -> list[str]:
        """Return the slots that a job holds and was not asked to leave."""
        return sorted(found.slot for found in self.held(job) if found.release_asked_at is None)

    def is_paused_by_policy(self, job: Job) -> bool:
        """Whether a job was asked to leave all of its slots; its driver may still be writing the checkpoint."""
        return job.stage in (Stage.STARTING, Stage.RUNNING) and not self.kept(job)
