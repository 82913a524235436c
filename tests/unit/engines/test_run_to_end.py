"""Commands that are run to their end, and those that do not end."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from legato.engines import parent


def test_a_command_that_has_ended_is_not_waited_for_because_its_child_keeps_the_output(tmp_path: Path) -> None:
    """Such as a daemon that a program starts."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    held = os.open(fifo, os.O_RDWR)
    command = ["/bin/sh", "-c", f"exec 3< {fifo}; /bin/cat <&3 & echo done"]
    found: list[tuple[int, str]] = []
    runs = threading.Thread(target=lambda: found.append(parent.run_to_end(None, command, {}, 20)))
    runs.start()
    runs.join(20)
    os.close(held)  # now its child ends
    assert found == [(0, "done\n")]


def test_a_process_that_even_sigkill_does_not_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in a driver of a GPU. No test can make such a process: here the signal does not reach it."""
    started: list[subprocess.Popen[bytes]] = []
    wait = subprocess.Popen.wait

    def note(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        assert timeout is not None, "nothing bounds this wait"
        started.append(process)
        return wait(process, timeout)

    def kill(process: subprocess.Popen[bytes]) -> None:
        started.append(process)

    monkeypatch.setattr(parent, "_KILL_LIMIT_S", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", kill)
        patch.setattr(subprocess.Popen, "wait", note)
        with pytest.raises(subprocess.TimeoutExpired):
            parent.run_to_end(None, ["/bin/sleep", "60"], {}, 0.05)
    assert len(started) == 3, "it is waited for, killed, and waited for once more"
    assert started[0].poll() is None
    started[0].kill()
    started[0].wait(20)
