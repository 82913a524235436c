"""Routes of the pool: its nodes, slots and queues, now and over time."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from legato.api import API, pool
from legato.api.jobs import Allocation
from legato.api.outputs import SystemSeries
from legato.api.pool import Node, NodeAgent, Pool, Slot, Timeline, Usage
from legato.control.records import Queue, QueueLoad, StoredAgent, StoredNode
from legato.control.roles import Asker
from legato.control.stages import Stage
from legato.core.errors import NotFound, UsageError
from legato.core.system_metrics import MachineMetrics
from legato.server.answers import Answer, Encoded, Listed, encode, responses
from legato.server.authentication import CurrentUser
from legato.server.bodies import QueueBody
from legato.server.history import By, SlotMove, draw_timeline, list_moves
from legato.server.machine import find_own_address
from legato.server.services import Here, Services
from legato.server.system_series import make_series
from legato.system.tls import is_loopback

router = APIRouter(prefix=API, tags=["pool"])

_HOUR_S = 3600.0
_DAY_S = 86400.0
_MAX_TIME = 1e12
_MAX_JOBS = 100

Moment = Annotated[float | None, Query(ge=0, le=_MAX_TIME, allow_inf_nan=False)]


class SeenAllocation(Allocation, frozen=True, kw_only=True):
    """A slot that one attempt of a job held from ``since`` until ``until``. ``job`` null: you may not see the job."""

    attempt: int


@router.get("/pool", **responses(Pool))
def get_pool(here: Here, asker: CurrentUser) -> Response:
    """Return the numbers of slots in the pool, and of jobs in each stage."""
    slots = list_slot_states(here, asker)
    decisions = here.loop.decisions
    counted = here.store.jobs.count_by_stage(sees_only=asker.sees_only)
    return Answer(
        Pool(
            policy=here.settings.policy,
            num_slots=len(slots),
            num_usable=sum(slot.unusable_since is None for slot in slots),
            num_free=sum(slot.is_free for slot in slots),
            num_leaving=sum(slot.release_asked_at is not None for slot in slots),
            jobs={str(stage): counted.get(stage, 0) for stage in Stage},
            summary=decisions.summary if decisions else None,
        )
    )


@router.get("/nodes", **responses(Listed[Node]))
def list_nodes(here: Here, asker: CurrentUser) -> Response:
    """List the machines of the pool."""
    of_node: dict[str, list[Slot]] = {}
    for slot in list_slot_states(here, asker):
        of_node.setdefault(slot.node, []).append(slot)
    stored = {node.name: node for node in here.store.pool.list_nodes()}
    agents = {agent.node: agent for agent in here.store.agents.list()}
    samples = here.node_samples.newest(here.now())
    found = [
        _describe_node(here, name, of_node.get(name, []), stored.get(name), agents.get(name), samples.get(name))
        for name in sorted(of_node.keys() | agents.keys())
    ]
    return Answer(Listed(tuple(found)))


@router.get("/nodes/{node}/system-metrics", **responses(SystemSeries, errors=(404,)))
def get_metrics_of_node(
    node: str, here: Here, _asker: CurrentUser, points: Annotated[int, Query(ge=2, le=10_000)] = 1000
) -> Response:
    """Return what a machine used in the last hour, as far as it has reported to this server."""
    known = {agent.node for agent in here.store.agents.list()} | {slot.node for slot in here.store.pool.list_slots()}
    if node not in known:
        raise NotFound(f"The pool has no node '{node[:100]}'.")
    return Answer(make_series(here.node_samples.lines(node), None, points))


@router.get("/slots", **responses(Listed[Slot]))
def list_slots(here: Here, asker: CurrentUser) -> Response:
    """List the slots of the pool, and the jobs that hold them."""
    return Answer(Listed(list_slot_states(here, asker)))


@router.get("/allocations", **responses(Listed[SeenAllocation]))
def list_allocations(here: Here, asker: CurrentUser, since: Moment = None, until: Moment = None) -> Response:
    """List which jobs held which slots between two times."""
    since, until = _read_times(here, since, until, _HOUR_S)
    found = here.store.pool.list_between(since, until)
    visible = _find_visible(here, (one.job for one in found), asker)
    items = (msgspec.structs.asdict(one) | {"job": one.job if one.job in visible else None} for one in found)
    return Answer(Listed(tuple(items)))


@router.get("/usage", **responses(Listed[Usage]))
def list_usage(here: Here, asker: CurrentUser, since: Moment = None, until: Moment = None) -> Response:
    """List the slot seconds that each user had in each queue between two times."""
    since, until = _read_times(here, since, until, _DAY_S)
    found = here.store.pool.measure_usage(since, until)
    return Answer(Listed(tuple(one for one in found if asker.sees_only in (None, one.owner))))


@router.get("/timeline", **responses(Timeline, errors=(404,)))
async def get_timeline(
    here: Here,
    asker: CurrentUser,
    by: By = By.JOB,
    since: Moment = None,
    until: Moment = None,
    points: Annotated[int, Query(ge=4, le=10_000)] = 500,
    job: Annotated[list[str] | None, Query(max_length=_MAX_JOBS)] = None,
) -> Response:
    """Return how many slots each job, owner, queue or project held between two times, as step functions of time."""
    begins, ends = _read_times(here, since, until, _HOUR_S)
    these = None if job is None else await run_in_threadpool(_find_ids, here, asker, job)

    def draw() -> bytes:
        return encode(draw_timeline(here.store, asker, by, begins, ends, num_points=points, these=these))

    # The times as the request gives them. An omitted end means the present, which differs with every request.
    key = ("timeline", asker.sees_only, by, since, until, points, these)
    return Encoded(await here.pool_views.get(key, here.feed.last, draw))


@router.get("/moves", **responses(Listed[SlotMove]))
def list_slot_moves(
    here: Here,
    asker: CurrentUser,
    since: Moment = None,
    until: Moment = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List the slots that jobs got, or were asked to give up, between two times, with the reasons."""
    since, until = _read_times(here, since, until, _HOUR_S)
    return Answer(Listed(list_moves(here.store, asker, since, until, limit)))


# ---------------------------------------------------------------- queues


@router.get("/queues", **responses(Listed[pool.Queue]))
def list_queues(here: Here, asker: CurrentUser) -> Response:
    """List the queues."""
    loads = here.store.queues.measure()
    return Answer(Listed(tuple(_describe(queue, loads) for queue in here.store.queues.list(asker.sees_only))))


@router.get("/queues/{queue}", **responses(pool.Queue, errors=(404,)))
def get_queue(queue: str, here: Here, asker: CurrentUser) -> Response:
    """Return a queue."""
    for found in here.store.queues.list(asker.sees_only):
        if found.name == queue:
            return Answer(_describe(found, here.store.queues.measure()))
    raise NotFound(f"There is no queue '{queue}' that you may see. 'legato queues' lists those that you may.")


@router.put("/queues/{queue}", **responses(pool.Queue, errors=(404, 413, 415)))
def put_queue(queue: str, here: Here, asker: CurrentUser, body: QueueBody | None = None) -> Response:
    """Create a queue, or replace all settings of an existing one."""
    given = body or QueueBody()
    wanted = Queue(
        name=queue,
        weight=given.weight,
        floor=given.floor,
        ceiling=given.ceiling,
        is_open=given.is_open,
        members=given.members,
    )
    return Answer(_describe(here.store.queues.put(wanted, asker, here.now()), here.store.queues.measure()))


@router.delete("/queues/{queue}", **responses(None, 204, errors=(404, 409)))
def delete_queue(queue: str, here: Here, asker: CurrentUser) -> Response:
    """Delete a queue that no stored job belongs to, not even one that has ended."""
    here.store.queues.delete(queue, asker, here.now())
    return Response(status_code=204)


# ---------------------------------------------------------------- states of slots


def list_slot_states(here: Services, asker: Asker) -> tuple[Slot, ...]:
    """Return all slots, with the jobs that hold them. A job that the asker may not see is None."""
    held = {found.slot: found for found in here.store.pool.list_open()}
    visible = _find_visible(here, (found.job for found in held.values()), asker)
    states = []
    for slot in here.store.pool.list_slots():
        holder = held.get(slot.id)
        states.append(
            Slot(
                **msgspec.structs.asdict(slot),
                is_free=holder is None and slot.unusable_since is None,
                job=holder.job if holder and holder.job in visible else None,
                attempt=holder.attempt if holder else None,
                since=holder.since if holder else None,
                release_asked_at=holder.release_asked_at if holder else None,
            )
        )
    return tuple(states)


def _describe_node(
    here: Services,
    name: str,
    slots: Sequence[Slot],
    node: StoredNode | None,
    agent: StoredAgent | None,
    metrics: MachineMetrics | None,
) -> Node:
    return Node(
        name=name,
        num_slots=len(slots),
        num_usable=sum(slot.unusable_since is None for slot in slots),
        num_free=sum(slot.is_free for slot in slots),
        kind=None if node is None else node.kind,
        traits={} if node is None else node.traits or {},
        labels={} if node is None else node.labels or {},
        gpu_types=dict(sorted(Counter(slot.gpu_type for slot in slots if slot.gpu_type).items())),
        agent=None if agent is None else _describe_agent(agent, here.now()),
        address=_find_address(here, name, agent),
        metrics=metrics,
    )


def _find_address(here: Services, name: str, agent: StoredAgent | None) -> str | None:
    """Return the address of a machine. The server's own may have changed since it was stored."""
    if name == here.node and not is_loopback(here.settings.host):
        with contextlib.suppress(UsageError):
            return find_own_address(here.settings, here.store, name)
    return (agent.address or None) if agent is not None else None


def _describe_agent(agent: StoredAgent, now: float) -> NodeAgent:
    state = "ready"
    if agent.left_at is not None:
        state = "left"
    elif agent.is_silent(now):
        state = "silent"
    elif agent.drained_at is not None:
        state = "drained"
    return NodeAgent(
        state=state,
        version=agent.version,
        address=agent.address,
        joined_at=agent.joined_at,
        seen_at=agent.seen_at,
        drained_by=agent.drained_by,
        drain_reason=agent.drain_reason,
    )


def _find_ids(here: Services, asker: Asker, jobs: Iterable[str]) -> frozenset[str]:
    return frozenset(here.store.jobs.find(job, asker).id for job in jobs)


def _find_visible(here: Services, jobs: Iterable[str], asker: Asker) -> frozenset[str]:
    return here.store.jobs.which_visible(set(jobs), asker.sees_only)


def _describe(queue: Queue, loads: dict[str, QueueLoad]) -> pool.Queue:
    load = loads.get(queue.name, QueueLoad())
    return pool.Queue(**msgspec.structs.asdict(queue), **msgspec.structs.asdict(load))


def _read_times(here: Services, since: float | None, until: float | None, usual_s: float) -> tuple[float, float]:
    until = here.now() if until is None else until
    since = max(until - usual_s, 0.0) if since is None else since
    if since > until:
        raise UsageError(f"Cannot show since={since:.0f} until={until:.0f}: it ends before it begins. Exchange them.")
    return since, until
