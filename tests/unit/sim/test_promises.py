"""What must hold of the whole platform over time, where nothing goes wrong: for any workload and every policy."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from tests.tiers import examples
from tests.unit.sim.calm import SETTLING_S, Course, Look, any_calm, is_in_play, run, wants

from legato.control.stages import Stage
from legato.policy.sizes import next_size, smallest_size
from legato.sim.load import Load
from legato.sim.simulation import Setting
from legato.sim.workload import PlannedJob

Drawn = tuple[list[PlannedJob], Setting]


def for_any_calm(**kinds: bool) -> Callable[[Any], Any]:
    def decorate(test: Any) -> Any:
        slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
        return settings(deadline=None, max_examples=examples(15), suppress_health_check=slow)(
            given(any_calm(**kinds))(test)
        )

    return decorate


def tell(course: Course) -> None:
    names = {job.id: job.name for job in course.world.store.jobs.values()}
    note(
        "\n".join(f"{one.time} {names[one.job]} {one.num_slots}: {one.reason}" for one in course.world.store.decisions)
    )


def check_never_for_long(course: Course, is_wrong: Callable[[Look], object], limit_s: float = SETTLING_S) -> None:
    """Check that something is never wrong for longer than it takes to settle, whatever comes meanwhile."""
    begun, news = None, course.news()
    for look in course.looks:
        found = is_wrong(look)
        if not found:
            begun = None
            continue
        # Each piece of news may restart the settling.
        last = max((moment for moment in news if moment <= look.time), default=0.0)
        begun = max(last, look.time if begun is None else begun)
        assert look.time - begun <= limit_s, (found, begun, look)


@for_any_calm()
def test_every_job_ends_and_nothing_is_left(drawn: Drawn) -> None:
    course = run(*drawn)
    tell(course)
    store, drivers = course.world.store, course.world.drivers
    assert {job.stage for job in store.jobs.values()} == {Stage.SUCCEEDED}
    assert store.open == {} and drivers.occupied == {} and drivers.clashes == []
    # No job trains without at least its minimum, so all of it one after the other is the longest that it can take.
    longest = sum(plan.load.num_steps * plan.load.seconds_per_step(plan.min_workers) for plan in course.plans)
    overhead = 60.0 * len(course.plans)
    if course.world.setting.rules.fair_finish_s is None:
        assert course.looks[-1].time <= course.plans[-1].submitted_at + longest + overhead


@for_any_calm()
def test_sizes_are_within_bounds_at_every_moment(drawn: Drawn) -> None:
    course = run(*drawn)
    for look in course.looks:
        assert look.idle >= 0
        for job in look.jobs.values():
            size = look.sizes[job.id]
            assert size == 0 or smallest_size(course.describe(job)) <= size <= job.max_workers, (look, job)


@for_any_calm()
def test_no_useful_slot_is_idle_for_long(drawn: Drawn) -> None:
    course = run(*drawn)
    tell(course)

    def find_waste(look: Look) -> object:
        for job in look.jobs.values():
            larger = next_size(course.describe(job), look.sizes[job.id]) if is_in_play(job) else None
            if larger is not None and larger - look.sizes[job.id] <= look.idle:
                return job.name, look.sizes[job.id], larger
        return None

    check_never_for_long(course, find_waste)


@for_any_calm(plain=True, floors=True)
def test_floors_are_kept(drawn: Drawn) -> None:
    course = run(*drawn)
    tell(course)
    floors = {queue.name: queue.floor for queue in course.world.setting.queues}

    def find_short(look: Look) -> object:
        held, wanted = Counter[str](), Counter[str]()
        for job in look.jobs.values():
            held[job.queue] += look.sizes[job.id]
            wanted[job.queue] += wants(course, job)
        return [name for name, floor in floors.items() if held[name] < min(floor, wanted[name])]

    check_never_for_long(course, find_short)


@for_any_calm()
def test_no_job_goes_back_and_forth_without_news(drawn: Drawn) -> None:
    plans, setting = drawn
    if setting.rules.fair_finish_s is not None:
        return  # there time itself is news
    course = run(plans, setting)
    tell(course)
    moments = [*course.news(), float("inf")]
    for job in course.world.store.jobs:
        path = [(one.time, one.num_slots) for one in course.world.store.decisions if one.job == job]
        for begin, end in itertools.pairwise(moments):
            before = [size for time, size in path if time < begin][-1:]
            # What was decided before, and is carried out now, belongs to what came before.
            sizes = before + [size for time, size in path if begin <= time < end]
            assert sizes in (sorted(sizes), sorted(sizes, reverse=True)), (job, begin, sizes)


@for_any_calm()
def test_resizes_are_no_more_than_there_is_news(drawn: Drawn) -> None:
    plans, setting = drawn
    if setting.rules.fair_finish_s is not None:
        return
    course = run(plans, setting)
    tell(course)
    news = course.news()
    for job in course.world.store.jobs.values():
        num_news = sum(job.submitted_at <= moment <= (job.ended_at or 0) for moment in news)
        assert course.world.drivers.saved[job.id].num_resizes <= 2 * num_news, job


@for_any_calm()
def test_every_change_is_explained(drawn: Drawn) -> None:
    plans, setting = drawn
    course = run(plans, setting)
    store = course.world.store
    decided = {(one.job, one.time): one for one in store.decisions}
    for found in store.closed:
        why = decided.get((found.job, found.since))
        assert why is not None and why.num_slots > 0, found
        if found.release_asked_at is not None:
            assert (found.job, found.release_asked_at) in decided, found
    last: dict[str, int] = {}
    for one in store.decisions:
        before, last[one.job] = last.get(one.job), one.num_slots
        assert one.reason and not one.reason.endswith(".") and "\n" not in one.reason
        if before and one.num_slots < before:
            assert one.reason.startswith(("shrinks", "pauses")), one
            assert ":" in one.reason, "to whom, or why"
        elif one.num_slots > (before or 0):
            assert one.reason.startswith(("starts", "grows", "resumes")), one
        elif not one.num_slots:
            assert one.reason.startswith(("waits", "pauses")), one
    for look in course.looks:
        for job in look.jobs.values():
            if look.time - job.submitted_at > setting.interval_s:
                assert job.decided_reason, (look.time, job)
                assert job.decided_slots == look.sizes[job.id], (look.time, job)


def test_equals_are_served_equally() -> None:
    """Jobs that differ in nothing end at about the same time, however many there are."""
    for number in (2, 3, 5):
        plans = [
            PlannedJob(name=f"j{index}", max_workers=8, load=Load(num_steps=600, step_s=1.0)) for index in range(number)
        ]
        course = run(plans, Setting(num_slots=2 * number))
        ends = [job.ended_at for job in course.world.store.jobs.values() if job.ended_at is not None]
        assert max(ends) - min(ends) <= 2.0
