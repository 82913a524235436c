"""The share of each queue, and the number of slots that its jobs could use. Assigns nothing; knows no job by name."""

from __future__ import annotations

import msgspec

from legato.policy.admission import fit_floors
from legato.policy.claims import sort_snapshot
from legato.policy.rules import Policy, Rules
from legato.policy.share import Bounds, share_out
from legato.policy.snapshot import Snapshot


class QueueShare(msgspec.Struct, frozen=True, kw_only=True):
    """A queue's part.

    Args:
        queue: its name.
        fair: slots that it has when every queue wants all it can get: in proportion to the weights, between floor and
            ceiling. None: the policy does not divide by weight.
        wanted: slots that its jobs could use.
    """

    queue: str
    fair: float | None
    wanted: int


def share_queues(snapshot: Snapshot, rules: Rules) -> tuple[QueueShare, ...]:
    """Return each queue's part, by name.

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
