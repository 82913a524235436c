"""Logs that are too long lose their oldest part, and everything that reads them begins where they begin."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from legato.cli.terminal.display import LogFollower
from legato.driver import log_caps
from legato.driver.journal import JobDirectory
from legato.driver.log_caps import LogCaps, find_begin
from legato.server.job_files import list_files
from legato.server.log_search import find_place, search_log
from legato.server.logs import Place, Reader, read_piece, shorten

CAP = 2**20
NUM_LINES = 40_000


@pytest.fixture
def job(tmp_path: Path) -> JobDirectory:
    job = JobDirectory(tmp_path / "j")
    job.logs.mkdir(parents=True)
    return job


def write(path: Path, num_lines: int = NUM_LINES, first: int = 0) -> None:
    """Write numbered lines of 50 bytes, as a process that holds the log open."""
    with path.open("ab") as file:
        file.write(b"".join(b"line %044d\n" % number for number in range(first, first + num_lines)))


def caps(job: JobDirectory) -> LogCaps:
    return LogCaps(job, CAP, lambda told: None)


def lines_left(path: Path) -> list[bytes]:
    with path.open("rb") as file:
        file.seek(find_begin(file.fileno()))
        return file.read().splitlines()


def test_the_oldest_part_goes_and_offsets_stay(job: JobDirectory) -> None:
    path = job.log_path(0)
    with path.open("ab") as held:
        write(path)
        size = path.stat().st_size
        place = size - 50 * 10
        assert caps(job).drop() is None
        assert path.stat().st_size == size
        assert path.stat().st_blocks * 512 <= CAP
        told, *rest = lines_left(path)
        begin = size - sum(len(line) + 1 for line in rest)
        assert (
            told
            == b"[legato] The first %d bytes of this log were dropped: a log is kept to %d bytes (log_max_bytes)."
            % (
                begin,
                CAP,
            )
        )
        assert rest[0].startswith(b"line "), "a whole line comes first"
        assert CAP * 3 // 4 < size - begin <= CAP
        with path.open("rb") as file:
            file.seek(place)
            assert file.read(50) == b"line %044d\n" % (NUM_LINES - 10)
        # Who holds it open continues behind the end, and the next drop leaves one such line.
        held.write(b"more\n")
    write(path, first=NUM_LINES)
    assert caps(job).drop() is None
    left = lines_left(path)
    assert [line.startswith(b"[legato]") for line in left].count(True) == 1
    assert left[-1] == b"line %044d" % (2 * NUM_LINES - 1)


def test_logs_that_are_short_enough_stay(job: JobDirectory) -> None:
    write(job.log_path(0), 100)
    (job.path / "driver.log").write_text("short\n")
    content = job.log_path(0).read_bytes()
    assert caps(job).drop() is None
    assert job.log_path(0).read_bytes() == content
    assert lines_left(job.path / "driver.log") == [b"short"]


def test_one_line_without_an_end_is_cut(job: JobDirectory) -> None:
    job.log_path(0).write_bytes(b"x" * (3 * CAP))
    caps(job).drop()
    told, rest = lines_left(job.log_path(0))
    assert told.startswith(b"[legato]")
    assert set(rest) == {ord("x")}


def test_what_is_no_plain_log_is_not_touched(job: JobDirectory, tmp_path: Path) -> None:
    other = tmp_path / "precious"
    write(other)
    content = other.read_bytes()
    job.log_path(0).symlink_to(other)
    job.log_path(1).hardlink_to(other)
    os.mkfifo(job.log_path(2))
    assert caps(job).drop() is None
    assert other.read_bytes() == content


def test_what_takes_the_place_of_a_log_in_the_meantime_is_not_touched(
    job: JobDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(job.log_path(0))
    other, really_open = tmp_path / "precious", os.open
    write(other)
    content = other.read_bytes()

    def swap_and_open(path: Path, flags: int) -> int:
        other.rename(path)
        return really_open(path, flags)

    with monkeypatch.context() as patching:
        patching.setattr(log_caps.os, "open", swap_and_open)
        assert caps(job).drop() is None
    assert job.log_path(0).read_bytes() == content


def test_a_log_with_a_second_name_is_not_shortened_and_reported_once(job: JobDirectory, tmp_path: Path) -> None:
    write(job.log_path(0))
    (tmp_path / "other").hardlink_to(job.log_path(0))
    told: list[str] = []

    async def watch() -> None:
        looks = LogCaps(job, CAP, told.append)
        num_looks = 0
        watched = asyncio.Event()
        drop = looks.drop

        def count() -> str | None:
            nonlocal num_looks
            num_looks += 1
            found = drop()
            if num_looks == 3:
                loop.call_soon_threadsafe(watched.set)
            return found

        loop = asyncio.get_running_loop()
        looks.drop = count  # type: ignore[method-assign]
        watching = asyncio.create_task(looks.watch_forever())
        await watched.wait()
        watching.cancel()

    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(log_caps, "_LOOK_EVERY_S", 0.0)
        asyncio.run(watch())
    assert len(told) == 1 and "has a second name elsewhere (a hard link)" in told[0]
    assert lines_left(job.log_path(0))[0] == b"line %044d" % 0


def test_a_file_system_without_holes_is_reported(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    write(job.log_path(0))

    def refuse(descriptor: int, num_bytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(log_caps, "_punch", refuse)
    told = caps(job).drop()
    assert told is not None
    assert "cannot punch holes" in told
    assert lines_left(job.log_path(0))[0] == b"line %044d" % 0, "nothing of it was lost"


def test_every_reader_begins_where_the_log_begins(job: JobDirectory) -> None:
    path = job.log_path(0)
    write(path)
    caps(job).drop()
    with path.open("rb") as file:
        begin = find_begin(file.fileno())
    size = path.stat().st_size
    first = lines_left(path)[0]
    piece = read_piece(job.path, "worker-0", offset=0, tail=None, max_bytes=1000)
    assert (piece.first, piece.end) == (begin, begin + 1000)
    assert piece.content.startswith(first)
    piece = read_piece(job.path, "worker-0", offset=0, tail=10**6, max_bytes=4 * CAP)
    assert (piece.first, piece.end) == (begin, size)
    assert b"\0" not in piece.content
    found = search_log(job.path, "worker-0", contains="", level=None, after=0, limit=2)
    assert found.items[0].offset == begin
    assert found.items[0].text == first.decode()
    assert search_log(job.path, "worker-0", contains="\0", level=None, after=0, limit=2).items == ()
    assert find_place(job.path, "worker-0", 0.0).offset == begin
    for place in (Place({}), Place({"worker-0": 10})):
        reader = Reader(job.path, (), place)
        (addition,) = reader.read(is_last=False)
        assert addition.text.startswith(first.decode())
    follower = LogFollower(job.logs, from_start=True)
    assert follower.read(0).startswith(first.decode())
    (entry,) = list_files(job.path, ("logs",), is_recursive=False).items
    assert shorten(job.path, entry).num_bytes == size - begin


def test_a_system_without_holes_is_reported_once(job: JobDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    write(job.log_path(0))
    monkeypatch.setattr(log_caps.ctypes, "CDLL", lambda *_args, **_options: object())
    told = caps(job).drop()
    assert told is not None and "cannot punch holes" in told
