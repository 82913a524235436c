"""Named points at which workers wait for one another. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

_MAX_FORGOTTEN: Final = 1000


class Point(msgspec.Struct):
    """One named point.

    Args:
        awaited: workers that ran when the first worker reached the point, still run, and have not reached it.
        is_notified: a client declared the point passed, regardless of which workers have reached it.
        is_reached: a worker has reached the point, so that ``awaited`` is known.
        informed: workers that got the answer that the point is passed. Stored by its former name ``told``.
        is_forgotten: the point was passed and forgotten. A worker that has not got the answer yet still gets it; a
            worker that has got it starts a new point of this name.
    """

    awaited: set[int] = set()
    is_notified: bool = False
    is_reached: bool = False
    informed: set[int] = msgspec.field(default_factory=set, name="told")
    is_forgotten: bool = False


class Syncs:
    """All named points of a job.

    Args:
        points: those of an earlier driver; None at the beginning.
    """

    def __init__(self, points: dict[str, Point] | None = None) -> None:
        self.points = points if points is not None else {}

    def reach(self, name: str, worker: int, workers: Collection[int]) -> bool:
        """Record that a worker has reached a point, while ``workers`` run; return whether all awaited workers have.

        A worker that reaches a forgotten point later than the others, because it started later or has not got the
        answer yet, has passed it too. Otherwise it would wait at a new point, which the others do not reach.
        """
        point = self.points.setdefault(name, Point())
        if point.is_forgotten:
            if worker not in point.informed:
                point.informed.add(worker)
                return True
            point = self.points[name] = Point()
        if not point.is_reached:
            point.is_reached = True
            point.awaited = set(workers)
        point.awaited.discard(worker)
        if self.is_passed(name):
            point.informed.add(worker)
        return self.is_passed(name)

    def notify(self, name: str) -> None:
        """Declare that a point is passed."""
        if name not in self.points or self.points[name].is_forgotten:
            self.points[name] = Point()
        self.points[name].is_notified = True

    def is_passed(self, name: str) -> bool:
        """Return whether all have reached a point, or a client declared it passed."""
        point = self.points.get(name)
        if point is None or point.is_forgotten:
            return False
        return point.is_notified or (point.is_reached and not point.awaited)

    def forget(self, name: str | None) -> None:
        """Forget a point, or all of them."""
        for one in [*self.points] if name is None else [name]:
            point = self.points.pop(one, None)
            if point is not None and point.informed:
                self.points[one] = Point(informed=point.informed, is_forgotten=True)
        forgotten = [one for one, point in self.points.items() if point.is_forgotten]
        for one in forgotten[: max(len(forgotten) - _MAX_FORGOTTEN, 0)]:
            del self.points[one]

    def set_workers(self, workers: Collection[int]) -> None:
        """Stop waiting for workers that no longer run."""
        for name, point in [*self.points.items()]:
            point.awaited &= set(workers)
            point.informed &= set(workers)
            if point.is_forgotten and not point.informed:
                # All workers that passed it are gone: new ones wait for each other again.
                del self.points[name]
