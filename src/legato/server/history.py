"""The history of the pool as a user may see it: slots held over time, and slots that moved between jobs."""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Final

from legato.api import pool
from legato.api.pool import HeldSlots, StepLine, Timeline
from legato.control.roles import Asker
from legato.control.store import Run, Store
from legato.server.step_lines import Change, add_up, downsample, draw_held

_NO_PROJECT: Final = ("", "no project")

Key = tuple[str | None, str | None]


class By(enum.StrEnum):
    """What each line of a timeline stands for: one job, one owner, one queue or one project."""

    JOB = "job"
    OWNER = "owner"
    QUEUE = "queue"
    PROJECT = "project"


class SlotMove(pool.SlotMove, frozen=True, kw_only=True):
    """A slot that jobs gave up or got. ``docs/rest.md`` describes the fields."""

    taken_at: float | None
    taken_reason: str


def draw_timeline(
    store: Store, asker: Asker, by: By, since: float, until: float, *, num_points: int, these: Collection[str] | None
) -> Timeline:
    """Return how many slots were held over time.

    Args:
        store: the store with the history.
        asker: the user who sees the timeline.
        by: what each line stands for.
        since: begin of the timeline, seconds since 1970.
        until: end of the timeline, seconds since 1970.
        num_points: maximum number of steps of each line.
        these: ids of the jobs to include. None: all.

    Raises:
        UsageError: there are too many changes between the two times.
    """
    spans = store.history.list_spans(since, until, asker.sees_only, these)
    keys = {run.id: _find_key(run, by) for run in {span.job.id: span.job for span in spans}.values()}
    lines = draw_held(((keys[span.job.id], span.since, span.until) for span in spans), since, until)
    items = []
    # Ids are in order of submission. The line of the jobs that the asker may not see comes last.
    for (key, title), line in sorted(lines.items(), key=lambda item: (item[0][0] is None, item[0][0] or "")):
        thinned = downsample(line, since, until, num_points)
        items.append(HeldSlots(key, title, thinned.times, thinned.values))
    return Timeline(since, until, downsample(_count_slots(store, since, until), since, until, num_points), tuple(items))


def list_moves(store: Store, asker: Asker, since: float, until: float, limit: int) -> tuple[SlotMove, ...]:
    """Return the slots that jobs were asked to give up or got, the newest first.

    Moves of jobs that the asker may not see are left out, unless the other job is visible.

    Args:
        store: the store with the history.
        asker: the user who sees the moves.
        since: seconds since 1970.
        until: seconds since 1970.
        limit: maximum number of moves.
    """
    moves = store.history.list_moves(since, until)
    named = {job for move in moves for job in (move.job, move.taker) if job is not None}
    known = store.jobs.describe(named, asker.sees_only)
    visible: list[SlotMove] = []
    for move in moves:
        giver, taker = known.get(move.job or ""), known.get(move.taker or "")
        if not any(one is not None and one.is_visible for one in (giver, taker)):
            continue
        visible.append(
            SlotMove(
                time=move.time,
                slot=move.slot,
                from_job=giver.id if giver is not None and giver.is_visible else None,
                from_title=None if giver is None else f"{giver.owner}/{giver.name}",
                to_job=taker.id if taker is not None and taker.is_visible else None,
                to_title=None if taker is None else f"{taker.owner}/{taker.name}",
                reason=move.reason,
                taken_at=move.taken_at,
                taken_reason=move.taken_reason,
            )
        )
        if len(visible) == limit:
            break
    return tuple(visible)


def _find_key(run: Run, by: By) -> Key:
    if not run.is_visible:
        return None, None
    if by is By.JOB:
        return run.id, f"{run.owner}/{run.name}"
    if by is By.OWNER:
        return run.owner, run.owner
    if by is By.QUEUE:
        return run.queue, run.queue
    if not run.has_project:
        return _NO_PROJECT
    return run.project or (None, None)


def _count_slots(store: Store, since: float, until: float) -> StepLine:
    """Return how many slots were usable over time: the present number, and back from there by the stored changes."""
    usable = {slot.id for slot in store.pool.list_slots() if slot.unusable_since is None}
    changes: list[Change] = []
    for change in store.history.list_slot_changes(since):
        is_there = change.slot in usable
        usable ^= {change.slot}
        if change.time < until:
            changes.append((change.time, 1 if is_there else -1))
    line = add_up(changes, start=len(usable))
    return StepLine((since, *line.times), (len(usable), *line.values))
