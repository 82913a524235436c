"""Lists of jobs that match a filter: the conditions, and how few matches among many jobs are found. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, and_, case, func, literal, or_, select

from legato.control.ids import may_be_in_job_id
from legato.control.records import Job, JobFilter
from legato.control.store.job_rows import select_jobs, show_jobs
from legato.control.store.rows import at, fetch
from legato.control.store.schema import job_labels, jobs
from legato.control.store.submit import check_labels
from legato.control.store.visibility import is_visible

_NUM_LOOKED: Final = 1_000
"""Jobs that are looked at in order, before others are searched by their names."""
_MAX_NAMES: Final = 5_000
"""Different names of jobs. If there are more, all jobs are looked at in order."""
_MAX_FOUND: Final = 500
"""Names that match. If there are more, so many jobs match that a page is full soon."""


def list_matching(
    connection: Connection,
    wanted: JobFilter,
    *,
    sees_only: str | None,
    after: str | None,
    limit: int,
    oldest_first: bool,
) -> tuple[Job, ...]:
    """Return jobs as `Jobs.list` does, without the cursor.

    A text may match few of very many jobs. So the next thousand jobs are looked at in order; if they do not fill the
    page, the others are found by the index of names, of which there are far fewer than jobs.
    """
    order = job_labels.c.job if wanted.labels else jobs.c.id  # an index has the jobs of a label in their order
    statement = filter_jobs(select_jobs(), wanted).order_by(order if oldest_first else order.desc())
    visible = is_visible(sees_only)

    def is_beyond(job: str) -> ColumnElement[bool]:
        return order > job if oldest_first else order < job

    if after is not None:
        statement = statement.where(is_beyond(after))
    edge = _find_edge(connection, after, oldest_first) if wanted.name_prefix or wanted.search else None
    if edge is None:
        return show_jobs(connection, statement.where(visible).limit(limit))
    near = show_jobs(connection, statement.where(visible, ~is_beyond(edge)).limit(limit))
    if len(near) == limit:
        return near
    beyond = statement.where(is_beyond(edge)).limit(limit - len(near))
    names = _find_names(connection, wanted)
    if names is None:
        return near + show_jobs(connection, beyond.where(visible))
    # A form that no index serves, so that the names are looked up, and not all jobs that the user may see.
    is_seen = case((visible, 1), else_=0) == 1
    return near + show_jobs(connection, beyond.where(_is_one_of(names, wanted), is_seen))


def filter_jobs(statement: Select[Any], wanted: JobFilter) -> Select[Any]:
    """Add the conditions of a filter to a query of jobs."""
    if wanted.stages:
        statement = statement.where(jobs.c.stage.in_(sorted(wanted.stages)))
    if wanted.owner is not None:
        statement = statement.where(jobs.c.owner == wanted.owner)
    if wanted.queue is not None:
        statement = statement.where(jobs.c.queue == wanted.queue)
    if wanted.name_prefix:
        statement = statement.where(_has_prefix(jobs.c.name, wanted.name_prefix))
    if wanted.search:
        statement = statement.where(or_(_contains(jobs.c.name, wanted.search), _contains(jobs.c.id, wanted.search)))
    for origin in ("project", "experiment", "definition"):
        if getattr(wanted, origin) is not None:
            statement = statement.where(jobs.c[origin] == getattr(wanted, origin))
    check_labels("list jobs", wanted.labels)
    for place, (key, value) in enumerate(wanted.labels.items()):
        if place == 0:
            statement = statement.where(
                job_labels.c.job == jobs.c.id, job_labels.c.key == key, job_labels.c.value == value
            )
        statement = statement.where(at(jobs.c.labels, key).as_string() == value)
    return statement


def _has_prefix(name: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    # Not LIKE, which ignores case in SQLite.
    return func.substr(name, 1, len(prefix)) == prefix


def _contains(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    return func.lower(column).contains(text.lower(), autoescape=True)


def _find_edge(connection: Connection, after: str | None, oldest_first: bool) -> str | None:
    """Return the last of the next jobs that are looked at in order. None: there are no more."""
    statement = select(jobs.c.id).order_by(jobs.c.id if oldest_first else jobs.c.id.desc())
    if after is not None:
        statement = statement.where(jobs.c.id > after if oldest_first else jobs.c.id < after)
    found = fetch(connection, statement.offset(_NUM_LOOKED - 1).limit(1))
    return found[0].id if found else None


def _find_names(connection: Connection, wanted: JobFilter) -> Sequence[str] | None:
    """Return the names of jobs that a filter may mean. None: there are too many, or one of them is no text.

    Each name is found by the index, from the name before it, however many jobs have it.
    """
    names = select(func.min(jobs.c.name).label("name"), literal(1).label("place")).cte("names", recursive=True)
    following = select(func.min(jobs.c.name)).where(jobs.c.name > names.c.name).scalar_subquery()
    more = select(following, names.c.place + 1).where(names.c.name.is_not(None), names.c.place <= _MAX_NAMES)
    names = names.union_all(more)
    matches = []
    if wanted.name_prefix:
        matches.append(_has_prefix(names.c.name, wanted.name_prefix))
    if wanted.search:
        matches.append(_contains(names.c.name, wanted.search))
    is_beyond = names.c.place > _MAX_NAMES
    found = fetch(connection, select(names).where(or_(and_(*matches), is_beyond)).limit(_MAX_FOUND + 1))
    has_too_many = len(found) > _MAX_FOUND or any(place > _MAX_NAMES for _, place in found)
    has_damaged = any("\ufffd" in name for name, _ in found)  # bytes that are no text: not the name in the table
    return None if has_too_many or has_damaged else [name for name, _ in found]


def _is_one_of(names: Sequence[str], wanted: JobFilter) -> ColumnElement[bool]:
    """Return the condition for jobs with these names, or with an id of which the text of the filter is a part."""
    is_named = jobs.c.name.in_(names)
    if not wanted.search or not may_be_in_job_id(wanted.search.lower()):
        return is_named
    others = jobs.alias()
    return or_(is_named, jobs.c.id.in_(select(others.c.id).where(_contains(others.c.id, wanted.search))))
