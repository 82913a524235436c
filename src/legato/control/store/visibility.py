"""Conditions for queries that select the jobs, projects and queues that a user may see."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, or_, select, true

from legato.control.store.schema import jobs, project_members, projects, queue_members, queues


def is_member(user: str | ColumnElement[str]) -> ColumnElement[bool]:
    """Return the condition for open queues and queues of which the user is a member."""
    joined = select(queue_members.c.queue).where(queue_members.c.user == user)
    return or_(queues.c.is_open, queues.c.name.in_(joined))


def is_visible(sees_only: str | None) -> ColumnElement[bool]:
    """Return the condition for jobs that the user owns or sees through a queue or project. None: all jobs."""
    if sees_only is None:
        return true()
    return or_(
        jobs.c.owner == sees_only,
        jobs.c.queue.in_(select(queues.c.name).where(is_member(sees_only))),
        jobs.c.project.in_(select(projects.c.id).where(sees_project(sees_only))),
    )


def sees_project(sees_only: str | None) -> ColumnElement[bool]:
    """Return the condition for projects that the user owns or is a member of. None: all projects."""
    if sees_only is None:
        return true()
    joined = select(project_members.c.project).where(project_members.c.user == sees_only)
    return or_(projects.c.owner == sees_only, projects.c.id.in_(joined))


def read_queue_names(connection: Connection, sees_only: str | None) -> tuple[str, ...]:
    """Return the names of the user's queues; None: of all queues."""
    statement = select(queues.c.name).order_by(queues.c.name)
    if sees_only is not None:
        statement = statement.where(is_member(sees_only))
    return tuple(connection.execute(statement).scalars())
