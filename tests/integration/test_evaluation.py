"""Membership changes while an evaluation runs; its results are compared through the recorded metrics."""

from __future__ import annotations

import pytest
from tests.integration.harness import (
    Act,
    Reference,
    Stage,
    World,
    after_event,
    arm,
    both,
    do_all,
    hasten_evaluation,
    kill,
    marked,
    nothing,
    scale,
    with_members,
)

from legato.cli.terminal.job_view import render_progress_line

SLOW_S = 0.05
three_again = both(after_event("recovered"), with_members(3))


def evaluates(world: World) -> bool:
    return world.status.get("phase") == "evaluate" and "evaluating" in render_progress_line(world.status)


def test_comings_and_goings_in_evaluations(stage: Stage, reference: Reference) -> None:
    want = reference.of("vision.py")
    stage.slow_evaluation(SLOW_S)
    plan = [
        Act(both(marked("middle-0"), with_members(3)), kill(1), "one dies in the middle of an epoch"),
        Act(both(three_again, marked("end-2")), kill(0), "rank 0 dies at its end"),
        Act(both(three_again, marked("middle-3")), arm("partly", "kill", 0), "one dies when only one has its part"),
        Act(both(three_again, marked("middle-5")), scale(1), "two leave"),
        Act(both(with_members(1), marked("end-6")), scale(3), "two come"),
        Act(both(with_members(3), marked("middle-8")), kill(0, 1), "two die"),
        Act(three_again, hasten_evaluation, "3 at the end"),
    ]
    stage.run("vision.py", workers=(1, 3, 3), plan=plan).check(want, finishers=3)


@pytest.mark.soak
def test_joiners_of_the_last_evaluation_end_with_the_job(stage: Stage, reference: Reference) -> None:
    program = ("vision.py", "--epochs", "3", "--only-after", "2")
    want = reference.of(*program)
    stage.slow_evaluation(0.3)
    plan = [
        Act(both(marked("end-2"), evaluates), scale(3), "two come too late"),
        Act(after_event("proposed"), do_all(hasten_evaluation), "and are ready"),
    ]
    result = stage.run(*program, workers=(1, 3, 1), plan=plan)
    result.check(want)


@pytest.mark.soak
def test_a_death_in_the_last_evaluation(stage: Stage, reference: Reference) -> None:
    program = ("vision.py", "--epochs", "3", "--only-after", "2")
    want = reference.of(*program)
    stage.slow_evaluation(0.1)
    plan = [
        Act(marked("end-2"), kill(0), "rank 0 dies"),
        Act(after_event("recovered"), kill(0), "and the next one"),
        Act(after_event("recovered"), hasten_evaluation, "enough"),
        Act(lambda world: True, nothing, "end"),
    ]
    stage.run(*program, workers=(1, 3, 3), plan=plan).check(want)
