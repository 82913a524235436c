"""Named points at which workers wait for one another. Pure."""

from __future__ import annotations

from collections.abc import Collection

import msgspec


class Point(msgspec.Struct):
    """One named point.

    Args:
        awaited: workers that ran when the first reached it, run still, and have not reached it.
        is_notified: somebody said that it is passed, whoever has reached it.
        is_reached: somebody has reached it, so that ``awaited`` says something.
    """

    awaited: set[int] = set()
    is_notified: bool = False
    is_reached: bool = False


class Syncs:
    """All named points of a job.

    Args:
        points: where an earlier driver stopped.
    """

    def __init__(self, points: dict[str, Point] | None = None) -> None:
        self.points = points if points is not None else {}

    def reach(self, name: str, worker: int, workers: Collection[int]) -> bool:
        """A worker has reached a point; ``workers`` run now. Returns whether all have that are awaited."""
        point = self.points.setdefault(name, Point())
        if not point.is_reached:
            point.is_reached = True
            point.awaited = set(workers)
        point.awaited.discard(worker)
        return self.is_passed(name)

    def notify(self, name: str) -> None:
        """Say that a point is passed."""
        self.points.setdefault(name, Point()).is_notified = True

    def is_passed(self, name: str) -> bool:
        """Return whether all have reached a point, or somebody said that it is passed."""
        point = self.points.get(name)
        return point is not None and (point.is_notified or (point.is_reached and not point.awaited))

    def forget(self, name: str | None) -> None:
        """Forget a point, or all of them."""
        if name is None:
            self.points.clear()
        else:
            self.points.pop(name, None)

    def set_workers(self, workers: Collection[int]) -> None:
        """Wait for nobody who does not run any more."""
        for point in self.points.values():
            point.awaited &= set(workers)
