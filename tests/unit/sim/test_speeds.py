"""Measured speed in a simulated pool: a job leaves slots that slow it down, and tries them again later."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from legato.core.speed import FORGET_S
from legato.policy.rules import Policy, Rules
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob

SPEEDUPS = ((2, 1.9), (3, 2.0), (4, 1.2))


def make_plan(name: str, num_steps: int, speedups: tuple[tuple[int, float], ...] = ()) -> PlannedJob:
    load = Load(num_steps=num_steps, step_s=1.0, speedups=speedups)
    return PlannedJob(name=name, max_workers=4, load=load)


@pytest.mark.parametrize("policy", list(Policy))
def test_a_slot_that_slows_a_job_down_goes_to_another_one(policy: Policy) -> None:
    async def story() -> None:
        world = World(Setting(num_slots=6, rules=Rules(policy=policy)))
        loop = world.make_loop("one")
        turning = asyncio.create_task(world.run(loop))
        first = world.submit(make_plan("first", 400))  # two or four workers need 100 s or 200 s
        slowed = world.submit(make_plan("slowed", 10**6, SPEEDUPS))
        changes = []
        for _ in range(int(FORGET_S) + 600):
            await asyncio.sleep(1.0)
            job = world.store.jobs[slowed.id]
            held = sum(one.job == slowed.id for one in world.store.open.values())
            changes.append((held, job.decided_reason))
        sizes = [held for held, _ in itertools.groupby(held for held, _ in changes) if held]
        assert sizes[0] in (2, 3), "the other job has the rest"
        sizes = sizes[sizes.index(4) :] if 4 in sizes else sizes
        assert sizes[:4] == [4, 3, 4, 3], "it tries again when the measurement is old"
        told = dict(changes)[3]
        assert told is not None
        assert told.startswith("3 of up to 4 slots: it was slower with 4 workers than with"), told
        assert world.store.jobs[first.id].stage.value == "succeeded"
        turning.cancel()

    clock.run(story())
