"""The commands of README and of the quickstarts, as they stand there: each is read from the page and run."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.integration.serving import pids_of
from tests.ports import find_port

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 120.0
DEMO_LIMIT_S: Final = 600.0
PASSWORD: Final = "password-of-bob"
LAPTOP, PLATFORM, ADMINISTRATOR = (f"docs/quickstarts/{name}.md" for name in ("laptop", "platform", "administrator"))


def blocks(page: str) -> list[list[str]]:
    """Return the blocks of commands of a page, without remarks."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [[re.sub(r"\s+# .*", "", line) for line in block.splitlines()] for kind, block in fenced if not kind]
    return [block for block in lines if re.match(r"(git|legato|pip|python|wget|elasticdl) ", block[0])]


def slow_program() -> str:
    """Return the example with a pause in each turn, and more epochs, so that commands reach it while it trains."""
    program = (ROOT / "examples/digits_elastic.py").read_text()
    slow = program.replace("run.backward(loss)\n", "run.backward(loss)\n        time.sleep(0.03)\n")
    long = slow.replace('"--epochs", type=int, default=5', '"--epochs", type=int, default=2000')
    assert len({program, slow, long}) == 3
    return f"import time\n{long}"


class Terminal:
    """A terminal of a user with a home of their own.

    Args:
        home: a new folder.
        port: of the platform, in place of 8765 on the pages.
    """

    def __init__(self, home: Path, port: int) -> None:
        self.folder = home / "project"
        self.folder.mkdir(parents=True)
        (self.folder / "train.py").write_text(slow_program())
        (self.folder / "password.txt").write_text(f"{PASSWORD}\n")
        programs = home / "bin"
        programs.mkdir()
        for name, words in (("python", ""), ("legato", "-m legato.cli ")):
            (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words}"$@"\n')
            (programs / name).chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LEGATO_", "XDG_"))}
        own = {"HOME": str(home), "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "LEGATO_PORT": str(port)}
        self._environment = {**kept, **own, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")}
        self._port = port
        self._started: list[subprocess.Popen[bytes]] = []

    def _command(self, command: str) -> list[str]:
        return ["bash", "-eu", "-o", "pipefail", "-c", command.replace(":8765", f":{self._port}")]

    def run(self, command: str, limit_s: float = LIMIT_S, **variables: str) -> str:
        """Run a command to its end."""
        done = subprocess.run(
            self._command(command),
            cwd=self.folder,
            env=self._environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=limit_s,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}"
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on, in the background; its output is `said`."""
        with (self.folder.parent / f"{len(self._started)}.txt").open("wb") as output:
            process = subprocess.Popen(
                self._command(f"exec {command}"),
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def said(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder.parent / f"{self._started.index(process)}.txt").read_text()

    def type_password(self, command: str) -> str:
        """Run a command that asks for a password, on a terminal."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execvpe("bash", self._command(command), self._environment)
        said = b""
        deadline = time.monotonic() + LIMIT_S
        is_typed = False
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.1)[0]:
                try:
                    said += os.read(terminal, 4096)
                except OSError:
                    break
            # The blank comes when the terminal no longer shows what is typed; what was typed before is dropped.
            if not is_typed and re.search(rb"assword.*: $", said):
                is_typed = True
                os.write(terminal, f"{PASSWORD}\n".encode())
        os.close(terminal)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, said.decode()
        assert is_typed
        return said.decode()

    def end(self) -> None:
        for process in reversed(self._started):
            process.send_signal(signal.SIGINT)
        for process in self._started:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        # The jobs of a platform go on without it.
        for pid in pids_of(self.folder.parent / ".local/share/legato"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture
def port() -> int:
    return find_port()


@pytest.fixture
def me(tmp_path: Path, port: int) -> Iterator[Terminal]:
    made = Terminal(tmp_path / "me", port)
    yield made
    made.end()


@pytest.fixture
def bob(tmp_path: Path, port: int) -> Iterator[Terminal]:
    made = Terminal(tmp_path / "bob", port)
    yield made
    made.end()


def start_platform(me: Terminal, command: str) -> None:
    up = me.start(command)
    wait_until(lambda: "answers at" in me.said(up) or up.poll() is not None, "the platform answers")
    assert up.poll() is None, me.said(up)


def begin_job(me: Terminal, command: str) -> subprocess.Popen[bytes]:
    """Start ``legato run``, and wait until the job trains."""
    running = me.start(command)

    def trains() -> bool:
        assert running.poll() is None, me.said(running)
        shown = subprocess.run(
            me._command("legato status digits -o json"), env=me._environment, cwd=me.folder, capture_output=True
        )
        return re.search(rb'"step": ?[1-9]', shown.stdout) is not None

    wait_until(trains, "the job trains")
    return running


def test_the_two_commands_that_set_legato_up(me: Terminal) -> None:
    ((clone, demo, tests),) = [block for block in blocks("README.md") if block[0].startswith("git clone")]
    me.run(clone.replace("<this repository>", str(ROOT)))
    me.folder /= "legato"
    # The environment and the console of these tests stand for those that make would install, and one test for all.
    variables = rf"READY= NPM= BIN={Path(sys.executable).parent}"
    told = me.run(demo, DEMO_LIMIT_S, MAKEFLAGS=variables, PYTHONPATH="src")
    assert "\nEQUAL " in told
    variables += r" PYTEST=-m\ pytest\ -q\ tests/unit/core/test_span.py"
    told = me.run(tests, MAKEFLAGS=variables, PYTHONPATH="src:.")
    assert " passed" in told


def test_a_job_at_a_terminal(me: Terminal) -> None:
    (run, scale, status, logs, stop), *_ = [block for block in blocks("README.md") if "--name digits" in block[0]]
    running = begin_job(me, run)
    me.run(scale)
    wait_until(lambda: re.search(r"\b2\b", me.run(status)), "two workers")
    following = me.start(logs)
    me.run(stop)
    assert running.wait(LIMIT_S) is not None
    following.wait(LIMIT_S)
    resumed = me.start(run)
    assert resumed.wait(LIMIT_S) == 0, me.said(resumed)
    assert "resum" in me.said(resumed)


def test_two_users_share_a_platform(me: Terminal, bob: Terminal) -> None:
    found = blocks("README.md")
    ((up, submit, ps, explain),) = [block for block in found if block[0].startswith("legato up")]
    ((add, login, second, both),) = [block for block in found if block[0].startswith("legato users")]
    start_platform(me, up)
    me.run(submit)
    wait_until(lambda: re.search(r"first +\S+ +running +4 of 1..4", me.run(ps)), "the first job has four slots")
    me.run(explain)
    me.run(add)
    bob.type_password(login)
    bob.run(second)
    for user in (me, bob):
        wait_until(lambda user=user: len(re.findall(r"running +2 of 1..4", user.run(both))) == 2, "two slots each")  # type: ignore[misc]


def test_the_quickstart_for_data_scientists(me: Terminal) -> None:
    install, alone, job = blocks(LAPTOP)
    assert install[1] == "legato doctor"
    assert install[0].startswith("pip install '.[train]'"), "test_wheel.py installs it"
    me.run(install[1])
    (program, *_) = re.findall(r"^```python\n(.*?)^```", (ROOT / LAPTOP).read_text(), re.MULTILINE | re.DOTALL)
    (me.folder / "trainer.py").write_text(program)
    for command in alone:
        me.run(command)
    run, scale, status, logs, attach, stop, again = job
    assert run == again
    running = begin_job(me, run)
    me.run(scale)
    assert "digits" in me.run(status)
    watching = [me.start(logs), me.start(attach)]
    me.run(stop)
    for process in (running, *watching):
        process.wait(LIMIT_S)
    resumed = me.start(again)
    assert resumed.wait(LIMIT_S) == 0, me.said(resumed)


def test_the_quickstarts_for_administrators_and_users(me: Terminal, bob: Terminal) -> None:
    (doctor, up), (add, users, queue, queues) = blocks(ADMINISTRATOR)
    me.run(doctor)
    start_platform(me, up)
    me.run(add)
    assert "bob" in me.run(users)
    me.run(queue)
    assert "research" in me.run(queues)
    (login,), (plan, submit), commands = blocks(PLATFORM)
    bob.type_password(login)
    bob.run(plan)
    watching = bob.start(submit)
    wait_until(lambda: re.search(r"mnist +bob +running", bob.run("legato ps")), "the job trains")
    for command in commands:
        if command.startswith("legato resume"):
            wait_until(lambda: re.search(r"mnist +bob +paused", bob.run("legato ps")), "the job has paused")
        if command.startswith("legato logs"):
            wait_until(lambda: re.search(r"mnist +bob +running", bob.run("legato ps")), "the job trains again")
        bob.run(command)
    watching.wait(LIMIT_S)


@pytest.mark.parametrize(
    ("page", "number"), [("README.md", 4), (LAPTOP, 3), (PLATFORM, 3), (ADMINISTRATOR, 2)], ids=str
)
def test_these_are_all_blocks_of_commands(page: str, number: int) -> None:
    assert len(blocks(page)) == number
