"""What people see: by its text, whatever the frame around it."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from legato.driver.journal import JobDirectory
from legato.driver.record import Event
from legato.foreground import Foreground
from legato.present import (
    Ending,
    Pace,
    render_duration,
    render_event_line,
    render_jobs,
    render_progress_line,
    render_status,
    render_summary,
    render_worker_bar,
)
from legato.terminal import LiveScreen, LogFollower, PlainScreen, main_worker, make_screen

STATUS: dict[str, Any] = {
    "name": "bert-7",
    "state": "training",
    "step": 50,
    "epoch": 1,
    "num_steps": 200,
    "num_epochs": 4,
    "loss": 0.123456,
    "phase": "train",
    "samples_per_s": 812.4,
    "num_workers": 2,
    "num_wanted": 3,
    "min_workers": 1,
    "max_workers": 4,
    "view": 5,
    "workers": [
        {"worker": 4, "slot": 1, "pid": 71, "phase": "member", "rank": 1, "view": 5, "last_heard_s": 0.1},
        {"worker": 2, "slot": 0, "pid": 70, "phase": "member", "rank": 0, "view": 5, "last_heard_s": 0.2},
        {"worker": 6, "slot": 2, "pid": 72, "phase": "warm", "rank": None, "view": None, "connected": False},
    ],
    "events": [{"seq": 9, "time": 0.0, "kind": "died", "level": "warning", "reason": "worker 3 died: [SIGKILL]"}],
    "outcome": None,
}
UNKNOWN = {"name": "new", "state": "forming", "num_workers": 0, "num_wanted": 2, "workers": [], "events": []}


def drawn(what: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as capture:
        console.print(what)
    return capture.get()


@pytest.mark.parametrize(
    ("seconds", "want"), [(0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1:00"), (3599.9, "59:59"), (86400, "24:00:00")]
)
def test_duration(seconds: float, want: str) -> None:
    assert render_duration(seconds) == want


def test_progress_line_says_all_that_is_known() -> None:
    want = "step 50/200 (25 %) · epoch 2/4 · loss 0.1235 · 812.4 samples/s · workers 2/3 · 1:30 left"
    assert render_progress_line(STATUS, 90.0) == want


def test_progress_line_with_nothing_known() -> None:
    assert render_progress_line(UNKNOWN) == "forming · workers 0/2"
    assert render_progress_line({**STATUS, "num_steps": None, "num_epochs": None, "phase": "evaluate"}).startswith(
        "step 50 · epoch 2 · evaluating"
    )


def test_event_line_keeps_the_reason_as_it_is() -> None:
    line = render_event_line({"time": 0.0, "kind": "fenced", "reason": "worker 2 is silent for 5.1 s", "step": 0})
    assert line.endswith("fenced     worker 2 is silent for 5.1 s (step 0)")
    assert line[2] == line[5] == ":"


def test_pace() -> None:
    pace = Pace()
    assert pace.remaining_s({"step": 1, "num_steps": 5}) is None
    pace.note(0.0, None)
    pace.note(0.0, 0)
    pace.note(10.0, 20)
    assert pace.steps_per_s == pytest.approx(2.0)
    assert pace.remaining_s({"step": 20, "num_steps": 100}) == pytest.approx(40.0)
    assert pace.remaining_s({"step": 20, "num_steps": None}) is None
    # The window moves: what was slow long ago does not count.
    for now in range(20, 100, 10):
        pace.note(float(now), 20 + (now - 10) * 10)
    assert pace.steps_per_s == pytest.approx(10.0)
    # Back to a checkpoint.
    pace.note(100.0, 5)
    assert pace.steps_per_s is None


def test_status_shows_every_worker_and_event() -> None:
    text = drawn(render_status(STATUS))
    for part in ("bert-7  training", "■■□ 2/3", "worker 4", "worker 2", "warm (no connection)", "died: [SIGKILL]"):
        assert part in text
    assert all(len(line) <= 60 for line in drawn(render_status(STATUS), width=60).splitlines())


def test_status_of_a_job_that_is_over() -> None:
    outcome = {"outcome": "failed", "exit_code": 1, "reason": "the program failed"}
    assert (
        drawn(render_status({"name": "a", "state": "failed", "outcome": outcome})) == "a  failed  the program failed\n"
    )
    told = drawn(render_status({"name": "a", "state": "abandoned", "outcome": None}))
    assert " ".join(told.split()) == "a abandoned its driver is gone; 'legato attach a' takes it over"


def test_jobs() -> None:
    lines = drawn(
        render_jobs([STATUS, UNKNOWN | {"min_workers": 1, "max_workers": 2}, {"name": "old", "state": "stopped"}])
    )
    rows = [line.split() for line in lines.splitlines()]
    assert rows == [
        ["name", "state", "step", "epoch", "loss", "workers", "range"],
        ["bert-7", "training", "50/200", "2/4", "0.1235", "2/3", "1..4"],
        ["new", "forming", "0/2", "1..2"],
        ["old", "stopped"],
    ]


@pytest.mark.parametrize(
    ("there", "wanted", "want"), [(0, 0, " 0/0"), (3, 2, "■■■ 3/2"), (16, 32, "■" * 16 + " 16/32")]
)
def test_worker_bar(there: int, wanted: int, want: str) -> None:
    assert render_worker_bar(there, wanted) == want


def test_summary() -> None:
    ending = Ending(
        name="bert-7",
        outcome="stopped",
        reason="Ctrl-C",
        exit_code=0,
        step=50,
        num_steps=200,
        elapsed_s=83.0,
        counts=Counter(died=1, fenced=1, scaled=1),
        saved="checkpoint of step 50 at /c/50",
        directory=Path("/jobs/bert-7"),
        resume=("legato", "run", "--resume", "my train.py"),
    )
    assert render_summary(ending).splitlines() == [
        "job:         bert-7 stopped: Ctrl-C",
        "steps:       step 50 of 200 in 1:23",
        "changes:     2 workers lost, 1 resize",
        "saved:       checkpoint of step 50 at /c/50",
        "directory:   /jobs/bert-7",
        "logs:        /jobs/bert-7/logs",
        "go on with:  legato run --resume 'my train.py'",
    ]


# ---------------------------------------------------------------- screens


def test_plain_screen_writes_whole_lines_without_control_codes() -> None:
    out, problems = io.StringIO(), io.StringIO()
    moments = iter((0.0, 1.0, 6.0, 7.0, 12.0, 20.0))
    screen = PlainScreen(out, problems, clock=lambda: next(moments))
    screen.show_event({"time": None, "kind": "joined", "level": "info", "reason": "worker 1 is in view 1"})
    screen.show_event({"time": None, "kind": "died", "level": "warning", "reason": "worker 2 died"})
    screen.show_output("epoch 0\n")
    for _ in range(4):
        screen.show_status(STATUS)
    screen.show_status({**STATUS, "state": "succeeded"})
    screen.show_message("stopping", problem=True)
    screen.close()
    assert out.getvalue().splitlines() == [
        "legato: joined     worker 1 is in view 1",
        "epoch 0",
        "legato: step 50/200 (25 %) · epoch 2/4 · loss 0.1235 · 812.4 samples/s · workers 2/3",
    ]
    assert problems.getvalue().splitlines() == ["legato: died       worker 2 died", "stopping"]


def test_plain_screen_is_not_flooded_by_checkpoints_or_metrics() -> None:
    out, now = io.StringIO(), 0.0
    screen = PlainScreen(out, io.StringIO(), clock=lambda: now)
    for step in range(1, 301):
        now = step * 0.25
        saved = {
            "time": None,
            "kind": "saved",
            "level": "info",
            "reason": f"checkpoint of step {step} at /c",
            "step": 9,
        }
        screen.show_event(saved)
        screen.show_status({"state": "training", "metrics": {"step": step, "epoch": 0, "values": {"loss": 1 / step}}})
    screen.show_status({"state": "succeeded", "metrics": {"step": 300, "epoch": 0, "values": {"loss": 0.5}}})
    lines = out.getvalue().splitlines()
    told = [line for line in lines if "saved" in line]
    assert told == [f"legato: saved      checkpoint of step {step} at /c" for step in (1, 121, 241)]
    logged = [line for line in lines if "logged" in line]
    assert 70 <= len(logged) <= 80
    assert logged[-1] == "legato: logged     step 300 · loss 0.5"


def test_a_pipe_gets_the_plain_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert isinstance(make_screen(io.StringIO(), io.StringIO()), PlainScreen)


def test_live_screen_keeps_output_above_and_leaves_the_terminal_clean() -> None:
    out, problems = io.StringIO(), io.StringIO()
    screen = LiveScreen(Console(file=out, force_terminal=True, width=100), problems)
    screen.show_status(STATUS)
    screen.show_output("\x1b[32mgreen [b]line\x1b[0m\n")
    screen.show_event({"time": None, "kind": "failed", "level": "error", "reason": "as asked"})
    screen.close()
    text = out.getvalue()
    assert "green [b]line" in text
    assert "bert-7" in text
    assert "as asked" in problems.getvalue()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1


@pytest.mark.parametrize(
    ("workers", "want"),
    [(STATUS["workers"], 2), ([{"worker": 5, "rank": None}, {"worker": 3, "rank": None}], 3), ([], None)],
)
def test_main_worker(workers: list[dict[str, Any]], want: int | None) -> None:
    assert main_worker({"workers": workers}) == want


# ---------------------------------------------------------------- logs


def test_follower_reads_only_what_is_new_in_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "worker-1.log"
    log.write_text("of a run before\n")
    logs = LogFollower(tmp_path)
    assert logs.read(1) == ""
    assert logs.read(2) == ""
    with log.open("ab") as file:
        file.write("ä\nb".encode()[:1])
        file.flush()
        assert logs.read(1) == ""
        file.write("ä\nb".encode()[1:])
        file.flush()
        assert logs.read(1) == "ä\n"
        assert logs.read(1) == ""
        file.write(b"c")
    assert logs.read(1, whole=True) == "bc"
    assert LogFollower(tmp_path, from_start=True).read(1) == "of a run before\nä\n"


def test_a_traceback_is_shown_once(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    told = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    log.write_text("")
    first = LogFollower(tmp_path)
    log.write_text(f"before\n{told}after\n")
    assert first.read(0) == "before\n"
    # The driver tells it before it would have been shown from the log.
    assert first.tell_once(told)
    assert first.read(0, whole=True) == "after\n"
    # Nobody tells it: it is shown after a moment.
    second = LogFollower(tmp_path, from_start=True)
    seen = "".join(second.read(0) for _ in range(10))
    assert seen == f"before\n{told}after\n"
    assert not second.tell_once(told)


def test_the_end_is_told_once_by_the_summary(tmp_path: Path) -> None:
    out = io.StringIO()
    foreground = Foreground(JobDirectory(tmp_path), PlainScreen(out, out), None)
    for reason in ("worker 0 finished its program", "the job succeeded: the program ran to its end"):
        foreground.on_event(Event(seq=1, time=0.0, kind="finished", level="info", reason=reason))
    assert "worker 0 finished its program" in out.getvalue()
    assert "the job succeeded" not in out.getvalue()
