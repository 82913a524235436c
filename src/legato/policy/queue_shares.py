"""Computes the share of each queue, and the slots that its jobs could use. Assigns nothing."""

from __future__ import annotations

import msgspec

from legato.policy.admission import fit_floors
from legato.policy.claims import sort_snapshot
from legato.policy.rules import Policy, Rules
from legato.policy.share import Bounds, share_out
from legato.policy.snapshot import Snapshot


class QueueShare(msgspec.Struct, frozen=True, kw_only=True):
    """The share of a queue.

    Args:
        queue: its name.
        fair: its slots if every queue used all slots that it can get: in proportion to the weights, between floor and
            ceiling. None: the policy does not divide by weight.
        wanted: slots that its jobs could use.
    """

    queue: str
    fair: float | None
    wanted: int


def share_queues(snapshot: Snapshot, rules: Rules) -> tuple[QueueShare, ...]:
    """Return the share of each queue, by name.

    Args:
        snapshot: the pool at this moment.
        rules: the policy and its settings.
    """
    pool = sort_snapshot(snapshot, rules)
    wanted = dict.fromkeys(pool.queues, 0)
    for claim in pool.claims:
        wanted[claim.job.queue] += claim.hi
    names = sorted(pool.queues)
    fair: dict[str, float] = {}
    if rules.policy == Policy.FAIR:
        floors = fit_floors({name: pool.queues[name].floor for name in names}, pool.queues, pool.capacity)
        bounds = []
        for name in names:
            queue = pool.queues[name]
            most = pool.capacity if queue.ceiling is None else min(queue.ceiling, pool.capacity)
            bounds.append(Bounds(queue.weight, min(floors[name], most), most))
        fair = dict(zip(names, share_out(pool.capacity, bounds), strict=True))
    return tuple(QueueShare(queue=name, fair=fair.get(name), wanted=wanted[name]) for name in names)
