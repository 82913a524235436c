"""Copies of a program's output in the files of its process and of the driver."""

from __future__ import annotations

import fcntl
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from legato.compat.wmla.fabric import copies
from legato.compat.wmla.fabric.copies import (
    KEPT_CHARS,
    add_once,
    copy_failure_to_driver,
    copy_streams,
    copy_to_driver,
    not_for_driver,
)
from legato.compat.wmla.names import ERR_FILE, OUT_FILE


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, Path]]:
    """The log directories of a process and of the driver; the streams are restored afterwards."""
    monkeypatch.setattr(copies, "_streams", [])
    own, driver = tmp_path / "own", tmp_path / "driver"
    own.mkdir()
    driver.mkdir()
    streams = sys.stdout, sys.stderr
    yield own, driver
    sys.stdout, sys.stderr = streams
    for _, stream in copies._streams:
        stream.close()


def test_rank_0_copies_all_its_output_to_the_driver(places: tuple[Path, Path]) -> None:
    own, driver = places
    copy_streams(own)
    print("before")
    with not_for_driver():
        print("my own")
    copy_to_driver(driver)
    with (driver / OUT_FILE).open("a") as file:
        file.write("START\n")
    print("during")
    print("a warning", file=sys.stderr)
    with not_for_driver():
        print("my own too")
    (driver / OUT_FILE).rename(driver / "moved")
    print("after")
    assert (driver / "moved").read_text() == "before\nSTART\nduring\nafter\n"
    assert (driver / ERR_FILE).read_text() == "a warning\n"
    assert (own / OUT_FILE).read_text() == "before\nmy own\nduring\nmy own too\nafter\n"
    assert (own / ERR_FILE).read_text() == "a warning\n"


def test_another_directory_of_the_driver_gets_all_output_too(places: tuple[Path, Path]) -> None:
    own, driver = places
    copy_streams(own)
    print("one")
    copy_to_driver(driver)
    (driver / "next").mkdir()
    copy_to_driver(driver / "next")
    print("two")
    assert (driver / OUT_FILE).read_text() == "one\n"
    assert (driver / "next" / OUT_FILE).read_text() == "one\ntwo\n"


def test_the_end_of_long_output_is_kept(places: tuple[Path, Path]) -> None:
    own, driver = places
    copy_streams(own)
    line = "x" * 1023
    for number in range(KEPT_CHARS // 1024 + 100):
        sys.stdout.write(f"{line}\n" if number else "first\n")
    print("last")
    copy_to_driver(driver)
    told = (driver / OUT_FILE).read_text()
    assert KEPT_CHARS - 2048 < len(told) <= KEPT_CHARS
    assert told.endswith("x\nlast\n")
    assert (own / OUT_FILE).read_text().startswith("first\n")


def test_a_failure_is_reported_once_with_the_output_before_it(places: tuple[Path, Path]) -> None:
    own, driver = places
    copy_streams(own)
    print("a warning", file=sys.stderr)
    print("printed")
    copy_failure_to_driver(driver)
    sys.stderr.write("Traceback\nError: 1\n")
    sys.stderr.write("Traceback\nError: 1\n")
    assert (driver / ERR_FILE).read_text() == "a warning\nTraceback\nError: 1\n"
    assert (own / ERR_FILE).read_text() == "a warning\n" + 2 * "Traceback\nError: 1\n"
    assert not (driver / OUT_FILE).exists()


def test_the_failure_of_rank_0_follows_its_output_once(places: tuple[Path, Path]) -> None:
    own, driver = places
    copy_streams(own)
    print("a warning", file=sys.stderr)
    copy_to_driver(driver)
    add_once(driver / ERR_FILE, "Error of another\n")
    copy_failure_to_driver(driver)
    sys.stderr.write("Error of another\n")
    sys.stderr.write("Error of mine\n")
    assert (driver / ERR_FILE).read_text() == "a warning\nError of another\nError of mine\n"


def test_processes_that_fail_alike_at_once_are_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "err"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_once(path, "Error: alike\n", before=f"{number}\n"), range(64)))
    first, last = path.read_text().splitlines()
    assert first.isdecimal() and last == "Error: alike"


def test_a_writer_waits_until_no_other_one_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, waits = tmp_path / "err", threading.Event()
    lock = fcntl.flock

    def flock(file: IO[bytes], how: int) -> None:
        waits.set()
        lock(file, how)

    with path.open("ab") as file, ThreadPoolExecutor(1) as pool:
        lock(file, fcntl.LOCK_EX)
        monkeypatch.setattr(fcntl, "flock", flock)
        adding = pool.submit(add_once, path, "Error: alike\n")
        assert waits.wait(60)
        file.write(b"Error: alike\n")
        file.close()
        adding.result(60)
    assert path.read_text() == "Error: alike\n"


def test_a_failing_file_of_the_driver_does_no_harm(places: tuple[Path, Path]) -> None:
    own, driver = places
    copy_streams(own)
    (driver / OUT_FILE).symlink_to("/dev/full")
    (driver / ERR_FILE).mkdir()
    print("one")
    copy_to_driver(driver)
    print("two")
    copy_failure_to_driver(driver)
    sys.stderr.write("three\n")
    assert (own / OUT_FILE).read_text() == "one\ntwo\n"
    assert (own / ERR_FILE).read_text() == "three\n"
