"""The lease of the control loop in the store: its owner, its fencing number, its home.

Safety does not need clocks that agree: the store refuses every write of a loop that has lost its lease, by its fencing
number. Clocks decide only how soon another loop takes over. A lease that ends too far in the future shows that a clock
was set back; it counts as expired.
"""

from __future__ import annotations

from typing import Final

import msgspec
from sqlalchemy import Connection, select, update

from legato.control.records import Lease
from legato.control.store.database import Database
from legato.control.store.rows import read_one
from legato.control.store.schema import leases
from legato.control.store.transactions import writing
from legato.core.errors import FencedOut

_ODD: Final = 2.0  # maximum duration of a lease as a multiple of its length, where clocks differ
_LOOP: Final = "loop"
_HOME: Final = "home"  # this row names a home as its owner, without an end
_LEASE: Final = select(leases).where(leases.c.name == _LOOP)
_HELD: Final = _LEASE.with_for_update(read=True)


def take_lease(database: Database, owner: str, now: float, length_s: float) -> Lease | None:
    """Do what `Loop.take_lease` says.

    A new owner counts the ended jobs again, so that a counter that was wrong once does not stay wrong.
    """
    with writing(database, now) as transaction:
        connection = transaction.connection
        lease = Lease(owner=owner, expires_at=now + length_s, fence=1)
        if transaction.insert_new(leases, {"name": _LOOP, **msgspec.structs.asdict(lease)}):
            transaction.note("lease", f"{owner} runs the control loop", detail={"fence": 1})
            return lease
        held = read_one(connection, _LEASE.with_for_update(), Lease)
        assert held is not None, "the lease is gone although it is never deleted"
        if held.owner != owner and 0 < held.expires_at - now <= _ODD * length_s:
            return None
        fence = held.fence if held.owner == owner else held.fence + 1
        lease = msgspec.structs.replace(lease, fence=fence)
        connection.execute(update(leases).where(leases.c.name == _LOOP).values(msgspec.structs.asdict(lease)))
        if fence != held.fence:
            transaction.recount_ended()
            transaction.note("lease", f"{owner} runs the control loop, after {held.owner}", detail={"fence": fence})
        return lease


def give_up_lease(database: Database, lease: Lease, now: float) -> None:
    """Do what `Loop.give_up_lease` says."""
    with writing(database, now) as transaction:
        own = (leases.c.name == _LOOP, leases.c.owner == lease.owner, leases.c.fence == lease.fence)
        transaction.connection.execute(update(leases).where(*own).values(expires_at=now))


def end_lease(database: Database, now: float) -> None:
    """Do what `Loop.end_lease` says."""
    with writing(database, now) as transaction:
        transaction.connection.execute(update(leases).where(leases.c.name == _LOOP).values(expires_at=now))


def claim_home(database: Database, home: str, now: float) -> str:
    """Do what `Loop.claim_home` says."""
    with writing(database, now) as transaction:
        row = Lease(owner=home, expires_at=now, fence=0)
        if transaction.insert_new(leases, {"name": _HOME, **msgspec.structs.asdict(row)}):
            return home
        known: str = transaction.connection.execute(select(leases.c.owner).where(leases.c.name == _HOME)).scalar_one()
        return known


def read_lease(connection: Connection) -> Lease | None:
    """Return the present lease; None: no server has had it yet."""
    return read_one(connection, _LEASE, Lease)


def check_fence(connection: Connection, fence: int) -> None:
    """Raise FencedOut unless the lease still has this fence. Locks the lease until the transaction ends."""
    held = read_one(connection, _HELD, Lease)
    if held is None or held.fence != fence:
        found = "no server has it" if held is None else f"{held.owner} has it, with number {held.fence}"
        raise FencedOut(f"Cannot write as the control loop with number {fence}: the lease is lost, {found}.")
