"""Commands of a cluster: the server does not wait for what they leave behind, write or keep open."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.clusters import commands
from legato.clusters.commands import Done, SilentError, run_command

LIMIT_S = 60.0
"""Of a whole test, which must not hang if it fails."""
# A process that leaves the group of its parent, keeps its stdout and stderr, and says who it is in a file.
STAY = f"""
import os, pathlib, signal, subprocess, sys
code = "import os, pathlib, signal; pathlib.Path('pid.new').write_text(str(os.getpid())); "
code += "os.rename('pid.new', 'pid'); signal.pause()"
child = subprocess.Popen([{sys.executable!r}, "-c", code], start_new_session=sys.argv[1] == "apart")
while not pathlib.Path("pid").exists():
    assert child.poll() is None
print("7", flush=True)
if sys.argv[2] == "wait":
    signal.pause()
"""


def run(*arguments: str, given: str = "", max_bytes: int = 2**16, limit_s: float = LIMIT_S) -> Done:
    async def call() -> Done:
        async with asyncio.timeout(LIMIT_S):
            command = [sys.executable, "-c", *arguments]
            return await run_command(command, os.environ, given, limit_s=limit_s, max_bytes=max_bytes)

    return asyncio.run(call())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    file = tmp_path / "pid"
    if file.exists():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def test_a_command_reads_writes_and_ends(folder: Path) -> None:
    text = "x" * 500_000
    code = "import sys; text = sys.stdin.read(); print(len(text)); sys.stderr.write('no\\n'); sys.exit(3)"
    assert run(code, given=text) == (3, "500000\n", "no\n")
    assert run("import sys; sys.stdout.write('y' * 3_000_000)", max_bytes=3_000_000).told == "y" * 3_000_000


def test_a_process_that_outlives_its_parent_and_keeps_stdout_is_not_waited_for(folder: Path) -> None:
    assert run(STAY, "apart", "end").told == "7\n"
    os.kill(int((folder / "pid").read_text()), 0)  # it was not killed: it may be of use, as the master of an ssh


def test_a_silent_command_ends_although_another_process_keeps_stdout(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "_KILL_LIMIT_S", LIMIT_S)
    with pytest.raises(SilentError, match="did not answer within 2 s"):
        run(STAY, "apart", "wait", limit_s=2)


def test_the_children_of_a_silent_command_are_killed_with_it(folder: Path) -> None:
    """The command may be a script of the site around the real one."""
    os.mkfifo(folder / "alive")
    alive = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
    held = STAY.replace("], start", "], close_fds=False, start")
    with pytest.raises(SilentError):
        run(f"import os; os.set_inheritable(os.open('alive', os.O_WRONLY), True); {held}", "in", "wait", limit_s=2)
    assert (folder / "pid").exists()
    with os.fdopen(alive, "rb"):
        # Not select(): this process may have more than 1,024 files open.
        waiting = select.poll()
        waiting.register(alive, select.POLLIN)
        assert waiting.poll(LIMIT_S * 1000)
        assert os.read(alive, 1) == b""


@pytest.mark.parametrize("ends", [True, False])
def test_a_command_that_writes_without_end_fills_no_memory(folder: Path, ends: bool) -> None:
    code = "import os\nfor _ in range(3): os.write(2, b'z' * 30_000)"
    if not ends:
        code += "\nwhile True: os.write(1, b'z' * 30_000)"
    with pytest.raises(SilentError, match="wrote more than 65536 bytes" if ends else "did not answer"):
        run(code, limit_s=LIMIT_S if ends else 1)


def test_nothing_stays_open(folder: Path) -> None:
    run("pass")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(SilentError):
        run("import signal; signal.pause()", limit_s=0.5)
    run("pass")
    assert os.listdir("/proc/self/fd") == before
