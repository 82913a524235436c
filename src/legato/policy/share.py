"""Weighted max-min shares with bounds, and their whole numbers. Pure arithmetic; knows neither jobs nor queues.

For a capacity C and claims of weight w with bounds lo <= hi there is one level R at which the shares clip(R w, lo, hi)
add up to min(C, sum of hi). One sweep over the sorted levels at which shares begin and stop rising finds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

# Shares closer to a whole number than this count as that number: they differ by rounding errors only.
_NEAR: Final = 1e-9

Tie = tuple[float | str, ...]


class Bounds(NamedTuple):
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
    if not claims:
        return []
    if capacity >= sum(claim.hi for claim in claims):
        return [float(claim.hi) for claim in claims]
    level = _find_level(capacity, claims)
    fixed, rising = 0, 0.0
    for weight, lo, hi in claims:
        if level * weight <= lo:
            fixed += lo
        elif level * weight >= hi:
            fixed += hi
        else:
            rising += weight
    # Computed again from the claims that matter, without the rounding errors of the sweep.
    left = capacity - fixed
    return [
        float(lo) if level * weight <= lo else float(hi) if level * weight >= hi else _rounded(weight * left / rising)
        for weight, lo, hi in claims
    ]


def _find_level(capacity: float, claims: Sequence[Bounds]) -> float:
    """Return the level at which the clipped shares add up to the capacity, which is below the sum of all ``hi``."""
    turns = [(lo / weight, weight) for weight, lo, hi in claims if hi > lo]
    turns += [(hi / weight, -weight) for weight, lo, hi in claims if hi > lo]
    turns.sort()
    total: float = sum(claim.lo for claim in claims)
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


class Part(NamedTuple):
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
    sizes = [math.floor(part.share) for part in parts]
    rest = total - sum(sizes)
    if rest <= 0:
        return sizes
    split = [index for index, part in enumerate(parts) if part.share > sizes[index]]
    # No claim can get two: the ceiling is one above the floor.
    split.sort(key=lambda index: deal_key(sizes[index], *parts[index][1:]))
    for index in split[:rest]:
        sizes[index] += 1
    return sizes


def deal_key(size: int, weight: float, held: int, order: Tie) -> tuple[float, bool, Tie]:
    """Rank a claimant that has ``size`` for the next slot: the smallest gets it. The arguments are those of `Part`."""
    return ((size + 0.5) / weight, held <= size, order)
