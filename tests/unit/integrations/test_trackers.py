"""What one worker writes for all: which calls, which files, what is refused. Programs here run alone."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import TensorDataset

import legato
from legato.core.errors import ProgramError, UsageError
from legato.integrations.mlflow import MLflowCallback, MlflowRun, start_run
from legato.integrations.single_writer import Place, SingleWriter
from legato.integrations.tensorboard import SummaryWriter, TensorBoardCallback, find_last_place
from legato.train.process import job


@pytest.fixture(autouse=True)
def endings(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Keep what would run at the end of this process."""
    found: list[Callable[[], None]] = []
    monkeypatch.setattr(job, "at_end", found.append)
    monkeypatch.delattr("sys.last_value", raising=False)  # set by pytest after a test that fails
    return found


def train(make: Callable[[legato.Run], Any], log: Callable[[Any, legato.Run], None], num_epochs: int = 3) -> Any:
    """Train two steps per epoch; returns what `make` has made."""
    run = legato.elastic(global_batch_size=4, micro_batch_size=2)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.prepare(model, optimizer)
    writer = make(run)
    for _ in run.epochs(num_epochs):
        for (batch,) in run.batches(TensorDataset(torch.rand(8, 3))):
            run.backward(model(batch).pow(2).mean())
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped:
                log(writer, run)
    return writer


def shown(log_dir: Path) -> EventAccumulator:
    found = EventAccumulator(str(log_dir), size_guidance={"scalars": 0})
    found.Reload()
    return found


class Kept(SingleWriter):
    """Writes to a list, as a worker that is or is not the main one."""

    def __init__(self, run: Any, last: Place | None = None) -> None:
        super().__init__(run)
        self.lines: list[Any] = []
        self.last = last

    def _open(self) -> Place | None:
        return self.last

    def _write_resize(self, num_workers: int) -> None:
        self.lines.append(f"{num_workers} workers")

    def _close(self) -> None:
        self.lines.append("closed")

    def log(self, value: Any) -> None:
        self._call(self.lines.append, value)


class FakeRun:
    """What a writer asks of a run."""

    step, is_main, num_workers, has_state = 0, False, 2, True

    def prepare(self, thing: Any) -> None:
        self.prepared = thing

    def become_main(self) -> None:
        self.is_main, self.num_workers = True, 1


def test_the_next_writer_writes_what_the_last_one_has_not() -> None:
    run = FakeRun()
    writer = Kept(run, last=(3, 1))
    writer.log("before")
    for step in (1, 2, 3):
        run.step = step
        writer.log(f"{step}a")
        writer.log(f"{step}b")
    assert writer.lines == []
    run.become_main()
    run.step = 4
    writer.log("4a")
    assert writer.lines == ["1 workers", "3b", "4a"]


def test_calls_before_the_first_step_are_not_lost_with_the_first_writer() -> None:
    run = FakeRun()
    writer = Kept(run)
    writer.log("before")
    run.step = 1
    writer.log("1a")
    run.become_main()
    run.step = 2
    writer.log("2a")
    assert writer.lines == ["1 workers", "before", "1a", "2a"]


def test_no_worker_writes_before_it_knows_who_writes(endings: list[Callable[[], None]]) -> None:
    run = FakeRun()
    run.become_main()
    writer = Kept(run)
    writer.log("before")
    assert writer.lines == []
    (end,) = endings
    end()
    end()
    assert writer.lines == ["1 workers", "before", "closed"]


def test_a_worker_without_the_state_of_the_job_writes_nothing(endings: list[Callable[[], None]]) -> None:
    """It is still starting when the job ends, or the job has stopped, or its program skips what the job has done."""
    run = FakeRun()
    run.become_main()
    run.has_state = False
    writer = Kept(run)
    writer.log("before")
    run.step = 6
    writer.log("on its way")
    (end,) = endings
    end()
    assert writer.lines == []


def test_a_program_that_ends_with_an_error_does_not_close(
    endings: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun()
    run.become_main()
    writer = Kept(run)
    run.step = 1
    writer.log("1a")
    monkeypatch.setattr("sys.last_value", KeyboardInterrupt(), raising=False)
    (end,) = endings
    end()
    assert writer.lines == ["1 workers", "1a"]


def test_a_change_of_workers_is_written_once() -> None:
    run = FakeRun()
    run.is_main = True
    writer = Kept(run)
    for step, num_workers in ((1, 2), (2, 2), (3, 4)):
        run.step, run.num_workers = step, num_workers
        writer.log(step)
    assert writer.lines == ["2 workers", 1, 2, "4 workers", 3]


def test_a_kept_call_has_the_values_of_its_moment() -> None:
    run = FakeRun()
    run.step = 1
    writer = Kept(run)
    tensor, array = torch.zeros(2), np.zeros(2)
    writer.log({"tensor": tensor, "arrays": [array]})
    tensor += 1
    array += 1
    run.become_main()
    writer.log("next")
    kept = writer.lines[1]
    assert kept["tensor"].sum() == 0 and kept["arrays"][0].sum() == 0


@pytest.mark.parametrize("last", [(5, 2), None], ids=["shared", "on another disk"])
def test_a_worker_that_joins_or_resumes_has_the_place_and_the_name_of_the_log(last: Place | None) -> None:
    there, here = FakeRun(), FakeRun()
    there.step = 5
    writer, joiner = Kept(there), Kept(here, last)
    writer.log("a")
    writer.log("b")
    joiner.log("on its way")
    joiner.load_state_dict(writer.state_dict())
    assert joiner.state_dict() == writer.state_dict()
    here.step = 5
    joiner.log("c")
    here.become_main()
    here.step = 6
    joiner.log("d")
    assert joiner.lines == ["1 workers", "c", "d"]


def test_a_program_that_runs_alone_writes_each_value(tmp_path: Path) -> None:
    writer = train(
        lambda run: SummaryWriter(run, tmp_path), lambda writer, run: writer.add_scalar("loss", run.loss, run.step)
    )
    assert [point.step for point in shown(tmp_path).Scalars("loss")] == [1, 2, 3, 4, 5, 6]
    assert [(p.step, p.value) for p in shown(tmp_path).Scalars("legato/num_workers")] == [(1, 1.0)]
    assert find_last_place(tmp_path, writer._id) == (6, 1)
    writer.close()


def test_a_record_that_is_cut_off_counts_as_not_written(tmp_path: Path) -> None:
    writer = train(
        lambda run: SummaryWriter(run, tmp_path), lambda writer, run: writer.add_scalar("loss", run.loss, run.step)
    )
    writer.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for cut, want in ((1, (5, 1)), (3, (5, 1)), (len(whole) - 10, None)):
        path.write_bytes(whole[:-cut])
        assert find_last_place(tmp_path, writer._id) == want
    assert find_last_place(tmp_path, "another") is None


def test_calls_after_close_are_written(tmp_path: Path) -> None:
    def log(writer: SummaryWriter, run: legato.Run) -> None:
        writer.add_scalar("loss", run.loss, run.step)
        writer.close()

    started = time.time()
    train(lambda run: SummaryWriter(run, tmp_path), log, num_epochs=1)
    assert [point.step for point in shown(tmp_path).Scalars("loss")] == [1, 2]
    # TensorBoard reads files by name, which have whole seconds.
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len({name.split(".")[3] for name in names}) == 2 and time.time() > started


def test_values_of_an_earlier_job_are_hidden(tmp_path: Path) -> None:
    for num_epochs in (3, 1):
        train(
            lambda run: SummaryWriter(run, tmp_path),
            lambda writer, run: writer.add_scalar("loss", run.loss, run.step),
            num_epochs,
        ).close()
    assert [point.step for point in shown(tmp_path).Scalars("loss")] == [1, 2]


def test_callbacks_write_losses_and_metrics(tmp_path: Path, store: str) -> None:
    data = TensorDataset(torch.rand(8, 3), torch.rand(8, 1))
    trainer = legato.Trainer(
        lambda: torch.nn.Linear(3, 1),
        data,
        torch.nn.functional.mse_loss,
        lambda parameters: torch.optim.SGD(parameters, 0.1),
        val_set=data,
        global_batch_size=4,
        micro_batch_size=2,
        callbacks=[TensorBoardCallback(tmp_path), MLflowCallback({"lr": 0.1}, tracking_uri=store)],
    )
    history = trainer.fit(2)
    found = shown(tmp_path)
    assert [point.step for point in found.Scalars("loss")] == [1, 2, 3, 4]
    assert [point.value for point in found.Scalars("epoch_loss")] == pytest.approx([epoch.loss for epoch in history])
    assert [point.step for point in found.Scalars("val_loss")] == [2, 4]
    run = find_run(store, "Default")
    assert run.data.params == {"lr": "0.1"} and run.info.status == "FINISHED"
    assert run.data.metrics["epoch_loss"] == history[-1].loss
    assert run.data.metrics.keys() == {"loss", "epoch_loss", "val_loss", "legato/num_workers"}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Store runs of MLflow in files; that in SQLite takes seconds to make."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return str(tmp_path / "mlruns")


def find_run(uri: str, experiment_name: str) -> Any:
    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name(experiment_name).experiment_id])
    return found


def test_mlflow_gets_what_its_module_would_get(
    store: str, tmp_path: Path, endings: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    (tmp_path / "notes.txt").write_text("notes")

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_metric("loss", run.loss or 0.0)
        mlflow.log_metrics({"twice": 2 * run.step, "nothing": float("nan")}, step=10 * run.step)
        mlflow.log_param("lr", 0.1)
        mlflow.set_tag("note", 3)
        mlflow.log_artifact(tmp_path / "notes.txt")
        mlflow.log_dict({"step": run.step}, "last.json")

    writer = train(lambda run: start_run(run, run_name="first", tracking_uri=store), log)
    found, client = find_run(store, "mine"), MlflowClient(store)
    assert found.info.run_id == writer.run_id and found.info.run_name == "first"
    assert found.info.status == "RUNNING"
    assert [point.step for point in client.get_metric_history(writer.run_id, "loss")] == [1, 2, 3, 4, 5, 6]
    assert [(p.step, p.value) for p in client.get_metric_history(writer.run_id, "twice")][-1] == (60, 12.0)
    assert found.data.params == {"lr": "0.1"} and found.data.tags["note"] == "3"
    assert found.data.tags["legato.resizes"] == "step 1: 1"
    assert sorted(file.path for file in client.list_artifacts(writer.run_id)) == ["last.json", "notes.txt"]
    for end in endings:
        end()
    assert find_run(store, "mine").info.status == "FINISHED"


def test_the_next_writer_of_mlflow_adds_only_what_is_missing(store: str) -> None:
    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_metrics({"step": run.step, "nothing": float("nan")})

    first = train(lambda run: start_run(run, tracking_uri=store), log, num_epochs=2)

    def go_on(run: legato.Run) -> MlflowRun:
        writer = start_run(run, tracking_uri=store)
        writer._id = first._id
        return writer

    second = train(go_on, log, num_epochs=3)
    assert second.run_id == first.run_id
    for name in ("step", "nothing"):
        history = MlflowClient(store).get_metric_history(first.run_id, name)
        assert sorted(point.step for point in history) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("error", "status"), [(None, "FINISHED"), (ValueError("wrong"), "FAILED"), (SystemExit(), "RUNNING")]
)
def test_the_status_of_a_run_says_how_it_ended(store: str, error: BaseException | None, status: str) -> None:
    with contextlib.suppress(ValueError, SystemExit):
        writer = train(lambda run: start_run(run, tracking_uri=store), lambda mlflow, run: mlflow.set_tag("a", 1))
        with writer:
            if error is not None:
                raise error
    assert find_run(store, "Default").info.status == status


def test_what_cannot_be_used_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs the run as its first argument, not 'runs'"):
        SummaryWriter("runs", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"needs the run as its first argument, not 'digits'"):
        start_run("digits")  # type: ignore[arg-type]

    def log(writer: Any, run: legato.Run) -> None:
        with pytest.raises(ProgramError, match="before training begins"):
            SummaryWriter(run, tmp_path)

    writer = train(lambda run: SummaryWriter(run, tmp_path), log, num_epochs=1)
    with pytest.raises(AttributeError, match="'add_nothing'"):
        writer.add_nothing("a", 1)
    with pytest.raises(AttributeError, match="'all_writers'"):
        _ = writer.all_writers


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_missing_package_is_named(name: str) -> None:
    code = f"import sys; sys.modules[{name!r}] = None\nimport legato.integrations.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"pip install 'legato[{name}]'" in done.stderr


def test_nothing_is_imported_unless_it_is_used() -> None:
    code = "import sys, legato; legato.elastic, legato.Trainer; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"tensorboard", "mlflow", "datasets", "pyarrow"} & set(done.stdout.split())
