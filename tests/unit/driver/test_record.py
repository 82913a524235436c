"""What is written down reaches the disk, also what comes last."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from legato.core import wire
from legato.driver import events
from legato.driver.journal import JobDirectory
from legato.driver.record import Records
from legato.driver.status import Meter


def test_what_is_being_written_when_the_writer_is_cancelled_is_not_lost(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    busy = threading.Event()

    async def play() -> None:
        # The one thread that writes has something else to do first.
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        before = loop.run_in_executor(None, busy.wait)
        records = Records(directory, lambda: 0.0)
        writing = asyncio.create_task(records.write_forever())
        records.note_event(events.Record(kind="note", reason="the last but one"))
        for _ in range(5):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        records.note_event(events.Record(kind="note", reason="the last"))
        busy.set()
        await records.flush()
        await before

    asyncio.run(play())
    lines = [json.loads(line) for line in directory.events_file.read_text().splitlines()]
    assert [line["reason"] for line in lines] == ["the last but one", "the last"]


def test_metrics_count_as_known_only_when_they_are_on_disk(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)

    def metrics(index: int) -> wire.Metrics:
        return wire.Metrics(index=index, step=index, epoch=0, values={})

    async def play() -> None:
        records = Records(directory, lambda: 0.0)
        assert records.num_metrics == 0
        for index in (0, 1):
            assert records.note_metrics(metrics(index))
        assert records.num_metrics == 0
        await records.flush()
        assert records.num_metrics == 2
        assert records.note_metrics(metrics(4)), "what lies between was lost; it is not waited for"
        await records.flush()
        assert records.num_metrics == 5
        assert records.note_metrics(metrics(3)) and not records.note_metrics(metrics(3))

    asyncio.run(play())
    later = Records(directory, lambda: 0.0)
    later.load()
    assert later.num_metrics == 5


def test_commits_are_written_after_what_was_logged_before_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = JobDirectory(tmp_path)
    opened: list[Path] = []
    open_path = Path.open

    def note(path: Path, *given: Any, **more: Any) -> Any:
        opened.append(path)
        return open_path(path, *given, **more)

    async def play() -> None:
        records = Records(directory, lambda: 0.0)
        for epoch in (0, 1):
            step = {"first_step": epoch + 1, "last_step": epoch + 1, "epoch": epoch, "num_samples": 8}
            others = dict.fromkeys(("loss", "num_steps", "num_epochs"))
            records.note_progress(0, msgspec.convert(step | others, wire.Progress))
            records.note_metrics(wire.Metrics(index=epoch, step=epoch + 1, epoch=epoch, values={"accuracy": 0.5}))
        await records.flush()

    monkeypatch.setattr(Path, "open", note)
    asyncio.run(play())
    assert opened == [directory.metrics_file, directory.ledger_file]


def test_the_loss_of_each_step_is_recorded_once_with_the_time_of_its_commit(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)

    def report(*steps: int) -> wire.Progress:
        losses = tuple(wire.StepLoss(step, step // 4, age_s=10.0 - step, loss=1 / step) for step in steps)
        fields: dict[str, Any] = {"epoch": 0, "loss": 0.5, "num_steps": 9, "num_epochs": 1, "num_samples": 4}
        return wire.Progress(first_step=steps[0], last_step=steps[-1], losses=losses, **fields)

    async def play(records: Records) -> None:
        # A worker that joined after step 4 knows the losses of its own steps only, and reports first.
        records.note_progress(0, report(1, 2))
        records.note_progress(1, report(5))
        await records.flush()
        assert records.losses_to_step == 2, "the other worker must not forget the losses that it has not sent yet"
        records.note_progress(0, report(2, 3, 4, 5))
        assert records.losses_to_step == 2
        await records.flush()
        assert records.losses_to_step == 5

    asyncio.run(play(Records(directory, lambda: 10.0)))
    lines = [json.loads(line) for line in directory.losses_file.read_text().splitlines()]
    assert [line["step"] for line in lines] == [[1, 2], [5], [3, 4]]
    assert lines[2] == {"step": [3, 4], "epoch": [0, 1], "time": [3.0, 4.0], "loss": [1 / 3, 1 / 4]}

    # The job continues from its checkpoint of step 3: only step 6 is new.
    later = Records(directory, lambda: 20.0)
    later.load()
    assert later.losses_to_step == 5
    later.note_progress(0, report(4, 5, 6))
    asyncio.run(later.flush())
    assert json.loads(directory.losses_file.read_text().splitlines()[-1])["step"] == [6]

    # A worker had no room for the losses of steps 8 and 10.
    later.note_progress(0, report(7, 9, 11))
    asyncio.run(later.flush())
    assert later.losses_to_step == 11


def test_a_report_of_the_phase_commits_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    records, meter = Records(JobDirectory(tmp_path), lambda: 0.0), Meter()

    def note(**fields: Any) -> tuple[int, str | None]:
        told = {"epoch": 0, "loss": 1.0, "num_steps": 9, "num_epochs": 1, **fields}
        progress = wire.Progress(**told)
        found = records.note_progress(0, progress)
        meter.note(progress, found[0], 1.0)
        return found

    assert note(first_step=1, last_step=2, num_samples=8) == (2, None)
    assert note(first_step=2, last_step=2, num_samples=0, phase="evaluate") == (0, None)
    assert meter.last is not None and (meter.last.phase, meter.last.last_step) == ("evaluate", 2)
    assert note(first_step=3, last_step=3, num_samples=4) == (1, None)
    assert meter.last.phase == "train"
    assert note(first_step=3, last_step=3, num_samples=4)[1] is not None, "but a step is committed once"


def test_metrics_that_never_came_are_reported(tmp_path: Path) -> None:
    records = Records(JobDirectory(tmp_path), lambda: 0.0)
    for index in (0, 1, 5):
        assert records.note_metrics(wire.Metrics(index=index, step=index, epoch=0, values={}))
    assert records.describe_lost_metrics() == "the metrics of 3 calls of run.log were lost on their way to the driver"
    for index in (2, 3, 4):
        records.note_metrics(wire.Metrics(index=index, step=index, epoch=0, values={}))
    assert records.describe_lost_metrics() is None


def test_lines_that_a_full_disk_has_lost_are_reported_when_it_takes_lines_again(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    records = Records(directory, lambda: 0.0)

    def log(index: int) -> None:
        records.note_metrics(wire.Metrics(index=index, step=index, epoch=0, values={}))
        asyncio.run(records.flush())

    directory.metrics_file.mkdir()  # it cannot be written
    log(0)
    log(1)
    assert records.take_lost() == 0, "not yet, because the event would be lost too"
    directory.metrics_file.rmdir()
    log(2)
    assert records.take_lost() == 2
    assert records.take_lost() == 0
