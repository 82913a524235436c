"""Commands in separate processes, some at a terminal: what they load, request, draw and leave behind."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.server.platform import Platform

import legato

LIMIT_S = 30.0
HEAVY = {
    "torch",
    "numpy",
    "pandas",
    "fastapi",
    "starlette",
    "uvicorn",
    "sqlalchemy",
    "alembic",
    "pydantic_settings",
    "structlog",
    # Modules that only packing needs, that only a terminal needs, and that only the command line of httpx needs:
    "pathspec",
    "rich",
    "click",
    "pygments",
}


@pytest.fixture
def environment(platform: Platform, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LEGATO_")}
    return kept | {
        "PYTHONPATH": str(Path(legato.__file__).parents[1]),
        "LEGATO_HOME": str(tmp_path / "none"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "LEGATO_SERVER": platform.url,
        "LEGATO_TOKEN": platform.secrets["ann"],
        "TERM": "xterm-256color",
    }


class Terminal:
    """A terminal, and a command in it."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self.end, child = pty.openpty()
        self.before = termios.tcgetattr(child)
        self.child = child
        program = [sys.executable, "-m", "legato.cli", *command]
        self.process = subprocess.Popen(
            program, env=environment, cwd=folder, stdin=child, stdout=child, stderr=child, start_new_session=True
        )
        self.text = ""
        self.readable = select.poll()  # unlike select(), for any number of open files
        self.readable.register(self.end, select.POLLIN)

    def wait_for(self, wanted: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while wanted not in self.text:
            assert time.monotonic() < deadline, self.text
            if self.readable.poll(100):
                self.text += os.read(self.end, 65536).decode(errors="replace")

    def type(self, text: str) -> None:
        os.write(self.end, text.encode())

    def ended(self) -> int:
        return self.process.wait(LIMIT_S)


@contextmanager
def terminal(command: list[str], environment: dict[str, str], folder: Path) -> Iterator[Terminal]:
    made = Terminal(command, environment, folder)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        os.close(made.end)
        os.close(made.child)


def list_loaded(environment: dict[str, str], folder: Path) -> tuple[str, set[str]]:
    """Run `legato ps`; return what it writes, and the modules and packages that it has loaded."""
    code = (
        "import sys; sys.argv = ['legato', 'ps']\n"
        "from legato.cli import main as cli\n"
        "try:\n    cli.main()\nfinally:\n    print('loaded', *sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S
    )
    told, _, modules = done.stderr.rpartition("loaded ")
    return done.stdout + told, {*modules.split(), *(name.partition(".")[0] for name in modules.split())}


def test_ps_loads_nothing_of_the_platform_and_no_httpx(
    environment: dict[str, str], platform: Platform, tmp_path: Path
) -> None:
    platform.submit()
    told, loaded = list_loaded(environment, tmp_path)
    assert "mnist" in told
    assert "legato.client.first_request" in loaded
    unneeded = {"httpx._client", "httpcore", "h11", "http.client", "ssl", "email", "hashlib"}
    assert (HEAVY | unneeded) & loaded == set()


def test_a_refusal_of_the_first_request_reads_as_that_of_any_other(environment: dict[str, str], tmp_path: Path) -> None:
    told, loaded = list_loaded(environment | {"LEGATO_TOKEN": "lgt_wrong"}, tmp_path)
    assert "token" in told and "httpx._client" in loaded
    assert HEAVY & loaded == set()


def test_top_ends_with_q_and_leaves_the_terminal_as_it_was(
    environment: dict[str, str], platform: Platform, tmp_path: Path
) -> None:
    platform.lead()
    platform.submit()
    with terminal(["top", "--every", "0.2"], environment, tmp_path) as screen:
        screen.wait_for("legato top")
        screen.wait_for("mnist")
        # Drawn again: what came in between is seen.
        platform.submit(name="later")
        screen.wait_for("later")
        screen.type("q")
        assert screen.ended() == 0
        screen.wait_for("\x1b[?1049l")
        assert termios.tcgetattr(screen.child) == screen.before


def test_ctrl_c_ends_watching(environment: dict[str, str], platform: Platform, tmp_path: Path) -> None:
    platform.submit()
    with terminal(["ps", "-w"], environment, tmp_path) as screen:
        screen.wait_for("mnist")
        screen.process.send_signal(2)
        assert screen.ended() == 0


def test_ctrl_c_detaches_and_the_job_goes_on(environment: dict[str, str], platform: Platform, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    with terminal(["submit", "train.py"], environment, tmp_path) as screen:
        screen.wait_for("submitted by 'ann'")
        screen.process.send_signal(2)
        screen.wait_for("legato: detached; job 'train' keeps running.")
        assert screen.ended() == 0
    [job] = platform.get("jobs")["items"]
    assert job["stage"] == "queued"


def test_login_asks_at_a_terminal_and_does_not_show_the_token(
    environment: dict[str, str], platform: Platform, tmp_path: Path
) -> None:
    secret = platform.secrets["ann"]
    for name in ("LEGATO_SERVER", "LEGATO_TOKEN"):
        environment.pop(name)
    with terminal(["login", platform.url], environment, tmp_path) as screen:
        screen.wait_for(f"Token for {platform.url}: ")
        screen.type(f"{secret}\n")
        screen.wait_for("You are logged in")
        assert screen.ended() == 0
        assert secret not in screen.text
    assert secret in (tmp_path / "config" / "legato" / "servers.json").read_text()


def test_the_shell_completes_names_of_jobs(environment: dict[str, str], platform: Platform, tmp_path: Path) -> None:
    platform.submit(name="mnist")
    platform.submit(name="bert")

    def complete(*words: str) -> set[str]:
        asked = {
            "_LEGATO_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["legato", *words]),
            "COMP_CWORD": str(len(words)),
        }
        program = [sys.executable, "-c", "from legato.cli.main import main; main()"]
        done = subprocess.run(
            program, env=environment | asked, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S
        )
        return set(done.stdout.split())

    assert complete("explain", "m") == {"mnist"}
    assert complete("sub") == {"submit"}
    assert "--priority" in complete("set", "mnist", "--prio")
    assert complete("ps", "--queue", "") == {"default"}
