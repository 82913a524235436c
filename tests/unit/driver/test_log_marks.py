"""Lines of several logs in order of time: how long each was when, and what follows from that."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from legato.driver import log_marks
from legato.driver.journal import JobDirectory
from legato.driver.log_marks import MARKS_FILE, LogMarks, Stretch, read_marks


def append(directory: JobDirectory, worker: int, text: str) -> None:
    directory.logs.mkdir(parents=True, exist_ok=True)
    with directory.log_path(worker).open("a") as file:
        file.write(text)


def read(directory: JobDirectory) -> tuple[Stretch, ...]:
    return read_marks((directory.logs / MARKS_FILE).read_bytes().splitlines())


def test_what_is_noted_puts_logs_in_order(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    marks = LogMarks(directory, lambda: 0.0, lambda: 7.0)
    marks.write()  # no worker has written yet, and there is no folder
    for worker, text in ((0, "a"), (1, "b"), (1, "c"), (0, "d")):
        append(directory, worker, text)
        marks.write()
        marks.write()
    (directory.logs / "worker-x.log").write_text("odd")
    (directory.logs / "notes.txt").write_text("odd")
    assert read(directory) == (Stretch(0, 1), Stretch(1, 2), Stretch(0, 2))
    assert (directory.logs / MARKS_FILE).read_bytes().count(b"\n") == 4, "only what has grown"


def test_another_driver_goes_on(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    append(directory, 0, "a")
    LogMarks(directory, lambda: 0.0, lambda: 7.0).write()
    append(directory, 1, "b")
    LogMarks(directory, lambda: 0.0, lambda: 8.0).write()
    assert read(directory) == (Stretch(0, 1), Stretch(1, 1))


def test_a_log_that_was_started_again_has_its_new_place() -> None:
    told = [b'{"time": 1, "ends": {"0": 9}}', b'{"time": 2, "ends": {"1": 5}}', b'{"time": 3, "ends": {"0": 4}}']
    assert read_marks(told) == (Stretch(1, 5), Stretch(0, 4))
    assert read_marks([b"", b"no", b'{"time": 1, "ends": {"x": 1}}', *told[:1]]) == (Stretch(0, 9),)


def test_marks_that_a_program_wrote_delay_no_reader() -> None:
    num = 60_000
    many = b'{"time": 1, "ends": {%s}}' % b",".join(b'"%d":9' % worker for worker in range(1, num))
    # If each of these looked at all before it, this test would not come to an end.
    shorter = (b'{"time": 1, "ends": {"0": %d}}' % (9 * num - number) for number in range(2 * num))
    assert read_marks([many, *shorter])[-2:] == (Stretch(num - 1, 9), Stretch(0, 7 * num + 1))
    nested = b'{"x": ' + b"[" * 100_000
    long = b'{"time": 1, "ends": {"2": 7}}' + b" " * 2**20
    assert read_marks([nested, long, b'{"time": 1, "ends": {"0": 9}}']) == (Stretch(0, 9),)


def test_no_more_stretches_are_kept_than_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_marks, "_MAX_STRETCHES", 3)
    told = [b'{"time": 1, "ends": {"%d": %d}}' % (number % 2, number + 1) for number in range(9)]
    assert read_marks(told) == (Stretch(0, 1), Stretch(1, 2), Stretch(0, 3))


def test_of_long_jobs_less_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = LogMarks(JobDirectory(tmp_path), iter([0.0, 1.0, 1e6]).__next__, lambda: 7.0)
    pauses: list[float] = []

    async def live() -> None:
        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 2:
                raise asyncio.CancelledError

        monkeypatch.setattr(asyncio, "sleep", sleep)
        await marks.write_forever()

    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(live())
    assert pauses == [1.0, 100.0]


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path)
    append(directory, 0, "a")
    (directory.logs / MARKS_FILE).mkdir()
    LogMarks(directory, lambda: 0.0, lambda: 7.0).write()


def test_a_pipe_is_not_waited_for_and_a_link_not_followed(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "job")
    append(directory, 0, "a")
    (directory.logs / MARKS_FILE).symlink_to(tmp_path / "elsewhere")
    LogMarks(directory, lambda: 0.0, lambda: 7.0).write()
    assert not (tmp_path / "elsewhere").exists()
    (directory.logs / MARKS_FILE).unlink()
    os.mkfifo(directory.logs / MARKS_FILE)
    LogMarks(directory, lambda: 0.0, lambda: 7.0).write()
