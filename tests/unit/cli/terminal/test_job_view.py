"""The text of what people see of a job, without the frame around it."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from legato.cli.local.foreground import Foreground
from legato.cli.terminal.display import LiveScreen, LogFollower, PlainScreen, main_worker, make_screen
from legato.cli.terminal.job_view import (
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
from legato.driver.journal import JobDirectory, Outcome
from legato.driver.record import Event

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
        {"worker": 4, "slot": "a/1", "pid": 71, "phase": "member", "rank": 1, "view": 5, "last_heard_s": 0.1},
        {"worker": 2, "slot": "a/0", "pid": 70, "phase": "member", "rank": 0, "view": 5, "last_heard_s": 0.2},
        {"worker": 6, "slot": "b/0", "pid": 72, "phase": "warm", "rank": None, "view": None, "connected": False},
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


def test_progress_line_of_a_job_out_of_reach_claims_no_speed() -> None:
    """The workers may train on; the driver knows nothing of them."""
    workers = [worker | {"last_heard_s": worker.get("last_heard_s", 0.0) + 12.0} for worker in STATUS["workers"]]
    status = STATUS | {"workers": workers}
    want = "no worker has answered for 12.0 s · step 50/200 (25 %) · epoch 2/4 · loss 0.1235 · workers 2/3"
    assert render_progress_line(status, 228.0) == want
    workers[1]["last_heard_s"] = 0.2
    assert "812.4 samples/s" in render_progress_line(status, 228.0)


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
    assert " ".join(told.split()) == "a abandoned its driver died; to start a new one: legato attach a"


def test_jobs() -> None:
    old = {"name": "old", "state": "stopped", "step": 8, "num_steps": 20}
    lines = drawn(render_jobs([STATUS, UNKNOWN | {"min_workers": 1, "max_workers": 2}, old]))
    rows = [line.split() for line in lines.splitlines()]
    assert rows == [
        ["NAME", "STATE", "STEP", "EPOCH", "LOSS", "WORKERS", "RANGE"],
        ["bert-7", "training", "50/200", "2/4", "0.1235", "2/3", "1..4"],
        ["new", "forming", "0/2", "1..2"],
        ["old", "stopped", "8/20"],
    ]


@pytest.mark.parametrize(
    ("there", "wanted", "want"), [(0, 0, " 0/0"), (3, 2, "■■■ 3/2"), (16, 32, "■" * 16 + " 16/32")]
)
def test_worker_bar(there: int, wanted: int, want: str) -> None:
    assert render_worker_bar(there, wanted) == want


def make_ending(**changes: Any) -> Ending:
    known: dict[str, Any] = {
        "name": "bert-7",
        "outcome": "stopped",
        "reason": "Ctrl-C",
        "exit_code": 0,
        "step": 50,
        "num_steps": 200,
        "from_step": 0,
        "elapsed_s": 83.0,
        "counts": Counter(died=1, fenced=1, scaled=1),
        "saved": "checkpoint of step 50 at /c/50",
        "directory": Path("/jobs/bert-7"),
        "go_on_with": "legato run --resume 'my train.py'",
    }
    return Ending(**{**known, **changes})


def test_summary() -> None:
    assert render_summary(make_ending()).splitlines() == [
        "job:         bert-7 stopped: Ctrl-C",
        "steps:       step 50 of 200 in 1:23 (start included)",
        "changes:     2 workers lost, 1 resize",
        "saved:       checkpoint of step 50 at /c/50",
        "directory:   /jobs/bert-7",
        "logs:        /jobs/bert-7/logs",
        "resume:      legato run --resume 'my train.py'",
    ]


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        ({"from_step": 30}, "steps:       20 steps in this run, from step 30 to step 50 of 200, in"),
        ({"from_step": 49, "num_steps": None}, "steps:       1 step in this run, from step 49 to step 50, in"),
        ({"step": None, "from_step": None}, "steps:       no step in"),
    ],
)
def test_summary_tells_the_steps_of_this_run_from_those_before(changes: dict[str, Any], want: str) -> None:
    assert f"{want} 1:23 (start included)" in render_summary(make_ending(**changes)).splitlines()


def test_summary_of_a_failure_without_a_checkpoint_says_how_to_have_one() -> None:
    lost = make_ending(outcome="failed", saved=None, go_on_with=None)
    *_, last = render_summary(lost).splitlines()
    assert (
        last == "next time:   --checkpoint-every 100steps, or 2epochs or 60s, saves a checkpoint from which to resume"
    )
    too_late = make_ending(outcome="failed", saved=None, go_on_with=None, checkpoint_every="60s")
    assert "a shorter --checkpoint-every than 60s" in render_summary(too_late)
    for other in (
        make_ending(outcome="failed", saved=None, go_on_with=None, step=None),
        make_ending(outcome="succeeded", go_on_with=None),
    ):
        assert "--checkpoint-every" not in render_summary(other)


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


def test_the_wait_for_torch_is_a_clock_on_a_terminal_and_a_line_elsewhere() -> None:
    out, moments = io.StringIO(), iter((10.0, 10.1, 13.2))
    console = Console(file=out, force_terminal=True, width=100)
    live = LiveScreen(console, io.StringIO(), clock=lambda: next(moments))
    for _ in range(2):
        live.show_waiting("importing torch")
    live.close()
    assert "importing torch, 0.1 s" in out.getvalue()
    assert "importing torch, 3.2 s" in out.getvalue()
    plain = PlainScreen(out := io.StringIO(), out)
    for _ in range(3):
        plain.show_waiting("importing torch")
    assert out.getvalue() == "legato: importing torch; this may take some seconds\n"


def test_a_start_says_which_workers_it_waits_for() -> None:
    coming = [{"worker": number, "phase": "starting", "phase_s": 3.21 + number} for number in range(5)]
    status = {**UNKNOWN, "workers": [{"worker": 9, "phase": "warm", "phase_s": 1.0}, *coming]}
    told = "worker 0 starting, 3.2 s; worker 1 starting, 4.2 s; worker 2 starting, 5.2 s; 2 more"
    assert render_progress_line(status) == f"forming · {told} · workers 0/2"
    text = drawn(render_status(status))
    assert told in text.splitlines()[0]
    assert "starting, 7.2 s" in text
    # A worker that joins a running job delays no other.
    assert "starting" not in render_progress_line({**status, "state": "training"})


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
    # The driver reports the text before the log would show it.
    assert first.show_once(told)
    assert first.read(0, whole=True) == "after\n"
    # No event has the text: the log shows it after a moment.
    second = LogFollower(tmp_path, from_start=True)
    seen = "".join(second.read(0) for _ in range(10))
    assert seen == f"before\n{told}after\n"
    assert not second.show_once(told)


def test_a_traceback_that_a_worker_is_still_writing_is_shown_once(tmp_path: Path) -> None:
    log = tmp_path / "worker-0.log"
    told = "Traceback (most recent call last):\n  File x\nValueError: no\n"
    log.write_text("before\n" + told[:45])
    logs = LogFollower(tmp_path, from_start=True)
    assert logs.show_once(told)
    # Each event reads the log, so there may be many reads before the worker writes the rest.
    assert "".join(logs.read(0) for _ in range(10)) == "before\n"
    log.write_text(f"before\n{told}after\n")
    assert logs.read(0) == "after\n"


def test_the_summary_reports_the_end_once(tmp_path: Path) -> None:
    out = io.StringIO()
    foreground = Foreground(JobDirectory(tmp_path), PlainScreen(out, out))
    for reason in ("worker 0 finished its program", "the job succeeded: the program ran to its end"):
        foreground.on_event(Event(seq=1, time=0.0, kind="finished", level="info", reason=reason))
    assert "worker 0 finished its program" in out.getvalue()
    assert "the job succeeded" not in out.getvalue()


def test_the_summary_of_a_driver_that_took_over_counts_only_what_it_saw(tmp_path: Path) -> None:
    foreground = Foreground(JobDirectory(tmp_path), PlainScreen(io.StringIO(), io.StringIO()))
    reason = "a new driver adopted 2 workers in view 5"
    foreground.on_event(Event(seq=9, time=0.0, kind="adopted", level="info", reason=reason, step=3126))
    foreground.on_status({"step": 3228, "num_steps": 4640, "from_step": 1275})
    ending = foreground._sum_up(Outcome(outcome="stopped", reason="SIGTERM", exit_code=0))
    _, steps, changes, *_ = render_summary(ending).splitlines()
    begun = "steps:       102 steps since this process took over, from step 3126 to step 3228 of 4640, in "
    assert steps.startswith(begun)
    assert changes == "changes:     no workers lost, no resizes since then"
