"""The lines of ELog and EMetrics, byte for byte."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from legato.compat.wmla.fabric.records import ELog, EMetrics
from legato.compat.wmla.site.elog import ELog as ELogOfSite
from legato.compat.wmla.site.emetrics import EMetrics as EMetricsOfSite

NOW_S = 1_700_000_000.4567


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("time.time", lambda: NOW_S)
    monkeypatch.setattr("time.strftime", lambda form, *_: f"<{form}>")
    for name in ("JOB_STATE_DIR", "RESULT_DIR", "TRAINING_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "log"))


def test_a_log_of_generation_1(tmp_path: Path) -> None:
    with ELog.open() as log:
        log.recordTrain("Train", 7, 12, 0.123456789, 1 / 3, 2)
        log.recordTest("Test", 2.0, 0.6275, 0)
    with ELog.open() as log:
        log.recordTrain("Train", 8, 13, -2.6, 1.0, 0)
        log.recordText("Train finished.")
    assert (tmp_path / "log/stdout").read_text() == (
        "[<%Y-%m-%d %H:%M:%S>] Train,\tTimestamp: 1700000000457,\tGlobal steps: 12,\tIteration: 7,"
        "\tLoss: 0.12346,\tAccuracy: 0.33333\n"
        "[<%Y-%m-%d %H:%M:%S>] Test,\tTimestamp: 1700000000457,\tLoss: 2.0,\tAccuracy: 0.6275\n"
        "[<%Y-%m-%d %H:%M:%S>] Train,\tTimestamp: 1700000000457,\tGlobal steps: 13,\tIteration: 8,"
        "\tLoss: -2.6,\tAccuracy: 1.0\n"
        "[<%Y-%m-%d %H:%M:%S>] Train finished.\n"
    )


def test_a_log_of_metrics_by_name(tmp_path: Path) -> None:
    with ELog.open() as log:
        log.recordTrain("Train", 7, 12, {"loss": 0.5, "top5": 1e-7})
        log.recordTest("Test", {"loss": 0.25})
    assert (tmp_path / "log/stdout").read_text() == (
        "[<%Y-%m-%d %H:%M:%S>] Train,\tTimestamp: 1700000000457,\tGlobal steps: 12,\tIteration: 7,"
        "\tloss: 0.5,\ttop5: 0.0\n"
        "[<%Y-%m-%d %H:%M:%S>] Test,\tTimestamp: 1700000000457,\tloss: 0.25\n"
    )


def test_the_columns_that_notebooks_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("LOG_DIR", str(tmp_path / "log"))
    with ELog.open() as log:
        log.recordTrain("Train", 7, 12, 0.5, 0.75)
    line = (tmp_path / "log/stdout").read_text()
    assert re.match(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] Train,\tTimestamp: \d{13},", line)
    columns = line.replace(":", ",").split(",")
    assert [columns[index].strip() for index in (6, 8, 10, 12)] == ["12", "7", "0.5", "0.75"]
    assert columns[4].strip().isdecimal()


def test_metrics(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINING_ID", "j-1")
    with EMetrics.open() as metrics:
        metrics.record(EMetrics.TEST_GROUP, 7, {"loss": 0.5, "count": 3, "word": "x"})
    assert (tmp_path / "log/evaluation-metrics.txt").read_text() == (
        '{"meta": {"training_id": "j-1", "time": 1700000000456, "rindex": 1}, "grouplabel": "test", '
        '"etimes": {"iteration": {"type": 2, "value": "7"}, '
        '"time_stamp": {"value": "<%Y-%m-%dT%H:%M:%S>.1700000000"}}, '
        '"values": {"loss": {"type": 3, "value": "0.5"}, "count": {"type": 2, "value": "3"}, '
        '"word": {"value": "x"}}}\n'
    )
    assert not (tmp_path / "val_dict_list.json").exists()


def test_metrics_of_a_part_of_a_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RESULT_DIR", str(tmp_path))
    with EMetrics.open("4") as metrics:
        metrics.record(EMetrics.TRAIN_GROUP, 1, {"loss": 0.9})
        metrics.record(EMetrics.TEST_GROUP, 2, {"loss": 0.5})
    lines = [json.loads(line) for line in (tmp_path / "log/4/evaluation-metrics.txt").read_text().splitlines()]
    assert [line["meta"]["subid"] for line in lines] == ["4", "4"]
    assert json.loads((tmp_path / "val_dict_list.json").read_text()) == [{"steps": 2, "loss": 0.5}]


def test_an_empty_sub_id_is_none(tmp_path: Path) -> None:
    with ELog.open("") as log, EMetrics.open("") as metrics:  # the value of SUBID in jobs that are not part of a search
        log.recordText("here")
        metrics.record(EMetrics.TEST_GROUP, 1, {"loss": 0.5})
    (line,) = (tmp_path / "log/evaluation-metrics.txt").read_text().splitlines()
    assert "subid" not in json.loads(line)["meta"] and (tmp_path / "log/stdout").exists()
    assert not list(tmp_path.rglob("val_dict_list.json"))


def test_the_files_without_a_log_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOG_DIR")
    monkeypatch.setenv("JOB_STATE_DIR", str(tmp_path / "state"))
    with ELog.open() as log, EMetrics.open() as metrics:
        log.recordText("here")
        metrics.record("train", 1, {})
    assert sorted(path.name for path in (tmp_path / "state/logs").iterdir()) == ["evaluation-metrics.txt", "stdout"]


def test_the_modules_of_the_site_are_these() -> None:
    assert ELogOfSite is ELog and EMetricsOfSite is EMetrics
