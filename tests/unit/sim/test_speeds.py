"""Measured speed in a simulated pool: a job leaves slots that slow it down, and tries them again later."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import msgspec
import pytest

from legato.control.records import JobPatch
from legato.core.speed import FORGET_S
from legato.policy.rules import Policy, Rules
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.memory_store import MemoryLoopStore
from legato.sim.simulation import Setting, World, simulate
from legato.sim.workload import PlannedJob

RIVALS = (Policy.FAIR, Policy.THROUGHPUT)
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


def test_a_later_job_of_the_same_code_starts_with_what_an_earlier_one_has_measured() -> None:
    """It leaves out the number that was too slow, and tries it again half an hour after its start."""

    async def story() -> None:
        world = World(Setting(num_slots=4))
        turning = asyncio.create_task(world.run(world.make_loop("one")))

        async def run(code: str | None, owner: str, *seconds_with: tuple[int, float]) -> list[tuple[int, str]]:
            """Run a job with these maximums for so long; return its slots and the reasons, each second."""
            plan = make_plan("j", 10**6, SPEEDUPS)
            job = world.submit(msgspec.structs.replace(plan, code=code, owner=owner))
            seen = []
            for most, seconds in seconds_with:
                world.store.patch(job.id, JobPatch(max_workers=most))
                for _ in range(int(seconds)):
                    await asyncio.sleep(1.0)
                    held = sum(one.job == job.id for one in world.store.open.values())
                    seen.append((held, world.store.jobs[job.id].decided_reason or ""))
            world.store.stop(job.id)
            await asyncio.sleep(10.0)
            return seen

        await run("same", "ann", (2, 100), (4, 100))
        seen = await run("same", "ann", (4, FORGET_S + 200))
        sizes = [held for held, _ in itertools.groupby(held for held, _ in seen) if held]
        assert sizes == [3, 4, 3], "it tries 4 once, and then believes its own measurement"
        assert [held for held, _ in seen].index(4) >= FORGET_S
        why = "3 of up to 4 slots: earlier runs of its code were slower with 4 workers than with 2"
        assert why.replace("3 of", "starts with 3 of") in {reason for _, reason in seen}
        assert why in {reason for _, reason in seen}
        for code, owner in (("another", "ann"), (None, "ann"), ("same", "ben")):
            assert max(held for held, _ in await run(code, owner, (4, 100))) == 4
        turning.cancel()

    clock.run(story())


def test_earlier_runs_are_read_once_for_each_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[str, int]] = []
    find = MemoryLoopStore.read_earlier_runs

    def note(store: MemoryLoopStore, jobs: Sequence[str]) -> object:
        read.extend((job, store.jobs[job].attempt) for job in jobs)
        return find(store, jobs)

    monkeypatch.setattr(MemoryLoopStore, "read_earlier_runs", note)
    plans = [msgspec.structs.replace(make_plan(name, 50), code=name) for name in "abc"]
    simulate([*plans, make_plan("without", 50)], Setting(num_slots=4))
    assert len(read) == 6
    assert set(read) == {(job, attempt) for job, _ in read for attempt in (0, 1)}
    read.clear()
    simulate(plans, Setting(num_slots=4, rules=Rules(measured_speed_s=None)))
    assert read == []


def test_two_jobs_of_a_user_find_out_which_of_them_gains_more() -> None:
    """They share equally at first, and would for good without a trial."""
    plans = [make_plan("flat", 1000, ((2, 1.1), (8, 1.2))), make_plan("steep", 5000)]
    plans = [msgspec.structs.replace(plan, max_workers=8) for plan in plans]
    fair, measured = (simulate(plans, Setting(num_slots=8, rules=Rules(policy=policy))) for policy in RIVALS)
    ended = [{job.name: job.ended_at or 0.0 for job in world.store.jobs.values()} for world in (fair, measured)]
    assert ended[1]["steep"] < ended[0]["steep"] * 0.9, ended
    reasons = {decision.reason for decision in measured.store.decisions}
    assert any("it tries 3 workers, and" in reason for reason in reasons)
