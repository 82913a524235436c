"""Queues and their members in the store. The policy divides the slots."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from legato.control.records import Queue, QueueLoad
from legato.control.roles import Asker, check_is_admin
from legato.control.stages import HOLDING, OPEN, Stage
from legato.control.store.database import Database
from legato.control.store.rows import Unreadable, fetch, read_each, take
from legato.control.store.schema import allocations, jobs, projects, queue_members, queues, users
from legato.control.store.transactions import writing
from legato.control.store.visibility import is_member, read_queue_names
from legato.core.errors import Conflict, NotFound, UsageError
from legato.core.spec import check_name
from legato.core.spelling import ask_whether

QUEUE: Final = "queue"
"""The kind of events of queues. Their detail names the queue, and says whether it was open to all users then."""


class Queues:
    """The named shares of the pool."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, queue: Queue, asker: Asker, now: float) -> Queue:
        """Create the queue, or replace its settings and members.

        Raises:
            Forbidden: the asker is no admin.
            UsageError: its numbers do not fit together.
            NotFound: a member is no user.
        """
        check_is_admin("change a queue", asker)
        check_queue_numbers(queue)
        told = f"Cannot change queue '{queue.name}'"
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            known = connection.execute(select(users.c.name).where(users.c.name.in_(queue.members))).scalars().all()
            for member in queue.members:
                if member not in known:
                    raise NotFound(f"{told}: there is no user '{member}'. Create the user first.")
            values = {
                "weight": queue.weight,
                "floor": queue.floor,
                "ceiling": queue.ceiling,
                "is_open": queue.is_open,
            }
            if not transaction.insert_new(queues, {"name": queue.name, "created_at": now, **values}):
                connection.execute(update(queues).where(queues.c.name == queue.name).values(values))
            connection.execute(delete(queue_members).where(queue_members.c.queue == queue.name))
            for member in sorted(set(queue.members)):
                connection.execute(insert(queue_members).values(queue=queue.name, user=member))
            transaction.audit(asker.name, "queue.put", queue.name, values | {"members": sorted(set(queue.members))})
            transaction.note(
                QUEUE, f"queue '{queue.name}' was changed by '{asker.name}'", detail=values | {"queue": queue.name}
            )
        return self.get(queue.name)

    def delete(self, name: str, asker: Asker, now: float) -> None:
        """Delete a queue to which no job belongs.

        Raises:
            Forbidden: the asker is no admin.
            NotFound: there is no such queue.
            Conflict: jobs belong to it, or a project uses it.
        """
        check_is_admin("delete a queue", asker)
        told = f"Cannot delete queue '{name}'"
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            # The lock blocks submissions until this is decided.
            locked = select(queues.c.name, queues.c.is_open).where(queues.c.name == name).with_for_update()
            found = connection.execute(locked).first()
            if found is None:
                hint = ask_whether(name, read_queue_names(connection, None))
                raise NotFound(f"{told}: there is no such queue.{hint} 'legato queues' lists all.")
            counted = select(func.count()).select_from(jobs).where(jobs.c.queue == name)
            num_open = connection.execute(counted.where(jobs.c.stage.in_(OPEN))).scalar_one()
            if num_open:
                open_ones = "1 job in it has" if num_open == 1 else f"{num_open} jobs in it have"
                these = "it" if num_open == 1 else "them"
                raise Conflict(f"{told}: {open_ones} not ended. Move {these} to another queue, or stop {these}.")
            num_jobs = connection.execute(counted).scalar_one()
            if num_jobs:
                ended = f"{num_jobs} ended jobs belong to it until they are"
                ended = "1 ended job belongs to it until it is" if num_jobs == 1 else ended
                raise Conflict(
                    f"{told}: {ended} deleted because of their age. Close the queue instead: remove its members and "
                    "its access for all users."
                )
            named = select(projects.c.id).where(projects.c.queue == name).order_by(projects.c.id)
            project = connection.execute(named).scalars().first()
            if project is not None:
                raise Conflict(f"{told}: jobs of project '{project}' go to it. Change the queue of the project first.")
            connection.execute(delete(queues).where(queues.c.name == name))
            transaction.audit(asker.name, "queue.delete", name)
            detail = {"queue": name, "is_open": found.is_open}
            transaction.note(QUEUE, f"queue '{name}' was deleted by '{asker.name}'", detail=detail)

    def which_visible(self, these: Collection[str], sees_only: str | None) -> frozenset[str]:
        """Return those of the queues, by name, that the user may see."""
        with self._database.reading() as connection:
            return frozenset(these) & frozenset(read_queue_names(connection, sees_only))

    def get(self, name: str) -> Queue:
        """Return a queue.

        Raises:
            NotFound: there is none of this name.
            UnreadableRow: its row cannot be read.
        """
        with self._database.reading() as connection:
            found = read_each_queue(connection, name)
        if not found:
            raise NotFound(f"There is no queue '{name}'. 'legato queues' lists all.")
        return take(found[0], f"use queue '{name}'")

    def list(self, sees_only: str | None = None) -> tuple[Queue, ...]:
        """Return the queues, by name; with ``sees_only``, those that this user may use."""
        with self._database.reading() as connection:
            return read_queues(connection, sees_only=sees_only)

    def measure(self) -> dict[str, QueueLoad]:
        """Return the load of each queue. A missing queue has only ended jobs."""
        by_stage = select(jobs.c.queue, jobs.c.stage, func.count().label("num_jobs"))
        by_stage = by_stage.where(jobs.c.stage.in_(OPEN)).group_by(jobs.c.queue, jobs.c.stage)
        held = select(jobs.c.queue, func.count().label("num_slots")).join(allocations, allocations.c.job == jobs.c.id)
        held = held.where(allocations.c.until.is_(None)).group_by(jobs.c.queue)
        with self._database.reading() as connection:
            counted = connection.execute(by_stage).all()
            num_slots: dict[str, int] = {row.queue: row.num_slots for row in connection.execute(held)}
        loads: dict[str, QueueLoad] = {}
        for queue in {row.queue for row in counted} | set(num_slots):
            of_queue = {row.stage: row.num_jobs for row in counted if row.queue == queue}
            loads[queue] = QueueLoad(
                num_slots=num_slots.get(queue, 0),
                num_holding=sum(of_queue.get(stage, 0) for stage in HOLDING),
                num_queued=of_queue.get(Stage.QUEUED, 0),
            )
        return loads


def read_queues(connection: Connection, sees_only: str | None = None) -> tuple[Queue, ...]:
    """Read queues with their members within a transaction. Rows that cannot be read are left out."""
    return tuple(queue for queue in read_each_queue(connection, None, sees_only) if isinstance(queue, Queue))


def read_each_queue(
    connection: Connection, name: str | None = None, sees_only: str | None = None
) -> list[Queue | Unreadable]:
    """Read queues with their members, each as a record or with the reason why it cannot be read."""
    statement = select(queues).order_by(queues.c.name)
    if name is not None:
        statement = statement.where(queues.c.name == name)
    if sees_only is not None:
        statement = statement.where(is_member(sees_only))
    members: dict[str, list[str]] = {}
    for queue, user in fetch(connection, select(queue_members).order_by(queue_members.c.user)):
        members.setdefault(queue, []).append(user)
    found = read_each(connection, statement, Queue)
    return [
        msgspec.structs.replace(queue, members=tuple(members.get(queue.name, ())))
        if isinstance(queue, Queue)
        else queue
        for queue in found
    ]


def check_queue_numbers(queue: Queue) -> None:
    """Raise UsageError unless the name and the numbers of a queue can be used."""
    check_name(queue.name, "a queue")
    told = f"Cannot change queue '{queue.name}'"
    if not 0 < queue.weight <= 1e6:
        raise UsageError(
            f"{told}: weight={queue.weight:g} is not above 0, or above a million. Give 1 for an equal share."
        )
    if queue.floor < 0:
        raise UsageError(f"{told}: floor={queue.floor} is below 0. Give 0 for no slots of its own.")
    if queue.ceiling is not None and queue.ceiling < max(queue.floor, 1):
        raise UsageError(
            f"{told}: ceiling={queue.ceiling} is below {max(queue.floor, 1)}, the larger of its floor and 1. "
            "Raise it, or give none."
        )
