"""A machine that cannot run a job is left out for that job, until it may have been repaired."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.unit.control.loop.test_several_gpus import make_job

from legato.control.drivers.drivers import DriverReport, DriverState
from legato.control.loop.deciding import make_snapshot
from legato.control.loop.left_out import LeftOut
from legato.control.loop.loop_state import Memory, RoundFacts
from legato.control.loop.rounds import learn
from legato.control.records import Allocation, Facts, Job, JobChange, Slot
from legato.control.stages import Stage
from legato.driver.ending import EXIT_NOWHERE
from legato.driver.journal import Outcome

WHY = "it has no data directory '/data'"


class Pool:
    """Machines a, b and c with one slot each, one job, and what the loop remembers of it."""

    def __init__(self, stage: Stage = Stage.RUNNING, **changes: Any) -> None:
        values = {"gpus_per_worker": 1, "max_workers": 3, "max_retries": 0, **changes}
        self.job = make_job(stage, 1, **values)
        self.memories: dict[str, Memory] = {}
        self.held = ["a/0", "b/0"]
        self.unusable: set[str] = set()

    def facts(self) -> RoundFacts:
        slots = tuple(
            Slot(
                id=f"{node}/0",
                node=node,
                device="cpu",
                unusable_since=1.0 if node in self.unusable else None,
                unusable_reason="its agent does not answer" if node in self.unusable else None,
            )
            for node in "abc"
        )
        held = tuple(
            Allocation(slot=slot, job=self.job.id, attempt=1, since=0.0, release_asked_at=None, until=None, worker=None)
            for slot in self.held
        )
        return RoundFacts(Facts(jobs=(self.job,), queues=(), slots=slots, allocations=held, nodes=()))

    def learn(self, report: DriverReport | None = None) -> JobChange | None:
        reports = {} if report is None else {self.job.id: report}
        return next(iter(learn(self.facts(), reports, self.memories, 10.0)), None)

    def refusals(self) -> dict[str, str]:
        queued: Job = msgspec.structs.replace(self.job, stage=Stage.RUNNING)
        self.job = queued
        (job,) = make_snapshot(self.facts(), {}, self.memories, {}, 10.0, LeftOut()).jobs
        return job.refusals


def report(*given_up: str, refusals: dict[str, str] | None = None) -> DriverReport:
    status: dict[str, Any] = dict.fromkeys(("step", "epoch", "loss", "samples_per_s"))
    return DriverReport(
        attempt=1,
        state=DriverState.RUNNING,
        assigned=frozenset({"a/0", "b/0"}),
        in_use=frozenset({"a/0"}),
        given_up=frozenset(given_up),
        refusals=refusals or {},
        status={**status, "num_workers": 1, "min_workers": 1, "max_workers": 3},
    )


def test_a_machine_that_refuses_a_job_gives_its_slot_back_and_others_can_replace_it() -> None:
    pool = Pool()
    change = pool.learn(report("b/0", refusals={"b": WHY}))
    assert change is not None and change.released == ("b/0",)
    assert change.reason == f"node b has refused it: {WHY}"
    assert pool.refusals() == {"b": WHY}
    assert pool.memories["j-1"].most is None, "slots of other machines can take its place"


def test_a_slot_in_which_a_worker_failed_gets_no_replacement_as_before() -> None:
    pool = Pool()
    pool.learn(report("b/0"))
    assert pool.refusals() == {}
    assert pool.memories["j-1"].most == 1


def test_a_machine_is_used_again_when_its_agent_can_run_the_job_after_all() -> None:
    pool = Pool()
    pool.learn(report("b/0", refusals={"b": WHY}))
    pool.held = ["a/0"]
    pool.learn(report(refusals={"b": WHY}))
    assert pool.refusals() == {"b": WHY}
    pool.learn(report())
    assert pool.refusals() == {}


def test_a_machine_is_used_again_after_it_was_drained_or_its_agent_ended_and_may_refuse_again() -> None:
    pool = Pool()
    pool.learn(report("b/0", refusals={"b": WHY}))
    pool.held, pool.unusable = ["a/0"], {"b"}
    pool.learn(report(refusals={"b": WHY}))
    pool.unusable = set()
    pool.learn(report(refusals={"b": WHY}))
    assert pool.refusals() == {}, "it may have been repaired, although the driver has not tried it again"
    pool.held = ["a/0", "b/0"]
    pool.learn(report("b/0", refusals={"b": WHY}))
    assert pool.refusals() == {"b": WHY}


def ended(exit_code: int, refusals: dict[str, str]) -> DriverReport:
    outcome = Outcome("failed", exit_code, "no machine can be used", refusals)
    return DriverReport(
        attempt=1, state=DriverState.ENDED, in_use=frozenset(), outcome=outcome, refusals=outcome.refusals
    )


def test_a_job_that_its_machines_refused_starts_on_others_and_uses_no_retry() -> None:
    for max_retries in (0, 2):
        pool = Pool(Stage.STARTING, max_retries=max_retries)
        change = pool.learn(ended(EXIT_NOWHERE, {"b": WHY}))
        assert change is not None and (change.stage, change.is_retry, change.exit_code) == (Stage.QUEUED, False, None)
        assert change.reason == f"node b has refused it: {WHY}; it starts on others when slots are free"
        pool.job = msgspec.structs.replace(pool.job, attempt=2)
        assert pool.refusals() == {"b": WHY}


def test_a_job_that_all_machines_refuse_fails() -> None:
    pool = Pool(Stage.STARTING)
    pool.unusable = {"c"}
    change = pool.learn(ended(EXIT_NOWHERE, {"a": WHY, "b": WHY}))
    assert change is not None and (change.stage, change.exit_code) == (Stage.FAILED, EXIT_NOWHERE)


def test_a_job_that_is_stopped_meanwhile_does_not_start_again() -> None:
    change = Pool(Stage.STOPPING).learn(ended(EXIT_NOWHERE, {"b": WHY}))
    assert change is not None and change.stage is Stage.FAILED


def test_the_policy_is_given_the_reason_why_a_slot_cannot_be_used() -> None:
    pool = Pool()
    pool.unusable = {"c"}
    slots = make_snapshot(pool.facts(), {}, pool.memories, {}, 10.0, LeftOut()).slots
    assert [(slot.usable, slot.trouble) for slot in slots] == [
        (True, ""),
        (True, ""),
        (False, "its agent does not answer"),
    ]
