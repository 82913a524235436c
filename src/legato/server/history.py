"""The history of the pool as a user may see it: slots held over time, and slots that moved between jobs."""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Final

from legato.api.pool import HeldSlots, SlotMove, StepLine, Timeline
from legato.control.roles import Asker
from legato.control.store import Run, Store
from legato.server.step_lines import Change, add_up, draw_held, thin

_NO_PROJECT: Final = ("", "no project")

Key = tuple[str | None, str | None]


class By(enum.StrEnum):
    """Whose slots are one line."""

    JOB = "job"
    OWNER = "owner"
    QUEUE = "queue"
    PROJECT = "project"


def draw_timeline(
    store: Store, asker: Asker, by: By, since: float, until: float, *, num_points: int, these: Collection[str] | None
) -> Timeline:
    """Draw who held how many slots.

    Args:
        store: where the facts are.
        asker: the user who sees it.
        by: whose slots are one line.
        since: seconds since 1970.
        until: seconds since 1970.
        num_points: of each line, at most.
        these: ids of the jobs that are drawn. None: all.

    Raises:
        UsageError: there is too much between the two times.
    """
    spans = store.history.list_spans(since, until, asker.sees_only, these)
    keys = {run.id: _find_key(run, by) for run in {span.job.id: span.job for span in spans}.values()}
    lines = draw_held(((keys[span.job.id], span.since, span.until) for span in spans), since, until)
    items = []
    # Ids are in order of submission; what may not be seen comes last.
    for (key, title), line in sorted(lines.items(), key=lambda item: (item[0][0] is None, item[0][0] or "")):
        thinned = thin(line, since, until, num_points)
        items.append(HeldSlots(key, title, thinned.times, thinned.values))
    return Timeline(since, until, thin(_count_slots(store, since, until), since, until, num_points), tuple(items))


def list_moves(store: Store, asker: Asker, since: float, until: float, limit: int) -> tuple[SlotMove, ...]:
    """Return who gave slots up to whom, the newest first; where the asker may see one of the two."""
    moves = store.history.list_moves(since, until)
    named = {job for move in moves for job in (move.job, move.taker) if job is not None}
    known = store.jobs.describe(named, asker.sees_only)
    told: list[SlotMove] = []
    for move in moves:
        giver, taker = known.get(move.job), known.get(move.taker or "")
        if giver is None or not (giver.is_visible or (taker is not None and taker.is_visible)):
            continue
        told.append(
            SlotMove(
                time=move.time,
                slot=move.slot,
                from_job=giver.id if giver.is_visible else None,
                from_title=f"{giver.owner}/{giver.name}",
                to_job=taker.id if taker is not None and taker.is_visible else None,
                to_title=None if taker is None else f"{taker.owner}/{taker.name}",
                reason=move.reason,
            )
        )
        if len(told) == limit:
            break
    return tuple(told)


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
    """Return how many slots could be used: those of now, and from there back by what has changed."""
    usable = {slot.id for slot in store.pool.list_slots() if slot.unusable_since is None}
    changes: list[Change] = []
    for change in store.history.list_slot_changes(since):
        is_there = change.slot in usable
        usable ^= {change.slot}
        if change.time < until:
            changes.append((change.time, 1 if is_there else -1))
    line = add_up(changes, start=len(usable))
    return StepLine((since, *line.times), (len(usable), *line.values))
