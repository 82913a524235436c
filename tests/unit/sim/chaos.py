"""A platform on which everything goes wrong that can: what is drawn for a run, and the run. Checks nothing itself."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from legato.control.drivers.drivers import Assignment, DriverOrder, DriverReport, DriverState, always
from legato.control.records import JobPatch
from legato.control.stages import Stage
from legato.core.errors import Conflict, FencedOut, LegatoError, SlotTaken
from legato.policy.rules import Policy, Rules
from legato.sim import clock
from legato.sim.drivers import SimulatedDrivers
from legato.sim.load import Costs, Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob

LIMIT_S = 20_000.0
LEASE_S = 6.0


class Crash(BaseException):
    """The process of the control loop is killed."""


class Fate(enum.Enum):
    """What becomes of one call."""

    FINE = "fine"
    LOST = "lost"  # it does not arrive
    UNHEARD = "unheard"  # it arrives, and the answer is lost
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    SLOW = "slow"  # it takes longer than the lease, while rounds continue: much code to copy
    REFUSED = "refused"  # it cannot be done: a full disk
    LATE = "late"  # the loop is held up for longer than its lease


class Act(enum.Enum):
    """What a user does to a job."""

    KILL_DRIVER = "kill driver"
    KILL_FOR_LONG = "kill driver, and the loop too, for so long that the workers give up"
    HANG = "hang"
    FAIL = "fail"
    PAUSE = "pause"
    PRIORITY = "priority"
    RESIZE = "resize"
    REFUSE_STARTS = "have the next starts of its driver fail, maybe all of an attempt"
    BREAK_SLOT = "break slot"


@dataclass
class Story:
    """All that was drawn for one run."""

    plans: list[PlannedJob]
    setting: Setting
    acts: list[tuple[float, Act, int, int]]
    call_fates: list[Fate]
    book_fates: list[Fate]
    num_loops: int
    told: list[str] = field(default_factory=list)


@st.composite
def any_plan(draw: st.DrawFn, number: int) -> PlannedJob:
    low = draw(st.integers(1, 2))
    return PlannedJob(
        name=f"j{number}",
        submitted_at=float(draw(st.integers(0, 30))),
        min_workers=low,
        max_workers=low + draw(st.integers(0, 3)),
        priority=draw(st.sampled_from([2500, 5000, 5000, 10_000])),
        queue=draw(st.sampled_from(["a", "b"])),
        is_elastic=draw(st.integers(0, 3)) > 0,
        max_retries=20,
        load=Load(num_steps=draw(st.integers(1, 60)), step_s=draw(st.sampled_from([0.1, 1.0, 2.5]))),
    )


@st.composite
def any_story(draw: st.DrawFn) -> Story:
    num_jobs = draw(st.integers(1, 5))
    fine = [Fate.FINE] * 6
    acts = st.tuples(
        st.integers(0, 400).map(lambda tenths: tenths / 4),
        st.sampled_from(Act),
        st.integers(0, num_jobs - 1),
        st.integers(0, 9),
    )
    return Story(
        plans=[draw(any_plan(number)) for number in range(num_jobs)],
        setting=Setting(
            num_slots=draw(st.integers(5, 8)),
            slots_per_node=4,
            rules=Rules(policy=draw(st.sampled_from(Policy)), fair_finish_s=draw(st.sampled_from([None, None, 10.0]))),
            costs=Costs(drain_s=draw(st.sampled_from([0.3, 4.0])), start_s=draw(st.sampled_from([0.2, 3.0]))),
            quiet_s=5.0,
        ),
        acts=draw(st.lists(acts, max_size=8)),
        call_fates=draw(st.lists(st.sampled_from([*fine, *list(Fate)[1:-1]]), max_size=40)),
        book_fates=draw(
            st.lists(st.sampled_from([*fine, Fate.CRASH_BEFORE, Fate.CRASH_AFTER, Fate.LATE, Fate.LATE]), max_size=60)
        ),
        num_loops=draw(st.integers(1, 2)),
    )


class ShakyDrivers:
    """Made-up drivers behind a bad line, as one life of a loop's process sees them."""

    def __init__(self, drivers: SimulatedDrivers, fates: Iterator[Fate], told: list[str]) -> None:
        self._drivers = drivers
        self._fates = fates
        self._told = told
        self._crashed = False

    async def _call(self, name: str, job: str, call: Callable[[], Any], otherwise: Any) -> Any:
        if self._crashed:
            raise Crash
        fate = next(self._fates, Fate.FINE)
        self._told.append(f"{clock.now():.2f} {name} {job}: {fate.value}")
        if fate in (Fate.CRASH_BEFORE, Fate.CRASH_AFTER):
            self._crashed = True
            if fate is Fate.CRASH_AFTER:
                await call()
            raise Crash
        if fate is Fate.LOST:
            return otherwise
        if fate is Fate.REFUSED and name == "start":
            raise LegatoError("there is no space left on the device")
        if fate is Fate.SLOW and name == "start":
            await asyncio.sleep(LEASE_S * 1.5)
            if self._crashed:
                raise Crash
        answer = await call()
        return otherwise if fate is Fate.UNHEARD else answer

    async def start(self, order: DriverOrder, is_wanted: Callable[[], bool] = always) -> None:
        await self._call("start", order.job, lambda: self._drivers.start(order, is_wanted), None)

    async def kill(self, job: str, attempt: int) -> None:
        await self._call("kill", job, lambda: self._drivers.kill(job, attempt), None)

    async def give_up(self, job: str, attempt: int, reason: str, term: int = 0) -> None:
        await self._call("give up", job, lambda: self._drivers.give_up(job, attempt, reason, term), None)

    async def assign(self, job: str, attempt: int, said: Assignment) -> bool:
        call = lambda: self._drivers.assign(job, attempt, said)  # noqa: E731
        return bool(await self._call(f"assign {sorted(said.slots)}", job, call, False))

    async def stop(self, job: str, attempt: int, *, now: bool, reason: str) -> bool:
        call = lambda: self._drivers.stop(job, attempt, now=now, reason=reason)  # noqa: E731
        return bool(await self._call("stop", job, call, False))

    async def reports(self, attempts: Any) -> dict[str, DriverReport]:
        return await self._drivers.reports(attempts)

    async def close(self) -> None:
        pass


def shaky_thread(fates: Iterator[Fate], told: list[str]) -> Callable[..., Any]:
    """Return an `in_thread` in which the process dies, or is held up."""

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        fate = next(fates, Fate.FINE)
        if fate is not Fate.FINE:
            told.append(f"{clock.now():.2f} {function.__name__}: {fate.value}")
        if fate is Fate.CRASH_BEFORE:
            raise Crash
        if fate is Fate.LATE:
            await asyncio.sleep(LEASE_S * 1.5)
        answer = function(*arguments)
        if fate is Fate.CRASH_AFTER:
            raise Crash
        return answer

    return in_thread


async def keep_looping(world: World, story: Story, name: str, calls: Iterator[Fate], store: Iterator[Fate]) -> None:
    """Be a server that is started again whenever it dies."""
    life = 0
    while True:
        life += 1
        loop = world.make_loop(
            f"{name}-{life}",
            drivers=ShakyDrivers(world.drivers, calls, story.told),
            in_thread=shaky_thread(store, story.told),
            lease_s=LEASE_S,
        )
        try:
            while True:
                try:
                    await world.run(loop)
                except FencedOut:
                    pass
                except SlotTaken as error:
                    # It broke since the facts were read. A second owner would be something else.
                    if "not usable" not in str(error):
                        raise
        except Crash:
            story.told.append(f"{clock.now():.2f} {name}-{life} crashed")
            await asyncio.sleep(1.0)


async def do(world: World, story: Story, act: Act, job: str, number: int) -> None:
    """Do one thing to a job, if it can be done to it now."""
    found = world.store.jobs[job]
    life = world.drivers.attempts.get(job)
    story.told.append(f"{clock.now():.2f} {act.value} {job} {number} ({found.stage})")
    alive = life is not None and life.state is not DriverState.ENDED
    if act in (Act.KILL_DRIVER, Act.KILL_FOR_LONG) and alive:
        world.drivers.kill_driver(job)
    elif act is Act.HANG and alive:
        world.drivers.hang(job)
        await asyncio.sleep(1.0 + 2 * number)
        if world.drivers.attempts[job] is life:
            world.drivers.wake(job)
    elif act is Act.FAIL and alive:
        world.drivers.fail(job, "it had to fail")
    elif act is Act.REFUSE_STARTS:
        world.drivers.refuse(job, 2 * number)
    elif act is Act.PAUSE:
        with contextlib.suppress(Conflict):
            world.store.pause(job)
            while world.store.jobs[job].stage is Stage.PAUSING:  # noqa: ASYNC110
                await asyncio.sleep(1.0)
            await asyncio.sleep(float(number))
            world.store.resume(job)
    elif act is Act.PRIORITY:
        with contextlib.suppress(Conflict):
            world.store.patch(job, JobPatch(priority=1000 * (number + 1)))
    elif act is Act.RESIZE:
        low = min(number % 3 + 1, 3)
        with contextlib.suppress(Conflict):
            world.store.patch(job, JobPatch(min_workers=low, max_workers=min(low + number // 3, 5)))
    elif act is Act.BREAK_SLOT:
        slot = world.setting.slots()[number % world.setting.num_slots]
        world.store.break_slot(slot, "its node is gone")
        await asyncio.sleep(20.0)
        world.store.mend_slot(slot)


def forget_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Say nothing of what a process that crashed had still under way."""
    if not isinstance(context.get("exception"), Crash):
        loop.default_exception_handler(context)


async def live(story: Story) -> World:
    """Run a story to its end."""
    asyncio.get_running_loop().set_exception_handler(forget_crashes)
    world = World(story.setting)
    calls, store = iter(story.call_fates), iter(story.book_fates)
    tasks = [
        asyncio.create_task(keep_looping(world, story, f"loop-{number}", calls, store))
        for number in range(story.num_loops)
    ]
    events: list[tuple[float, int, Any]] = [
        *((plan.submitted_at, 0, plan) for plan in story.plans),
        *((at, 1, (act, index, number)) for at, act, index, number in story.acts),
    ]
    people = []
    for moment, _, what in sorted(events, key=lambda event: event[:2]):
        await asyncio.sleep(max(moment - clock.now(), 0.0))
        if isinstance(what, PlannedJob):
            world.submit(what)
        elif what[1] < len(world.store.jobs):
            job = list(world.store.jobs)[what[1]]
            people.append(asyncio.create_task(do(world, story, what[0], job, what[2])))
    while clock.now() < LIMIT_S and not world.has_ended():
        await asyncio.sleep(5.0)
        assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
    await asyncio.gather(*people)
    await asyncio.sleep(100.0)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(found, asyncio.CancelledError) for found in ended), ended
    return world
