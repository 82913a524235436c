"""Shares slots that only some jobs need: on nodes with labels, or in whole workers of several GPUs.

If jobs that need such slots want more of them than there are, these slots are divided among those jobs first, in the
same way as the whole pool. The result is the most that each of them can have when the whole pool is divided.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping

from legato.policy.causes import count, explain_needs
from legato.policy.claims import Claim, Needs, SortedSnapshot, ignore_holders, list_limits, set_limits
from legato.policy.node_sets import list_bits
from legato.policy.owned import list_rooms, overtakes, share_at_once
from legato.policy.rooms import divide_room, limit_all
from legato.policy.rules import Rules
from legato.policy.sizing import decide_targets


def decide_all(pool: SortedSnapshot, rules: Rules) -> None:
    """Share slots that only some jobs need, and then set the target of every claim.

    Machines of single users are shared at once with those for all. If that is not possible, or if a claim then waits
    although those before it leave enough slots, the slots of each of these users are divided one after the other.

    Args:
        pool: the slots of one kind of machine.
        rules: the policy and its settings.
    """
    before = list_limits(pool) if pool.rooms else {}
    rooms = list_rooms(pool)
    if rooms:
        ignore_holders(pool)
        if _share_scarce(pool, rules, rooms):
            decide_targets(pool, rules)
            if not overtakes(pool, rules, before):
                return
        set_limits(pool, before)
    _share_scarce(pool, rules, {})
    decide_targets(pool, rules)


def _share_scarce(pool: SortedSnapshot, rules: Rules, at_once: Mapping[Needs, dict[str, int]]) -> bool:
    """Lower the limits of claims that together want more slots of some sort than there are.

    Args:
        pool: as for `decide_all`.
        rules: the policy and its settings.
        at_once: the rooms with machines of single users that are divided at once, as `list_rooms` returns them.

    Returns:
        Whether those rooms can be divided at once.
    """
    if not pool.rooms:
        return True
    restricted = [claim for claim in pool.claims if claim.is_picky]
    refused = _Having([claim.needs[2] for claim in restricted])
    labelled = _Having([claim.needs[1] for claim in restricted])
    guests = [claim for claim in pool.claims if claim.job.owner not in claim.owners]
    by_owner: dict[str, list[Claim]] = {}
    for claim in pool.claims:
        if claim.job.owner in claim.owners:
            by_owner.setdefault(claim.job.owner, []).append(claim)
    with_owners = dict(at_once)
    for needs, room in sorted(pool.rooms.items(), key=lambda item: (item[1], item[0][:3], item[0][3] or "")):
        each, labels, nodes, owner = needs[0], set(needs[1]), needs[2], needs[3]
        if owner is not None and not nodes and at_once:
            rooms = with_owners.pop((*needs[:3], None), None)
            if rooms is not None and not share_at_once(pool, (*needs[:3], None), rooms, rules):
                return False
            continue
        # A pool may have thousands of jobs, hundreds of users with machines, and hundreds of jobs with refusals.
        if owner is not None and not nodes:
            some = sorted([*guests, *by_owner.get(owner, ())], key=operator.attrgetter("order"))
        elif nodes or needs[1]:
            some = [restricted[place] for place in list_bits(refused.find(nodes) & labelled.find(needs[1]))]
        else:
            some = restricted
        group = [
            claim
            for claim in some
            if claim.hi >= claim.lo
            and claim.job.gpus_per_worker >= each
            and (not labels or labels <= claim.job.labels.items())
            and (owner is None or claim.job.owner == owner or claim.job.owner not in claim.owners)
        ]
        if sum([claim.hi for claim in group]) > room:
            divide_room(pool, group, room, rules)
            limit_all(group, group, f"{count(room)} for {explain_needs(needs)}")
    return True


class _Having:
    """Finds the claims that have all of some labels, or that all of some nodes have refused.

    Claims are the bits of whole numbers, because thousands of jobs may each have hundreds of refusals of their own.

    Args:
        had: what each claim has.
    """

    def __init__(self, had: Iterable[tuple[object, ...]]) -> None:
        self._by_all: dict[tuple[object, ...], int] = {}
        self._by_one: dict[object, int] = {}
        for place, some in enumerate(had):
            self._by_all[some] = self._by_all.get(some, 0) | 1 << place
        for some, bits in self._by_all.items():
            for one in some:
                self._by_one[one] = self._by_one.get(one, 0) | bits

    def find(self, some: tuple[object, ...]) -> int:
        """Return the bits of the claims that have all of these, and perhaps others; -1: all claims."""
        least, found = self._by_all.get(some), -1
        for one in some:
            found &= self._by_one[one]
            if found == least:
                break
        return found
