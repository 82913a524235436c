"""Shares slots that only some jobs need: on nodes with labels, or in whole workers of several GPUs.

If jobs that need such slots want more of them than there are, these slots are divided among those jobs first, in the
same way as the whole pool. The result is the most that each of them can have when the whole pool is divided.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

import msgspec

from legato.policy.causes import count, explain_needs
from legato.policy.claims import Claim, Limits, Needs, SortedSnapshot, ignore_holders, list_limits, set_limits
from legato.policy.crowds import find_crowds
from legato.policy.owned import are_few, is_settled, list_rooms, share_at_once
from legato.policy.rooms import divide_room, explain_limit, limit_all
from legato.policy.rules import Rules
from legato.policy.sizes import fit_size
from legato.policy.sizing import decide_targets


class _Division(msgspec.Struct, frozen=True):
    """All claims that need slots of some sort, those of them that got a share, and the slots: a number, and words."""

    group: list[Claim]
    sharing: list[Claim]
    room: int
    shared: str


def decide_all(pool: SortedSnapshot, rules: Rules) -> None:
    """Share slots that only some jobs need, and then set the target of every claim.

    Machines of single users are shared at once with those for all. If slots then stay idle that a limited claim could
    use, or more than a few targets cannot be placed, the slots that each of these users can use are divided one after
    the other.

    A claim may have a share of such slots and be refused its minimum when the whole pool is divided. Then the others
    may have its share, and the whole pool is divided again, unless not all targets could be placed then.

    Args:
        pool: the slots of one kind of machine.
        rules: the policy and its settings.
    """
    before = list_limits(pool) if pool.rooms else {}
    rooms = list_rooms(pool)
    if rooms:
        ignore_holders(pool)
        if _share_scarce(pool, rules, rooms) is not None:
            decide_targets(pool, rules)
            if is_settled(pool, rules, before) and are_few(_count_missing(pool), pool):
                return
        set_limits(pool, before)
    divisions = _share_scarce(pool, rules, {}) or []
    decide_targets(pool, rules)
    limits = list_limits(pool) if divisions else {}
    if _raise_limits(pool, divisions, before):
        decide_targets(pool, rules)
        if _count_missing(pool):
            set_limits(pool, limits)
            decide_targets(pool, rules)


def _count_missing(pool: SortedSnapshot) -> int:
    """Return how many slots are missing if all targets are placed, wherever the jobs have slots now."""
    wanted = {claim.job.id: claim.target for claim in pool.claims if claim.target and claim.is_picky}
    return sum([crowd.wanted - crowd.room for crowd in find_crowds(pool, wanted, {})])


def _raise_limits(pool: SortedSnapshot, divisions: Sequence[_Division], before: Limits) -> bool:
    """Raise limits by slots that jobs leave which were refused although they have a share. Returns whether it did.

    Args:
        pool: with targets set.
        divisions: of scarce slots.
        before: the limits without these divisions.
    """
    unused = pool.capacity - sum([claim.target for claim in pool.claims])
    left = [division.room - sum([claim.target for claim in division.group]) for division in divisions]
    idle = [
        division
        for division, number in zip(divisions, left, strict=True)
        if number > 0 and any(claim.refusal is not None for claim in division.sharing)
    ]
    if unused <= 0 or not idle:
        return False
    inside: dict[str, list[int]] = {}
    for place, division in enumerate(divisions):
        for claim in division.group:
            inside.setdefault(claim.job.id, []).append(place)
    limited = {
        claim.job.id: claim
        for division in idle
        for claim in division.group
        if claim.hi < before[claim.job.id][0] and claim.target == (claim.hi if claim.hi >= claim.lo else 0)
    }
    is_raised = False
    for claim in sorted(limited.values(), key=operator.attrgetter("order")):
        size, places = claim.target, inside[claim.job.id]
        most, limit, because = before[claim.job.id]
        new = min(fit_size(claim.job, size + min([unused, *(left[place] for place in places)])), most)
        if new > size:
            is_raised, claim.hi = True, new
            unused -= new - size
            for place in places:
                left[place] -= new - size
            if new < most:
                fullest = divisions[min(places, key=left.__getitem__)]
                limit, because = explain_limit(claim, new, fullest.group, fullest.shared)
            claim.limit, claim.limit_because = limit, because
    return is_raised


def _share_scarce(
    pool: SortedSnapshot, rules: Rules, at_once: Mapping[Needs, dict[str, int]]
) -> list[_Division] | None:
    """Lower the limits of claims that together want more slots of some sort than there are.

    Args:
        pool: as for `decide_all`.
        rules: the policy and its settings.
        at_once: the rooms with machines of single users that are divided at once, as `list_rooms` returns them.

    Returns:
        One entry for each other sort of slots. None: those rooms cannot be divided at once.
    """
    divisions: list[_Division] = []
    if not pool.rooms:
        return divisions
    refused_by: dict[str, list[Claim]] = {}
    restricted = [claim for claim in pool.claims if claim.is_picky]
    for claim in restricted:
        for node in claim.job.refusals:
            refused_by.setdefault(node, []).append(claim)
    guests = [claim for claim in pool.claims if claim.job.owner not in claim.owners]
    by_owner: dict[str, list[Claim]] = {}
    for claim in pool.claims:
        if claim.job.owner in claim.owners:
            by_owner.setdefault(claim.job.owner, []).append(claim)
    with_owners = dict(at_once)
    for needs, room in sorted(pool.rooms.items(), key=lambda item: (item[1], item[0][:3], item[0][3] or "")):
        each, labels, nodes, owner = needs[0], set(needs[1]), set(needs[2]), needs[3]
        if owner is not None and not nodes and at_once:
            rooms = with_owners.pop((*needs[:3], None), None)
            if rooms is not None and not share_at_once(pool, (*needs[:3], None), rooms, rules):
                return None
            continue
        # A pool may have thousands of jobs, hundreds of users with machines, and hundreds of jobs with refusals.
        some = min((refused_by[node] for node in nodes), key=len) if nodes else restricted
        if owner is not None and not nodes:
            some = sorted([*guests, *by_owner.get(owner, ())], key=operator.attrgetter("order"))
        needing = [
            claim
            for claim in some
            if claim.job.gpus_per_worker >= each
            and (not labels or labels <= claim.job.labels.items())
            and (not nodes or nodes <= claim.job.refusals.keys())
            and (owner is None or claim.job.owner == owner or claim.job.owner not in claim.owners)
        ]
        group = [claim for claim in needing if claim.hi >= claim.lo]
        shared, sharing = f"{count(room)} for {explain_needs(needs)}", list[Claim]()
        if sum([claim.hi for claim in group]) > room:
            divide_room(pool, group, room, rules)
            limit_all(group, group, shared)
            sharing = [claim for claim in group if claim.target]
        divisions.append(_Division(needing, sharing, room, shared))
    return divisions
