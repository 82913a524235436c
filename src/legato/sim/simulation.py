"""A whole platform in virtual time: the real policies and control loop over simulated drivers and a store in memory.

`World` holds the parts; `simulate` submits a workload to it and waits until every job has ended. A round of the loop
follows news within a second, as on the real platform. Without news the next one comes after `Setting.quiet_s`.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from legato.control.loop.loop import ControlLoop
from legato.control.records import Job, JobPatch, NewJob, Queue
from legato.control.stages import Stage
from legato.control.work import Work
from legato.policy.rules import Rules
from legato.sim import clock
from legato.sim.drivers import SimulatedDrivers
from legato.sim.load import Costs
from legato.sim.memory_store import MemoryLoopStore
from legato.sim.workload import PlannedJob

_CODE: Final = Path("made-up")
_NEAR: Final = 1e-6  # of an interval; a smaller remainder is a rounding error


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """The simulated platform.

    Args:
        num_slots: of the pool, on nodes of ``slots_per_node``.
        rules: of the policy.
        costs: times that workers and drivers need besides the steps.
        nodes: the slots of each node, if not all have ``slots_per_node``; their sum is ``num_slots``.
        queues: with their settings.
        demote_after_slot_s: seconds of slots, in rising order. A job that has had the first number of them gets half of
            its priority, and so on: least attained service. Empty: priorities do not change.
        interval_s: between rounds of the loop, when there is news.
        quiet_s: between rounds of the loop, when there is no news.
    """

    num_slots: int = 8
    slots_per_node: int = 8
    rules: Rules = Rules()
    costs: Costs = Costs()
    nodes: tuple[int, ...] = ()
    queues: tuple[Queue, ...] = ()
    demote_after_slot_s: tuple[float, ...] = ()
    interval_s: float = 1.0
    quiet_s: float = 60.0

    def slots(self) -> list[str]:
        """Return the names of the slots."""
        if self.nodes:
            assert sum(self.nodes) == self.num_slots, self
            return [f"node-{node}/{number}" for node, size in enumerate(self.nodes) for number in range(size)]
        per_node = self.slots_per_node
        return [f"node-{number // per_node}/{number % per_node}" for number in range(self.num_slots)]


class World:
    """The parts of a platform on the running loop's clock. Its control loop runs while `run` is awaited.

    Args:
        setting: describes the platform.

    Attributes:
        ended_at: when the simulation ended.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self._news = asyncio.Event()
        self.store = MemoryLoopStore(setting.slots(), clock.now, queues=setting.queues, on_news=self._news.set)
        self.drivers = SimulatedDrivers(setting.costs, on_news=self._news.set)
        self.num_rounds = 0
        self.ended_at = 0.0
        self._loops: list[ControlLoop] = []

    def make_loop(self, owner: str = "the loop", **changes: Any) -> ControlLoop:
        """Return a new control loop; ``changes`` are further arguments of `ControlLoop`."""
        whole: dict[str, Any] = {"wall_clock": clock.now, "in_thread": at_once, "code": _CODE, **changes}
        drivers = whole.pop("drivers", self.drivers)
        store = whole.pop("store", self.store)
        loop = ControlLoop(store, drivers, self.setting.rules, owner=owner, **whole)
        self._loops.append(loop)
        return loop

    def submit(self, plan: PlannedJob) -> Job:
        """Submit a job now."""
        work = Work(program=plan.load.to_program(), directory="/made-up", num_micro_batches=plan.load.num_micro_batches)
        new = NewJob(
            name=plan.name,
            spec=msgspec.to_builtins(work),
            min_workers=plan.min_workers,
            max_workers=plan.max_workers,
            queue=plan.queue,
            priority=plan.priority,
            is_elastic=plan.is_elastic,
            max_retries=plan.max_retries,
            code=plan.code,
        )
        return self.store.submit(new, plan.owner)

    async def run(self, loop: ControlLoop) -> None:
        """Run a control loop until cancelled."""
        interval_s = self.setting.interval_s
        while True:
            self._news.clear()
            begun = clock.now()
            await loop.round()
            self.num_rounds += 1
            again_at = loop.decisions.decide_again_at if loop.decisions is not None else None
            wait_s = self.setting.quiet_s
            if again_at is not None:
                wait_s = min(max(again_at - clock.now(), 0.0), wait_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            num_intervals = max(math.ceil((clock.now() - begun) / interval_s - _NEAR), 1)
            await _sleep_until(begun + num_intervals * interval_s)

    def demote(self, priorities: Mapping[str, int]) -> None:
        """Lower the priority of each job that has had much service; ``priorities`` are those of the submissions."""
        for job, used_s in self.store.read_used_slot_s(clock.now()).items():
            times = bisect.bisect_right(self.setting.demote_after_slot_s, used_s)
            priority = max(priorities[job] >> times, 1)
            found = self.store.get(job)
            if priority < found.priority and found.stage in (Stage.QUEUED, Stage.STARTING, Stage.RUNNING):
                self.store.patch(job, JobPatch(priority=priority))

    def has_ended(self) -> bool:
        """Whether all jobs that were submitted have ended."""
        return not self.store.num_unfinished

    def is_stuck(self) -> bool:
        """Whether no job has a slot or gets one, and only a new event could change that."""
        last = self._loops[-1].decisions if self._loops else None
        if self.store.open or last is None or last.decide_again_at is not None:
            return False
        has_slots = {decision.job: bool(decision.slots) for decision in last.decisions}
        return not any(has_slots.get(job.id, True) for job in self.store.read_facts().jobs)


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function directly that would block on a real platform."""
    return function(*arguments)


def simulate(
    plans: Iterable[PlannedJob],
    setting: Setting,
    *,
    limit_s: float = float("inf"),
    on_progress: Callable[[int, float], None] = lambda _ended, _now: None,
) -> World:
    """Run a workload to its end and return the world in its final state.

    Jobs that can never start, because no running job is left that could free slots, stay in their queue.

    Args:
        plans: of the workload.
        setting: the platform.
        limit_s: virtual seconds after which the simulation ends, also with unfinished jobs.
        on_progress: called repeatedly with the number of ended jobs and the virtual time.
    """
    return clock.run(_simulate(sorted(plans, key=lambda plan: plan.submitted_at), setting, limit_s, on_progress))


async def _simulate(
    plans: list[PlannedJob], setting: Setting, limit_s: float, on_progress: Callable[[int, float], None]
) -> World:
    world = World(setting)
    turning = asyncio.create_task(world.run(world.make_loop()))
    coming = deque(plans)
    priorities: dict[str, int] = {}
    while clock.now() < limit_s and not turning.done():
        while coming and coming[0].submitted_at <= clock.now():
            plan = coming.popleft()
            priorities[world.submit(plan).id] = plan.priority
        if setting.demote_after_slot_s:
            world.demote(priorities)
        store = world.store
        on_progress(len(store.jobs) - store.num_unfinished, clock.now())
        if not coming and (world.has_ended() or world.is_stuck()):
            break
        look_at = clock.now() + setting.quiet_s
        await _sleep_until(min(look_at, limit_s, coming[0].submitted_at if coming else look_at))
    world.ended_at = clock.now()
    await _end(turning)
    # A report counts what was trained until now.
    await world.drivers.reports({held.job: held.attempt for held in world.store.open.values()})
    assert not world.drivers.clashes, world.drivers.clashes
    return world


async def _sleep_until(moment: float) -> None:
    if moment > clock.now():
        await asyncio.sleep(moment - clock.now())


async def _end(task: Awaitable[None]) -> None:
    assert isinstance(task, asyncio.Task)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
