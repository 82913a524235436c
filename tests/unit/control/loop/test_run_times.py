"""A job with a limit of time with slots is stopped then: whatever else passes in between does not count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from legato.control.records import Job, JobPatch
from legato.control.stages import Stage
from legato.policy.rules import Policy, Rules
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob

REASON = "it has held slots for 60 s, its maximum running time"


def on_a_platform(story: Callable[[World, str], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        world = World(Setting(num_slots=1, quiet_s=1.0))
        job = world.submit(PlannedJob(name="a", max_workers=1, load=Load(num_steps=10**6, step_s=1.0))).id
        world.store._specs[job]["max_run_s"] = 60.0
        await story(world, job)

    clock.run(run())


async def turn(world: World, seconds: float, **changes: Any) -> None:
    turning = asyncio.create_task(world.run(world.make_loop(**changes)))
    await asyncio.sleep(seconds)
    if turning.done():
        await turning
    turning.cancel()


def check_stopped(job: Job) -> None:
    assert job.stage is Stage.STOPPED
    assert job.reason == REASON


def test_a_night_in_which_it_was_paused_does_not_count() -> None:
    async def story(world: World, job: str) -> None:
        await turn(world, 30.0)
        assert world.store.get(job).stage is Stage.RUNNING
        world.store.pause(job)
        await turn(world, 10.0)
        assert world.store.get(job).stage is Stage.PAUSED
        await asyncio.sleep(8 * 3600.0)
        world.store.resume(job)
        await turn(world, 20.0)
        assert world.store.get(job).stage is Stage.RUNNING
        await turn(world, 20.0)
        check_stopped(world.store.get(job))

    on_a_platform(story)


def test_what_it_waits_for_others_who_took_its_slot_does_not_count() -> None:
    async def story(world: World, job: str) -> None:
        world.setting = msgspec.structs.replace(world.setting, rules=Rules(policy=Policy.PRIORITY))
        turning = asyncio.create_task(world.run(world.make_loop()))
        await asyncio.sleep(30.0)
        other = world.submit(PlannedJob(name="b", max_workers=1, load=Load(num_steps=200, step_s=1.0))).id
        world.store.patch(other, JobPatch(priority=9000))
        await asyncio.sleep(150.0)
        assert world.store.get(job).stage is Stage.QUEUED
        assert world.store.get(other).stage is Stage.RUNNING
        while world.store.get(other).stage is not Stage.SUCCEEDED:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(1.0)
        await asyncio.sleep(20.0)
        assert world.store.get(job).stage is Stage.RUNNING
        await asyncio.sleep(20.0)
        turning.cancel()
        check_stopped(world.store.get(job))

    on_a_platform(story)


def test_a_loop_that_comes_new_knows_what_was_before() -> None:
    async def story(world: World, job: str) -> None:
        for _ in range(5):
            await turn(world, 11.0)
            assert world.store.get(job).stage is Stage.RUNNING
        await turn(world, 10.0)
        check_stopped(world.store.get(job))

    on_a_platform(story)


def test_a_job_that_only_starts_holds_its_slots_too() -> None:
    async def story(world: World, job: str) -> None:
        world.drivers.refuse(job, 10**6)
        await turn(world, 55.0)
        assert world.store.get(job).stage is Stage.STARTING
        await turn(world, 10.0)
        found = world.store.get(job)
        assert found.stage is Stage.STOPPED
        assert found.reason == f"{REASON}; it had not started"
        assert world.store.open == {}

    on_a_platform(story)


def test_a_clock_that_is_set_stops_no_job() -> None:
    async def story(world: World, job: str) -> None:
        offset_s = 0.0

        def wall_clock() -> float:
            return clock.now() + offset_s

        turning = asyncio.create_task(world.run(world.make_loop(wall_clock=wall_clock)))
        await asyncio.sleep(20.0)
        offset_s = 7200.0
        await asyncio.sleep(20.0)
        assert world.store.get(job).stage is Stage.RUNNING
        offset_s = -7200.0
        await asyncio.sleep(10.0)
        assert world.store.get(job).stage is Stage.RUNNING
        await asyncio.sleep(20.0)
        turning.cancel()
        check_stopped(world.store.get(job))

    on_a_platform(story)
