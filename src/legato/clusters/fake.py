"""A cluster in memory, for tests: it does what a test says, when it says it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from legato.clusters.pilots import Cluster, ClusterAwayError, Pilot, PilotOrder, PilotState, Submitted


class FakeEngine:
    """What a fake cluster controls; it outlives the servers that use it.

    Attributes:
        pilots: all, by id; a test changes their states.
        orders: those of the pilots, by id.
        is_away: it answers nothing.
        refusal: with which it refuses orders. None: it takes them.
        refusals: the same for orders of one system user, by number.
        num_observed: how often it was observed.
    """

    def __init__(self) -> None:
        self.pilots: dict[str, Pilot] = {}
        self.orders: dict[str, PilotOrder] = {}
        self.pools: dict[str, str] = {}
        self.is_away = False
        self.refusal: str | None = None
        self.refusals: dict[int, str] = {}
        self.num_observed = 0
        self.ended: list[tuple[str, bool]] = []
        self._ids = itertools.count(1)

    def submit(self, pool: str, order: PilotOrder) -> Pilot:
        """Take an order."""
        uid = None if order.user is None else order.user.uid
        pilot = Pilot(id=str(next(self._ids)), node=order.node, state=PilotState.WAITING, reason="Resources", uid=uid)
        self.pilots[pilot.id], self.orders[pilot.id], self.pools[pilot.id] = pilot, order, pool
        return pilot

    def set(self, pilot: str, state: PilotState, reason: str | None = None, ends_at: float | None = None) -> None:
        """Change a pilot."""
        self.pilots[pilot] = msgspec.structs.replace(self.pilots[pilot], state=state, reason=reason, ends_at=ends_at)


class FakeCluster(Cluster):
    """A server's side of a `FakeEngine`."""

    kind: ClassVar = "fake"
    observe_every_s: ClassVar = 0.0

    def __init__(self, engine: FakeEngine, pool: str = "pool") -> None:
        super().__init__("Fake", pool)
        self._engine = engine

    async def observe(self) -> Sequence[Pilot]:
        """Return the pilots of this pool."""
        self._check()
        self._engine.num_observed += 1
        return [pilot for pilot in self._engine.pilots.values() if self._engine.pools[pilot.id] == self.pool]

    async def start(self, orders: Sequence[PilotOrder]) -> Sequence[Submitted]:
        """Take the orders, or refuse them."""
        self._check()
        user = orders[0].user if orders else None
        refusal = self._engine.refusal or (None if user is None else self._engine.refusals.get(user.uid))
        if refusal is not None:
            return [Submitted(node=order.node, refusal=refusal) for order in orders]
        return [Submitted(node=order.node, pilot=self._engine.submit(self.pool, order)) for order in orders]

    async def end(self, pilots: Sequence[Pilot], *, force: bool) -> None:
        """End waiting pilots, and running ones by force; others are only noted in ``ended``."""
        self._check()
        for pilot in pilots:
            self._engine.ended.append((pilot.id, force))
            known = self._engine.pilots.get(pilot.id)
            if known is not None and (force or known.state is PilotState.WAITING):
                self._engine.set(pilot.id, PilotState.GONE)

    def _check(self) -> None:
        if self._engine.is_away:
            raise ClusterAwayError("the fake cluster is away")
