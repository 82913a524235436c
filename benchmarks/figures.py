"""Summaries of repeated measurements. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple


class Summary(NamedTuple):
    """What is kept of many values of one kind.

    Args:
        median: of them.
        low: first quartile.
        high: third quartile.
        worst: the largest.
        number: how many there were.
    """

    median: float
    low: float
    high: float
    worst: float
    number: int

    def to_plain(self) -> dict[str, float]:
        """Return it as JSON wants it, in few digits."""
        return {name: float(f"{value:.5g}") for name, value in self._asdict().items()}


def summarize(values: Sequence[float]) -> Summary:
    """Sum up at least one value.

    >>> summarize([4.0, 1.0, 2.0, 3.0])
    Summary(median=2.5, low=1.5, high=3.5, worst=4.0, number=4)
    """
    ordered = sorted(values)
    half = len(ordered) // 2
    return Summary(
        median=statistics.median(ordered),
        low=statistics.median(ordered[: half or 1]),
        high=statistics.median(ordered[-(half or 1) :]),
        worst=ordered[-1],
        number=len(ordered),
    )


def plain(values: Sequence[float]) -> dict[str, Any]:
    """Sum values up and return the summary as JSON wants it."""
    return summarize(values).to_plain()
