"""Jobs, their explanations, and their events."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from legato.core.speed import Speed

ENDED: Final = frozenset({"succeeded", "failed", "stopped"})
"""The final stages of a job."""

STAGES: Final = (
    *("queued", "starting", "running", "pausing", "paused", "stopping"),
    *("succeeded", "failed", "stopped"),
)
"""All stages of a job, in the order in which a job can reach them."""

DRIVER_TROUBLE: Final = "; but its driver "
"""Separates the reason of a job's stage from a failure of its driver."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a job.

    Args:
        time: when it was measured.
        num_workers: workers that train.
        step: the last committed step.
        epoch: epoch of that step, from 0.
        loss: loss of that step.
        num_steps: all steps of the job. None: the program does not give the number.
        step_s: seconds per step, smoothed.
        resize_s: seconds for which the last change of the number of workers paused the training.
        speeds: measured with each number of workers that the job has had, the one measured last at the end.
        num_micro_batches: micro-batches per step; more slots than this do not help. None: not known, or no limit.
        shares_freely: each step is divided among all present workers, up to ``num_micro_batches``.
        differed_step: the step after which the result was first found to depend on the workers: they held different
            states, or computed different gradients for one micro-batch. None: never.
        sent_bytes: bytes that the busiest node sends to other nodes in each step, for gradients. None: nothing is known
            to pass between nodes.
        unconnected: why workers that hold slots cannot connect to the others, and so do not train. None: all can.
        data_wait: the part of the time of a step, 0 to 1, that the worker that waits longest for data waits for it.
            None: not known.
        cpus: CPU cores that its workers use, with their processes. None: not measured, as for the fields below.
        memory_bytes: resident memory of its workers.
        gpu_busy: the part of the time, 0 to 1, in which the GPUs of its workers compute.
        gpu_memory_bytes: memory in use on these GPUs.
    """

    time: float
    num_workers: int = 0
    step: int | None = None
    epoch: int | None = None
    loss: float | None = None
    samples_per_s: float | None = None
    step_s: float | None = None
    resize_s: float | None = None
    speeds: tuple[Speed, ...] = ()
    num_steps: int | None = None
    num_micro_batches: int | None = None
    shares_freely: bool = False
    differed_step: int | None = None
    sent_bytes: int | None = None
    unconnected: str | None = None
    data_wait: float | None = None
    cpus: float | None = None
    memory_bytes: int | None = None
    gpu_busy: float | None = None
    gpu_memory_bytes: int | None = None

    @property
    def reached(self) -> str | None:
        """The last step, with the number of all steps if that is known. None before the first step.

        >>> known = dict.fromkeys(("epoch", "loss", "samples_per_s", "step_s", "resize_s"))
        >>> [Progress(time=0.0, num_workers=1, step=42, num_steps=total, **known).reached for total in (60, None)]
        ['42 of 60 (70 %)', '42']
        """
        if self.step is None or not self.num_steps:
            return None if self.step is None else str(self.step)
        return f"{self.step} of {self.num_steps} ({100 * self.step // self.num_steps} %)"


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job at the time of the answer.

    Args:
        reason: why the job is in its stage.
        attempt: number of the present or last attempt. 0: the job never started.
        version: grows with each change by a user, and with each change of stage.
        staged_at: when the job entered its stage.
        decided_slots: slots that the job should have; ``decided_reason`` says why.
        num_slots: slots that it holds, including those that it is leaving.
        gpus_per_worker: slots of each worker, all on one node.
        machine_kind: kind of the machines on which its training began, and on which it continues. None: it has not
            begun.
        project, experiment, definition: ids of the objects from which the job was started, while they exist.
        parent: id of the job of which this one is a clone.
        notes: text of its owner, for people.
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
    gpus_per_worker: int = 1
    machine_kind: str | None = None
    notes: str = ""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a job runs. Only the owner and admins see the values of ``environment``; others get None in their place.

    Args:
        heartbeat_limit_s: seconds of silence after which Legato replaces a worker.
        collective_limit_s: seconds without progress after which Legato replaces a worker, because it hangs.
        python: the Python of the workers: the path of an executable. None: the server's own.
        gpu_type: GPU model of the slots, as a part of its name. None: any slot.
        node_labels: the job uses nodes with all of these labels.
        memory_bytes, num_cpus: limits of each worker. None: the server's default.
        must_limit: the job does not run where these two limits cannot be enforced.
        parameters: appended to the arguments of the program.
        framework: the framework that runs the program.
        launcher: how the framework starts the program. None: the program is a Python script.
    """

    program: tuple[str, ...]
    directory: str | None = None
    environment: dict[str, str | None] = {}
    data: str | None = None
    seed: int | None = None
    num_threads: int = 1
    cpu_capability: str | None = None
    python: str | None = None
    gpu_type: str | None = None
    node_labels: dict[str, str] = {}
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
    """The effect of a change on another job: the slots that it has in the end without and with the change."""

    job: str | None
    title: str
    before: int
    after: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen if a job were submitted.

    Args:
        starts: ``now``; ``soon``: once slots have been freed for it; ``later``: once other jobs end.
        slots_now: slots that it would get at once.
        slots: slots that it would have in the end, if nothing else changes.
        share: its exact share, before rounding to whole slots.
        reason: one sentence.
        effects: all jobs that would have more or fewer slots.
        cheap_workers: numbers of workers with equal shares of a step that send the fewest bytes between machines;
            empty if the number of micro-batches is not known, or the job cannot change its number of workers.
    """

    starts: str
    slots_now: int
    slots: int
    share: float
    reason: str
    effects: tuple[Effect, ...]
    cheap_workers: tuple[int, ...] = ()


class Party(msgspec.Struct, frozen=True):
    """Another job in an explanation. ``job``: its id; None: you may not see the job. ``title``: ``OWNER/NAME``."""

    job: str | None
    title: str
    num_slots: int


class LostSlot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that a job was asked to leave, and the job that has it now. ``title`` None: no job has it.

    ``job`` is None also if you may not see that job.
    """

    slot: str
    time: float
    reason: str
    job: str | None
    title: str | None


class Decision(msgspec.Struct, frozen=True):
    """A decision on a job's slots."""

    time: float
    attempt: int
    num_slots: int
    reason: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job has its slots.

    Args:
        sentences: the explanation, for people.
        wanted: slots that the job should have in the end; ``share``: its share before rounding. None: this server did
            not make the last decision.
        because: jobs that are the cause.
        holders: jobs that hold the pool's slots now. Empty unless the job wants more slots than it has.
        lost: slots that the job was asked to leave, the newest first.
        decisions: decisions on the job, the newest first.
        ceiling: the ceiling of its queue, if the job would have more slots with a higher one. None: it would not, or
            this server did not make the last decision.
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
    """One attempt of a job. ``outcome``: the stage of the job after the attempt."""

    attempt: int
    started_at: float
    ended_at: float | None
    outcome: str | None
    reason: str | None


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that an attempt of a job held. ``until`` None: it still does. ``job`` None: you may not see the job.

    ``worker``: all slots of its worker, as ``NODE/0+1``, if a worker has several. None: this one only.
    """

    slot: str
    job: str | None
    attempt: int | None
    since: float
    release_asked_at: float | None
    until: float | None
    worker: str | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event of the platform. ``seq``: its number in the platform's one sequence of events."""

    seq: int
    time: float
    kind: str
    reason: str
    job: str | None = None
    attempt: int | None = None
    detail: dict[str, Any] | None = None


class TrainingEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a job's driver recorded. ``seq``: its number in the events of this job."""

    seq: int
    time: float
    kind: str
    level: str
    reason: str
    worker: int | None = None
    view: int | None = None
    step: int | None = None
    detail: str | None = None
