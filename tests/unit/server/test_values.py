"""Parameters and last metrics of several jobs, for tables."""

from __future__ import annotations

import contextlib
import errno
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.unit.server.platform import ADMIN, NOW, Platform

from legato.client.client import Client
from legato.control.records import Queue
from legato.driver.journal import JobDirectory
from legato.server import last_values
from legato.server.last_values import MAX_NAMES, LastValues


def line(**values: float | None) -> str:
    return json.dumps({"step": 1, "epoch": 0, "time": 1.0, "values": values}) + "\n"


def read_one(last: LastValues, file: Path) -> dict[str, float | None]:
    (found,) = last.read([file])
    assert found.is_complete
    return found.values


def test_only_new_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, last, read = tmp_path / "metrics.jsonl", LastValues(), list[bytes]()
    assert read_one(last, file) == {}
    note = LastValues._note

    def count(self: LastValues, text: bytes, into: dict[str, float | None]) -> None:
        read.append(text)
        note(self, text, into)

    monkeypatch.setattr(LastValues, "_note", count)
    file.write_text(line(loss=1.0, acc=0.5) + line(loss=0.5) + '{"step": 3, "va')
    assert read_one(last, file) == {"loss": 0.5, "acc": 0.5}
    num = len(read)
    assert read_one(last, file) == {"loss": 0.5, "acc": 0.5}
    assert [text for text in read[num:] if text] == [], "the half line at its end is no line yet"
    file.write_text(line(loss=1.0, acc=0.5) + line(loss=0.5) + line(loss=None) + "no JSON\n" + line(lr=0.1))
    assert read_one(last, file) == {"loss": None, "acc": 0.5, "lr": 0.1}
    assert not any(b"acc" in text for text in read[num:]), "it was read before"
    file.write_text(line(loss=9.0))
    assert read_one(last, file) == {"loss": 9.0}, "the file was replaced by a shorter one"


def test_lines_longer_than_a_part_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_values, "_PART_BYTES", 16)
    (tmp_path / "m").write_text(line(loss=1.0) + line(acc=2.0))
    assert read_one(LastValues(), tmp_path / "m") == {"loss": 1.0, "acc": 2.0}


def test_a_program_cannot_fill_the_memory_with_names(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("".join(line(**{f"m{number}": 1.0}) for number in range(MAX_NAMES + 9)) + line(m0=2.0))
    found = read_one(LastValues(), tmp_path / "m")
    assert (len(found), found["m0"]) == (MAX_NAMES, 2.0)


def test_names_that_no_table_shows_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "m").write_text(line(**{"x" * 255: 1.0, "y" * 256: 2.0}))
    assert read_one(LastValues(), tmp_path / "m") == {"x" * 255: 1.0}


def test_nested_lines_and_files_that_cannot_be_read_cost_only_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nested, bad, good = (tmp_path / name for name in ("nested", "bad", "good"))
    nested.write_text(line(loss=1.0) + '{"x": ' + "[" * 5000 + "]" * 5000 + ', "values": {}}\n' + line(acc=2.0))
    good.write_text(line(loss=3.0))
    open_file = last_values.open_file

    def fail(root: Path, parts: tuple[str, ...]) -> BinaryIO:
        if parts == ("bad",):
            raise OSError(errno.EIO, "Input/output error")
        return open_file(root, parts)

    monkeypatch.setattr(last_values, "open_file", fail)
    found = LastValues().read([nested, bad, tmp_path / "none", good])
    assert [one.values for one in found] == [{"loss": 1.0, "acc": 2.0}, {}, {}, {"loss": 3.0}]


def test_a_request_reads_so_much_and_the_next_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = line(loss=1.0)
    monkeypatch.setattr(last_values, "_PART_BYTES", len(one))
    monkeypatch.setattr(last_values, "MAX_READ_BYTES", 3 * len(one))
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.write_text(one + line(loss=2.0))
    last = LastValues()
    assert list(last.read(files)) == [({"loss": 2.0}, True), ({"loss": 1.0}, False)]
    assert list(last.read(files)) == [({"loss": 2.0}, True), ({"loss": 2.0}, True)]


def test_two_requests_at_once_read_a_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m").write_text(line(loss=1.0))
    num, both, read_new = 0, threading.Barrier(2), LastValues._read_new

    def count(self: LastValues, *given: Any) -> Any:
        nonlocal num
        num += 1
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)  # no second thread comes, unless both read
        return read_new(self, *given)

    monkeypatch.setattr(LastValues, "_read_new", count)
    last = LastValues()
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(lambda _: read_one(last, tmp_path / "m"), range(2))) == [{"loss": 1.0}] * 2
    assert num == 1


def test_values_of_the_jobs_that_the_asker_sees(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    job, bare = platform.submit(parameters={"lr": 0.1, "fast": True}, queue="default"), platform.submit()
    directory = JobDirectory(platform.directory(job))
    directory.metrics_file.parent.mkdir(parents=True, exist_ok=True)
    directory.metrics_file.write_text(line(acc=0.5) + line(acc=0.75))
    asked = f"job-values?job={job}&job=j-none&job={bare}&job={job}"
    assert platform.get(asked)["items"] == [
        {"job": job, "parameters": {"lr": 0.1, "fast": True}, "metrics": {"acc": 0.75}, "is_complete": True},
        {"job": bare, "parameters": {}, "metrics": {}, "is_complete": True},
    ]
    assert platform.ask("GET", "job-values").status_code == 422
    assert platform.ask("GET", "job-values?" + "job=j-1&" * 101).status_code == 422
    platform.store.queues.put(Queue(name="admins", is_open=False), ADMIN, NOW)
    hidden = platform.submit("admin", queue="admins")
    assert platform.get(f"job-values?job={hidden}")["items"] == []
    with Client(platform.url, platform.secrets["ann"]) as client:
        found = client.job_values([job] * 99 + [bare, bare])
        assert [one.job for one in found] == [job, bare, bare]
        # Also if the server reads them in several requests.
        directory.metrics_file.write_text(line(acc=0.5) + line(acc=0.9))
        monkeypatch.setattr(last_values, "_PART_BYTES", len(line(acc=0.5)))
        monkeypatch.setattr(last_values, "MAX_READ_BYTES", len(line(acc=0.5)))
        monkeypatch.setattr("legato.server.routes.job_details._LAST", LastValues())
        (read,) = client.job_values([job])
        assert (read.metrics, read.is_complete) == ({"acc": 0.9}, True)
