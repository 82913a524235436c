"""The protocol, paragraph by paragraph, on the made-up world."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import msgspec
import pytest
from tests.unit.driver.world import TICK_S, World, make_world_spec, progress

from legato.core import wire
from legato.core.errors import LayoutError, UsageError
from legato.core.lifecycle import JobState
from legato.core.slots import list_slots
from legato.driver import events
from legato.driver.job import JobFacts
from legato.driver.status import Meter, build_status
from legato.engines.base import Exited, Noted


def make_world(**changes: Any) -> World:
    return World(make_world_spec(**{"max_deaths": 5, "max_breaks": 3, **changes}))


def make_training(**changes: Any) -> World:
    world = make_world(**changes)
    world.calm(2)
    world.check_at_peace()
    return world


def job_of(world: World) -> JobFacts:
    assert world.membership is not None
    return world.membership.job


def kinds(world: World, kind: str) -> list[events.Record]:
    return [record for record in world.records if record.kind == kind]


def meet(world: World, number: int, fingerprint: str = "m", num_micro_batches: int | None = None) -> None:
    """Let one worker come as far as its join point."""
    body = world.bodies[number]
    world.connect(body)
    world.deliver(body)
    body.doing = "warm"
    body.inbox.clear()
    warm = wire.Warm(fingerprint={"model": fingerprint}, num_micro_batches=num_micro_batches)
    world.feed(events.Heard(number, warm))


@pytest.mark.parametrize("is_old", [False, True])
def test_a_view_names_its_newcomers_if_all_its_workers_know_what_that_means(*, is_old: bool) -> None:
    world = make_world(num_workers=2)
    next(iter(world.bodies.values())).is_old = is_old
    world.calm(2)
    views = world.membership.job.views  # type: ignore[union-attr]
    assert [view.newcomers for view in views.values()] == [()]
    world.feed(events.ScaleAsked(4, "test"))
    world.calm(2)
    found = [view for view in views.values() if len(view.workers) == 4]
    assert [view.newcomers for view in found] == [() if is_old else (2, 3)]


def test_no_view_names_newcomers_in_which_workers_take_the_places_of_others() -> None:
    world = make_world(num_workers=3, max_workers=3)
    world.calm(2)
    views = world.membership.job.views  # type: ignore[union-attr]
    world.die(0, -9)
    world.calm(4)
    found = [view for view in views.values() if view.number > 1]
    # The recovery has the survivors only; the next view adds the new worker.
    assert [(len(view.workers), view.newcomers) for view in found] == [(2, ()), (3, (3,))]
    world.die(1, -9)
    world.die(2, -9)
    world.calm(4)
    assert all(not view.newcomers for view in views.values() if view.number > 3 and len(view.workers) < 3)


def test_the_first_view_waits_for_all_who_are_coming() -> None:
    world = make_world(num_workers=3)
    meet(world, 0)
    meet(world, 1)
    assert job_of(world).current is None
    meet(world, 2)
    assert job_of(world).current.workers == (0, 1, 2)  # type: ignore[union-attr]


def test_the_first_view_does_not_wait_forever() -> None:
    world = make_world(num_workers=3)
    meet(world, 0)
    world.now += 10
    world.feed(events.Tick())
    assert job_of(world).current.workers == (0,)  # type: ignore[union-attr]


def test_joiners_come_in_one_batch() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(4, "test"))
    meet(world, 2)
    assert job_of(world).pending is None
    meet(world, 3)
    assert job_of(world).pending.workers == (0, 1, 2, 3)  # type: ignore[union-attr]
    world.calm(3)
    assert len(kinds(world, "proposed")) == 2


def test_a_leaver_that_does_not_go_is_killed() -> None:
    world = make_training(num_workers=3)
    world.feed(events.ScaleAsked(2, "test"))
    leaver = world.bodies[2]
    world.leave = lambda body, reason: None  # type: ignore[method-assign, assignment]
    world.calm(5)
    assert 2 in world.bodies
    leaver.doing = "deaf"
    world.calm(8)
    assert 2 not in world.bodies
    assert not kinds(world, "recovered")


def test_a_death_brings_a_view_of_the_survivors_at_once() -> None:
    world = make_training(num_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    job = job_of(world)
    assert job.current.workers == (1, 2)  # type: ignore[union-attr]
    assert "worker 0 died" in kinds(world, "recovered")[0].reason
    assert job.occupant("n/0").number == 3  # type: ignore[union-attr]


def test_a_joiner_that_dies_is_left_out_of_a_new_proposal() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2)
    first = job_of(world).pending
    world.die(2, -9)
    world.deliver_engine()
    again = job_of(world).pending
    assert first is not None
    assert again is not None
    assert again.number == first.number + 1
    assert again.workers == (0, 1)
    assert not kinds(world, "recovered")


def test_incumbents_that_had_switched_to_a_dead_proposal_recover() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2)
    proposed = job_of(world).pending
    assert proposed is not None
    world.die(2, -9)
    world.deliver_engine()
    world.feed(events.Heard(0, wire.Broken(view=proposed.number, num_rounds=5, reason="2 is gone")))
    job = job_of(world)
    assert job.pending is None
    assert job.current.workers == (0, 1)  # type: ignore[union-attr]
    assert job.current.number > proposed.number + 1  # type: ignore[union-attr]


def test_a_joiner_speaking_from_a_proposal_does_not_put_it_in_force() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2)
    pending = job_of(world).pending
    assert pending is not None
    world.feed(events.Heard(2, wire.Heartbeat(view=pending.number)))
    assert job_of(world).pending == pending


def test_a_hung_worker_is_fenced_and_refused() -> None:
    world = make_training(num_workers=2)
    body = world.bodies[1]
    body.hung = True
    world.calm(6)
    assert len(kinds(world, "fenced")) == 1
    answer = world.membership.handle(events.Heard(1, body.hello()), world.now)  # type: ignore[union-attr]
    assert [type(sent.message) for sent in answer if isinstance(sent, events.Send)] == [wire.Refused]
    world.check_at_peace()


def test_events_of_a_job_that_began_again_tell_no_step_of_before() -> None:
    world = make_training(num_workers=1)
    assert job_of(world).best_step > 2
    world.die(0, -9)
    world.deliver_engine()
    assert kinds(world, "died")[0].step == job_of(world).best_step
    number = len(world.records)
    assert kinds(world, "resumed")[0].step is None
    world.calm(1)
    steps = [record.step for record in world.records[number:]]
    assert steps and all(step is None or step < job_of(world).best_step for step in steps), steps


def test_a_suspended_driver_blames_no_worker() -> None:
    world = make_training(num_workers=2)
    world.now += 60
    world.feed(events.Tick())
    assert not kinds(world, "fenced")
    world.calm(5)
    world.check_at_peace()
    assert not kinds(world, "fenced")


def test_a_stale_break_is_ignored() -> None:
    world = make_training(num_workers=3)
    world.die(0, -9)
    world.calm(5)
    number = job_of(world).current.number  # type: ignore[union-attr]
    world.feed(events.Heard(1, wire.Broken(view=1, num_rounds=0, reason="old")))
    assert job_of(world).broken_since is None
    assert job_of(world).current.number == number  # type: ignore[union-attr]


def test_a_break_without_a_death_is_repaired_a_limited_number_of_times() -> None:
    world = make_training(num_workers=2)
    for _ in range(4):
        view = job_of(world).current
        assert view is not None
        world.feed(events.Heard(0, wire.Broken(view=view.number, num_rounds=0, reason="network")))
        for _ in range(5):
            world.tick()
            for body in world.bodies.values():
                world.deliver(body)
    assert len(kinds(world, "recovered")) == 3
    assert job_of(world).state is JobState.FAILING
    assert "broke 4 times in a row" in job_of(world).end_reason


def pass_time_without_rounds(world: World, seconds: float) -> None:
    """Let all workers talk and none compute."""
    for _ in range(int(seconds / TICK_S)):
        for body in list(world.bodies.values()):
            world.read(body)
            world.deliver(body)
        world.tick()


@pytest.mark.parametrize("who", [0, 1])
def test_a_first_view_that_a_worker_cannot_connect_is_made_again(who: int) -> None:
    world = make_world(num_workers=2)
    world.bodies[who].unlucky = True
    world.calm(5)
    world.check_at_peace()
    assert "could not connect view 1: no such address" in kinds(world, "broken")[0].reason


def test_a_first_view_that_breaks_before_a_worker_has_the_state_is_made_again() -> None:
    world = make_world(num_workers=2)
    world.calm(TICK_S)
    view = job_of(world).current
    assert view is not None
    assert not job_of(world).settled
    for body in world.bodies.values():
        world.read(body)
        world.break_view(body, view)
    world.calm(5)
    world.check_at_peace()


@pytest.mark.parametrize("who", [1, 2])
def test_a_recovery_that_a_survivor_cannot_connect_is_made_again(who: int) -> None:
    world = make_training(num_workers=3, max_workers=3)
    world.bodies[who].unlucky = True
    world.die(0, -9)
    world.calm(5)
    world.check_at_peace()
    assert "the same workers try again" in kinds(world, "recovered")[1].reason


def test_a_recovery_that_no_worker_can_connect_ends_the_job_in_time() -> None:
    world = make_training(num_workers=2)
    world.break_view(world.bodies[0], job_of(world).current)  # type: ignore[arg-type]
    while job_of(world).state is JobState.TRAINING:
        for body in world.bodies.values():
            body.unlucky = True
        world.calm(TICK_S)
    assert len(kinds(world, "recovered")) == 3
    assert "broke 4 times in a row" in job_of(world).end_reason


def test_a_recovery_of_which_nothing_is_heard_is_made_again() -> None:
    world = make_training(num_workers=3, max_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    recovery = job_of(world).current
    assert recovery is not None
    deaf = world.bodies[1]
    deaf.inbox.clear()
    pass_time_without_rounds(world, 59)
    deadline = world.membership.next_deadline()  # type: ignore[union-attr]
    assert deadline is not None
    assert deadline <= job_of(world).in_force_since + 60
    assert job_of(world).current == recovery
    pass_time_without_rounds(world, 2)
    assert "workers [1] did not connect view 2 within 60 s" in kinds(world, "recovered")[1].reason
    world.calm(5)
    world.check_at_peace()


def test_a_recovery_that_is_connected_may_hand_over_its_state_for_as_long_as_it_takes() -> None:
    world = make_training(num_workers=3, max_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    pass_time_without_rounds(world, 200)
    assert len(kinds(world, "recovered")) == 1
    world.calm(5)
    world.check_at_peace()


def test_a_worker_whose_prepared_is_lost_is_known_to_be_connected_by_what_it_says() -> None:
    world = make_training(num_workers=3, max_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    survivor = world.bodies[1]
    world.read(survivor)
    world.disconnect(survivor, losing=True)
    world.feed(events.Lost(1))
    world.connect(survivor)
    pass_time_without_rounds(world, 100)
    assert len(kinds(world, "recovered")) == 1


def test_a_proposal_of_which_nothing_is_heard_is_made_again() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2)
    world.bodies[1].inbox.clear()
    world.now += 40
    world.feed(events.Tick())  # the driver slept
    pass_time_without_rounds(world, 59)
    assert len(kinds(world, "proposed")) == 2
    pass_time_without_rounds(world, 2)
    assert "workers [1] did not prepare within 60 s" in kinds(world, "proposed")[2].reason
    pass_time_without_rounds(world, 100)
    assert len(kinds(world, "proposed")) == 3, "all are ready: they switch when they have computed a round"
    world.calm(3)
    world.check_at_peace()


def test_a_suspended_driver_does_not_take_a_recovery_for_overdue() -> None:
    world = make_training(num_workers=3, max_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    world.now += 100
    world.feed(events.Tick())
    assert len(kinds(world, "recovered")) == 1
    world.calm(5)
    world.check_at_peace()


@pytest.mark.timeout(20)
def test_a_proposal_that_a_worker_cannot_connect_is_made_again_and_less_and_less_often() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    proposed_at = []
    assert job_of(world).unconnected is None
    while len(proposed_at) < 8:
        world.bodies[max(world.bodies)].unlucky = True
        if len(kinds(world, "proposed")) > 1 + len(proposed_at):
            proposed_at.append(world.now)
        world.calm(TICK_S)
    pauses = [later - earlier for earlier, later in itertools.pairwise(proposed_at)]
    assert pauses == [pytest.approx(pause, abs=2 * TICK_S) for pause in (1, 2, 4, 8, 16, 32, 60)]
    assert "worker 2 could not connect view" in kinds(world, "proposed")[-1].reason
    job = job_of(world)
    assert (job.unconnected or "").endswith("no such address"), "the user must see why a slot is held for nothing"
    assert build_status(job, Meter(), deque(), None, world.now)["unconnected"] == job.unconnected
    world.calm(70)
    world.check_at_peace()
    assert build_status(job, Meter(), deque(), None, world.now)["unconnected"] is None


def test_views_use_the_store_that_lives() -> None:
    world = make_training(num_workers=2)
    world.move_store()
    world.calm(1)
    assert len(kinds(world, "recovered")) == 0, "connected groups do not need it"
    world.feed(events.ScaleAsked(3, "test"))
    world.calm(3)
    world.check_at_peace()
    world.die(0, -9)
    world.calm(5)
    world.check_at_peace()
    assert not kinds(world, "broken")


def test_a_recovery_that_the_store_did_not_outlive_is_made_again_at_once() -> None:
    world = make_training(num_workers=3, max_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    world.move_store()
    world.deliver_engine()
    recovery = job_of(world).current
    assert recovery is not None
    assert (recovery.number, recovery.rendezvous) == (3, world.store)
    assert "the store was lost while view 2 was being connected" in kinds(world, "recovered")[1].reason
    world.calm(5)
    world.check_at_peace()


def test_a_recovery_that_is_connected_outlives_the_store() -> None:
    world = make_training(num_workers=3, max_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    pass_time_without_rounds(world, 1)
    world.move_store()
    world.deliver_engine()
    assert job_of(world).current.number == 2  # type: ignore[union-attr]


def test_a_proposal_that_the_store_did_not_outlive_is_made_again_at_once() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2)
    world.move_store()
    world.deliver_engine()
    assert job_of(world).pending.rendezvous == world.store  # type: ignore[union-attr]
    world.calm(3)
    world.check_at_peace()
    assert len(kinds(world, "proposed")) == 3


def test_a_proposal_of_the_last_driver_is_made_again_if_the_store_died_meanwhile() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2)
    world.crash_driver()
    world.move_store()
    world.restart_driver()
    world.calm(3)
    world.check_at_peace()
    assert len(job_of(world).members()) == 3


def test_below_the_minimum_the_job_holds_and_goes_on() -> None:
    world = make_training(num_workers=3, min_workers=3)
    world.die(0, -9)
    world.deliver_engine()
    job = job_of(world)
    assert job.state is JobState.HOLDING
    assert job.held == {1, 2}
    world.calm(5)
    world.check_at_peace()
    assert [body.step > 5 for body in world.bodies.values()] == [True] * 3, "the state was carried over"


def test_all_dead_resumes_from_the_checkpoint() -> None:
    world = make_training(num_workers=2)
    for number in (0, 1):
        world.die(number, -9)
    world.deliver_engine()
    assert job_of(world).resume
    assert kinds(world, "resumed")[0].level == "warning"
    world.calm(15)
    assert job_of(world).settled


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ((wire.Unsaved(step=9),), ("unsaved", 3)),
        ((wire.Saved(step=5, path="5"), wire.Unsaved(step=9)), ("unsaved", 3)),
        ((wire.Unsaved(step=5), wire.Saved(step=9, path="9")), ("succeeded", 0)),
        ((wire.Saved(step=9, path="9"), wire.Unsaved(step=9)), ("succeeded", 0)),
    ],
)
def test_a_job_whose_last_checkpoint_is_missing_does_not_succeed(
    said: tuple[wire.Message, ...], want: tuple[str, int]
) -> None:
    world = make_training(num_workers=1)
    for message in said:
        world.feed(events.Heard(0, message))  # type: ignore[arg-type]
    finish(world, 0)
    (end,) = world.ends
    assert (end.outcome, end.exit_code) == want
    if want[0] == "unsaved":
        assert "no checkpoint of step 9 was written" in end.reason


def test_a_program_failure_fails_the_job_once() -> None:
    world = make_training(num_workers=2)
    for number in (0, 1):
        failed = wire.Failed(view=1, error="KeyError: 'x'", traceback="…", exit_code=3)
        world.feed(events.Heard(number, failed))
        world.die(number, 3)
    world.deliver_engine()
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("failed", 3)]
    assert len([record for record in world.records if record.detail]) == 1


def test_a_mismatched_joiner_is_refused_and_its_slot_given_up() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2, "other")
    refused = kinds(world, "refused")
    assert refused[0].level == "error"
    assert "'other'" in refused[0].reason
    assert "'m'" in refused[0].reason
    world.calm(5)
    assert job_of(world).wanted == {"n/0", "n/1"}
    world.check_at_peace()


def test_a_joiner_on_another_processor_is_refused_by_name_and_it_is_said_what_to_do() -> None:
    world = make_training(num_workers=1)
    world.feed(events.ScaleAsked(2, "test"))
    body = world.bodies[1]
    world.connect(body)
    world.deliver(body)
    body.doing = "warm"
    body.inbox.clear()
    reference = job_of(world).reference or {}
    world.feed(events.Heard(1, wire.Warm(fingerprint={**reference, "oneDNN": "3.12 with AVX2"})))
    (refused,) = kinds(world, "refused")
    assert "its oneDNN is '3.12 with AVX2'" in refused.reason and "--cpu-capability" in refused.reason


def test_a_failing_joiner_costs_its_slot_and_not_the_job() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    world.connect(world.bodies[2])
    world.deliver(world.bodies[2])
    failed = wire.Failed(error="ImportError: no", traceback="Traceback …", exit_code=1)
    world.feed(events.Heard(2, failed))
    world.die(2, 1)
    world.calm(3)
    assert job_of(world).wanted == {"n/0", "n/1"}
    world.check_at_peace()


@pytest.mark.parametrize(
    ("exit_code", "told"), [(70, "its connection to the driver failed"), (71, "no process could be")]
)
def test_what_is_no_fault_of_the_program_is_a_death(exit_code: int, told: str) -> None:
    world = make_training(num_workers=2)
    world.die(1, exit_code)
    world.calm(5)
    world.check_at_peace()
    assert told in kinds(world, "died")[0].reason
    assert slots_in_use(world) == {"n/0", "n/1"}


def test_the_engines_cause_of_a_death_is_reported() -> None:
    world = make_training(num_workers=2, max_deaths=0)
    world.feed(Noted("its limits are not enforced"))
    assert [(record.level, record.reason) for record in kinds(world, "note")] == [
        ("warning", "its limits are not enforced")
    ]
    world.die(1, -9, "killed by the kernel: out of memory")
    world.deliver_engine()
    assert kinds(world, "died")[0].reason == "worker 1 died: killed by the kernel: out of memory"
    assert "the last one: killed by the kernel: out of memory" in job_of(world).end_reason


def test_the_advice_on_a_death_is_given_once_and_only_where_it_helps() -> None:
    world = make_training(num_workers=3, max_deaths=0, checkpoint_every=None)
    for number in (2, 1, 0):
        world.die(number, -9, "killed by the kernel: out of memory; the limit is 1 GiB. Use a smaller micro-batch")
        world.deliver_engine()
    told = "killed by the kernel: out of memory; the limit is 1 GiB"
    deaths = [record.reason for record in kinds(world, "died")]
    assert deaths[0] == f"worker 2 died: {told}. Use a smaller micro-batch"
    assert set(deaths[1:]) <= {f"worker 1 died: {told}", f"worker 0 died: {told}"}
    end = job_of(world).end_reason
    assert end.count("Use a smaller micro-batch") == 1 and "checkpoint_every" not in end


@pytest.mark.parametrize("checkpoint_every", [None, "5steps"])
def test_the_reason_of_a_job_without_checkpoints_says_to_set_checkpoint_every(checkpoint_every: str | None) -> None:
    world = make_training(num_workers=1, max_deaths=0, checkpoint_every=checkpoint_every)
    assert job_of(world).best_step > 0
    world.die(0, -9)
    world.deliver_engine()
    assert ("starts at step 0 when all its workers are lost" in job_of(world).end_reason) == (checkpoint_every is None)


def test_where_no_process_can_be_started_it_is_tried_again_less_and_less_often() -> None:
    world = make_training(num_workers=2)
    world.die(1, 71)
    world.deliver_engine()
    starts = []
    begun = world.now
    while not world.ends and job_of(world).wanted == {"n/0", "n/1"} and world.now < begun + 60:
        newest = max(world.bodies)
        if newest > 1:
            starts.append(world.now - begun)
            world.die(newest, 71)
            world.deliver_engine()
        else:
            world.calm(TICK_S)
    pauses = [later - earlier for earlier, later in itertools.pairwise([0.0, *starts])]
    assert [round(pause) for pause in pauses] == [1, 2, 4, 8, 16]
    assert job_of(world).wanted == {"n/0"}, "given up; the other one trains on"


@pytest.mark.parametrize(("exit_code", "told"), [(-11, "SIGSEGV"), (-9, "SIGKILL")])
def test_a_crash_loop_ends(exit_code: int, told: str) -> None:
    world = make_world(num_workers=1)
    for _ in range(6):
        assert not world.ends
        world.die(max(world.bodies), exit_code)
        world.deliver_engine()
    assert world.ends[0].outcome == "failed"
    assert "lost 6 workers in a row" in world.ends[0].reason
    assert told in world.ends[0].reason
    assert ("out of memory" in world.ends[0].reason) is (told == "SIGKILL")


def finish(world: World, number: int, exit_code: int = 0) -> None:
    body = world.bodies[number]
    world.feed(events.Heard(number, wire.Finished(view=body.number_at, num_rounds=9, trained=True)))
    world.die(number, exit_code)
    world.deliver_engine()


def test_the_job_succeeds_when_rank_0_has_ended_and_all_are_gone() -> None:
    world = make_training(num_workers=2)
    finish(world, 0)
    assert not world.ends
    finish(world, 1)
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("succeeded", 0)]


@pytest.mark.parametrize(
    ("num_workers", "want"),
    [
        (1, "never called legato.elastic: its worker ran the whole program"),
        (2, "never called legato.elastic: each of its 2 workers ran the whole program"),
    ],
)
def test_a_program_that_never_calls_legato_is_reported(num_workers: int, want: str) -> None:
    world = World(make_world_spec(num_workers=num_workers))
    for number in range(num_workers):
        end_untrained(world, number)
    (end,) = world.ends
    assert (end.outcome, end.exit_code) == ("succeeded", 0)
    assert want in end.reason
    assert [(record.kind, record.level) for record in world.records if record.reason == end.reason] == [
        ("note", "warning")
    ]


def test_a_worker_that_trained_decides_the_outcome_of_the_job() -> None:
    """One of them called Legato, such as rank 0 alone: that is no mistake for sure."""
    world = World(make_world_spec(num_workers=2))
    end_untrained(world, 0)
    world.feed(events.Heard(1, world.bodies[1].hello()))
    finish(world, 1)
    assert [end.reason for end in world.ends] == ["the program ran to its end"]


def test_a_job_whose_program_leaves_its_loop_early_says_so() -> None:
    for step, want in ((5, ", after 5 of 9 steps"), (9, "")):
        world = World(make_world_spec(num_workers=1))
        world.feed(events.Heard(0, world.bodies[0].hello()))
        world.feed(events.Heard(0, msgspec.structs.replace(progress(1, step), num_steps=9)))
        finish(world, 0)
        assert [end.reason for end in world.ends] == [f"the program ran to its end{want}"]


@pytest.mark.parametrize(
    ("exit_code", "is_first"),
    [(3, True), (3, False), (-9, False)],
    ids=["fails first", "fails last", "is killed last"],
)
def test_a_static_job_that_trains_nothing_needs_all_its_workers(exit_code: int, is_first: bool) -> None:
    world = World(make_world_spec(num_workers=2, min_workers=2, max_workers=2))
    for number in (0, 1):
        world.feed(events.Heard(number, world.bodies[number].hello()))
    if not is_first:
        end_untrained(world, 0)
        assert not world.ends
    world.die(1, exit_code)
    world.deliver_engine()
    world.calm(60)
    (end,) = world.ends
    assert end.outcome == "failed" and end.exit_code != 0
    assert "worker 1" in end.reason and {3: "code 3", -9: "SIGKILL"}[exit_code] in end.reason


def test_an_elastic_job_that_trains_nothing_ends_with_its_first_worker() -> None:
    world = World(make_world_spec(num_workers=2))
    for number in (0, 1):
        world.feed(events.Heard(number, world.bodies[number].hello()))
    end_untrained(world, 0)
    world.die(1, -9)
    world.deliver_engine()
    assert [end.outcome for end in world.ends] == ["succeeded"]


def end_untrained(world: World, number: int) -> None:
    world.feed(events.Heard(number, world.bodies[number].hello()))
    world.feed(events.Heard(number, wire.Finished(view=0, num_rounds=0, trained=False)))
    world.die(number, 0)
    world.deliver_engine()


def test_rank_0_dead_in_the_tail_is_done_again() -> None:
    world = make_training(num_workers=3, min_workers=2)
    finish(world, 1)
    finish(world, 2)
    world.die(0, -9)
    world.deliver_engine()
    assert not world.ends
    assert list(world.bodies) == [3]
    meet(world, 3)
    assert job_of(world).current.workers == (3,)  # type: ignore[union-attr]
    world.bodies[3].at, world.bodies[3].joined_once = job_of(world).current, True
    world.feed(events.Heard(3, wire.Joined(view=job_of(world).current.number, num_rounds=9, pause_s=0)))  # type: ignore[union-attr]
    finish(world, 3)
    assert [end.outcome for end in world.ends] == ["succeeded"]


def test_a_worker_that_waits_for_a_lost_state_does_not_start_from_scratch() -> None:
    world = make_training(num_workers=2, min_workers=2)
    world.die(0, -9)
    world.deliver_engine()
    meet(world, 2)
    view = job_of(world).current
    assert view is not None and view.workers == (1, 2)
    world.bodies[1].at = view
    world.feed(events.Heard(1, wire.Joined(view=view.number, num_rounds=9, pause_s=0.0)))
    finish(world, 1)
    assert [message for message in world.bodies[2].inbox if isinstance(message, wire.Stop)]
    world.calm(5)
    assert [end.outcome for end in world.ends] == ["succeeded"]
    assert job_of(world).last_view == view.number


def test_those_still_in_a_round_recover_when_others_have_finished() -> None:
    world = make_training(num_workers=3)
    finish(world, 0)
    world.feed(events.Heard(1, wire.Broken(view=1, num_rounds=9, reason="0 is gone")))
    for _ in range(5):
        world.tick()
    assert job_of(world).current.workers == (1, 2)  # type: ignore[union-attr]


def test_stop_lets_all_workers_leave() -> None:
    world = make_training(num_workers=2)
    world.feed(events.StopAsked(False, "test"))
    world.calm(2)
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("stopped", 0)]
    assert not kinds(world, "died")


def test_a_stop_that_could_save_nothing_says_so() -> None:
    world = make_training(num_workers=2)
    world.can_save = False
    world.feed(events.StopAsked(False, "asked by the test"))
    world.calm(2)
    (end,) = world.ends
    assert (end.outcome, end.exit_code) == ("stopped", 1)
    step = job_of(world).best_step
    assert end.reason.startswith(f"asked by the test; but no checkpoint of step {step} was written (there is none)")


def test_a_stop_that_could_not_save_names_the_checkpoint_that_is_there() -> None:
    world = make_training(num_workers=2)
    world.feed(events.Heard(0, wire.Saved(view=1, step=3, path="/c/step-3")))
    world.crash_driver()
    world.restart_driver()
    world.calm(5)
    world.can_save = False
    world.feed(events.StopAsked(False, "test"))
    world.calm(2)
    assert world.ends[0].exit_code == 1
    assert "the newest is of step 3" in world.ends[0].reason


def test_a_stop_in_which_all_workers_die_says_that_nothing_was_saved() -> None:
    world = make_training(num_workers=2)
    world.feed(events.StopAsked(False, "test"))
    for number in (0, 1):
        world.die(number, -9)
    world.deliver_engine()
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("stopped", 1)]


def test_a_stop_before_anything_was_trained_has_nothing_to_save() -> None:
    world = make_world(num_workers=2)
    meet(world, 0)
    world.can_save = False
    world.feed(events.StopAsked(False, "test"))
    world.calm(2)
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("stopped", 0)]


def test_a_stop_of_a_job_that_began_again_is_measured_by_where_it_is() -> None:
    world = make_training(num_workers=2)
    for number in (0, 1):
        world.die(number, -9)
    world.deliver_engine()
    best_step = job_of(world).best_step
    while job_of(world).step < 2:
        world.calm(TICK_S)
    world.feed(events.StopAsked(False, "test"))
    world.calm(2)
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("stopped", 0)]
    assert job_of(world).saved_step is not None
    assert job_of(world).saved_step < best_step - 1


def test_a_stop_right_after_going_on_from_a_checkpoint_has_that_one() -> None:
    world = make_world(num_workers=1, resume=True)
    world.calm(TICK_S)
    past = wire.Progress(
        view=1,
        first_step=1,
        last_step=7,
        epoch=0,
        loss=None,
        num_samples=0,
        num_steps=None,
        num_epochs=None,
        resumed=True,
    )
    world.feed(events.Heard(0, past))
    world.feed(events.StopAsked(False, "test"))
    world.die(0, -9)
    world.deliver_engine()
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("stopped", 0)]


def test_an_evaluation_is_no_checkpoint() -> None:
    world = make_training(num_workers=1)
    world.can_save = False
    for phase in ("evaluate", "train"):
        step = job_of(world).step
        told = msgspec.structs.replace(progress(1, step), num_samples=0, phase=phase)
        world.feed(events.Heard(0, told))
    assert job_of(world).saved_step is None
    world.feed(events.StopAsked(False, "test"))
    world.calm(2)
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("stopped", 1)]


def test_a_checkpoint_of_which_a_worker_tells_again_on_a_new_connection_is_one_event() -> None:
    world = make_training(num_workers=2)
    body, saved = world.bodies[0], wire.Saved(view=1, step=3, path="/c/step-3")
    for _ in range(2):
        world.feed(events.Heard(0, saved))
        world.disconnect(body)
        world.connect(body)
        world.deliver(body)
    assert len(kinds(world, "saved")) == 1
    world.feed(events.Heard(0, saved))
    world.feed(events.Heard(0, saved))
    assert len(kinds(world, "saved")) == 2, "written a second time, because it held again at the same step"


def test_a_checkpoint_of_which_a_worker_tells_a_new_driver_again_is_one_event() -> None:
    world = make_training(num_workers=2)
    world.feed(events.Heard(0, wire.Saved(view=1, step=3, path="/c/step-3")))
    world.crash_driver()
    world.restart_driver()
    world.calm(2)
    for step in (3, 4, 4):
        world.feed(events.Heard(0, wire.Saved(view=1, step=step, path=f"/c/step-{step}")))
    assert [record.reason.split()[3] for record in kinds(world, "saved")] == ["3", "4", "4"]
    world.crash_driver()
    world.restart_driver()
    world.calm(2)
    world.feed(events.Heard(0, wire.Saved(view=1, step=5, path="/c/step-5")))
    assert len(kinds(world, "saved")) == 4, "written while no driver listened"


def test_a_stop_that_kills_is_distinguished_from_one_that_saves() -> None:
    world = make_training(num_workers=2)
    world.feed(events.StopAsked(False, "test"))
    world.feed(events.StopAsked(True, "test"))
    world.calm(2)
    assert [(end.outcome, end.exit_code) for end in world.ends] == [("stopped", 130)]


def test_stop_kills_those_who_do_not_leave_in_time() -> None:
    world = make_training(num_workers=2)
    for body in world.bodies.values():
        body.doing = "deaf"
    world.feed(events.StopAsked(False, "test"))
    world.calm(59)
    assert not world.ends
    world.calm(2)
    assert (world.ends[0].outcome, world.ends[0].exit_code) == ("stopped", 130)


def test_stop_now_kills() -> None:
    world = make_training(num_workers=2)
    world.feed(events.StopAsked(True, "test"))
    world.deliver_engine()
    assert (world.ends[0].outcome, world.ends[0].exit_code) == ("stopped", 130)


def test_scaling_out_of_bounds_is_refused_and_changes_nothing() -> None:
    world = make_training(num_workers=2, min_workers=2)
    for number, told in ((9, "to 9 workers: its maximum is 4"), (1, "to 1 worker: its minimum is 2")):
        with pytest.raises(LayoutError, match=told):
            world.membership.handle(events.ScaleAsked(number, "test"), world.now)  # type: ignore[union-attr]
    assert job_of(world).wanted == {"n/0", "n/1"}


def test_a_new_driver_adopts_without_disturbing() -> None:
    world = make_training(num_workers=3)
    number = job_of(world).current.number  # type: ignore[union-attr]
    world.crash_driver()
    world.restart_driver()
    assert job_of(world).state is JobState.ADOPTING
    world.calm(3)
    world.check_at_peace()
    assert job_of(world).current.number == number  # type: ignore[union-attr]
    assert not kinds(world, "recovered")


def test_a_worker_that_does_not_report_to_the_new_driver_is_fenced() -> None:
    world = make_training(num_workers=3)
    world.bodies[1].hung = True
    world.crash_driver()
    world.restart_driver()
    world.calm(12)
    world.check_at_peace()
    assert kinds(world, "fenced")


def test_nonsense_from_a_worker_costs_that_worker_only() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(3, "test"))
    meet(world, 2)
    world.feed(events.Heard(2, wire.Finished(view=0, num_rounds=0, trained=False)))
    note = next(record for record in kinds(world, "note") if record.level == "error")
    assert "Cannot move worker 2 from warm to finished" in (note.detail or "")
    world.calm(10)
    world.check_at_peace()


def test_an_exit_of_a_forgotten_worker_is_ignored() -> None:
    world = make_training(num_workers=2)
    world.feed(Exited(77, 0))
    world.check_at_peace()


def test_a_start_says_why() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(1, "test"))
    world.calm(3)
    world.feed(events.ScaleAsked(3, "test"))
    world.calm(3)
    world.die(0, -9)
    world.deliver_engine()
    assert [record.reason for record in kinds(world, "started")] == [
        "worker 0 starts in slot n/0: the job begins",
        "worker 1 starts in slot n/1: the job begins",
        "worker 2 starts in slot n/1: the job grows",
        "worker 3 starts in slot n/2: the job grows",
        "worker 4 starts in slot n/0: in place of worker 0, which died",
    ]


def test_scaling_to_what_is_there_changes_nothing() -> None:
    world = make_training(num_workers=2)
    world.feed(events.ScaleAsked(2, "test"))
    assert kinds(world, "scaled") == []


def make_world_with_slots(*slots: str, **changes: Any) -> World:
    spec = make_world_spec(**{"max_deaths": 5, "max_breaks": 3, "num_workers": len(slots), **changes})
    return World(spec, slots=slots)


def make_assigned(*slots: str, **changes: Any) -> World:
    world = make_world_with_slots(*slots, **changes)
    world.calm(2)
    world.check_at_peace()
    return world


def slots_in_use(world: World) -> set[str]:
    return {worker.slot for worker in job_of(world).present()}


def test_an_assigned_job_begins_in_its_slots_and_moves_to_others() -> None:
    world = make_assigned("n/3", "n/7")
    assert slots_in_use(world) == {"n/3", "n/7"}
    world.feed(events.SlotsAssigned(("n/7", "n/1", "n/4"), "the pool grew"))
    world.calm(3)
    world.check_at_peace()
    assert slots_in_use(world) == {"n/1", "n/4", "n/7"}
    assert job_of(world).members()[0].slot == "n/7"
    assert kinds(world, "scaled")[0].reason == "2 -> 3 workers: the pool grew"


def test_an_assigned_job_cannot_be_scaled_past_who_assigns() -> None:
    world = make_assigned("n/3", "n/7")
    with pytest.raises(UsageError, match="the platform decides how many slots it has"):
        world.feed(events.ScaleAsked(1, "test"))
    with pytest.raises(LayoutError, match=r"num_workers=9 is outside 1\.\.4"):
        world.feed(events.SlotsAssigned(list_slots("n", 9), "test"))


def test_the_bounds_of_an_assigned_job_may_change_while_it_trains() -> None:
    world = make_assigned("n/3", "n/7")
    world.feed(
        events.SlotsAssigned(("n/3", "n/7", "n/8", "n/9", "n/10"), "its owner asked", max_workers=6, min_workers=2)
    )
    world.calm(3)
    world.check_at_peace()
    assert len(job_of(world).members()) == 5
    with pytest.raises(LayoutError, match=r"num_workers=1 is outside 2\.\.6"):
        world.feed(events.SlotsAssigned(("n/3",), "test"))


def test_the_same_slots_once_more_change_nothing() -> None:
    world = make_assigned("n/0", "n/1")
    world.feed(events.SlotsAssigned(("n/1", "n/0"), "again"))
    assert not kinds(world, "scaled")


def test_a_slot_that_was_given_up_is_not_used_until_it_is_taken_away() -> None:
    world = make_assigned("n/0")
    world.feed(events.SlotsAssigned(("n/0", "n/1"), "grow"))
    number = max(world.bodies)
    meet(world, number, fingerprint="another")
    world.feed(events.Heard(number, wire.Failed(error="odd", traceback="", exit_code=1, mismatch=True)))
    assert job_of(world).given_up == {"n/1"}
    world.feed(events.SlotsAssigned(("n/0", "n/1"), "said again"))
    assert job_of(world).wanted == {"n/0"}
    world.feed(events.SlotsAssigned(("n/0",), "taken away"))
    world.feed(events.SlotsAssigned(("n/0", "n/1"), "given again"))
    assert job_of(world).wanted == {"n/0", "n/1"}


def give_up_a_slot(world: World) -> None:
    """Let the newest worker, which is just starting, be refused."""
    number = max(world.bodies)
    meet(world, number, fingerprint="another")
    world.feed(events.Heard(number, wire.Failed(error="odd", traceback="", exit_code=1, mismatch=True)))


def test_a_job_is_not_given_fewer_usable_slots_than_its_minimum() -> None:
    world = make_assigned("n/0", "n/1", min_workers=2)
    world.feed(events.SlotsAssigned(("n/0", "n/1", "n/2"), "grow"))
    give_up_a_slot(world)
    assert job_of(world).given_up == {"n/2"}
    told = r"the slots n/1, n/2: no worker can train in n/2, which leaves fewer than its minimum of 2\."
    with pytest.raises(LayoutError, match=told):
        world.feed(events.SlotsAssigned(("n/1", "n/2"), "others need slot 0", max_workers=3))
    assert (job_of(world).wanted, job_of(world).given_up, job_of(world).spec.max_workers) == (
        {"n/0", "n/1"},
        {"n/2"},
        4,
    )
    world.feed(events.SlotsAssigned(("n/1", "n/2", "n/3"), "others need slot 0"))
    world.calm(3)
    world.check_at_peace()
    assert slots_in_use(world) == {"n/1", "n/3"}


def test_a_leaver_that_fails_does_not_cost_its_slot() -> None:
    world = make_assigned("n/0")
    world.feed(events.SlotsAssigned(("n/0", "n/1"), "grow"))
    number = max(world.bodies)
    world.connect(world.bodies[number])
    world.deliver(world.bodies[number])
    world.feed(events.SlotsAssigned(("n/0",), "taken away"))
    world.feed(events.Heard(number, wire.Failed(error="ImportError: no", traceback="", exit_code=1, mismatch=True)))
    world.die(number, 1)
    world.calm(2)
    assert job_of(world).given_up == set()
    world.feed(events.SlotsAssigned(("n/0", "n/1"), "given again"))
    world.calm(3)
    world.check_at_peace()
    assert slots_in_use(world) == {"n/0", "n/1"}


def test_what_a_new_driver_must_know_is_journaled_even_if_there_is_nothing_to_do() -> None:
    world = make_assigned("n/0")
    world.feed(events.SlotsAssigned(("n/0", "n/1"), "grow"))
    give_up_a_slot(world)
    world.calm(3)
    assert world.snapshot is not None
    assert world.snapshot.given_up == ("n/1",)
    world.feed(events.SlotsAssigned(("n/0",), "taken away"))
    assert world.snapshot.given_up == ()
    assert world.membership is not None
    instructions = world.membership.handle(events.SlotsAssigned(("n/0",), "its owner asked", max_workers=3), world.now)
    assert isinstance(instructions[0], events.Journal), "the bounds stand beside the snapshot"


# ---------------------------------------------------------------- slots of several machines


def make_world_on(*available: str, **changes: Any) -> World:
    spec = make_world_spec(**{"max_deaths": 5, "max_breaks": 3, **changes})
    return World(spec, available=available)


def test_a_job_takes_available_slots_in_their_order_and_gives_back_the_last_ones_first() -> None:
    world = make_world_on("b/0", "b/1", "a/10", "a/2", num_workers=1)
    job = job_of(world)
    assert job.wanted == {"b/0"}
    world.feed(events.ScaleAsked(3, "test"))
    assert [job.workers[number].slot for number in (0, 1, 2)] == ["b/0", "b/1", "a/10"]
    assert world.snapshot is not None
    assert world.snapshot.wanted == ("a/10", "b/0", "b/1")
    assert world.snapshot.available == ("b/0", "b/1", "a/10", "a/2")
    world.feed(events.ScaleAsked(2, "test"))
    assert job.wanted == {"b/0", "b/1"}


def test_available_slots_may_change_while_a_job_runs() -> None:
    world = make_world_on("a/0", num_workers=1)
    told = r"to 2 workers: its only slots are a/0\. Ask for 1 worker or fewer\."
    with pytest.raises(UsageError, match=told):
        world.feed(events.ScaleAsked(2, "test"))
    job_of(world).available = ("a/0", "b/0")
    world.feed(events.ScaleAsked(2, "test"))
    assert job_of(world).wanted == {"a/0", "b/0"}


def test_a_job_does_not_start_with_fewer_slots_than_its_minimum() -> None:
    with pytest.raises(UsageError, match="its only slots are a/0, fewer than its minimum of 2"):
        make_world_on("a/0", num_workers=2, min_workers=2)


def test_an_adopted_job_keeps_its_available_slots() -> None:
    world = make_world_on("b/0", "a/0", num_workers=1)
    world.calm(2)
    world.crash_driver()
    world.restart_driver()
    world.calm(2)
    world.feed(events.ScaleAsked(2, "test"))
    assert job_of(world).wanted == {"b/0", "a/0"}


# ---------------------------------------------------------------- workers that cannot help


def test_a_job_keeps_no_more_workers_than_its_step_has_micro_batches() -> None:
    world = make_world(num_workers=4)
    world.num_micro_batches = 2
    meet(world, 1, num_micro_batches=2)
    # Those that have not even started are the ones that go, and no worker waits for them.
    meet(world, 0, num_micro_batches=2)
    assert job_of(world).current.workers == (0, 1)  # type: ignore[union-attr]
    assert kinds(world, "scaled")[0].reason == (
        "4 -> 2 workers: its step has only 2 micro-batches, so more cannot help"
    )
    world.calm(10)
    world.check_at_peace()
    assert slots_in_use(world) == {"n/0", "n/1"}
    with pytest.raises(UsageError, match=r"its step has only 2 micro-batches, so more than 2 workers cannot help"):
        world.feed(events.ScaleAsked(3, "test"))
    world.feed(events.ScaleAsked(1, "test"))
    world.feed(events.ScaleAsked(2, "test"))
    world.calm(10)
    assert len(job_of(world).members()) == 2


@pytest.mark.parametrize("said", [0, -3])
def test_what_is_no_number_of_micro_batches_is_not_believed(said: int) -> None:
    world = make_world(num_workers=2)
    meet(world, 0, num_micro_batches=said)
    assert job_of(world).num_micro_batches is None
    assert len(job_of(world).wanted) == 2


def test_a_minimum_above_the_micro_batches_is_lowered_with_a_warning() -> None:
    world = make_world(min_workers=3)
    world.num_micro_batches = 1
    world.calm(10)
    world.check_at_peace()
    assert len(job_of(world).members()) == 1
    (told,) = (record for record in kinds(world, "note") if record.level == "warning")
    assert told.reason.startswith("its minimum is 3 workers, but its step has only 1 micro-batch: it trains with 1.")


def test_a_slot_of_the_platform_that_cannot_help_is_reported_and_not_used() -> None:
    world = make_world_with_slots("n/3", "n/5", "n/7", min_workers=3)
    meet(world, 2, num_micro_batches=2)
    assert (job_of(world).wanted, job_of(world).surplus) == ({"n/7", "n/3"}, {"n/5"})
    # The platform has not yet decided again, and says again what it said.
    world.feed(events.SlotsAssigned(("n/3", "n/5", "n/7"), "again", min_workers=3))
    assert (job_of(world).wanted, job_of(world).surplus) == ({"n/7", "n/3"}, {"n/5"})
    world.num_micro_batches = 2
    world.feed(events.SlotsAssigned(("n/3", "n/7"), "its step has only 2 micro-batches", min_workers=2))
    world.calm(10)
    world.check_at_peace()
    assert job_of(world).surplus == set()
    assert slots_in_use(world) == {"n/3", "n/7"}


def test_a_slot_that_is_given_up_is_replaced_by_one_that_could_not_help_before() -> None:
    world = make_world_with_slots("n/3", "n/5", "n/7", min_workers=3)
    meet(world, 2, num_micro_batches=2)
    assert (job_of(world).wanted, job_of(world).surplus) == ({"n/7", "n/3"}, {"n/5"})
    world.num_micro_batches = 2
    world.feed(events.Heard(0, wire.Failed(error="odd", traceback="", exit_code=1, mismatch=True)))
    assert (job_of(world).wanted, job_of(world).surplus, job_of(world).given_up) == ({"n/7", "n/5"}, set(), {"n/3"})
    assert "slot n/3 is given up, and slot n/5 is used in its place" in kinds(world, "refused")[0].reason
    assert not kinds(world, "failed")
    assert world.snapshot is not None and (world.snapshot.wanted, world.snapshot.surplus) == (("n/5", "n/7"), ())


def test_a_job_below_its_minimum_uses_another_slot_of_its_own_before_it_fails() -> None:
    world = make_world(num_workers=2, min_workers=2, max_workers=3)
    for number, slot in ((1, "n/1"), (2, "n/2")):
        meet(world, number, fingerprint="another")
        assert job_of(world).workers[number].slot == slot
        world.feed(events.Heard(number, wire.Failed(error="odd", traceback="", exit_code=1, mismatch=True)))
    assert [record.reason.rpartition("; ")[2] for record in kinds(world, "refused")] == [
        "slot n/1 is given up, and slot n/2 is used in its place",
        "slot n/2 is given up",
    ]
    assert "fewer than its minimum of 2" in kinds(world, "failed")[0].reason, "there is no other slot left"


def test_a_new_driver_knows_how_many_workers_can_help() -> None:
    world = make_world(num_workers=3)
    world.num_micro_batches = 2
    world.calm(10)
    world.crash_driver()
    world.restart_driver()
    world.calm(10)
    world.check_at_peace()
    assert job_of(world).num_micro_batches == 2
    assert len(job_of(world).members()) == 2


def test_a_job_whose_workers_name_no_limit_keeps_all_of_them() -> None:
    world = make_world(num_workers=4)
    world.calm(10)
    assert len(job_of(world).members()) == 4


def test_workers_that_start_over_may_have_other_steps() -> None:
    world = make_world(num_workers=4)
    world.num_micro_batches = 2
    world.calm(10)
    world.num_micro_batches = 3
    for number in list(world.bodies):
        world.die(number, -9)
    world.calm(15)
    world.check_at_peace()
    assert job_of(world).num_micro_batches == 3
    world.feed(events.ScaleAsked(3, "test"))
