"""Divides slots that only some claims can use among these, and limits them to what they get. Moves nothing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from legato.policy.causes import ids, names, without
from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.rules import Rules
from legato.policy.sizing import decide_targets


def divide_room(pool: SortedSnapshot, group: Sequence[Claim], room: int, rules: Rules) -> None:
    """Set the targets of claims as if they had these slots only."""
    # A pool may have hundreds of owners, each with a few jobs in a few of many queues.
    names = {claim.job.queue for claim in group}
    queues = {name: queue for name, queue in pool.queues.items() if name in names}
    part = msgspec.structs.replace(pool, claims=group, queues=queues, capacity=room, free=[], leaving=[], coming=[])
    decide_targets(part, rules)


def limit_all(claims: Sequence[Claim], group: Sequence[Claim], shared: str) -> None:
    """Limit claims to their targets.

    Args:
        claims: with targets set.
        group: these, and others that share with them.
        shared: the slots that they share, as a part of a sentence.
    """
    for claim in claims:
        if claim.target < claim.hi:
            claim.hi = claim.target
            claim.limit, claim.limit_because = _explain_limit(claim, group, shared)


def _explain_limit(claim: Claim, group: Sequence[Claim], shared: str) -> tuple[str, tuple[str, ...]]:
    """Explain why a claim has no more than its target of the slots that a group shares, and name the causes."""
    others, num_others = without(group, claim), len(group) - 1
    if claim.target:
        told = f"its share of the {shared}"
        told += f", with {names(others, num_others)}" if others else ""
    else:
        go = "goes" if num_others == 1 else "go"
        told = f"its kind of machine has {shared}"
        told += f", and {names(others, num_others)} {go} first" if others else ""
    return told, ids(others)
