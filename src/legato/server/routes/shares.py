"""Routes that show the share of each queue, and that predict what a change of queues would do."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API, pool
from legato.api.pool import QueueShare, UserShare, WaitingJob
from legato.control.records import Queue
from legato.control.roles import check_is_admin
from legato.control.store import KEPT_S, Used, check_queue_numbers
from legato.core.errors import UsageError
from legato.policy.claims import SortedSnapshot, sort_snapshot
from legato.policy.queue_shares import share_queues
from legato.policy.recent_use import Levels, find_levels
from legato.policy.rules import Rules
from legato.policy.snapshot import Decisions, Snapshot
from legato.policy.users import list_turns
from legato.policy.whatif import Effect, plan_queues
from legato.server.answers import Answer, Listed, responses
from legato.server.authentication import CurrentUser
from legato.server.bodies import QueuesBody
from legato.server.planning import with_queues
from legato.server.services import Here, Services, make_rules

_HOUR_S: Final = 3600.0
_WEEK_S: Final = 7 * 24 * _HOUR_S

router = APIRouter(prefix=API, tags=["pool"])


class QueuesPlan(pool.QueuesPlan, frozen=True, kw_only=True):
    """What would happen with the described queues. ``shares``: those of all queues after the change."""

    effects: tuple[Effect, ...]


@router.get("/pool/shares", **responses(Listed[QueueShare]))
async def list_shares(here: Here, asker: CurrentUser) -> Response:
    """List how many slots each queue is entitled to by its weight, holds, borrows and wants."""
    snapshot = await here.snapshot()

    def describe() -> tuple[QueueShare, ...]:
        return _describe(here, snapshot, make_rules(here.settings))

    # Computed for all queues at once; each asker gets the queues that it may see.
    parts = await here.pool_views.get("shares", here.feed.last, describe)
    seen = {queue.name for queue in await run_in_threadpool(here.store.queues.list, asker.sees_only)}
    return Answer(Listed(tuple(part for part in parts if part.queue in seen)))


@router.get("/pool/use", **responses(Listed[UserShare]))
async def list_use(
    here: Here, asker: CurrentUser, over: Annotated[float, Query(ge=_HOUR_S, le=KEPT_S)] = _WEEK_S
) -> Response:
    """List how many slots each user has used of each queue over the last seconds, and what that does to its weight."""
    snapshot, rules, now = await here.snapshot(), make_rules(here.settings), here.now()

    def describe() -> tuple[UserShare, ...]:
        return _describe_use(here.store.usage.read(now - over), snapshot, here.loop.decisions, rules, over)

    found = await run_in_threadpool(describe)
    return Answer(Listed(tuple(one for one in found if asker.sees_only in (None, one.user))))


@router.get("/pool/waiting", **responses(Listed[WaitingJob]))
async def list_waiting(here: Here, asker: CurrentUser) -> Response:
    """List the jobs that wait for slots, in the order in which the policy considers them."""
    snapshot = await here.snapshot()

    def describe() -> tuple[WaitingJob, ...]:
        return _number_waiting(snapshot, here.loop.decisions, make_rules(here.settings))

    # Positions count all jobs; each asker gets those of the jobs that it may see.
    waiting = await here.pool_views.get("waiting", here.feed.last, describe)
    jobs = {one.job for one in waiting}
    seen = await run_in_threadpool(here.store.jobs.which_visible, jobs, asker.sees_only)
    return Answer(Listed(tuple(one for one in waiting if one.job in seen)))


@router.post("/queues/plan", **responses(QueuesPlan, errors=(413, 415)))
async def plan_other_queues(body: QueuesBody, here: Here, asker: CurrentUser) -> Response:
    """Say which jobs would have more or fewer slots with the described queues. Nothing is changed."""
    check_is_admin("plan queues", asker)
    wanted = [Queue(name=one.name, weight=one.weight, floor=one.floor, ceiling=one.ceiling) for one in body.queues]
    names = [queue.name for queue in wanted]
    for queue in wanted:
        check_queue_numbers(queue)
        if names.count(queue.name) > 1:
            raise UsageError(f"Cannot plan queues: '{queue.name}' is given twice. Remove one of the two.")
    async with here.turns.of(asker.name):
        snapshot, rules = await here.snapshot(), make_rules(here.settings)

        def compute() -> QueuesPlan:
            changed = with_queues(snapshot, wanted)
            effects = plan_queues(snapshot, changed.queues, rules)
            return QueuesPlan(effects=effects, shares=_describe(here, changed, rules), reason=_summarize(effects))

        return Answer(await here.plans.get(msgspec.json.encode(wanted), here.feed.last, compute))


def _describe(here: Services, snapshot: Snapshot, rules: Rules) -> tuple[QueueShare, ...]:
    loads = here.store.queues.measure()
    queues = {queue.name: queue for queue in snapshot.queues}
    parts = []
    for share in share_queues(snapshot, rules):
        queue = queues.get(share.queue)
        if queue is None:
            continue  # deleted meanwhile
        held = loads[share.queue].num_slots if share.queue in loads else 0
        parts.append(
            QueueShare(
                queue=queue.name,
                weight=queue.weight,
                floor=queue.floor,
                ceiling=queue.ceiling,
                fair=share.fair,
                held=held,
                borrowed=None if share.fair is None else max(held - share.fair, 0.0),
                wanted=share.wanted,
            )
        )
    return tuple(parts)


def _describe_use(
    used: Sequence[Used], snapshot: Snapshot, decisions: Decisions | None, rules: Rules, over_s: float
) -> tuple[UserShare, ...]:
    levels = _find_levels(sort_snapshot(snapshot, rules), snapshot, decisions, rules)
    recent = {(one.queue, one.user): one.num_slots for one in snapshot.recent_use}
    totals: defaultdict[str, float] = defaultdict(float)
    for one in used:
        totals[one.queue] += one.slot_s
    return tuple(
        UserShare(
            queue=one.queue,
            user=one.user,
            slot_s=one.slot_s,
            num_slots=one.slot_s / over_s,
            part=one.slot_s / totals[one.queue] if totals[one.queue] else 0.0,
            recent_slots=None if rules.usage_half_life_s is None else recent.get((one.queue, one.user), 0.0),
            weight=0.5 ** levels.get((one.queue, one.user), 0),
        )
        for one in used
    )


def _summarize(effects: Iterable[Effect]) -> str:
    changes = [f"{effect.title} {effect.before} → {effect.after}" for effect in effects]
    if not changes:
        return "no job would have more or fewer slots"
    more = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return f"in the end {', '.join(changes[:3])}{more}"


def _find_levels(pool: SortedSnapshot, snapshot: Snapshot, decisions: Decisions | None, rules: Rules) -> Levels:
    """Return the levels of the last decisions, which depend on earlier ones; without decisions, those of now."""
    if decisions is not None:
        return {(one.queue, one.user): one.level for one in decisions.use_levels}
    return find_levels(snapshot, pool.queues, rules) if pool.by_user else {}


def _number_waiting(snapshot: Snapshot, decisions: Decisions | None, rules: Rules) -> tuple[WaitingJob, ...]:
    pool = sort_snapshot(snapshot, rules)
    claims = pool.claims
    if pool.by_user:
        claims = list_turns(claims, _find_levels(pool, snapshot, decisions, rules))
    waiting = [claim.job for claim in claims if not claim.slots and not claim.lost]
    totals, numbers = Counter(job.queue for job in waiting), Counter[str]()
    found = []
    for job in waiting:
        numbers[job.queue] += 1
        position, num_waiting = numbers[job.queue], totals[job.queue]
        found.append(WaitingJob(job=job.id, queue=job.queue, position=position, num_waiting=num_waiting))
    return tuple(found)
