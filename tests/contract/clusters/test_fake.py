"""The suite over clusters, with the fake one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from tests.contract.clusters.suite import ClusterBed, ClusterContract

from legato.clusters.fake import FakeCluster, FakeEngine
from legato.clusters.pilots import Cluster, Pilot, PilotState


class FakeBed(ClusterBed):
    def __init__(self) -> None:
        self.engine = FakeEngine()

    def connect(self, pool: str = "pool") -> Cluster:
        return FakeCluster(self.engine, pool)

    async def let_run(self, pilot: Pilot) -> None:
        self.engine.set(pilot.id, PilotState.RUNNING)

    async def let_end(self, pilot: Pilot) -> None:
        self.engine.set(pilot.id, PilotState.GONE)

    async def set_away(self, is_away: bool) -> None:
        self.engine.is_away = is_away

    async def set_refusal(self, refusal: str | None) -> None:
        self.engine.refusal = refusal


class TestFake(ClusterContract):
    @contextlib.asynccontextmanager
    async def open_bed(self) -> AsyncIterator[ClusterBed]:
        yield FakeBed()
