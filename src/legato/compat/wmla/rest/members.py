"""The executors of an application, now and before: read from its driver's events, only new ones each time."""

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
    """Numbers of executors, worker 0 being number 1: those that are there, and all that are known."""

    present: frozenset[int] = frozenset()
    known: frozenset[int] = frozenset()


EMPTY: Final = Members()


class MembershipReader:
    """Remembers of each job how far it was read."""

    def __init__(self) -> None:
        self._read: OrderedDict[str, tuple[int, Members]] = OrderedDict()

    async def find(self, platform: Platform, job: Job) -> Members:
        """Return the executors of a job, which the user may see."""
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
        # After an attempt that was cut off, the end of some workers may be missing in the record.
        newest = sorted(members.present)[len(members.present) - min(job["num_slots"], len(members.present)) :]
        return Members(frozenset(newest), members.known)


def follow(members: Members, event: Any) -> Members:
    """Return the executors after an event.

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
