"""Computes the effect of a submission or a change of queues on other jobs. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from legato.api import jobs
from legato.core.balance import cheap_numbers
from legato.policy.causes import count
from legato.policy.policies import decide
from legato.policy.rules import Rules
from legato.policy.sizes import smallest_size
from legato.policy.snapshot import OWNER_LABEL, Decision, DecisionKind, Decisions, JobDemand, Queue, Snapshot


class Effect(jobs.Effect, frozen=True, kw_only=True):
    """The effect of a change on another job: its slots before and after, in the end; 0: it pauses or waits."""

    job: str


class Plan(jobs.Plan, frozen=True, kw_only=True):
    """What would happen. ``effects``: all jobs that would have fewer or more slots, in order of submission."""

    starts: Literal["now", "soon", "later"]
    effects: tuple[Effect, ...]


def plan(snapshot: Snapshot, job: JobDemand, rules: Rules) -> Plan:
    """Return what would happen if ``job`` were submitted now.

    Args:
        snapshot: the pool at this moment, without the job.
        job: as it would be submitted.
        rules: the policy and its settings.
    """
    before = {decision.job: decision.wanted for decision in decide(snapshot, rules).decisions}
    assert job.id not in before, f"job {job.id} is in the snapshot already"
    after = decide(msgspec.structs.replace(snapshot, jobs=(*snapshot.jobs, job)), rules)
    own = after.of(job.id)
    titles = {other.id: other.title for other in snapshot.jobs}
    effects = _compare(before, after, titles)
    starts: Literal["now", "soon", "later"] = "later"
    if own.kind is DecisionKind.START:
        starts = "now"
    elif own.wanted:
        starts = "soon"
    return Plan(
        starts=starts,
        slots_now=len(own.slots),
        slots=own.wanted,
        share=own.share,
        effects=effects,
        reason=_explain_never(snapshot, job) or _describe_plan(own, starts, effects),
        cheap_workers=_cheap_workers(job),
    )


def _cheap_workers(job: JobDemand) -> tuple[int, ...]:
    if job.num_micro_batches is None or job.shares_freely or not job.elastic:
        return ()
    return cheap_numbers(job.num_micro_batches, job.max_workers)


def plan_queues(snapshot: Snapshot, queues: tuple[Queue, ...], rules: Rules) -> tuple[Effect, ...]:
    """Return which jobs would have more or fewer slots in the end if the queues were these.

    Args:
        snapshot: the pool at this moment.
        queues: all of them, as they would be.
        rules: the policy and its settings.
    """
    before = {decision.job: decision.wanted for decision in decide(snapshot, rules).decisions}
    after = decide(msgspec.structs.replace(snapshot, queues=queues), rules)
    titles = {job.id: job.title for job in snapshot.jobs}
    return _compare(before, after, titles)


def _compare(before: Mapping[str, int], after: Decisions, titles: Mapping[str, str]) -> tuple[Effect, ...]:
    return tuple(
        Effect(job=decision.job, title=titles[decision.job], before=before[decision.job], after=decision.wanted)
        for decision in after.decisions
        if decision.job in before and decision.wanted != before[decision.job]
    )


def _explain_never(snapshot: Snapshot, job: JobDemand) -> str | None:
    """Explain that the job could not start on the pool; None if there may be enough slots later, also of clusters."""
    needed = smallest_size(job)
    of_others = {node.name for node in snapshot.nodes if node.labels.get(OWNER_LABEL, job.owner) != job.owner}
    num_usable = sum(slot.usable and slot.node not in of_others for slot in snapshot.slots)
    ceiling = next((queue.ceiling for queue in snapshot.queues if queue.name == job.queue), None)
    if needed > num_usable + job.num_coming:
        more = f", and clusters may give {job.num_coming} more" if job.num_coming else ""
        has = f"machines that belong to no other user than {job.owner} have" if of_others else "the pool has"
        return f"could not start: it needs {count(needed)} at once, but {has} {num_usable}{more}"
    if ceiling is not None and needed > ceiling:
        return f"could not start: it needs {count(needed)} at once, but its queue '{job.queue}' may have {ceiling}"
    return None


def _describe_plan(own: Decision, starts: str, effects: tuple[Effect, ...]) -> str:
    if starts == "later":
        return f"would not start yet; it {own.reason}"
    when = "at once" if starts == "now" else "as soon as they are freed"
    told = f"would start with {count(len(own.slots) or own.wanted)} {when}"
    shrinks = [f"{effect.title} {effect.before} → {effect.after}" for effect in effects if effect.after < effect.before]
    if not shrinks:
        return f"{told}; no other job loses slots"
    more = f" and {len(shrinks) - 3} more" if len(shrinks) > 3 else ""
    return f"{told}; other jobs lose slots: {', '.join(shrinks[:3])}{more}"
