"""Sizes claims that share slots with one another: first by their exact shares, then step by step. Pure.

`legato.policy.sizing` does so for all claims of a queue, `legato.policy.users` for those of one user.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import Final

from legato.policy.admission import Budget
from legato.policy.claims import Claim
from legato.policy.curves import find_time
from legato.policy.share import Bounds, Part, deal_key, make_whole, share_out
from legato.policy.sizes import fit_size, next_size

_STICKY: Final = 1.1
_NUM_STEPS: Final = 4


def size_together(claims: Sequence[Claim], share: float, whole: int, budget: Budget) -> None:
    """Set the shares and the targets of claims of one queue, by priority.

    Args:
        claims: that have their minimums.
        share: their exact share together.
        whole: the same in whole slots.
        budget: the targets are taken out of it, without the minimums.
    """
    if claims and claims[0].ratio is not None:
        _size_by_speed(claims, whole, budget)
        return
    shares = share_out(share, [Bounds(claim.weight, claim.lo, claim.hi) for claim in claims])
    parts = [
        Part(exact, claim.weight, claim.keeps, claim.age_order) for claim, exact in zip(claims, shares, strict=True)
    ]
    for claim, exact, size in zip(claims, shares, make_whole(whole, parts), strict=True):
        claim.share = exact
        claim.target = fit_size(claim.job, size)
        budget.take(claim.job.queue, claim.target - claim.lo)


def _size_by_speed(claims: Sequence[Claim], whole: int, budget: Budget) -> None:
    """Set the targets so that each slot goes to the claim that it makes faster by most."""
    left = whole - sum([claim.lo for claim in claims])
    for claim in claims:
        claim.target = claim.lo
    steps = [(rank(claim), place) for place, claim in enumerate(claims) if claim.target < claim.hi] if left else []
    heapq.heapify(steps)
    while steps:
        claim = claims[steps[0][1]]
        larger = next_size(claim.job, claim.target)
        if larger is None or larger > claim.hi or larger - claim.target > left:
            heapq.heappop(steps)
            continue
        left -= larger - claim.target
        claim.target = larger
        heapq.heapreplace(steps, (rank(claim), steps[0][1]))
    for claim in claims:
        claim.share = float(claim.target)
        budget.take(claim.job.queue, claim.target - claim.lo)


def grow(claim: Claim, budget: Budget) -> int:
    """Give a claim its next useful size, if it can use that and the slots are there. Returns how many it gained."""
    left = budget.available(claim.job.queue)
    larger = next_size(claim.job, claim.target) if left > 0 else None
    if larger is None or larger > claim.hi or larger - claim.target > left:
        return 0
    gained = larger - claim.target
    budget.take(claim.job.queue, gained)
    claim.target = larger
    return gained


def rank(claim: Claim) -> tuple[float, bool, int]:
    """Return by what claims are sorted that may grow: the one with the fewest slots per priority goes first.

    If measured speeds count, it is the one that each of its next slots makes faster by most.
    """
    if claim.ratio is not None:
        return (-weigh_step(claim, claim.target), claim.keeps <= claim.target, claim.age_order)
    return deal_key(claim.target, claim.weight, claim.keeps, claim.age_order)


def weigh_step(claim: Claim, size: int) -> float:
    """Return what each slot of a step to one of its next sizes gains a claim: the logarithm of its speed, by priority.

    A step that it has taken before weighs more: by a tenth, and by as much as noise may change its gain. So noise moves
    no slots.

    Args:
        claim: whose ``ratio`` is known.
        size: the size before the step.
    """
    job, ratio = claim.job, claim.ratio
    assert ratio is not None
    gain, larger = 0.0, next_size(job, size)
    known = larger is not None and larger <= _find_taken(claim)
    factor, doubt = (_STICKY, claim.doubt) if known else (1.0, 0.0)
    # Without micro-batches, each further step gains less; with them, a useful size may come after a less useful one.
    before = find_time(job, ratio, size)
    for step in range(_NUM_STEPS if job.num_micro_batches is not None and not job.shares_freely else 1):
        if step and larger is not None:
            larger = next_size(job, larger)
        if larger is None or larger > claim.hi:
            break
        after = find_time(job, ratio, larger)
        gain = max(gain, (factor * math.log(before / after) + doubt * (before - after)) / (larger - size))
    return claim.weight * gain


def _find_taken(claim: Claim) -> int:
    """Return the number of slots up to which steps were taken. Those of a trial do not count."""
    job = claim.job
    if job.trial is not None:
        return job.trial.usual
    return max(claim.held, job.wanted or 0)
