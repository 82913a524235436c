"""Finds from measured speeds with how many workers a job is too slow. Pure arithmetic; knows no job and no slot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from legato.core.speed import FORGET_S, Speed

MARGIN: Final = 0.05
"""A number of workers counts as slower if it is by this part; smaller differences are noise."""


class Slowdown(msgspec.Struct, frozen=True, gc=False):
    """A job was slower with more workers than with fewer.

    Args:
        best: the number of workers with which it was fastest.
        slower: the smallest larger number that counts as slower.
        most: the number of workers that the job may have: half of the way, so that the right one is found in few steps.
    """

    best: int
    slower: int
    most: int


def find_slowdown(speeds: Iterable[Speed], min_workers: int, now: float) -> Slowdown | None:
    """Return from which number of workers on a job was slower; None: it was not, as far as is known.

    For each number of workers, the machines count on which it was fastest; numbers below the minimum do not count. The
    smallest slower number is tried again when its measurement is old.

    Args:
        speeds: that were measured for long enough, in any order.
        min_workers: of the job.
        now: seconds since 1970.

    >>> def measured(*speeds, at=0.0):
    ...     return [
    ...         Speed(num_workers=number, num_nodes=1, samples_per_s=speed, measured_s=60.0, at=at)
    ...         for number, speed in speeds
    ...     ]
    >>> find_slowdown(measured((8, 9.0), (2, 10.0), (1, 6.0)), 1, now=60.0)
    Slowdown(best=2, slower=8, most=5)
    >>> find_slowdown(measured((1, 6.0), (2, 5.9)), 1, now=60.0)
    >>> find_slowdown([*measured((2, 10.0), (3, 9.0)), *measured((8, 9.0))], 1, now=3600.0)
    Slowdown(best=2, slower=8, most=5)
    """
    fastest = find_fastest(speed for speed in speeds if speed.num_workers >= min_workers)
    if len(fastest) < 2:
        return None
    best = max(fastest, key=lambda number: (fastest[number].samples_per_s, -number))
    limit = fastest[best].samples_per_s * (1 - MARGIN)
    slower = sorted(number for number in fastest if number > best and fastest[number].samples_per_s < limit)
    if slower and now - fastest[slower[0]].at >= FORGET_S:
        del slower[0]
    return Slowdown(best, slower[0], (best + slower[0]) // 2) if slower else None


def find_fastest(speeds: Iterable[Speed]) -> dict[int, Speed]:
    """Return the measured speed with each number of workers, on the machines on which it was fastest."""
    fastest: dict[int, Speed] = {}
    for speed in speeds:
        known = fastest.get(speed.num_workers)
        if known is None or speed.samples_per_s > known.samples_per_s:
            fastest[speed.num_workers] = speed
    return fastest
