"""Figures over several workloads: means with their confidence intervals, and ratios to the first policy. Pure.

An interval is that of Student's t at 95 %, over the workloads: each workload counts as one observation, because the
times of jobs in one workload depend on one another. A ratio is that of the means, and its interval is paired (the ratio
estimator of survey sampling): what makes one workload harder than another for all policies does not widen it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from legato.sim.report import Report, list_figures

# Quantiles of Student's t for 97.5 %, by degrees of freedom from 1 on.
_T: Final = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Estimate(msgspec.Struct, frozen=True):
    """A mean over workloads.

    Args:
        mean: over the workloads that have the figure.
        margin: half of the width of its 95 % interval. None: with one workload there is none.
    """

    mean: float
    margin: float | None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one policy over all workloads; None where no workload has the figure.

    Args:
        policy: name of the scheme.
        num_workloads: number of workloads.
        num_jobs: of all workloads.
        num_unfinished: of these jobs.
        figures: by the names of `list_figures`.
        ratios: each mean divided by that of the first policy, over the workloads that have both figures.
    """

    policy: str
    num_workloads: int
    num_jobs: int
    num_unfinished: int
    figures: dict[str, Estimate | None]
    ratios: dict[str, Estimate | None]


def estimate(values: Sequence[float]) -> Estimate | None:
    """Return the mean of values and half of its 95 % interval; None if there are no values.

    >>> estimate([1.0, 2.0, 3.0])
    Estimate(mean=2.0, margin=2.4843...)
    >>> estimate([5.0])
    Estimate(mean=5.0, margin=None)
    """
    if not values:
        return None
    number, mean = len(values), statistics.fmean(values)
    if number == 1:
        return Estimate(mean, None)
    return Estimate(mean, find_quantile(number - 1) * statistics.stdev(values) / math.sqrt(number))


def estimate_ratio(values: Sequence[float], bases: Sequence[float]) -> Estimate | None:
    """Return the mean of values divided by that of their bases, and half of its 95 % interval; None without bases.

    >>> estimate_ratio([1.0, 2.0, 3.0], [2.0, 4.0, 6.0])
    Estimate(mean=0.5, margin=0.0)
    """
    total = math.fsum(bases)
    if not total:
        return None
    number, ratio = len(bases), math.fsum(values) / total
    if number == 1:
        return Estimate(ratio, None)
    squares = math.fsum((value - ratio * base) ** 2 for value, base in zip(values, bases, strict=True))
    error = math.sqrt(squares / (number - 1) / number) / abs(total / number)
    return Estimate(ratio, find_quantile(number - 1) * error)


def find_quantile(degrees: int) -> float:
    """Return the 97.5 % quantile of Student's t, to three decimals.

    >>> find_quantile(7), round(find_quantile(40), 3), round(find_quantile(1000), 3)
    (2.365, 2.021, 1.962)
    """
    if degrees <= len(_T):
        return _T[degrees - 1]
    # Cornish and Fisher's expansion around the normal quantile, which is exact enough for so many degrees.
    z = 1.959964
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


def summarize(reports: Sequence[Sequence[Report]]) -> list[Summary]:
    """Return the figures of each policy over all workloads.

    Args:
        reports: for each workload the reports of the same policies, in the same order.
    """
    rows = [[list_figures(report) for report in own] for own in reports]
    return [
        Summary(
            policy=first.policy,
            num_workloads=len(reports),
            num_jobs=sum(own[place].num_jobs for own in reports),
            num_unfinished=sum(own[place].num_unfinished for own in reports),
            figures=_estimate_each([own[place] for own in rows]),
            ratios=_compare_each([own[place] for own in rows], [own[0] for own in rows]),
        )
        for place, first in enumerate(reports[0])
    ]


def _estimate_each(rows: Sequence[Mapping[str, float | None]]) -> dict[str, Estimate | None]:
    found = {name: [row[name] for row in rows] for name in rows[0]}
    return {name: estimate([value for value in values if value is not None]) for name, values in found.items()}


def _compare_each(
    rows: Sequence[Mapping[str, float | None]], bases: Sequence[Mapping[str, float | None]]
) -> dict[str, Estimate | None]:
    found = {}
    for name in rows[0]:
        pairs = [(row[name], base[name]) for row, base in zip(rows, bases, strict=True)]
        both = [(value, base) for value, base in pairs if value is not None and base is not None]
        found[name] = estimate_ratio([value for value, _ in both], [base for _, base in both])
    return found
