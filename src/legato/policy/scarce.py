"""Shares slots that only some jobs need: on nodes with labels, or in whole workers of several GPUs.

If jobs that need such slots want more of them than there are, these slots are divided among those jobs first, in the
same way as the whole pool. The result is the most that each of them can have when the whole pool is divided.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

import msgspec

from legato.policy.admission import Budget, usable_floors
from legato.policy.causes import count, explain_needs, ids, name_owners, names, without
from legato.policy.claims import Claim, Needs, SortedSnapshot
from legato.policy.moves import Plan
from legato.policy.rules import Rules
from legato.policy.sizes import fit_size
from legato.policy.sizing import decide_targets
from legato.policy.users import find_shares

_NEAR: Final = 1e-6


class _Division(msgspec.Struct, frozen=True):
    """All claims that need slots of some sort, those of them that got a share, and the slots: a number, and words."""

    group: list[Claim]
    sharing: list[Claim]
    room: int
    shared: str


_Limits = dict[str, tuple[int, str, tuple[str, ...]]]
"""Of each job the most slots that it can use, why it can use no more, and the jobs that are the causes."""


def decide_all(pool: SortedSnapshot, rules: Rules) -> Plan:
    """Share slots that only some jobs need, and then set the target of every claim.

    A claim may have a share of such slots and be refused its minimum when the whole pool is divided. Then the others
    may have its share, and the whole pool is divided again, unless not all targets could be placed then.

    Args:
        pool: the slots of one kind of machine.
        rules: the policy and its settings.

    Returns:
        A plan of these targets.
    """
    before = _list_limits(pool) if pool.rooms else {}
    divisions = _share_scarce(pool, rules)
    decide_targets(pool, rules)
    limits = _list_limits(pool) if divisions else {}
    if _raise_limits(pool, divisions, before):
        decide_targets(pool, rules)
        plan = Plan(pool)
        if not plan.list_short():
            return plan
        for claim in pool.claims:
            claim.hi, claim.limit, claim.limit_because = limits[claim.job.id]
        decide_targets(pool, rules)
    return Plan(pool)


def _list_limits(pool: SortedSnapshot) -> _Limits:
    return {claim.job.id: (claim.hi, claim.limit, claim.limit_because) for claim in pool.claims}


def _raise_limits(pool: SortedSnapshot, divisions: Sequence[_Division], before: _Limits) -> bool:
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
                limit, because = _explain(claim, new, fullest.group, fullest.shared)
            claim.limit, claim.limit_because = limit, because
    return is_raised


def _share_scarce(pool: SortedSnapshot, rules: Rules) -> list[_Division]:
    """Lower the limits of claims that together want more slots of some sort than there are.

    Args:
        pool: as for `decide_all`.
        rules: the policy and its settings.

    Returns:
        One entry for each sort of slots; without any if no minimum can be refused.
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
    at_once = _can_share_at_once(pool, rules)
    with_owners = _rooms_of_owners(pool) if at_once else {}
    for needs, room in sorted(pool.rooms.items(), key=lambda item: (item[1], item[0][:3], item[0][3] or "")):
        each, labels, nodes, owner = needs[0], set(needs[1]), set(needs[2]), needs[3]
        if owner is not None and not nodes and at_once:
            rooms = with_owners.pop((*needs[:3], None), None)
            if rooms is not None:
                _share_with_owners(pool, (*needs[:3], None), rooms, rules)
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
            _divide(pool, group, room, rules)
            _limit(group, group, shared)
            sharing = [claim for claim in group if claim.target]
        divisions.append(_Division(needing, sharing, room, shared))
    return [] if at_once else divisions


def _rooms_of_owners(pool: SortedSnapshot) -> dict[Needs, dict[str, int]]:
    """Return the rooms with machines of single users: for each need without an owner, those of each owner."""
    found: dict[Needs, dict[str, int]] = {}
    for needs, room in pool.rooms.items():
        if needs[3] is not None and not needs[2]:
            found.setdefault((*needs[:3], None), {})[needs[3]] = room
    return found


def _can_share_at_once(pool: SortedSnapshot, rules: Rules) -> bool:
    """Whether `_share_with_owners` can divide machines of single users: no claim can be refused for its minimum.

    A claim that needs several slots at once may fit into the room that its owner's machines share with those for all,
    but not into one of both. And a limit of a queue may keep an owner from using its machines.
    """
    return (
        rules.policy.is_fair
        and all(claim.lo <= claim.job.gpus_per_worker for claim in pool.claims)
        and all(queue.ceiling is None and not queue.floor for queue in pool.queues.values())
    )


def _share_with_owners(pool: SortedSnapshot, needs: Needs, rooms: dict[str, int], rules: Rules) -> None:
    """Divide machines of single users and machines of all users among claims with some labels and GPUs per worker.

    Owners that would have fewer slots than their own machines have, if they shared all with the others, share these
    machines only among their own claims; the others cannot use them. All others share one room: the machines for all
    and those of these owners, each of which has at least as many slots as its own machines. So all targets can be
    placed at the same time.

    Args:
        pool: as for `decide_all`.
        needs: labels and GPUs per worker.
        rooms: of claims by the owner of machines that they may use, as in ``pool.rooms``; "": those for all only.
        rules: the policy and its settings.
    """
    labels = set(needs[1])
    guests: list[Claim] = []
    by_owner: dict[str, list[Claim]] = {}
    for claim in pool.claims:
        if claim.job.gpus_per_worker >= needs[0] and labels <= claim.job.labels.items() and claim.hi >= claim.lo:
            owner = claim.job.owner
            if owner not in claim.owners:
                guests.append(claim)
            elif owner in rooms:
                by_owner.setdefault(owner, []).append(claim)
    common = rooms.get("", 0)
    own = {owner: rooms[owner] - common for owner in by_owner}
    sharing = {owner for owner, claims in by_owner.items() if sum([claim.hi for claim in claims]) > own[owner]}
    estimates = pool.by_user
    while True:
        group, room = list(guests), common
        for owner in sharing:
            group += by_owner[owner]
            room += own[owner]
        if sum([claim.hi for claim in group]) <= room:
            return
        group.sort(key=operator.attrgetter("order"))
        if estimates:
            numbers = _estimate(pool, group, room)
        else:
            _divide(pool, group, room, rules)
            numbers = {owner: float(sum([claim.target for claim in by_owner[owner]])) for owner in sharing}
        alone = sorted(owner for owner in sharing if numbers[owner] < own[owner] - _NEAR)
        if not alone and estimates:
            estimates = False
        elif not alone:
            of = name_owners(sorted(sharing))
            _limit(group, group, f"{count(room)} for {explain_needs((*needs[:3], of))}")
            return
        for owner in alone:
            sharing.remove(owner)
            claims = by_owner[owner]
            _divide(pool, claims, own[owner], rules)
            refused = [claim for claim in claims if not claim.target]
            _limit(refused, group, f"{count(rooms[owner])} for {explain_needs((*needs[:3], owner))}")
            _limit(claims, claims, f"{count(own[owner])} for {explain_needs(needs, of=owner)}")


def _estimate(pool: SortedSnapshot, group: Sequence[Claim], room: int) -> dict[str, float]:
    """Return the exact shares of the owners of claims: in a large pool this takes a third of the time of a division."""
    budget = Budget(room, pool.queues, usable_floors(group, pool.queues, room), pool.elsewhere)
    numbers: dict[str, float] = {}
    for user in find_shares(group, pool.levels, budget).values():
        numbers[user.name] = numbers.get(user.name, 0.0) + user.share
    return numbers


def _divide(pool: SortedSnapshot, group: Sequence[Claim], room: int, rules: Rules) -> None:
    """Set the targets of claims as if they had these slots only."""
    part = msgspec.structs.replace(pool, claims=group, capacity=room, free=[], leaving=[], coming=[])
    decide_targets(part, rules)


def _limit(claims: Sequence[Claim], group: Sequence[Claim], shared: str) -> None:
    """Limit claims to their targets.

    Args:
        claims: with targets set.
        group: these, and others that share with them.
        shared: the slots that they share, as a part of a sentence.
    """
    for claim in claims:
        if claim.target < claim.hi:
            claim.hi = claim.target
            claim.limit, claim.limit_because = _explain(claim, claim.hi, group, shared)


def _explain(claim: Claim, size: int, group: Sequence[Claim], shared: str) -> tuple[str, tuple[str, ...]]:
    """Explain why a claim has no more than ``size`` of the slots that a group shares, and name the causes."""
    others, num_others = without(group, claim), len(group) - 1
    if size:
        told = f"its share of the {shared}"
        told += f", with {names(others, num_others)}" if others else ""
    else:
        go = "goes" if num_others == 1 else "go"
        told = f"its kind of machine has {shared}"
        told += f", and {names(others, num_others)} {go} first" if others else ""
    return told, ids(others)
