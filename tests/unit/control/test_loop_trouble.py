"""One job's trouble is not the others', and a loop that begins to decide says so first. On a made-up platform."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from legato.control.records import Facts, JobChange, JobPatch, Lease, Written
from legato.control.stages import Stage
from legato.core.errors import FencedOut, StoreError, TransitionError, UnreadableRow
from legato.policy.rules import Rules
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob


def make_plan(name: str, num_steps: int = 1000) -> PlannedJob:
    return PlannedJob(name=name, submitted_at=0.0, max_workers=1, load=Load(num_steps=num_steps, step_s=1.0))


def on_a_platform(story: Any) -> None:
    async def run() -> None:
        await story(World(Setting(num_slots=4, quiet_s=1.0)))

    clock.run(run())


async def turn(world: World, seconds: float, **changes: Any) -> None:
    turning = asyncio.create_task(world.run(world.make_loop(**changes)))
    await asyncio.sleep(seconds)
    if turning.done():
        await turning
    turning.cancel()


def stage_of(world: World, job: Any) -> Stage:
    return world.store.get(job.id).stage


def test_a_job_with_an_unreadable_spec_fails_and_no_other_job_waits_for_it() -> None:
    async def story(world: World) -> None:
        bad = world.submit(make_plan("bad"))
        good = world.submit(make_plan("good"))
        world.store._specs[bad.id] = {"program": ["train.py"], "colour": "red"}
        await turn(world, 20.0)
        found = world.store.get(bad.id)
        assert found.stage is Stage.FAILED
        assert found.reason.startswith(
            "it cannot be started: Cannot read the job's spec: Object contains unknown field"
        )
        assert found.reason.endswith(". Submit it again")
        assert (found.exit_code, found.attempt, found.num_slots) == (2, 0, 0)
        assert stage_of(world, good) is Stage.RUNNING

    on_a_platform(story)


def test_a_change_that_cannot_be_written_keeps_no_other_from_being_written() -> None:
    class LoopStore:
        """Refuses whatever concerns one job."""

        def __init__(self, world: World, unlucky: str) -> None:
            self._store, self._unlucky = world.store, unlucky
            self.take_lease, self.read_facts, self.read_specs, self.count_usage = (
                world.store.take_lease,
                world.store.read_facts,
                world.store.read_specs,
                world.store.count_usage,
            )
            self.read_earlier_runs = world.store.read_earlier_runs

        def write(self, changes: Sequence[JobChange], fence: int, now: float) -> Written:
            if any(change.job == self._unlucky for change in changes):
                raise TransitionError("there is no such move")
            return self._store.write(changes, fence, now)

    async def story(world: World) -> None:
        jobs = [world.submit(make_plan(f"job-{number}")) for number in range(3)]
        await turn(world, 20.0, store=LoopStore(world, jobs[1].id))
        assert [stage_of(world, job) for job in jobs] == [Stage.RUNNING, Stage.QUEUED, Stage.RUNNING]

    on_a_platform(story)


@pytest.mark.parametrize("error", [FencedOut("lost"), StoreError("away")])
def test_what_concerns_all_ends_the_round_instead(error: Exception) -> None:
    tried: list[int] = []

    class LoopStore:
        def __init__(self, world: World) -> None:
            self.take_lease, self.read_facts, self.read_specs, self.count_usage = (
                world.store.take_lease,
                world.store.read_facts,
                world.store.read_specs,
                world.store.count_usage,
            )
            self.read_earlier_runs = world.store.read_earlier_runs

        def write(self, changes: Sequence[JobChange], fence: int, now: float) -> Written:
            tried.append(len(changes))
            raise error

    async def story(world: World) -> None:
        for number in range(3):
            world.submit(make_plan(f"job-{number}"))
        loop = world.make_loop(store=LoopStore(world))
        with pytest.raises(type(error)):
            await loop.round()
        assert tried == [3]

    on_a_platform(story)


def test_who_begins_to_decide_says_so_before_it_reads_anything() -> None:
    async def story(world: World) -> None:
        told: list[tuple[str, int]] = []

        def make(owner: str) -> Any:
            def note(lease: Lease) -> None:
                told.append((owner, lease.fence))
                world.submit(make_plan(f"seen-by-{owner}"))

            return world.make_loop(owner, on_lead=note, lease_s=10.0)

        first, second = make("first"), make("second")
        assert await first.round() and not await second.round()
        assert await first.round()
        assert told == [("first", 1)]
        assert first.decisions is not None and len(first.decisions.decisions) == 1, "what was declared is decided on"
        await asyncio.sleep(11.0)
        assert await second.round() and not await first.round()
        assert told == [("first", 1), ("second", 2)]
        assert first.decisions is None, "what it decided is not what holds"
        # It may never notice that another one decided meanwhile.
        await asyncio.sleep(11.0)
        assert await first.round()
        await asyncio.sleep(11.0)
        assert await second.round()
        assert told[2:] == [("first", 3), ("second", 4)]

    on_a_platform(story)


def reading_for(took_s: float, world: World, rounds: list[float] | None = None) -> Callable[..., Any]:
    """Run functions as a loop's threads do; reading takes so long. ``rounds``: gets the moments at which it begins."""

    async def slowly(function: Any, *arguments: Any) -> Any:
        if function == world.store.read_facts:
            if rounds is not None:
                rounds.append(clock.now())
            await asyncio.sleep(took_s)
        return function(*arguments)

    return slowly


def test_rounds_that_take_long_leave_most_of_the_time_to_others() -> None:
    async def story(world: World) -> None:
        rounds: list[float] = []
        woken = asyncio.Event()
        loop = world.make_loop(in_thread=reading_for(0.1, world, rounds))
        turning: asyncio.Task[None] = asyncio.create_task(run(loop, woken))
        for _ in range(400):
            woken.set()
            await asyncio.sleep(0.01)
        turning.cancel()
        assert 9 <= len(rounds) <= 11, rounds

    async def run(loop: Any, woken: asyncio.Event) -> None:
        running: Coroutine[Any, Any, None] = loop.run(1.0, woken)
        await running

    on_a_platform(story)


@pytest.mark.parametrize("is_woken", [False, True])
def test_rounds_that_take_longer_than_the_interval_leave_half_of_the_time_and_keep_the_lease(is_woken: bool) -> None:
    async def story(world: World) -> None:
        rounds: list[float] = []
        woken = asyncio.Event()
        loop = world.make_loop(in_thread=reading_for(4.9, world, rounds), lease_s=10.0)
        other = world.make_loop(owner="another server", lease_s=10.0)
        running: asyncio.Task[None] = asyncio.create_task(loop.run(1.0, woken))
        for _ in range(160):
            if is_woken:
                woken.set()
            await asyncio.sleep(0.5)
            assert not await other.round()
        running.cancel()
        assert 7 <= len(rounds) <= 9, rounds

    on_a_platform(story)


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_start_goes_on_in_the_rest_after_a_long_round_until_the_lease_is_lost(is_lost: bool) -> None:
    async def story(world: World) -> None:
        world.submit(make_plan("job"))
        start = world.drivers.start

        async def copy_and_start(*arguments: Any) -> None:
            await asyncio.sleep(4.0 if is_lost else 6.0)  # until before and after the end of half of the lease
            await start(*arguments)

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(world.drivers, "start", copy_and_start)
            loop = world.make_loop(in_thread=reading_for(4.0, world), lease_s=10.0)
            running = asyncio.create_task(loop.run(1.0, asyncio.Event()))
            await asyncio.sleep(9.0)
            assert not world.drivers.attempts
            if is_lost:
                world.store.lease = Lease(owner="other", expires_at=clock.now() + 10.0, fence=2)
            await asyncio.sleep(6.0)
            assert bool(world.drivers.attempts) is not is_lost
            running.cancel()

    on_a_platform(story)


def test_no_error_in_a_rest_ends_the_loop_and_a_rest_is_not_late() -> None:
    async def story(world: World) -> None:
        num_taken = num_rounds = 0

        async def slowly(function: Any, *arguments: Any) -> Any:
            nonlocal num_taken, num_rounds
            if function == world.store.take_lease:
                num_taken += 1
                if num_taken == 3:  # the first in the rest
                    raise UnreadableRow("damaged")
            if function == world.store.read_facts:
                num_rounds += 1
                await asyncio.sleep(6.0)
            return function(*arguments)

        loop = world.make_loop(in_thread=slowly, lease_s=10.0)
        running = asyncio.create_task(loop.run(1.0, asyncio.Event()))
        for _ in range(80):
            await asyncio.sleep(0.5)
            assert not running.done() and not loop.stats.is_late(clock.now(), 10.0)
        assert num_rounds >= 3 and num_taken > 2 * num_rounds
        running.cancel()

    on_a_platform(story)


def test_the_pulse_of_a_loop_says_whether_its_rounds_are_whole() -> None:
    class LoopStore:
        """Cannot be read for a while."""

        def __init__(self, world: World) -> None:
            self.take_lease, self.read_specs, self.write, self.count_usage = (
                world.store.take_lease,
                world.store.read_specs,
                world.store.write,
                world.store.count_usage,
            )
            self.read_earlier_runs = world.store.read_earlier_runs
            self._read_facts = world.store.read_facts
            self.is_away = False

        def read_facts(self) -> Facts:
            if self.is_away:
                raise StoreError("away")
            return self._read_facts()

    async def story(world: World) -> None:
        store = LoopStore(world)
        loop = world.make_loop(store=store, lease_s=10.0)
        running = asyncio.create_task(loop.run(1.0, asyncio.Event()))
        await asyncio.sleep(5.5)
        num_done = loop.stats.num_done
        assert num_done >= 5 and loop.stats.num_failed == 0
        assert not loop.stats.is_late(clock.now(), 10.0)
        store.is_away = True
        await asyncio.sleep(15.0)
        assert loop.stats.num_done == num_done and loop.stats.num_failed >= 14
        assert loop.stats.is_late(clock.now(), 10.0)
        store.is_away = False
        await asyncio.sleep(2.0)
        assert not loop.stats.is_late(clock.now(), 10.0)
        running.cancel()
        await asyncio.sleep(11.0)
        other = world.make_loop("another", lease_s=10.0)
        assert await other.round() and not await loop.round()
        assert loop.stats.led_at is None and not loop.stats.is_late(clock.now() + 99.0, 10.0)

    on_a_platform(story)


def test_the_pulse_of_a_loop_counts_what_drivers_were_not_told() -> None:
    async def story(world: World) -> None:
        world.submit(make_plan("job"))
        loop = world.make_loop()

        async def refuse(_order: Any) -> None:
            raise OSError(28, "No space left on device")

        with pytest.MonkeyPatch.context() as patching:
            patching.setattr(world.drivers, "start", refuse)
            await loop.round()
        assert loop.stats.num_failed_calls == 1

    on_a_platform(story)


def test_rounds_that_take_longer_than_half_of_a_lease_start_jobs_all_the_same() -> None:
    async def story(world: World) -> None:
        job = world.submit(make_plan("job"))

        await turn(world, 60.0, in_thread=reading_for(6.0, world), lease_s=10.0)
        assert stage_of(world, job) is Stage.RUNNING
        assert world.store.lease is not None and world.store.lease.fence == 1

    on_a_platform(story)


def test_who_was_held_up_tells_drivers_nothing_once_another_has_decided() -> None:
    async def story(world: World) -> None:
        job = world.submit(make_plan("job"))
        other = world.make_loop("other", lease_s=10.0)

        async def until_it_is_too_late(function: Any, *arguments: Any) -> Any:
            found = function(*arguments)
            if function == world.store.write:
                await asyncio.sleep(11.0)
                # The other one decides, and its lease may even have ended by the time that the first one continues.
                world.store.stop(job.id)
                assert await other.round()
                await asyncio.sleep(11.0)
            return found

        assert not await world.make_loop("first", in_thread=until_it_is_too_late, lease_s=10.0).round()
        assert world.drivers.attempts == {}

    on_a_platform(story)


@pytest.mark.parametrize("bounds", [(1, 2), (2, 2), (4, 4), (1, 1), (1, 4)])
def test_bounds_that_change_between_a_decision_and_its_call_fail_no_job(bounds: tuple[int, int]) -> None:
    async def story(world: World) -> None:
        load = Load(num_steps=1000, step_s=1.0)
        job = world.submit(PlannedJob(name="job", submitted_at=0.0, min_workers=3, max_workers=3, load=load))
        num_changes = 0

        async def change_it_then(function: Any, *arguments: Any) -> Any:
            nonlocal num_changes
            found = function(*arguments)
            if function == world.store.write and not num_changes and world.store.get(job.id).decided_slots == 3:
                num_changes += 1
                world.store.patch(job.id, JobPatch(min_workers=bounds[0], max_workers=bounds[1]))
            return found

        loop = world.make_loop(in_thread=change_it_then)
        turning = asyncio.create_task(world.run(loop))
        await asyncio.sleep(60.0)
        turning.cancel()
        found, report = world.store.get(job.id), world.drivers.attempts[job.id].report()
        assert (num_changes, loop.stats.num_failed_calls) == (1, 0)
        assert (found.stage, found.attempt) == (Stage.RUNNING, 1)
        assert report.status is not None and report.status["num_workers"] == bounds[1]
        assert (report.status["min_workers"], report.status["max_workers"]) == bounds

    on_a_platform(story)


def test_use_that_cannot_be_counted_stops_no_round() -> None:
    async def story(world: World) -> None:
        def fail(*_: object) -> None:
            raise ValueError("a damaged row")

        world.store.count_usage = fail  # type: ignore[method-assign]
        job = world.submit(make_plan("job"))
        await turn(world, 20.0)
        assert stage_of(world, job) is Stage.RUNNING

    on_a_platform(story)


def test_use_of_users_that_cannot_be_counted_keeps_that_of_jobs_from_nothing() -> None:
    async def run() -> None:
        world = World(Setting(num_slots=4, quiet_s=1.0, rules=Rules(long_job_slot_s=60.0)))

        def fail(*_: object) -> None:
            raise ValueError("a damaged row")

        world.store.count_usage = fail  # type: ignore[method-assign]
        job = world.submit(make_plan("job"))
        loop = world.make_loop()
        turning = asyncio.create_task(world.run(loop))
        await asyncio.sleep(130.0)
        turning.cancel()
        assert loop.snapshot is not None and [
            one.used_slot_s > 0 for one in loop.snapshot.jobs if one.id == job.id
        ] == [True]

    clock.run(run())
