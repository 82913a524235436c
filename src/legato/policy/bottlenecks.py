"""Finds targets that cannot be placed, and lowers the limits of the jobs that compete for these slots. Places nothing.

This happens if labels, refusals or several GPUs per worker restrict jobs to some nodes, and `scarce` did not see it
because these jobs have no need in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from legato.policy.causes import MAX_NODES_NAMED, count, explain_needs, ids, list_some, names, without
from legato.policy.claims import Claim, Limits, SortedSnapshot, list_limits, set_limits
from legato.policy.free_slots import FreeSlots
from legato.policy.moves import Plan
from legato.policy.rooms import divide_room
from legato.policy.rules import Rules
from legato.policy.sizes import fit_size
from legato.policy.snapshot import OWN_MACHINE, JobDemand

_MAX_SHORT: Final = 8
"""While the targets of more claims cannot be placed, their limits are lowered first, because repetitions are few."""


def lower_limits(pool: SortedSnapshot, plan: Plan, rules: Rules, won: dict[str, Limits]) -> bool:
    """Lower the limits of claims whose targets cannot be placed although all other jobs have theirs.

    If other jobs that can use no other slots are the cause, they divide these slots among themselves, in the same way
    as the whole pool; so none has more than its minimum while another waits for its own. If a claim that waits wins its
    minimum from others in this way and cannot be placed after all, the others get their limits back. While many targets
    cannot be placed, they do not.

    Args:
        pool: with targets set.
        plan: of these targets.
        rules: the policy and its settings.
        won: the limits of all claims before a waiting one won its minimum, by its job; empty at first.

    Returns:
        Whether a limit was changed. Then decide the targets again, so that other jobs get these slots.
    """
    short = plan.list_short()
    are_few = len(short) <= _MAX_SHORT
    if not are_few:
        won.clear()
    done: set[str] = set()
    for claim in short:
        if claim.job.id in done:
            continue
        rivals, nodes, room = plan.find_rivals(claim, done)
        if rivals:
            before = list_limits(pool)
            _share(pool, rivals, nodes, room, rules)
            done.update(rival.job.id for rival in rivals)
            for rival in rivals:
                if are_few and rival.target and not rival.held:
                    won.setdefault(rival.job.id, before)
        else:
            # A job with its minimum keeps that.
            found = plan.count_slots(claim)
            claim.hi = max(fit_size(claim.job, found), fit_size(claim.job, claim.held))
            claim.limit = explain_left(claim.job, plan.left)
        lost = [one for one in rivals or [claim] if one.hi < one.lo and one.job.id in won]
        if lost:
            _give_back(pool, lost[0], won)
            break
    return bool(short)


def _give_back(pool: SortedSnapshot, claim: Claim, won: dict[str, Limits]) -> None:
    """Set the limits of all other claims to those that they had before a claim won its minimum."""
    own = claim.hi, claim.limit, claim.limit_because
    set_limits(pool, {**won[claim.job.id], claim.job.id: own})
    won.clear()


def _share(pool: SortedSnapshot, rivals: Sequence[Claim], nodes: Sequence[str], room: int, rules: Rules) -> None:
    """Divide the slots of some nodes among claims that can use no others; none gets more than it would have."""
    before = [claim.hi for claim in rivals]
    for claim in rivals:
        claim.hi = claim.target
    divide_room(pool, rivals, room, rules)
    for claim, hi in zip(rivals, before, strict=True):
        if claim.target == claim.hi:
            claim.hi = hi
            continue
        claim.hi = claim.target
        others, num_others = without(rivals, claim), len(rivals) - 1
        by = names(others, num_others)
        where = f"node{'' if len(nodes) == 1 else 's'} {list_some(nodes)}"
        if claim.target:
            claim.limit = f"its share of the {count(room)} of {where}, with {by}, which can use no others"
        else:
            go = "goes" if num_others == 1 else "go"
            claim.limit = f"it can use only {where}, with {count(room)}, and {by} {go} first"
        claim.limit_because = ids(others)


def explain_left(job: JobDemand, free: FreeSlots) -> str:
    """Explain why no more workers of a job fit, as a part of a sentence."""
    left = free.count_left(job)
    told = [f"node {node} has {number} left" for node, number in left[:MAX_NODES_NAMED]]
    if len(left) > MAX_NODES_NAMED:
        told.append(f"{len(left) - MAX_NODES_NAMED} other nodes have fewer than {job.gpus_per_worker} each")
    labels = tuple(sorted(job.labels.items()))
    nodes = f"nodes with {explain_needs((1, labels, (), None))}" if labels else "its nodes"
    if labels == (OWN_MACHINE,):
        nodes = explain_needs((1, labels, (), None))
    elif job.refusals and not labels:
        nodes = "other nodes"
    if free.has_of_others(job):
        owned = f"belong to no other user than {job.owner}"
        nodes = f"{nodes} that {owned}" if labels or job.refusals else f"machines that {owned}"
    rest = ", ".join(told) if told else f"{nodes} have none left"
    if job.gpus_per_worker > 1:
        return f"{job.gpus_per_worker} GPUs per worker: {rest}"
    return f"it needs slots of {nodes}, and there are no more for it"
