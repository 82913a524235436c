"""The policies: a snapshot in, one decision with its reason per job out. Pure: no I/O, clock, randomness or memory.

The cycle, each step in a module of its own:

1. `claims`: sort the snapshot out, in an order that does not depend on how it came.
2. `admission`, `sizing`: compute the target of every job from scratch.
3. `steadiness`: decide how much of the change is made now.
4. `place`: choose the slots.
5. `reasons`: explain the decisions.
"""

from __future__ import annotations

import operator

from legato.policy.causes import count
from legato.policy.claims import Claim, SortedSnapshot, sort_snapshot
from legato.policy.due import set_due
from legato.policy.place import FreeSlots, place
from legato.policy.reasons import Explainer, choose_kind
from legato.policy.rules import Policy, Rules
from legato.policy.sizing import decide_targets
from legato.policy.snapshot import Decision, Decisions, Snapshot
from legato.policy.steadiness import settle


def decide(snapshot: Snapshot, rules: Rules) -> Decisions:
    """Decide which slots each job of a snapshot gets now, with a reason.

    The result does not depend on the order of the snapshot's parts. Carry the decisions out, pass ``wanted`` and
    ``wanted_since`` back, and decide again: if nothing else happens, decisions soon stay the same.

    Args:
        snapshot: the pool at this moment.
        rules: the policy and its settings.
    """
    pool = sort_snapshot(snapshot, rules)
    if rules.policy == Policy.FAIR and rules.fair_finish_s is not None:
        set_due(pool)
    decide_targets(pool, rules)
    again_at = settle(pool, rules)
    place(pool.claims, FreeSlots(pool.free))
    explainer = Explainer(pool, rules)
    claims = sorted(pool.claims, key=lambda claim: (claim.job.submitted_at, claim.job.id))
    decisions = tuple(_decide_one(claim, explainer) for claim in claims)
    moments = [again_at] if again_at is not None else []
    if rules.reserve_after_s is not None:
        moments += [claim.job.submitted_at + rules.reserve_after_s for claim in claims if claim.refusal is not None]
    again_at = min((moment for moment in moments if moment > snapshot.now), default=None)
    return Decisions(decisions=decisions, summary=_sum_up(pool), decide_again_at=again_at)


def _decide_one(claim: Claim, explainer: Explainer) -> Decision:
    kind = choose_kind(claim)
    reason, because = explainer.explain(claim, kind)
    slots = sorted(map(operator.attrgetter("id"), claim.slots))
    return Decision(
        job=claim.job.id,
        slots=tuple(slots),
        kind=kind,
        reason=reason,
        wanted=claim.target,
        wanted_since=claim.since,
        share=claim.share,
        because=because,
        due=claim.due,
        behind=claim.behind,
        ceiling=explainer.find_ceiling(claim),
    )


def _sum_up(pool: SortedSnapshot) -> str:
    num_running = sum(claim.size > 0 for claim in pool.claims)
    held = sum(claim.size for claim in pool.claims)
    num_waiting = len(pool.claims) - num_running
    leaving = sum(number for _, number in pool.leaving)
    has = f"1 job has {held}" if num_running == 1 else f"{num_running} jobs have {held}"
    wait = "1 job waits" if num_waiting == 1 else f"{num_waiting} jobs wait"
    freed = f", {leaving} {'is' if leaving == 1 else 'are'} being freed" if leaving else ""
    return f"{has} of {count(pool.capacity)}{freed}; {wait}"
