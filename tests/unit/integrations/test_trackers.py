"""What one worker writes for all: which calls, which files, what is refused. Programs here run alone."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import TensorDataset

import legato
from legato.core.errors import ProgramError, UsageError
from legato.integrations.mlflow import MLflowCallback, MlflowRun, start_run
from legato.integrations.patient_calls import PatientCalls
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


@pytest.fixture(autouse=True)
def ended_calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End each test when the calls that wait have been made: otherwise the next test's MLflow would get them."""
    all_calls: list[PatientCalls] = []
    begin = PatientCalls.__init__

    def remember(calls: PatientCalls, *arguments: Any) -> None:
        begin(calls, *arguments)
        all_calls.append(calls)

    monkeypatch.setattr(PatientCalls, "__init__", remember)
    yield
    for calls in all_calls:
        calls.settle(60)
        assert not calls._waiting


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

    name = "Kept"

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
        self._call(self._write, value)

    def _write(self, value: Any) -> None:
        if isinstance(value, Exception):
            raise value
        self.lines.append(value)


class FakeRun:
    """What a writer asks of a run."""

    step, is_main, num_workers, has_state = 0, False, 2, True

    def prepare(self, thing: Any) -> None:
        self.prepared = thing

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)

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


def test_what_a_checkpoint_takes_as_written_is_written() -> None:
    """The writer dies after step 10, and the job stops at step 12, before the next call."""
    run = FakeRun()
    writer = Kept(run, last=(5, 1))
    for step in (5, 10):
        run.step = step
        writer.log(step)
    run.become_main()
    run.step = 12
    assert writer.state_dict()["place"] == [10, 1]
    assert writer.lines == ["1 workers", 10]


def test_a_worker_that_has_left_writes_nothing_more() -> None:
    run = FakeRun()
    run.become_main()
    writer = Kept(run)
    run.step = 1
    writer.log("1a")
    run.has_state = False
    writer.log("while it leaves")
    assert writer.lines == ["1 workers", "1a"]


def test_an_error_of_the_tracker_ends_no_training(endings: list[Callable[[], None]]) -> None:
    run = FakeRun()
    run.become_main()
    writer = Kept(run)
    for step, value in enumerate(["a", OSError("No space left: http://me:secret@host/x"), "b"], 1):
        run.step = step
        writer.log(value)
    (end,) = endings
    end()
    assert writer.lines == ["1 workers", "a"]
    (warning,) = run.warnings
    assert warning.startswith("Kept: OSError: No space left: http://host/x. Training goes on")


def test_a_tracker_that_cannot_be_opened_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    run = FakeRun()
    run.become_main()
    writer = Kept(run)
    monkeypatch.setattr(writer, "_open", lambda: next(iter([])))
    for step in (1, 2):
        run.step = step
        writer.log(step)
    assert writer.lines == [] and len(run.warnings) == 1


def test_a_mistake_of_the_program_is_an_error() -> None:
    run = FakeRun()
    run.become_main()
    run.step = 1
    with pytest.raises(TypeError, match="wrong"):
        Kept(run).log(TypeError("wrong"))


def test_the_number_of_calls_that_wait_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.integrations.single_writer._MAX_KEPT", 2)
    run = FakeRun()
    run.become_main()
    writer = Kept(run)
    for value in "abcd":
        writer.log(value)
    assert run.warnings == ["Kept: 2 calls wait for the next step. The calls after them are not written."]
    run.step = 1
    writer.log("1a")
    assert writer.lines == ["1 workers", "a", "b", "1a"]


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


def test_damage_at_the_end_of_a_file_hides_no_other_record(tmp_path: Path) -> None:
    writer = train(
        lambda run: SummaryWriter(run, tmp_path), lambda writer, run: writer.add_scalar("loss", run.loss, run.step)
    )
    writer.close()
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged, want in (
        (whole + bytes(64), (6, 1)),
        (whole + b"\xff" * 64, (6, 1)),
        (whole[:-40] + b"\xff" * 36 + whole[-4:], (5, 1)),
        (whole[:-20] + bytes(20), (5, 1)),
    ):
        path.write_bytes(damaged)
        assert find_last_place(tmp_path, writer._id) == want


def test_a_worker_that_does_not_write_closes_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")

    def log(writer: SummaryWriter, run: legato.Run) -> None:
        monkeypatch.setattr(type(run), "is_main", run.step == 2)
        writer.add_figure("one", pyplot.figure(figsize=(1, 1)), run.step)
        assert pyplot.get_fignums() == []
        writer.add_figure("two", [pyplot.figure(figsize=(1, 1)), pyplot.figure(figsize=(1, 1))], run.step)
        assert pyplot.get_fignums() == []

    train(lambda run: SummaryWriter(run, tmp_path), log, num_epochs=1)
    found = EventAccumulator(str(tmp_path), size_guidance={"images": 0})
    found.Reload()
    steps = [[image.step for image in found.Images(tag)] for tag in found.Tags()["images"]]
    assert steps == [[1, 2]] * 2  # the calls of step 1 were kept


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


@pytest.mark.parametrize("is_marked", [True, False], ids=["all of it", "not its place"])
def test_the_next_writer_of_mlflow_adds_only_what_is_missing(store: str, is_marked: bool) -> None:
    """Values need not be the same again. The first writer may have died before it recorded the place of a call."""
    counter = iter(range(100))

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_metrics({"inf": float("inf"), "nan": float("nan"), "seconds": next(counter)})
        if run.step == 2:
            mlflow.log_params({"process": next(counter)})

    first = train(lambda run: start_run(run, tracking_uri=store), log, num_epochs=1 if is_marked else 2)
    client = MlflowClient(store)
    if not is_marked:
        client.set_tag(first.run_id, "legato.place", "3 1")

    def go_on(run: legato.Run) -> MlflowRun:
        writer = start_run(run, tracking_uri=store)
        writer._id = first._id
        return writer

    second = train(go_on, log, num_epochs=3)
    assert second.run_id == first.run_id
    for name in ("inf", "nan", "seconds"):
        steps = sorted(point.step for point in client.get_metric_history(first.run_id, name))
        # Only the call after the recorded place is in doubt.
        assert steps == [1, 2, 3, 4, 5, 6], name
    assert client.get_run(first.run_id).data.params == {"process": "2"}


def test_a_parameter_that_another_worker_has_recorded_keeps_its_value(store: str) -> None:
    first = train(
        lambda run: start_run(run, tracking_uri=store), lambda mlflow, run: mlflow.log_param("a", 1), num_epochs=1
    )
    client = MlflowClient(store)
    client.set_tag(first.run_id, "legato.place", "0 0")

    def go_on(run: legato.Run) -> MlflowRun:
        writer = start_run(run, tracking_uri=store)
        writer._id = first._id
        return writer

    train(go_on, lambda mlflow, run: mlflow.log_params({"a": 2, "b": 3} if run.step == 1 else {}), num_epochs=1)
    assert client.get_run(first.run_id).data.params == {"a": "1", "b": "3"}


def test_what_mlflow_refuses_is_left_out(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_param("step", run.step)
        mlflow.log_artifact(tmp_path / "missing.txt")
        mlflow.log_metric("loss", run.step)

    train(lambda run: start_run(run, tracking_uri=store), log, num_epochs=1)
    found = find_run(store, "Default")
    assert found.data.params == {"step": "1"} and found.data.metrics["loss"] == 2
    assert capsys.readouterr().err.count("legato: warning: MLflow: ") == 1


def test_a_store_that_is_away_ends_no_training(
    endings: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    away = "http://me:secret@127.0.0.1:9"
    with start_and_train(away) as mlflow:
        assert mlflow.run_id is None
    for end in endings:
        end()
    told = capsys.readouterr().err
    assert told.count("legato: warning: MLflow: ") == 1 and "Training goes on" in told and "secret" not in told


def hold_mlflow(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, list[int]]:
    """Let MLflow answer nothing after the third step, until the event is set; returns it, and the steps it has got."""
    answers, got, record = threading.Event(), list[int](), MlflowClient.log_batch

    def log_batch(client: MlflowClient, run_id: str, metrics: Any = (), **records: Any) -> None:
        if any(metric.key == "step" and metric.step > 3 for metric in metrics):
            assert answers.wait(60)
        got.extend(metric.step for metric in metrics if metric.key == "step")
        record(client, run_id, metrics=metrics, **records)

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    monkeypatch.setattr("legato.integrations.mlflow._PATIENCE_S", 0.05)
    return answers, got


def test_an_mlflow_that_is_away_for_a_while_holds_no_training_and_gets_all_later(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, got = hold_mlflow(monkeypatch)
    steps = []

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_metric("step", run.step)
        steps.append(run.step)

    mlflow = train(lambda run: start_run(run, tracking_uri=store), log)
    assert len(steps) == 6 and got == [1, 2, 3], "the program has trained to its end meanwhile"
    answers.set()
    mlflow.end_run()
    found = find_run(store, "Default")
    assert [point.step for point in MlflowClient(store).get_metric_history(found.info.run_id, "step")] == steps
    assert found.info.status == "FINISHED"
    assert capsys.readouterr().err.count("MLflow: no answer within 0.05 s. Training goes on") == 1


def test_an_mlflow_that_stays_away_holds_no_end_of_a_program(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, got = hold_mlflow(monkeypatch)
    monkeypatch.setattr("legato.integrations.mlflow._END_PATIENCE_S", 0.05)
    mlflow = train(lambda run: start_run(run, tracking_uri=store), lambda each, run: each.log_metric("step", run.step))
    mlflow.end_run()
    assert got == [1, 2, 3]
    assert "MLflow: no answer until the end of this worker. 3 of its calls are lost." in capsys.readouterr().err
    answers.set()


@pytest.mark.parametrize("how", ["answers", "silent", "others go on"])
def test_a_worker_that_leaves_hands_in_the_calls_that_wait(
    store: str,
    how: str,
    endings: list[Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The job was stopped, or goes on with other workers, whose first one has the calls of the last step too."""
    answers, got = hold_mlflow(monkeypatch)
    mlflow = train(lambda run: start_run(run, tracking_uri=store), lambda each, run: each.log_metric("step", run.step))
    monkeypatch.setattr(type(mlflow._run), "has_state", False)

    def is_to_leave() -> bool:
        if how == "answers":
            answers.set()
        return how != "others go on"

    monkeypatch.setattr(job, "is_to_leave", is_to_leave)
    monkeypatch.setattr("legato.integrations.mlflow._LEAVE_PATIENCE_S", 60 if how == "answers" else 0.05)
    for end in endings:
        end()
    told = capsys.readouterr().err
    assert ("3 of its calls are lost" in told) is (how != "answers")
    answers.set()
    mlflow._calls.settle(60)
    run = find_run(store, "Default")
    assert got == ([1, 2, 3, 4, 5] if how == "others go on" else [1, 2, 3, 4, 5, 6])
    # The call of step 4 was being made when this worker had to leave.
    assert run.data.tags["legato.place"] == ("4 1" if how == "others go on" else "6 1")
    assert run.info.status == "RUNNING"


def test_files_are_stored_as_they_were_when_the_program_logged_them(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, _ = hold_mlflow(monkeypatch)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    report: dict[str, int] = {}
    drawn: list[Any] = []

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_metric("step", run.step)
        report["step"] = run.step
        mlflow.log_dict(report, f"{run.step}/report.yaml")
        figure = pyplot.figure(figsize=(run.step, 1))
        mlflow.log_figure(figure, f"{run.step}/figure.png")
        monkeypatch.setattr(figure, "savefig", drawn.append)
        pyplot.close(figure)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "deep").mkdir()
            Path(folder, "deep/best.txt").write_text(f"best of {run.step}")
            mlflow.log_artifact(Path(folder, "deep/best.txt"), str(run.step))
            mlflow.log_artifacts(folder, str(run.step))
            Path(folder, "deep/best.txt").write_text("of another step")

    def begin(run: legato.Run) -> MlflowRun:
        mlflow = start_run(run, tracking_uri=store)
        early = tmp_path / "early.txt"
        early.write_text("early")
        mlflow.log_artifact(early)
        early.unlink()
        return mlflow

    mlflow = train(begin, log)
    answers.set()
    mlflow.end_run()
    there = Path(MlflowClient(store).download_artifacts(mlflow.run_id, ""))
    assert (there / "early.txt").read_text() == "early"
    for step in range(1, 7):
        assert (there / f"{step}/report.yaml").read_text() == f"step: {step}\n"
        assert (there / f"{step}/best.txt").read_text() == f"best of {step}"
        assert (there / f"{step}/deep/best.txt").read_text() == f"best of {step}"
        assert pyplot.imread(there / f"{step}/figure.png").shape[1] == 100 * step
    assert drawn == []


def test_a_file_that_is_not_stored_in_time_is_stored_again_from_a_copy(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow may read it at any time, and the program may change it."""
    monkeypatch.setattr("legato.integrations.mlflow._FILE_PATIENCE_S", 0.05)
    is_changed, record, file = threading.Event(), MlflowClient.log_artifact, tmp_path / "best.txt"

    def log_artifact(client: MlflowClient, *arguments: Any) -> None:
        assert is_changed.wait(60)
        record(client, *arguments)

    monkeypatch.setattr(MlflowClient, "log_artifact", log_artifact)

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        if run.step == 1:
            file.write_text("first")
            mlflow.log_artifact(file)
            file.write_text("changed")
            is_changed.set()

    mlflow = train(lambda run: start_run(run, tracking_uri=store), log, num_epochs=1)
    mlflow.end_run()
    assert Path(MlflowClient(store).download_artifacts(mlflow.run_id, "best.txt")).read_text() == "first"


@pytest.mark.parametrize("limit", ["calls", "bytes"])
def test_calls_without_room_are_left_out_and_later_ones_are_written(
    store: str, tmp_path: Path, limit: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, got = hold_mlflow(monkeypatch)
    monkeypatch.setattr("legato.integrations.patient_calls._MAX_WAITING", 2 if limit == "calls" else 99)
    monkeypatch.setattr("legato.integrations.patient_calls._MAX_WAITING_BYTES", 10)
    (tmp_path / "large.bin").write_bytes(bytes(11))

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        if run.step == 8:
            answers.set()
            mlflow._calls.settle(60)
        if limit == "bytes" and run.step in (6, 7):
            mlflow.log_artifact(tmp_path / "large.bin")
        else:
            mlflow.log_metric("step", run.step)

    train(lambda run: start_run(run, tracking_uri=store), log, num_epochs=4)
    assert got == [1, 2, 3, 4, 5, 8]
    told = capsys.readouterr().err
    what = "2 calls wait" if limit == "calls" else "0 MiB of files wait"
    assert told.count(f"MLflow: {what}. Calls for which there is no room are left out until MLflow answers.") == 1
    assert told.count("MLflow: it answers again. Meanwhile 2 calls were left out.") == 1
    assert MlflowClient(store).list_artifacts(find_run(store, "Default").info.run_id) == []


def test_late_errors_take_no_other_call_with_them(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two calls fail late; the number of workers changes when this worker learns of it."""
    answers, record = threading.Event(), MlflowClient.log_batch
    found: list[BaseException] = []

    def log_batch(client: MlflowClient, run_id: str, **records: Any) -> None:
        if records.get("params"):
            assert answers.wait(60)
        record(client, run_id, **records)

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    monkeypatch.setattr("legato.integrations.mlflow._PATIENCE_S", 0.05)
    note = MlflowRun._note_failure

    def note_failure(mlflow: MlflowRun, error: BaseException, **how: Any) -> bool:
        found.append(error)
        return note(mlflow, error, **how)

    monkeypatch.setattr(MlflowRun, "_note_failure", note_failure)

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        if run.step == 3:
            for value in (1, 2, 3):
                mlflow.log_param("lr", value)
        if run.step == 4:
            answers.set()
            mlflow._calls._waiting[-1].ended.wait(60)
            mlflow._num_workers = 99
        mlflow.log_metric("step", run.step)

    mlflow = train(lambda run: start_run(run, tracking_uri=store), log)
    points = MlflowClient(store).get_metric_history(mlflow.run_id, "step")
    assert [point.step for point in points] == [1, 2, 3, 4, 5, 6]
    assert len(found) == 2
    assert capsys.readouterr().err.count("are not written") == 1


def test_an_error_that_comes_late_is_reported_once_and_ends_no_training(
    store: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers, failed = threading.Event(), threading.Event()

    def log_batch(*_: Any, **records: Any) -> None:
        assert answers.wait(60)
        failed.set()
        raise MlflowException("the disk is full")

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    monkeypatch.setattr("legato.integrations.mlflow._PATIENCE_S", 0.05)

    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_metric("step", run.step)
        if run.step == 3:
            answers.set()
            assert failed.wait(60)

    train(lambda run: start_run(run, tracking_uri=store), log)
    assert capsys.readouterr().err.count("the disk is full. Training goes on") == 1


def test_mlflow_draws_no_random_numbers_of_the_program(store: str) -> None:
    from mlflow.utils import name_utils, request_utils, rest_utils

    start_and_train(store)
    before = random.getstate()
    for module in (name_utils, request_utils, rest_utils):
        module.random.random()
    name_utils._generate_random_name()
    assert random.getstate() == before


def test_an_experiment_that_was_deleted_ends_no_training(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    client = MlflowClient(store)
    client.delete_experiment(client.create_experiment("gone"))
    train(
        lambda run: start_run(run, experiment_name="gone", tracking_uri=store),
        lambda mlflow, run: mlflow.log_metric("step", run.step),
    )
    assert capsys.readouterr().err.count("Training goes on") == 1


def test_a_worker_that_leaves_does_not_end_the_run(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may call `end_run` in its own ``finally``."""
    mlflow = start_and_train(store)
    monkeypatch.setattr(type(mlflow._run), "has_state", False)
    mlflow.end_run()
    assert find_run(store, "Default").info.status == "RUNNING"


def start_and_train(uri: str) -> MlflowRun:
    def log(mlflow: MlflowRun, run: legato.Run) -> None:
        mlflow.log_metric("loss", run.loss or 0.0)

    return train(lambda run: start_run(run, tracking_uri=uri), log, num_epochs=1)  # type: ignore[no-any-return]


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
    with pytest.raises(UsageError, match=r"cannot write to s3://bucket/run\. Pass a directory"):
        train(lambda run: SummaryWriter(run, "s3://me:secret@bucket/run"), lambda *_: None)

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
