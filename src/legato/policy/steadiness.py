"""Which part of a change is made now: starts at once; growth and fairness only after a while.

Sets the next size of every claim, between what it holds and its target. A slot that is being given back counts in the
target but is not free: the loss of one job and the gain of another are two decisions, the second one made when the slot
is free. Chooses no slots.
"""

from __future__ import annotations

from collections.abc import Sequence

from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.rules import Rules
from legato.policy.sizes import fit_size

Need = tuple[Claim, int]


def settle(pool: SortedSnapshot, rules: Rules) -> float | None:
    """Set the size of every claim for now, and who gives to whom.

    Returns:
        The next moment at which time alone changes something; None if there is none.
    """
    for claim in pool.claims:
        claim.size = claim.held if claim.frozen else _tolerable(claim)
        _keep_time(claim, rules, pool.now)
    moving = [claim for claim in pool.claims if claim.target != claim.held]
    shrunk = sum(claim.held - claim.size for claim in moving)
    starting = [(claim, claim.target - claim.held) for claim in moving if claim.held < claim.lo <= claim.target]
    growing = [
        (claim, claim.target - claim.held)
        for claim in moving
        if claim.lo <= claim.held < claim.target and claim.ready_at <= pool.now and not claim.frozen
    ]
    shrinkable = [claim for claim in moving if claim.target < claim.held and not claim.frozen]
    shrinkable.sort(key=lambda claim: _worth(claim, pool.now))
    coming = sum(number for _, number in pool.leaving)
    supply = len(pool.free) + coming
    needed = sum(number for _, number in starting)
    shrunk += _shrink(shrinkable, needed - supply - shrunk)
    ready = [claim for claim in shrinkable if claim.ready_at <= pool.now]
    needed += sum(number for _, number in growing)
    shrunk += _shrink(ready, needed - supply - shrunk)
    # Slots that no job can use are given back: a slot that does not help, or one above a ceiling.
    over = sum(claim.size - claim.target for claim in shrinkable)
    wanted = sum(claim.target - claim.held for claim in moving if claim.target > claim.held)
    shrunk += _shrink(ready, over - max(wanted - supply - shrunk, 0))
    _match(pool, [*starting, *growing], shrinkable)
    waits = _give(pool, [*starting, *growing], coming + shrunk, rules)
    waits += [claim.ready_at for claim in moving if claim.ready_at > pool.now and claim.size == claim.held > 0]
    return min(waits, default=None)


def _tolerable(claim: Claim) -> int:
    """Return how much of what it holds a job may keep for the moment."""
    if claim.held < claim.lo and not claim.target:
        # It does not train with so few, and more are not to be had.
        return 0
    most = min(claim.held, claim.job.max_workers)
    if claim.target >= most:
        return most
    # A slot that does not make a step faster is of no use to it, however short it has held it.
    return max(fit_size(claim.job, most), claim.target)


def _keep_time(claim: Claim, rules: Rules, now: float) -> None:
    """Note since when a claim's target is where it is, and when it may be resized for it."""
    job = claim.job
    if claim.target == claim.held:
        return
    same = job.wanted is not None and (job.wanted > claim.held) is (claim.target > claim.held)
    claim.since = job.wanted_since if same and job.wanted != claim.held and job.wanted_since is not None else now
    claim.ready_at = claim.since + rules.stability_s
    if job.last_resized_at is not None:
        cooled_at = job.last_resized_at + rules.cooldown_factor * (job.resize_cost_s or 0.0)
        claim.ready_at = max(claim.ready_at, cooled_at)


def _worth(claim: Claim, now: float) -> tuple[bool, bool, int, float, float, str]:
    """Rank those who have too much: who loses first comes first."""
    job = claim.job
    over = (claim.held - claim.share) / job.priority
    return (claim.target == 0, claim.ready_at > now, job.priority, -over, -job.submitted_at, job.id)


def _shrink(shrinkable: Sequence[Claim], missing: int) -> int:
    """Shrink claims, one after the other, until so many slots are freed; return how many are.

    No job loses more than is missing: the rest of the way to the target only makes shares fairer.
    """
    freed = 0
    for claim in shrinkable:
        if freed >= missing:
            break
        size = max(fit_size(claim.job, claim.size - (missing - freed)), claim.target)
        freed += claim.size - size
        claim.size = size
    return freed


def _match(pool: SortedSnapshot, needs: Sequence[Need], shrinkable: Sequence[Claim]) -> None:
    """Note who waits for whose slots: free ones first, then those on their way, then those given up now."""
    supply: list[tuple[Claim | None, int]] = [
        *pool.leaving,
        *((claim, claim.held - claim.size) for claim in shrinkable if claim.size < claim.held),
    ]
    left = len(pool.free)
    sources = iter(supply)
    source, number = next(sources, (None, 0))
    for claim, need in needs:
        claim.from_free = min(left, need)
        left -= claim.from_free
        missing = need - claim.from_free
        while missing and number:
            part = min(missing, number)
            if source not in claim.gains_from:
                claim.gains_from += (source,)
            claim.from_others += part
            if source is not None and source.size < source.held and claim not in source.gives_to:
                source.gives_to += (claim,)
            missing -= part
            number -= part
            if not number:
                source, number = next(sources, (None, 0))


def _give(pool: SortedSnapshot, needs: Sequence[Need], coming: int, rules: Rules) -> list[float]:
    """Hand free slots to those who need them, in order; return the moments at which patience with the rest ends.

    Who cannot use yet what is there for it keeps it from those after it: the rest is on its way.
    """
    left = len(pool.free)
    waits = []
    for claim, need in needs:
        if left <= 0:
            break
        if claim.frozen or (claim.leaving and not claim.held):
            # Its last workers must be gone before it starts again.
            left -= min(left, need)
            continue
        size = claim.target if need <= left else fit_size(claim.job, claim.held + left)
        if size < claim.target and coming and size > claim.held:
            assert claim.since is not None
            begun = claim.since if claim.held < claim.lo else claim.ready_at
            if pool.now < begun + rules.gather_s:
                waits.append(begun + rules.gather_s)
                size = claim.held
        claim.size = max(size, claim.held)
        left -= min(left, need)
    return waits
