"""The share of each queue, and the effect of other queues on jobs. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API, pool
from legato.api.pool import QueueShare
from legato.control.records import Queue
from legato.control.roles import check_is_admin
from legato.control.store import check_queue_numbers
from legato.core.errors import UsageError
from legato.policy.queue_shares import share_queues
from legato.policy.rules import Rules
from legato.policy.snapshot import Snapshot
from legato.policy.whatif import Effect, plan_queues
from legato.server.answers import Answer, Listed, tells
from legato.server.authentication import WhoAsks
from legato.server.bodies import QueuesBody
from legato.server.planning import with_queues
from legato.server.services import Here, Services, make_rules

router = APIRouter(prefix=API, tags=["pool"])


class QueuesPlan(pool.QueuesPlan, frozen=True, kw_only=True):
    """What would happen if queues were as described. ``shares``: of all queues, as they would be."""

    effects: tuple[Effect, ...]


@router.get("/pool/shares", **tells(Listed[QueueShare]))
async def list_shares(here: Here, asker: WhoAsks) -> Response:
    """List each queue's part of the pool: what is fair, what it holds, borrows and wants."""
    snapshot = await here.look()

    def describe() -> tuple[QueueShare, ...]:
        return _describe(here, snapshot, make_rules(here.settings))

    # Of all queues: each asker sees only the asker's.
    parts = await here.pictures.get("shares", here.feed.last, describe)
    seen = {queue.name for queue in await run_in_threadpool(here.store.queues.list, asker.sees_only)}
    return Answer(Listed(tuple(part for part in parts if part.queue in seen)))


@router.post("/queues/plan", **tells(QueuesPlan, errors=(413, 415)))
async def plan_other_queues(body: QueuesBody, here: Here, asker: WhoAsks) -> Response:
    """Say who would have more or fewer slots if queues were as described. Nothing is changed."""
    check_is_admin("plan queues", asker)
    wanted = [Queue(name=said.name, weight=said.weight, floor=said.floor, ceiling=said.ceiling) for said in body.queues]
    names = [queue.name for queue in wanted]
    for queue in wanted:
        check_queue_numbers(queue)
        if names.count(queue.name) > 1:
            raise UsageError(f"Cannot plan queues: '{queue.name}' is given twice. Remove one of the two.")
    async with here.turns.of(asker.name):
        snapshot, rules = await here.look(), make_rules(here.settings)

        def compute() -> QueuesPlan:
            changed = with_queues(snapshot, wanted)
            effects = plan_queues(snapshot, changed.queues, rules)
            return QueuesPlan(effects=effects, shares=_describe(here, changed, rules), reason=_tell(effects))

        return Answer(await here.plans.get(msgspec.json.encode(wanted), here.feed.last, compute))


def _describe(here: Services, snapshot: Snapshot, rules: Rules) -> tuple[QueueShare, ...]:
    loads = here.store.queues.measure()
    queues = {queue.name: queue for queue in snapshot.queues}
    parts = []
    for share in share_queues(snapshot, rules):
        queue = queues.get(share.queue)
        if queue is None:
            continue  # gone a moment ago
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


def _tell(effects: Iterable[Effect]) -> str:
    told = [f"{effect.title} {effect.before} → {effect.after}" for effect in effects]
    if not told:
        return "no job would have more or fewer slots"
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return f"in the end {', '.join(told[:3])}{more}"
