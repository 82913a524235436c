"""Weighted max-min shares with bounds, and their whole numbers. Pure arithmetic; knows neither jobs nor queues.

For a capacity C and claims of weight w with bounds lo <= hi there is one level R at which the shares clip(R w, lo, hi)
add up to min(C, sum of hi). One sweep over the sorted levels at which shares begin and stop rising finds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

# Shares closer to a whole number than this count as that number: they differ by rounding errors only.
_NEAR: Final = 1e-9

Tie = int | tuple[float | str, ...]
_Tie = TypeVar("_Tie", bound=Tie)
Rank = tuple[float, bool, Tie]


class Bounds(msgspec.Struct, frozen=True, gc=False):
    """One claim: its weight (above 0), its minimum and its maximum."""

    weight: float
    lo: int
    hi: int


def share_out(capacity: float, claims: Sequence[Bounds]) -> list[float]:
    """Return the exact share of each claim.

    Args:
        capacity: at least the sum of all ``lo``.
        claims: in any order; the shares come in the same one.

    Source: weighted max-min fairness with bounds, as YARN's ComputeFairShares, which searches the level by bisection.

    >>> share_out(10, [Bounds(1, 4, 10), Bounds(1, 0, 10), Bounds(2, 0, 10)])
    [4.0, 2.0, 4.0]
    """
    if capacity >= sum([claim.hi for claim in claims]):
        return [float(claim.hi) for claim in claims]
    if len(claims) == 1:  # often, in a pool of many users
        claim = claims[0]
        return [_rounded(claim.weight * capacity / claim.weight) if capacity > claim.lo else float(claim.lo)]
    level = _find_level(capacity, claims)
    fixed, rising = 0, 0.0
    shares: list[float | None] = []
    for claim in claims:
        weight = claim.weight
        reached = level * weight
        if reached <= claim.lo:
            bound = claim.lo
        elif reached >= claim.hi:
            bound = claim.hi
        else:
            rising += weight
            shares.append(None)
            continue
        fixed += bound
        shares.append(float(bound))
    # Computed again from the claims that matter, without the rounding errors of the sweep.
    left = capacity - fixed
    return [
        _rounded(claim.weight * left / rising) if share is None else share
        for claim, share in zip(claims, shares, strict=True)
    ]


def _find_level(capacity: float, claims: Sequence[Bounds]) -> float:
    """Return the level at which the clipped shares add up to the capacity, which is below the sum of all ``hi``."""
    apart = [claim for claim in claims if claim.hi > claim.lo]
    turns = [(claim.lo / claim.weight, claim.weight) for claim in apart]
    turns += [(claim.hi / claim.weight, -claim.weight) for claim in apart]
    turns.sort()
    total: float = sum([claim.lo for claim in claims])
    level, slope = 0.0, 0.0
    for turn, change in turns:
        reached = total + slope * (turn - level)
        if slope > 0 and reached >= capacity:
            return level + (capacity - total) / slope
        total, level = reached, turn
        slope += change
    return level


def _rounded(share: float) -> float:
    whole = round(share)
    return float(whole) if abs(share - whole) < _NEAR * max(1.0, share) else share


class Part(msgspec.Struct, frozen=True, gc=False):
    """An exact share to be made whole.

    Args:
        share: the exact one.
        weight: above 0.
        held: its present slots: in a tie, the claimant that holds the slot in question goes first.
        order: precedence in a tie between claimants that both hold, or do not hold, the slot.
    """

    share: float
    weight: float
    held: int
    order: Tie


def make_whole(total: int, parts: Sequence[Part]) -> list[int]:
    """Divide ``total`` so that no claim is a whole slot away from its exact share.

    Each claim gets the floor of its exact share; the rest goes one by one to the smallest (a + 1/2) / weight, a being
    what the claimant has so far, and never above the ceiling of the exact share.

    Args:
        total: between the sum of all floors and the sum of all ceilings.
        parts: in any order; the numbers come in the same one.

    >>> make_whole(3, [Part(1.5, 1, 1, ("a",)), Part(1.5, 1, 2, ("b",))])
    [1, 2]
    """
    return round_shares(
        total,
        [part.share for part in parts],
        lambda place, size: deal_key(size, parts[place].weight, parts[place].held, parts[place].order),
    )


def round_shares(total: int, shares: Sequence[float], rank: Callable[[int, int], Rank]) -> list[int]:
    """Do as `make_whole` does. A pool may have thousands of claims with whole shares, for which this makes no `Part`.

    Args:
        total: as for `make_whole`.
        shares: the exact ones.
        rank: returns the `deal_key` of a claim from its place and the slots that it has so far.
    """
    sizes = [math.floor(share) for share in shares]
    rest = total - sum(sizes)
    if rest <= 0:
        return sizes
    split = [place for place, share in enumerate(shares) if share > sizes[place]]
    # No claim can get two: the ceiling is one above the floor.
    split.sort(key=lambda place: rank(place, sizes[place]))
    for place in split[:rest]:
        sizes[place] += 1
    return sizes


def deal_key(size: int, weight: float, held: int, order: _Tie) -> tuple[float, bool, _Tie]:
    """Rank a claimant that has ``size`` for the next slot: the smallest gets it. The arguments are those of `Part`."""
    return ((size + 0.5) / weight, held <= size, order)
