"""Lightning's Trainer on the elastic loop: the same state with 1 to 4 workers, whatever befalls them."""

from __future__ import annotations

import os
import sys

import pytest
from tests.integration.harness import (
    PROGRAMS,
    Act,
    Reference,
    Result,
    Stage,
    after_event,
    arm,
    at_step,
    both,
    do_all,
    kill,
    kill_all,
    nothing,
    scale,
    stop,
    with_members,
)
from tests.tiers import first_now

PROGRAM = "lightning_module.py"
KINDS = [(), ("--plateau",), ("--precision", "16-mixed"), ("--precision", "bf16-mixed", "--max-steps", "14")]

PLAN = [
    Act(both(at_step(2), with_members(2)), do_all(kill(0), scale(4)), "rank 0 is killed, and the job grows to 4"),
    Act(with_members(4), arm("commit", "kill", 0), "rank 0 dies after the reduction"),
    Act(after_event("recovered"), scale(1), "shrink to 1"),
    Act(with_members(1), nothing, "1 at the end"),
]


@pytest.fixture(autouse=True)
def imported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the libraries once for all workers, as `legato run` does."""
    stage.wished = ("lightning_imports",)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROGRAMS), *filter(None, sys.path)]))


def check(result: Result, reference: Reference, *args: str) -> None:
    # Alone, the program does not print what Lightning has logged as metrics of a job. The digest contains its end.
    logged = sorted(result.metrics, key=lambda line: line["index"])
    told = tuple((m["epoch"], m["step"], "  ".join(f"{n} {v:.6g}" for n, v in m["values"].items())) for m in logged)
    result.check(reference.of(PROGRAM, *args)._replace(metrics=told))
    steps = {m["step"]: m["values"] for m in logged if "norm_step" in m["values"]}
    assert sorted(steps) == [step for step in range(2, 19, 2) if step <= max(steps)]
    # The number of the step's last micro-batch, on any number of workers.
    assert {step: values["place"] for step, values in steps.items()} == {
        step: min(5 * ((step - 1) % 6 + 1), 29) - 1 for step in steps
    }
    names = {name for m in logged for name in m["values"]}
    assert {"loss_step", "loss_epoch", "largest_epoch", "norm_epoch", "val_loss", "val_accuracy"} <= names


@pytest.mark.parametrize("args", first_now(KINDS))
def test_workers_that_come_go_and_die_leave_the_result(
    stage: Stage, reference: Reference, args: tuple[str, ...]
) -> None:
    result = stage.run(PROGRAM, "--out", str(stage.home / "out"), *args, workers=(1, 4, 2), plan=PLAN)
    check(result, reference, *args)
    # The program checks that the two best files are there, although workers that wrote have died.
    assert (stage.home / "out" / "last.ckpt").exists()


@pytest.mark.soak
@pytest.mark.parametrize("args", KINDS)
def test_a_job_that_was_stopped_goes_on(stage: Stage, reference: Reference, args: tuple[str, ...]) -> None:
    words = (PROGRAM, "--out", str(stage.home / "out"), *args)
    plan = [Act(both(at_step(8), with_members(2)), stop, "stop")]
    stopped = stage.run(*words, workers=(1, 4, 2), plan=plan)
    assert stopped.outcome.outcome == "stopped", stopped.story()
    plan = [Act(both(at_step(10), with_members(3)), kill_all, "all are killed"), Act(with_members(3), nothing, "back")]
    resumed = stage.run(*words, workers=(1, 4, 3), plan=plan, resume=True, checkpoint_every="3steps")
    digests = {digest for digest, _ in resumed.digests.values()}
    assert digests == {reference.of(PROGRAM, *args).sha256}, resumed.story()


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("args", KINDS)
def test_each_number_of_workers_gives_the_same_result(
    stage: Stage, reference: Reference, workers: int, args: tuple[str, ...]
) -> None:
    result = stage.run(PROGRAM, "--out", str(stage.home / "out"), *args, workers=(workers,) * 3)
    check(result, reference, *args)
    assert {num_steps for _, num_steps in result.digests.values()} == {14 if "--max-steps" in args else 18}


@pytest.mark.soak
@pytest.mark.parametrize("args", [(), ("--range",), ("--float16",)])
def test_a_loop_with_fabric(stage: Stage, reference: Reference, args: tuple[str, ...]) -> None:
    result = stage.run("fabric_loop.py", *args, workers=(1, 4, 2), plan=PLAN)
    result.check(reference.of("fabric_loop.py", *args))
