"""Hugging Face's Trainer on the elastic loop: the same state with 1 to 4 workers, whatever befalls them."""

from __future__ import annotations

import json
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

PROGRAM = "hugging_face.py"


@pytest.fixture(autouse=True)
def imported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the libraries once for all workers, as `legato run` does."""
    stage.wished = ("hugging_face_imports",)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROGRAMS), *filter(None, sys.path)]))


def check(result: Result, reference: Reference, *args: str) -> None:
    # The digest contains what the Trainer has logged. Alone, the program does not print that as metrics of a job.
    told = tuple(
        (m["epoch"], m["step"], "  ".join(f"{name} {value:.6g}" for name, value in m["values"].items()))
        for m in sorted(result.metrics, key=lambda line: line["index"])
    )
    result.check(reference.of(PROGRAM, *args)._replace(metrics=told))
    values = {name: m["values"][name] for m in result.metrics for name in m["values"]}
    assert {"loss", "grad_norm", "learning_rate", "eval_loss", "eval_accuracy", "train_loss"} <= values.keys()
    assert not [name for name in values if name.endswith(("_runtime", "_per_second"))]


@pytest.mark.parametrize("args", first_now([(), ("--lora",)]))
def test_workers_that_come_go_and_die_leave_the_result(
    stage: Stage, reference: Reference, args: tuple[str, ...]
) -> None:
    plan = [
        Act(both(at_step(2), with_members(2)), do_all(kill(0), scale(4)), "rank 0 is killed, and the job grows to 4"),
        Act(with_members(4), arm("commit", "kill", 0), "rank 0 dies after the reduction"),
        Act(after_event("recovered"), scale(1), "shrink to 1"),
        Act(with_members(1), nothing, "1 at the end"),
    ]
    result = stage.run(PROGRAM, "--out", str(stage.home / "out"), *args, workers=(1, 4, 2), plan=plan)
    check(result, reference, *args)
    # Only one worker writes, also after the one that wrote before has died.
    names = {path.name for path in (stage.home / "out").iterdir()}
    assert "checkpoint-45" in names and len(names) >= 5, names


@pytest.mark.soak
def test_a_job_that_was_stopped_goes_on(stage: Stage, reference: Reference) -> None:
    words = (PROGRAM, "--out", str(stage.home / "out"))
    plan = [Act(both(at_step(10), with_members(2)), stop, "stop")]
    stopped = stage.run(*words, workers=(1, 4, 2), plan=plan)
    assert stopped.outcome.outcome == "stopped", stopped.story()
    plan = [Act(both(at_step(11), with_members(3)), kill_all, "all are killed"), Act(with_members(3), nothing, "back")]
    resumed = stage.run(*words, workers=(1, 4, 3), plan=plan, resume=True, checkpoint_every="3steps")
    digests = {digest for digest, _ in resumed.digests.values()}
    assert digests == {reference.of(PROGRAM).sha256}, resumed.story()


@pytest.mark.soak
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("args", [(), ("--lora",), ("--max-steps", "20")])
def test_each_number_of_workers_gives_the_same_result(
    stage: Stage, reference: Reference, workers: int, args: tuple[str, ...]
) -> None:
    result = stage.run(PROGRAM, "--out", str(stage.home / "out"), *args, workers=(workers,) * 3)
    check(result, reference, *args)
    (num_steps,) = {num_steps for _, num_steps in result.digests.values()}
    state = json.loads((stage.home / "out" / f"checkpoint-{num_steps}" / "trainer_state.json").read_text())
    assert num_steps == (20 if "--max-steps" in args else 45)
    assert state["global_step"] == state["max_steps"] == num_steps
