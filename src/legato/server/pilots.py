"""Keeps the pilots of a cluster: asks for machines as demand grows, and lets them go when they are idle.

They are for the jobs of all users, or each user has pilots of their own. Only the leading server keeps them. It
remembers nothing that matters: pilots are in the store and in the cluster, so the next server continues. A cluster that
fails, or does not answer, stops neither the control loop nor a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec
import structlog

from legato.api import pool
from legato.clusters.demand import PilotShape, Wish, count_wishes, find_pilots, find_refused, find_typed
from legato.clusters.owner_plans import OwnersPlan
from legato.clusters.pilots import (
    Cluster,
    ClusterAwayError,
    Ending,
    Pilot,
    PilotAgent,
    PilotOrder,
    PilotRules,
    PilotState,
    name_test_node,
    plan_pilots,
)
from legato.control.records import Allocation, StoredAgent, StoredPilot
from legato.control.roles import Asker, Role
from legato.control.stages import ENDED
from legato.control.store import Store
from legato.core.errors import Conflict, NotFound, UsageError
from legato.core.slots import node_of
from legato.policy.snapshot import JobDemand, Snapshot
from legato.server import cluster_tests
from legato.server.cluster_room import Room, choose_room
from legato.server.pilot_owners import FindUser, Pause, PilotOwner, PilotOwners, sort_out

_log = structlog.get_logger(__name__)

ROUND_S: Final = 5.0
_TEST_ROUND_S: Final = 1.0
"""While a test runs, which a person watches."""
_END_TEST_S: Final = 30.0
"""After a test, its agent is asked to end, then ended, and after twice as long killed."""
_LONGEST_ROUND_S: Final = 300.0
"""After a longer time between two rounds, the clock was set, or this process did not run."""
_STATE_EVERY_S: Final = 30.0
_ASK_AGAIN_S: Final = 60.0
_JOIN_LIMIT_S: Final = 600.0
_REFUSED_S: Final = 3600.0
"""No pilot is asked for a job that pilots have refused, until this long after the last of them was in the pool."""
_NOT_JOINED: Final = "its agent does not join the pool"
_SILENT: Final = "its command did not answer"
_MAX_KNOWN: Final = 16
_MAX_OWNER: Final = 63
_INVALID: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_SHOWN: Final = 1000


class PilotPool:
    """The pilots of one cluster.

    Args:
        cluster: which starts them.
        rules: how many there are.
        shape: what each is, as far as the settings say.
        store: of the platform.
        read_snapshot: returns the pool as the policy saw it last; None: it has not decided yet.
        leads: returns whether this server is the one that decides. May block.
        url: at which machines of the cluster reach the server.
        token_suffix: what a join token has behind its secret: the fingerprint of the server's authority.
        now: returns seconds since 1970.
        find_user: finds the system users of the users who have pilots of their own. None: pilots are for the jobs of
            all users, and run as the system user of the server.
    """

    def __init__(
        self,
        cluster: Cluster,
        rules: PilotRules,
        shape: PilotShape,
        store: Store,
        *,
        read_snapshot: Callable[[], Snapshot | None],
        leads: Callable[[], bool],
        url: str,
        token_suffix: str,
        now: Callable[[], float],
        find_user: FindUser | None = None,
    ) -> None:
        self._cluster = cluster
        self._rules = rules
        self._shape = shape
        self._find_user = find_user
        self._store = store
        self._read_snapshot = read_snapshot
        self._leads = leads
        self._url = url
        self._token_suffix = token_suffix
        self._now = now
        self._test_node = name_test_node(cluster.kind)
        self._reset()

    def _reset(self) -> None:
        """Forget everything, because another server may have led meanwhile."""
        self._leads_since: float | None = None
        self._round_at: float | None = None
        self._owners = PilotOwners(self._shape, self._find_user)
        self._seen: tuple[Pilot, ...] = ()
        self._strays: tuple[Pilot, ...] = ()  # pilots that the store does not know, or that another user has
        self._tried_at = float("-inf")
        self._observed_at: float | None = None
        self._away: str | None = None
        self._away_since = float("-inf")
        self._known: set[str] = set()  # nodes of pilots that the cluster has confirmed or shown
        self._ended: set[str] = set()  # nodes of pilots that this server has ended
        self._asked_at: dict[
            tuple[str, int | None, bool], float
        ] = {}  # pilot, its user, whether by force → when it was asked to end
        self._running_since: dict[str, float] = {}  # pilot that has not joined → when it was first seen to run
        self._idle_since: dict[str, float] = {}
        self._refused_at: dict[str, float] = {}  # job that pilots have refused → when one of them was last seen
        self._written: tuple[float, pool.Cluster] | None = None
        self._idle: pool.IdleMachines | None = None
        self._counted_at: float | None = None
        self._test: pool.ClusterTest | None = None
        self._test_asked_at: float | None = None
        self._test_hindrance: str | None = None  # why this server cannot ask for its machine
        self._test_refusal: str | None = None
        self._test_room: Room | None = None
        self._may_make_room = True  # an earlier server may have made room for this test
        self._awaits_room = False  # an idle machine may soon be given back for it
        self._test_away: tuple[float, float, str] | None = None  # first and last time that asking failed, and why

    async def run(self) -> None:
        """Keep the pilots until cancelled."""
        try:
            while True:
                try:
                    await self.round()
                except Exception:  # noqa: BLE001 -- the next round begins from the store and the cluster again
                    _log.exception("a round of a cluster failed", cluster=self._cluster.name)
                await asyncio.sleep(_TEST_ROUND_S if self._is_testing else ROUND_S)
        finally:
            await self._cluster.close()

    async def round(self) -> None:
        """Observe, decide and act once, if this server leads."""
        if not await asyncio.to_thread(self._leads):
            self._reset()
            return
        now = self._now()
        if self._round_at is not None and not 0 <= now - self._round_at <= _LONGEST_ROUND_S:
            self._reset()  # otherwise pilots would seem idle, and agents silent, for the time in between
        self._round_at = now
        if self._leads_since is None:
            self._leads_since = now
            await asyncio.to_thread(self._learn)
        snapshot = self._read_snapshot()
        if snapshot is None:
            return
        pilots = await self._observe(now)
        facts = await asyncio.to_thread(self._read)
        self._note_joined(facts)
        pilots = None if pilots is None else self._seen
        wishes = await asyncio.to_thread(self._measure, snapshot, facts, now)
        agents = self._describe_agents(facts, now)
        self._count_idle(facts, agents, now)
        await self._follow_test(snapshot, facts, agents, now)
        if pilots is not None:
            await asyncio.to_thread(self._forget_gone, facts, agents, now)
        plan = await asyncio.to_thread(self._plan_all, wishes, pilots, facts, agents, now)
        if pilots is not None:
            ending = (*plan.ending, *self._find_strays(facts, now), *await self._end_test(facts, now))
            plan = msgspec.structs.replace(plan, ending=ending)
        await self._apply(plan, facts, now)
        await self._start_test(now)
        await asyncio.to_thread(self._write_state, now)

    # ------------------------------------------------------------ what there is

    async def _observe(self, now: float) -> tuple[Pilot, ...] | None:
        """Return the pilots as the cluster last showed them; None: it does not answer."""
        if not 0 <= now - self._tried_at < self._cluster.observe_every_s:  # the clock may be set
            self._tried_at = now
            try:
                found = await self._cluster.observe()
            except ClusterAwayError as error:
                self._note_away(str(error), now)
            else:
                stored = await asyncio.to_thread(self._list_pilots)
                self._seen, self._strays = sort_out(found, stored, are_several=self._owners.are_several)
                self._observed_at = now
                self._known |= {pilot.node for pilot in self._seen if pilot.state is not PilotState.GONE}
                self._note_away(None, now)
        return None if self._away is not None or self._observed_at is None else self._seen

    def _list_pilots(self) -> tuple[StoredPilot, ...]:
        return tuple(found for found in self._store.pilots.list() if found.cluster == self._cluster.kind)

    def _note_joined(self, facts: _Facts) -> None:
        """Count pilots whose agents have joined as running; the cluster shows it later."""
        joined = {stored.node for stored in facts.pilots if stored.identity is not None}
        self._seen = tuple(
            msgspec.structs.replace(pilot, state=PilotState.RUNNING, reason=None)
            if pilot.state is PilotState.WAITING and pilot.node in joined
            else pilot
            for pilot in self._seen
        )

    def _note_away(self, why: str | None, now: float) -> None:
        if why == self._away:
            return
        if self._away is None:
            self._away_since = now
        if why is None:
            _log.info("a cluster answers again", cluster=self._cluster.name)
        elif self._away is None:
            _log.warning(
                "a cluster does not answer; nothing changes until it does", cluster=self._cluster.name, error=why
            )
        self._away = why

    def _read(self) -> _Facts:
        kind, nodes = self._cluster.kind, self._store.pool.list_nodes()
        return _Facts(
            pilots=self._list_pilots(),
            agents=tuple(found for found in self._store.agents.list() if found.cluster == kind),
            nodes=frozenset(node.name for node in nodes),
            allocations=self._store.pool.list_open(),
        )

    def _measure(self, snapshot: Snapshot, facts: _Facts, now: float) -> list[Wish]:
        several = self._owners.are_several
        self._learn_kinds(snapshot, facts)
        self._refused_at = {job: at for job, at in self._refused_at.items() if 0 <= now - at < _REFUSED_S}
        self._refused_at |= dict.fromkeys(find_refused(snapshot, self._shape), now)
        most = min(self._rules.max_pilots, self._rules.max_of_owner) if several else self._rules.max_pilots
        wishes = count_wishes(snapshot, self._owners.find_shape, most, self._refused_at, by_owner=several)
        jobs: dict[str | None, list[JobDemand]] = {}
        for job in snapshot.jobs:
            jobs.setdefault(job.owner if several else None, []).append(job)
        names = {wish.owner for wish in wishes} | {one.owner for one in facts.pilots} | jobs.keys()
        self._owners.look_up(names if several else (), now)
        wanted = {wish.owner: wish.most for wish in wishes}
        for owner in self._owners.list():
            own = tuple(jobs.get(owner.name, ()))
            owner.refused_jobs = tuple(job.id for job in own if job.id in self._refused_at)
            owner.typed = find_typed(msgspec.structs.replace(snapshot, jobs=own), owner.shape) if own else []
            owner.note_demand(wanted.get(owner.name, 0), now)
        return wishes

    def _learn_kinds(self, snapshot: Snapshot, facts: _Facts) -> None:
        """Learn from the machines of each user what the cluster gives: no user can say it for others."""
        several = self._owners.are_several
        whose = {one.node: one.owner for one in facts.pilots if one.owner is not None} if several else {}
        there = find_pilots(snapshot, self._shape)
        names = {node: whose.get(node) for node in (there & whose.keys() if several else there)}
        # The machine of a test shows what the cluster gives now: the settings may have changed since the last machines.
        of_test = whose.get(self._test_node)
        if of_test not in names.values() and (of_test is not None or not several):
            names[self._test_node] = of_test
        kinds: dict[str | None, set[str]] = {}
        types: dict[str | None, set[str]] = {}
        for one in snapshot.nodes:
            if one.name in names and one.kind:
                kinds.setdefault(names[one.name], set()).add(one.kind)
        for slot in snapshot.slots:
            if slot.node in names and slot.gpu_type:
                types.setdefault(names[slot.node], set()).add(slot.gpu_type)
        for name, known in kinds.items():  # those of the present machines; otherwise those of the last ones
            owner = self._owners.get(name)
            owner.shape = msgspec.structs.replace(
                owner.shape,
                machine_kinds=tuple(sorted(known)[:_MAX_KNOWN]),
                gpu_types=tuple(sorted(types.get(name, ()))[:_MAX_KNOWN]),
            )

    def _plan_all(
        self,
        wishes: Sequence[Wish],
        pilots: Sequence[Pilot] | None,
        facts: _Facts,
        agents: Sequence[PilotAgent],
        now: float,
    ) -> OwnersPlan:
        """Plan without the machine of a test, which is one of the maximum until it has ended.

        While there is no room for it, it is none. If a machine was given back for it, it is one of the minimum.
        """
        rules = self._rules
        is_running = self._test is not None and self._test.ended_at is None
        alive = {pilot.node for pilot in pilots or () if pilot.state is not PilotState.GONE}
        room = self._test_room if is_running else None
        if (is_running and not self._awaits_room) or self._test_node in alive:
            least, most = max(0, rules.min_pilots - (room is not None)), rules.max_pilots - 1
            rules = msgspec.structs.replace(rules, min_pilots=min(least, most), max_pilots=most)
        pilots = None if pilots is None else [pilot for pilot in pilots if pilot.node != self._test_node]
        agents = [agent for agent in agents if agent.node != self._test_node]
        agents = agents if room is None else room.mark(agents, now)
        if self._owners.are_several:
            if pilots is None:
                return OwnersPlan()
            return self._owners.plan(rules, wishes, pilots, facts.pilots, agents, now)
        (owner,) = self._owners.list()
        owner.target = min(max(owner.demand.now, rules.min_pilots), rules.max_pilots)
        plan = plan_pilots(rules, owner.demand, pilots, agents, now)
        if not plan.num_starts:  # nothing is missing any more
            owner.forgive(now, all_joined={one.node for one in self._seen} <= {agent.node for agent in agents})
        starts: dict[str | None, int] = {None: plan.num_starts}
        if not plan.num_starts or owner.is_paused(now):
            starts = {}
        return OwnersPlan(starts=starts, leaving=plan.leaving, ending=plan.ending)

    def _learn(self) -> None:
        """Take from the store what an earlier server has learned about the machines, counted and tested."""
        for state in self._store.pilots.read_states(self._now(), with_old=True):
            if state.kind != self._cluster.kind:
                continue
            self._idle, self._test, self._may_make_room = state.idle, state.test, False
            if not self._owners.are_several:
                self._owners.learn(None, state.machine_kinds, state.gpu_types)
                continue
            for owner in state.owners:
                self._owners.learn(owner.name, owner.machine_kinds, owner.gpu_types)

    def _count_idle(self, facts: _Facts, agents: Sequence[PilotAgent], now: float) -> None:
        """Count what machines cost while no job uses them, since the last round."""
        before = self._idle or pool.IdleMachines(since=now)
        passed_s = 0.0 if self._counted_at is None else min(max(0.0, now - self._counted_at), _LONGEST_ROUND_S)
        self._counted_at = now
        there = {agent.node: len(agent.devices) for agent in facts.agents if not agent.is_silent(now)}
        idle = {one.node: one.idle_since for one in agents if one.node in there and one.idle_since is not None}
        num_idle = sum(there[node] for node in idle)
        self._idle = pool.IdleMachines(
            num_machines=len(idle),
            num_slots=num_idle,
            slot_s=sum((now - since) * there[node] for node, since in idle.items()),
            total_slot_s=before.total_slot_s + passed_s * num_idle,
            given_slot_s=before.given_slot_s + passed_s * sum(there.values()),
            since=before.since,
        )

    def _describe_agents(self, facts: _Facts, now: float) -> tuple[PilotAgent, ...]:
        busy = Counter(node_of(found.slot) for found in facts.allocations)
        idle = {agent.node for agent in facts.agents if not busy[agent.node]}
        self._idle_since = {node: self._idle_since.get(node, now) for node in idle}
        return tuple(
            PilotAgent(
                node=agent.node,
                num_busy=busy[agent.node],
                idle_since=self._idle_since.get(agent.node),
                leaves_since=min((at for at in (agent.left_at, agent.drained_at) if at is not None), default=None),
                # While no server took its reports, it was not silent.
                silent_since=max(agent.seen_at or agent.joined_at, self._leads_since or now),
            )
            for agent in facts.agents
        )

    # ------------------------------------------------------------ what to do

    def _forget_gone(self, facts: _Facts, agents: Sequence[PilotAgent], now: float) -> None:
        """Let jobs leave machines whose pilots have ended, and forget those that no job holds."""
        shown = {pilot.node: pilot for pilot in self._seen}
        joined = {agent.node for agent in agents}
        for agent in facts.agents:
            owner = self._owners.get(agent.owner)
            if agent.joined_at > owner.failed.begun_at:
                owner.failed = Pause()
        for stored in facts.pilots:
            pilot = shown.get(stored.node)
            if pilot is not None and pilot.state is not PilotState.GONE:
                continue
            if pilot is None and (self._observed_at is None or stored.created_at >= self._observed_at):
                continue  # it was asked for after the last observation
            why = f": {pilot.reason}" if pilot is not None and pilot.reason else ""
            is_failure = stored.identity is None and stored.node in self._known and stored.node not in self._ended
            if is_failure and stored.node != self._test_node:  # a test says itself why it has failed
                hint = self._cluster.explain_failure(stored.node, stored.uid)
                told = f"{self._cluster.name} has ended a machine before its agent joined the pool{why}. {hint}"
                owner = self._owners.get(stored.owner)
                self._pause(owner, owner.failed, told.rstrip(), now)
            if stored.node in joined:
                self._store.pilots.drain(stored.node, self._cluster.name, f"its machine was taken back{why}", now)
            if self._store.pilots.forget(stored.node, now):
                self._ended.discard(stored.node)
                self._known.discard(stored.node)
        self._seen = tuple(pilot for pilot in self._seen if pilot.state is not PilotState.GONE)
        self._strays = tuple(pilot for pilot in self._strays if pilot.state is not PilotState.GONE)
        for lost in joined - {stored.node for stored in facts.pilots}:
            self._store.pilots.forget(lost, now)

    def _find_strays(self, facts: _Facts, now: float) -> list[Ending]:
        """Return pilots that the store does not know, and those whose agents do not join."""
        known = {stored.node: stored for stored in facts.pilots}
        strays = [
            Ending(pilot, force=True, reason="the server does not know it")
            for pilot in self._strays[:_MAX_SHOWN]  # any user of the cluster can make any number of them
            if pilot.state is not PilotState.ENDING
        ]
        silent = {
            pilot.id: pilot
            for pilot in self._seen
            if pilot.state is PilotState.RUNNING and pilot.node in known and known[pilot.node].identity is None
        }
        self._running_since = {pilot: self._running_since.get(pilot, now) for pilot in silent}
        return strays + [
            Ending(silent[pilot], force=True, reason=_NOT_JOINED)
            for pilot, since in self._running_since.items()
            if now - since >= _JOIN_LIMIT_S
        ]

    async def _apply(self, plan: OwnersPlan, facts: _Facts, now: float) -> None:
        for leaving in plan.leaving:
            await asyncio.to_thread(self._store.pilots.drain, leaving.node, self._cluster.name, leaving.reason, now)
        try:
            for force in (False, True):
                await self._end([end for end in plan.ending if end.force is force], facts, now)
        except ClusterAwayError as error:
            self._note_away(str(error), now)
        else:
            await self._start_all(plan, facts, now)

    async def _end(self, ending: Sequence[Ending], facts: _Facts, now: float) -> None:
        """End pilots; each is asked again only after a while."""
        self._asked_at = {key: at for key, at in self._asked_at.items() if 0 <= now - at < _ASK_AGAIN_S}
        strays = {(pilot.id, pilot.uid) for pilot in self._strays}  # a user may give any number to a new pilot
        # There may be several reasons. Jobs of the server's own user are no user's business, whatever their names.
        once = {
            (end.pilot.id, end.pilot.uid): end
            for end in ending
            if not (self._owners.are_several and end.pilot.uid is None and (end.pilot.id, None) in strays)
        }
        due = [end for key, end in once.items() if end.pilot.id and (*key, end.force) not in self._asked_at]
        if not due:
            return
        if not await asyncio.to_thread(self._leads):
            return
        whose = {(one.node, one.uid): one.owner for one in facts.pilots}
        for end in due:
            told = self._name(whose.get((end.pilot.node, end.pilot.uid)))
            _log.info("a pilot is ended", **told, node=end.pilot.node, pilot=end.pilot.id, reason=end.reason)
            self._asked_at[end.pilot.id, end.pilot.uid, end.force] = now
            # A stray may have the node of another pilot.
            if end.reason != _NOT_JOINED and (end.pilot.id, end.pilot.uid) not in strays:
                self._ended.add(end.pilot.node)
        await self._cluster.end([end.pilot for end in due], force=due[0].force)
        if due[0].force:
            self._mark_ending({(end.pilot.id, end.pilot.uid) for end in due})

    def _mark_ending(self, ids: set[tuple[str, int | None]]) -> None:
        """Let pilots that were killed count no more until the next observation."""

        def mark(pilot: Pilot) -> Pilot:
            return msgspec.structs.replace(pilot, state=PilotState.ENDING) if (pilot.id, pilot.uid) in ids else pilot

        self._seen = tuple(map(mark, self._seen))
        self._strays = tuple(map(mark, self._strays))

    async def _start_all(self, plan: OwnersPlan, facts: _Facts, now: float) -> None:
        """Start pilots of all users at once: a user may delay the own ones, and a failure of one stops no other."""
        starts = (self._start(self._owners.get(name), number, facts, now) for name, number in plan.starts.items())
        done = await asyncio.gather(*starts, return_exceptions=True)
        for name, error in zip(plan.starts, done, strict=True):
            if isinstance(error, ClusterAwayError):
                self._note_away(str(error), now)
            elif error is not None:
                _log.error("a user's pilots were not asked for", cluster=self._cluster.name, user=name, exc_info=error)

    async def _start(self, owner: PilotOwner, number: int, facts: _Facts, now: float) -> None:
        if not await asyncio.to_thread(self._leads):  # what came before may have taken long
            return
        orders = await asyncio.to_thread(self._make_orders, owner, number, facts, now)
        refusal = await self._submit(orders, owner, now)
        if refusal is None:
            owner.refused = Pause()
        else:
            self._pause(owner, owner.refused, f"{self._cluster.name} refuses new machines: {refusal}", now)

    async def _submit(self, orders: Sequence[PilotOrder], owner: PilotOwner, now: float) -> str | None:
        """Give orders of one owner to the cluster; returns its words if it refuses one. Raises ClusterAwayError."""
        try:
            done = await self._cluster.start(orders)
        except ClusterAwayError:
            await self._forget_all((order.node for order in orders), now)
            raise
        # What may exist counts before the store is asked, which may fail: otherwise more pilots would be asked for.
        taken = [one for one in done if one.refusal is None]
        uids = {order.node: None if order.user is None else order.user.uid for order in orders}
        for one in taken:
            # If the cluster has not confirmed it, it may exist: it counts until the next observation.
            pilot = one.pilot or Pilot(id="", node=one.node, state=PilotState.WAITING, uid=uids[one.node])
            self._seen = (*self._seen, pilot)
            self._known |= {pilot.node} if one.pilot else set()
            _log.info("a pilot was asked for", **self._name(owner.name), node=pilot.node, pilot=pilot.id)
        kept = {one.node for one in taken}
        await self._forget_all((order.node for order in orders if order.node not in kept), now)
        # A user may stop the commands that run as this user: then others would wait for them again and again.
        silent = next((_SILENT for one in done if one.pilot is None and uids[one.node] is not None), None)
        return next((one.refusal for one in done if one.refusal is not None), silent)

    async def _forget_all(self, nodes: Iterable[str], now: float) -> None:
        for node in nodes:
            await asyncio.to_thread(self._store.pilots.forget, node, now)

    def _make_orders(self, owner: PilotOwner, number: int, facts: _Facts, now: float) -> list[PilotOrder]:
        """Choose the lowest free names, so that a pool has few of them; record each pilot before it exists."""
        prefix = self._cluster.kind
        prefix += "" if owner.name is None else f"-{_INVALID.sub('_', owner.name)[:_MAX_OWNER]}"
        taken = {pilot.node for pilot in self._seen} | {stored.node for stored in facts.pilots} | facts.nodes
        orders: list[PilotOrder] = []
        index = 0
        while len(orders) < number:
            index += 1
            node = f"{prefix}-{index}"
            if node not in taken:
                with contextlib.suppress(Conflict):
                    orders.append(self._make_order(node, owner, now))
        return orders

    def _make_order(self, node: str, owner: PilotOwner, now: float) -> PilotOrder:
        """Record a pilot before it exists. Raises Conflict if a machine has the name."""
        secret = self._store.pilots.add(self._cluster.kind, node, now, owner=owner.name, uid=owner.uid)
        return PilotOrder(node=node, url=self._url, token=f"{secret}{self._token_suffix}", user=owner.user)

    def _pause(self, owner: PilotOwner, pause: Pause, why: str, now: float) -> None:
        if why != pause.why:
            _log.warning("no new pilots for a while", **self._name(owner.name), error=why)
        pause.begin(why, now)

    def _name(self, user: str | None) -> dict[str, str]:
        """Return the cluster, and the user to whom a pilot belongs, for a line of the log."""
        return {"cluster": self._cluster.name} | ({} if user is None else {"user": user})

    # ------------------------------------------------------------ tests

    @property
    def _is_testing(self) -> bool:
        return self._test is not None and not self._test.is_clean

    async def _follow_test(self, snapshot: Snapshot, facts: _Facts, agents: Sequence[PilotAgent], now: float) -> None:
        """Begin the test that someone has asked for, and stop its job when it is decided."""
        test, found = self._test, cluster_tests.find_job(snapshot, self._cluster.kind)
        if test is None or test.ended_at is not None:
            is_left = self._test_node in {stored.node for stored in facts.pilots} | facts.nodes
            if found is None or (test is not None and test.job == found) or (is_left and test is not None):
                return
            test = pool.ClusterTest(job=found, state=cluster_tests.RUNNING, told="", node=self._test_node, began_at=now)
            self._test_asked_at = self._test_hindrance = self._test_refusal = None
            self._test_away = self._test_room = None
            self._may_make_room = True
            await asyncio.to_thread(self._find_hindrance, test.job, now)
        await self._make_room(test, facts, agents, now)
        seen = await asyncio.to_thread(self._look_at_test, test, snapshot, facts, now)
        self._test = cluster_tests.judge(test, seen, now)
        if self._test.ended_at is not None:
            _log.info("a test of a cluster has ended", cluster=self._cluster.name, told=self._test.told)
            await asyncio.to_thread(self._stop_job, test.job, now)

    def _find_hindrance(self, job: str, now: float) -> None:
        """Find out whether the user who has asked for a test can have a machine, before one is given back for it."""
        with contextlib.suppress(NotFound):
            owner = self._find_test_owner(job)
            if self._find_user is not None:
                owner.look_up(self._find_user, now)
                self._test_hindrance = owner.refusal

    def _find_test_owner(self, job: str) -> PilotOwner:
        """Return whose the machine of a test is. Raises NotFound if there is no such job."""
        return self._owners.get(None if self._find_user is None else self._store.jobs.get(job).owner)

    async def _make_room(self, test: pool.ClusterTest, facts: _Facts, agents: Sequence[PilotAgent], now: float) -> None:
        """Give one idle machine back if there is no room for that of a test, and no job needs it.

        It is one of the user who has asked for the test, or of a pool of all users. A machine that is on its way out
        makes room, too.
        """
        self._awaits_room = False
        if self._test_room is not None:
            self._test_room = self._test_room.watch(self._seen, now)
            return
        if test.ended_at is not None or self._away is not None or self._test_hindrance is not None:
            return
        shown = (one for one in self._seen if one.node == self._test_node and one.state is not PilotState.GONE)
        pilot = next(shown, None)
        is_most = pilot is None and self._test_asked_at is None and self._count_others() >= self._rules.max_pilots
        told = self._test_refusal if pilot is None else pilot.reason if pilot.state is PilotState.WAITING else None
        if not is_most and not cluster_tests.lacks_room(told or ""):
            return
        try:
            owner = await asyncio.to_thread(self._find_test_owner, test.job)
        except NotFound:
            return
        own = {one.node for one in facts.pilots if (one.owner, one.uid) == (owner.name, owner.uid)}
        others = [one for one in self._seen if one.node != self._test_node]
        is_late = now - test.began_at > cluster_tests.WAIT_LIMIT_S
        node, is_spare, self._awaits_room = choose_room(
            self._rules,
            owner.demand,
            others,
            agents,
            own,
            now,
            any_helps=is_most,
            takes_idle=self._may_make_room and not is_late,
        )
        if node is None or not await asyncio.to_thread(self._leads):
            return
        if is_spare:
            await asyncio.to_thread(self._store.pilots.drain, node, self._cluster.name, "a test needs its place", now)
        self._test_room = Room(node, now)
        if self._test_refusal is not None:
            self._test_asked_at = self._test_refusal = None

    def _find_room(self, now: float) -> str | None:
        """Return the machine that is being given back for a test; None: there is none, or it takes too long."""
        room = self._test_room
        is_held = room is not None and room.left_at is None and now - room.since <= cluster_tests.WAIT_LIMIT_S
        return room.node if room is not None and is_held else None

    async def _start_test(self, now: float) -> None:
        """Ask for the machine of a test that has none."""
        if self._test is None or self._test.ended_at is not None or self._test_asked_at is not None:
            return
        if self._test_hindrance is not None or self._away is not None or self._observed_at is None:
            return
        if self._find_room(now) is not None or self._count_others() >= self._rules.max_pilots:
            return
        if not await asyncio.to_thread(self._leads):
            return
        try:
            owner, order = await asyncio.to_thread(self._make_test_order, self._test.job, now)
        except (Conflict, NotFound, UsageError) as error:
            self._test_hindrance = str(error)
            return
        self._test_asked_at = now
        try:
            self._test_refusal = await self._submit([order], owner, now)
        except ClusterAwayError as error:  # it has started none; it is asked again when it answers
            self._note_away(str(error), now)
            self._test_asked_at, first = None, now if self._test_away is None else self._test_away[0]
            self._test_away = first, now, str(error)

    def _make_test_order(self, job: str, now: float) -> tuple[PilotOwner, PilotOrder]:
        """Record the machine of a test, which belongs to who has asked for it. Raises UsageError if none can."""
        owner = self._find_test_owner(job)
        if owner.refusal is not None:
            raise UsageError(owner.refusal)
        return owner, self._make_order(self._test_node, owner, now)

    def _count_others(self) -> int:
        """Return how many machines the cluster gives, without that of a test."""
        return sum(one.state is not PilotState.GONE and one.node != self._test_node for one in self._seen)

    def _look_at_test(
        self, test: pool.ClusterTest, snapshot: Snapshot, facts: _Facts, now: float
    ) -> cluster_tests.Sight:
        node = self._test_node
        stored = next((one for one in facts.pilots if one.node == node), None)
        if self._test_asked_at is None and stored is not None:
            self._test_asked_at = stored.created_at  # an earlier server has asked for it
        asked_at = self._test_asked_at
        # The cluster may still show the machine of an earlier test.
        shown = [one for one in self._seen if one.node == node]
        pilot = min(shown, key=lambda one: one.state is PilotState.GONE, default=None)
        is_missing = pilot is None and asked_at is not None and (self._observed_at or 0.0) > asked_at
        agent = next((one for one in facts.agents if one.node == node), None)
        has_ended = is_missing or (pilot is not None and pilot.state is PilotState.GONE)
        needs_words = agent is None and pilot is not None and pilot.state is not PilotState.WAITING
        absences = [] if self._away is None else [(now - self._away_since, self._away)]
        if self._test_away is not None and asked_at is None:
            first, last, why = self._test_away
            absences.append((last - first, why))
        away_s, away = max(absences, default=(0.0, None))
        free_at = 0.0 if self._test_room is None else self._test_room.left_at or 0.0
        job = None
        with contextlib.suppress(NotFound):
            job = self._store.jobs.get(test.job)
        return cluster_tests.Sight(
            cluster=self._cluster.name,
            url=self._url,
            num_pilots=self._count_others(),
            max_pilots=self._rules.max_pilots,
            job=job,
            job_refusal=next((one.refusals.get(node) for one in snapshot.jobs if one.id == test.job), None),
            away=away,
            away_s=away_s,
            hindrance=self._test_hindrance,
            refusal=self._test_refusal,
            room_of=self._find_room(now),
            awaits_room=self._awaits_room,
            was_asked=asked_at is not None,
            pilot=pilot,
            is_gone=has_ended,
            agent=agent,
            pilot_since=None if asked_at is None else max(asked_at, free_at),
            running_since=None if pilot is None else self._running_since.get(pilot.id),
            last_words=self._cluster.read_last_words(node, asked_at, None if stored is None else stored.uid)
            if asked_at and (needs_words or is_missing)
            else "",
        )

    def _stop_job(self, job: str, now: float) -> None:
        with contextlib.suppress(NotFound, Conflict):
            if self._store.jobs.get(job).stage not in ENDED:
                self._store.jobs.stop(job, Asker(self._cluster.name, Role.ADMIN), now, stop_now=True)

    async def _end_test(self, facts: _Facts, now: float) -> list[Ending]:
        """Return how to end the machine of a test that is over."""
        test = self._test
        if test is not None and test.ended_at is None:
            return []
        pilot = next((one for one in self._seen if one.node == self._test_node), None)
        if pilot is None or pilot.state is PilotState.GONE:
            if test is not None and not test.is_clean:
                self._test = msgspec.structs.replace(test, is_clean=True)
            return []
        if pilot.state is PilotState.ENDING:
            return []
        agent = next((one for one in facts.agents if one.node == self._test_node), None)
        reason = "its test has ended"
        if agent is None or pilot.state is PilotState.WAITING:
            return [Ending(pilot, force=True, reason=reason)]
        await asyncio.to_thread(self._store.pilots.drain, self._test_node, self._cluster.name, reason, now)
        since = test.ended_at if test is not None and test.ended_at is not None else agent.joined_at
        if now - since < _END_TEST_S:
            return []
        return [Ending(pilot, force=now - since >= 2 * _END_TEST_S, reason=reason)]

    # ------------------------------------------------------------ what it says

    def _write_state(self, now: float) -> None:
        several, name, kind = self._owners.are_several, self._cluster.name, self._cluster.kind
        of_all = None if several else self._owners.get(None)
        trouble = None if of_all is None else of_all.find_trouble(name, kind)
        if self._away is not None:
            trouble = f"{self._away} Nothing changes until it answers; jobs train on."
        owners = self._owners.list()
        is_paused = of_all is not None and (of_all.refused.why or of_all.failed.why)
        whose = {one.node: one.owner for one in self._list_pilots()} if several else {}
        shape = self._shape if of_all is None else of_all.shape
        state = pool.Cluster(
            kind=kind,
            name=name,
            min_pilots=self._rules.min_pilots,
            max_pilots=self._rules.max_pilots,
            max_pilots_per_user=self._rules.max_of_owner
            if several and self._rules.max_of_owner < self._rules.max_pilots
            else None,
            target=sum(owner.target for owner in owners),
            pilots=tuple(
                pool.Pilot(
                    id=pilot.id,
                    node=pilot.node,
                    state=str(pilot.state),
                    reason=pilot.reason,
                    ends_at=pilot.ends_at,
                    owner=whose.get(pilot.node),
                )
                for pilot in self._seen[:_MAX_SHOWN]
            ),
            trouble=trouble,
            machine_kinds=shape.machine_kinds,
            gpu_types=shape.gpu_types,
            state="away" if self._away else "paused" if is_paused else "ok",
            num_slots=self._shape.num_slots,
            has_gpus=self._shape.has_gpus,
            test=self._test,
            owners=tuple(
                owner.describe(name, kind)
                for owner in owners
                if owner.name is not None and (owner.is_here or owner.shape.machine_kinds)
            )[:_MAX_SHOWN],
        )
        # The numbers below change in each round; they are no news.
        if self._written is None or self._written[1] != state or not 0 <= now - self._written[0] < _STATE_EVERY_S:
            told = msgspec.structs.replace(state, observed_at=self._observed_at, idle=self._idle)
            self._store.pilots.write_state(told, now)
            self._written = (now, state)


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the store says at one moment. ``nodes``: names of all machines, those included whose slots jobs hold."""

    pilots: tuple[StoredPilot, ...]
    agents: tuple[StoredAgent, ...]
    nodes: frozenset[str]
    allocations: tuple[Allocation, ...]
