"""Input and output of a policy: the whole pool at one moment, and one decision per job. Decides nothing.

Numbers of slots are whole; moments are seconds on the caller's clock, of which only differences mean anything.
Nothing here can be part of a cycle, so the collector of cycles need not look at ten thousand slots (``gc=False``).
"""

from __future__ import annotations

import enum

import msgspec

DEFAULT_PRIORITY = 5000
MAX_PRIORITY = 10_000


class Slot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One place for one worker.

    Args:
        id: unique in the pool.
        node: the machine it is on.
        device: what a worker gets there, for people.
        holder: the job that has it, or whose worker is still in it. None: no job.
        leaving: its holder was asked to give it back, and the worker is not yet confirmed gone.
        usable: its node is up and not drained. What is not usable is taken away and never given.
    """

    id: str
    node: str
    device: str = ""
    holder: str | None = None
    leaving: bool = False
    usable: bool = True


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A named share of the pool.

    Args:
        name: as jobs name it; a queue that only jobs name has weight 1, no floor and no ceiling.
        weight: above 0; two queues that want more than there is get slots in proportion to it.
        floor: slots that are its own whenever its jobs can use them; lent out while they cannot.
        ceiling: it never has more, even if slots are idle. None: no limit.
    """

    name: str
    weight: float = 1.0
    floor: int = 0
    ceiling: int | None = None


class Standing(enum.StrEnum):
    """Where a job stands, as far as a policy cares."""

    WAITING = "waiting"  # has no workers yet
    RUNNING = "running"
    RESIZING = "resizing"  # a change of its workers is under way: it is not touched
    PAUSED = "paused"  # by the policy, its state saved; it resumes by itself


class JobDemand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job that has slots or wants some. Jobs that ended, or that a user paused, are not in a snapshot.

    Args:
        id: unique.
        name: as its owner called it.
        owner: who submitted it.
        queue: the name of its queue.
        priority: 1 to 10000, higher is more; within a fair share the weight is priority / 5000.
        submitted_at: moment; who came first goes first among equals.
        min_workers: it runs with at least so many slots, or with none.
        max_workers: it never has more.
        elastic: False: a static job, which has exactly ``max_workers`` slots or none.
        num_micro_batches: of one step; slots that would not make the step faster are not given, not even below the
            minimum. None: every slot helps.
        shares_freely: each step is cut for as many workers as there are: every slot up to that number helps.
        standing: where it stands.
        wanted: of the last decision. None: there was none.
        wanted_since: of the last decision.
        last_resized_at: when its number of workers last changed. None: never.
        resize_cost_s: how long training paused for a change, as measured. None: not known yet, taken as 0.
        due_slot_s: seconds of slots that were due to it so far: its ``due`` of each decision, times how long that held.
        served_slot_s: seconds of slots that it has had.
        behind: of the last decision.
    """

    id: str
    name: str
    owner: str
    queue: str
    submitted_at: float
    max_workers: int
    min_workers: int = 1
    priority: int = DEFAULT_PRIORITY
    elastic: bool = True
    num_micro_batches: int | None = None
    shares_freely: bool = False
    standing: Standing = Standing.WAITING
    wanted: int | None = None
    wanted_since: float | None = None
    last_resized_at: float | None = None
    resize_cost_s: float | None = None
    due_slot_s: float = 0.0
    served_slot_s: float = 0.0
    behind: int = 0

    @property
    def title(self) -> str:
        """How people call it."""
        return f"{self.owner}/{self.name}"


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The pool at one moment, in any order.

    Args:
        now: the present time.
        slots: all of the pool, also those that are not usable.
        jobs: all that have slots or want some.
        queues: all that are configured.
    """

    now: float
    slots: tuple[Slot, ...]
    jobs: tuple[JobDemand, ...]
    queues: tuple[Queue, ...] = ()


class Verb(enum.StrEnum):
    """What a decision does to a job."""

    START = "start"  # it has no slots and gets some; one that was paused continues
    GROW = "grow"
    SHRINK = "shrink"
    KEEP = "keep"
    WAIT = "wait"  # it has no slots and gets none yet
    PAUSE = "pause"  # it loses all its slots; its state is saved first


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision about one job.

    Args:
        job: its id.
        slots: ids of the slots that it is to hold now, sorted: those it keeps, and only such new ones as are free now.
        verb: how their number differs from the slots it has now; only ``slots`` says which slots they are.
        reason: one sentence, for people; it stays the same while the situation does.
        wanted: how many slots it would have if every change were done at once and cost nothing.
        wanted_since: since when ``wanted`` is on the same side of what it has. None: it has what is wanted.
            Hand both back in the next snapshot.
        share: its exact share, of which ``wanted`` is the whole number; 0 if its minimum does not fit.
        because: ids of the jobs that are the cause, at most five: who gains if it loses, who has what it waits for,
            with whom it shares.
        due: what it would have if slots were divisible; 0 where that does not count.
        behind: how often its precedence was doubled because it has had less than that. Hand it back too.
        ceiling: of its queue, if with a higher one it would have more. None: that would not help it.
    """

    job: str
    slots: tuple[str, ...]
    verb: Verb
    reason: str
    wanted: int
    wanted_since: float | None = None
    share: float = 0.0
    because: tuple[str, ...] = ()
    due: float = 0.0
    behind: int = 0
    ceiling: int | None = None


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions about all jobs.

    Args:
        decisions: one per job, in order of submission.
        summary: one sentence.
        decide_again_at: the next moment at which time alone changes a decision. None: only news can.
    """

    decisions: tuple[Decision, ...]
    summary: str
    decide_again_at: float | None = None

    def of(self, job: str) -> Decision:
        """Return the decision for one job.

        Raises:
            KeyError: the job was not in the snapshot.
        """
        for decision in self.decisions:
            if decision.job == job:
                return decision
        raise KeyError(job)
