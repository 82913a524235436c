"""The driver goes and another one comes; jobs that stop and go on; checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import fork_server
from tests.integration.harness import (
    LIMIT_S,
    NAME,
    PROGRAMS,
    Act,
    Reference,
    Stage,
    abandon,
    after_event,
    at_step,
    both,
    do_all,
    kill,
    nothing,
    scale,
    steps_later,
    stop,
    with_members,
)

from legato.core.spec import JobSpec
from legato.driver.driver import Driver
from legato.driver.journal import JobDirectory, Outcome
from legato.engines.local import LocalEngine


@pytest.mark.soak
def test_drivers_come_and_go(stage: Stage, reference: Reference) -> None:
    want = reference.of("vision.py")
    plan = [
        Act(both(at_step(3), with_members(2)), abandon, "the driver dies"),
        Act(
            both(after_event("adopted"), steps_later(2), with_members(2)),
            do_all(scale(3), abandon),
            "and as 3 are asked for",
        ),
        Act(both(after_event("adopted"), steps_later(1)), scale(3), "asked again"),
        Act(with_members(3), do_all(kill(0), abandon), "together with rank 0"),
        Act(both(after_event("adopted"), with_members(3)), scale(1), "shrink"),
        Act(after_event("proposed"), abandon, "with a view proposed"),
        Act(both(after_event("adopted"), with_members(1)), nothing, "1 at the end"),
    ]
    stage.run("vision.py", workers=(1, 3, 2), plan=plan).check(want, finishers=1)


def test_stop_then_resume_with_another_number_of_workers(stage: Stage, reference: Reference) -> None:
    want = reference.of("text.py")
    stopped = stage.run("text.py", workers=(1, 3, 3), plan=[Act(both(at_step(5), with_members(3)), stop, "stop")])
    assert stopped.outcome.outcome == "stopped", stopped.story()
    assert not stopped.left_over and not stopped.digests, stopped.story()
    step = len(stopped.ledger)
    assert 5 <= step < want.num_steps
    stopped.check_records(step)
    stage.run("text.py", workers=(1, 3, 2), resume=True).check(want, finishers=2)


# ---------------------------------------------------------------- with the command line


class Commands:
    """The command line in processes of their own."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *args: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            fork_server.command_of("legato.cli.main", *args),
            env={**self._environment, **environment},
            cwd=self._stage.home.parent,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, *args: str, **environment: str) -> tuple[int, str]:
        process = self.start(*args, **environment)
        output, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode, output

    def end(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()


@pytest.fixture
def commands(stage: Stage) -> Iterator[Commands]:
    made = Commands(stage)
    yield made
    made.end()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


def num_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def hold_back(stage: Stage, step_s: float) -> None:
    (stage.reins / "pace").write_text(str(step_s))


RUN = ("run", "--plain", "--name", NAME, "--workers")


def test_killed_driver_and_attach(stage: Stage, reference: Reference, commands: Commands) -> None:
    want = reference.of("vision.py")
    hold_back(stage, 0.1)
    driver = commands.start(*RUN, "2", str(PROGRAMS / "vision.py"))
    directory = JobDirectory.of(NAME)
    wait_for(lambda: num_lines(directory.ledger_file) >= 3, "three steps")
    driver.kill()
    driver.wait()
    hold_back(stage, 0.05)
    code, output = commands.run("attach", "--plain", NAME)
    assert code == 0, output
    stage.collect(Outcome("succeeded", code, "")).check(want, finishers=2)


def test_a_job_outlives_its_terminal(stage: Stage, reference: Reference) -> None:
    """What a closed terminal or a lost SSH connection does: the terminal hangs up, and SIGHUP comes."""
    want = reference.of("twice.py")
    hold_back(stage, 0.1)
    terminal, ours = os.openpty()

    def take_terminal() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    driver = subprocess.Popen(
        fork_server.command_of("legato.cli.main", "run", "--name", NAME, "--workers", "1", str(PROGRAMS / "twice.py")),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=stage.home.parent,
        stdin=ours,
        stdout=ours,
        stderr=ours,
        start_new_session=True,
        preexec_fn=take_terminal,  # noqa: PLW1509 -- there is no other way to give a process its terminal
    )
    try:
        os.close(ours)
        directory = JobDirectory.of(NAME)
        os.set_blocking(terminal, False)

        def has_begun() -> bool:
            with contextlib.suppress(BlockingIOError):
                os.read(terminal, 65536)
            return num_lines(directory.ledger_file) >= 2

        wait_for(has_begun, "two steps")
        os.close(terminal)
        num_before = num_lines(directory.ledger_file)
        wait_for(lambda: num_lines(directory.ledger_file) >= num_before + 3, "a driver that writes steps down")
        hold_back(stage, 0.0)
        assert driver.wait(LIMIT_S) == 0
    finally:
        driver.kill()
        driver.wait()
    stage.collect(Outcome("succeeded", 0, "")).check(want, finishers=1)


@pytest.mark.soak
def test_stopped_driver(stage: Stage, reference: Reference, commands: Commands) -> None:
    want = reference.of("vision.py")
    hold_back(stage, 0.1)
    driver = commands.start(*RUN, "2", "--checkpoint-every", "1steps", str(PROGRAMS / "vision.py"))
    directory = JobDirectory.of(NAME)
    wait_for(lambda: num_lines(directory.ledger_file) >= 3, "three steps")
    driver.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{driver.pid}/stat")
    wait_for(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", "the driver is stopped")
    before = max(directory.checkpoints.glob("step-*.legato")).name
    num_lines_before = num_lines(directory.ledger_file)
    later = f"step-{int(before[5:13]) + 5:08}.legato"
    wait_for(lambda: max(directory.checkpoints.glob("step-*.legato")).name >= later, "five more steps")
    assert num_lines(directory.ledger_file) == num_lines_before
    driver.send_signal(signal.SIGCONT)
    hold_back(stage, 0.0)
    output, _ = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, output
    result = stage.collect(Outcome("succeeded", 0, ""))
    result.check(want, finishers=2)
    assert not result.of_kind("fenced") and not result.of_kind("died"), result.story()


@pytest.mark.soak
def test_driver_away_too_long(stage: Stage, reference: Reference) -> None:
    want = reference.of("vision.py")
    spec = JobSpec(
        name=NAME,
        program=(str(PROGRAMS / "vision.py"),),
        directory=str(stage.home.parent),
        max_workers=2,
        num_workers=2,
        heartbeat_interval_s=0.1,
        away_limit_s=1.0,
    )
    hold_back(stage, 0.1)

    async def drive_for_a_while() -> None:
        engine = LocalEngine(stage.directory.path)
        task = asyncio.create_task(Driver(spec, engine, stage.directory).run())
        ledger = stage.directory.ledger_file
        await asyncio.to_thread(wait_for, lambda: task.done() or num_lines(ledger) >= 3, "three steps")
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await engine.detach()

    asyncio.run(drive_for_a_while())
    wait_for(stage.all_exited, "the workers end by themselves")
    assert len(list(stage.directory.checkpoints.glob("step-*.legato"))) == 1
    hold_back(stage, 0.0)
    result = stage.run("vision.py", workers=(1, 3, 3), resume=True)
    result.check(want, has_all_losses=False)


@pytest.mark.soak
def test_stop_and_resume_by_command(stage: Stage, reference: Reference, commands: Commands) -> None:
    want = reference.of("twice.py")
    hold_back(stage, 0.1)
    driver = commands.start(*RUN, "2", str(PROGRAMS / "twice.py"))
    directory = JobDirectory.of(NAME)
    wait_for(lambda: num_lines(directory.ledger_file) >= 3, "three steps")
    driver.send_signal(signal.SIGINT)
    output, _ = driver.communicate(timeout=LIMIT_S)
    assert driver.returncode == 0, output
    assert "--resume" in output, output
    hold_back(stage, 0.0)
    code, output = commands.run(*RUN, "1", "--resume", str(PROGRAMS / "twice.py"))
    assert code == 0, output
    stage.collect(Outcome("succeeded", code, "")).check(want, finishers=1)


# ---------------------------------------------------------------- checkpoint files


@pytest.mark.soak
def test_an_incomplete_checkpoint_is_skipped_and_the_one_before_is_in_the_middle_of_an_epoch(
    stage: Stage, reference: Reference
) -> None:
    want = reference.of("text.py")
    plan = [Act(both(at_step(10), after_event("saved")), stop, "stop")]
    stage.run("text.py", workers=(1, 2, 2), plan=plan, checkpoint_every="3steps", keep=20)
    for path in stage.directory.checkpoints.glob("step-*.legato"):
        if path.name > "step-00000009.legato":
            path.unlink()
    *_, before, newest = sorted(stage.directory.checkpoints.glob("step-*.legato"))
    assert before.name == "step-00000006.legato", "an epoch has 4 steps"
    content = newest.read_bytes()
    newest.write_bytes(content[: len(content) // 2])
    result = stage.run("text.py", workers=(1, 2, 1), resume=True)
    result.check(want, finishers=1)
    assert any(
        "damaged" in e["reason"] and newest.name in e["reason"] and e["level"] == "warning" for e in result.events
    )
    assert any(f"Resumed from {before}" in e["reason"] for e in result.events), result.story()


def test_a_job_without_a_readable_checkpoint_begins_from_scratch_only_if_it_is_asked_to(
    stage: Stage, reference: Reference, commands: Commands
) -> None:
    want = reference.of("twice.py")
    plan = [Act(both(at_step(4), after_event("saved")), stop, "stop")]
    stage.run("twice.py", plan=plan, checkpoint_every="3steps")
    for path in stage.directory.checkpoints.glob("step-*.legato"):
        path.write_bytes(path.read_bytes()[:-5])
    hold_back(stage, 0.0)
    code, output = commands.run(*RUN, "1", str(PROGRAMS / "twice.py"))
    assert code == 1 and "can be read" in output and "--no-resume" in output, output
    code, output = commands.run(*RUN, "1", "--no-resume", str(PROGRAMS / "twice.py"))
    assert code == 0, output
    stage.collect(Outcome("succeeded", code, "")).check(want, finishers=1)


@pytest.mark.soak
def test_a_foreign_checkpoint_is_refused(stage: Stage) -> None:
    stage.run("twice.py", "--epochs", "2")
    result = stage.run("text.py", resume=True)
    assert result.outcome.outcome == "failed" and not result.left_over, result.story()
    assert "belongs to another program" in result.outcome.reason + result.logs[max(result.logs)], result.story()
