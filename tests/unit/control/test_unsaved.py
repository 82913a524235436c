"""Who is paused hears whether the state was saved."""

from __future__ import annotations

import math

import msgspec
import pytest
from tests.unit.control.loop.test_rounds import SLOTS, make_pool, make_running

from legato.api.jobs import Progress
from legato.control.drivers.drivers import DriverReport, DriverState
from legato.control.loop.loop_state import RoundFacts
from legato.control.loop.rounds import learn
from legato.control.records import JobChange
from legato.control.stages import Stage
from legato.driver.journal import Outcome

UNSAVED = (
    "a pause; but no checkpoint of step 7 was written (the newest is of step 3); look for the cause in its events and "
    "logs"
)


def end(stage: Stage, outcome: Outcome, *, by_policy: bool = False) -> JobChange:
    job = msgspec.structs.replace(make_running(1, "said"), stage=stage)
    pool = make_pool(job, SLOTS[:1])
    if by_policy:
        left = tuple(msgspec.structs.replace(found, release_asked_at=1.0) for found in pool.facts.allocations)
        pool = RoundFacts(msgspec.structs.replace(pool.facts, allocations=left))
    report = DriverReport(attempt=1, state=DriverState.ENDED, in_use=frozenset(), outcome=outcome)
    return learn(pool, {job.id: report}, {}, 5.0)[0]


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        (Outcome("stopped", 1, UNSAVED), UNSAVED),
        (Outcome("stopped", 130, "a pause"), "its workers were killed"),
    ],
)
def test_a_pause_without_a_checkpoint_says_so(outcome: Outcome, why: str) -> None:
    asked = end(Stage.PAUSING, outcome)
    told = f"paused, but its state could not be saved: {why}; "
    assert (asked.stage, asked.exit_code) == (Stage.PAUSED, None)
    assert asked.reason == f"{told}when it is resumed, it will go back to the last checkpoint"
    decided = end(Stage.RUNNING, outcome, by_policy=True)
    assert decided.stage is Stage.QUEUED
    assert decided.reason == f"{told}it will go back to the last checkpoint; it resumes by itself when slots are free"


def test_a_job_without_its_last_checkpoint_has_failed_with_its_own_exit_code() -> None:
    reason = "the program ran to its end; but no checkpoint of step 9 was written, there is none"
    ended = end(Stage.RUNNING, Outcome("unsaved", 3, reason))
    assert (ended.stage, ended.exit_code, ended.reason) == (Stage.FAILED, 3, reason)


def test_a_pause_with_one_says_so_too() -> None:
    saved = Outcome("stopped", 0, "a pause")
    assert end(Stage.PAUSING, saved).reason == "a pause"
    decided = end(Stage.RUNNING, saved, by_policy=True)
    assert decided.reason == "paused, its state is saved; it resumes by itself when slots are free"


def test_a_job_that_ended_shows_the_last_step_that_was_committed() -> None:
    job = make_running(1, "said")
    seen = Progress(time=1.0, num_workers=1, step=108, epoch=8, loss=0.5)
    job = msgspec.structs.replace(job, progress=seen)
    for step, epoch, want in ((120, 9, (120, 9)), (90, 7, None), (None, None, None), (121, None, (121, 8))):
        report = DriverReport(
            attempt=1,
            state=DriverState.ENDED,
            in_use=frozenset(),
            outcome=Outcome("succeeded", 0, "the program ran to its end"),
            step=step,
            epoch=epoch,
        )
        after = learn(make_pool(job, SLOTS[:1]), {job.id: report}, {}, 5.0)[0].progress
        assert (None if after is None else (after.step, after.epoch)) == want
        assert after is None or after.loss == 0.5
    # With its loss: what the driver said last may be the loss of an earlier step.
    for step, loss, shown in ((120, 0.25, 0.25), (108, 0.25, 0.25), (120, None, 0.5), (120, math.nan, None)):
        report = msgspec.structs.replace(report, step=step, loss=loss)
        after = learn(make_pool(job, SLOTS[:1]), {job.id: report}, {}, 5.0)[0].progress
        assert after is not None and (after.step, after.loss) == (step, shown)
    report = msgspec.structs.replace(report, step=90, loss=0.25)
    assert learn(make_pool(job, SLOTS[:1]), {job.id: report}, {}, 5.0)[0].progress is None
    unseen = msgspec.structs.replace(job, progress=None)
    report = DriverReport(
        attempt=1, state=DriverState.ENDED, in_use=frozenset(), outcome=Outcome("succeeded", 0, "quick"), step=3
    )
    after = learn(make_pool(unseen, SLOTS[:1]), {job.id: report}, {}, 5.0)[0].progress
    assert after == Progress(time=5.0, step=3)
    # The number of all steps, also if the driver had reported the last step, but not this number.
    for step in (3, 108):
        report = msgspec.structs.replace(report, step=step, num_steps=120)
        after = learn(make_pool(job, SLOTS[:1]), {job.id: report}, {}, 5.0)[0].progress
        assert after is not None and after.reached == "108 of 120 (90 %)"
    # The number of micro-batches, which no program may report below 1.
    for number, shown in ((3, 3), (0, None), (-1, None)):
        report = msgspec.structs.replace(report, step=3, num_steps=3, num_micro_batches=number, shares_freely=True)
        after = learn(make_pool(unseen, SLOTS[:1]), {job.id: report}, {}, 5.0)[0].progress
        assert after is not None and (after.num_micro_batches, after.shares_freely) == (shown, shown is not None)


@pytest.mark.parametrize(
    ("outcome", "want"),
    [
        (Outcome("stopped", 0, "'anna' asked to pause it"), "submitted"),
        (Outcome("stopped", 0, "submitted"), "submitted"),
        (Outcome("stopped", 1, "submitted; but no checkpoint of step 7 was written"), None),
        (
            Outcome("stopped", 130, "'anna' asked to pause it"),
            "submitted; it was ending already: 'anna' asked to pause it",
        ),
    ],
)
def test_a_job_that_was_stopped_while_it_was_being_paused_says_that_it_was_stopped(
    outcome: Outcome, want: str | None
) -> None:
    ended = end(Stage.STOPPING, outcome)
    assert (ended.stage, ended.reason) == (Stage.STOPPED, want or outcome.reason)
