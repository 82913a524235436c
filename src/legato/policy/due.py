"""Computes the slots that are due to every job if slots were divisible. Assigns nothing.

This is the job's weighted share between 0 and its largest useful size, independent of its minimum. A request for more
than the share does not increase it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from legato.policy.admission import usable_floors
from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.share import Bounds, share_out


def set_due(pool: SortedSnapshot) -> None:
    """Set the due slots of every claim: queues share first, then their users, then the jobs of each."""
    inside: dict[str, list[Claim]] = {}
    for claim in pool.claims:
        inside.setdefault(claim.job.queue, []).append(claim)
    floors = usable_floors(pool.claims, pool.queues, pool.capacity)
    names = sorted(inside)
    bounds = []
    for name in names:
        queue, wanted = pool.queues[name], sum(claim.hi for claim in inside[name])
        most = wanted if queue.ceiling is None else min(queue.ceiling, wanted)
        bounds.append(Bounds(queue.weight, min(floors.get(name, 0), most), most))
    for name, share in zip(names, share_out(pool.capacity, bounds), strict=True):
        if pool.by_user:
            _share_by_user(inside[name], share, pool.levels)
        else:
            _share(inside[name], share)


def _share_by_user(claims: Sequence[Claim], share: float, levels: Mapping[tuple[str, str], int]) -> None:
    own: dict[tuple[str, str], list[Claim]] = {}
    for claim in claims:
        own.setdefault((claim.job.queue, claim.job.owner), []).append(claim)
    bounds = [Bounds(0.5 ** levels.get(key, 0), 0, sum(claim.hi for claim in inside)) for key, inside in own.items()]
    for inside, part in zip(own.values(), share_out(share, bounds), strict=True):
        _share(inside, part)


def _share(claims: Sequence[Claim], share: float) -> None:
    shares = share_out(share, [Bounds(claim.weight, 0, claim.hi) for claim in claims])
    for claim, due in zip(claims, shares, strict=True):
        claim.due = due
