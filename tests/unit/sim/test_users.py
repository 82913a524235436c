"""Users share a simulated pool: a sweep against one job, now and over time, and when another loop takes over."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from legato.policy.rules import FairBy, Rules
from legato.policy.snapshot import RecentUse
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.memory_store import MemoryLoopStore
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob


def make_plan(owner: str, name: str, max_workers: int, at: float = 0.0) -> PlannedJob:
    load = Load(num_steps=10**6, step_s=1.0)
    return PlannedJob(name=name, owner=owner, submitted_at=at, max_workers=max_workers, load=load)


def count(world: World) -> dict[str, int]:
    """Return how many slots each user holds."""
    held = dict.fromkeys(("ann", "ben"), 0)
    for one in world.store.open.values():
        held[world.store.jobs[one.job].owner] += 1
    return held


async def turn(world: World, seconds: float, owner: str) -> None:
    loop = world.make_loop(owner)
    turning = asyncio.create_task(world.run(loop))
    await asyncio.sleep(seconds)
    assert loop.stats.num_failed == 0
    turning.cancel()


@pytest.mark.parametrize(("fair_by", "want"), [(FairBy.USER, {"ann": 4, "ben": 4}), (FairBy.JOB, {"ann": 8, "ben": 0})])
def test_a_sweep_and_a_job_of_another_user(fair_by: FairBy, want: dict[str, int]) -> None:
    async def story() -> None:
        world = World(Setting(num_slots=8, rules=Rules(fair_by=fair_by)))
        for number in range(8):
            world.submit(make_plan("ann", f"a{number}", 1))
        await turn(world, 60.0, "one")
        world.submit(make_plan("ben", "b", 8))
        await turn(world, 60.0, "one")
        assert count(world) == want

    clock.run(story())


def test_recent_use_counts_and_another_loop_knows_it() -> None:
    async def story() -> None:
        world = World(Setting(num_slots=8, rules=Rules(usage_half_life_s=3600.0)))
        world.submit(make_plan("ann", "a", 8))
        await turn(world, 5400.0, "one")
        assert count(world) == {"ann": 8, "ben": 0}
        world.submit(make_plan("ben", "b", 8))
        await turn(world, 300.0, "one")
        assert count(world) == {"ann": 3, "ben": 5}
        await turn(world, 300.0, "another")
        assert count(world) == {"ann": 3, "ben": 5}
        # In the end both have used the same lately.
        await turn(world, 3 * 3600.0, "another")
        assert count(world) == {"ann": 4, "ben": 4}

    clock.run(story())


def test_the_loop_reads_recent_use_once_in_a_thousandth_of_a_half_life(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[float] = []
    read = MemoryLoopStore.read_recent_use

    def note(store: MemoryLoopStore, now: float, half_life_s: float) -> tuple[RecentUse, ...]:
        reads.append(now)
        return read(store, now, half_life_s)

    monkeypatch.setattr(MemoryLoopStore, "read_recent_use", note)

    async def story() -> None:
        world = World(Setting(num_slots=8, rules=Rules(usage_half_life_s=600_000.0)))
        world.submit(make_plan("ann", "a", 8))
        await turn(world, 2000.0, "one")
        assert len(reads) == 4
        assert all(600 <= after - before <= 670 for before, after in itertools.pairwise(reads))
        await turn(world, 30.0, "another")
        assert len(reads) == 5, "another loop has read nothing yet"

    clock.run(story())
