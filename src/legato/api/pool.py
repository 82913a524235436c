"""The pool: nodes, slots and queues, now and over time."""

from __future__ import annotations

import msgspec

from legato.api.jobs import Effect


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """All slots together.

    Args:
        num_leaving: asked back, and not yet confirmed free.
        jobs: how many there are that you may see, by stage.
        summary: one sentence.
    """

    policy: str
    num_slots: int
    num_usable: int
    num_free: int
    num_leaving: int
    jobs: dict[str, int]
    summary: str | None


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine."""

    name: str
    num_slots: int
    num_usable: int
    num_free: int


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A slot, and its job. ``job`` None: no job, or one that you may not see."""

    id: str
    node: str
    device: str
    unusable_since: float | None
    unusable_reason: str | None
    is_free: bool
    job: str | None
    attempt: int | None
    since: float | None
    release_asked_at: float | None


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A named share of the pool, as an admin sets it.

    Args:
        weight: its share in proportion to the other queues'.
        floor: slots that it gets back whenever it wants them.
        ceiling: slots at most. None: the whole pool.
        is_open: all users may submit to it.
        members: may submit to it and see its jobs.
    """

    name: str
    weight: float = 1.0
    floor: int = 0
    ceiling: int | None = None
    is_open: bool = True
    members: tuple[str, ...] = ()


class Queue(QueueSettings, frozen=True, kw_only=True):
    """A queue and what is in it.

    Args:
        num_slots: that its jobs hold.
        num_holding: jobs that hold slots or are about to.
        num_queued: jobs that wait.
    """

    num_slots: int
    num_holding: int
    num_queued: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What one user had in one queue. ``slot_s``: seconds of slots."""

    owner: str
    queue: str
    slot_s: float
    num_jobs: int


class QueueShare(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's part of the pool.

    Args:
        ceiling: None: the pool.
        fair: slots that it has when every queue wants all it can get. None: the policy does not divide by weight.
        held: slots that its jobs hold.
        borrowed: how many of these are above ``fair``. None where that is.
        wanted: slots that its jobs could use.
    """

    queue: str
    weight: float
    floor: int
    ceiling: int | None
    fair: float | None
    held: int
    borrowed: float | None
    wanted: int


class QueuesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen if queues were others. ``shares``: of all queues, as they would be."""

    effects: tuple[Effect, ...]
    shares: tuple[QueueShare, ...]
    reason: str


class SlotMove(msgspec.Struct, frozen=True, kw_only=True):
    """A slot that a job was asked to give up, and who had it next.

    Args:
        from_job: None: it is not yours to see.
        to_job: None: you may not see it, or no job had the slot yet.
        to_title: None: no job had the slot yet.
        reason: empty where it is not known any more.
    """

    time: float
    slot: str
    from_job: str | None
    from_title: str
    to_job: str | None
    to_title: str | None
    reason: str


class StepLine(msgspec.Struct, frozen=True):
    """A line of steps: from each time on it has the value beside it."""

    times: tuple[float, ...]
    values: tuple[int, ...]


class HeldSlots(msgspec.Struct, frozen=True):
    """How many slots one held when. ``key`` and ``title`` None: all that is not yours to see, together."""

    key: str | None
    title: str | None
    times: tuple[float, ...]
    slots: tuple[int, ...]


class Timeline(msgspec.Struct, frozen=True):
    """Who held how many slots when. ``num_slots``: of the pool, those that could be used."""

    since: float
    until: float
    num_slots: StepLine
    items: tuple[HeldSlots, ...]
