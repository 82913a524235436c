"""TensorBoard and MLflow in a job: every value once, whichever worker writes, dies, comes or goes on later."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tests.integration.harness import (
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
    nothing,
    scale,
    stop,
    with_members,
)
from tests.tiers import first_now

PROGRAM = "trackers.py"
NUM_STEPS, NUM_EPOCHS = 48, 8


@pytest.fixture(autouse=True)
def imported(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the libraries once for all workers, as `legato run` does."""
    stage.wished = ("legato.integrations.mlflow", "legato.integrations.tensorboard")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def records(log_dir: Path) -> Counter[tuple[str, int]]:
    """Count the records of each tag and step in all event files, as they are on disk."""
    found: Counter[tuple[str, int]] = Counter()
    for path in log_dir.glob("events.out.tfevents.*"):
        for event in EventFileLoader(str(path)).Load():
            found.update((value.tag, event.step) for value in event.summary.value)
    return found


def check_event_files(log_dir: Path, losses: dict[int, float]) -> list[int]:
    """Check that each value is written once, and return the numbers of workers that are written."""
    ours = {place: count for place, count in records(log_dir).items() if not place[0].startswith("legato/")}
    epochs = range(NUM_EPOCHS)
    want = [("loss", step) for step in range(1, NUM_STEPS + 1)] + [("first weights", epoch) for epoch in epochs]
    assert ours == dict.fromkeys([*want, ("config/text_summary", 0)], 1)
    for name in ("here", "there"):
        inner = records(log_dir / f"both_{name}")
        assert inner.keys() == {("both", epoch) for epoch in epochs}
    shown = EventAccumulator(str(log_dir), size_guidance={"scalars": 0})
    shown.Reload()
    assert {point.step: point.value for point in shown.Scalars("loss")} == pytest.approx(losses)
    assert len(shown.Tensors("legato/resizes/text_summary")) == len(shown.Scalars("legato/num_workers"))
    return [int(point.value) for point in shown.Scalars("legato/num_workers")]


def check_mlflow(uri: str, losses: dict[int, float], *, status: str = "FINISHED") -> str:
    """Check that one run has each value once, and return its tag of resizes."""
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("trackers")
    (found,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(found.info.run_id, "loss")
    assert sorted((point.step, point.value) for point in history) == sorted(losses.items())
    epochs = client.get_metric_history(found.info.run_id, "epoch")
    assert sorted((point.step, point.value) for point in epochs) == [(epoch, epoch) for epoch in range(NUM_EPOCHS)]
    assert found.data.params == {"lr": "0.01", "layers": "2"}
    assert found.info.status == status
    return str(found.data.tags["legato.resizes"])


def status_of(uri: str) -> str:
    """Return the status of the only run."""
    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("trackers").experiment_id])
    return str(found.info.status)


def losses_of(result: Result) -> dict[int, float]:
    pairs = [pair for line in result.losses for pair in zip(line["step"], line["loss"], strict=True)]
    assert len(pairs) == NUM_STEPS and not any(math.isnan(loss) for _, loss in pairs)
    return dict(pairs)


@pytest.mark.soak
def test_each_value_is_written_once_if_the_writer_dies(stage: Stage, reference: Reference) -> None:
    log_dir, uri = stage.home / "tensorboard", str(stage.home / "mlruns")
    words = (str(log_dir), uri)
    plan = [
        # It dies after the step is committed, and before it has written the step.
        Act(both(at_step(2), with_members(2)), do_all(arm("commit", "kill", 0), scale(3)), "the writer dies"),
        Act(both(after_event("recovered"), with_members(3)), kill(0), "the next writer dies"),
        Act(both(after_event("recovered"), with_members(3)), scale(1), "shrink to 1"),
        Act(with_members(1), nothing, "1 at the end"),
    ]
    result = stage.run(PROGRAM, *words, workers=(1, 4, 2), plan=plan)
    scratch = stage.home / "alone"
    result.check(reference.of(PROGRAM, str(scratch / "tensorboard"), str(scratch / "mlruns")))
    losses = losses_of(result)
    sizes = check_event_files(log_dir, losses)
    assert sizes[0] == 2 and sizes[-1] == 1 and 3 in sizes
    assert check_mlflow(uri, losses).startswith("step 1: 2, ")


@pytest.mark.soak
def test_a_worker_that_never_joined_writes_nothing(stage: Stage) -> None:
    log_dir, uri = stage.home / "tensorboard", str(stage.home / "mlruns")
    # The job ends before the new worker has the state.
    plan = [Act(at_step(NUM_STEPS - 4), scale(2), "grow too late")]
    result = stage.run(PROGRAM, str(log_dir), uri, plan=plan, workers=(1, 4, 1))
    assert result.outcome.outcome == "succeeded", result.story()
    losses = losses_of(result)
    check_event_files(log_dir, losses)
    check_mlflow(uri, losses)


@pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")  # of MLflow's store
@pytest.mark.parametrize("store", first_now(["files", "sqlite"]))
def test_a_job_that_resumes_writes_no_step_again(stage: Stage, store: str) -> None:
    log_dir = stage.home / "tensorboard"
    uri = f"sqlite:///{stage.home}/mlflow.db" if store == "sqlite" else str(stage.home / "mlruns")
    words: Any = (PROGRAM, str(log_dir), uri)
    plan = [Act(both(at_step(10), with_members(2)), stop, "stop")]
    stopped = stage.run(*words, plan=plan, workers=(1, 4, 2), checkpoint_every="3steps")
    assert stopped.outcome.outcome == "stopped", stopped.story()
    assert status_of(uri) == "RUNNING"
    # It continues from an earlier step than the last that was written.
    first, *later = sorted((stage.directory.path / "checkpoints").glob("*.legato"))
    assert later, first
    for path in later:
        path.unlink()
    resumed = stage.run(*words, workers=(1, 4, 1), resume=True)
    assert resumed.outcome.outcome == "succeeded", resumed.story()
    losses = losses_of(resumed)
    assert check_event_files(log_dir, losses)[-1] == 1
    assert check_mlflow(uri, losses).endswith(": 1")
