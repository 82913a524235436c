"""The policies: a snapshot in, one decision with its reason per job out. Pure: no I/O, clock, randomness or memory.

The cycle, each step in a module of its own:

1. `claims`, `kinds`: sort the snapshot, in an order that does not depend on how it came, and divide it by kind of
   machine.
2. `scarce`, `admission`, `sizing`: compute the target of every job from scratch.
3. `moves`: plan which slots the jobs would have in the end. If a target cannot be placed, `bottlenecks` lowers
   limits, and step 2 is repeated. Then `trials` lets some jobs try other numbers of workers.
4. `steadiness`: decide how much of the change is made now.
5. `place`: choose the slots.
6. `reasons`: explain the decisions.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from legato.policy.bottlenecks import decide_together
from legato.policy.causes import count
from legato.policy.claims import Claim, SortedSnapshot, find_room
from legato.policy.due import set_due
from legato.policy.kinds import divide, find_idle
from legato.policy.long_jobs import weigh_long_jobs
from legato.policy.place import place
from legato.policy.reasons import Explainer, choose_kind
from legato.policy.rules import Rules
from legato.policy.snapshot import Decision, Decisions, Snapshot, UseLevel
from legato.policy.steadiness import settle
from legato.policy.trials import end_trials, note_begun, try_numbers

_MAX_REPETITIONS: Final = 3


def decide(snapshot: Snapshot, rules: Rules) -> Decisions:
    """Decide which slots each job of a snapshot gets now, with a reason.

    The result does not depend on the order of the snapshot's parts. Carry the decisions out, pass ``wanted``,
    ``wanted_since``, ``trial`` and ``num_trials`` back, and decide again: if nothing else happens, decisions soon stay
    the same.

    Args:
        snapshot: the pool at this moment.
        rules: the policy and its settings.
    """
    pools, moments = decide_by_kind(end_trials(snapshot, rules), rules)
    claims: list[Claim] = []
    made: dict[str, Decision] = {}
    for pool in pools:
        explainer = Explainer(pool, rules)
        claims += pool.claims
        made.update({claim.job.id: _decide_one(claim, pool, explainer) for claim in pool.claims})
    claims.sort(key=operator.attrgetter("age_order"))
    if rules.reserve_after_s is not None:
        moments += [claim.job.submitted_at + rules.reserve_after_s for claim in claims if claim.refusal is not None]
    again_at = min((moment for moment in moments if moment is not None and moment > snapshot.now), default=None)
    return Decisions(
        decisions=tuple([made[claim.job.id] for claim in claims]),
        summary=_sum_up(pools),
        decide_again_at=again_at,
        use_levels=_list_levels(pools[0]),
    )


def _list_levels(pool: SortedSnapshot) -> tuple[UseLevel, ...]:
    return tuple(UseLevel(queue=queue, user=user, level=level) for (queue, user), level in sorted(pool.levels.items()))


def _decide_on_all(pools: Sequence[SortedSnapshot], rules: Rules) -> list[float | None]:
    """Decide on the slots of all kinds of machines; return when the decisions change without other news."""
    moments: list[float | None] = []
    spare: dict[str, int] = {}
    for pool in pools:
        # Slots below a queue's ceiling that its jobs cannot use on one kind of machine may be used on the next one.
        pool.elsewhere = {name: number - spare.get(name, 0) for name, number in pool.elsewhere.items()}
        moments.append(_decide_on(pool, rules))
        if pool.elsewhere:
            room = find_room(pool)
            spare.update({name: max(room[name], 0) for name in pool.elsewhere})
    return moments


def decide_by_kind(snapshot: Snapshot, rules: Rules) -> tuple[list[SortedSnapshot], list[float | None]]:
    """Choose a kind of machine for each job, and decide on the slots of each kind.

    Jobs that wait get another kind of which slots are idle, and all is decided again, as far as that lets more of the
    jobs run.

    Returns:
        The kinds with their claims, and when the decisions change without other news.
    """
    pools = divide(snapshot, rules)
    moments = _decide_on_all(pools, rules)
    for _ in range(_MAX_REPETITIONS if len(pools) > 1 else 0):
        found = find_idle(pools)
        if not found:
            break
        kinds = {claim.job.id: pool.kind for pool in pools for claim in pool.claims}
        others = divide(snapshot, rules, kinds | found)
        then = _decide_on_all(others, rules)
        if not _list_waiting(others) < _list_waiting(pools):
            break
        pools, moments = others, then
    return pools, moments


def _list_waiting(pools: Sequence[SortedSnapshot]) -> set[str]:
    return {claim.job.id for pool in pools for claim in pool.claims if not claim.target}


def _decide_on(pool: SortedSnapshot, rules: Rules) -> float | None:
    """Decide on the slots of one kind of machine; return when the decision changes without other news."""
    weigh_long_jobs(pool, rules)
    if rules.policy.is_fair and rules.fair_finish_s is not None:
        set_due(pool)
    plan = try_numbers(pool, decide_together(pool, rules), rules)
    moments = [settle(pool, plan, rules), *place(pool, plan, rules), note_begun(pool)]
    return min((moment for moment in moments if moment is not None), default=None)


def _decide_one(claim: Claim, pool: SortedSnapshot, explainer: Explainer) -> Decision:
    kind = choose_kind(claim)
    cause = explainer.explain(claim, kind)
    slots = sorted([slot.id for slot in claim.slots])
    return Decision(
        job=claim.job.id,
        slots=tuple(slots),
        kind=kind,
        reason=cause.text,
        wanted=claim.target,
        wanted_since=claim.since,
        share=claim.share,
        because=cause.because,
        due=claim.due,
        behind=claim.behind,
        ceiling=explainer.find_ceiling(claim),
        workers=_list_workers(claim) if claim.job.gpus_per_worker > 1 else (),
        machine_kind=pool.kind if slots else None,
        trial=claim.trial,
        num_trials=claim.num_trials,
    )


def _list_workers(claim: Claim) -> tuple[tuple[str, ...], ...]:
    workers = claim.list_workers()
    if claim.new_workers:
        new = {slot.id for slots in claim.new_workers for slot in slots}
        workers = [*(slots for slots in workers if slots[0].id not in new), *claim.new_workers]
    return tuple(sorted([tuple(sorted([slot.id for slot in slots])) for slots in workers]))


def _sum_up(pools: Sequence[SortedSnapshot]) -> str:
    claims = [claim for pool in pools for claim in pool.claims]
    num_running = sum(claim.size > 0 for claim in claims)
    held = sum(claim.size for claim in claims)
    num_waiting = len(claims) - num_running
    leaving = sum(number for pool in pools for _, number in pool.leaving)
    has = f"1 job has {held}" if num_running == 1 else f"{num_running} jobs have {held}"
    wait = "1 job waits" if num_waiting == 1 else f"{num_waiting} jobs wait"
    freed = f", {leaving} {'is' if leaving == 1 else 'are'} being freed" if leaving else ""
    return f"{has} of {count(sum(pool.capacity for pool in pools))}{freed}; {wait}"
