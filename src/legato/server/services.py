"""The objects that all routes use: the store, the settings, the control loop of this process, and caches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Protocol

import msgspec
from fastapi import Depends, Request

from legato.control.loop.loop_stats import LoopStats
from legato.control.records import Job, Lease, NewJob
from legato.control.roles import Asker
from legato.control.settings import Settings
from legato.control.store import Store
from legato.policy.rules import FairBy, Policy, Rules
from legato.policy.snapshot import Decisions, RecentUse, Snapshot
from legato.policy.whatif import Plan
from legato.server.authentication import Authenticator
from legato.server.event_feed import Feed
from legato.server.login_queue import LoginQueue
from legato.server.node_samples import NodeSamples
from legato.server.planning import PoolView, WorkCache, plan_submission, take_view
from legato.server.prometheus import ServerMetrics
from legato.server.shared_answers import SharedAnswers, Turns
from legato.server.uploads import CodeFolder, make_caps
from legato.server.webhook_sending import WebhookSender
from legato.uploads.receiving import Arrivals

POOL_VIEWS_S: Final = 1.0
_LISTS_S: Final = 1.0
_PROBES_S: Final = 1.0
_USES_S: Final = 60.0  # as often as use is counted
JOBS: Final = "jobs"
CODE: Final = "code"


class LoopHandle(Protocol):
    """The control loop of this process, as the routes see it."""

    @property
    def owner(self) -> str:
        """The name under which the loop holds the lease."""
        ...

    @property
    def starts_drivers(self) -> bool:
        """Whether jobs run on this machine while this loop is the one that decides."""
        ...

    @property
    def decisions(self) -> Decisions | None:
        """The last decisions of the loop. None: it is not the one that decides."""
        ...

    @property
    def snapshot(self) -> Snapshot | None:
        """The pool on which the last decisions are based. None: as `decisions`."""
        ...

    @property
    def stats(self) -> LoopStats:
        """Statistics of the loop's rounds."""
        ...

    def wake(self) -> None:
        """Start a round at once. Call this in the thread of the event loop."""
        ...


class NoLoop:
    """The `LoopHandle` of a process without a control loop."""

    owner: str = ""
    starts_drivers = False
    decisions: Decisions | None = None
    snapshot: Snapshot | None = None

    def __init__(self) -> None:
        self.stats = LoopStats()

    def wake(self) -> None:
        """Do nothing: the loop of another process polls the store."""


@dataclass(frozen=True, kw_only=True)
class Services:
    """The objects that the routes use.

    Args:
        store: the store of the platform.
        settings: the settings of the server.
        loop: the control loop of this process.
        now: returns seconds since 1970.
        feed: the feed of events.
        authenticator: finds the users of requests.
        metrics: metrics for Prometheus.
        works: the programs of jobs, for plans.
        code: the folder of uploaded code.
        followers: threads that read for streams, so that streams do not use up the threads of other requests.
        logins: the queue of password hashes.
        upload_turn: limits how many uploads are unpacked or packed at once, because each may be large.
        arrivals: counts uploads that are being received.
        lists: lists of jobs, shared by equal requests.
        pool_views: timelines, shares and snapshots of the pool, which take long to compute; shared for a second, or
            until the next event.
        probes: attempts to write, for ``/readyz``; shared for a second.
        recent_uses: what users have used, for a server whose loop does not decide; shared for a minute.
        plans: plans, shared by equal requests.
        turns: lets each user have one plan computed at a time.
        node: the name of this machine in the pool; "": this server runs no jobs.
        ca: certificate (PEM) of the server's own authority. "": clients verify the server by other means, if at all.
        url: of the server for users, for links in messages. "": not known.
        webhook_sender: sends messages to webhooks.
        node_samples: what the machines of the pool use.
        webhook_turns: lets each user have one test of a webhook sent at a time.
    """

    store: Store
    settings: Settings
    loop: LoopHandle
    now: Callable[[], float]
    feed: Feed
    authenticator: Authenticator
    metrics: ServerMetrics
    works: WorkCache
    code: CodeFolder
    followers: ThreadPoolExecutor
    webhook_sender: WebhookSender
    ca: str = ""
    url: str = ""
    logins: LoginQueue = field(default_factory=lambda: LoginQueue(2))
    upload_turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))
    arrivals: Arrivals = field(default_factory=lambda: Arrivals("uploads"))
    lists: SharedAnswers = field(default_factory=lambda: SharedAnswers(_LISTS_S, 4))
    pool_views: SharedAnswers = field(default_factory=lambda: SharedAnswers(POOL_VIEWS_S, 2))
    probes: SharedAnswers = field(default_factory=lambda: SharedAnswers(_PROBES_S, 1))
    recent_uses: SharedAnswers = field(default_factory=lambda: SharedAnswers(_USES_S, 1))
    plans: SharedAnswers = field(default_factory=lambda: SharedAnswers(POOL_VIEWS_S, 2))
    turns: Turns = field(default_factory=Turns)
    node_samples: NodeSamples = field(default_factory=NodeSamples)
    webhook_turns: Turns = field(default_factory=Turns)
    node: str = ""

    def directory(self, job: Job) -> Path:
        """Return the directory of a job. It exists from the job's first start on."""
        return self.directory_of(job.id)

    def directory_of(self, job: str) -> Path:
        """Return the directory of the job with an id."""
        return self.settings.home_path / JOBS / job

    def link_job(self, job: str) -> str | None:
        """Return the URL of a job's page in the console. None: the URL of the server is not known."""
        return f"{self.url}/#/jobs/{job}" if self.url else None

    async def snapshot(self) -> Snapshot:
        """Return the pool as the policy sees it, at most a second old. All requests share the snapshot."""
        return (await self._view()).snapshot

    async def _view(self) -> PoolView:
        use = await self._find_recent_use()

        def read() -> PoolView:
            return take_view(self.store, self.works, self.now(), use)

        view: PoolView = await self.pool_views.get("snapshot", self.feed.last, read)
        return view

    async def _find_recent_use(self) -> tuple[RecentUse, ...]:
        """Return the use on which the last decisions are based, or what was read in the last minute."""
        half_life_s = self.settings.usage_half_life_s
        if half_life_s is None:
            return ()
        if self.loop.snapshot is not None:
            return self.loop.snapshot.recent_use
        use: tuple[RecentUse, ...] = await self.recent_uses.get(
            None, 0, lambda: self.store.loop.read_recent_use(self.now(), half_life_s)
        )
        return use

    async def plan(self, new: NewJob, asker: Asker) -> Plan:
        """Return what would happen if a job were submitted. Computed in a thread, once for equal requests of a user."""
        key = (asker.name, msgspec.json.encode(new))
        async with self.turns.of(asker.name):
            view = await self._view()
            rules, now = make_rules(self.settings), self.now()
            plan: Plan = await self.plans.get(
                key, self.feed.last, lambda: plan_submission(view, new, asker, rules, now)
            )
            return plan

    def leads(self) -> bool:
        """Return whether the control loop of this process is the one that decides."""
        return self.read_own_lease() is not None

    def read_own_lease(self) -> Lease | None:
        """Return the valid lease of this process's control loop. None: it has none, so another server decides."""
        lease = self.store.loop.read_lease()
        is_own = lease is not None and lease.owner == self.loop.owner and lease.expires_at > self.now()
        return lease if is_own else None


def make_services(
    store: Store,
    settings: Settings,
    loop: LoopHandle,
    followers: ThreadPoolExecutor,
    *,
    now: Callable[[], float],
    node: str = "",
    ca: str = "",
    url: str = "",
) -> Services:
    """Make the objects that the routes use. Call this in the running event loop.

    Args:
        store: the open store of the platform.
        settings: the settings of the server.
        loop: the control loop of this process.
        followers: threads that read for streams.
        now: returns seconds since 1970.
        node: the name of this machine in the pool; "": this server runs no jobs.
        ca: as in `Services`.
        url: as in `Services`.
    """
    feed = Feed(store, followers)
    node_samples = NodeSamples()

    def leads() -> bool:
        return services.leads()

    services = Services(
        store=store,
        settings=settings,
        loop=loop,
        now=now,
        feed=feed,
        authenticator=Authenticator(store, settings, now),
        metrics=ServerMetrics(
            store, loop.stats, leads, lambda: feed.num_followers, lambda: node_samples.newest(now()), now
        ),
        node_samples=node_samples,
        works=WorkCache(store),
        code=CodeFolder(settings.home_path / CODE, settings.upload_max_bytes, make_caps(settings)),
        followers=followers,
        webhook_sender=WebhookSender(settings.webhook_networks, now),
        node=node,
        ca=ca,
        url=url,
    )
    return services


def make_rules(settings: Settings) -> Rules:
    """Return the rules of the policy that the settings describe."""
    return Rules(
        policy=Policy(settings.policy),
        fair_by=FairBy(settings.fair_by),
        usage_half_life_s=settings.usage_half_life_s,
        stability_s=settings.stability_s,
        cooldown_factor=settings.cooldown_factor,
        gather_s=settings.gather_s,
        reserve_after_s=settings.reserve_after_s,
        ageing_s=settings.ageing_s,
        fair_finish_s=settings.fair_finish_s,
        measured_speed_s=settings.measured_speed_s,
        long_job_slot_s=settings.long_job_slot_s,
    )


async def _read_services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


Here = Annotated[Services, Depends(_read_services)]
"""The type of a route's parameter through which it gets the services."""
