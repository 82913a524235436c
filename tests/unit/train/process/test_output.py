"""A program whose log cannot be written: it goes on, and its user learns how many bytes are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PRINT = """
import os, sys
from pathlib import Path
from legato.train.process.output import OutputGuard
told = Path(sys.argv[1])
guard = OutputGuard(lambda level, text: told.open("a").write(f"{level}: {text}\\n"))
guard.install()
print("before")
fill = Path("fill").open("wb", buffering=0)
try:
    while True:
        fill.write(bytes(4096))
except OSError:
    pass
for _ in range(3000):
    print("lost " * 2)
print("also lost", file=sys.stderr)
if sys.argv[2] == "heal":
    fill.truncate(0)
    print("after", flush=True)
guard.close()
"""


def run_on_small_disk(tmp_path: Path, how: str) -> tuple[str, str]:
    """Run the program with a log on a disk that it fills; returns the log and the messages."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a small disk needs root and unshare")
    disk, log, told = tmp_path / "disk", tmp_path / "log", tmp_path / "told"
    disk.mkdir()
    script = f"""
        mount -t tmpfs -o size=64k none {disk} && cd {disk} &&
        "$@" >>{disk}/log 2>&1; code=$?
        cp {disk}/log {log}; exit $code
    """
    command = [sys.executable, "-c", PRINT, str(told), how]
    done = subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + log.read_text()[-2000:]
    return log.read_text(), told.read_text()


def test_a_full_disk_stops_no_program_and_the_log_says_what_is_missing(tmp_path: Path) -> None:
    log, told = run_on_small_disk(tmp_path, "heal")
    before, _, rest = log.partition("[legato] ")
    assert before.startswith("before\n") and rest.endswith("after\n")
    missing = 3000 * len("lost " * 2 + "\n") + len("also lost\n") - (len(before.strip("\n")) - len("before\n"))
    num_bytes = int(rest.split()[0])
    assert abs(num_bytes - missing) <= 2, "newlines at the edges"
    assert rest.startswith(f"{num_bytes} bytes of output are missing here: No space left on device.\n")
    first, second = told.splitlines()
    assert first.startswith("warning: its log cannot be written: No space left on device. Training goes on")
    assert second == (f"warning: its log is written again; {num_bytes} bytes of output were lost ({num_bytes} in all)")


def test_what_is_lost_at_the_end_of_a_program_is_reported(tmp_path: Path) -> None:
    log, told = run_on_small_disk(tmp_path, "stay")
    assert "[legato]" not in log
    _, last = told.splitlines()
    assert last.startswith("warning: the last ") and last.endswith("No space left on device")


FULL_PIPE = """
import os, sys
from pathlib import Path
from legato.train.process.output import OutputGuard
told = Path(sys.argv[1])
os.set_blocking(1, False)
guard = OutputGuard(lambda level, text: told.open("a").write(f"{level}: {text}\\n"))
guard.install()
for _ in range(20_000):
    print("lost " * 2)
guard.close()
"""


def test_a_full_pipe_that_does_not_wait_stops_no_program(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    command = [sys.executable, "-c", FULL_PIPE, str(tmp_path / "told")]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False)
    finally:
        os.close(writer)
        os.close(reader)
    assert done.returncode == 0, done.stderr
    first, last = (tmp_path / "told").read_text().splitlines()
    assert first.startswith("warning: its log cannot be written: it is a pipe that is full")
    assert last.startswith("warning: the last ")
