"""Slot-seconds that users have used, by queue and hour. Kept when jobs are deleted; decides nothing.

The loop counts the time of all allocations since it last did so, once a minute. So the counts are complete also after a
restart, a takeover, or a time without any server in which jobs went on.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from sqlalchemy import Executable, case, delete, func, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from legato.control.store.database import Database
from legato.control.store.lease import check_fence
from legato.control.store.schema import allocations, counters, jobs, usage
from legato.control.store.transactions import writing
from legato.policy.snapshot import RecentUse

KEPT_S: Final = 90 * 24 * 3600.0
"""For how long use is kept, in seconds."""
COUNTED: Final = "usage"  # the counter of milliseconds since 1970 up to which use was counted; 0: it never was
_HOUR_S: Final = 3600
_MAX_GAP_S: Final = 31 * 24 * 3600  # of a time without any server, so much is counted
_PARTS: Final = 16  # of a half-life: use within one is of the same age
_HALF_LIVES: Final = 8  # older use counts less than 0.4 %


class Used(NamedTuple):
    """Slot-seconds that the jobs of a user had in a queue."""

    queue: str
    user: str
    slot_s: float


class Usage:
    """Counts and reads what users have used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def count(self, fence: int, now: float) -> None:
        """Count the use since the last count, and delete what is older than `KEPT_S`.

        Raises:
            FencedOut: another loop has the lease; nothing was written.
        """
        with writing(self._database, now) as transaction:
            connection = transaction.connection
            check_fence(connection, fence)
            of_usage = counters.c.name == COUNTED
            last = connection.execute(select(counters.c.value).where(of_usage)).scalar_one() / 1000
            connection.execute(update(counters).where(of_usage).values(value=int(now * 1000)))
            connection.execute(delete(usage).where(usage.c.hour < (now - KEPT_S) // _HOUR_S))
            # The first count has no beginning, and after a clock was set back, time begins again.
            if 0 < last < now:
                since = max(last, now - _MAX_GAP_S)
                had = (
                    select(jobs.c.owner, jobs.c.queue, allocations.c.since, allocations.c.until)
                    .join(jobs, jobs.c.id == allocations.c.job)
                    .where(or_(allocations.c.until.is_(None), allocations.c.until > since), allocations.c.since < now)
                )
                added: defaultdict[tuple[str, str, int], float] = defaultdict(float)
                for user, queue, begun, ended in connection.execute(had):
                    # SQLite may hold a time that is no number; such an allocation is left out.
                    if not isinstance(begun, float) or not isinstance(ended, float | None):
                        continue
                    until = now if ended is None else min(ended, now)
                    for hour, seconds in _divide(max(begun, since), until):
                        added[user, queue, hour] += seconds
                if added:
                    rows = [
                        {"user": user, "queue": queue, "hour": hour, "slot_s": slot_s}
                        for (user, queue, hour), slot_s in sorted(added.items())
                    ]
                    connection.execute(_add(connection.dialect.name), rows)

    def read(self, since: float, sees_only: str | None = None) -> tuple[Used, ...]:
        """Return what was used since a time, by queue and user.

        Args:
            since: seconds since 1970, at least an hour ago. Use is counted by hour: of the hour with this time, a part
                counts as if its use were even, so that hour must be over.
            sees_only: as in `legato.control.records`: only the use of this user.
        """
        first = int(since // _HOUR_S)
        part = 1 - (since / _HOUR_S - first)
        total = func.sum(case((usage.c.hour == first, usage.c.slot_s * part), else_=usage.c.slot_s))
        statement = (
            select(usage.c.queue, usage.c.user, total)
            .where(usage.c.hour >= first)
            .group_by(usage.c.queue, usage.c.user)
            .order_by(usage.c.queue, usage.c.user)
        )
        if sees_only is not None:
            statement = statement.where(usage.c.user == sees_only)
        with self._database.reading() as connection:
            return tuple(Used(*row) for row in connection.execute(statement))

    def read_recent(self, now: float, half_life_s: float) -> tuple[RecentUse, ...]:
        """Return the decayed use of all users, as an average number of slots.

        Args:
            now: seconds since 1970.
            half_life_s: the age in seconds at which use counts half.
        """
        width = max(int(half_life_s / _PARTS // _HOUR_S), 1)
        part = usage.c.hour // width
        statement = (
            select(usage.c.queue, usage.c.user, part, func.sum(usage.c.slot_s))
            .where(usage.c.hour >= int((now - _HALF_LIVES * half_life_s) // _HOUR_S))
            .group_by(usage.c.queue, usage.c.user, part)
        )
        totals: defaultdict[tuple[str, str], float] = defaultdict(float)
        with self._database.reading() as connection:
            for queue, user, number, slot_s in connection.execute(statement):
                begun, ended = number * width * _HOUR_S, min((number + 1) * width * _HOUR_S, now)
                age_s = max(now - (begun + ended) / 2, 0.0)
                totals[queue, user] += slot_s * 0.5 ** (age_s / half_life_s)
        return tuple(
            RecentUse(queue=queue, user=user, num_slots=slot_s * math.log(2) / half_life_s)
            for (queue, user), slot_s in sorted(totals.items())
        )


def _divide(since: float, until: float) -> Iterator[tuple[int, float]]:
    """Divide a time into the hours since 1970 that it is in, with the seconds in each.

    >>> list(_divide(3590.0, 7210.0))
    [(0, 10.0), (1, 3600.0), (2, 10.0)]
    """
    while since < until:
        hour = int(since // _HOUR_S)
        end = min((hour + 1) * float(_HOUR_S), until)
        yield hour, end - since
        since = end


@functools.cache
def _add(dialect: str) -> Executable:
    insert: Any = sqlite.insert if dialect == "sqlite" else postgresql.insert
    statement = insert(usage)
    added: Executable = statement.on_conflict_do_update(
        index_elements=list(usage.primary_key), set_={"slot_s": usage.c.slot_s + statement.excluded.slot_s}
    )
    return added
