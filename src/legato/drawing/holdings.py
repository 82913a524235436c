"""The data of a timeline: plain records of slots held by jobs. Draws nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a job has a slot.

    Args:
        slot: its name, such as ``node-1/cuda:0``.
        job: its id. None: a job that the reader may not see.
        since: moment at which it begins.
        until: moment at which it ends. None: the job still has the slot.
    """

    slot: str
    job: str | None
    since: float
    until: float | None


class Mark(msgspec.Struct, frozen=True):
    """An event, with its reason.

    Args:
        time: moment of the event.
        told: one sentence, for people.
    """

    time: float
    told: str


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One pool over time.

    Args:
        holdings: in any order; those of one slot do not overlap.
        slots: all of the pool, so that never used slots are drawn too. Empty: the used slots.
        marks: in any order; the first few are numbered in the panel and explained below it.
        title: of the panel, such as the name of a policy. Empty: no title.
        told: a line about the whole panel, beside the title.
    """

    holdings: Sequence[Holding]
    slots: Sequence[str] = ()
    marks: Sequence[Mark] = ()
    title: str = ""
    told: str = ""


def list_slots(panel: Panel) -> list[str]:
    """Return the names of a panel's slots, the second slot before the tenth."""
    return sorted(set(panel.slots) | {holding.slot for holding in panel.holdings}, key=_by_number)


def _by_number(name: str) -> list[tuple[int, str]]:
    # Every second part is a number; only ASCII digits count.
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if index % 2 else (0, part) for index, part in enumerate(parts)]
