"""Whatever users and loops do, in whatever order: the store stays true. A state machine with a model beside it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from tests.contract.store.conftest import NewUrl, open_quickly
from tests.contract.store.making import ADMIN, ANN, NOW, change, make_job, make_node, make_people
from tests.tiers import examples

from legato.control.records import Job, Lease
from legato.control.stages import ENDED, HOLDING, MOVES, Stage
from legato.control.store import Store
from legato.core.errors import Conflict, FencedOut, SlotTaken, TransitionError

SLOTS = [f"node/cpu:{number}" for number in range(4)]
picks = st.integers(0, 5)
some_slots = st.sets(st.sampled_from(SLOTS), max_size=3)


class Machine(RuleBasedStateMachine):
    """Two loops that take the lease from one another, users, and a model of who has which slot."""

    new_url: NewUrl

    def __init__(self) -> None:
        super().__init__()
        self.store: Store = open_quickly(self.new_url())
        make_people(self.store)
        self.now = NOW
        self.leases: dict[str, Lease] = {}
        self.jobs: list[str] = []
        self.owners: dict[str, tuple[str, int]] = {}
        self.stages: dict[str, Stage] = {}
        self.usable: set[str] = set()
        self.last_fence = 0

    def teardown(self) -> None:
        self.store.close()

    def pick(self, index: int) -> Job | None:
        return self.store.jobs.get(self.jobs[index % len(self.jobs)]) if self.jobs else None

    @rule()
    def submits(self) -> None:
        if len(self.jobs) < 5:
            job = self.store.jobs.submit(make_job(), ANN, self.now).job
            assert job.id > max(self.jobs, default="")
            self.jobs.append(job.id)
            self.stages[job.id] = Stage.QUEUED

    @rule(seconds=st.sampled_from([0, 1, 20]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds

    @rule(name=st.sampled_from(["one", "two"]))
    def takes_lease(self, name: str) -> None:
        lease = self.store.loop.take_lease(name, self.now, 10)
        if lease is not None:
            assert lease.fence >= self.last_fence
            self.last_fence = lease.fence
            self.leases[name] = lease

    @rule(index=picks, verb=st.sampled_from(["pause", "resume", "stop"]))
    def user_asks(self, index: int, verb: str) -> None:
        job = self.pick(index)
        if job is None:
            return
        try:
            after = getattr(self.store.jobs, verb)(job.id, ADMIN, self.now)
        except Conflict:
            assert self.store.jobs.get(job.id) == job
        else:
            assert after == job or after.stage in MOVES[job.stage]  # a stopping job may be asked to stop again
            self.stages[job.id] = after.stage

    @rule(name=st.sampled_from(["one", "two"]), usable=some_slots)
    def declares(self, name: str, usable: set[str]) -> None:
        if self.write(name, lambda fence: self.store.pool.declare([make_node(sorted(usable))], fence, self.now)):
            self.usable = usable

    @rule(
        name=st.sampled_from(["one", "two"]),
        index=picks,
        stage=st.sampled_from([None, *Stage]),
        granted=some_slots,
        released=some_slots,
        closed=some_slots,
        stale=st.booleans(),
    )
    def loop_writes(
        self,
        name: str,
        index: int,
        stage: Stage | None,
        granted: set[str],
        released: set[str],
        closed: set[str],
        stale: bool,
    ) -> None:
        job = self.pick(index)
        if job is None:
            return
        if (stage or job.stage) not in HOLDING:
            granted = set()
        sets: dict[str, Any] = {"granted": granted, "released": released, "closed": closed}
        wanted = change(job, stage=stage, **{verb: tuple(sorted(slots)) for verb, slots in sets.items()})
        if stale:
            wanted = change(job, stage=stage, granted=tuple(sorted(granted)))
            # Another server moves the job between the loop's reading and its writing.
            self.user_asks(index, "stop")
        outcome: list[tuple[str, ...]] = []
        before = self.store.jobs.get(job.id)

        def write(fence: int) -> None:
            outcome.append(self.store.loop.write([wanted], fence, self.now).stale)

        is_old = before.stage is not job.stage
        is_legal = stage is None or stage is job.stage or stage in MOVES[job.stage]
        attempt = job.attempt + (stage is Stage.STARTING and job.stage is not Stage.STARTING)
        owners = self.owners
        if not stale:
            owners = {
                slot: owner for slot, owner in owners.items() if slot not in closed or owner != (job.id, job.attempt)
            }
        is_free = all(
            owners.get(slot) == (job.id, attempt) or (slot in self.usable and slot not in owners) for slot in granted
        )
        try:
            written = self.write(name, write)
        except TransitionError:
            assert not is_legal and not is_old
        except SlotTaken:
            assert not is_free and is_legal and not is_old
        else:
            if not written:
                return
            if is_old:
                assert outcome == [(job.id,)]
                return
            assert is_legal and is_free and outcome == [()]
            self.owners = owners | dict.fromkeys(granted, (job.id, attempt))
            self.stages[job.id] = stage or job.stage

    def write(self, name: str, function: Any) -> bool:
        """Write as one of the loops; returns whether it was written. Refused is who has lost the lease."""
        lease = self.leases.get(name, Lease(owner=name, expires_at=0, fence=0))
        try:
            function(lease.fence)
        except FencedOut:
            assert lease.fence != self.last_fence or self.last_fence == 0
            return False
        assert lease.fence == self.last_fence
        return True

    @invariant()
    def slots_have_one_owner_and_it_is_the_right_one(self) -> None:
        rows = self.store.pool.list_open()
        assert len({row.slot for row in rows}) == len(rows)
        assert {row.slot: (row.job, row.attempt) for row in rows} == self.owners

    @invariant()
    def stages_are_those_of_the_model(self) -> None:
        assert {job.id: job.stage for job in self.store.jobs.list().items} == self.stages

    @precondition(lambda self: self.jobs)
    @invariant()
    def attempts_tell_of_each_life(self) -> None:
        for job in self.store.jobs.list().items:
            attempts = self.store.jobs.read_attempts(job.id)
            assert [attempt.attempt for attempt in attempts] == list(range(1, job.attempt + 1))
            assert all(attempt.ended_at is not None for attempt in attempts[:-1])
            if attempts:
                assert (attempts[-1].ended_at is None) == (job.stage in HOLDING)
            assert (job.ended_at is not None) == (job.stage in ENDED)

    @invariant()
    def events_have_no_gaps(self) -> None:
        events = self.store.events.read_after(0, limit=10_000)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


@pytest.mark.parametrize("new_url", ["sqlite"], indirect=True)
@pytest.mark.hypothesis
def test_the_store_stays_true_on_sqlite(new_url: NewUrl) -> None:
    run(new_url, max_examples=examples(8))


@pytest.mark.parametrize("new_url", ["postgresql"], indirect=True)
@pytest.mark.hypothesis
def test_the_store_stays_true_on_postgresql(new_url: NewUrl) -> None:
    run(new_url, max_examples=examples(4))


def run(new_url: NewUrl, max_examples: int) -> None:
    made = type("MachineOfThis", (Machine,), {"new_url": staticmethod(new_url)})
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    run_state_machine_as_test(
        made,
        settings=settings(max_examples=max_examples, stateful_step_count=30, deadline=None, suppress_health_check=slow),
    )
