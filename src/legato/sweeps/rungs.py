"""Hyperband by whole trials: each trial is trained to a resource that it gets as a parameter, and the best ones again.

For programs whose metric is known only at their end. A bracket begins with many trials of a small resource; of each
rung, the best 1/factor are trained again, from their beginning, with factor times the resource. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from legato.api.sweeps import Pruning


class Rung(NamedTuple):
    """Trials with consecutive numbers and the same resource, in one bracket.

    Args:
        first: number of the first trial.
        size: number of trials.
        resource: that each trial is trained with.
        before: the rung from which the best trials come. None: the first rung of a bracket.
    """

    first: int
    size: int
    resource: int
    before: Rung | None


def list_rungs(pruning: Pruning) -> list[Rung]:
    """Return all rungs of the checked settings of Hyperband, in the order in which they run.

    >>> from legato.api.sweeps import PruningMethod
    >>> few = Pruning(method=PruningMethod.HYPERBAND, factor=3, max_resource=9, parameter="epochs")
    >>> [(rung.first, rung.size, rung.resource) for rung in list_rungs(few)]
    [(0, 9, 1), (9, 3, 3), (12, 1, 9), (13, 5, 3), (18, 1, 9), (19, 3, 9)]
    """
    most, factor = pruning.max_resource, pruning.factor
    assert most is not None, "the settings were checked"
    last = 0
    while most // factor ** (last + 1) >= pruning.min_resource:
        last += 1
    found: list[Rung] = []
    first = 0
    for bracket in range(last, -1, -1):
        before: Rung | None = None
        # Rounded up: (last + 1) / (bracket + 1) * factor**bracket.
        begin = -(-(last + 1) * factor**bracket // (bracket + 1))
        for step in range(bracket + 1):
            before = Rung(first, max(begin // factor**step, 1), most // factor ** (bracket - step), before)
            found.append(before)
            first += before.size
    return found


def count_trials(pruning: Pruning) -> int:
    """Return the number of trials of all rungs."""
    last = list_rungs(pruning)[-1]
    return last.first + last.size


def find_rung(pruning: Pruning, number: int) -> Rung:
    """Return the rung of a trial."""
    return next(rung for rung in list_rungs(pruning) if number < rung.first + rung.size)
