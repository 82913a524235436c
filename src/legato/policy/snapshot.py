"""Input and output of a policy: the whole pool at one moment, and one decision per job. Decides nothing.

Numbers of slots are integers. Times are seconds on the caller's clock; only differences matter. No object here can be
part of a reference cycle, so the garbage collector skips them (``gc=False``).
"""

from __future__ import annotations

import enum

import msgspec

from legato.core.speed import Speed
from legato.policy.speeds import Slowdown

OWN_MACHINE = ("legato.machine", "server")
"""The label of the server's own machine in a pool of several."""
TEST_LABEL = "legato.test"
"""The label of a machine on which a test of its cluster runs. Only jobs that ask for it use this machine."""
OWNER_LABEL = "legato.owner"
"""The label of a machine that one user's jobs may use, with the user as its value. Machines without it are for all."""
DEFAULT_PRIORITY = 5000
MAX_PRIORITY = 10_000


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A machine.

    Args:
        name: as slots name it.
        kind: machines of different kinds compute different bits, so a job uses machines of one kind only. "": unknown,
            which is a kind too.
        traits: what makes the kind, for people: name → value, such as ``CPU capability`` → ``AVX512``.
        labels: jobs may ask for them.
    """

    name: str
    kind: str = ""
    traits: dict[str, str] = {}
    labels: dict[str, str] = {}


class Slot(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One device for a worker.

    Args:
        id: unique in the pool.
        node: the machine it is on.
        device: the device: ``cpu`` or a GPU.
        gpu_type: model of the GPU. "": no GPU, or unknown.
        worker: the same for all slots of one worker of a job with several GPUs per worker. "": the slot's own worker.
        holder: the job that has it, or whose worker still uses it. None: no job.
        leaving: its holder was asked to give it back, and the worker has not certainly ended.
        usable: its node is up and not drained. An unusable slot is taken away and never assigned.
        trouble: why it is not usable, as a part of a sentence. "": it is, or the cause is unknown.
    """

    id: str
    node: str
    device: str = ""
    gpu_type: str = ""
    worker: str = ""
    holder: str | None = None
    leaving: bool = False
    usable: bool = True
    trouble: str = ""


class Queue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A named share of the pool.

    Args:
        name: as jobs name it; a queue that only jobs name has weight 1, no floor and no ceiling.
        weight: above 0; queues that want more slots than exist get them in proportion to it.
        floor: slots that the queue can always claim; lent to others while its jobs cannot use them.
        ceiling: maximum of slots, even if others are idle. None: no limit.
    """

    name: str
    weight: float = 1.0
    floor: int = 0
    ceiling: int | None = None


class RecentUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many slots of a queue a user has used lately.

    Args:
        queue: its name.
        user: who submitted the jobs.
        num_slots: slots that the jobs had on average; a second counts half as much as one a half-life later.
        level: of the last decision, as in `UseLevel`. None: there was none.
    """

    queue: str
    user: str
    num_slots: float
    level: int | None = None


class UseLevel(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much recent use reduces the weight of a user in a queue.

    Args:
        queue: its name.
        user: the user.
        level: how many times the weight is halved, at most `legato.policy.recent_use.MAX_LEVEL`. Pass it back.
    """

    queue: str
    user: str
    level: int


class Standing(enum.StrEnum):
    """The state of a job, as the policy needs it."""

    WAITING = "waiting"  # has no workers yet
    RUNNING = "running"
    RESIZING = "resizing"  # a change of its workers is under way: it is not changed
    PAUSED = "paused"  # by the policy, with its state saved; it resumes automatically


class Trial(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job tries another number of workers for a while, so that its speed is measured: see `legato.policy.trials`.

    Args:
        partner: id of the job that tries as many more, or fewer, at the same time.
        usual: its target in slots, without the trial.
        tried: its target in slots.
        since: when the first of the two was resized for it; before that, when it was chosen.
        has_begun: whether one of the two was resized.
    """

    partner: str
    usual: int
    tried: int
    since: float
    has_begun: bool = False


class JobDemand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One job that has slots or wants some. Jobs that ended, or that a user paused, are not in a snapshot.

    Args:
        id: unique.
        name: as its owner called it.
        owner: who submitted it. It can use nodes whose `OWNER_LABEL` is this user, and those without that label.
        queue: the name of its queue.
        priority: 1 to 10000, higher is more; within a fair share the weight is priority / 5000.
        submitted_at: time of submission; among equal jobs, the earlier one goes first.
        min_workers: with fewer it does not run.
        max_workers: the most that it can have.
        gpus_per_worker: slots of each worker, all on one node; more than one only on GPUs.
        gpu_type: a GPU model that its slots must have, as `legato.policy.kinds.is_type` compares them. None: any slot.
        labels: its nodes must have all of them.
        bound_because: why it can use the server's own machine only (the label `OWN_MACHINE`), as a part of a sentence.
        coming: machines that clusters are about to give it, as a part of a sentence. "": none are known.
        num_coming: slots that it could get with these and further ones.
        refusals: nodes that cannot run it, and why, as a part of a sentence; it gets no slot of theirs.
        machine_kind: the kind of machine on which its training began, as in `Decision`. None: it has not begun.
        elastic: False: a static job, which has exactly ``max_workers`` workers or none.
        num_micro_batches: per step; slots that would not make the step faster are not assigned, not even below the
            minimum. None: every slot helps.
        shares_freely: each step is divided among any number of workers: every slot up to that number helps.
        speeds: measured speeds that count, as in `Rules.measured_speed_s`, in any order, also those of earlier runs.
        earlier: numbers of workers of which `speeds` has only what earlier runs of the same code have measured.
        slowdown: what they say, as `legato.policy.speeds.find_slowdown` returns it.
        trial, num_trials: of the last decision.
        standing: its state.
        lost_nodes: lost nodes on which a worker of it may still run. Until the leases of their agents are over, it is
            not resized.
        wanted: of the last decision. None: there was none.
        wanted_since: of the last decision.
        last_resized_at: when its number of workers last changed. None: never.
        resize_cost_s: measured duration of a pause for a change. None: not known yet, counts as 0.
        due_slot_s: seconds of slots that were due to it so far: its ``due`` of each decision, times the seconds until
            the next one.
        served_slot_s: seconds of slots that it has had.
        behind: of the last decision.
        used_slot_s: seconds of slots that it has had in all attempts; 0 if that does not count.
    """

    id: str
    name: str
    owner: str
    queue: str
    submitted_at: float
    max_workers: int
    min_workers: int = 1
    gpus_per_worker: int = 1
    gpu_type: str | None = None
    labels: dict[str, str] = {}
    bound_because: str = ""
    coming: str = ""
    num_coming: int = 0
    refusals: dict[str, str] = {}
    machine_kind: str | None = None
    priority: int = DEFAULT_PRIORITY
    elastic: bool = True
    num_micro_batches: int | None = None
    shares_freely: bool = False
    speeds: tuple[Speed, ...] = ()
    earlier: tuple[int, ...] = ()
    slowdown: Slowdown | None = None
    trial: Trial | None = None
    num_trials: int = 0
    standing: Standing = Standing.WAITING
    lost_nodes: tuple[str, ...] = ()
    wanted: int | None = None
    wanted_since: float | None = None
    last_resized_at: float | None = None
    resize_cost_s: float | None = None
    due_slot_s: float = 0.0
    served_slot_s: float = 0.0
    behind: int = 0
    used_slot_s: float = 0.0

    @property
    def title(self) -> str:
        """Its name for display."""
        return f"{self.owner}/{self.name}"

    @property
    def max_slots(self) -> int:
        """Slots of its maximum of workers."""
        return self.max_workers * self.gpus_per_worker


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The pool at one moment, in any order.

    Args:
        now: the present time.
        slots: all slots of the pool, including unusable ones.
        jobs: all jobs that have slots or want some.
        queues: all that are configured.
        nodes: all whose kind or labels are known.
        recent_use: of the users; those who are missing have used nothing.
    """

    now: float
    slots: tuple[Slot, ...]
    jobs: tuple[JobDemand, ...]
    queues: tuple[Queue, ...] = ()
    nodes: tuple[Node, ...] = ()
    recent_use: tuple[RecentUse, ...] = ()


class DecisionKind(enum.StrEnum):
    """What a decision does to a job."""

    START = "start"  # it had no slots and gets some; a paused job continues
    GROW = "grow"
    SHRINK = "shrink"
    KEEP = "keep"
    WAIT = "wait"  # it had no slots and gets none yet
    PAUSE = "pause"  # it loses all its slots; its state is saved first, unless all its nodes are lost


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision about one job.

    Args:
        job: its id.
        slots: sorted ids of the slots that it gets now: those that it keeps, and new ones that are free now.
        kind: how their number differs from its present slots; only ``slots`` says which slots they are.
        reason: one sentence; it stays the same while the situation does.
        wanted: its number of slots if every change were immediate and free.
        wanted_since: since when ``wanted`` has been above, or below, what it has. None: they are equal. Pass both back
            in the next snapshot.
        share: its exact share, which ``wanted`` rounds; 0 if its minimum does not fit.
        because: ids of at most five jobs that are the cause: they gain what it loses, hold slots that it waits for, or
            share with it.
        due: its slots if slots were divisible; 0 if that does not count.
        behind: how many times its precedence was doubled because it has had less than ``due``. Pass it back too.
        ceiling: ceiling of its queue, if a higher one would give it more slots. None: it would not.
        workers: the slots of each worker, if a worker has several; else empty.
        machine_kind: kind of the machines with its slots. Pass it back. None: it has no slots.
        trial: because of it, ``wanted`` differs from its share for a while. Pass it back.
        num_trials: how many trials have begun. Pass it back too.
    """

    job: str
    slots: tuple[str, ...]
    kind: DecisionKind
    reason: str
    wanted: int
    wanted_since: float | None = None
    share: float = 0.0
    because: tuple[str, ...] = ()
    due: float = 0.0
    behind: int = 0
    ceiling: int | None = None
    workers: tuple[tuple[str, ...], ...] = ()
    machine_kind: str | None = None
    trial: Trial | None = None
    num_trials: int = 0


class Decisions(msgspec.Struct, frozen=True, kw_only=True):
    """The decisions about all jobs.

    Args:
        decisions: one per job, in order of submission.
        summary: one sentence.
        decide_again_at: the next time at which a decision changes without other news. None: only other news can change
            it.
        use_levels: of the users with a lower weight, by queue and user.
    """

    decisions: tuple[Decision, ...]
    summary: str
    decide_again_at: float | None = None
    use_levels: tuple[UseLevel, ...] = ()

    def of(self, job: str) -> Decision:
        """Return the decision for one job.

        Raises:
            KeyError: the job was not in the snapshot.
        """
        for decision in self.decisions:
            if decision.job == job:
                return decision
        raise KeyError(job)
