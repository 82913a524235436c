"""Whatever goes wrong, no slot has two jobs, no job is lost or run twice, and all end."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, note, settings
from tests.tiers import examples
from tests.unit.sim.chaos import Story, any_story, live

from legato.control.stages import Stage
from legato.sim import clock


@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(story=any_story())
def test_whatever_goes_wrong_every_job_ends_once(story: Story) -> None:
    try:
        world = clock.run(live(story))
    finally:
        note("\n".join(story.told))
    store, drivers = world.store, world.drivers
    assert drivers.clashes == []
    assert {job.stage for job in store.jobs.values()} == {Stage.SUCCEEDED}, store.jobs
    assert len(store.jobs) == len(story.plans)
    assert store.open == {} and drivers.occupied == {}
    for job in store.jobs.values():
        saved = drivers.saved[job.id]
        assert saved.num_successes == 1
        load = drivers.attempts[job.id].load
        assert saved.step == load.num_steps
        if not saved.num_failures:
            assert saved.useful_s == pytest.approx(load.num_steps * load.step_s, abs=1e-3), "something was done twice"
        mine = [found for found in store.closed if found.job == job.id]
        assert {found.attempt for found in mine} == set(range(1, job.attempt + 1)), "attempts grow one by one"
