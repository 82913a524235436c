"""A job, a queue or a slot that a round cannot deal with is left as it is, and all others go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from legato.control.drivers.drivers import DriverReport
from legato.control.drivers.local import LocalDrivers
from legato.control.loop import deciding
from legato.control.records import Facts, Job, Queue
from legato.control.stages import Stage
from legato.control.work import Work, read_work
from legato.policy.policies import decide
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob

_replace = msgspec.structs.replace


def on_a_platform(story: Any, **setting: Any) -> None:
    async def run() -> None:
        await story(World(Setting(num_slots=4, quiet_s=1.0, **setting)))

    clock.run(run())


def submit(world: World, name: str, **changes: Any) -> Job:
    load = Load(num_steps=1000, step_s=1.0)
    return world.submit(PlannedJob(name=name, submitted_at=0.0, max_workers=1, load=load, **changes))


def poison(world: World, job: Job, **values: Any) -> None:
    world.store._put(_replace(world.store.get(job.id), **values))


def stages(world: World, *jobs: Job) -> list[Stage]:
    return [world.store.get(job.id).stage for job in jobs]


async def do_rounds(loop: Any, number: int = 12) -> None:
    for _ in range(number):
        await loop.round()
        await asyncio.sleep(1.0)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"min_workers": 3, "max_workers": 2}, "min_workers=3 and max_workers=2 are not a range; 'legato set JOB"),
        ({"min_workers": 0}, "min_workers=0 and max_workers=1 are not a range"),
        ({"priority": 0}, "priority=0 is not within 1..10000; 'legato set JOB --priority N' changes it"),
        ({"priority": 10_001}, "priority=10001 is not within 1..10000"),
        ({"submitted_at": float("nan")}, "submitted_at=nan is not a finite number of seconds"),
        ({"submitted_at": float("inf")}, "submitted_at=inf is not a finite number of seconds"),
        ({"priority": "high"}, "what is known of it cannot be used: TypeError"),
    ],
)
def test_a_job_that_the_policy_cannot_decide_on_waits_and_all_others_run(values: dict[str, Any], told: str) -> None:
    async def story(world: World) -> None:
        first, bad, last = (submit(world, name) for name in ("first", "bad", "last"))
        poison(world, bad, **values)
        loop = world.make_loop()
        await do_rounds(loop)
        assert stages(world, first, bad, last) == [Stage.RUNNING, Stage.QUEUED, Stage.RUNNING]
        found = world.store.get(bad.id)
        assert found.decided_reason is not None and found.decided_reason.startswith(
            f"the scheduler ignores this job, and does not change its slots: {told}"
        )
        assert [one.reason for one in world.store.decisions if one.job == bad.id] == [found.decided_reason], "said once"
        assert loop.stats.left_out["job"] == 1 and loop.stats.num_failed == 0
        poison(world, bad, **{name: getattr(bad, name) for name in values})
        await do_rounds(loop)
        assert stages(world, bad) == [Stage.RUNNING] and loop.stats.left_out["job"] == 0

    on_a_platform(story)


def test_a_job_that_runs_when_it_cannot_be_decided_on_any_more_keeps_its_slot_and_can_be_stopped() -> None:
    async def story(world: World) -> None:
        bad = submit(world, "bad")
        loop = world.make_loop()
        await do_rounds(loop)
        poison(world, bad, priority=0)
        others = [submit(world, f"job-{number}") for number in range(4)]
        await do_rounds(loop)
        assert stages(world, bad, *others) == [Stage.RUNNING] * 4 + [Stage.QUEUED]
        assert [one.job for one in world.store.open.values()].count(bad.id) == 1
        waits = world.store.get(others[-1].id).decided_reason
        assert waits is not None and "freed" not in waits, "nothing is being freed for it"
        world.store.stop(bad.id)
        await do_rounds(loop)
        assert stages(world, bad, *others) == [Stage.STOPPED] + [Stage.RUNNING] * 4

    on_a_platform(story)


def test_a_queue_that_cannot_be_used_keeps_only_its_own_jobs_waiting() -> None:
    async def story(world: World) -> None:
        bad, good = submit(world, "bad", queue="night"), submit(world, "good")
        loop = world.make_loop()
        await do_rounds(loop)
        assert stages(world, bad, good) == [Stage.QUEUED, Stage.RUNNING]
        told = world.store.get(bad.id).decided_reason
        assert (
            told is not None and "its queue 'night' cannot be used: weight=nan is not a finite number above 0" in told
        )
        assert loop.stats.left_out == {"job": 1, "queue": 1, "slot": 0}

    on_a_platform(story, queues=(Queue(name="night", weight=float("nan")),))


@pytest.mark.parametrize("fault", ["without a name", "twice"])
def test_a_slot_that_cannot_be_used_is_given_to_no_job(fault: str) -> None:
    async def story(world: World) -> None:
        slots = tuple(world.store.slots.values())
        odd = _replace(slots[0], id="") if fault == "without a name" else slots[1]
        read_facts = world.store.read_facts

        def read_odd() -> Facts:
            return _replace(read_facts(), slots=(*slots, odd))

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(world.store, "read_facts", read_odd)
            jobs = [submit(world, f"job-{number}") for number in range(5)]
            loop = world.make_loop()
            await do_rounds(loop)
        assert stages(world, *jobs) == [Stage.RUNNING] * 4 + [Stage.QUEUED]
        assert loop.stats.left_out["slot"] == 1

    on_a_platform(story)


def test_two_jobs_with_one_id_do_not_stop_the_others() -> None:
    async def story(world: World) -> None:
        twin, good = submit(world, "twin"), submit(world, "good")
        read_facts = world.store.read_facts

        def read_twice() -> Facts:
            facts = read_facts()
            return _replace(facts, jobs=(*facts.jobs, *(job for job in facts.jobs if job.id == twin.id)))

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(world.store, "read_facts", read_twice)
            await do_rounds(world.make_loop())
        assert stages(world, good) == [Stage.RUNNING]

    on_a_platform(story)


def fails_on(*names: str) -> Callable[..., Any]:
    def decide_or_fail(snapshot: Any, rules: Any) -> Any:
        bad = [job.name for job in snapshot.jobs if job.name in names]
        if bad:
            raise AssertionError(f"no rule covers {bad[0]}")
        return decide(snapshot, rules)

    return decide_or_fail


def test_a_job_on_which_the_policy_fails_unexpectedly_is_found_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "decide", fails_on("job-1", "job-4"))

    async def story(world: World) -> None:
        jobs = [submit(world, f"job-{number}") for number in range(5)]
        await do_rounds(world.make_loop())
        assert stages(world, *jobs) == [Stage.RUNNING, Stage.QUEUED, Stage.RUNNING, Stage.RUNNING, Stage.QUEUED]
        told = world.store.get(jobs[4].id).decided_reason
        assert told is not None and told.endswith("the policy fails on it: AssertionError: no rule covers job-4")

    on_a_platform(story)


def test_a_policy_that_fails_on_everything_keeps_no_job_from_being_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        job = submit(world, "job")
        loop = world.make_loop()
        await do_rounds(loop)

        def fail(*_: Any) -> Any:
            raise AssertionError("no policy")

        monkeypatch.setattr(deciding, "decide", fail)
        world.store.stop(job.id)
        for _ in range(16):
            with pytest.raises(AssertionError, match="no policy"):
                await loop.round()
            await asyncio.sleep(1.0)
        assert stages(world, job) == [Stage.STOPPED]
        assert loop.decisions is None

    on_a_platform(story)


@pytest.mark.parametrize(
    "values",
    [
        {"step": "many"},
        {"num_workers": None},
        {"resize_s": float("nan")},
        {"resize_s": "long"},
        {"speeds": "many"},
        {"speeds": [{"num_workers": 2}]},
    ],
)
def test_no_other_job_waits_for_a_driver_that_reports_nonsense(values: dict[str, Any]) -> None:
    async def story(world: World) -> None:
        bad = submit(world, "bad")
        loop = world.make_loop()
        await do_rounds(loop)
        reports = world.drivers.reports

        async def lie(attempts: Any) -> dict[str, DriverReport]:
            found = await reports(attempts)
            told = found[bad.id]
            return found | {bad.id: _replace(told, status={**(told.status or {}), **values})}

        good = submit(world, "good")
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(world.drivers, "reports", lie)
            await do_rounds(loop)
        assert stages(world, bad, good) == [Stage.RUNNING, Stage.RUNNING]
        found = world.store.get(bad.id)
        says_so = "its driver sends an invalid report" in found.reason
        assert says_so or "left out" in (found.decided_reason or "") or loop.stats.left_out["job"], found
        await do_rounds(loop)
        assert "cannot be used" not in world.store.get(bad.id).reason, "it is over"

    on_a_platform(story)


def test_a_spec_that_cannot_even_be_parsed_fails_its_own_job_alone() -> None:
    async def story(world: World) -> None:
        bad, good = submit(world, "bad"), submit(world, "good")
        unparsable = world.store.read_specs([bad.id])[bad.id]

        def read(spec: dict[str, Any]) -> Work:
            if spec is unparsable:
                raise ValueError("Expecting value: line 1 column 1")
            return read_work(spec)

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr("legato.control.loop.loop.read_work", read)
            await do_rounds(world.make_loop())
        assert stages(world, bad, good) == [Stage.FAILED, Stage.RUNNING]
        assert "ValueError: Expecting value" in world.store.get(bad.id).reason

    on_a_platform(story)


def test_a_driver_of_which_nothing_can_be_found_out_hides_no_other(tmp_path: Any, monkeypatch: Any) -> None:
    def refuse(*_directory: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("legato.control.drivers.local.read_order", refuse)
    monkeypatch.setattr("legato.control.drivers.local.LocalDrivers._is_driven", refuse)

    async def ask() -> dict[str, DriverReport]:
        drivers = LocalDrivers(tmp_path, node="n", devices=["cpu"])
        try:
            return await drivers.reports({"j-1": 1, "j-2": 1})
        finally:
            await drivers.close()

    found = asyncio.run(ask())
    assert {job: report.state.value for job, report in found.items()} == {"j-1": "silent", "j-2": "silent"}


def test_a_job_whose_earlier_runs_cannot_be_read_is_scheduled() -> None:
    def fail(_jobs: object) -> None:
        raise ValueError("damaged")

    async def story(world: World) -> None:
        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(world.store, "read_earlier_runs", fail)
            job = submit(world, "job", code="c" * 64)
            loop = world.make_loop()
            await do_rounds(loop)
            assert stages(world, job) == [Stage.RUNNING] and loop.stats.num_failed == 0

    on_a_platform(story)
