"""Details of one job: attempts, slots, events of its driver, time series."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.platform import NOW, Platform, check_problem

from legato.control.stages import Stage
from legato.server import json_lines as lines_module
from legato.server.json_lines import Lines
from legato.server.time_series import Downsampled


def write_lines(file: Path, *lines: Any, cut_off: str = "") -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines) + cut_off)


def test_attempts_and_allocations(platform: Platform) -> None:
    platform.lead()
    job = platform.submit(max_retries=1)
    platform.start(job, "node/0")
    platform.now += 5
    platform.write(job, stage=Stage.QUEUED, closed=("node/0",), reason="tries again: it broke", is_retry=True)
    platform.now += 5
    platform.start(job, "node/1")
    first, second = platform.get(f"jobs/{job}/attempts")["items"]
    want: dict[str, Any] = {"job": job, "attempt": 1, "started_at": NOW, "ended_at": NOW + 5}
    assert first == want | {"outcome": "queued", "reason": "tries again: it broke"}
    want = {"job": job, "attempt": 2, "started_at": NOW + 10, "ended_at": None}
    assert second == want | {"outcome": None, "reason": None}
    gone, held = platform.get(f"jobs/{job}/allocations")["items"]
    assert (gone["slot"], gone["attempt"], gone["since"], gone["until"]) == ("node/0", 1, NOW, NOW + 5)
    assert (held["slot"], held["attempt"], held["release_asked_at"], held["until"]) == ("node/1", 2, None, None)
    assert platform.get(f"jobs/{job}")["num_retries"] == 1


def test_the_server_shows_training_events_of_the_driver(platform: Platform) -> None:
    job = platform.submit()
    assert platform.get(f"jobs/{job}/training-events") == {"items": [], "after": 0}, "it has not begun"
    lines = [
        {"seq": seq, "time": NOW, "kind": "note", "level": "info", "reason": f"r{seq}", "worker": 0}
        for seq in (1, 2, 3)
    ]
    file = platform.directory(job) / "events.jsonl"
    write_lines(file, *lines, "odd", {"seq": "x"}, cut_off='{"seq": 4, "ti')
    told = platform.get(f"jobs/{job}/training-events")
    assert told["after"] == 3
    assert told["items"][0] == lines[0] | {"view": None, "step": None, "detail": None}
    assert [one["seq"] for one in platform.get(f"jobs/{job}/training-events?limit=2")["items"]] == [1, 2]
    assert [one["seq"] for one in platform.get(f"jobs/{job}/training-events?after=2")["items"]] == [3]
    assert platform.get(f"jobs/{job}/training-events?after=9") == {"items": [], "after": 9}
    check_problem(platform.ask("GET", f"jobs/{job}/training-events?after=-1"), 422, "invalid")


def test_series(platform: Platform) -> None:
    job = platform.submit()
    empty = {"series": [], "steps": {"step": [], "epoch": [], "view": [], "time": []}}
    assert platform.get(f"jobs/{job}/metrics") == empty
    directory = platform.directory(job)
    logged = [
        {"index": step, "step": step, "epoch": 0, "time": NOW + step, "values": {"loss": 1 / step, "lr": None}}
        for step in range(1, 5)
    ]
    write_lines(directory / "metrics.jsonl", *logged, cut_off='{"index"')
    write_lines(directory / "ledger.jsonl", *({"step": s, "epoch": 0, "view": 1, "time": NOW + s} for s in range(1, 5)))
    told = platform.get(f"jobs/{job}/metrics")
    assert [series["name"] for series in told["series"]] == ["loss", "lr"]
    assert told["series"][0] == {
        "name": "loss",
        "step": [1, 2, 3, 4],
        "epoch": [0] * 4,
        "time": [NOW + step for step in range(1, 5)],
        "value": [1.0, 0.5, 1 / 3, 0.25],
        "source": "log",
    }
    assert told["series"][1]["value"] == [None] * 4
    assert told["steps"] == {"step": [1, 2, 3, 4], "epoch": [0] * 4, "view": [1] * 4, "time": told["series"][0]["time"]}
    some = platform.get(f"jobs/{job}/metrics?name=loss&after_step=2&points=2")
    assert [(series["name"], series["step"]) for series in some["series"]] == [("loss", [3, 4])]
    assert some["steps"]["step"] == [3, 4]
    without = platform.get(f"jobs/{job}/metrics?steps=false")
    assert (without["series"], without["steps"]) == (told["series"], empty["steps"])
    for query in ("points=1", "points=10001", "after_step=-1", "after_step=x"):
        check_problem(platform.ask("GET", f"jobs/{job}/metrics?{query}"), 422, "invalid")


def test_the_losses_of_steps_are_a_series_unless_the_program_logs_its_own(platform: Platform) -> None:
    job = platform.submit()
    directory = platform.directory(job)

    def write_losses(*steps: int) -> dict[str, object]:
        about = {"step": steps, "epoch": [0] * len(steps), "time": [NOW + step for step in steps]}
        return about | {"loss": [1 / step for step in steps]}

    def list_series(query: str = "") -> list[tuple[str, str, list[int]]]:
        found = platform.get(f"jobs/{job}/metrics?{query}")["series"]
        return [(series["name"], series["source"], series["step"]) for series in found]

    write_lines(
        directory / "losses.jsonl", write_losses(1, 2), write_losses(5), write_losses(3, 4), cut_off='{"step": ['
    )
    assert list_series() == [("loss", "backward", [1, 2, 3, 4, 5])]
    assert platform.get(f"jobs/{job}/metrics")["series"][0]["value"] == [1.0, 1 / 2, 1 / 3, 1 / 4, 1 / 5]
    assert list_series("after_step=3") == [("loss", "backward", [4, 5])]
    assert list_series("name=accuracy") == []
    own = {"index": 0, "step": 2, "epoch": 0, "time": NOW, "values": {"loss": 0.7}}
    write_lines(directory / "metrics.jsonl", own)
    assert list_series() == [("loss", "log", [2]), ("step_loss", "backward", [1, 2, 3, 4, 5])]
    assert list_series("after_step=3") == [("step_loss", "backward", [4, 5])], "the own loss was logged before"
    assert list_series("name=loss") == [("loss", "log", [2])]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_file_that_a_program_put_in_place_of_a_record_is_not_read(platform: Platform, kind: str) -> None:
    job = platform.submit()
    file = platform.directory(job) / "events.jsonl"
    line = {"seq": 1, "time": NOW, "kind": "note", "level": "info", "reason": "another's"}
    write_lines(platform.home / "elsewhere.jsonl", line)
    if kind == "link":
        file.symlink_to(platform.home / "elsewhere.jsonl")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    assert platform.get(f"jobs/{job}/training-events")["items"] == []


def thin_out(values: Sequence[float | None], most: int) -> list[tuple[int, float | None]]:
    thinned: Downsampled[tuple[int, float | None]] = Downsampled(most)
    for place, value in enumerate(values):
        thinned.add((place, value), value)
    return thinned.points


def test_thinning_out_keeps_the_ends_of_each_stretch() -> None:
    values = [float(number % 7) for number in range(100)]
    values[42], values[77] = 99.0, -99.0
    kept = thin_out(values, 10)
    assert 5 <= len(kept) <= 10
    assert {(42, 99.0), (77, -99.0)} <= set(kept)
    assert kept == sorted(kept) and kept[-1] == (99, 1.0), "the last value is a job's present one"
    odd = [float("nan"), None, 1.0, float("inf"), 2.0, None]
    assert thin_out(odd, 2) == [(2, 1.0), (4, 2.0)]
    assert thin_out(odd, 6) == list(enumerate(odd)), "all of so few"
    assert [place for place, _ in thin_out([None] * 9, 2)] == [0]
    assert thin_out([None, None, 0.0, 0.0, None, None], 5) == [(2, 0.0), (3, 0.0), (4, None)], "in order"


@given(values=st.lists(st.one_of(st.none(), st.floats(-9, 9)), max_size=300), most=st.integers(2, 20))
def test_thinning_out_keeps_the_smallest_and_the_largest_of_all(values: list[float | None], most: int) -> None:
    kept = thin_out(values, most)
    assert len(kept) <= most and kept == sorted(kept, key=lambda point: point[0])
    assert all(values[place] == value for place, value in kept)
    finite = [value for value in values if value is not None]
    if finite:
        assert {min(finite), max(finite)} <= {value for _, value in kept}
    if len(values) <= most:
        assert kept == list(enumerate(values))


# ---------------------------------------------------------------- files that grow


class Line(msgspec.Struct):
    step: int


LINES = st.lists(
    st.one_of(st.integers(0, 50).map(lambda step: b'{"step":%d}' % step), st.just(b'{"step"'), st.just(b""))
)


@given(parts=st.lists(LINES, max_size=6), after=st.integers(-1, 50), stretch=st.sampled_from([16, 40, 2**17]))
def test_lines_from_some_step_on_are_those_of_reading_all(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[bytes]], after: int, stretch: int
) -> None:
    """Also out of order, cut off and empty ones, in a file that grows between looks."""
    file = tmp_path_factory.mktemp("lines") / "a.jsonl"
    lines = Lines(Line, lambda line: line.step)
    want: list[int] = []
    assert list(lines.read(file, after)) == []
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(lines_module, "_STRETCH_BYTES", stretch)
        for part in parts:
            with file.open("ab") as growing:
                growing.writelines(line + b"\n" for line in part)
            want += [msgspec.json.decode(line)["step"] for line in part if line.endswith(b"}")]
            assert [line.step for line in lines.read(file)] == want
            assert [line.step for line in lines.read(file, after)] == [step for step in want if step > after]
            next(lines.read(file), None)
        assert [line.step for line in Lines(Line, lambda line: line.step).read(file, after)] == [
            step for step in want if step > after
        ]


def test_lines_are_not_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"".join(b'{"step":%d}\n' % step for step in range(100_000)))
    lines = Lines(Line, lambda line: line.step)
    assert sum(1 for _ in lines.read(file)) == 100_000
    num_read: list[int] = []
    decode = lines._decode
    monkeypatch.setattr(lines, "_decode", lambda content: num_read.append(len(content)) or decode(content))
    ends = [stretch.highest for stretch in lines._known[file].stretches]
    assert len(ends) > 4
    for end in ends:
        assert end is not None and [next(lines.read(file, after)).step - after for after in (end - 1, end)] == [1, 1]
    num_read.clear()
    assert [line.step for line in lines.read(file, 99_998)] == [99_999]
    assert sum(num_read) < file.stat().st_size / 4
    # Another file in its place is read from its beginning.
    file.unlink()
    file.write_bytes(b'{"step":7}\n' * 20_000)
    assert sum(1 for _ in lines.read(file, 6)) == 20_000
    file.write_bytes(b'{"step":8}\n')
    assert [line.step for line in lines.read(file, 6)] == [8], "it was cut"


def test_lines_that_are_nested_too_deeply_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"step":1}\n{"x":' + b"[" * 5000 + b"]" * 5000 + b',"step":9}\n{"step":2}\n')
    assert [line.step for line in Lines(Line, lambda line: line.step).read(file)] == [1, 2]


def test_lines_without_an_end_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "_STRETCH_BYTES", 64)
    monkeypatch.setattr(lines_module, "_MAX_LINE_BYTES", 1000)
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"step":1}\n' + b"x" * 10_000 + b'\n{"step":2}\n')
    lines = Lines(Line, lambda line: line.step)
    for _ in range(2):
        assert [line.step for line in lines.read(file)] == [1, 2]
