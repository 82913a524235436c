"""Hugging Face datasets in a job: the same state with 1 to 4 workers, with loader processes, through a SIGKILL."""

from __future__ import annotations

import pytest
from tests.integration.harness import (
    Act,
    Reference,
    Stage,
    after_event,
    arm,
    at_step,
    both,
    do_all,
    kill,
    nothing,
    scale,
    with_members,
)
from tests.tiers import first_now

PROGRAM = "hugging_face_datasets.py"


@pytest.fixture(autouse=True)
def imported(stage: Stage) -> None:
    """Import the library once for all workers, as `legato run` does."""
    stage.wished = ("datasets",)


@pytest.mark.parametrize("loaders", first_now(["0", "2"]))
def test_workers_that_come_and_die_leave_the_result(stage: Stage, reference: Reference, loaders: str) -> None:
    plan = [
        Act(both(at_step(2), with_members(2)), do_all(kill(0), scale(4)), "rank 0 is killed, and the job grows to 4"),
        Act(with_members(4), arm("commit", "kill", 1), "rank 1 dies after the reduction"),
        Act(after_event("recovered"), scale(1), "shrink to 1"),
        Act(with_members(1), nothing, "1 at the end"),
    ]
    result = stage.run(PROGRAM, "--loaders", loaders, workers=(1, 4, 2), plan=plan)
    # Alone without loader processes: they change no bit either.
    result.check(reference.of(PROGRAM))


@pytest.mark.soak
@pytest.mark.parametrize("loaders", ["0", "1"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_each_number_of_workers_gives_the_same_result(
    stage: Stage, reference: Reference, workers: int, loaders: str
) -> None:
    result = stage.run(PROGRAM, "--loaders", loaders, workers=(workers,) * 3)
    result.check(reference.of(PROGRAM), finishers=workers)
