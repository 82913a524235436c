"""Whatever happens to a job, in whatever order: the rules of membership hold, and peace brings training back."""

from __future__ import annotations

import contextlib

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.tiers import examples
from tests.unit.driver.world import Body, World, make_world_spec

from legato.core import wire
from legato.core.errors import UsageError
from legato.core.lifecycle import WorkerPhase
from legato.driver import events
from legato.system.processes import ProcessState

picks = st.integers(min_value=0, max_value=7)


class Disturbances(RuleBasedStateMachine):
    """Random joins, deaths, hangs, scales, lost connections, stale messages and driver restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(make_world_spec(min_workers=1))

    def pick(self, index: int) -> Body | None:
        bodies = list(self.world.bodies.values())
        return bodies[index % len(bodies)] if bodies else None

    @rule(seconds=st.sampled_from([0.5, 1, 3, 12]))
    def calm(self, seconds: float) -> None:
        self.world.calm(seconds)

    @rule(num_ticks=st.integers(min_value=1, max_value=8))
    def time_passes_in_silence(self, num_ticks: int) -> None:
        for _ in range(num_ticks):
            self.world.tick()

    @rule()
    def driver_was_suspended(self) -> None:
        self.world.now += 20
        self.world.tick()

    @rule(index=picks)
    def connects(self, index: int) -> None:
        if body := self.pick(index):
            self.world.connect(body)

    @rule(index=picks, limit=st.integers(min_value=1, max_value=5))
    def driver_reads(self, index: int, limit: int) -> None:
        if body := self.pick(index):
            self.world.deliver(body, limit)

    @rule()
    def engine_reports(self) -> None:
        self.world.deliver_engine()

    @rule(index=picks)
    def worker_reads(self, index: int) -> None:
        if body := self.pick(index):
            self.world.read(body)

    @rule()
    def workers_compute(self) -> None:
        self.world.compute()

    @rule(index=picks, code=st.sampled_from([-9, -11, 0, 137]))
    def dies(self, index: int, code: int) -> None:
        if body := self.pick(index):
            self.world.die(body.number, code)

    @rule(index=picks, process=st.sampled_from(["stopped", "running", "waiting"]))
    def hangs(self, index: int, process: ProcessState) -> None:
        body = self.pick(index)
        if body is not None and not body.hung:
            body.hung, body.hangs_as = True, process

    @rule(index=picks)
    def wakes(self, index: int) -> None:
        if body := self.pick(index):
            body.hung = False

    @rule(index=picks)
    def cannot_connect_the_next_view(self, index: int) -> None:
        if body := self.pick(index):
            body.unlucky = True

    @rule()
    def store_dies(self) -> None:
        self.world.move_store()

    @rule(index=picks, losing=st.booleans())
    def loses_connection(self, index: int, losing: bool) -> None:
        body = self.pick(index)
        if body is not None and body.connected:
            self.world.disconnect(body, losing=losing)
            self.world.feed(events.Lost(body.number))

    @rule(index=picks)
    def network_breaks(self, index: int) -> None:
        body = self.pick(index)
        if body is not None and body.at is not None and body.doing == "training" and not body.hung:
            self.world.break_view(body, body.at)

    @rule(index=picks, back=st.integers(min_value=1, max_value=3))
    def speaks_of_an_old_view(self, index: int, back: int) -> None:
        body = self.pick(index)
        if body is not None and body.number_at > back and body.has_state:
            stale = wire.Broken(view=body.number_at - back, num_rounds=0, reason="stale")
            self.world.say(body, stale)

    @rule(num_workers=st.integers(min_value=0, max_value=5))
    def scales(self, num_workers: int) -> None:
        try:
            self.world.feed(events.ScaleAsked(num_workers, "test"))
        except UsageError:
            assert not 1 <= num_workers <= 4

    @precondition(lambda self: self.world.membership is not None)
    @rule()
    def driver_crashes(self) -> None:
        self.world.crash_driver()

    @precondition(lambda self: self.world.membership is None)
    @rule()
    def driver_comes_back(self) -> None:
        self.world.restart_driver()

    @invariant()
    def slots_have_one_worker_each(self) -> None:
        slots = [body.slot for body in self.world.bodies.values()]
        assert len(set(slots)) == len(slots)

    @invariant()
    def the_job_goes_on(self) -> None:
        assert self.world.ends == []

    @invariant()
    def the_next_deadline_lies_ahead(self) -> None:
        membership = self.world.membership
        deadline = membership.next_deadline() if membership else None
        assert deadline is None or deadline > membership.job.now  # type: ignore[union-attr]

    def teardown(self) -> None:
        world = self.world
        for body in world.bodies.values():
            # One whose process is healthy comes back in the end.
            body.hung = body.hung and body.hangs_as == "stopped"
        if world.membership is None:
            world.restart_driver()
        world.calm(60)
        world.check_at_peace()
        membership = world.membership
        assert membership is not None
        for worker in membership.job.members():
            assert worker.phase is WorkerPhase.MEMBER
            body = world.bodies[worker.number]
            world.say(body, wire.Finished(view=body.number_at, num_rounds=body.num_rounds, trained=True))
        for number in list(world.bodies):
            world.die(number, 0)
        world.calm(5)
        assert [end.outcome for end in world.ends] == ["succeeded"]


class DisturbancesWithMinimum(Disturbances):
    """The same with a minimum, so that losses make the job hold."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(make_world_spec(min_workers=3))

    @rule(num_workers=st.integers(min_value=3, max_value=4))
    def scales(self, num_workers: int) -> None:
        self.world.feed(events.ScaleAsked(num_workers, "test"))


class DisturbancesWithFewMicroBatches(Disturbances):
    """The same with a step that three workers can share: there are never more for long."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(make_world_spec(min_workers=1, num_workers=4))
        self.world.num_micro_batches = 3

    @rule(num_workers=st.integers(min_value=1, max_value=4))
    def scales(self, num_workers: int) -> None:
        with contextlib.suppress(UsageError):
            self.world.feed(events.ScaleAsked(num_workers, "test"))

    @invariant()
    def no_worker_too_many_is_wanted(self) -> None:
        membership = self.world.membership
        if membership is not None and membership.job.num_micro_batches is not None:
            assert len(membership.job.wanted) <= 3


_SETTINGS = settings(
    max_examples=examples(15), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestDisturbances = Disturbances.TestCase
TestDisturbances.settings = _SETTINGS
TestDisturbancesWithFewMicroBatches = DisturbancesWithFewMicroBatches.TestCase
TestDisturbancesWithFewMicroBatches.settings = _SETTINGS
TestDisturbancesWithMinimum = DisturbancesWithMinimum.TestCase
TestDisturbancesWithMinimum.settings = _SETTINGS
