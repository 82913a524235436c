"""Finds the present and former executors of an application from the events of its driver."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final, NamedTuple

from legato.compat.wmla.rest.platform import Job, Platform

_PAGE: Final = 1000
_MAX_JOBS: Final = 1000
_COMES: Final = frozenset({"joining", "joined"})
_GOES: Final = frozenset({"left", "died", "fenced"})
_EMPTIES: Final = frozenset({"finished", "stopped", "failed"})


class Members(NamedTuple):
    """Numbers of the present executors and of all known ones; worker 0 is executor 1."""

    present: frozenset[int] = frozenset()
    known: frozenset[int] = frozenset()


EMPTY: Final = Members()


class MembershipReader:
    """Reads the events of jobs, and keeps how far it has read, so that it reads each event once."""

    def __init__(self) -> None:
        self._read: OrderedDict[str, tuple[int, Members]] = OrderedDict()

    async def find(self, platform: Platform, job: Job) -> Members:
        """Return the executors of a job that the user may see."""
        name = job["id"]
        after, members = self._read.get(name, (0, EMPTY))
        while True:
            page = await platform.get(f"jobs/{name}/training-events", after=after, limit=_PAGE)
            for event in page["items"]:
                members = follow(members, event)
            after = page["after"]
            if len(page["items"]) < _PAGE:
                break
        self._read[name] = after, members
        self._read.move_to_end(name)
        while len(self._read) > _MAX_JOBS:
            self._read.popitem(last=False)
        # If an attempt was interrupted, events for the end of some workers may be missing.
        newest = sorted(members.present)[len(members.present) - min(job["num_slots"], len(members.present)) :]
        return Members(frozenset(newest), members.known)


def follow(members: Members, event: Any) -> Members:
    """Return the executors of a job after an event.

    >>> follow(EMPTY, {"kind": "joined", "worker": 0})
    Members(present=frozenset({1}), known=frozenset({1}))
    """
    kind = event["kind"]
    if kind in _EMPTIES:
        return Members(frozenset(), members.known)
    if event.get("worker") is None or kind not in _COMES | _GOES:
        return members
    number = event["worker"] + 1
    present = members.present | {number} if kind in _COMES else members.present - {number}
    return Members(present, members.known | {number})
