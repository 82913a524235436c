"""Slots of jobs over time, as the store records them, for charts. Changes nothing."""

from __future__ import annotations

import bisect
import operator
from collections import defaultdict
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, Subquery, case, or_, select, union_all

from legato.control.records import Allocation
from legato.control.store.database import Database
from legato.control.store.rows import fetch, read_all
from legato.control.store.schema import allocations, decisions, events, jobs, projects
from legato.control.store.visibility import is_visible, sees_project
from legato.core.errors import UsageError

MAX_SPANS: Final = 200_000
_MAX_HELD: Final = 10_000
_HANDOVER_S: Final = 60.0  # between a slot's request and its next job, mostly
_BATCH: Final = 5_000
_SLOT: Final = "slot"


class Run(NamedTuple):
    """A job as charts name it. ``project``: id and name; None: none, or not visible to the user."""

    id: str
    owner: str
    name: str
    queue: str
    has_project: bool
    project: tuple[str, str] | None
    is_visible: bool


class Span(NamedTuple):
    """The time for which a job held a slot. ``until`` None: it still holds the slot."""

    job: Run
    since: float
    until: float | None


class Move(NamedTuple):
    """A slot that a job was asked to give back, or that a job got although no job was asked for it.

    Args:
        time: when it was asked; for a slot that was free, when ``taker`` got it.
        slot: the slot's name.
        job: the job that was asked. None: the slot was free.
        taker: the job that got the slot next, maybe ``job`` again. None: none yet.
        reason: of the decision on ``job``.
        taken_at: when ``taker`` got it. None: no job has got it yet.
        taken_reason: of the decision on ``taker``.
    """

    time: float
    slot: str
    job: str | None
    taker: str | None
    reason: str
    taken_at: float | None = None
    taken_reason: str = ""


class SlotChange(NamedTuple):
    """A slot that joined or left the pool. Before that moment it was in the opposite state."""

    time: float
    slot: str


class History:
    """Queries for the slot history.

    Args:
        database: the store's.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_spans(
        self, since: float, until: float, sees_only: str | None, these: Collection[str] | None = None
    ) -> tuple[Span, ...]:
        """Return the spans in which jobs held slots between two times, in any order.

        Args:
            since: seconds since 1970.
            until: seconds since 1970.
            sees_only: as in `legato.control.records`; jobs that this user may not see are marked.
            these: only these jobs. None: all.

        Raises:
            UsageError: there are too many for a chart.
        """
        both = _between(since, until, these)
        statement = select(both.c.job, both.c.since, both.c.until).limit(MAX_SPANS + 1)
        with self._database.reading() as connection:
            rows = fetch(connection, statement)
            if len(rows) > MAX_SPANS:
                raise UsageError(
                    f"Cannot read the history: more than {MAX_SPANS} changes lie between since={since:.0f} and "
                    f"until={until:.0f}. Choose a shorter time, or single jobs."
                )
            runs = _read_runs(connection, {job for job, _, _ in rows}, sees_only)
        # SQLite may hold a time that is no number; such a span is left out.
        return tuple(
            Span(runs[job], begun, ended)
            for job, begun, ended in rows
            if job in runs and isinstance(begun, float) and isinstance(ended, float | None)
        )

    def list_moves(self, since: float, until: float) -> tuple[Move, ...]:
        """Return the slots that jobs got, or were asked to give back, between two times, the newest first.

        If more than 10,000 allocations changed in that time, the moves before these are left out.
        """
        with self._database.reading() as connection:
            since = max(since, _find_begin(connection, since, until))
            both = _between(since, until)
            changed = select(both).where(or_(both.c.release_asked_at <= until, both.c.since >= since))
            held = read_all(connection, changed, Allocation)
            asked = [one for one in held if one.release_asked_at is not None and one.release_asked_at <= until]
            next_had = _read_next(connection, asked)
            moves = []
            for one in asked:
                taker, taken_at = next_had.get((one.slot, one.until), (None, None))
                moves.append(Move(one.release_asked_at or 0.0, one.slot, one.job, taker, "", taken_at))
            handed = {(move.slot, move.taken_at) for move in moves}
            free = [one for one in held if one.since >= since and (one.slot, one.since) not in handed]
            moves += [Move(one.since, one.slot, None, one.job, "", one.since) for one in free]
            # A slot that was asked back before is listed if the next job got it in that time.
            moves = [one for one in moves if one.time >= since or since <= (one.taken_at or 0.0) <= until]
            reasons = _read_reasons(connection, moves)
        moves.sort(key=lambda move: (-move.time, move.slot))
        return tuple(
            move._replace(
                reason=reasons.get((move.job, move.time), ""),
                taken_reason=reasons.get((move.taker, move.taken_at), ""),
            )
            for move in moves
        )

    def list_slot_changes(self, since: float) -> tuple[SlotChange, ...]:
        """Return the slots that became usable or unusable since a time, the newest first."""
        statement = (
            select(events.c.time, events.c.detail)
            .where(events.c.job.is_(None), events.c.kind == _SLOT, events.c.time > since)
            .order_by(events.c.seq.desc())
        )
        with self._database.reading() as connection:
            rows = fetch(connection, statement)
        return tuple(
            SlotChange(time, how["slot"])
            for time, how in rows
            if isinstance(how, dict) and _SLOT in how and how.get("is_change", True)
        )


def _find_begin(connection: Connection, since: float, until: float) -> float:
    """Return the time from which moves are listed, so that all of one time are: a part would hide who gave slots up."""
    both = _between(since, until)
    asked_at = both.c.release_asked_at
    changed_at = case((asked_at <= until, asked_at), else_=both.c.since)
    times = select(changed_at).where(changed_at >= since).order_by(changed_at.desc())
    oldest = connection.execute(times.limit(1).offset(_MAX_HELD)).scalar()
    # The jobs that gave up the oldest of these slots are listed too.
    return since if oldest is None else oldest - _HANDOVER_S


def _read_next(
    connection: Connection, left: Collection[Allocation]
) -> dict[tuple[str, float | None], tuple[str, float]]:
    """Return the job that had each slot next and when it got it, by the slot and the time at which it was left."""
    ends = [(one.slot, one.until) for one in left if one.until is not None]
    if not ends:
        return {}
    # The next holder has an end at or after the first end, so older allocations need not be read.
    later = _between(min(end for _, end in ends), None)
    had: defaultdict[str, list[Any]] = defaultdict(list)
    for row in connection.execute(
        select(later.c.slot, later.c.job, later.c.since).order_by(later.c.since, later.c.id + 0)
    ):
        had[row.slot].append(row)
    found: dict[tuple[str, float | None], tuple[str, float]] = {}
    for slot, end in ends:
        place = bisect.bisect_left(had[slot], end, key=operator.attrgetter("since"))
        if place < len(had[slot]):
            found[slot, end] = (had[slot][place].job, had[slot][place].since)
    return found


def _read_reasons(connection: Connection, moves: Collection[Move]) -> dict[tuple[str | None, float | None], str]:
    """Return the reasons of the decisions on the jobs of some moves, by job and time.

    One transaction stores a decision and asks for the slots or grants them, so all have the same time.
    """
    meant = sorted({job for move in moves for job in (move.job, move.taker) if job is not None})
    first_time = min((move.time for move in moves), default=0.0)
    reasons: dict[tuple[str | None, float | None], str] = {}
    for first in range(0, len(meant), _BATCH):
        of_jobs = (decisions.c.job.in_(meant[first : first + _BATCH]), decisions.c.time >= first_time)
        told = select(decisions.c.job, decisions.c.time, decisions.c.reason).where(*of_jobs)
        reasons |= {(row.job, row.time): row.reason for row in fetch(connection, told)}
    return reasons


def _read_runs(connection: Connection, these: Collection[str], sees_only: str | None) -> dict[str, Run]:
    sees = (
        select(projects.c.id).where(projects.c.id == jobs.c.project, sees_project(sees_only)).correlate(jobs).exists()
    )
    named = select(jobs.c.id, jobs.c.owner, jobs.c.name, jobs.c.queue, jobs.c.project, projects.c.name, sees)
    statement = named.add_columns(is_visible(sees_only)).join(projects, projects.c.id == jobs.c.project, isouter=True)
    runs: dict[str, Run] = {}
    meant = sorted(these)
    for first in range(0, len(meant), _BATCH):
        rows = fetch(connection, statement.where(jobs.c.id.in_(meant[first : first + _BATCH])))
        for job, owner, name, queue, project, title, is_seen, seen in rows:
            of = (project, title) if is_seen else None
            runs[job] = Run(job, owner, name, queue, project is not None, of, bool(seen))
    return runs


def _between(since: float, until: float | None, these: Collection[str] | None = None) -> Subquery:
    """Return the allocations that were open between two times; ``until`` None: until now."""
    begun: Select[Any] = select(allocations)
    if until is not None:
        begun = begun.where(allocations.c.since < until)
    if these is not None:
        begun = begun.where(allocations.c.job.in_(sorted(these)))
    # Two parts, each found by the index of ends, because most stored allocations ended long ago.
    parts = (begun.where(allocations.c.until.is_(None)), begun.where(allocations.c.until > since))
    return union_all(*parts).subquery()
