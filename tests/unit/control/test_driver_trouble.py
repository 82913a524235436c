"""Drivers that cannot be started, die again and again or do not answer: told, tried with pauses, given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec
import pytest

from legato.control.drivers.drivers import DriverOrder, DriverReport, DriverState, always
from legato.control.loop.driver_failures import NUM_TRIES, WELL_S, DriverFailures, reason_with
from legato.control.records import Job, JobChange, Written
from legato.control.stages import Stage
from legato.core.terms import first_term
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob

WHY = "its driver cannot be started: The driver of {} cannot be started: as planned for this test"
FOR_EVER = 10**6
PAUSES = [1, 2, 4, 8, 16, 32, 60]


class Platform:
    """One slot, a loop that turns, and the moments at which it started drivers."""

    def __init__(self, num_slots: int = 1, **changes: Any) -> None:
        self.world = World(Setting(num_slots=num_slots, quiet_s=1.0))
        self.starts: list[float] = []
        self.reasons: list[str] = []
        real = self.world.drivers.start

        async def start(order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
            self.starts.append(clock.now())
            await real(order, is_wanted)

        self.world.drivers.start = start  # type: ignore[method-assign]
        self.moves: list[str] = []
        write = self.world.store.write

        def written(changes: Sequence[JobChange], fence: int, now: float) -> Written:
            self.moves += [change.reason for change in changes if change.stage is not None]
            return write(changes, fence, now)

        self.world.store.write = written  # type: ignore[method-assign]
        self.loop = self.world.make_loop(**changes)
        self.turning = asyncio.create_task(self.world.run(self.loop))

    def submit(self, name: str = "a", *, max_retries: int = 0, num_steps: int = 10**6) -> str:
        load = Load(num_steps=num_steps, step_s=1.0)
        return self.world.submit(PlannedJob(name=name, max_workers=1, load=load, max_retries=max_retries)).id

    def job(self, job: str) -> Job:
        return self.world.store.get(job)

    async def wait(self, seconds: float, watched: str | None = None) -> None:
        """Let time pass, and write down the reasons that a job has meanwhile."""
        for _ in range(int(seconds)):
            await asyncio.sleep(1.0)
            if self.turning.done():
                await self.turning
            reason = self.job(watched).reason if watched else ""
            if reason and reason not in self.reasons[-1:]:
                self.reasons.append(reason)


def on_a_platform(story: Callable[[Platform], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def run() -> None:
        platform = Platform(**options)
        await story(platform)
        platform.turning.cancel()
        assert platform.world.drivers.clashes == []

    clock.run(run())


# ---------------------------------------------------------------- it cannot be started


def test_a_start_that_fails_is_reported_at_once_retried_with_growing_pauses_and_given_up() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit()
        platform.world.drivers.refuse(job, FOR_EVER)
        await platform.wait(4.0, job)
        found = platform.job(job)
        assert found.stage is Stage.STARTING
        assert f"; but {WHY.format(job)}" in found.reason, "it shows from the first time"
        await platform.wait(300.0, job)
        found = platform.job(job)
        assert (found.stage, found.exit_code) == (Stage.FAILED, 2)
        assert found.reason == f"{WHY.format(job)}; it was tried {NUM_TRIES} times"
        pauses = [later - earlier for earlier, later in zip(platform.starts, platform.starts[1:], strict=False)]
        assert pauses == pytest.approx(PAUSES, abs=1.5)
        assert platform.world.store.open == {}
        assert any("(start 3 of 8 in a row)" in reason for reason in platform.reasons)

    on_a_platform(story)


def test_a_job_that_may_be_tried_again_is() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit(max_retries=1)
        platform.world.drivers.refuse(job, NUM_TRIES)
        await platform.wait(300.0, job)
        found = platform.job(job)
        assert (found.stage, found.attempt, found.num_retries) == (Stage.RUNNING, 2, 1)
        assert any(reason.startswith(f"is retried (1 of 1): {WHY.format(job)}") for reason in platform.moves)
        assert found.reason == "its workers train"

    on_a_platform(story)


def test_a_program_that_fails_at_once_is_tried_again_with_growing_pauses() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit(max_retries=4)
        ends = []
        for _ in range(5):
            while platform.job(job).stage is not Stage.RUNNING:
                await platform.wait(1.0)
            platform.world.drivers.fail(job, "exit code 1")
            ends.append(clock.now())
            while platform.job(job).stage is Stage.RUNNING:
                await platform.wait(1.0)
        assert (platform.job(job).stage, platform.job(job).num_retries) == (Stage.FAILED, 4)
        pauses = [again - end for end, again in zip(ends, platform.starts[1:], strict=False)]
        assert len(pauses) == 4
        # No earlier than its pause is over; the loop needs a moment to see either.
        assert all(0.0 <= pause - want < 2.5 for pause, want in zip(pauses, PAUSES, strict=False)), pauses

    on_a_platform(story)


def test_what_was_never_started_is_stopped_and_paused_at_once() -> None:
    async def story(platform: Platform) -> None:
        first = platform.submit("first")
        platform.world.drivers.refuse(first, FOR_EVER)
        await platform.wait(5.0)
        platform.world.store.pause(first)
        await platform.wait(3.0)
        assert platform.job(first).stage is Stage.PAUSED
        assert platform.job(first).reason == "asked to pause; it had not started"
        platform.world.store.resume(first)
        await platform.wait(5.0)
        assert platform.job(first).stage is Stage.STARTING
        platform.world.store.stop(first, now=True)
        second = platform.submit("second")
        await platform.wait(10.0)
        assert (platform.job(first).stage, platform.job(first).num_slots) == (Stage.STOPPED, 0)
        assert platform.job(second).stage is Stage.RUNNING, "its slot is free again"

    on_a_platform(story)


def test_a_start_under_a_spec_that_is_not_understood_any_more_fails_in_the_end() -> None:
    """A server of another version comes between the grant of slots and the start."""

    async def story(platform: Platform) -> None:
        job = platform.submit()
        platform.world.drivers.refuse(job, 1)
        await asyncio.sleep(0.5)
        assert platform.job(job).stage is Stage.STARTING
        platform.turning.cancel()
        platform.world.store._specs[job] = {"colour": "red"}
        platform.turning = asyncio.create_task(platform.world.run(platform.world.make_loop()))
        await platform.wait(300.0)
        assert platform.job(job).stage is Stage.FAILED
        assert platform.job(job).reason.startswith("its driver cannot be started: Cannot read the job's spec: ")

    on_a_platform(story)


def test_a_start_that_takes_long_keeps_no_other_job_waiting() -> None:
    async def story(platform: Platform) -> None:
        slow, real = platform.submit("slow"), platform.world.drivers.start

        async def start(order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
            if order.job == slow:
                await asyncio.sleep(100.0)
            await real(order, is_wanted)

        platform.world.drivers.start = start  # type: ignore[method-assign]
        await platform.wait(5.0)
        other = platform.submit("other")
        await platform.wait(8.0)
        assert platform.job(other).stage is Stage.RUNNING
        assert platform.job(slow).stage is Stage.STARTING
        await platform.wait(70.0)
        assert platform.job(slow).reason.endswith("has not answered yet: its start is still under way")
        await platform.wait(30.0)
        assert platform.job(slow).stage is Stage.RUNNING
        assert platform.job(slow).reason == "its workers train"
        assert len(platform.starts) == 2, "it was started once"

    on_a_platform(story, num_slots=2)


@pytest.mark.parametrize("copying_s", [595.0, 1500.0])
def test_a_driver_has_its_time_to_answer_from_when_its_process_began(copying_s: float) -> None:
    """What was before, such as to copy its code, it could not have answered in."""

    async def story(platform: Platform) -> None:
        drivers = platform.world.drivers
        job, real, killed = platform.submit(), drivers.start, []
        drivers.costs = msgspec.structs.replace(drivers.costs, driver_s=30.0)

        async def start(order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
            await asyncio.sleep(copying_s)
            await real(order, is_wanted)

        async def kill(job: str, attempt: int) -> None:
            killed.append(clock.now())

        drivers.start, drivers.kill = start, kill  # type: ignore[method-assign]
        await platform.wait(copying_s + 20.0)
        assert drivers.attempts[job].state is DriverState.STARTING
        drivers.kill_driver(job)
        await platform.wait(3.0, job)
        assert platform.reasons and not any("killed" in reason for reason in platform.reasons), platform.reasons
        await platform.wait(copying_s + 60.0)
        assert platform.job(job).stage is Stage.RUNNING
        assert killed == []

    on_a_platform(story)


@pytest.mark.parametrize("ends", [True, False])
def test_a_slow_start_that_is_not_wanted_any_more_starts_nothing(*, ends: bool) -> None:
    """The job is stopped meanwhile, or another loop decides."""

    async def story(platform: Platform) -> None:
        job, real = platform.submit(), platform.world.drivers.start

        async def start(order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
            await asyncio.sleep(10.0)
            await real(order, is_wanted)

        platform.world.drivers.start = start  # type: ignore[method-assign]
        await platform.wait(4.0)
        if ends:
            platform.world.store.stop(job)
            await platform.wait(3.0)
            assert platform.job(job).stage is Stage.STOPPED
        else:
            lease = platform.world.store.lease
            assert lease is not None
            # It is another loop's until that start would long be done.
            platform.world.store.lease = type(lease)(owner="another", expires_at=19.0, fence=lease.fence + 1)
        await platform.wait(12.0)
        assert platform.world.drivers.attempts == {}

    on_a_platform(story)


# ---------------------------------------------------------------- it dies, or is silent


def test_a_driver_that_dies_at_each_start_is_given_up_and_leaves_no_worker() -> None:
    async def story(platform: Platform) -> None:
        job, drivers = platform.submit(), platform.world.drivers
        terms: list[int] = []
        give_up = drivers.give_up

        async def note(job: str, attempt: int, reason: str, term: int = 0) -> None:
            terms.append(term)
            await give_up(job, attempt, reason, term)

        drivers.give_up = note  # type: ignore[method-assign]

        async def kill() -> None:
            while job not in drivers.attempts or drivers.attempts[job].state is not DriverState.ENDED:
                if job in drivers.attempts and drivers.attempts[job].state is DriverState.RUNNING:
                    drivers.kill_driver(job)
                await asyncio.sleep(1.0)

        killing = asyncio.create_task(kill())
        await platform.wait(20.0, job)
        assert len(platform.starts) <= 6, "pauses grow"
        assert any(
            "; but its driver died: it gave no reason (start 4 of 8 in a row)" in one for one in platform.reasons
        )
        await platform.wait(300.0, job)
        found = platform.job(job)
        assert found.stage is Stage.FAILED
        assert found.reason == f"its driver cannot run: it died again and again; it was started {NUM_TRIES} times"
        assert len(platform.starts) == NUM_TRIES
        lease = platform.world.store.lease
        assert lease is not None and set(terms) == {first_term(lease.fence)}, "no driver of an earlier server leads"
        assert platform.world.store.open == {} and drivers.occupied == {}
        await killing

    on_a_platform(story)


def test_a_driver_that_dies_once_is_restarted_at_once_and_that_is_reported() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit()
        await platform.wait(10.0, job)
        assert platform.reasons[-1] == "its workers train"
        for _ in range(2 * NUM_TRIES):
            await platform.wait(WELL_S + 10.0)
            platform.world.drivers.kill_driver(job)
            await platform.wait(3.0, job)
        died, well = "its workers train; but its driver died: it gave no reason", "its workers train"
        assert platform.reasons[-2:] == [died, well]
        assert platform.job(job).stage is Stage.RUNNING, "who was well for long in between is not given up"
        assert len(platform.starts) == 1 + 2 * NUM_TRIES

    on_a_platform(story)


def test_a_driver_that_does_not_answer_is_reported_until_it_does() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit()
        await platform.wait(10.0)
        platform.world.drivers.hang(job)
        await platform.wait(5.0, job)
        platform.world.drivers.wake(job)
        await platform.wait(5.0, job)
        assert platform.reasons == ["its workers train"], "a short silence is no news"
        platform.world.drivers.hang(job)
        await platform.wait(20.0, job)
        assert (
            platform.job(job).reason
            == "its workers train; but its driver does not answer, although its process still runs"
        )
        platform.world.drivers.wake(job)
        await platform.wait(3.0, job)
        assert platform.job(job).reason == "its workers train"
        assert len(platform.starts) == 1

    on_a_platform(story)


def test_a_driver_that_never_answers_again_is_replaced_and_nothing_is_done_twice() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit(num_steps=400)
        await platform.wait(10.0)
        platform.world.drivers.hang(job)
        await platform.wait(115.0)
        assert len(platform.starts) == 1, "it may only be slow"
        await platform.wait(15.0, job)
        assert len(platform.starts) == 2
        but = "its workers train; but its driver"
        silent = f"{but} does not answer, although its process still runs"
        assert platform.reasons == [silent, f"{but} did not answer and was killed", "its workers train"]
        await platform.wait(300.0)
        assert platform.job(job).stage is Stage.SUCCEEDED
        assert platform.world.drivers.saved[job].useful_s == pytest.approx(400.0)

    on_a_platform(story)


@pytest.mark.parametrize(("action", "ends_in_s"), [("pause", 130.0), ("stop", 130.0), ("stop now", 20.0)])
def test_a_job_whose_driver_never_answers_again_can_be_paused_and_stopped(action: str, ends_in_s: float) -> None:
    async def story(platform: Platform) -> None:
        job, store = platform.submit(), platform.world.store
        await platform.wait(10.0)
        platform.world.drivers.hang(job)
        await platform.wait(1.0)
        if action == "pause":
            store.pause(job)
        else:
            store.stop(job, now=action == "stop now")
        await platform.wait(ends_in_s)
        assert platform.job(job).stage is (Stage.PAUSED if action == "pause" else Stage.STOPPED)
        assert store.open == {} and platform.world.drivers.occupied == {}

    on_a_platform(story)


def test_a_driver_that_cannot_be_killed_is_killed_now_and_then() -> None:
    failures = DriverFailures().after(DriverState.SILENT, 0.0)
    assert not failures.is_lost(DriverState.SILENT, 119.0, hurries=False)
    assert failures.is_lost(DriverState.SILENT, 120.0, hurries=False)
    killed = failures.killed(120.0).after(DriverState.SILENT, 239.0)
    assert not killed.is_lost(DriverState.SILENT, 239.0, hurries=False)
    assert killed.is_lost(DriverState.SILENT, 240.0, hurries=False)
    assert not DriverFailures().after(DriverState.STARTING, 0.0).is_lost(DriverState.STARTING, 599.0, hurries=False)
    woken = killed.after(DriverState.RUNNING, 241.0)
    assert woken.describe(DriverReport(attempt=1, state=DriverState.GONE), 242.0) == "died: it gave no reason"
    back = DriverFailures().after(DriverState.SILENT, 5000.0).killed(5120.0).after(DriverState.SILENT, 10.0)
    assert back.is_lost(DriverState.SILENT, 130.0, hurries=False), "the clock was set back"


# ---------------------------------------------------------------- it is nowhere


def test_a_job_that_ran_and_was_not_found_is_not_touched_until_it_is_stopped() -> None:
    async def story(platform: Platform) -> None:
        job = platform.submit()
        await platform.wait(10.0)
        life = platform.world.drivers.attempts.pop(job)
        await platform.wait(5.0)
        found = platform.job(job)
        assert found.stage is Stage.RUNNING
        assert "; but its driver was not found: the job's directory is in another home, or was deleted." in found.reason
        assert len(platform.starts) == 1, "it may train on elsewhere, and must not be started twice"
        platform.world.store.pause(job)
        await platform.wait(5.0)
        assert platform.job(job).stage is Stage.PAUSING
        platform.world.drivers.attempts[job] = life
        await platform.wait(5.0)
        assert platform.job(job).stage is Stage.PAUSED
        platform.world.store.resume(job)
        await platform.wait(10.0)
        del platform.world.drivers.attempts[job]
        platform.world.store.stop(job)
        await platform.wait(3.0)
        found = platform.job(job)
        assert (found.stage, found.exit_code) == (Stage.STOPPED, 130)
        assert found.reason == "asked to stop; its driver was not found, and Legato no longer waits for it"

    on_a_platform(story)


# ---------------------------------------------------------------- the arithmetic


def test_a_clock_that_is_set_back_keeps_no_driver_from_being_started() -> None:
    failures = DriverFailures().tried(1000.0)
    assert not failures.may_try(1000.5) and failures.may_try(1001.0)
    assert failures.may_try(500.0)
    well, silent = (failures.after(state, 1000.0) for state in (DriverState.RUNNING, DriverState.SILENT))
    report = DriverReport(attempt=1, state=DriverState.SILENT)
    assert well.after(DriverState.RUNNING, 0.0).after(DriverState.RUNNING, WELL_S).num_tries == 0
    assert silent.after(DriverState.SILENT, 0.0).describe(report, 10.0) is not None


def test_ending_leftover_processes_is_retried_forever() -> None:
    """A process that does not even die when it is killed is tried again each minute, for days."""
    failures, now = DriverFailures(), 0.0
    for _ in range(2000):
        failures, now = failures.tried(now), now + 60.0
    assert failures.again_at == now


def test_what_is_wrong_stands_behind_the_reason_once() -> None:
    report = DriverReport(attempt=1, state=DriverState.GONE, trouble="killed by SIGKILL")
    told = DriverFailures().describe(report, 0.0)
    assert told == "died: killed by SIGKILL"
    reason = reason_with(reason_with("its share", told), told)
    assert reason == "its share; but its driver died: killed by SIGKILL"
    assert reason_with(reason, "") == "its share"
