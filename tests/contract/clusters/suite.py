"""One suite over all clusters: what a server may rely on. A new cluster joins by a `ClusterBed` of its own."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import pytest

from legato.clusters.pilots import Cluster, ClusterAwayError, Pilot, PilotOrder, PilotState
from legato.core.job_user import JobUser

URL = "http://127.0.0.1:8765"


def in_loop(test: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    @functools.wraps(test)
    def run(self: Any) -> None:
        asyncio.run(test(self))

    return run


class ClusterBed(ABC):
    """One engine, and what only a test can do to it. Its pilots need not run a real agent.

    Attributes:
        user: the system user as whom pilots run. None: that of the test.
    """

    user: JobUser | None = None

    @abstractmethod
    def connect(self, pool: str = "pool") -> Cluster:
        """Return a new connection, as a server makes it at its start."""

    @abstractmethod
    async def let_run(self, pilot: Pilot) -> None:
        """Give a waiting pilot a machine."""

    @abstractmethod
    async def let_end(self, pilot: Pilot) -> None:
        """End a pilot as the engine does by itself, for example because its machine has crashed."""

    @abstractmethod
    async def set_away(self, is_away: bool) -> None:
        """Let the engine answer nothing, or answer again."""

    @abstractmethod
    async def set_refusal(self, refusal: str | None) -> None:
        """Let the engine refuse new pilots with this text, or take them."""


class ClusterContract(ABC):
    """The suite; a subclass provides `open_bed`."""

    @abstractmethod
    def open_bed(self) -> AbstractAsyncContextManager[ClusterBed]:
        """Return a bed whose engine has no pilots yet."""

    @in_loop
    async def test_it_shows_a_pilot_with_the_node_of_the_order(self) -> None:
        async with self.open_bed() as bed:
            cluster = bed.connect()
            (done,) = await cluster.start([order("a", bed.user)])
            assert done.refusal is None
            assert done.pilot is not None
            (seen,) = await alive(cluster)
            assert (seen.id, seen.node) == (done.pilot.id, "a")

    @in_loop
    async def test_a_waiting_pilot_has_a_reason_and_then_runs(self) -> None:
        async with self.open_bed() as bed:
            cluster = bed.connect()
            await cluster.start([order("a", bed.user)])
            (seen,) = await alive(cluster)
            assert seen.state is PilotState.WAITING
            assert seen.reason
            await bed.let_run(seen)
            (seen,) = await alive(cluster)
            assert seen.state is PilotState.RUNNING

    @in_loop
    async def test_a_new_process_of_the_server_finds_the_pilots(self) -> None:
        async with self.open_bed() as bed:
            await bed.connect().start([order("a", bed.user), order("b", bed.user)])
            assert {pilot.node for pilot in await alive(bed.connect())} == {"a", "b"}

    @in_loop
    async def test_pilots_of_another_pool_are_not_seen(self) -> None:
        async with self.open_bed() as bed:
            await bed.connect("pool").start([order("a", bed.user)])
            assert await alive(bed.connect("other")) == []

    @in_loop
    async def test_a_waiting_pilot_can_be_ended(self) -> None:
        async with self.open_bed() as bed:
            cluster = bed.connect()
            await cluster.start([order("a", bed.user), order("b", bed.user)])
            first = next(pilot for pilot in await alive(cluster) if pilot.node == "a")
            await cluster.end([first], force=True)
            assert [pilot.node for pilot in await alive(cluster)] == ["b"]

    @in_loop
    async def test_a_running_pilot_can_be_killed(self) -> None:
        async with self.open_bed() as bed:
            cluster = bed.connect()
            await cluster.start([order("a", bed.user)])
            await bed.let_run((await alive(cluster))[0])
            await cluster.end(await alive(cluster), force=True)
            assert [p for p in await alive(cluster) if p.state is PilotState.RUNNING] == []

    @in_loop
    async def test_a_pilot_that_has_ended_is_not_alive_and_can_be_ended_again(self) -> None:
        async with self.open_bed() as bed:
            cluster = bed.connect()
            await cluster.start([order("a", bed.user)])
            (seen,) = await alive(cluster)
            await bed.let_run(seen)
            await bed.let_end(seen)
            assert await alive(cluster) == []
            await cluster.end([seen], force=True)
            await cluster.end([seen], force=False)

    @in_loop
    async def test_a_refusal_has_the_words_of_the_cluster(self) -> None:
        async with self.open_bed() as bed:
            cluster = bed.connect()
            await bed.set_refusal("Invalid account")
            done = await cluster.start([order("a", bed.user), order("b", bed.user)])
            assert [one.node for one in done] == ["a", "b"]
            assert all("Invalid account" in (one.refusal or "") for one in done)
            assert await alive(cluster) == []
            await bed.set_refusal(None)
            (again,) = await cluster.start([order("a", bed.user)])
            assert again.refusal is None

    @in_loop
    async def test_a_cluster_that_is_away_is_no_news(self) -> None:
        async with self.open_bed() as bed:
            cluster = bed.connect()
            await cluster.start([order("a", bed.user)])
            await bed.set_away(True)
            with pytest.raises(ClusterAwayError):
                await cluster.observe()
            one = Pilot(id="1", node="a", state=PilotState.RUNNING)
            if bed.user is None:
                with pytest.raises(ClusterAwayError):
                    await cluster.start([order("b")])
                with pytest.raises(ClusterAwayError):
                    await cluster.end([one], force=True)
            else:  # this user may have written the answer
                (refused,) = await cluster.start([order("b", bed.user)])
                assert refused.refusal is not None
                await cluster.end([msgspec.structs.replace(one, uid=bed.user.uid)], force=True)
            await bed.set_away(False)
            assert [pilot.node for pilot in await alive(cluster)] == ["a"]


def order(node: str, user: JobUser | None = None) -> PilotOrder:
    return PilotOrder(node=node, url=URL, token=f"lgj_{'0' * 63}{len(node)}.plain", user=user)


async def alive(cluster: Cluster) -> Sequence[Pilot]:
    return [pilot for pilot in await cluster.observe() if pilot.state is not PilotState.GONE]
