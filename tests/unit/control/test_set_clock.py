"""The machine's clock is set back by an hour: no job waits for that hour to pass again. On a made-up platform."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from legato.control.loop.pace import Pace
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob

HOUR_S = 3600.0


class Platform:
    """Two slots, and a loop whose clock can be set."""

    def __init__(self) -> None:
        self.world = World(Setting(num_slots=2, quiet_s=1.0))
        self.offset_s = HOUR_S
        loop = self.world.make_loop(wall_clock=lambda: clock.now() + self.offset_s)
        self.turning = asyncio.create_task(self.world.run(loop))

    def submit(self, name: str, max_workers: int, num_steps: int) -> str:
        load = Load(num_steps=num_steps, step_s=1.0)
        return self.world.submit(PlannedJob(name=name, max_workers=max_workers, load=load)).id

    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self.turning.done():
            await self.turning

    def num_slots(self, job: str) -> int:
        return sum(found.job == job for found in self.world.store.open.values())


def on_a_platform(story: Callable[[Platform], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        platform = Platform()
        await story(platform)
        platform.turning.cancel()

    clock.run(run())


def test_a_growth_that_waits_for_its_moment_comes_at_that_moment() -> None:
    async def story(platform: Platform) -> None:
        long, short = platform.submit("long", 2, 10**6), platform.submit("short", 1, 20)
        await platform.wait(10.0)
        assert platform.num_slots(long) == 1
        while platform.num_slots(short):
            await platform.wait(0.5)
        await platform.wait(1.5)
        assert platform.num_slots(long) == 1, "it waits for a while, in case that another worker comes"
        platform.offset_s = 0.0
        await platform.wait(6.0)
        assert platform.num_slots(long) == 2

    on_a_platform(story)


def test_a_job_that_was_resized_lately_may_be_resized_again() -> None:
    async def story(platform: Platform) -> None:
        long = platform.submit("long", 2, 10**6)
        await platform.wait(10.0)
        first = platform.submit("first", 1, 20)
        await platform.wait(15.0)
        assert platform.num_slots(long) == 1, "it was resized"
        platform.offset_s = 0.0
        while platform.num_slots(first):
            await platform.wait(0.5)
        await platform.wait(8.0)
        assert platform.num_slots(long) == 2

    on_a_platform(story)


def test_progress_is_still_reported() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit("job", 1, 10**6)
        await platform.wait(20.0)
        platform.offset_s = 0.0
        await platform.wait(10.0)
        progress = platform.world.store.get(job).progress
        assert progress is not None and progress.step is not None
        assert progress.step >= 20
        assert progress.time <= clock.now()

    on_a_platform(story)


def test_a_step_never_takes_less_than_no_time() -> None:
    pace = Pace()
    for step, now in [(0, 5000.0), (1, 5001.0), (2, 1401.5), (3, 1402.5)]:
        pace = pace.after(step, 1, now)
        assert pace.step_s is None or pace.step_s == 1.0
    assert pace.step_s == 1.0
