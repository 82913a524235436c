"""Logs: their list, parts of them by byte and by line, and following them while they are written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.unit.server.platform import API, Messages, Platform, check_problem

from legato.driver.log_marks import MARKS_FILE
from legato.server import logs
from legato.server.logs import MAX_BYTES, Addition, Place, Reader, find_tail, read_place, render_place
from legato.server.problems import Problem


@pytest.fixture
def job(platform: Platform) -> str:
    made = platform.submit()
    write(platform, made, "worker-0", "one\ntwo\nthree\n")
    return made


def write(platform: Platform, job: str, log: str, text: str | bytes) -> Path:
    directory = platform.directory(job)
    file = directory / "driver.log" if log == "driver" else directory / "logs" / f"{log}.log"
    with file.open("ab") as stream:
        stream.write(text.encode() if isinstance(text, str) else text)
    return file


def texts(messages: list[dict[str, str]]) -> dict[str, str]:
    """What was sent of each log, put together."""
    told: dict[str, str] = {}
    for message in messages:
        if message["event"] == "log":
            line = json.loads(message["data"])
            told[line["log"]] = told.get(line["log"], "") + line["text"]
    return told


# ---------------------------------------------------------------- pieces


def test_the_list_has_every_log_and_no_other_file(platform: Platform, job: str) -> None:
    for log in ("worker-10", "worker-2", "driver"):
        write(platform, job, log, "x")
    for odd in ("worker-x.log", "worker-01.log", "notes.txt", "worker-3.log.gz"):
        (platform.directory(job) / "logs" / odd).touch()
    listed = platform.get(f"jobs/{job}/logs")["items"]
    assert [one["log"] for one in listed] == ["driver", "worker-0", "worker-2", "worker-10"]
    assert set(listed[0]) == {"log", "num_bytes", "modified_at"}
    assert listed[1]["num_bytes"] == 14
    assert platform.get(f"jobs/{platform.submit(name='new')}/logs")["items"] == []


def read(platform: Platform, job: str, query: str = "", log: str = "worker-0") -> tuple[str, int, int]:
    answer = platform.ask("GET", f"jobs/{job}/logs/{log}{query}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    return answer.text, int(answer.headers["legato-log-offset"]), int(answer.headers["legato-log-end"])


def test_pieces(platform: Platform, job: str) -> None:
    assert read(platform, job) == ("one\ntwo\nthree\n", 0, 14)
    assert read(platform, job, "?offset=4&max_bytes=3") == ("two", 4, 7)
    assert read(platform, job, "?offset=14") == ("", 14, 14)
    assert read(platform, job, "?offset=99") == ("", 99, 99), "it was cut; nothing lies there"
    assert read(platform, job, "?tail=1") == ("three\n", 8, 14)
    assert read(platform, job, "?tail=2") == ("two\nthree\n", 4, 14)
    assert read(platform, job, "?tail=99") == ("one\ntwo\nthree\n", 0, 14)
    assert read(platform, job, "?tail=0") == ("", 14, 14)
    assert read(platform, job, "?tail=3&max_bytes=8") == ("o\nthree\n", 6, 14)
    write(platform, job, "worker-0", "cut")
    assert read(platform, job, "?tail=1") == ("cut", 14, 17)
    write(platform, job, "driver", "d\n")
    assert read(platform, job, log="driver")[0] == "d\n"


def test_letters_stay_whole_where_there_is_more(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", "aä€😀b")
    assert read(platform, job, "?max_bytes=2", "worker-1") == ("a", 0, 1)
    assert read(platform, job, "?offset=1&max_bytes=4", "worker-1") == ("ä", 1, 3)
    assert read(platform, job, "?offset=3&max_bytes=6", "worker-1") == ("€", 3, 6)
    assert read(platform, job, "?offset=6&max_bytes=4", "worker-1") == ("😀", 6, 10)
    # Never nothing where there is something.
    assert read(platform, job, "?offset=1&max_bytes=1", "worker-1")[2] == 2


def test_invalid_pieces_are_refused(platform: Platform, job: str) -> None:
    for query in ("tail=1&offset=1", "tail=-1", "offset=-1", "max_bytes=0", f"max_bytes={MAX_BYTES + 1}", "tail=x"):
        check_problem(platform.ask("GET", f"jobs/{job}/logs/worker-0?{query}"), 422, "invalid")
    check_problem(platform.ask("GET", f"jobs/{job}/logs/worker-7"), 404, "not-found", "no log 'worker-7'")


TRICKS = (
    *("worker-0.log", "worker-", "worker--1", "worker-00", "events", "journal", "WORKER-0", "worker-0%0a", "lock"),
    *("..%2fworker-0", "%2e%2e", "..%2f..%2flegato.db", "worker-0/../driver", "%2fetc%2fpasswd", "worker-%d9%a1"),
)


def test_names_of_logs_lead_to_no_other_file(platform: Platform, job: str) -> None:
    write(platform, job, "driver", "d\n")
    (platform.directory(job) / "lock.log").write_text("secret")
    for path in TRICKS:
        check_problem(platform.ask_raw("GET", f"{API}/jobs/{job}/logs/{path}"), 404, "not-found")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_plain_files_are_logs(platform: Platform, job: str, kind: str) -> None:
    file = platform.directory(job) / "logs" / "worker-1.log"
    if kind == "link":
        file.symlink_to(platform.home / "legato.db")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    check_problem(platform.ask("GET", f"jobs/{job}/logs/worker-1"), 404, "not-found")
    logs = [one["log"] for one in platform.get(f"jobs/{job}/logs")["items"]]
    assert logs == (["worker-0", "worker-1"] if kind == "folder" else ["worker-0"]) or logs == ["worker-0"]


def test_a_folder_of_logs_that_is_a_link_leads_nowhere(platform: Platform) -> None:
    job = platform.submit()
    (platform.home / "secret").mkdir()
    (platform.home / "secret" / "worker-0.log").write_text("secret")
    directory = platform.home / "jobs" / job
    directory.mkdir(parents=True)
    (directory / "logs").symlink_to(platform.home / "secret")
    assert platform.get(f"jobs/{job}/logs")["items"] == []
    check_problem(platform.ask("GET", f"jobs/{job}/logs/worker-0"), 404, "not-found")


def test_the_tail_of_a_large_log(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"".join(b"line %d\n" % number for number in range(100_000)))
    with file.open("rb") as stream:
        first = find_tail(stream, 50_000, MAX_BYTES)
        stream.seek(first)
        assert stream.readline() == b"line 50000\n"
        assert find_tail(stream, 10**6, 1000) == file.stat().st_size - 1000


# ---------------------------------------------------------------- following


def test_following_until_the_job_has_ended(platform: Platform, job: str) -> None:
    platform.lead()
    with platform.stream(f"jobs/{job}/logs") as messages:
        told = [next(messages)]
        platform.start(job, "node/0")
        write(platform, job, "worker-1", "comes later\nand is ")
        write(platform, job, "driver", "not asked for\n")
        told.append(next(messages))
        write(platform, job, "worker-1", "whole\nno end of the line")
        platform.end(job)
        told += list(messages)
    assert told[-1]["event"] == "end"
    assert texts(told) == {"worker-0": "one\ntwo\nthree\n", "worker-1": "comes later\nand is whole\nno end of the line"}
    assert json.loads(told[1]["data"])["text"] == "comes later\n", "lines are whole while there is more to come"


def test_following_resumes_where_it_was_cut_off(platform: Platform, job: str) -> None:
    platform.lead()
    platform.start(job, "node/0")
    with platform.stream(f"jobs/{job}/logs") as messages:
        cut_off = next(messages)
    assert cut_off["id"] == "worker-0=14"
    write(platform, job, "worker-0", "four\n")
    write(platform, job, "worker-1", "new\n")
    platform.end(job)
    with platform.stream(f"jobs/{job}/logs?tail=0", Last_Event_ID=cut_off["id"]) as messages:
        told = list(messages)
    assert texts(told) == {"worker-0": "four\n", "worker-1": "new\n"}
    for odd in ("x", "worker-0", "worker-0=x", "worker-0=-1", "../a=1", "worker-0=1,", "worker-0=" + "9" * 20):
        answer = platform.ask("GET", f"jobs/{job}/logs", Accept="text/event-stream", Last_Event_ID=odd)
        check_problem(answer, 400, "bad-request", "Last-Event-ID")


def test_following_sends_the_chosen_logs_from_their_tail(platform: Platform, job: str) -> None:
    platform.lead()
    platform.start(job, "node/0")
    write(platform, job, "driver", "a\nb\n")
    write(platform, job, "worker-1", "c\nd\n")
    platform.end(job)

    def follow(query: str) -> dict[str, str]:
        with platform.stream(f"jobs/{job}/logs?{query}") as messages:
            return texts(list(messages))

    assert follow("log=driver&log=worker-1") == {"driver": "a\nb\n", "worker-1": "c\nd\n"}
    assert follow("tail=1") == {"worker-0": "three\n", "worker-1": "d\n"}
    assert follow("tail=0") == {}
    answer = platform.ask("GET", f"jobs/{job}/logs?log=../x", Accept="text/event-stream")
    check_problem(answer, 422, "invalid", "Cannot follow the log")


def mark(platform: Platform, job: str, *lines: dict[str, int]) -> None:
    told = "".join(f"{json.dumps({'time': number, 'ends': ends})}\n" for number, ends in enumerate(lines))
    (platform.directory(job) / "logs" / MARKS_FILE).write_text(told)


def lines_of(messages: list[dict[str, str]]) -> list[str]:
    told = [json.loads(message["data"]) for message in messages if message["event"] == "log"]
    return [f"{one['log'][-1]} {line}" for one in told for line in one["text"].splitlines()]


@pytest.mark.parametrize("chunk_bytes", [2**16, 6])
def test_lines_of_workers_that_were_replaced_are_in_order_of_time(
    platform: Platform, job: str, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int
) -> None:
    monkeypatch.setattr(logs, "_CHUNK_BYTES", chunk_bytes)
    platform.lead()
    platform.start(job, "node/0")
    write(platform, job, "worker-1", "a1\nb1\nc1\n")
    write(platform, job, "worker-2", "a2\nb2\n")
    # What is marked in the middle of a line is sent when the line ends; what is not marked comes last.
    mark(platform, job, {"0": 4}, {"1": 4}, {"2": 3, "7": 5}, {"0": 8}, {"1": 6})
    want = ["0 one", "1 a1", "2 a2", "0 two", "1 b1", "0 three", "1 c1", "2 b2"]
    with platform.stream(f"jobs/{job}/logs?follow=false") as messages:
        told = list(messages)
    assert told[-1]["event"] == "end", "the job runs, and yet this ends"
    assert lines_of(told) == want
    assert texts(told) == {"worker-0": "one\ntwo\nthree\n", "worker-1": "a1\nb1\nc1\n", "worker-2": "a2\nb2\n"}
    with platform.stream(f"jobs/{job}/logs?follow=false&tail=1") as messages:
        assert "".join(lines_of(list(messages))).endswith("1 c12 b2")
    platform.end(job)
    with platform.stream(f"jobs/{job}/logs", Last_Event_ID="worker-0=4,worker-1=3") as messages:
        told = list(messages)
    assert "one" not in texts(told)["worker-0"]
    assert lines_of(told)[0] == "2 a2"


def test_a_bounded_reader_skips_lines_that_are_added_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "worker-0.log"
    file.write_text("a\n")
    reader = Reader(tmp_path, (), Place({}), is_bounded=True)
    told = reader.read(is_last=True)
    for one in told:
        reader.note(one)
    file.write_text("a\nb\n")
    (tmp_path / "logs" / "worker-1.log").write_text("c\n")
    assert told == [Addition("worker-0", "a\n", 2)]
    assert reader.read(is_last=True) == []


def test_a_line_without_an_end_is_sent_in_parts(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    file = tmp_path / "logs" / "worker-0.log"
    file.write_bytes(b"x" * 100 + b"\xff")
    reader = Reader(tmp_path, (), Place({}))
    assert reader.read(is_last=False) == []
    assert reader.read(is_last=True) == [Addition("worker-0", "x" * 100 + "\ufffd", 101)]
    file.write_bytes(b"y" * 200_000)
    reader = Reader(tmp_path, (), Place({}))
    told = ""
    while batch := reader.read(is_last=False):
        reader.note(batch[0])
        told += batch[0].text
    assert 100_000 < len(told) <= 200_000 and set(told) == {"y"}


def test_messages_are_read_as_they_are_written(platform: Platform) -> None:
    assert Messages is not None
    job = platform.submit(name="lines")
    write(platform, job, "worker-0", "colour \x1b[31mred\x1b[0m\r\ndata: not a message\n\n: nor this\n")
    platform.ask("POST", f"jobs/{job}/stop")
    with platform.stream(f"jobs/{job}/logs") as messages:
        assert texts(list(messages)) == {"worker-0": "colour \x1b[31mred\x1b[0m\r\ndata: not a message\n\n: nor this\n"}


# ---------------------------------------------------------------- many workers


def take(reader: Reader) -> dict[str, str]:
    """Read all that is new, by log."""
    told: dict[str, str] = {}
    while batch := reader.read(is_last=True):
        for addition in batch:
            reader.note(addition)
            told[addition.log] = told.get(addition.log, "") + addition.text
    return told


def go_on(root: Path, reader: Reader) -> Reader:
    """Return a reader that begins where another one was cut off, as the id of the last message says."""
    return Reader(root, (), read_place(render_place(reader.place)))


def test_following_resumes_for_a_job_of_many_workers(platform: Platform, job: str) -> None:
    platform.lead()
    platform.start(job, "node/0")
    for number in range(1, 200):
        write(platform, job, f"worker-{number}", f"{number:0500}\n" * 2)
    with platform.stream(f"jobs/{job}/logs") as messages:
        first = [next(messages) for _ in range(200)]
    cut_off = [message["id"] for message in first if "id" in message][-1]
    write(platform, job, "worker-3", "more\n")
    platform.end(job)
    with platform.stream(f"jobs/{job}/logs", Last_Event_ID=cut_off) as messages:
        assert texts(list(messages)) == {"worker-3": "more\n"}
    answer = platform.ask("GET", f"jobs/{job}/logs", Accept="text/event-stream", Last_Event_ID="w" * (2**14 + 1))
    check_problem(answer, 422, "invalid")


def test_a_stream_that_is_cut_off_between_messages_of_one_look_loses_none(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", "of the same look\n")
    with platform.stream(f"jobs/{job}/logs") as messages:
        cut_off = next(messages)["id"]
    platform.ask("POST", f"jobs/{job}/stop")
    with platform.stream(f"jobs/{job}/logs", Last_Event_ID=cut_off) as messages:
        assert texts(list(messages)) == {"worker-1": "of the same look\n"}


def test_the_place_names_no_more_logs_than_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MAX_NAMED", 10)
    (tmp_path / "logs").mkdir()
    files = [tmp_path / "logs" / f"worker-{number}.log" for number in range(100)]
    for number, file in enumerate(files):
        file.write_text(f"{number}\n")
        os.utime(file, (1e9 + number * 10, 1e9 + number * 10))
    reader = Reader(tmp_path, (), Place({}))
    assert len(take(reader)) == 100
    assert len(reader.place.positions) == 10
    assert go_on(tmp_path, reader).read(is_last=True) == [], "what is not named was sent"
    assert take(reader) == {}
    # One that was silent for long speaks again, while it is followed, ...
    files[5].write_text("5\nagain\n")
    os.utime(files[5], (2e9, 2e9))
    assert take(reader) == {"worker-5": "again\n"}
    assert "worker-5" in reader.place.positions
    again = go_on(tmp_path, reader)
    assert take(again) == {}
    # ... a new one comes, and what is named continues where it was.
    (tmp_path / "logs" / "worker-100.log").write_text("new\n")
    files[99].write_text("99\nmore\n")
    assert take(again) == take(go_on(tmp_path, reader)) == {"worker-100": "new\n", "worker-99": "more\n"}


def test_the_rest_of_a_log_that_was_sent_in_part_is_sent_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_MAX_NAMED", 2)
    (tmp_path / "logs").mkdir()
    for number in range(6):
        file = tmp_path / "logs" / f"worker-{number}.log"
        file.write_text(f"{number}\n")
        os.utime(file, (1e9 + number * 100, 1e9 + number * 100))
    reader = Reader(tmp_path, (), Place({}))
    for addition in reader.read(is_last=True):
        if addition.log != "worker-0":
            reader.note(addition)
    reader.read(is_last=True)
    assert reader.place.quiet_until is not None
    assert take(go_on(tmp_path, reader)) == {"worker-0": "0\n"}


@pytest.mark.parametrize("odd", ["quiet=x", "quiet=", "quiet=-1", "quiet=nan", "quiet=1e9", "quiet=1,quiet=2"])
def test_invalid_places(odd: str) -> None:
    with pytest.raises(Problem, match="Last-Event-ID"):
        read_place(odd)
