"""Lets two jobs try other numbers of workers for a while, so that their speeds are measured. Moves no slots otherwise.

Without a second measured number of workers, a job counts as one that every worker helps. Two such jobs would share
equally for good, although one of them may gain nothing from its last worker. So one of them, the giver, lends a few
workers to the other, the taker. Both keep their numbers until both have measured, and at most `MAX_TRIAL_S`. Meanwhile
the new measurements do not count, so targets stay what they were. If a target changes for another reason, the trial
ends.

Only `legato.policy.policies` calls this, with the targets of a whole pool. Parts of a pool are divided without trials.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.curves import is_measured
from legato.policy.moves import Plan
from legato.policy.rules import Policy, Rules
from legato.policy.sizes import fit_size, next_size
from legato.policy.snapshot import JobDemand, Snapshot, Standing, Trial
from legato.policy.steadiness import find_cooled_at

MAX_TRIALS: Final = 2
"""A job begins no more trials: jobs that come and go may have ended those before their measurement."""
MAX_TRIAL_S: Final = 600.0
"""A trial lasts no longer. A job that has not measured its speed until then begins no other one."""
_PART: Final = 4  # a trial adds or removes a quarter of the workers, because the speeds of neighbours differ too little
_MAX_CONSIDERED: Final = 32  # claims of a group, so that the search for a pair is short

Pair = tuple[tuple[Claim, Trial], tuple[Claim, Trial]]


def end_trials(snapshot: Snapshot, rules: Rules) -> Snapshot:
    """Return the snapshot without trials that are over. What jobs have measured in the others is left out.

    A trial is over when both jobs have measured, when its time is over, when one of the two jobs has left or has
    forgotten the trial, and under other policies.

    Args:
        snapshot: with the trials of the last decision.
        rules: the policy and its settings.
    """
    if all(job.trial is None for job in snapshot.jobs):
        return snapshot
    by_id = {job.id: job for job in snapshot.jobs}
    jobs = (
        job if job.trial is None else _end_trial(job, job.trial, by_id.get(job.trial.partner), snapshot.now, rules)
        for job in snapshot.jobs
    )
    return msgspec.structs.replace(snapshot, jobs=tuple(jobs))


def _end_trial(job: JobDemand, trial: Trial, partner: JobDemand | None, now: float, rules: Rules) -> JobDemand:
    is_late = not 0 <= now - trial.since < MAX_TRIAL_S
    is_pair = partner is not None and partner.trial is not None and _fit_together(job, trial, partner, partner.trial)
    if rules.policy is not Policy.THROUGHPUT or partner is None or not is_pair:
        return msgspec.structs.replace(job, trial=None)
    if is_late:
        is_hopeless = trial.has_begun and not is_measured(job)
        return msgspec.structs.replace(job, trial=None, num_trials=MAX_TRIALS if is_hopeless else job.num_trials)
    if is_measured(job) and is_measured(partner):
        return msgspec.structs.replace(job, trial=None)
    before = tuple(one for one in job.speeds if one.num_workers * job.gpus_per_worker == trial.usual)
    return msgspec.structs.replace(job, speeds=before, slowdown=None)


def _fit_together(job: JobDemand, trial: Trial, partner: JobDemand, other: Trial) -> bool:
    return (
        (trial.partner, other.partner) == (partner.id, job.id)
        and trial.tried - trial.usual == other.usual - other.tried
        and (trial.since, trial.has_begun) == (other.since, other.has_begun)
    )


def try_numbers(pool: SortedSnapshot, plan: Plan, rules: Rules) -> Plan:
    """Let trials go on, and let at most one begin among the claims that share by speed. Changes targets.

    Args:
        pool: all slots of one kind of machine, with the targets without trials.
        plan: of these targets.
        rules: the policy and its settings.

    Returns:
        The plan of the targets with trials. A trial that cannot be placed is left out.
    """
    if rules.policy is not Policy.THROUGHPUT:
        return plan
    groups: dict[tuple[str, str], list[Claim]] = {}
    for claim in pool.claims:
        if claim.refusal is None:
            groups.setdefault((claim.job.queue, claim.job.owner if pool.by_user else ""), []).append(claim)
    # A trial has two jobs; most groups of a large pool have one.
    groups = {key: group for key, group in groups.items() if len(group) > 1}
    ongoing = {key: [claim for claim in group if claim.job.trial is not None] for key, group in groups.items()}
    # Those that go on come first, so that none of them ends because another one begins.
    for key in sorted(groups, key=lambda key: (not ongoing[key], key)):
        pair = _find_ongoing(ongoing[key]) if ongoing[key] else _find_new(groups[key], pool.now, rules)
        if pair is not None:
            plan = _try(pair, pool, plan)
    return plan


def _try(pair: Pair, pool: SortedSnapshot, plan: Plan) -> Plan:
    (giver, _), (taker, _) = pair
    shares = [claim.share for claim, _ in pair]
    for claim, trial in pair:
        claim.target, claim.share, claim.trial = trial.tried, float(trial.tried), trial
    giver.tries_with, taker.tries_with = taker, giver
    after = Plan(pool)
    if not after.list_short():
        return after
    for (claim, trial), share in zip(pair, shares, strict=True):
        claim.target, claim.share, claim.trial, claim.tries_with = trial.usual, share, None, None
    return plan


def _find_ongoing(claims: Sequence[Claim]) -> Pair | None:
    """Return the pair of a trial that goes on, the giver first. None: it ends, because the situation has changed."""
    by_id = {claim.job.id: claim for claim in claims}
    for giver in claims:
        trial = giver.job.trial
        taker = by_id.get(trial.partner) if trial is not None else None
        if trial is None or taker is None or taker.job.trial is None or trial.tried >= trial.usual:
            continue
        if _goes_on(giver, trial) and _goes_on(taker, taker.job.trial):
            return (giver, trial), (taker, taker.job.trial)
    return None


def _goes_on(claim: Claim, trial: Trial) -> bool:
    """Whether a claim has the same target as before its trial, and as many slots as the trial left it."""
    least, most = sorted((trial.usual, trial.tried))
    return (
        claim.target == trial.usual
        and not claim.lost
        and (least <= claim.held <= most if trial.has_begun else claim.held == trial.usual)
        and claim.lo <= least
        and fit_size(claim.job, trial.tried) == trial.tried
    )


def _find_new(group: Sequence[Claim], now: float, rules: Rules) -> Pair | None:
    """Return two claims that may begin a trial, the giver first, with their numbers. None: there are none."""
    curious = list(itertools.islice(_list_curious(group, now, rules), _MAX_CONSIDERED))
    for taker, giver in itertools.permutations(curious, 2):
        more = _find_more(taker)
        less = None if more is None else _find_less(giver, more - taker.target)
        if more is None or less is None or giver.target - less != more - taker.target:
            continue
        if giver.needs == taker.needs:
            return (
                (giver, Trial(partner=taker.job.id, usual=giver.target, tried=less, since=now)),
                (taker, Trial(partner=giver.job.id, usual=taker.target, tried=more, since=now)),
            )
    return None


def _list_curious(group: Sequence[Claim], now: float, rules: Rules) -> Iterator[Claim]:
    """Yield the claims that train with their target, the only number that they have measured, and may be resized."""
    for claim in group:
        job = claim.job
        if (
            claim.held == claim.target
            and job.elastic
            and job.standing is Standing.RUNNING
            and not claim.lost
            and job.num_trials < MAX_TRIALS
            and {speed.num_workers * job.gpus_per_worker for speed in job.speeds} == {claim.target}
            and find_cooled_at(job, rules) <= now
        ):
            yield claim


def _find_more(claim: Claim) -> int | None:
    """Return the larger number of slots that a claim would try; None: it can have no more.

    Its limit may be its share of slots that only some jobs can use. It may exceed that, because the giver uses the same
    ones.
    """
    each = claim.job.gpus_per_worker
    size = fit_size(claim.job, claim.target + max(claim.target // each // _PART, 1) * each)
    return size if size > claim.target else next_size(claim.job, claim.target)


def _find_less(claim: Claim, number: int) -> int | None:
    """Return the slots of a claim that tries that many fewer; None: it would lose more than half, or its minimum."""
    less = fit_size(claim.job, claim.target - number)
    return less if max(claim.lo, claim.target / 2) <= less < claim.target else None


def note_begun(pool: SortedSnapshot) -> float | None:
    """Count the trials for which a job is resized now; return when the first of the pool's trials is over.

    Args:
        pool: with the sizes that the claims get now.
    """
    begun = [
        claim
        for claim in pool.claims
        if claim.trial is not None
        and not claim.trial.has_begun
        and claim.tries_with is not None
        and (claim.size != claim.held or claim.tries_with.size != claim.tries_with.held)
    ]
    for claim in begun:
        assert claim.trial is not None
        claim.trial = msgspec.structs.replace(claim.trial, since=pool.now, has_begun=True)
        claim.num_trials += 1
    return min((claim.trial.since + MAX_TRIAL_S for claim in pool.claims if claim.trial is not None), default=None)
