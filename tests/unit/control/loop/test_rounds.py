"""A round of the control loop: what is news, and what is only said in other words."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.api.jobs import Progress
from legato.control.drivers.drivers import DriverReport, DriverState
from legato.control.loop.deciding import carry_out, make_snapshot
from legato.control.loop.driver_calls import list_calls
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import Memory, RoundFacts
from legato.control.loop.pace import Pace
from legato.control.loop.rounds import learn
from legato.control.loop.slot_account import Account
from legato.control.records import Allocation, Facts, Job, JobChange, Slot
from legato.control.stages import Stage
from legato.control.work import Work, make_order
from legato.policy import snapshot as policy
from legato.policy.sizes import largest_size
from legato.policy.snapshot import Decision, DecisionKind, Decisions, Standing
from legato.policy.speeds import Slowdown
from legato.sim import clock
from legato.sim.load import Load
from legato.sim.simulation import Setting, World, simulate
from legato.sim.workload import PlannedJob

NOTHING: dict[str, DriverReport] = {}
SLOTS = ("n/0", "n/1", "n/2")


def make_running(decided_slots: int | None, reason: str | None) -> Job:
    async def submit() -> Job:
        return World(Setting()).submit(PlannedJob(name="a", max_workers=3, load=Load(num_steps=1, step_s=1.0)))

    job = clock.run(submit())
    changed = {"stage": Stage.RUNNING, "attempt": 1, "decided_slots": decided_slots, "decided_reason": reason}
    return Job(**{name: getattr(job, name) for name in Job.__struct_fields__} | changed)


def make_pool(job: Job, held: tuple[str, ...]) -> RoundFacts:
    slots = tuple(Slot(id=name, node="n", device="cpu", unusable_since=None, unusable_reason=None) for name in SLOTS)
    allocations = tuple(
        Allocation(slot=name, job=job.id, attempt=1, since=0.0, release_asked_at=None, until=None) for name in held
    )
    return RoundFacts(Facts(jobs=(job,), queues=(), slots=slots, allocations=allocations))


def decide(job: Job, slots: tuple[str, ...], reason: str, wanted: int) -> Decisions:
    decision = Decision(job=job.id, slots=slots, kind=DecisionKind.KEEP, reason=reason, wanted=wanted)
    return Decisions(decisions=(decision,), summary="")


def is_new(
    *,
    held: tuple[str, ...] = SLOTS[:2],
    slots: tuple[str, ...] = SLOTS[:2],
    decided: tuple[int | None, str | None] = (2, "said"),
    reason: str = "said otherwise",
    wanted_before: int | None = 2,
    wanted: int = 2,
) -> bool | None:
    """Return whether a decision is reported as a new one; None if nothing at all is written."""
    job = make_running(*decided)
    changes = carry_out(
        make_pool(job, held), decide(job, slots, reason, wanted), {job.id: Memory(1, wanted=wanted_before)}, LeftOut()
    )
    if not changes:
        return None
    assert changes[0].verdict is not None and changes[0].verdict.reason == reason
    return changes[0].verdict.is_new


def test_a_decision_is_new_if_slots_or_what_is_wanted_change() -> None:
    assert is_new(slots=SLOTS)
    assert is_new(slots=SLOTS[:1])
    assert is_new(slots=SLOTS[1:])
    assert is_new(wanted=3)
    assert is_new(decided=(None, None))


def test_other_words_are_no_new_decision() -> None:
    assert is_new() is False
    # A loop that has just begun does not know what was wanted.
    assert is_new(wanted_before=None) is False


def test_the_same_words_are_not_written_again() -> None:
    assert is_new(reason="said") is None


def test_a_day_of_changing_reasons_is_recorded_in_few_decisions() -> None:
    """The reasons of waiting jobs name other jobs again and again; that is no news."""

    plans = [
        PlannedJob(
            name=f"j{number}",
            submitted_at=1.5 * number,
            max_workers=4,
            load=Load(num_steps=40 + 7 * number, step_s=1.0),
        )
        for number in range(12)
    ]
    store = simulate(plans, Setting(num_slots=4)).store
    # Each of them: it waits, it starts, and the resizes that others cause.
    assert len(store.decisions) < 8 * len(store.jobs)
    last: dict[str, tuple[int, str]] = {}
    for decision in store.decisions:
        assert last.get(decision.job) != (decision.num_slots, decision.reason)
        last[decision.job] = (decision.num_slots, decision.reason)


def test_what_was_due_is_counted_while_a_job_wants_slots_whatever_its_attempt() -> None:
    job = make_running(2, "said")
    memories = {job.id: Memory(1, account=Account(due=3.0, behind=1, counted_at=0.0))}
    learn(make_pool(job, SLOTS[:2]), NOTHING, memories, 10.0)
    assert (memories[job.id].account.due_slot_s, memories[job.id].account.served_slot_s) == (30.0, 20.0)
    anew = msgspec.structs.replace(job, attempt=2, stage=Stage.STARTING)
    report = DriverReport(attempt=2, state=DriverState.STARTING)
    learn(make_pool(anew, ()), {job.id: report}, memories, 20.0)
    assert (memories[job.id].attempt, memories[job.id].account.due_slot_s) == (2, 60.0)
    assert memories[job.id].account.behind == 1
    paused = msgspec.structs.replace(anew, stage=Stage.PAUSED)
    learn(make_pool(paused, ()), NOTHING, memories, 30.0)
    before = memories[job.id].account.due_slot_s
    learn(make_pool(paused, ()), NOTHING, memories, 1000.0)
    assert memories[job.id].account.due_slot_s == before


def test_progress_is_shown_with_the_number_of_steps() -> None:
    async def live() -> World:
        world = World(Setting())
        turning = asyncio.create_task(world.run(world.make_loop()))
        world.submit(PlannedJob(name="a", load=Load(num_steps=200, step_s=1.0)))
        await asyncio.sleep(100)
        turning.cancel()
        return world

    (job,) = clock.run(live()).store.jobs.values()
    assert job.progress is not None
    assert job.progress.num_steps == 200
    assert 0 < (job.progress.step or 0) < 200


def make_report(num_workers: int, **told: object) -> DriverReport:
    status = {"num_workers": num_workers, "step": 5, "epoch": 0, "loss": None, "samples_per_s": None, **told}
    held = frozenset(SLOTS[:num_workers])
    return DriverReport(attempt=1, state=DriverState.RUNNING, assigned=held, in_use=held, status=status)


@pytest.mark.parametrize(("state", "want"), [("working", "its workers work"), ("training", "its workers train")])
def test_a_job_runs_as_soon_as_its_workers_train_or_work(state: str, want: str) -> None:
    job = msgspec.structs.replace(make_running(2, "said"), stage=Stage.STARTING)
    (change,) = learn(make_pool(job, SLOTS[:2]), {job.id: make_report(2, state=state)}, {}, 10.0)
    assert (change.stage, change.reason) == (Stage.RUNNING, want)


@pytest.mark.parametrize(
    ("by_driver", "from_here", "before", "want"),
    [
        (2.5, 9.0, 8.0, 2.5),
        (0.0, 9.0, 8.0, 0.0),
        (None, 9.0, 8.0, 9.0),
        (None, None, 8.0, 8.0),
        (None, None, None, None),
    ],
)
def test_what_a_resize_cost_is_kept_as_the_driver_measures_it(
    by_driver: float | None, from_here: float | None, before: float | None, want: float | None
) -> None:
    job = msgspec.structs.replace(make_running(2, "said"), progress=Progress(time=0.0, resize_s=before))
    memories = {job.id: Memory(1, num_workers=2, pace=Pace(resize_s=from_here))}
    pool = make_pool(job, SLOTS[:2])
    (change,) = learn(pool, {job.id: make_report(2, resize_s=by_driver)}, memories, 10.0)
    assert change.progress is not None and change.progress.resize_s == want
    seen = make_snapshot(
        make_pool(msgspec.structs.replace(job, progress=change.progress), SLOTS[:2]),
        NOTHING,
        memories,
        {},
        10.0,
        LeftOut(),
    )
    assert seen.jobs[0].resize_cost_s == want, "the policy waits for a multiple of it"


def told_speed(num_workers: int, rate: float, *, measured_s: float = 60.0, age_s: float = 0.0) -> dict[str, Any]:
    size = {"num_workers": num_workers, "num_nodes": 1}
    return {**size, "samples_per_s": rate, "measured_s": measured_s, "age_s": age_s}


def test_speeds_of_earlier_drivers_are_kept_until_they_are_measured_again_or_are_old() -> None:
    job, now = make_running(2, "said"), 1000.0

    def hear(*told: dict[str, Any]) -> dict[int, float]:
        """Return the speeds that the policy sees."""
        nonlocal job, now
        now += 2.0
        (change,) = learn(make_pool(job, SLOTS[:2]), {job.id: make_report(2, speeds=list(told))}, {}, now)
        job = msgspec.structs.replace(job, progress=change.progress)
        pool = make_pool(job, SLOTS[:2])
        seen = make_snapshot(pool, NOTHING, {}, {}, now, LeftOut(), measured_speed_s=60.0)
        without = make_snapshot(pool, NOTHING, {}, {}, now, LeftOut())
        assert without.jobs[0].speeds == ()
        return {speed.num_workers: speed.samples_per_s for speed in seen.jobs[0].speeds}

    assert hear(told_speed(1, 5.0), told_speed(2, 9.0, measured_s=59.0)) == {1: 5.0}, "2 workers for too short"
    assert hear(told_speed(2, 9.5)) == {1: 5.0, 2: 9.5}
    assert hear() == {1: 5.0, 2: 9.5}, "another driver, which has measured nothing yet"
    assert hear(told_speed(2, 1.0, measured_s=16.0)) == {1: 5.0, 2: 9.5}, "nor for long enough"
    assert hear(told_speed(2, 9.0)) == {1: 5.0, 2: 9.0}
    odd = [{"num_workers": 0}, {"num_nodes": -1}, {"samples_per_s": 0.0}, {"samples_per_s": math.inf}]
    odd += [{"samples_per_s": math.nan}, {"measured_s": math.nan}, {"age_s": math.inf}, {"num_workers": 2**70}]
    assert hear(*(told_speed(3, 1.0) | values for values in odd)) == {1: 5.0, 2: 9.0}
    assert hear(*(told_speed(number, 1.0) for number in range(10, 30))).keys() == set(range(14, 30))


def test_a_number_of_workers_that_was_slow_is_tried_again_after_half_an_hour() -> None:
    job, now = make_running(2, "said"), 1000.0
    (change,) = learn(
        make_pool(job, SLOTS[:2]),
        {job.id: make_report(2, speeds=[told_speed(1, 5.0), told_speed(2, 4.0, age_s=1.0)])},
        {},
        now,
    )
    pool = make_pool(msgspec.structs.replace(job, progress=change.progress), SLOTS[:2])
    for moment, want in [(now, Slowdown(1, 2, 1)), (now + 1798, Slowdown(1, 2, 1)), (now + 1800, None)]:
        seen = make_snapshot(pool, NOTHING, {}, {}, moment, LeftOut(), measured_speed_s=60.0)
        assert seen.jobs[0].slowdown == want


def test_a_job_whose_workers_differed_is_marked() -> None:
    job = make_running(2, "said")
    report = make_report(2, differed_step=3)
    (change,) = learn(make_pool(job, SLOTS[:2]), {job.id: report}, {job.id: Memory(1)}, 10.0)
    assert change.progress is not None and change.progress.differed_step == 3


def test_a_job_says_how_long_it_waits_for_data() -> None:
    job = make_running(2, "said")
    (change,) = learn(make_pool(job, SLOTS[:2]), {job.id: make_report(2, data_wait=0.4)}, {job.id: Memory(1)}, 10.0)
    assert change.progress is not None and change.progress.data_wait == 0.4


@pytest.mark.parametrize(("said", "want"), [(None, None), ("", None), ("x" * 5000, "x" * 1000)])
def test_a_job_says_why_its_workers_cannot_connect(said: str | None, want: str | None) -> None:
    job = make_running(2, "said")
    report = make_report(2, unconnected=said)
    (change,) = learn(make_pool(job, SLOTS[:2]), {job.id: report}, {job.id: Memory(1)}, 10.0)
    assert change.progress is not None and change.progress.unconnected == want


def test_the_policy_hears_when_a_job_was_resized_last() -> None:
    job, memories = make_running(2, "said"), {}
    heard = []
    for now, num_workers in [(10.0, 0), (20.0, 1), (30.0, 1), (40.0, 2), (50.0, 2), (60.0, 1)]:
        pool = make_pool(job, SLOTS[:2])
        reports = {job.id: make_report(num_workers)}
        learn(pool, reports, memories, now)
        heard.append(make_snapshot(pool, reports, memories, {}, now, LeftOut()).jobs[0].last_resized_at)
    assert heard == [None, None, None, 40.0, 40.0, 60.0], "its start is no resize"


def test_a_request_of_a_user_waits_for_no_cooldown() -> None:
    job, memories = make_running(2, "said"), {}

    def hear(job: Job, now: float, num_workers: int, held: int, *, wanted_since: float | None) -> float | None:
        """Play a round; returns since when the policy takes the job to be cooling."""
        pool, reports = make_pool(job, SLOTS[:held]), {job.id: make_report(num_workers)}
        learn(pool, reports, memories, now)
        heard = make_snapshot(pool, reports, memories, {}, now, LeftOut()).jobs[0].last_resized_at
        decision = Decision(
            job=job.id, slots=SLOTS[:held], kind=DecisionKind.KEEP, reason="said", wanted=3, wanted_since=wanted_since
        )
        carry_out(pool, Decisions(decisions=(decision,), summary=""), memories, LeftOut())
        return heard

    assert hear(job, 10.0, 2, 2, wanted_since=None) is None
    assert hear(job, 20.0, 1, 1, wanted_since=None) == 20.0
    more = msgspec.structs.replace(job, max_workers=job.max_workers + 1)
    assert hear(more, 21.0, 1, 1, wanted_since=21.0) is None, "a user has asked for more"
    assert hear(more, 25.0, 2, 2, wanted_since=21.0) is None, "it has not come to that yet"
    assert hear(more, 30.0, 3, 3, wanted_since=None) is None
    assert hear(more, 31.0, 3, 3, wanted_since=None) == 30.0
    assert hear(msgspec.structs.replace(more, priority=1), 32.0, 3, 3, wanted_since=32.0) is None


def learn_from(job: Job, report: DriverReport) -> tuple[JobChange, policy.JobDemand]:
    """Play a round; returns what is written of the job, and what the policy sees of it then."""
    memories: dict[str, Memory] = {}
    (change,) = learn(make_pool(job, SLOTS), {job.id: report}, memories, 10.0)
    after = msgspec.structs.replace(job, progress=change.progress)
    return change, make_snapshot(make_pool(after, SLOTS), {job.id: report}, memories, {}, 10.0, LeftOut()).jobs[0]


def test_slots_that_cannot_help_go_back_at_once_and_no_more_are_given() -> None:
    job = make_running(3, "said")
    report = msgspec.structs.replace(
        make_report(2, num_micro_batches=2), assigned=frozenset(SLOTS), surplus=frozenset(SLOTS[2:])
    )
    change, seen = learn_from(job, report)
    assert change.released == SLOTS[2:]
    assert change.reason == "its step has only 2 micro-batches, so another worker cannot help"
    assert seen.num_micro_batches == 2 and largest_size(seen) == 2
    # Two workers in the two slots that are used: it is not taken for one that is being resized.
    settled = make_snapshot(make_pool(job, SLOTS), {job.id: report}, {}, {}, 10.0, LeftOut()).jobs[0]
    assert settled.standing is Standing.RUNNING


@pytest.mark.parametrize(
    ("num_workers", "told", "want"),
    [
        (0, None, 2),  # its workers are only starting: what the last attempt said counts
        (1, None, None),  # they train, and have no such limit: another program
        (0, 8, 8),
        (2, 8, 8),
        (2, 0, None),  # of a program that speaks for its workers: the policy would divide by it
        (2, -3, None),
    ],
)
def test_what_an_attempt_says_of_its_step_replaces_what_the_last_one_said(
    num_workers: int, told: int | None, want: int | None
) -> None:
    job = msgspec.structs.replace(make_running(3, "said"), progress=Progress(time=0.0, num_micro_batches=2))
    _, seen = learn_from(job, make_report(num_workers, num_micro_batches=told))
    assert seen.num_micro_batches == want


def test_what_becomes_known_of_a_step_is_written_at_once() -> None:
    job = msgspec.structs.replace(make_running(3, "said"), progress=Progress(time=9.9, num_workers=1))
    change, _ = learn_from(job, make_report(1, num_micro_batches=4))
    assert change.progress is not None and change.progress.num_micro_batches == 4


def test_a_job_with_a_minimum_above_its_micro_batches_is_started_in_fewer_slots() -> None:
    job = msgspec.structs.replace(make_running(3, "said"), min_workers=3)
    order = make_order(job, Work(program=("train.py",), directory="/"), SLOTS[:1], code=Path("/code"), goes_on=True)
    assert (order.spec.min_workers, order.spec.num_workers, order.spec.max_workers) == (1, 1, 3)


def test_an_attempt_on_another_machine_is_neither_started_nor_failed_and_a_user_can_end_it() -> None:
    running = make_running(3, "said")
    report = DriverReport(attempt=1, state=DriverState.UNKNOWN, trouble="runs on the machine a")
    for stage in (Stage.RUNNING, Stage.STARTING):
        job = msgspec.structs.replace(running, stage=stage, reason="its workers train")
        memories: dict[str, Memory] = {}
        for now in range(0, 3600, 60):
            (change,) = learn(make_pool(job, SLOTS), {job.id: report}, memories, float(now))
            assert change.stage is None and change.closed == ()
            assert change.note is not None
            assert change.note.reason == "its workers train; but its driver runs on the machine a"
            calls = list_calls(make_pool(job, SLOTS), {job.id: report}, memories, float(now), LeftOut())
            assert calls == []
    job = msgspec.structs.replace(running, stage=Stage.STOPPING, reason="stopped by ann")
    (change,) = learn(make_pool(job, SLOTS), {job.id: report}, {}, 10.0)
    assert (change.stage, change.closed) == (Stage.STOPPED, SLOTS)
