"""Computes how much the recent use of slots reduces the weights of users. Measures nothing and knows no time.

A user whose recent use was an equal share of the queue, or more, has half the weight of one who used nothing; from two
equal shares on a quarter, and never less. So with n users in a queue, all of whom want more, each is entitled to at
least 1 / (4 n - 3) of the queue's slots, which is above a quarter of an equal share.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Final

from legato.policy.admission import fit_floors
from legato.policy.rules import Rules
from legato.policy.share import Bounds, share_out
from legato.policy.snapshot import Queue, Snapshot

MAX_LEVEL: Final = 2
_STICKY: Final = 0.5

Levels = dict[tuple[str, str], int]
"""How many times the weight of a user is halved, by queue and user; 0 is left out."""


def find_levels(snapshot: Snapshot, queues: Mapping[str, Queue], rules: Rules) -> Levels:
    """Return the levels of the users that have jobs.

    Args:
        snapshot: the whole pool.
        queues: all, by name, including those that only jobs name.
        rules: the policy and its settings.
    """
    if rules.usage_half_life_s is None:
        return {}
    sharers = Counter(queue for queue, _ in {(job.queue, job.owner) for job in snapshot.jobs})
    capacity = sum(slot.usable for slot in snapshot.slots)
    shares = share_by_weight({name: queues[name] for name in sharers}, capacity)
    levels: Levels = {}
    for use in snapshot.recent_use:
        if use.queue in sharers:
            level = find_level(use.num_slots, shares[use.queue] / sharers[use.queue], use.level)
            if level:
                levels[use.queue, use.user] = level
    return levels


def share_by_weight(queues: Mapping[str, Queue], capacity: int) -> dict[str, float]:
    """Return the slots of each queue if all of these used all slots that they can get: by weight, within bounds."""
    floors = fit_floors({name: queue.floor for name, queue in queues.items()}, queues, capacity)
    bounds = []
    for name, queue in queues.items():
        most = capacity if queue.ceiling is None else min(queue.ceiling, capacity)
        bounds.append(Bounds(queue.weight, min(floors[name], most), most))
    return dict(zip(queues, share_out(capacity, bounds), strict=True))


def find_level(num_slots: float, equal_share: float, before: int | None) -> int:
    """Return how many times the weight of a user is halved.

    Near a threshold, the level of the last decision is kept: so two users do not take slots from one another at short
    intervals, only after a part of the half-life. That holds while the equal share stays the same; users who come and
    go change it.

    Args:
        num_slots: recent use, in slots.
        equal_share: of the queue's slots.
        before: level of the last decision; None: there was none.

    >>> find_level(3.9, 4.0, None), find_level(4.0, 4.0, None), find_level(3.9, 4.0, 1), find_level(100, 4.0, None)
    (0, 1, 1, 2)
    """
    exact = num_slots / equal_share if equal_share > 0 else 0.0
    level = before if before is not None and before - _STICKY <= exact < before + 1 else math.floor(exact)
    return min(max(level, 0), MAX_LEVEL)
