"""Lets a job try another number of workers for a while, so that its speed is measured. Moves no slots out of a group.

Without a second measured number of workers, a job counts as one that every worker helps. Two such jobs would share
equally for good, although one of them may gain nothing from its last worker. So one of them lends a few workers to the
other, until both have measured: two jobs of each group at a time, and only where slots are short. Targets are computed
without trials first, and a job tries another number only while its target is the one number that it has measured. So a
trial ends with its measurement, or when the target changes, and no job tries back and forth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from legato.policy.claim_sizes import rank
from legato.policy.claims import Claim
from legato.policy.curves import is_measured
from legato.policy.sizes import fit_size, next_size

MAX_TRIALS: Final = 3
"""A job begins no more trials: jobs that come and go may have ended those before their measurement."""
_PART: Final = 4  # a trial adds or removes a quarter of the workers, because the speeds of neighbours differ too little


def try_numbers(groups: Iterable[Sequence[Claim]]) -> None:
    """Change the targets of claims that try another number of workers, at most two in each group.

    Args:
        groups: claims that share slots by speed, in order of precedence, with their targets.
    """
    for group in groups:
        wanting = [claim for claim in group if claim.target < claim.hi]
        if len(group) > 1 and wanting:
            curious = [claim for claim in group if _is_curious(claim)]
            if curious and not _lend(curious):
                _give_up_some(curious, wanting)


def _is_curious(claim: Claim) -> bool:
    """Whether a claim trains with the only number of workers that it has measured, and may begin a trial."""
    job = claim.job
    if not job.elastic or not claim.held or not job.speeds or is_measured(job):
        return False
    num_workers = claim.target // job.gpus_per_worker
    if all(speed.num_workers != num_workers for speed in job.speeds):
        return False
    return job.is_trial or job.num_trials < MAX_TRIALS


def _lend(curious: Sequence[Claim]) -> bool:
    """Let one claim lend slots to another, those first that do so already. Returns whether there are such claims."""
    givers = sorted(curious, key=lambda claim: claim.held >= claim.target)
    for taker in sorted(curious, key=lambda claim: claim.held <= claim.target):
        more = _find_more(taker)
        if more is None:
            continue
        for giver in givers:
            number = more - taker.target
            less = _find_less(giver, number)
            if giver is not taker and less is not None and giver.target - less == number:
                _try(taker, more)
                _try(giver, less)
                return True
    return False


def _give_up_some(curious: Sequence[Claim], wanting: Sequence[Claim]) -> None:
    """Let a claim try fewer workers if others can use all slots that it leaves."""
    for giver in sorted(curious, key=lambda claim: claim.held >= claim.target):
        less = _find_less(giver, _step(giver))
        if less is None:
            continue
        others = [claim for claim in wanting if claim is not giver]
        targets = _hand_on(others, giver.target - less)
        if targets is not None:
            for claim, target in zip(others, targets, strict=True):
                claim.target = target
            _try(giver, less)
            return


def _hand_on(claims: Sequence[Claim], num_slots: int) -> list[int] | None:
    """Return the targets of claims after they have got all these slots. None: they cannot use all of them."""
    before = [claim.target for claim in claims]
    growing = list(claims)
    while num_slots and growing:
        claim = min(growing, key=rank)
        larger = next_size(claim.job, claim.target)
        if larger is None or larger > claim.hi or larger - claim.target > num_slots:
            growing.remove(claim)
            continue
        num_slots -= larger - claim.target
        claim.target = larger
    after = [claim.target for claim in claims]
    for claim, target in zip(claims, before, strict=True):
        claim.target = target
    return None if num_slots else after


def _try(claim: Claim, size: int) -> None:
    claim.target, claim.share, claim.is_trial = size, float(size), True


def _step(claim: Claim) -> int:
    each = claim.job.gpus_per_worker
    return max(claim.target // each // _PART, 1) * each


def _find_more(claim: Claim) -> int | None:
    """Return the larger number of slots that a claim would try; None: it can have no more."""
    size = fit_size(claim.job, min(claim.target + _step(claim), claim.hi))
    more = size if size > claim.target else next_size(claim.job, claim.target)
    return more if more is not None and more <= claim.hi else None


def _find_less(claim: Claim, number: int) -> int | None:
    """Return the slots of a claim that tries that many fewer; None: it would lose more than half, or its minimum."""
    less = fit_size(claim.job, claim.target - number)
    return less if max(claim.lo, claim.target / 2) <= less < claim.target else None
