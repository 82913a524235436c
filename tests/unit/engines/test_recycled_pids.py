"""An engine that finds the record of another time: whose numbers those are now is asked before anything is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from legato.core.warm import Entry, Record, mark_of
from legato.engines.base import Exited, Started
from legato.engines.local import LocalEngine
from legato.system.processes import boot_id, is_alive, send_signal, start_time_of

DEADLINE_S = 30.0
ECHO = "import sys; [print(line, end='', flush=True) for line in sys.stdin]"
FAMILY = f'import subprocess, sys; print(subprocess.Popen([sys.executable, "-c", """{ECHO}"""]).pid, flush=True)'


@pytest.fixture(autouse=True)
def paths(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{root / 'src'}{os.pathsep}{root}")


def spawn(script: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **variables},
    )


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[str]]:
    """A process of another user, with its own group."""
    with spawn(ECHO) as process:
        yield process
        process.kill()


def answers(process: subprocess.Popen[str]) -> bool:
    """Whether it was spared: who was sent a signal that ends it answers nothing, however late its end is seen."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("well?\n")
    process.stdin.flush()
    return process.stdout.readline() == "well?\n"


def born(pid: int) -> int:
    found = start_time_of(pid)
    assert found is not None
    return found


def leave_record(directory: Path, *workers: Entry, boot: str | None = None) -> None:
    """Write what an engine leaves behind whose driver and warm parent died."""
    record = Record(
        socket=str(directory / "gone" / "s"),
        start="fork",
        entry="tests.contract.tiny_worker:main",
        preload=(),
        wished=(),
        idle_limit_s=60.0,
        pid=0,
        boot=boot_id() if boot is None else boot,
        workers=dict(enumerate(workers, start=1)),
    )
    (directory / "engine.json").write_bytes(msgspec.json.encode(record))


def take_over(directory: Path, num_events: int, *, force: tuple[int, ...] = ()) -> list[object]:
    """Open an engine there, end workers, and return what it tells."""

    async def run() -> list[object]:
        async with asyncio.timeout(DEADLINE_S):
            engine = LocalEngine(directory, entry="tests.contract.tiny_worker:main", preload=())
            await engine.open()
            for worker in force:
                await engine.stop(worker, force=False)
                await engine.stop(worker, force=True)
            events = engine.events()
            seen: list[object] = [await anext(events) for _ in range(num_events)]
            await engine.close()
            return seen

    return asyncio.run(run())


def test_a_number_that_was_given_out_again(tmp_path: Path, stranger: subprocess.Popen[str]) -> None:
    leave_record(tmp_path, Entry(stranger.pid, born(stranger.pid) - 1, told=True))
    assert take_over(tmp_path, 1, force=(1,)) == [Exited(worker=1, exit_code=-9)]
    assert answers(stranger)


def test_a_machine_that_was_restarted(tmp_path: Path, stranger: subprocess.Popen[str]) -> None:
    """Start times count from the boot: by chance both may be equal."""
    leave_record(tmp_path, Entry(stranger.pid, born(stranger.pid), told=True), boot="another one")
    assert take_over(tmp_path, 1, force=(1,)) == [Exited(worker=1, exit_code=-9)]
    assert answers(stranger)


@pytest.mark.parametrize("ours", [True, False])
def test_what_a_dead_worker_left_in_its_group(tmp_path: Path, *, ours: bool) -> None:
    """Its children hold the slot's GPU: they must go, and no other processes."""
    name, _, value = mark_of(str(tmp_path / "engine.json") if ours else "/elsewhere/engine.json").partition("=")
    with spawn(FAMILY, **{name: value}) as leader:
        start_time = born(leader.pid)
        assert leader.stdout is not None
        child = int(leader.stdout.readline())
        child_born = born(child)
        leader.wait()
        leave_record(tmp_path, Entry(leader.pid, start_time, told=True))
        try:
            assert take_over(tmp_path, 1) == [Exited(worker=1, exit_code=-9)]
            if not ours:
                assert answers(leader)
            deadline = time.monotonic() + DEADLINE_S
            while ours and is_alive(child, child_born):
                assert time.monotonic() < deadline, "it was left alive"
                time.sleep(0.01)
        finally:
            send_signal(child, child_born, signal.SIGKILL)


def test_a_worker_that_lives_is_adopted_and_ended(tmp_path: Path, stranger: subprocess.Popen[str]) -> None:
    leave_record(tmp_path, Entry(stranger.pid, born(stranger.pid)))
    assert take_over(tmp_path, 2, force=(1,)) == [
        Started(worker=1, pid=stranger.pid),
        Exited(worker=1, exit_code=-9),
    ]
    assert stranger.wait() in (-signal.SIGKILL, -signal.SIGTERM)
