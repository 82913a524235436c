"""Nodes, slots and allocations in the store. The policy decides which job gets a slot.

A slot has one owner or none: an open row of `allocations`. A partial unique index makes a second one impossible.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, case, func, insert, select, union_all, update
from sqlalchemy.exc import IntegrityError

from legato.api.pool import Usage
from legato.control.records import GONE, Allocation, Node, Slot, StoredNode
from legato.control.store.database import Database
from legato.control.store.lease import check_fence
from legato.control.store.rows import fetch, read_all, read_each
from legato.control.store.schema import allocations, jobs, nodes, slots
from legato.control.store.transactions import Transaction, writing
from legato.core.errors import SlotTaken, UsageError

_UNDECLARED: Final = "its node no longer declares it"
_MAX_LENGTH: Final = 255


class Slots:
    """All slots of the platform."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def declare(self, declared: Iterable[Node], fence: int, now: float) -> None:
        """Record which slots these nodes have now. Slots that a node no longer has become unusable.

        Nothing is deleted, and a slot that returns is usable again. Other nodes do not change.

        Raises:
            FencedOut: another loop has the lease.
            UsageError: a slot is declared twice, or belongs to another node.
        """
        with writing(self._database, now) as transaction:
            check_fence(transaction.connection, fence)
            for node in sorted(declared, key=lambda node: node.name):
                _declare_node(transaction, node)

    def list_slots(self) -> tuple[Slot, ...]:
        """Return all slots, unusable ones included, by id. Of a machine that is gone: those that jobs still hold."""
        with self._database.reading() as connection:
            return read_slots(connection)

    def list_nodes(self) -> tuple[StoredNode, ...]:
        """Return all nodes, by name, as `list_slots` does. A node that cannot be read is left out."""
        with self._database.reading() as connection:
            return read_all(connection, select_nodes(), StoredNode)

    def list_open(self) -> tuple[Allocation, ...]:
        """Return the open allocations, by slot."""
        with self._database.reading() as connection:
            return read_open(connection)

    def list_between(self, since: float, until: float, *, limit: int = 10_000) -> tuple[Allocation, ...]:
        """Return the allocations that were open between two times, the oldest first."""
        begun = select(allocations).where(allocations.c.since < until)
        # Two parts, each found by the index of ends, because most stored allocations ended long ago.
        parts = (begun.where(allocations.c.until.is_(None)), begun.where(allocations.c.until > since))
        both = union_all(*parts).subquery()
        # An expression instead of the plain number: with that, SQLite would scan all rows.
        statement = select(both).order_by(both.c.id + 0).limit(limit)
        with self._database.reading() as connection:
            return read_all(connection, statement, Allocation)

    def measure_usage(self, since: float, until: float) -> tuple[Usage, ...]:
        """Return the seconds of slots that each user had in each queue between two times."""
        if until <= since:
            return ()
        left = func.coalesce(allocations.c.until, until)
        end = case((left < until, left), else_=until)
        start = case((allocations.c.since > since, allocations.c.since), else_=since)
        overlaps = (allocations.c.since < until) & (allocations.c.until.is_(None) | (allocations.c.until > since))
        statement = (
            select(
                jobs.c.owner,
                jobs.c.queue,
                func.sum(end - start).label("slot_s"),
                func.count(jobs.c.id.distinct()).label("num_jobs"),
            )
            .join(jobs, jobs.c.id == allocations.c.job)
            .where(overlaps)
            .group_by(jobs.c.owner, jobs.c.queue)
            .order_by(jobs.c.owner, jobs.c.queue)
        )
        with self._database.reading() as connection:
            return read_all(connection, statement, Usage)


# ---------------------------------------------------------------- inside of a transaction


def read_slots(connection: Connection) -> tuple[Slot, ...]:
    """Read all slots. One that cannot be read is not usable."""
    return tuple(
        found
        if isinstance(found, Slot)
        else msgspec.structs.replace(found.record, unusable_since=0.0, unusable_reason=f"its {found.why}")
        for found in read_each(connection, select_slots(), Slot)
    )


def select_slots() -> Select[Any]:
    """Return the query for all slots. Of machines that are gone, it has those that jobs still hold."""
    gone = select(nodes.c.name).where(nodes.c.engine == GONE)
    return select(slots).where(slots.c.node.not_in(gone) | slots.c.id.in_(_select_held())).order_by(slots.c.id)


def select_nodes() -> Select[Any]:
    """Return the query for all nodes. Of machines that are gone, it has those whose slots jobs still hold."""
    held = select(slots.c.node).where(slots.c.id.in_(_select_held()))
    return select(nodes).where((nodes.c.engine != GONE) | nodes.c.name.in_(held)).order_by(nodes.c.name)


def forget_node(transaction: Transaction, name: str, why: str) -> None:
    """Mark a machine as gone, and its slots as not usable. Their rows stay, because the history names them.

    Args:
        transaction: the transaction.
        name: of the machine.
        why: a sentence without its period.
    """
    connection, now = transaction.connection, transaction.now
    connection.execute(update(nodes).where(nodes.c.name == name).values(engine=GONE))
    usable = select(slots.c.id).where(slots.c.node == name, slots.c.unusable_since.is_(None)).order_by(slots.c.id)
    for slot in connection.execute(usable).scalars().all():
        _note_slot(transaction, slot, f"is not usable any more: {why}", is_change=True)
    since = func.coalesce(slots.c.unusable_since, now)
    connection.execute(update(slots).where(slots.c.node == name).values(unusable_since=since, unusable_reason=why))


def is_held(connection: Connection, node: str) -> bool:
    """Return whether a job holds a slot of a machine."""
    held = select(allocations.c.id).join(slots, slots.c.id == allocations.c.slot)
    held = held.where(slots.c.node == node, allocations.c.until.is_(None))
    return connection.execute(held.limit(1)).first() is not None


def read_open(connection: Connection) -> tuple[Allocation, ...]:
    """Read all open allocations."""
    return read_all(connection, select_open(), Allocation)


def select_open() -> Select[Any]:
    """Return the query for all open allocations."""
    return _open().order_by(allocations.c.slot)


def open_rows(
    transaction: Transaction, job: str, attempt: int, granted: Collection[str], workers: Mapping[str, str]
) -> None:
    """Assign free slots to an attempt. Slots that it has already do not change.

    Args:
        transaction: the transaction.
        job: its id.
        attempt: of the job.
        granted: the slots.
        workers: as in `JobChange`.

    Raises:
        SlotTaken: another attempt has one of the slots, or one is not usable.
    """
    connection = transaction.connection
    theirs = {row.slot: row for row in connection.execute(_open().where(allocations.c.slot.in_(granted))).all()}
    usable = select(slots.c.id).where(slots.c.id.in_(granted), slots.c.unusable_since.is_(None))
    known = set(connection.execute(usable).scalars())
    rows = []
    for slot in granted:
        if slot in theirs:
            row = theirs[slot]
            if (row.job, row.attempt) != (job, attempt):
                raise _taken(job, slot, f"attempt {row.attempt} of job {row.job} has not released it")
        elif slot not in known:
            raise _taken(job, slot, "it does not exist or is not usable")
        else:
            new = {"slot": slot, "job": job, "attempt": attempt, "since": transaction.now}
            rows.append({**new, "worker": workers.get(slot)})
    if not rows:
        return
    try:
        connection.execute(insert(allocations), rows)
    except IntegrityError as error:
        # Happens only if another server writes allocations at the same time, which the lease prevents.
        raise _taken(job, ", ".join(sorted(granted)), "another job got it at the same moment") from error


def ask_rows(transaction: Transaction, job: str, attempt: int, released: Collection[str]) -> int:
    """Mark slots that an attempt must give back, and return the number of newly marked ones."""
    meant = (*_rows_of(job, attempt, released), allocations.c.release_asked_at.is_(None))
    return transaction.connection.execute(
        update(allocations).where(*meant).values(release_asked_at=transaction.now)
    ).rowcount


def close_rows(transaction: Transaction, job: str, attempt: int, closed: Collection[str]) -> int:
    """Close an attempt's allocations, and return the number that were still open."""
    meant = _rows_of(job, attempt, closed)
    return transaction.connection.execute(update(allocations).where(*meant).values(until=transaction.now)).rowcount


def _rows_of(job: str, attempt: int, these: Collection[str]) -> tuple[ColumnElement[bool], ...]:
    return (
        allocations.c.job == job,
        allocations.c.attempt == attempt,
        allocations.c.slot.in_(these),
        allocations.c.until.is_(None),
    )


def _select_held() -> Select[Any]:
    return select(allocations.c.slot).where(allocations.c.until.is_(None))


def _open() -> Select[Any]:
    return select(allocations).where(allocations.c.until.is_(None))


def _taken(job: str, slot: str, why: str) -> SlotTaken:
    return SlotTaken(f"Cannot give slot {slot} to job {job}: {why}. Nothing of this round was written.")


def _declare_node(transaction: Transaction, node: Node) -> None:
    connection, now = transaction.connection, transaction.now
    values: dict[str, Any] = {"engine": node.engine, "declared_at": now}
    of_node = {"kind": node.kind, "traits": node.traits, "labels": node.labels}
    values |= {name: value for name, value in of_node.items() if value is not None}
    if not transaction.insert_new(nodes, {"name": node.name, **values}):
        connection.execute(update(nodes).where(nodes.c.name == node.name).values(values))
    ids = [slot.id for slot in node.slots]
    statement = select(slots).where(slots.c.id.in_(ids) | (slots.c.node == node.name))
    known: dict[str, Any] = {row.id: row for row in fetch(connection, statement)}
    others = set(connection.execute(select(nodes.c.name)).scalars()) - {node.name}
    _check_declared(node, known, others)
    for slot in node.slots:
        row = known.get(slot.id)
        since = (
            None if node.trouble is None else now if row is None or row.unusable_since is None else row.unusable_since
        )
        values = {
            "node": node.name,
            "device": slot.device,
            "gpu_type": slot.gpu_type,
            "declared_at": now,
            "unusable_since": since,
            "unusable_reason": node.trouble,
        }
        if row is None:
            connection.execute(insert(slots).values(id=slot.id, **values))
            _note_slot(transaction, slot.id, "joined the pool", is_change=node.trouble is None)
            continue
        connection.execute(update(slots).where(slots.c.id == slot.id).values(values))
        if row.unusable_reason == node.trouble:
            continue
        told = "is usable again" if node.trouble is None else f"is not usable: {node.trouble}"
        _note_slot(transaction, slot.id, told, is_change=(row.unusable_since is None) != (node.trouble is None))
    gone = [name for name, row in known.items() if name not in ids and row.unusable_since is None]
    if gone:
        values = {"unusable_since": now, "unusable_reason": _UNDECLARED}
        connection.execute(update(slots).where(slots.c.id.in_(gone)).values(values))
        for name in gone:
            _note_slot(transaction, name, f"is not usable any more: {_UNDECLARED}", is_change=True)


def _note_slot(transaction: Transaction, slot: str, what: str, *, is_change: bool) -> None:
    """Note an event of a slot. ``is_change``: the slot is usable now and was not before, or the other way round."""
    detail = {"slot": slot} if is_change else {"slot": slot, "is_change": False}
    transaction.note("slot", f"slot {slot} {what}", detail=detail)


def _check_declared(node: Node, known: Mapping[str, Any], others: Collection[str]) -> None:
    told = f"Cannot declare node '{node.name}'"
    if not 1 <= len(node.name) <= _MAX_LENGTH:
        raise UsageError(f"{told}: its name has {len(node.name)} characters. Give 1 to {_MAX_LENGTH}.")
    if len(node.kind or "") > _MAX_LENGTH:
        raise UsageError(
            f"{told}: its kind has more than {_MAX_LENGTH} characters. Declare a shorter one, such as a hash."
        )
    seen: set[str] = set()
    for slot in node.slots:
        if slot.id in seen:
            raise UsageError(f"{told}: slot {slot.id} is declared twice. Give each slot an id of its own.")
        if not 1 <= len(slot.id) <= _MAX_LENGTH or max(len(slot.device), len(slot.gpu_type or "")) > _MAX_LENGTH:
            raise UsageError(
                f"{told}: slot '{slot.id}' has an id, a device or a GPU type of 0 or more than {_MAX_LENGTH} "
                "characters."
            )
        seen.add(slot.id)
        row = known.get(slot.id)
        # A row that names a missing node is damaged; the declaration repairs it.
        if row is not None and row.node in others:
            raise UsageError(
                f"{told}: slot {slot.id} belongs to node '{row.node}'. Begin its id with the name of its node."
            )
