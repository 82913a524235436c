"""Decides which part of a change is made now: starts at once; growth and fairness only after a while.

Sets the next size of every claim, between its present size and its target. A slot that is being given back counts in
the target but is not free: one decision takes it from a job, and a later one, when it is free, assigns it to another.
Chooses no slots.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.moves import Plan
from legato.policy.rules import Rules
from legato.policy.sizes import fit_size
from legato.policy.snapshot import JobDemand, Slot

Need = tuple[Claim, int]


def settle(pool: SortedSnapshot, plan: Plan, rules: Rules) -> float | None:
    """Set the number of slots that every claim gets now, and which claims give slots to which.

    Args:
        pool: with targets set.
        plan: of the slots in the end: jobs shrink first that hold slots which only others can use.
        rules: the settings of the policy.

    Returns:
        The next time at which a decision changes without other news; None if there is none.
    """
    for claim in pool.claims:
        claim.size = claim.held if claim.frozen else _tolerable(claim)
        _keep_time(claim, rules, pool.now)
    moving = [claim for claim in pool.claims if claim.target != claim.held]
    shrunk = sum(claim.held - claim.size for claim in moving)
    starting = [
        (claim, claim.target - claim.held)
        for claim in moving
        if claim.held < claim.lo <= claim.target and not claim.awaits_lease
    ]
    growing = [
        (claim, claim.target - claim.held)
        for claim in moving
        if claim.lo <= claim.held < claim.target and claim.ready_at <= pool.now and not claim.frozen
    ]
    shrinkable = [claim for claim in moving if claim.target < claim.held and not claim.frozen]
    shrinkable.sort(key=lambda claim: _worth(claim, pool.now))
    coming = sum(number for _, number in pool.leaving)
    supply = len(pool.free) + coming
    needed = sum(number for _, number in starting)
    shrunk += _leave(shrinkable, plan, starting)
    barred = _list_barred(plan, starting, [*pool.free, *pool.coming])
    shrunk += _shrink(shrinkable, max(needed - supply, _count_missing(starting, supply, barred)) - shrunk)
    ready = [claim for claim in shrinkable if claim.ready_at <= pool.now]
    needed += sum(number for _, number in growing)
    shrunk += _leave(ready, plan, growing)
    shrunk += _shrink(ready, needed - supply - shrunk)
    # Slots that do not help their job, or are above a ceiling, are given back.
    over = sum(claim.size - claim.target for claim in shrinkable)
    wanted = sum(claim.target - claim.held for claim in moving if claim.target > claim.held)
    shrunk += _shrink(ready, over - max(wanted - supply - shrunk, 0))
    _match(pool, [*starting, *growing], shrinkable, _list_barred(plan, starting, pool.free))
    waits = _assign_free(pool, [*starting, *growing], coming + shrunk, rules)
    waits += [claim.ready_at for claim in moving if claim.ready_at > pool.now and claim.size == claim.held > 0]
    return min(waits, default=None)


def _list_barred(plan: Plan, starting: Sequence[Need], slots: Iterable[Slot]) -> list[int]:
    """Return the orders of the claims for whose growth some slots are planned: static jobs after them take none.

    Claims that only move count as if they did not: they leave as many slots.
    """
    names = {claim.job.id for claim, _ in starting}
    if not plan.owners or all(claim.job.elastic for claim, _ in starting):
        return []
    owners = [plan.owners[slot.id] for slot in slots if slot.id in plan.owners]
    return sorted([owner.order for owner in owners if owner.target > owner.held and owner.job.id not in names])


def _count_missing(starting: Sequence[Need], num_slots: int, barred: Sequence[int]) -> int:
    """Return how many slots static jobs need besides those that they may take. ``barred``: as `_list_barred` says."""
    missing = needed = 0
    for claim, number in starting if barred else ():
        if not claim.job.elastic:
            needed += number
            missing = max(missing, needed - num_slots + bisect_left(barred, claim.order))
    return missing


def _tolerable(claim: Claim) -> int:
    """Return how many of its slots a job may keep for the moment."""
    if claim.held < claim.lo and not claim.target:
        # The job cannot train with so few slots, and cannot get more.
        return 0
    most = min(claim.held, claim.job.max_slots)
    if claim.target >= most:
        return most
    # A slot that cannot make a step faster is given back at once; one that was measured to be slow, after a cooldown.
    return max(fit_size(claim.job, most, knows_speed=False), claim.target)


def _keep_time(claim: Claim, rules: Rules, now: float) -> None:
    """Set since when a claim's target is above, or below, its present slots, and when it may be resized."""
    job = claim.job
    if claim.target == claim.held:
        return
    same = job.wanted is not None and (job.wanted > claim.held) is (claim.target > claim.held)
    claim.since = job.wanted_since if same and job.wanted != claim.held and job.wanted_since is not None else now
    claim.ready_at = max(claim.since + rules.stability_s, find_cooled_at(job, rules))


def find_cooled_at(job: JobDemand, rules: Rules) -> float:
    """Return when a job may be resized for fairness or growth only, as its last resize says."""
    if job.last_resized_at is None:
        return -math.inf
    return job.last_resized_at + rules.cooldown_factor * (job.resize_cost_s or 0.0)


def _worth(claim: Claim, now: float) -> tuple[bool, bool, int, float, float, str]:
    """Rank claims with too many slots: the first one loses slots first."""
    job = claim.job
    over = (claim.held - claim.share) / claim.weight
    return (claim.target == 0, claim.ready_at > now, job.priority, -over, -job.submitted_at, job.id)


def _leave(shrinkable: Sequence[Claim], plan: Plan, needs: Sequence[Need]) -> int:
    """Shrink claims by the slots that they leave to others which can use no other ones; return the number."""
    freed, gainers = 0, {gainer.job.id for gainer, _ in needs}
    for claim in shrinkable if gainers else ():
        left = min(plan.count_left_to(claim, gainers), claim.size - claim.target)
        if left > 0:
            size = max(fit_size(claim.job, claim.size - left), claim.target)
            freed += claim.size - size
            claim.size = size
    return freed


def _shrink(shrinkable: Sequence[Claim], missing: int) -> int:
    """Shrink claims one after the other until enough slots are freed; return the number of freed slots.

    No job loses more slots than are needed now: the rest of the change only makes shares fairer.
    """
    freed = 0
    for claim in shrinkable:
        if freed >= missing:
            break
        size = max(fit_size(claim.job, claim.size - (missing - freed)), claim.target)
        freed += claim.size - size
        claim.size = size
    return freed


def _match(pool: SortedSnapshot, needs: Sequence[Need], shrinkable: Sequence[Claim], barred: Sequence[int]) -> None:
    """Match claims with the slots that they wait for: free ones first, then leaving ones, then those given up now.

    ``barred``: of the free slots, as `_list_barred` says.
    """
    supply: list[tuple[Claim | None, int]] = [
        *pool.leaving,
        *((claim, claim.held - claim.size) for claim in shrinkable if claim.size < claim.held),
    ]
    left = len(pool.free)
    sources = iter(supply)
    source, number = next(sources, (None, 0))
    for claim, need in needs:
        usable = left if claim.job.elastic else max(left - bisect_left(barred, claim.order), 0)
        claim.from_free = min(usable, need)
        left -= claim.from_free
        missing = need - claim.from_free
        while missing and number:
            part = min(missing, number)
            if source not in claim.gains_from:
                claim.gains_from += (source,)
            claim.from_others += part
            if source is not None and source.size < source.held and claim not in source.gives_to:
                source.gives_to += (claim,)
            missing -= part
            number -= part
            if not number:
                source, number = next(sources, (None, 0))


def _assign_free(pool: SortedSnapshot, needs: Sequence[Need], coming: int, rules: Rules) -> list[float]:
    """Assign free slots in order to claims that need them; return the times until which claims wait for the rest.

    A claim that cannot use its free slots yet keeps them from later claims, because its other slots are being freed.
    """
    left = len(pool.free)
    waits = []
    for claim, need in needs:
        if left <= 0:
            break
        if claim.frozen or (claim.leaving and not claim.held):
            # Its last workers must have ended before it starts again.
            left -= min(left, need)
            continue
        size = claim.target if need <= left else fit_size(claim.job, claim.held + left)
        if size < claim.target and coming and size > claim.held:
            assert claim.since is not None
            begun = claim.since if claim.held < claim.lo else claim.ready_at
            if pool.now < begun + rules.gather_s:
                waits.append(begun + rules.gather_s)
                size = claim.held
        claim.size = max(size, claim.held)
        left -= min(left, need)
    return waits
