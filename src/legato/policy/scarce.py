"""Shares slots that only some jobs need: on nodes with labels, or in whole workers of several GPUs. Places nothing.

If jobs that need such slots want more of them than there are, these slots are divided among those jobs first, in the
same way as the whole pool. The result is the most that each of them can have when the whole pool is divided.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from legato.policy.causes import count, explain_needs, ids, names
from legato.policy.claims import Claim, Needs, SortedSnapshot
from legato.policy.rules import Rules
from legato.policy.sizing import decide_targets


def share_scarce(pool: SortedSnapshot, rules: Rules) -> None:
    """Lower the limits of claims that together want more slots of some sort than there are.

    Args:
        pool: the slots of one kind of machine.
        rules: the policy and its settings.
    """
    refused_by: dict[str, list[Claim]] = {}
    for claim in pool.claims:
        for node in claim.job.refusals:
            refused_by.setdefault(node, []).append(claim)
    guests = [claim for claim in pool.claims if claim.job.owner not in claim.owners]
    by_owner: dict[str, list[Claim]] = {}
    for claim in pool.claims:
        if claim.job.owner in claim.owners:
            by_owner.setdefault(claim.job.owner, []).append(claim)
    for needs, room in sorted(pool.rooms.items(), key=lambda item: (item[1], item[0][:3], item[0][3] or "")):
        each, labels, refused, owner = needs[0], set(needs[1]), set(needs[2]), needs[3]
        # A pool may have thousands of jobs, hundreds of users with machines, and hundreds of jobs with refusals.
        some = min((refused_by[node] for node in refused), key=len) if refused else pool.claims
        if owner is not None and not refused:
            some = sorted(guests + by_owner.get(owner, []), key=lambda claim: claim.order)
        group = [
            claim
            for claim in some
            if claim.job.gpus_per_worker >= each
            and labels <= claim.job.labels.items()
            and refused <= claim.job.refusals.keys()
            and (owner is None or claim.job.owner == owner or claim.job.owner not in claim.owners)
            and claim.hi >= claim.lo
        ]
        if sum(claim.hi for claim in group) > room:
            part = msgspec.structs.replace(pool, claims=group, capacity=room, free=[], leaving=[], coming=[])
            decide_targets(part, rules)
            for claim in group:
                _limit(claim, group, needs, room)


def _limit(claim: Claim, group: Sequence[Claim], needs: Needs, room: int) -> None:
    if claim.target >= claim.hi:
        return
    claim.hi = claim.target
    others = [other for other in group if other is not claim]
    if claim.target:
        claim.limit = f"its share of the {count(room)} for {explain_needs(needs)}"
        claim.limit += f", with {names(others, len(others))}" if others else ""
    else:
        go = "goes" if len(others) == 1 else "go"
        claim.limit = f"its kind of machine has {count(room)} for {explain_needs(needs)}"
        claim.limit += f", and {names(others, len(others))} {go} first" if others else ""
    claim.limit_because = ids(others)
