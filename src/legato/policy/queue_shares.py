"""Computes the share of each queue, and the slots that its jobs could use. Assigns nothing."""

from __future__ import annotations

import msgspec

from legato.policy.claims import sort_snapshot
from legato.policy.recent_use import share_by_weight
from legato.policy.rules import Rules
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
    if rules.policy.is_fair:
        fair = share_by_weight({name: pool.queues[name] for name in names}, pool.capacity)
    return tuple(QueueShare(queue=name, fair=fair.get(name), wanted=wanted[name]) for name in names)
