"""The state at the start of a round of the control loop: facts by job, and memory of each job. Pure.

The loop's memory is not stored. If it is lost, the next decisions come a little later; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from legato.control.loop.driver_failures import NUM_TRIES, DriverFailures, pause_after
from legato.control.loop.pace import Pace
from legato.control.loop.slot_account import Account
from legato.control.records import Allocation, Facts, Job
from legato.control.stages import Stage
from legato.policy.snapshot import Trial


@dataclass(slots=True)
class Memory:
    """The loop's memory of one attempt of a job.

    Args:
        attempt: of the job.
        wanted: value of the policy's last decision, which is its next input.
        wanted_since, trial, num_trials: likewise.
        num_workers: as last reported.
        resized_at: when that changed.
        bounds: its minimum, maximum and priority, as last seen.
        is_hurried: a user has changed these, and the job has not reached them yet.
        given_up: slots that the driver no longer uses.
        refusals: nodes that cannot run the job, and why; also of earlier attempts.
        reported: the nodes of which this attempt's driver has said that.
        most: number of slots that were left when the driver gave up the last one; the job gets no replacement. None: no
            limit.
        pace: speed of training.
        account: seconds of slots that were due to the job and that it had, over all attempts.
        failures: those of its driver.
        again_at: earliest time of the next attempt after a failed one.
    """

    attempt: int
    wanted: int | None = None
    wanted_since: float | None = None
    trial: Trial | None = None
    num_trials: int = 0
    num_workers: int | None = None
    resized_at: float | None = None
    bounds: tuple[int, int, int] | None = None
    is_hurried: bool = False
    given_up: set[str] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    most: int | None = None
    pace: Pace = field(default_factory=Pace)
    account: Account = field(default_factory=Account)
    failures: DriverFailures = field(default_factory=DriverFailures)
    again_at: float = 0.0

    @property
    def cools_since(self) -> float | None:
        """Start of the time without another resize. None: its user asked for a change, so it may be resized."""
        return None if self.is_hurried else self.resized_at

    def see_bounds(self, job: Job) -> None:
        """Note whether a user has changed the job's bounds or priority."""
        bounds = (job.min_workers, job.max_workers, job.priority)
        self.is_hurried |= self.bounds not in (None, bounds)
        self.bounds = bounds

    def note_refusals(self, refusals: Mapping[str, str], returned: Collection[str]) -> None:
        """Note which nodes cannot run the job.

        A node is excluded from the moment at which a slot of it is given back for that reason, until its agent can run
        the job after all, or until its slots could not be used meanwhile: it was drained, or its agent ended.

        Args:
            refusals: nodes that cannot run the job now, and why, as the driver reports.
            returned: nodes of which slots are being given back.
        """
        for node in self.reported - refusals.keys():
            self.refusals.pop(node, None)
        self.reported = set(refusals)
        self.refusals |= {node: refusals[node] for node in refusals.keys() & set(returned)}

    def forget_nodes(self, nodes: Collection[str]) -> None:
        """Give nodes another chance."""
        for node in self.refusals.keys() & set(nodes):
            del self.refusals[node]

    def forget_the_future(self, now: float) -> None:
        """Drop moments in the future: they are from before the clock was set back."""
        if self.wanted_since is not None:
            self.wanted_since = min(self.wanted_since, now)
        if self.trial is not None and self.trial.since > now:
            self.trial = msgspec.structs.replace(self.trial, since=now)
        if self.resized_at is not None:
            self.resized_at = min(self.resized_at, now)
        if self.again_at - now > pause_after(NUM_TRIES):
            # No pause is longer.
            self.again_at = now


def memory_of(job: Job, memories: dict[str, Memory]) -> Memory:
    """Return the memory of a job's present attempt."""
    found = memories.get(job.id)
    if found is None or found.attempt != job.attempt:
        # The policy's target and the machines stay; the rest concerned the previous attempt.
        last = found or Memory(job.attempt)
        found = Memory(job.attempt, last.wanted, last.wanted_since, account=last.account, refusals=dict(last.refusals))
        found.num_trials = last.num_trials
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
        """Return the slots of a job that it was not asked to give back."""
        return sorted(found.slot for found in self.held(job) if found.release_asked_at is None)

    def workers(self, job: Job, slots: Collection[str]) -> list[str]:
        """Return slots of a job by worker: those of a worker with several GPUs are joined to one name."""
        of = {found.slot: found.worker or found.slot for found in self.held(job)}
        return sorted({of[slot] for slot in slots})

    def usable_nodes(self) -> set[str]:
        """Return the nodes with a slot that can be used."""
        return {slot.node for slot in self.facts.slots if slot.unusable_since is None}

    def is_paused_by_policy(self, job: Job) -> bool:
        """Whether a job was asked to give back all of its slots; its driver may still be writing the checkpoint."""
        return job.stage in (Stage.STARTING, Stage.RUNNING) and not self.kept(job)
