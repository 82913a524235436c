"""Finding lines of a log by text, level and time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tests.unit.server.platform import NOW, Platform, check_problem
from tests.unit.server.test_logs import write

from legato.driver.log_marks import MARKS_FILE
from legato.server import log_search

TEXT = """INFO:root:begins
epoch 1 loss 0.5
2026-01-01 10:00:00 WARNING slow disk
\x1b[31mERR\x1b[1mOR\x1b[0m in worker
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    fail()
ValueError: no such digit
epoch 2 loss 0.4
{"level": "error", "event": "json"}
/x/y.py:3: UserWarning: be careful
last without an end"""


@pytest.fixture
def job(platform: Platform) -> str:
    made = platform.submit()
    write(platform, made, "worker-0", TEXT)
    return made


def search(platform: Platform, job: str, query: str, log: str = "worker-0") -> Any:
    return platform.get(f"jobs/{job}/logs/{log}/search?{query}")


def texts(told: Any) -> list[str]:
    return [one["text"] for one in told["items"]]


def mark(platform: Platform, job: str, *marks: tuple[float, dict[int, int]]) -> None:
    with (platform.directory(job) / "logs" / MARKS_FILE).open("a") as file:
        for when, ends in marks:
            file.write(json.dumps({"time": when, "ends": ends}) + "\n")


def test_all_lines_with_their_places(platform: Platform, job: str) -> None:
    told = search(platform, job, "")
    lines = TEXT.splitlines()
    assert texts(told) == lines
    assert [one["offset"] for one in told["items"]] == [TEXT.index(line) for line in lines]
    assert (told["after"], told["end"]) == (None, len(TEXT))
    assert {one["time"] for one in told["items"]} == {None}


def test_by_text(platform: Platform, job: str) -> None:
    assert texts(search(platform, job, "contains=LOSS")) == ["epoch 1 loss 0.5", "epoch 2 loss 0.4"]
    assert texts(search(platform, job, "contains=error%20in")) == ["\x1b[31mERR\x1b[1mOR\x1b[0m in worker"], "colours"
    assert texts(search(platform, job, "contains=.%2A")) == [], "it is no pattern"
    assert texts(search(platform, job, "contains=end")) == ["last without an end"]
    write(platform, job, "worker-1", "Straße\n" + "\ufffd" * 3 + "\n")
    assert texts(search(platform, job, "contains=STRASSE", "worker-1")) == ["Straße"]


@pytest.mark.parametrize(
    ("level", "places"),
    [
        ("debug", [0, 2, 3, 4, 5, 6, 7, 9, 10]),
        ("info", [0, 2, 3, 4, 5, 6, 7, 9, 10]),
        ("warning", [2, 3, 4, 5, 6, 7, 9, 10]),
        ("error", [3, 4, 5, 6, 7, 9]),
    ],
)
def test_by_level(platform: Platform, job: str, level: str, places: list[int]) -> None:
    lines = TEXT.splitlines()
    assert texts(search(platform, job, f"level={level}")) == [lines[place] for place in places]
    check_problem(platform.ask("GET", f"jobs/{job}/logs/worker-0/search?level=loud"), 422, "invalid")


def test_levels_are_shown(platform: Platform, job: str) -> None:
    told = [one["level"] for one in search(platform, job, "")["items"]]
    assert told[:5] == ["info", None, "warning", "error", "error"]
    write(platform, job, "worker-1", "an error of 3 %\ninformation\nlevel=warn x\nKeyboardInterrupt\nDEBUG x\n")
    told = [one["level"] for one in search(platform, job, "", "worker-1")["items"]]
    assert told == [None, None, "warning", "error", "debug"]


TRACEBACK = """WARNING:root:tried in vain Traceback (most recent call last):
  File "a.py", line 1, in <module>
Odd.Trouble: first

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2, in <module>
__main__.f.<locals>.Worse
epoch 1 loss 0.5
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 3, in <module>
  +------------------------------------
epoch 2 loss 0.4
Traceback (most recent call last):
  File "a.py", line 4, in <module>
INFO:root:was written in between
DEBUG
"""


def test_lines_of_a_traceback_have_the_level_of_its_first_line(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", TRACEBACK)
    told = search(platform, job, "", "worker-1")["items"]
    levels = "warning " * 3 + "None error None " + "error " * 3 + "None " + "error " * 3 + "None error error info debug"
    assert [str(one["level"]) for one in told] == levels.split()


def test_a_search_that_continues_in_a_traceback_knows_its_level(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", TRACEBACK)
    whole = search(platform, job, "", "worker-1")["items"]
    for one in whole:
        (told,) = search(platform, job, f"limit=1&after={one['offset']}", "worker-1")["items"]
        assert told == one
    long = "y" * 70_000 + "\nTraceback (most recent call last):\n" + "  z\n" * 20_000
    write(platform, job, "worker-2", long)
    (told,) = search(platform, job, f"limit=1&after={long.index('  z')}", "worker-2")["items"]
    assert told["level"] == "error"


def test_in_parts(platform: Platform, job: str) -> None:
    found, after, num_asked = [], 0, 0
    while after is not None:
        told = search(platform, job, f"contains=e&limit=2&after={after}")
        found += texts(told)
        after = told["after"]
        num_asked += 1
    assert found == texts(search(platform, job, "contains=e"))
    assert num_asked == (len(found) + 1) // 2
    assert search(platform, job, f"after={len(TEXT) + 100}") == {"items": [], "after": None, "end": len(TEXT) + 100}


def test_much_is_read_in_parts_even_where_nothing_is_found(
    platform: Platform, job: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_search, "MAX_READ_BYTES", 50)
    told = search(platform, job, "contains=without")
    assert told["items"] == [] and 50 < told["after"] < 120
    while told["after"] is not None:
        told = search(platform, job, f"contains=without&after={told['after']}")
    assert texts(told) == ["last without an end"]


def test_much_is_sent_in_parts(platform: Platform, job: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "_MAX_FOUND_BYTES", 10_000)
    write(platform, job, "worker-1", ("x" * 7_999 + "\n") * 9)
    told = search(platform, job, "", "worker-1")
    assert [len(one["text"]) for one in told["items"]] == [4000] * 3 and told["after"] == 24_000
    assert len(search(platform, job, "after=48000", "worker-1")["items"]) == 3


def test_a_line_that_never_ends(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", "x" * 205_000 + "needle\n")
    told = search(platform, job, "contains=needle", "worker-1")
    assert len(told["items"]) == 1 and len(told["items"][0]["text"]) == 4000


def test_lines_have_the_time_at_which_they_were_written(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", "one\ntwo\nthree\nfour\n")
    mark(platform, job, (NOW, {0: 5, 1: 4}), (NOW + 1, {0: 9}), (NOW + 2, {1: 14}))
    told = search(platform, job, "", "worker-1")["items"]
    assert [one["time"] for one in told] == [NOW, NOW + 2, NOW + 2, None]


def test_a_moment_leads_to_the_line_that_was_written_then(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", "one\ntwo\nthree\nfour\n")
    mark(platform, job, (NOW, {1: 4}), (NOW + 2, {1: 10}), (NOW + 5, {0: 3, 1: 19}))

    def at(when: float, log: str = "worker-1") -> Any:
        return platform.get(f"jobs/{job}/logs/{log}/at?time={when}")

    assert at(NOW - 9) == {"offset": 0, "time": NOW}
    assert at(NOW) == at(NOW + 1.9) == {"offset": 4, "time": NOW + 2}
    assert at(NOW + 3) == {"offset": 8, "time": NOW + 5}, "the line that was half written"
    assert at(NOW + 99) == {"offset": 19, "time": NOW + 5}
    write(platform, job, "worker-7", "x\n")
    assert at(NOW, "worker-7") == {"offset": 0, "time": None}, "nothing was noted"


def test_a_log_that_was_started_again(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", "one\ntwo\n")
    mark(platform, job, (NOW, {1: 400}), (NOW + 10, {1: 4}), (NOW + 5, {1: 8}))
    assert [one["time"] for one in search(platform, job, "", "worker-1")["items"]] == [NOW + 10, NOW + 10]
    (platform.directory(job) / "logs" / MARKS_FILE).write_text('{"time": "x"}\n[]\n{"ti')
    assert [one["time"] for one in search(platform, job, "", "worker-1")["items"]] == [None, None]


def test_the_driver_writes_the_time_itself(platform: Platform, job: str) -> None:
    moments = [NOW, NOW + 60, NOW + 120]
    lines = [time.strftime("%Y-%m-%d %H:%M:%S,250 INFO said\n", time.localtime(one)) for one in moments]
    write(platform, job, "driver", "no time\n" + "".join(lines) + "2026-99-99 00:00:00,000 INFO odd\n")
    told = search(platform, job, "", "driver")["items"]
    assert [one["time"] for one in told] == [None, *(one + 0.25 for one in moments), None]
    length = len(lines[0])
    for when, offset in ((NOW - 50, 8), (NOW + 1, 8), (NOW + 61, 8 + length), (NOW + 999, 8 + 2 * length)):
        assert platform.get(f"jobs/{job}/logs/driver/at?time={when}")["offset"] == offset


def test_a_search_by_time_reads_little_of_a_long_driver_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where lines without a time, long ones among them, stand between those with one."""
    parts, moments = [], []
    for number in range(3_000):
        stamp = time.strftime("%Y-%m-%d %H:%M:%S,000 INFO said\n", time.localtime(NOW + 2 * number))
        moments.append((sum(map(len, parts[-3:])) + (moments[-1][0] if moments else 0), NOW + 2 * number))
        parts += [stamp, "  of no time\n" * (number % 50), "x" * (100_000 if number % 500 == 7 else 3_000) + "\n"]
    text = "".join(parts).encode()
    assert len(text) > 9_000_000
    (tmp_path / "driver.log").write_bytes(text)
    num_bytes = 0
    read_lines = log_search._read_lines

    def count(file: BinaryIO, first: int) -> Iterator[Any]:
        nonlocal num_bytes
        for line in read_lines(file, first):
            num_bytes += len(line.content)
            yield line

    monkeypatch.setattr(log_search, "_read_lines", count)
    for offset, when in [*moments[::157], *moments[5:10], moments[-1]]:
        for later_s in (0.0, 1.9):
            num_bytes = 0
            assert log_search.find_place(tmp_path, "driver", when + later_s) == log_search.LogPlace(offset, when)
            assert num_bytes < len(text) / 5
    assert log_search.find_place(tmp_path, "driver", NOW - 1) == log_search.LogPlace(*moments[0])


def test_unknown_logs_and_invalid_queries_are_refused(platform: Platform, job: str) -> None:
    for path in ("search", "at?time=1"):
        for log in ("worker-9", "driver", "secret", "..%2fdriver"):
            check_problem(platform.ask("GET", f"jobs/{job}/logs/{log}/{path}"), 404, "not-found")
        check_problem(platform.ask("GET", f"jobs/nothing/logs/worker-0/{path}"), 404, "not-found")
    for query in ("at", "at?time=x", "at?time=nan", "search?limit=0", "search?after=-1", "search?colour=1"):
        check_problem(platform.ask("GET", f"jobs/{job}/logs/worker-0/{query}"), 422, "invalid")


def test_many_lines_come_whole(platform: Platform, job: str) -> None:
    write(platform, job, "worker-1", "".join(f"line {number} of many\n" for number in range(100_000)))
    told = search(platform, job, "contains=line%2099999%20", "worker-1")
    assert texts(told) == ["line 99999 of many"] and told["after"] is None
