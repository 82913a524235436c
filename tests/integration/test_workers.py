"""The same result on any number of workers, and when their number changes by plan."""

from __future__ import annotations

import re

import pytest
from tests.integration.harness import (
    Act,
    Reference,
    Stage,
    after_event,
    at_step,
    nothing,
    scale,
    with_members,
)
from tests.tiers import first_now

_SHARES = re.compile(r"step (\d+): (\d+) of 8 with (\d+) workers")
PROGRAMS = [("vision.py",), ("vision.py", "--loaders", "2"), ("text.py",), ("twice.py",)]


@pytest.mark.parametrize(
    ("program", "num_workers"),
    first_now(
        [
            (("vision.py",), 5),
            (("vision.py", "--loaders", "2"), 3),
            (("text.py",), 4),
            (("twice.py",), 2),
        ],
        several=True,
    ),
)
def test_undisturbed(stage: Stage, reference: Reference, program: tuple[str, ...], num_workers: int) -> None:
    want = reference.of(*program)
    result = stage.run(*program, workers=(1, num_workers, num_workers))
    result.check(want, finishers=num_workers)


@pytest.mark.parametrize("program", first_now(PROGRAMS))
def test_grow_and_shrink(stage: Stage, reference: Reference, program: tuple[str, ...]) -> None:
    want = reference.of(*program)
    # More than its step has micro-batches are refused.
    most = 3 if program == ("twice.py",) else 4
    plan = [
        Act(at_step(3), scale(most), "grow"),
        Act(with_members(most), scale(2), "shrink to 2"),
        Act(with_members(2), scale(3), "grow to 3"),
        Act(with_members(3), scale(1), "shrink to 1"),
        Act(with_members(1), scale(2), "grow to 2"),
        Act(with_members(2), nothing, "2 at the end"),
    ]
    stage.run(*program, plan=plan).check(want, finishers=2)


def test_newcomers_have_few_micro_batches_in_their_first_step(stage: Stage, reference: Reference) -> None:
    want = reference.of("shares.py")
    plan = [
        Act(at_step(3), scale(2), "grow to 2"),
        Act(with_members(2), scale(4), "grow to 4"),
        Act(with_members(4), nothing, "4 train"),
    ]
    result = stage.run("shares.py", plan=plan, workers=(1, 4, 1))
    result.check(want, finishers=4)
    shares = {worker: _SHARES.findall(text) for worker, text in result.logs.items()}
    assert shares[1][0][1:] == ("1", "2") and shares[1][1][1:] == ("4", "2"), result.story()
    for worker in (2, 3):
        (_, first, _), (_, second, num_workers) = shares[worker][:2]
        assert first == "1" and int(second) in (8 // int(num_workers), -(-8 // int(num_workers))), result.story()
    # Each micro-batch of each step belongs to one worker.
    of_steps: dict[str, int] = {}
    for step, num, _ in (line for lines in shares.values() for line in lines):
        of_steps[step] = of_steps.get(step, 0) + int(num)
    assert set(of_steps.values()) == {8} and len(of_steps) == want.num_steps


def test_a_newcomer_that_dies_in_its_first_step_leaves_the_result(stage: Stage, reference: Reference) -> None:
    want = reference.of("shares.py")
    plan = [
        Act(at_step(3), scale(2), "the second worker comes, and dies in its first step"),
        Act(after_event("recovered"), nothing, "the first one continues"),
        Act(with_members(2), nothing, "another one has come"),
    ]
    stage.run("shares.py", "--dies", "1", plan=plan, workers=(1, 2, 1)).check(want, finishers=2)


def test_a_data_set_that_changes_in_each_epoch(stage: Stage, reference: Reference) -> None:
    program = ("vision.py", "--dim", "--epochs", "4")
    want = reference.of(*program)
    plan = [Act(at_step(6), scale(3), "grow in the second epoch"), Act(with_members(3), nothing, "3 train")]
    result = stage.run(*program, "--loaders", "2", plan=plan)
    result.check(want, finishers=3)


def test_a_worker_that_its_step_has_no_work_for_is_not_kept(stage: Stage, reference: Reference) -> None:
    want = reference.of("twice.py")
    result = stage.run("twice.py", workers=(4, 5, 5))
    result.check(want, finishers=3)
    (scaled,) = result.of_kind("scaled")
    assert scaled["reason"] == "5 -> 3 workers: its step has only 3 micro-batches, so more cannot help"
    assert "its minimum is 4 workers, but its step has only 3 micro-batches" in result.of_kind("note")[0]["reason"]
