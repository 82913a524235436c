"""A program of the fork server finds what a new interpreter finds; the other tests rely on it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server

from legato.engines.variables import variables_of_parent

PROGRAM = """
import json, os, signal, sys
import __main__
part = __import__("part")

def read(name):
    with open(f"/proc/self/{name}", "rb") as file:
        return sorted(filter(None, file.read().decode().split("\\0")))

def of(number):
    found = signal.getsignal(number)
    return found.__name__ if callable(found) else str(found)

streams = (sys.stdin, sys.stdout, sys.stderr)
found = {
    "arguments": sys.argv,
    "command": (read("cmdline"), sys.orig_argv),
    "environment": (dict(os.environ), read("environ")),
    "directory": os.getcwd(),
    "path": sys.path,
    "is leader": os.getsid(0) == os.getpid(),
    "group of the tests": os.getpgrp() == int(sys.argv[1]),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd"))[:-1],
    "inherited": os.read(int(sys.argv[2]), 9).decode(),
    "signals": {number.name: of(number) for number in signal.valid_signals() if isinstance(number, signal.Signals)},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "wakes": signal.set_wakeup_fd(-1),
    "hashing": sys.flags.hash_randomization,
    "buffering": [(stream.line_buffering, stream.encoding, stream.fileno()) for stream in streams],
    "main": (__name__, __main__ is sys.modules["__main__"], globals() is vars(__main__)),
    "threads": len(os.listdir("/proc/self/task")),
}
print(json.dumps(found))
print("an error", file=sys.stderr)
sys.exit(part.CODE)
"""


def variables() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    return {**kept, "PYTHONPATH": "/nowhere", "CUDA_VISIBLE_DEVICES": "", "LEGATO_TEST": "a value"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Other tests may have started as many fork servers as there may be.
    monkeypatch.setattr(fork_server, "_MAX_SERVERS", 100)
    (tmp_path / "here").mkdir()
    for place in (tmp_path, tmp_path / "here"):
        (place / "tell.py").write_text(PROGRAM)
        (place / "part.py").write_text("CODE = 7\n")
    return tmp_path


@pytest.mark.parametrize("program", [("tell.py",), ("-m", "tell")], ids=["file", "module"])
@pytest.mark.parametrize("own_session", [False, True])
def test_a_program_finds_what_a_new_interpreter_finds(
    folder: Path, program: tuple[str, ...], own_session: bool
) -> None:
    def tell(start: Callable[..., Any], name: str) -> tuple[int, dict[str, Any], str]:
        given, own = os.pipe()
        os.write(own, b"a message")
        with (folder / name).open("w+b") as out, (folder / "errors").open("w+b") as errors:
            process = start(
                [sys.executable, *program, str(os.getpgrp()), str(given)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                cwd=folder / "here",
                env=variables(),
                pass_fds=[given],
                start_new_session=own_session,
            )
            code = process.wait(60)
        os.close(given)
        os.close(own)
        return code, json.loads((folder / name).read_bytes()), (folder / "errors").read_text()

    want, got = tell(subprocess.Popen, "real"), tell(fork_server.start, "forked")
    assert got == want
    assert want[0] == 7


def test_the_end_of_a_program_is_reported_as_popen_reports_it(folder: Path) -> None:
    (folder / "wait.py").write_text("import signal; signal.pause()")
    with (folder / "out").open("w+b") as out:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        process = fork_server.start([sys.executable, str(folder / "wait.py")], env=variables(), **streams)
    assert isinstance(process, fork_server.ForkedProcess)
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.0)
    process.kill()
    assert process.wait() == process.poll() == process.returncode == -signal.SIGKILL


@pytest.mark.skipif(os.geteuid() != 0, reason="disks of its own need root")
def test_a_program_sees_the_disks_and_the_network_of_the_process_that_starts_it(folder: Path) -> None:
    (folder / "look.py").write_text("import os; print(os.listdir('here'), len(open('/proc/net/dev').readlines()))")
    environment = {**variables(), "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    fork_server.prepare(environment)
    orders = (
        "import json; given = json.loads(sys.argv[1]); assert fork_server._place_of(given).exists(); "
        "print(fork_server.run([sys.executable, 'look.py'], env=given, timeout=60).stdout)"
    )
    guest = [sys.executable, "-c", fork_server.begin_guest() + orders, json.dumps(environment)]
    script = 'mount -t tmpfs none here && touch here/file && exec "$@"'
    done = subprocess.run(
        ["unshare", "--mount", "--net", "sh", "-c", script, "sh", *guest],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["['file']", "3"], done


def test_an_error_ends_a_program_with_its_traceback(folder: Path) -> None:
    (folder / "bad.py").write_text("print('begun')\n1 / 0\n")
    done = fork_server.run([sys.executable, str(folder / "bad.py")], env=variables(), timeout=60)
    assert (done.returncode, done.stdout) == (1, "begun\n")
    assert "ZeroDivisionError" in done.stderr
    assert 'bad.py", line 2' in done.stderr


def test_what_python_reads_when_it_starts_is_never_put_on_afterwards(folder: Path) -> None:
    """Another value means another fork server; what runs before the program means a real start."""
    (folder / "seed.py").write_text("import sys; print(hash('a word'))")
    command = [sys.executable, str(folder / "seed.py")]
    seeded = variables_of_parent(variables(), {}, "/", "/")
    real = subprocess.run(command, env=seeded, capture_output=True, text=True, timeout=60)
    assert fork_server.run(command, env=seeded, timeout=60).stdout == real.stdout
    (folder / "sitecustomize.py").write_text("print('before')")
    done = fork_server.run(command, env={**variables(), "PYTHONPATH": str(folder)}, timeout=60)
    assert done.stdout.startswith("before\n")


def test_tests_that_end_before_a_fork_server_is_ready_do_not_wait_for_it() -> None:
    program = (
        "import os; from tests import fork_server\n"
        "with fork_server.open_folder(): fork_server.prepare(dict(os.environ))\n"  # it still imports torch
    )
    environment = {name: value for name, value in os.environ.items() if name != "FORK_SERVERS"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=Path(__file__).parents[2], timeout=100, check=False
    )
    assert done.returncode == 0
