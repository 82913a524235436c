"""Answers of the server about the pool and users, as typed records like those of jobs. Sends no requests."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.client.records import Effect

# ---------------------------------------------------------------- the pool


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


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A named share of the pool.

    Args:
        floor: slots that it gets back whenever it wants them.
        ceiling: slots at most. None: the whole pool.
        is_open: all users may submit to it.
        num_slots: that its jobs hold.
        num_holding: jobs that hold slots or are about to.
        num_queued: jobs that wait.
    """

    name: str
    weight: float
    floor: int
    ceiling: int | None
    is_open: bool
    members: tuple[str, ...]
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


class StepLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of steps: from each time on it has the value beside it."""

    times: tuple[float, ...]
    values: tuple[int, ...]


class HeldSlots(msgspec.Struct, frozen=True, kw_only=True):
    """How many slots one held when. ``key`` and ``title`` None: all that is not yours to see, together."""

    key: str | None
    title: str | None
    times: tuple[float, ...]
    slots: tuple[int, ...]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Who held how many slots when. ``num_slots``: of the pool, those that could be used."""

    since: float
    until: float
    num_slots: StepLine
    items: tuple[HeldSlots, ...]


# ---------------------------------------------------------------- people


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """Who the token says that you are."""

    name: str
    role: str


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user with a name and a role: ``admin``, ``user`` or ``viewer``."""

    name: str
    role: str
    created_at: float
    disabled_at: float | None
    has_password: bool


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its secret.

    Args:
        id: by which it is ended.
        user: whose it is.
        name: what it is for.
        role: what may be done with it.
        created_at: seconds since 1970; so are the others.
        expires_at: when it ends.
        revoked_at: when it was ended before that. None: it was not.
        used_at: the last time, to the minute. None: never.
        kind: ``token``, ``session`` of a log-in, ``link`` that logs in once, or ``local`` on the server's machine.
    """

    id: str
    user: str
    name: str
    role: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None
    kind: str = "token"


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token at the one moment when its secret is known.

    Args:
        token: all else of it.
        secret: what it is known by.
        device: of a log-in by password: what this device shows at the next one, so that the server knows it again.
    """

    token: Token
    secret: str
    device: str | None = None

    def __repr__(self) -> str:
        return f"NewToken({self.token!r}, secret='lgt_…')"


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """A code that logs a user in once."""

    code: str
    expires_at: float

    def __repr__(self) -> str:
        return f"Code(code='lgc_…', expires_at={self.expires_at})"


class ConsoleLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link to the web console that logs its opener in, once."""

    url: str
    expires_at: float

    def __repr__(self) -> str:
        return f"ConsoleLink(url='{self.url.partition('=')[0]}=lgc_…', expires_at={self.expires_at})"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to what, and when."""

    id: int
    time: float
    who: str
    action: str
    target: str
    detail: dict[str, Any] | None


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the server, with what it means."""

    name: str
    value: Any
    meaning: str


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """Which server it is."""

    version: str
    api: tuple[str, ...]
