"""A platform on which nothing goes wrong: what is drawn for a run, the run, and what was seen of it. Checks nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import msgspec
from hypothesis import strategies as st

from legato.control.records import Job, Queue
from legato.control.stages import Stage
from legato.policy import snapshot as policy
from legato.policy.rules import Policy, Rules
from legato.policy.sizes import largest_size
from legato.sim import clock
from legato.sim.load import Costs, Load
from legato.sim.simulation import Setting, World
from legato.sim.workload import PlannedJob

LOOK_EVERY_S = 0.5
LIMIT_S = 50_000.0
COSTS = Costs(driver_s=0.5, start_s=2.0, resize_s=0.1, drain_s=0.5, checkpoint_s=0.2)
# After news it may take so long until all has settled: patience with a growth, with all of a share, a driver's start,
# a worker's start and the loop's own interval, for each of two changes that one after the other make room.
SETTLING_S = 2 * (3.0 + 10.0 + 0.5 + 2.0 + 0.5 + 1.0)


@dataclass
class Look:
    """What was seen at one moment.

    Args:
        sizes: slots of each job that has not ended, those left out that it was asked to leave.
        idle: usable slots that no job has.
        jobs: that have not ended.
    """

    time: float
    sizes: Counter[str]
    idle: int
    jobs: dict[str, Job]


@dataclass
class Course:
    """A run, with all that was seen."""

    world: World
    plans: list[PlannedJob]
    looks: list[Look] = field(default_factory=list)

    def news(self) -> list[float]:
        """Return the moments at which a job came or ended."""
        jobs = self.world.store.jobs.values()
        return sorted({job.submitted_at for job in jobs} | {job.ended_at for job in jobs if job.ended_at is not None})

    def describe(self, job: Job) -> policy.JobDemand:
        """Return a job as the policy knows it."""
        load = self.world.drivers.attempts[job.id].load if job.id in self.world.drivers.attempts else None
        plan = self.plans[int(job.id.rpartition("-")[2])]
        return policy.JobDemand(
            id=job.id,
            name=job.name,
            owner=job.owner,
            queue=job.queue,
            submitted_at=job.submitted_at,
            min_workers=job.min_workers,
            max_workers=job.max_workers,
            elastic=job.is_elastic,
            num_micro_batches=(load or plan.load).num_micro_batches,
        )


@st.composite
def any_plans(draw: st.DrawFn, num_slots: int, queues: tuple[str, ...], *, plain: bool) -> list[PlannedJob]:
    plans = []
    for number in range(draw(st.integers(1, 7))):
        low = 1 if plain else draw(st.integers(1, min(3, num_slots)))
        high = draw(st.integers(low, max(num_slots, low) + 2))
        is_elastic = plain or draw(st.integers(0, 3)) > 0
        if not is_elastic:
            high = low = min(high, num_slots)
        load = Load(
            num_steps=draw(st.integers(1, 150)),
            step_s=draw(st.sampled_from([0.2, 1.0, 2.5])),
            num_micro_batches=None if plain else draw(st.sampled_from([None, None, 1, 2, 4, 6])),
        )
        plans.append(
            PlannedJob(
                name=f"j{number}",
                submitted_at=draw(st.integers(0, 400)) / 4,
                min_workers=low,
                max_workers=high,
                priority=draw(st.sampled_from([2500, 5000, 5000, 10_000])),
                queue=draw(st.sampled_from(queues)),
                is_elastic=is_elastic,
                load=load,
            )
        )
    return sorted(plans, key=lambda plan: plan.submitted_at)


@st.composite
def any_calm(draw: st.DrawFn, *, plain: bool = False, floors: bool = False) -> tuple[list[PlannedJob], Setting]:
    """Draw a workload and a platform.

    Args:
        draw: by Hypothesis.
        plain: jobs need one slot only, and every slot helps them.
        floors: queues have floors that the pool can hold.
    """
    num_slots = draw(st.integers(1, 9))
    queues: tuple[Queue, ...] = ()
    if floors:
        first = draw(st.integers(0, num_slots))
        queues = (
            Queue(name="a", floor=first, weight=draw(st.sampled_from([0.5, 1.0]))),
            Queue(name="b", floor=draw(st.integers(0, num_slots - first)), weight=draw(st.sampled_from([1.0, 3.0]))),
        )
    rules = Rules(
        policy=draw(st.sampled_from(Policy)),
        ageing_s=draw(st.sampled_from([None, 30.0])),
        fair_finish_s=draw(st.sampled_from([None, None, 20.0])),
    )
    plans = draw(any_plans(num_slots, ("a", "b"), plain=plain))
    return plans, Setting(num_slots=num_slots, slots_per_node=4, rules=rules, costs=COSTS, queues=queues)


def run(plans: list[PlannedJob], setting: Setting) -> Course:
    """Run a workload to its end, looking all the time."""
    return clock.run(_run(plans, setting))


async def _run(plans: list[PlannedJob], setting: Setting) -> Course:
    world = World(setting)
    course = Course(world, plans)
    turning = asyncio.create_task(world.run(world.make_loop()))
    coming = list(plans)
    # No job comes in the very moment of a round, so that it is clear to what that round belongs.
    await asyncio.sleep(LOOK_EVERY_S / 4)
    while clock.now() < LIMIT_S and (coming or not world.has_ended()):
        while coming and coming[0].submitted_at <= clock.now():
            world.submit(coming.pop(0))
        assert not turning.done(), turning
        await asyncio.sleep(LOOK_EVERY_S / 2)
        course.looks.append(_look(world))
        await asyncio.sleep(LOOK_EVERY_S / 2)
    turning.cancel()
    return course


def _look(world: World) -> Look:
    facts = world.store.read_facts()
    kept = [found for found in facts.allocations if found.release_asked_at is None]
    return Look(
        time=clock.now(),
        sizes=Counter(found.job for found in kept),
        idle=sum(slot.unusable_since is None for slot in facts.slots) - len(facts.allocations),
        jobs={job.id: job for job in facts.jobs},
    )


def wants(course: Course, job: Job) -> int:
    """Return the most slots that help a job, and that there are."""
    described = msgspec.structs.replace(course.describe(job))
    return min(largest_size(described), course.world.setting.num_slots)


def is_in_play(job: Job) -> bool:
    return job.stage in (Stage.QUEUED, Stage.STARTING, Stage.RUNNING)
