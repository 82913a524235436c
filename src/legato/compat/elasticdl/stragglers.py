"""Gives up workers for which others wait at a named point for too long. Never changes a point."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

from legato.compat.elasticdl.syncs import Point, Syncs

LIMIT_S: Final = 3600.0  # as before, from the first that reaches a point; a new driver restarts the count


class _Watched(NamedTuple):
    point: Point
    timer: asyncio.TimerHandle


class Stragglers:
    """The clock of all named points.

    Args:
        give_up: has a worker killed, for a reason that follows "worker N".
    """

    def __init__(self, give_up: Callable[[int, str], None]) -> None:
        self._give_up = give_up
        self._watched: dict[str, _Watched] = {}

    def follow(self, syncs: Syncs) -> None:
        """Update the points at which workers wait for others; call this after each possible change."""
        awaited = {name: point for name, point in syncs.points.items() if point.awaited and not point.is_notified}
        for name, watched in [*self._watched.items()]:
            if name not in awaited:
                watched.timer.cancel()
                del self._watched[name]
        loop = asyncio.get_running_loop()
        for name in awaited.keys() - self._watched.keys():
            timer = loop.call_later(LIMIT_S, self._end, name)
            self._watched[name] = _Watched(awaited[name], timer)

    def close(self) -> None:
        """Stop waiting for workers."""
        for watched in self._watched.values():
            watched.timer.cancel()
        self._watched.clear()

    def _end(self, name: str) -> None:
        # A worker that is given up is not awaited any more, which changes the point.
        for worker in sorted(self._watched.pop(name).point.awaited):
            self._give_up(worker, f"did not reach '{name[:100]}' within {LIMIT_S:g} s, where others wait for it")
