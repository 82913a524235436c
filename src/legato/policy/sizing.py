"""Computes the target of every job: its minimum by admission, and its share above that. Moves nothing.

Queues share first, then the jobs of each. Exact shares become whole slots, whole slots become useful sizes, and slots
that a job cannot use go to the next one that can. The snapshot is the only input, and present holders of slots only
break ties. So targets do not depend on earlier decisions, and jobs cannot take slots from one another in circles.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from legato.policy.admission import Budget, Reservations, admit, ranks, usable_floors
from legato.policy.claim_sizes import grow, rank, size_together
from legato.policy.claims import Claim, Refusal, SortedSnapshot
from legato.policy.rules import Rules
from legato.policy.share import Bounds, Part, make_whole, share_out
from legato.policy.sizes import fit_size
from legato.policy.users import divide_by_user


def decide_targets(pool: SortedSnapshot, rules: Rules) -> None:
    """Set share, target and refusal of every claim.

    If a queue cannot use its floor, because no minimum or useful size fits into it, the unused part is lent: only the
    used part is set aside, and all slots are divided again. Each round sets fewer slots aside, so there are few rounds.
    """
    claims = []
    for claim in pool.claims:
        if claim.hi < claim.lo:
            # No number of slots that it can use can be placed.
            claim.refusal, claim.share, claim.target = Refusal("place", claim.hi), 0.0, 0
        else:
            claims.append(claim)
    floors = usable_floors(claims, pool.queues, pool.capacity)
    divisions = ranks(claims, rules.policy)
    while True:
        budget = Budget(pool.capacity, pool.queues, floors, pool.elsewhere)
        reservations = Reservations(rules, pool.now)
        if pool.by_user:
            pool.users = divide_by_user(claims, pool.levels, budget, reservations)
        for division in divisions if not pool.by_user else ():
            admitted = admit(division, budget, reservations)
            if len(admitted) == 1:
                _size_alone(admitted[0], budget)
            elif admitted:
                _size(admitted, budget)
        unused = {name: number for name, number in budget.set_aside.items() if number > 0}
        if not unused:
            break
        floors = {name: floor - unused.get(name, 0) for name, floor in floors.items()}
    for claim in claims:
        if claim.refusal is not None:
            claim.share, claim.target = 0.0, 0


def _size_alone(claim: Claim, budget: Budget) -> None:
    """Size a claim that shares with no other: it gets as many of the remaining slots as it can use."""
    most = min(claim.hi, claim.lo + budget.available(claim.job.queue))
    claim.share = float(most)
    claim.target = fit_size(claim.job, most)
    budget.take(claim.job.queue, claim.target - claim.lo)


def _size(admitted: Sequence[Claim], budget: Budget) -> None:
    """Size claims that share with one another, from the slots that remain after their minimums."""
    inside: dict[str, list[Claim]] = {}
    for claim in admitted:
        inside.setdefault(claim.job.queue, []).append(claim)
    for name, (share, whole) in _share_queues(inside, budget).items():
        size_together(inside[name], share, whole, budget)
    _assign_rest(admitted, budget)


def _share_queues(inside: Mapping[str, Sequence[Claim]], budget: Budget) -> dict[str, tuple[float, int]]:
    """Return the exact and the whole share of every queue, including minimums."""
    names = sorted(inside)
    bounds, parts = [], []
    capacity = budget.common
    for name in names:
        least = sum(claim.lo for claim in inside[name])
        most = min(sum(claim.hi for claim in inside[name]), least + budget.room[name])
        own = least + min(budget.set_aside[name], most - least)
        bounds.append(Bounds(budget.queues[name].weight, own, most))
        capacity += own
    shares = share_out(capacity, bounds)
    for name, share, bound in zip(names, shares, bounds, strict=True):
        parts.append(Part(share, bound.weight, sum([claim.keeps for claim in inside[name]]), (name,)))
    wholes = make_whole(min(capacity, sum(bound.hi for bound in bounds)), parts)
    return {name: (share, whole) for name, share, whole in zip(names, shares, wholes, strict=True)}


def _assign_rest(admitted: Sequence[Claim], budget: Budget) -> None:
    """Assign the remaining slots step by step, each time to the claim with the fewest slots per weight."""
    names = {claim.job.queue for claim in admitted}
    if all(budget.available(name) <= 0 for name in names):
        return
    steps: list[tuple[tuple[float, bool, int], int]] = []
    for index, claim in enumerate(admitted):
        if claim.target < claim.hi:
            steps.append((rank(claim), index))
    heapq.heapify(steps)
    while steps:
        claim = admitted[steps[0][1]]
        if grow(claim, budget):
            heapq.heapreplace(steps, (rank(claim), steps[0][1]))
        else:  # the available slots only decrease
            heapq.heappop(steps)
