"""Sizes claims that share slots with one another: first by their exact shares, then step by step. Pure.

`legato.policy.sizing` does so for all claims of a queue, `legato.policy.users` for those of one user.
"""

from __future__ import annotations

from collections.abc import Sequence

from legato.policy.admission import Budget
from legato.policy.claims import Claim, Order
from legato.policy.share import Bounds, Part, deal_key, make_whole, share_out
from legato.policy.sizes import fit_size, next_size


def size_together(claims: Sequence[Claim], share: float, whole: int, budget: Budget) -> None:
    """Set the shares and the targets of claims of one queue, by priority.

    Args:
        claims: that have their minimums.
        share: their exact share together.
        whole: the same in whole slots.
        budget: the targets are taken out of it, without the minimums.
    """
    shares = share_out(share, [Bounds(claim.job.priority, claim.lo, claim.hi) for claim in claims])
    parts = [
        Part(exact, claim.job.priority, claim.held, _tie(claim)) for claim, exact in zip(claims, shares, strict=True)
    ]
    for claim, exact, size in zip(claims, shares, make_whole(whole, parts), strict=True):
        claim.share = exact
        claim.target = fit_size(claim.job, size)
        budget.take(claim.job.queue, claim.target - claim.lo)


def grow(claim: Claim, budget: Budget) -> int:
    """Give a claim its next useful size, if the slots are there. Returns how many slots it gained."""
    larger = next_size(claim.job, claim.target)
    if larger is None or larger - claim.target > budget.available(claim.job.queue):
        return 0
    gained = larger - claim.target
    budget.take(claim.job.queue, gained)
    claim.target = larger
    return gained


def rank(claim: Claim) -> tuple[float, bool, Order]:
    """Return by what claims are sorted that may grow: the one with the fewest slots per priority goes first."""
    return deal_key(claim.target, claim.job.priority, claim.held, _tie(claim))


def _tie(claim: Claim) -> Order:
    return (claim.job.submitted_at, claim.job.id)
