"""Lets long jobs take turns: the earlier one goes first, and a later one weighs less. Decides no number of slots.

Equal shares end all long jobs late: each has a part of the pool until the last ones end together. One after the other,
most of them end earlier. A job is long when it has had `Rules.long_job_slot_s` seconds of slots.
"""

from __future__ import annotations

from typing import Final

from legato.policy.claims import Claim, SortedSnapshot
from legato.policy.rules import Rules

FACTOR: Final = 8
"""Each long job weighs this many times less than the one before it."""

_MOST_TIMES: Final = 3


def weigh_long_jobs(pool: SortedSnapshot, rules: Rules) -> None:
    """Lower the weights of all long jobs but the first among those that share: of a user, or of a queue."""
    if rules.long_job_slot_s is None or not rules.policy.is_fair:
        return
    before: dict[tuple[str, str], list[Claim]] = {}
    # Not in the order of precedence, in which a job that has too few slots for long goes first.
    for claim in sorted(pool.claims, key=lambda claim: (-claim.job.priority, claim.job.submitted_at, claim.job.id)):
        job = claim.job
        if job.used_slot_s < rules.long_job_slot_s or claim.hi < claim.lo:
            continue
        earlier = before.setdefault((job.queue, job.owner if pool.by_user else ""), [])
        if earlier:
            claim.weight = job.priority / FACTOR ** min(len(earlier), _MOST_TIMES)
            claim.comes_after = earlier[0]
        earlier.append(claim)
