"""Following a job of the platform: which lines are shown, the message if none can come, and how to stop."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from rich.console import Console
from tests.unit.cli.conftest import Call
from tests.unit.cli.platform.test_commands import follow, line, stage
from tests.unit.client.platform import NOW, Fault, Platform, stream

from legato.cli.platform import attach
from legato.cli.terminal import output
from legato.core.errors import Unavailable, UsageError

JOB = "j-0000000001"
PAUSED = {"stage": "paused", "reason": "'anna' asked to pause it"}


def tell_training(platform: Platform, *told: tuple[str, int | None, int | None]) -> None:
    """Let the job's driver record events: their kind, worker and view."""
    platform.canned["training"] = [
        {"seq": seq, "time": NOW, "kind": kind, "level": "info", "reason": "as told", "worker": worker, "view": view}
        for seq, (kind, worker, view) in enumerate(told, 1)
    ]


def test_a_paused_job_shows_its_last_rank_0_and_that_it_is_paused(platform: Platform, call: Call) -> None:
    platform.add_job(1, name="m3", **PAUSED)
    tell_training(
        platform,
        *(("started", worker, None) for worker in range(4)),
        *(("joined", worker, 1) for worker in range(4)),
        *(("left", worker, None) for worker in (0, 3)),
        *(("joined", worker, 2) for worker in (1, 2)),
        ("stopped", None, None),
    )
    follow(platform, JOB, log=[line(worker, f"of worker {worker}\n") for worker in (3, 2, 0, 1)])
    _, out, _ = call("attach", "m3")
    assert out.splitlines()[:2] == [
        "legato: job 'm3' is paused: 'anna' asked to pause it. To resume it: legato resume j-0000000001",
        "of worker 1",
    ]
    assert out.count("of worker") == 1


def test_the_next_attempt_has_its_own_speaker(platform: Platform, call: Call) -> None:
    platform.add_job(1)
    lives = (("started", 0, None), ("joined", 0, 1), ("stopped", None, None), ("started", 4, None), ("joined", 4, 1))
    tell_training(platform, *lives)
    follow(platform, JOB, log=[line(0, "old\n"), line(4, "new\n")])
    assert [told for told in call("attach", "mnist")[1].splitlines() if told in ("old", "new")] == ["new"]


def test_a_pause_while_watching_is_reported_with_the_command_to_resume(platform: Platform, call: Call) -> None:
    platform.add_job(1)
    follow(platform, JOB, stage(1, "paused", "'anna' asked to pause it"))
    assert f"legato: to resume it: legato resume {JOB}" in call("attach", "mnist")[1].splitlines()


@pytest.mark.parametrize(("state", "is_told"), [(PAUSED, True), ({"stage": "queued"}, True), ({}, False)])
def test_logs_that_cannot_come_are_not_waited_for_in_silence(
    platform: Platform, call: Call, state: dict[str, Any], is_told: bool
) -> None:
    platform.add_job(1, name="m3", **state)
    follow(platform, JOB)
    code, out, err = call("logs", "m3", "--follow")
    assert (code, out, err.startswith(f"legato: job 'm3' is {state.get('stage')}: ")) == (0, "", is_told)


def test_without_workers_neither_their_number_nor_their_speed_is_shown(platform: Platform) -> None:
    job = platform.add_job(1)
    job["progress"] |= {"num_workers": 0, "step": 3600, "num_steps": 3600}
    progress = platform.client().job(JOB).progress
    assert progress is not None
    assert attach.render_progress(progress) == "step 3600 of 3600 (100 %) · epoch 6 · loss 0.1234"


def test_one_waits_for_a_stage_or_for_several(platform: Platform) -> None:
    platform.add_job(1)
    job = platform.client().job(JOB)
    assert job.wait(until="running").stage == "running"
    assert job.wait(until=("paused", "running")).stage == "running"
    with pytest.raises(UsageError, match=r"there is no stage 'runing'\. Write one of queued, starting, running,"):
        job.wait(until="runing")


def test_scaling_to_the_present_number_is_reported(platform: Platform, call: Call) -> None:
    platform.add_job(1, name="bert")
    assert call("scale", "bert", "2")[1].startswith("Job 'bert' may have 1..2 workers now (it had 1..4). ")
    assert call("scale", "bert", "2")[1] == (
        "Job 'bert' may have 1..2 workers, as before. To see how many it gets: legato explain bert.\n"
    )


def test_a_closed_pipe_ends_the_command() -> None:
    """``head`` closes the pipe: that is no error, and nothing is written to stderr, even if more lines would come."""
    program = """
        from legato.cli.terminal.output import ending_on_interrupt
        import typer

        with ending_on_interrupt():
            while True:
                typer.echo("a line")
    """
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=writing,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


# ---------------------------------------------------------------- a server that falls silent

SILENT = "no answer from the server since 14:13:20; trying again"


def end_after(platform: Platform, *faults: Fault | None) -> None:
    """Give requests these faults, and let the job have ended at the request after them."""

    def end(request: httpx.Request, do: Callable[[], httpx.Response]) -> httpx.Response:
        platform.jobs[JOB] |= {"stage": "succeeded", "exit_code": 0}
        return do()

    platform.faults.extend([*faults, end])


def refuse(request: httpx.Request, do: Callable[[], httpx.Response]) -> httpx.Response:
    raise httpx.ConnectError("Connection refused")


def test_watching_says_that_the_server_is_silent_and_goes_on(platform: Platform, call: Call) -> None:
    platform.add_job(1)
    end_after(platform, None, None, None, *[refuse] * 3)  # the job, its spec, the first look
    code, out, err = call("show", "mnist", "--watch", "-o", "json")
    assert code == 0
    assert [json.loads(told)["stage"] for told in out.splitlines()] == ["running", "succeeded"]
    assert err.splitlines() == [f"legato: {SILENT}. {err.partition('again. ')[2].strip()}"], "once, not at each look"
    assert "Connection refused" in err


def test_where_no_terminal_shows_it_a_table_is_written_again_only_when_it_has_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "WATCH_EVERY_S", 0.0)
    looks = [("", "queued", True), ("", "queued", True), ("", "running", True), ("", "queued", False)]
    output.watch(lambda: looks.pop(0), output.Output.table, again=True)
    assert capsys.readouterr().out.splitlines() == ["queued", "running", "queued"]
    assert not looks


def test_the_last_screen_stays_below_a_line_that_it_is_old(monkeypatch: pytest.MonkeyPatch, now: float) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=200, color_system=None)
    monkeypatch.setattr(output, "make_console", lambda: console)
    monkeypatch.setattr(output, "WATCH_EVERY_S", 0.0)
    looks: list[Any] = [("", "the first", True), Unavailable("It is gone."), ("", "the last", False)]

    def look() -> tuple[Any, str, bool]:
        found = looks.pop(0)
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    output.watch(look, output.Output.table, again=True)
    text = shown.getvalue()
    assert SILENT in text
    assert text.index("the first") < text.index(SILENT) < text.rindex("the first") < text.index("the last")
    looks[:] = [Unavailable("It never was.")]
    with pytest.raises(Unavailable, match="It never was"):
        output.watch(look, output.Output.table, again=True)


def test_to_wait_says_that_the_server_is_silent_and_when_it_is_back(platform: Platform, call: Call) -> None:
    platform.add_job(1)
    end_after(platform, None, None, *[refuse] * 3)
    code, _, err = call("wait", "mnist")
    assert (code, err.splitlines()) == (0, [f"legato: {SILENT}", "legato: the server answers again"])


def test_an_outage_is_reported_once_and_only_of_a_server_that_answered_before(platform: Platform) -> None:
    told: list[bool] = []
    line = platform.line(on_outage=told.append)
    platform.refuse_connection(2)
    line.send("GET", "/me")
    assert told == []
    platform.refuse_connection(3)
    line.send("GET", "/me")
    line.send("GET", "/me")
    assert told == [True, False]
    platform.streams["/events"] = deque([stream(breaks=True), stream(("end", {}, None))])
    list(line.follow("/events"))
    assert told == [True, False], "a connection may break; the next try found the server"
    platform.streams["/events"] = deque([stream(breaks=True), stream(("end", {}, None))])
    platform.faults.extend([None, refuse])
    list(line.follow("/events"))
    assert told == [True, False] * 2
