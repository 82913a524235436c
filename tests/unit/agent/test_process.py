"""The process of an agent, and how it is killed (`legato.agent.process`)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from legato.agent import process
from legato.agent.orders import AgentOrder
from legato.agent.process import LOCK_FILE, is_running, kill_agent, start_agent
from legato.core.errors import LegatoError
from legato.system.processes import boot_id, start_time_of

ORDER = AgentOrder(job="job", node="h2", urls=("ws://127.0.0.1:1/agent",), token="token", address="127.0.0.1")
LIMIT_S = 30.0


def test_an_agent_that_runs_is_killed(tmp_path: Path) -> None:
    # As an earlier agent has left it: longer than what the next one writes.
    (tmp_path / LOCK_FILE).write_text("4711 1 " + "b" * 100 + "\n")
    start_agent(tmp_path, ORDER)
    end = time.monotonic() + LIMIT_S
    while not is_running(tmp_path) and time.monotonic() < end:
        time.sleep(0.01)
    kill_agent(tmp_path)
    assert not is_running(tmp_path)


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
