"""Divides machines of single users and those of all users at once, so that all targets can be placed together. Pure.

A job can use machines of its owner and those of all users. If the slots of each owner's room (both sorts of machines)
were divided one after the other, the machines of all users would be counted once for every owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from legato.policy.admission import Budget, ranks, usable_floors
from legato.policy.causes import count, explain_needs, name_owners
from legato.policy.claims import Claim, Limits, Needs, SortedSnapshot, find_room
from legato.policy.rooms import divide_room, limit_all
from legato.policy.rules import Rules
from legato.policy.users import find_shares

_NEAR: Final = 1e-6


def list_rooms(pool: SortedSnapshot) -> dict[Needs, dict[str, int]]:
    """Return the rooms with machines of single users: for each need without an owner, those of each owner."""
    found: dict[Needs, dict[str, int]] = {}
    for needs, room in pool.rooms.items():
        if needs[3] is not None and not needs[2]:
            found.setdefault((*needs[:3], None), {})[needs[3]] = room
    return found


def share_at_once(pool: SortedSnapshot, needs: Needs, rooms: dict[str, int], rules: Rules) -> bool:
    """Divide machines of single users and machines of all users among claims with some labels and GPUs per worker.

    Owners that would have fewer slots than their own machines have, if they shared all with the others, share these
    machines only among their own claims; the others cannot use them. All others share one room: the machines for all
    and those of these owners, each of which has at least as many slots as its own machines. So all targets can be
    placed at the same time.

    Args:
        pool: as for `legato.policy.scarce.decide_all`.
        needs: labels and GPUs per worker.
        rooms: of claims by the owner of machines that they may use, as `list_rooms` returns them; "": those for
            all only.
        rules: the policy and its settings.

    Returns:
        Whether that is possible. It is not if a minimum that needs the owner's machines and others was refused only
        because others got slots that they cannot use.
    """
    everyone, by_owner = _list_sharers(pool, needs, rooms)
    common = rooms.get("", 0)
    own = {owner: rooms[owner] - common for owner in by_owner}
    wide = {owner: [claim for claim in claims if claim.lo > own[owner]] for owner, claims in by_owner.items()}
    sharing = {owner for owner, claims in by_owner.items() if sum([claim.hi for claim in claims]) > own[owner]}
    estimates = pool.by_user
    got = Counter[str]()
    without_floors = _lower_floors(pool, {name: queue.floor for name, queue in pool.queues.items()})
    while True:
        room = common + sum([own[owner] for owner in sharing])
        group = [one for one in everyone if one.job.owner in sharing or one.job.owner not in one.owners]
        if sum([claim.hi for claim in group]) <= room:
            return True
        part = _lower_floors(pool, got)
        if estimates:
            numbers = _estimate(part, group, room)
        else:
            divide_room(part, group, room, rules)
            numbers = {owner: float(sum([claim.target for claim in by_owner[owner]])) for owner in sharing}
        less = sorted(owner for owner in sharing if numbers[owner] < own[owner] - _NEAR)
        alone = [owner for owner in less if not wide[owner]]
        if not alone and estimates:
            estimates = False
            continue
        alone = alone or less
        if not alone:
            of = name_owners(sorted(sharing))
            limit_all(group, group, f"{count(room)} for {explain_needs((*needs[:3], of))}")
            return True
        # Others cannot have these slots. Strict policies are checked in the end.
        lent = sum([own[owner] - numbers[owner] for owner in alone])
        if rules.policy.is_fair and any(_could_fit(claim, lent) for owner in alone for claim in wide[owner]):
            return False
        for owner in alone:
            sharing.remove(owner)
            claims = by_owner[owner]
            divide_room(without_floors, claims, own[owner], rules)
            for claim in claims:
                got[claim.job.queue] += claim.target
            refused = [claim for claim in claims if not claim.target]
            # Without machines for all, jobs of other users take nothing from them.
            others = group if common else claims
            limit_all(refused, others, f"{count(rooms[owner])} for {explain_needs((*needs[:3], owner))}")
            limit_all(claims, claims, f"{count(own[owner])} for {explain_needs(needs, of=owner)}")


def _list_sharers(
    pool: SortedSnapshot, needs: Needs, rooms: Collection[str]
) -> tuple[list[Claim], dict[str, list[Claim]]]:
    """Return the claims with some needs, in order of precedence, and those that can use machines of each owner."""
    labels = set(needs[1])
    everyone: list[Claim] = []
    by_owner: dict[str, list[Claim]] = {}
    for claim in pool.claims:
        if claim.job.gpus_per_worker >= needs[0] and labels <= claim.job.labels.items() and claim.hi >= claim.lo:
            owner = claim.job.owner
            everyone.append(claim)
            if owner in claim.owners and owner in rooms:
                by_owner.setdefault(owner, []).append(claim)
    return everyone, by_owner


def _lower_floors(pool: SortedSnapshot, got: Mapping[str, int]) -> SortedSnapshot:
    """Return a pool in which the floors of queues are lower by what their jobs get of other slots."""
    queues = {
        name: msgspec.structs.replace(queue, floor=max(queue.floor - got.get(name, 0), 0)) if queue.floor else queue
        for name, queue in pool.queues.items()
    }
    return msgspec.structs.replace(pool, queues=queues)


def _could_fit(claim: Claim, lent: float) -> bool:
    """Whether a minimum would have fitted if other claims had not got some slots."""
    refusal = claim.refusal
    return refusal is not None and refusal.why != "share" and refusal.left + lent >= claim.lo


def _estimate(pool: SortedSnapshot, group: Sequence[Claim], room: int) -> dict[str, float]:
    """Return the exact shares of the owners of claims: in a large pool this takes a third of the time of a division."""
    budget = Budget(room, pool.queues, usable_floors(group, pool.queues, room), pool.elsewhere)
    numbers: dict[str, float] = {}
    for user in find_shares(group, pool.levels, budget).values():
        numbers[user.name] = numbers.get(user.name, 0.0) + user.share
    return numbers


def overtakes(pool: SortedSnapshot, rules: Rules, before: Limits) -> bool:
    """Whether division at once lets a claim wait although those before it leave enough slots for its minimum.

    Args:
        pool: with targets set.
        rules: the policy and its settings; in fair policies, no claim comes before another.
        before: the limits without this division.
    """
    if rules.policy.is_fair:
        return False
    room = find_room(pool)
    waiting = {
        claim.job.id
        for claim in pool.claims
        if claim.hi < claim.lo <= min(before[claim.job.id][0], room[claim.job.queue])
    }
    return bool(waiting) and _is_overtaken(pool, rules, Used(pool.owned), waiting)


class Used:
    """The slots that are left if claims use machines of their owners first.

    Args:
        owned: usable slots of each user to whom machines belong; "": of machines of all users.
    """

    def __init__(self, owned: Mapping[str, int]) -> None:
        self._own = dict(owned)
        self._common = self._own.pop("", 0)

    def add(self, claim: Claim, num_slots: int) -> None:
        """Give slots to a claim."""
        owner = claim.job.owner
        mine = min(num_slots, self._own.get(owner, 0))
        if mine:
            self._own[owner] -= mine
        self._common -= num_slots - mine

    def count_left(self, claim: Claim) -> int:
        """Return how many slots that a claim can use are left."""
        return self._common + self._own.get(claim.job.owner, 0)


def _is_overtaken(pool: SortedSnapshot, rules: Rules, used: Used, waiting: Collection[str]) -> bool:
    """Whether the claims before one of those that wait leave enough slots for its minimum."""
    for equals in ranks(pool.claims, rules.policy):
        for claim in equals:
            used.add(claim, min(claim.target, claim.lo))
        # Queues take turns in which the minimums of equals are assigned, so each of them may come before.
        if any(claim.job.id in waiting and used.count_left(claim) >= claim.lo for claim in equals):
            return True
        for claim in equals:
            used.add(claim, max(claim.target - claim.lo, 0))
    return False
