"""Jobs, their explanations, and their events."""

from __future__ import annotations

from typing import Any, Final

import msgspec

ENDED: Final = frozenset({"succeeded", "failed", "stopped"})
"""The final stages of a job."""

STAGES: Final = (
    *("queued", "starting", "running", "pausing", "paused", "stopping"),
    *("succeeded", "failed", "stopped"),
)
"""All stages of a job, as it goes through them."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is.

    Args:
        time: of the measurement.
        num_steps: all steps of the job. None: its program does not say how many there will be.
        step_s: seconds per step of late.
        resize_s: seconds that a resize cost of late.
        num_micro_batches: of a step: more slots than this cannot help. None: not known, or there is no such limit.
        shares_freely: each step is cut for as many workers as there are, up to that number.
        differed_step: after which the workers were first found to hold different states; from there on the run is not
            exact. None: never.
    """

    time: float
    num_workers: int = 0
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    step_s: float | None = None
    resize_s: float | None = None
    num_steps: int | None = None
    num_micro_batches: int | None = None
    shares_freely: bool = False
    differed_step: int | None = None

    @property
    def reached(self) -> str | None:
        """The last step, and of how many where that is known; None before the first.

        >>> known = dict.fromkeys(("epoch", "loss", "samples_per_s", "step_s", "resize_s"))
        >>> [Progress(time=0.0, num_workers=1, step=42, num_steps=total, **known).reached for total in (60, None)]
        ['42 of 60 (70 %)', '42']
        """
        if self.step is None or not self.num_steps:
            return None if self.step is None else str(self.step)
        return f"{self.step} of {self.num_steps} ({100 * self.step // self.num_steps} %)"


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was at the moment of the answer.

    Args:
        reason: why it is in this stage.
        attempt: 0: it never started.
        version: grows with each change of what its user wants and of its stage.
        staged_at: since when it is in this stage.
        decided_slots: slots that it should have, and why (``decided_reason``).
        num_slots: slots that it holds, those that it is leaving included.
        project, experiment, definition: ids of what it is a run of.
        parent: id of the job that it is a clone of.
    """

    id: str
    name: str
    owner: str
    queue: str
    priority: int
    min_workers: int
    max_workers: int
    is_elastic: bool
    max_retries: int
    labels: dict[str, str]
    code: str | None
    project: str | None = None
    experiment: str | None = None
    definition: str | None = None
    parent: str | None = None
    stage: str
    reason: str
    attempt: int
    num_retries: int
    exit_code: int | None
    stop_now: bool
    version: int
    submitted_at: float
    staged_at: float
    started_at: float | None
    ended_at: float | None
    decided_slots: int | None
    decided_reason: str | None
    progress: Progress | None
    num_slots: int


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a job runs. Values of ``environment`` are None for those whom they do not concern.

    Args:
        heartbeat_limit_s, collective_limit_s: when a worker that is silent, or that hangs, is replaced. Seconds.
        memory_bytes, num_cpus: of each worker at most. None: the platform's default.
        must_limit: it does not run where these cannot be enforced.
        parameters: handed to the program behind its arguments.
        framework: what runs it.
        launcher: how that does it. None: the program is a Python script.
    """

    program: tuple[str, ...]
    directory: str | None = None
    environment: dict[str, str | None] = {}
    data: str | None = None
    seed: int | None = None
    num_threads: int = 1
    cpu_capability: str | None = None
    num_micro_batches: int | None = None
    checkpoint_every: str | None = None
    keep: int = 3
    max_run_s: float | None = None
    heartbeat_limit_s: float = 5.0
    collective_limit_s: float = 1800.0
    memory_bytes: int | None = None
    num_cpus: float | None = None
    must_limit: bool = True
    parameters: dict[str, str | bool | int | float] = {}
    framework: str = "legato"
    launcher: dict[str, Any] | None = None


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a new job would mean for another one: its slots in the end without and with the new one."""

    job: str | None
    title: str
    before: int
    after: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen.

    Args:
        starts: ``now``; ``soon``: when slots have been freed for it; ``later``: when others end.
        slots_now: how many it would get at once.
        slots: how many it would have in the end, as things are.
        share: its exact share.
    """

    starts: str
    slots_now: int
    slots: int
    share: float
    reason: str
    effects: tuple[Effect, ...]


class Party(msgspec.Struct, frozen=True):
    """A job that has to do with another one. ``job``: its id, None if it is not yours to see."""

    job: str | None
    title: str
    num_slots: int


class LostSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that a job was asked to leave, and the job that has it since. ``title`` None: none."""

    slot: str
    time: float
    reason: str
    job: str | None
    title: str | None


class Decision(msgspec.Struct, frozen=True):
    """What was decided for a job at a time."""

    time: float
    attempt: int
    num_slots: int
    reason: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job has what it has.

    Args:
        sentences: for people.
        wanted: slots that it should have in the end, with its exact ``share``.
        because: jobs that are the cause.
        holders: who has the pool's slots now, if the job wants more than it has.
        lost: slots that went from it to others, the newest first.
        decisions: the newest first.
        ceiling: of its queue, if with a higher one it would have more.
    """

    job: str
    sentences: tuple[str, ...]
    wanted: int | None
    share: float | None
    because: tuple[Party, ...]
    holders: tuple[Party, ...]
    lost: tuple[LostSlot, ...]
    decisions: tuple[Decision, ...]
    ceiling: int | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One life of a job's driver. ``outcome``: the stage into which the job went from it."""

    attempt: int
    started_at: float
    ended_at: float | None
    outcome: str | None
    reason: str | None


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """A slot in the hands of one attempt of a job. ``until`` None: still. ``job`` None: it is not yours to see."""

    slot: str
    job: str | None
    attempt: int | None
    since: float
    release_asked_at: float | None
    until: float | None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened. ``seq``: its place in the one sequence of the platform."""

    seq: int
    time: float
    kind: str
    reason: str
    job: str | None = None
    attempt: int | None = None
    detail: dict[str, Any] | None = None


class TrainingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's driver wrote down. ``seq`` counts for the job alone."""

    seq: int
    time: float
    kind: str
    level: str
    reason: str
    worker: int | None = None
    view: int | None = None
    step: int | None = None
    detail: str | None = None
