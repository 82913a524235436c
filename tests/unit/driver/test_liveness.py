"""A worker is given up for what its process does, and not for its silence alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.driver.test_membership import job_of, kinds, make_training, make_world
from tests.unit.driver.world import TICK_S, World

from legato.core import wire
from legato.core.lifecycle import JobState, WorkerPhase
from legato.driver import events
from legato.driver.liveness import MIN_SHARE, Evidence
from legato.system.processes import ProcessState, Vital

WINDOW_S = 5.0


def hang(world: World, process: ProcessState, *numbers: int) -> None:
    for number in numbers:
        world.bodies[number].hung, world.bodies[number].hangs_as = True, process


def be_stuck(world: World, *numbers: int, waiting: Sequence[int] = ()) -> None:
    """Let programs stop making progress while their heartbeats come."""
    for number in numbers:
        world.bodies[number].doing = "stuck"
    for number in waiting:
        world.bodies[number].is_waiting = True


# ---------------------------------------------------------------- the evidence of one process


@given(st.lists(st.floats(min_value=0.1, max_value=1.0), min_size=60, max_size=200), st.floats(min_value=0.05))
def test_a_process_that_computes_is_busy_at_every_moment(pauses: list[float], share: float) -> None:
    evidence, now, cpu_s = Evidence(), 100.0, 7.0
    for pause in pauses:
        now, cpu_s = now + pause, cpu_s + pause * min(share, 64.0)
        evidence.take(Vital("waiting", round(cpu_s, 2)), now, WINDOW_S)
        assert now - 100.0 < 2 * WINDOW_S or now - evidence.busy_at <= 2 * WINDOW_S


@given(st.lists(st.floats(min_value=0.1, max_value=1.0), min_size=60, max_size=200))
def test_a_starved_process_is_busy_because_it_wants_to_run(pauses: list[float]) -> None:
    evidence, now = Evidence(), 100.0
    for pause in pauses:
        now += pause
        evidence.take(Vital("running", 7.0), now, WINDOW_S)
        assert now - 100.0 < 2 * WINDOW_S or now - evidence.busy_at <= 2 * WINDOW_S


@given(st.lists(st.tuples(st.floats(min_value=0.1, max_value=1.0), st.integers(0, 99)), min_size=60, max_size=200))
def test_a_process_that_only_wakes_for_its_heartbeats_is_never_busy(samples: list[tuple[float, int]]) -> None:
    evidence, now = Evidence(), 100.0
    for index, (pause, _) in enumerate(samples):
        now += pause
        # It is found running now and then, and uses a fifth of what counts.
        state: ProcessState = "running" if index % 10 == 0 else "waiting"
        evidence.take(Vital(state, round(MIN_SHARE / 5 * (now - 100.0), 2)), now, WINDOW_S)
    assert evidence.busy_at < 0


def test_a_few_samples_in_which_it_runs_do_not_make_a_process_busy() -> None:
    evidence = Evidence()
    for index in range(400):
        # Once in each window, as a slow driver may take them.
        evidence.take(Vital("running" if index % 4 == 3 else "waiting", 7.0), 100.0 + index * WINDOW_S, WINDOW_S)
    assert evidence.busy_at < 0


def test_samples_far_apart_say_nothing_about_the_time_between_them() -> None:
    evidence = Evidence()
    evidence.take(Vital("waiting", 1.0), 100.0, WINDOW_S)
    evidence.take(Vital("running", 99.0), 200.0, WINDOW_S)
    assert evidence.busy_at < 0


# ---------------------------------------------------------------- what the driver does about it


def test_a_worker_that_computes_in_silence_is_never_fenced_and_its_peers_wait() -> None:
    world = make_training(num_workers=2)
    hang(world, "running", 1)
    world.calm(2000)
    assert not kinds(world, "fenced") and not kinds(world, "broken")
    (told,) = [record.reason for record in kinds(world, "note")]
    assert "worker 1 is silent for 5.0 s, but its process computes, so Legato does not replace it" in told
    world.bodies[1].hung = False
    world.check_at_peace()
    assert "worker 1 answers again after 2000" in kinds(world, "note")[-1].reason


@pytest.mark.parametrize(
    ("process", "limit_s", "after_s"),
    [("stopped", 5.0, 1.0), ("stopped", 60.0, 12.0), ("stopped", 1.0, 0.5), ("gone", 5.0, 5.0)],
)
def test_a_worker_that_is_stopped_is_fenced_after_a_fifth_of_the_limit(
    process: ProcessState, limit_s: float, after_s: float
) -> None:
    world = make_training(num_workers=2, heartbeat_limit_s=limit_s)
    hang(world, process, 1)
    world.calm(after_s - TICK_S)
    assert not kinds(world, "fenced")
    world.calm(3 * TICK_S)
    (fenced,) = kinds(world, "fenced")
    assert f"worker 1 is silent for {after_s:.1f} s: its process is {process}" in fenced.reason
    assert not kinds(world, "note")


def test_a_worker_that_is_found_stopped_now_and_then_is_not_fenced() -> None:
    world = make_training(num_workers=2)
    hang(world, "stopped", 1)
    for _ in range(40):
        world.bodies[1].hangs_as = "stopped"
        world.calm(TICK_S)
        world.bodies[1].hangs_as = "waiting"
        world.calm(TICK_S)
    assert not kinds(world, "fenced")


def test_a_driver_that_was_paused_itself_counts_no_stop_from_before() -> None:
    world = make_training(num_workers=2)
    hang(world, "stopped", 1)
    world.calm(0.75)
    world.now += 100
    world.calm(TICK_S)
    assert not kinds(world, "fenced")
    world.calm(1)
    assert len(kinds(world, "fenced")) == 1


def test_a_worker_that_is_stopped_after_it_was_busy_is_fenced_as_long_after_it_was_busy() -> None:
    world = make_training(num_workers=2)
    hang(world, "running", 1)
    world.calm(60)
    hang(world, "stopped", 1)
    world.calm(0.5)
    assert not kinds(world, "fenced")
    world.calm(1)
    assert len(kinds(world, "fenced")) == 1
    world.calm(3)
    world.check_at_peace()


def test_a_silent_worker_that_only_waits_is_fenced_after_the_limit_for_that() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    hang(world, "waiting", 1)
    world.calm(58)
    assert not kinds(world, "fenced")
    assert "waits for something; it is given up if it makes no progress within 60 s" in kinds(world, "note")[0].reason
    world.calm(4)
    assert "uses no CPU: it hangs" in kinds(world, "fenced")[0].reason
    world.check_at_peace()


def test_without_evidence_silence_alone_decides() -> None:
    world = make_training(num_workers=2)
    hang(world, "running", 1)
    world.examine = dict  # type: ignore[method-assign]
    world.check_fence = lambda record: None  # type: ignore[method-assign]
    world.calm(5 + 2 * TICK_S)
    assert kinds(world, "fenced")[0].reason == "worker 1 is silent for 5.0 s; it is killed"


def test_a_worker_whose_program_hangs_while_its_heartbeats_come_is_fenced() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    be_stuck(world, 1, waiting=[0])
    world.calm(58)
    assert not kinds(world, "fenced")
    world.calm(8)
    (fenced,) = kinds(world, "fenced")
    assert fenced.worker == 1, "not the one that waits for it"
    assert "uses no CPU and waits for no other worker: its program hangs" in fenced.reason
    world.bodies[0].is_waiting = False
    world.check_at_peace()


def test_the_only_worker_of_a_job_may_sleep_for_longer_than_the_limit_and_its_user_is_warned_once() -> None:
    world = make_training(num_workers=1, collective_limit_s=60.0)
    be_stuck(world, 0)
    world.calm(59)
    assert not kinds(world, "note")
    world.calm(3600)
    assert not kinds(world, "fenced") and not kinds(world, "broken")
    (told,) = kinds(world, "note")
    assert told.level == "warning"
    assert "worker 0 has made no progress for 6" in told.reason and "--collective-limit" in told.reason
    world.bodies[0].doing = "training"
    world.check_at_peace()
    be_stuck(world, 0)
    world.calm(70)
    assert len(kinds(world, "note")) == 2, "it sleeps again, which is news"
    assert not kinds(world, "fenced")


def test_the_only_worker_of_a_view_is_fenced_when_it_keeps_one_waiting_that_is_ready_to_join() -> None:
    world = make_training(num_workers=1, max_workers=2, collective_limit_s=60.0)
    be_stuck(world, 0)
    world.feed(events.ScaleAsked(2, "test"))
    world.calm(80)
    assert 0 in {record.worker for record in kinds(world, "fenced")}
    world.check_at_peace()


def test_a_worker_that_sleeps_while_another_waits_for_it_is_fenced_and_the_limit_is_named() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    be_stuck(world, 1, waiting=[0])
    world.calm(70)
    (fenced,) = kinds(world, "fenced")
    assert fenced.worker == 1
    assert "raise the job's collective_limit_s (--collective-limit)" in fenced.reason


def test_a_worker_that_hangs_is_fenced_although_it_is_found_running_now_and_then() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    be_stuck(world, 1, waiting=[0])
    examine, count = world.examine, itertools.count()
    world.examine = lambda: {  # type: ignore[method-assign]
        number: vital._replace(state="running" if next(count) % 5 == 4 else "waiting")
        for number, vital in examine().items()
    }
    world.calm(80)
    assert [record.worker for record in kinds(world, "fenced")] == [1]


def test_all_workers_that_hang_are_fenced_and_the_job_begins_again_from_its_checkpoint() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    be_stuck(world, 0, 1)
    world.calm(75)
    assert {record.worker for record in kinds(world, "fenced")} == {0, 1}
    world.check_at_peace()


def test_a_worker_that_computes_while_its_heartbeats_come_is_not_replaced() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    be_stuck(world, 1, waiting=[0])
    for _ in range(100):
        world.calm(1)
        world.bodies[1].cpu_s += 0.5
    assert not kinds(world, "fenced") and not kinds(world, "broken")


def test_a_worker_of_an_earlier_release_is_not_replaced_while_another_one_computes() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    world.bodies[0].is_old = True
    be_stuck(world, 0, 1)
    for _ in range(300):
        world.calm(1)
        world.bodies[1].cpu_s += 0.5
    assert not kinds(world, "fenced") and not kinds(world, "broken"), "it may wait for the one that computes"


def test_a_worker_of_an_earlier_release_is_fenced_when_nothing_has_happened_for_twice_the_limit() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    world.bodies[0].is_old = True
    be_stuck(world, 0, 1, waiting=[1])
    world.calm(118)
    assert not kinds(world, "fenced") and not kinds(world, "broken")
    world.calm(12)
    (fenced,) = kinds(world, "fenced")
    assert fenced.worker == 0
    assert "It runs an earlier release of Legato, which does not report whether it waits for others" in fenced.reason
    world.bodies[1].is_waiting = False
    world.check_at_peace()


def test_a_heartbeat_of_an_earlier_release_does_not_say_whether_its_worker_waits() -> None:
    old = msgspec.msgpack.encode({"type": "Heartbeat", "view": 1, "num_rounds": 3, "num_metrics": 0})
    assert wire.decode_worker_message(old) == wire.Heartbeat(view=1, num_rounds=3, is_waiting=None)


def test_workers_that_all_wait_for_one_another_are_connected_again() -> None:
    world = make_training(num_workers=2, collective_limit_s=60.0)
    be_stuck(world, 0, 1, waiting=[0, 1])
    world.calm(62)
    assert "waited for one another for 60 s: a deadlock" in kinds(world, "broken")[0].reason
    world.calm(2)
    assert "although no worker died: the same workers try again" in kinds(world, "recovered")[0].reason
    assert not kinds(world, "fenced")


def join_a_stuck_one(world: World, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a third worker get stuck in the view that it joins, and the others wait for it there; returns its number."""
    compute = world.compute

    def be_stuck_first() -> None:
        if world.bodies[2].doing == "settling":
            world.bodies[2].doing = "stuck"
        compute()

    world.feed(events.ScaleAsked(num_workers=3, reason="the test"))
    world.deliver_engine()
    with monkeypatch.context() as patch:
        patch.setattr(world, "compute", be_stuck_first)
        world.calm(2)
    assert [body.doing for body in world.bodies.values()] == ["settling", "settling", "stuck"]
    world.bodies[0].is_waiting = world.bodies[1].is_waiting = True
    return 2


def test_workers_that_wait_for_one_another_as_they_enter_a_view_are_connected_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_training(num_workers=2, max_workers=3, collective_limit_s=60.0)
    world.bodies[join_a_stuck_one(world, monkeypatch)].is_waiting = True
    world.calm(64)
    assert "waited for one another for 60 s: a deadlock" in kinds(world, "broken")[0].reason
    assert not kinds(world, "fenced")
    for body in world.bodies.values():
        body.is_waiting = False
    world.calm(2)
    world.check_at_peace()


def test_a_joiner_whose_program_hangs_as_the_others_wait_for_it_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_training(num_workers=2, max_workers=3, collective_limit_s=60.0)
    joiner = join_a_stuck_one(world, monkeypatch)
    world.calm(75)
    assert [record.worker for record in kinds(world, "fenced")] == [joiner]


def test_a_busy_worker_does_not_use_up_the_breaks_of_a_recovery() -> None:
    world = make_training(num_workers=3)
    hang(world, "running", 1)
    world.calm(6)
    world.die(2, -9)
    world.calm(1)
    view = job_of(world).current
    assert view is not None and set(view.workers) == {0, 1}
    # The other one cannot connect without it, and says so.
    world.feed(events.Heard(0, wire.Unbuilt(view=1, failed=view.number, reason="worker 1 did not come")))
    world.calm(200)
    assert job_of(world).num_breaks == 0
    assert job_of(world).state is JobState.TRAINING
    world.bodies[1].hung = False
    world.calm(3)
    world.check_at_peace()


def test_a_busy_worker_outlasts_a_change_of_driver() -> None:
    world = make_training(num_workers=2)
    hang(world, "running", 1)
    world.crash_driver()
    world.restart_driver()
    world.calm(100)
    assert not kinds(world, "fenced")
    world.bodies[1].hung = False
    world.calm(3)
    world.check_at_peace()


@pytest.mark.parametrize(("process", "is_fenced"), [("running", False), ("waiting", True)])
def test_a_start_may_take_longer_while_it_computes(process: ProcessState, is_fenced: bool) -> None:
    world = make_world(num_workers=1, start_limit_s=20.0)
    world.deliver_engine()
    hang(world, process, 0)
    world.calm(40)
    assert bool(kinds(world, "fenced")) is is_fenced
    assert is_fenced or job_of(world).workers[0].phase is WorkerPhase.STARTING


def test_healthy_workers_are_not_examined() -> None:
    world = make_training(num_workers=2)
    asked: list[list[int]] = []
    assert world.membership is not None
    suspects = world.membership.suspects
    world.membership.suspects = lambda now: asked.append(suspects(now)) or asked[-1]  # type: ignore[method-assign,func-returns-value]
    world.calm(60)
    assert not any(asked)


@pytest.mark.parametrize(("process", "num_fenced"), [("running", 0), ("stopped", 1)])
def test_workers_that_are_in_no_view_are_judged_alike(process: ProcessState, num_fenced: int) -> None:
    # Those of a gang of torch.distributed or of TensorFlow stay so for their whole life.
    world = make_world(num_workers=2, max_workers=2)
    world.deliver_engine()
    for number in (0, 1):
        world.connect(world.bodies[number])
        world.deliver(world.bodies[number])
        world.bodies[number].inbox.clear()
    assert {worker.phase for worker in job_of(world).present()} == {WorkerPhase.JOINING}
    hang(world, process, 1)
    for _ in range(100):
        world.tick()
        world.deliver(world.bodies[0])
    assert len(kinds(world, "fenced")) == num_fenced
