"""Made-up jobs behave as real ones where their drivers die."""

from __future__ import annotations

import asyncio

import pytest

from legato.control.stages import Stage
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob


async def live(*kills: float) -> World:
    """Run a job of 200 s whose driver is killed at these moments."""
    world = World(Setting())
    turning = asyncio.create_task(world.run(world.make_loop()))
    job = world.submit(PlannedJob(name="a", load=Load(num_steps=200, step_s=1.0)))
    for moment in kills:
        await asyncio.sleep(moment - clock.now())
        world.drivers.kill_driver(job.id)
    await asyncio.sleep(300 - clock.now())
    turning.cancel()
    return world


@pytest.mark.parametrize("kills", [(), (50.5,), (50.5, 50.5), (50.5, 50.5, 120.0)])
def test_workers_train_on_while_their_driver_is_started_again(kills: tuple[float, ...]) -> None:
    world = clock.run(live(*kills))
    (job,) = world.store.jobs.values()
    assert (job.stage, job.attempt) == (Stage.SUCCEEDED, 1)
    assert job.ended_at == pytest.approx(204, abs=2)
    assert world.drivers.saved[job.id].useful_s == pytest.approx(200)
