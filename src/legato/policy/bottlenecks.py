"""Finds targets that cannot be placed, and lowers the limits of the jobs that compete for these slots. Places nothing.

This happens if labels, refusals or several GPUs per worker restrict jobs to some nodes, and `scarce` did not see it
because these jobs have no need in common.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from legato.policy.causes import MAX_NODES_NAMED, count, explain_needs, ids, list_some, names, without
from legato.policy.claim_sizes import rank
from legato.policy.claims import Claim, Limits, SortedSnapshot, find_room, ignore_holders, list_limits, set_limits
from legato.policy.crowds import Crowd, Flow
from legato.policy.free_slots import FreeSlots
from legato.policy.moves import Plan
from legato.policy.rooms import divide_room
from legato.policy.rules import Rules
from legato.policy.scarce import decide_all
from legato.policy.sizes import fit_size, next_size
from legato.policy.sizing import decide_targets
from legato.policy.snapshot import OWN_MACHINE, JobDemand

_MAX_REPETITIONS: Final = 9
_MAX_CUTS: Final = 30
"""Further repetitions, in which limits only become lower."""
_MAX_SHORT: Final = 8
"""While more slots are missing, no limits are given back, because repetitions are few."""


def decide_together(pool: SortedSnapshot, rules: Rules) -> Plan:
    """Set the target of every claim so that all targets can be placed together.

    Claims that together want more slots of some nodes than these have, and that can use no others, divide them among
    themselves, in the same way as the whole pool; so none has more than its minimum while another waits for its own. If
    a claim that waits wins its minimum from others in this way and cannot be placed after all, the others get their
    limits back. After each change the targets are decided again, so that other jobs get the slots which these leave.

    If there are such claims, order alone decides ties. Otherwise a slot that passes from one of two equal claims to the
    other could make others divide slots, which then come back, without end.

    Args:
        pool: the slots of one kind of machine.
        rules: the policy and its settings.

    Returns:
        A plan of the targets.
    """
    before = list_limits(pool) if pool.rooms else {}
    decide_all(pool, rules)
    plan = _lower_limits(pool, rules, before)
    if before:
        plan = _use_rest(pool, plan, rules, before, are_wide=False)
        plan = _use_rest(pool, plan, rules, before, are_wide=True)
    return plan


def _lower_limits(pool: SortedSnapshot, rules: Rules, before: Limits) -> Plan:
    """Lower the limits of claims until all targets can be placed. ``before``: the limits without any division."""
    won: dict[str, Limits] = {}
    stopped: list[Claim] = []
    for repetition in range(_MAX_REPETITIONS + _MAX_CUTS):
        is_wide = any(claim.target and claim.job.gpus_per_worker > 1 for claim in pool.claims)
        plan = Plan(pool) if is_wide else None
        crowds = _make_flow(pool, plan).crowds
        if not crowds:
            plan = plan or Plan(pool)
            if not plan.list_short():
                return _explain_stopped(stopped, plan)
        if repetition >= _MAX_REPETITIONS:
            # Jobs outside a crowd get what it leaves and may be in the next one, so this could go on for long.
            won.clear()
            stopped += _stop_growth(pool)
        if before and any(claim.keeps for claim in pool.claims):
            ignore_holders(pool)
            set_limits(pool, before)
            decide_all(pool, rules)
            continue
        if crowds:
            _divide(pool, crowds, rules, won)
        elif plan is not None:
            _limit(pool, plan, won)
        decide_targets(pool, rules)
    return _explain_stopped(stopped, Plan(pool))


def _explain_stopped(stopped: Sequence[Claim], plan: Plan) -> Plan:
    for claim in stopped:
        claim.limit = claim.limit or explain_left(claim.job, plan.left)
    return plan


def _stop_growth(pool: SortedSnapshot) -> list[Claim]:
    """Limit claims that not every slot suits to their targets; return those that had less. `_use_rest` ends that."""
    stopped = [claim for claim in pool.claims if claim.is_picky and claim.target < claim.hi]
    for claim in stopped:
        claim.hi, claim.limit, claim.limit_because = claim.target, "", ()
    return stopped


def _make_flow(pool: SortedSnapshot, plan: Plan | None, limited: Sequence[Claim] = ()) -> Flow:
    """Return how targets fit beside the slots of static jobs that run and the planned workers of several GPUs.

    Args:
        pool: with targets set.
        plan: of the targets; needed if claims have several GPUs per worker.
        limited: claims that may get more than their target.
    """
    wanted = {claim.job.id: 0 for claim in limited}
    taken = Counter[str]()
    for claim in pool.claims:
        if not claim.target:
            continue
        if claim.job.gpus_per_worker > 1:
            assert plan is not None
            taken.update([slot.node for slot in plan.find_slots(claim)])
            continue
        number = claim.target
        if not claim.job.elastic and claim.held and claim.held <= number:
            taken.update([slot.node for slot in claim.slots])
            number -= claim.held
        if number and claim.is_picky:
            wanted[claim.job.id] = number
    return Flow(pool, wanted, taken)


def _use_rest(pool: SortedSnapshot, plan: Plan, rules: Rules, before: Limits, *, are_wide: bool) -> Plan:
    """Let claims have slots from which only lower limits keep them, if no other claim uses these.

    Slots are left if a job has a share of the slots of some nodes and cannot use it, because its whole minimum does not
    fit, or no useful size.

    Args:
        pool: with targets set.
        plan: of the targets.
        rules: the policy and its settings.
        before: the limits without any division.
        are_wide: whether these claims have several GPUs per worker. For them, no others move.

    Returns:
        A plan of the new targets.
    """
    unused = pool.capacity - sum([claim.target for claim in pool.claims])
    limited = [
        claim
        for claim in pool.claims
        if claim.hi < before[claim.job.id][0]
        and claim.target == (claim.hi if claim.hi >= claim.lo else 0)
        and (claim.job.gpus_per_worker > 1) is are_wide
    ]
    if not limited or unused <= 0:
        return plan
    find: Callable[[Claim, int], bool]
    if are_wide:
        find = partial(_find_in, plan.left)
    else:
        flow = _make_flow(pool, plan, limited)
        find, limited = flow.add, [claim for claim in limited if flow.can_add(claim)]
    lowered, sizes = list_limits(pool), [claim.target for claim in pool.claims]
    raised = _raise_limits(pool, limited, rules, before, find, unused)
    if not raised:
        return plan
    decide_targets(pool, rules)
    larger = Plan(pool)
    if larger.list_short() or any(claim.target < size for claim, size in zip(pool.claims, sizes, strict=True)):
        set_limits(pool, lowered)
        decide_targets(pool, rules)
        return plan
    for claim in raised:
        most, claim.limit, claim.limit_because = before[claim.job.id]
        if claim.hi < most:
            claim.limit, claim.limit_because = explain_left(claim.job, larger.left), ()
    return larger


def _raise_limits(
    pool: SortedSnapshot,
    limited: Sequence[Claim],
    rules: Rules,
    before: Limits,
    find: Callable[[Claim, int], bool],
    unused: int,
) -> list[Claim]:
    """Raise limits by slots that are left; return the claims.

    Args:
        pool: as for `_use_rest`.
        limited: claims that may get more.
        rules: the policy and its settings.
        before: as for `_use_rest`.
        find: says whether a claim can have so many more, and reserves these.
        unused: slots of the pool that no claim uses.
    """
    room = find_room(pool)
    raised: dict[str, Claim] = {}
    steps = [(_rank(claim, rules), claim) for claim in limited]
    heapq.heapify(steps)
    while steps and unused > 0:
        claim = heapq.heappop(steps)[1]
        larger = next_size(claim.job, claim.target) or 0
        more, queue = larger - claim.target, claim.job.queue
        is_useful = 0 < more <= min(unused, room[queue]) and larger <= before[claim.job.id][0]
        if is_useful and find(claim, more):
            claim.target = claim.hi = larger
            unused -= more
            room[queue] -= more
            raised[claim.job.id] = claim
            heapq.heappush(steps, (_rank(claim, rules), claim))
    return list(raised.values())


def _find_in(left: FreeSlots, claim: Claim, num_slots: int) -> bool:
    """Take slots for a claim, if so many are left."""
    taken = left.take(num_slots, claim.slots, claim.job)
    if len(taken) < num_slots:
        left.give(taken)
    return len(taken) == num_slots


def _rank(claim: Claim, rules: Rules) -> tuple[bool, tuple[float, bool, int], int]:
    """Rank a claim for slots that are left: in fair policies waiting ones go first, then those with the fewest."""
    if claim.target and rules.policy.is_fair:
        return True, rank(claim), claim.order
    return False, (0.0, False, 0), claim.order


def _divide(pool: SortedSnapshot, crowds: Sequence[Crowd], rules: Rules, won: dict[str, Limits]) -> None:
    """Let the claims of each crowd divide its slots. ``won``: limits before waiting claims won, by their job."""
    are_few = sum([crowd.wanted - crowd.room for crowd in crowds]) <= _MAX_SHORT
    if not are_few:
        won.clear()
    for crowd in crowds:
        before = list_limits(pool)
        _share(pool, crowd, rules)
        for claim in crowd.claims:
            if are_few and claim.target and not claim.held:
                won.setdefault(claim.job.id, before)
        if _give_back(pool, crowd.claims, won):
            break


def _limit(pool: SortedSnapshot, plan: Plan, won: dict[str, Limits]) -> None:
    """Limit claims that cannot be placed to what fits. A job with its minimum keeps that."""
    for claim in plan.list_short():
        claim.hi = max(fit_size(claim.job, plan.count_slots(claim)), fit_size(claim.job, claim.held))
        claim.limit = explain_left(claim.job, plan.left)
        if _give_back(pool, [claim], won):
            break


def _give_back(pool: SortedSnapshot, claims: Sequence[Claim], won: dict[str, Limits]) -> bool:
    """If one of some claims that won its minimum lost it again: set all other limits to those before it won."""
    lost = next((claim for claim in claims if claim.hi < claim.lo and claim.job.id in won), None)
    if lost is None:
        return False
    own = lost.hi, lost.limit, lost.limit_because
    set_limits(pool, {**won[lost.job.id], lost.job.id: own})
    won.clear()
    return True


def _share(pool: SortedSnapshot, crowd: Crowd, rules: Rules) -> None:
    """Divide the slots of some nodes among claims that can use no others; none gets more than it would have."""
    rivals, nodes, room = crowd.claims, crowd.nodes, crowd.room
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
