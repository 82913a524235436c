"""The process of an agent, and how it is killed (`legato.agent.process`)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from legato.agent import process
from legato.agent.orders import AgentOrder
from legato.agent.process import (
    LOCK_FILE,
    LOG_FILE,
    has_died,
    is_running,
    kill_agent,
    start_agent,
    wait_for_agent,
)
from legato.core.errors import LegatoError
from legato.system.processes import boot_id, start_time_of

ORDER = AgentOrder(job="job", node="h2", urls=("ws://127.0.0.1:1/agent",), token="token", address="127.0.0.1")
LIMIT_S = 30.0


def test_an_agent_that_runs_is_killed(tmp_path: Path) -> None:
    # As an earlier agent has left it: longer than what the next one writes.
    (tmp_path / LOCK_FILE).write_text("4711 1 " + "b" * 100 + "\n")
    start_agent(tmp_path, ORDER)
    assert is_running(tmp_path), "it holds the lock when its start has ended"
    kill_agent(tmp_path)
    assert not is_running(tmp_path)


def test_a_step_waits_until_its_agent_has_ended(tmp_path: Path) -> None:
    start_agent(tmp_path, ORDER)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(wait_for_agent, tmp_path)
        assert not waiting.done()
        kill_agent(tmp_path)
        assert waiting.result(LIMIT_S) is False, "the job has not ended"
    shutil.rmtree(tmp_path)
    assert wait_for_agent(tmp_path) is True, "an agent deletes its directory when its job has ended"


@pytest.mark.parametrize("identity", ["{pid}\n", "{pid} {earlier} {boot}\n", "{pid} {start} another-boot\n"])
def test_a_process_that_has_the_number_of_an_earlier_agent_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, identity: str
) -> None:
    monkeypatch.setattr(process, "_NUM_POLLS", 3)
    other = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        start = start_time_of(other.pid)
        assert start is not None
        lock = os.open(tmp_path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        # The next agent holds the lock, and has not written its own identity yet.
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = identity.format(pid=other.pid, start=start, earlier=start - 1, boot=boot_id())
        (tmp_path / LOCK_FILE).write_text(said)
        with pytest.raises(LegatoError, match="cannot be killed"):
            kill_agent(tmp_path)
        os.close(lock)
        other.communicate()
        assert other.returncode == 0, "it ended by itself"
    finally:
        other.kill()
        other.wait()


def test_an_agent_that_has_died_is_started_again_while_its_driver_is_connected(tmp_path: Path) -> None:
    code = "from legato.agent import starting as s; s.find_facts = lambda *_: s.Facts(); raise SystemExit(s.main())"
    environment = {**os.environ, "LEGATO_HOME": str(tmp_path)}
    starting = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert starting.stdin is not None and starting.stdout is not None
    with starting.stdin, starting.stdout:
        starting.stdout.readline()
        starting.stdin.write(msgspec.json.encode(ORDER) + b"\n")
        starting.stdin.flush()
        assert msgspec.json.decode(starting.stdout.readline()) == {"error": None}
        (directory,) = (tmp_path / "agents" / ORDER.node).iterdir()
        first = find_pid(directory, other_than=0)
        os.kill(first, signal.SIGKILL)
        find_pid(directory, other_than=first)
    assert starting.wait(LIMIT_S) == 0, "it ends with its input"
    kill_agent(directory)


def find_pid(directory: Path, other_than: int) -> int:
    """Return the process of the agent that runs, once it is another one."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it has not written it yet
            pid = int((directory / LOCK_FILE).read_text().split()[0])
            if pid != other_than:
                return pid
        time.sleep(0.01)
    raise AssertionError((directory / LOG_FILE).read_text())


@pytest.mark.parametrize("end", ["return 'the job has ended'", "raise process.UsageError('an order that is none')"])
def test_an_agent_that_has_ended_by_itself_has_not_died(tmp_path: Path, end: str) -> None:
    code = f"from legato.agent import process\ndef serve(_): {end}\nprocess._serve = serve\n"
    code += f"process.main(process.Path({str(tmp_path)!r}))"
    assert not has_died(tmp_path), "there was none"
    # The agent is the child of a process that ends at once, and holds the pipe until its own end.
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=LIMIT_S)
    assert not is_running(tmp_path) and not has_died(tmp_path)
    (tmp_path / LOCK_FILE).write_text("4711 1 boot\n")
    assert has_died(tmp_path), "nothing has changed the file since it was killed"
