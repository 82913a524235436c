"""A server as a process of its own, to be stopped, killed and started again, and a user who asks it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import fork_server

from legato.engines.environment import pass_on
from legato.engines.variables import variables_of_parent
from legato.system.tls import make_client_context

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0
PROGRAM = """
import json, sys
from legato.cli.platform.server import find_plugins
from legato.control.settings import read_settings
from legato.core.errors import LegatoError
from legato.server.startup_checks import enter
from legato.server.serving import serve
flags = json.loads(sys.argv[1])
runs_jobs = flags.pop("runs_jobs")
try:
    settings = read_settings(flags=flags)
    say = lambda line: print(line, flush=True)
    with enter(settings) as sockets:
        serve(settings, sockets, say=say, runs_jobs=runs_jobs, plugins=find_plugins(settings))
except LegatoError as error:
    print(f"refused: {error}", flush=True)
    sys.exit(2)
"""


@contextlib.contextmanager
def servers_of(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Server]]:
    """Keep what is around from servers of a home; nothing is left of those in the list, nor of their jobs."""
    for name in [name for name in os.environ if name.startswith(("LEGATO_", "WMLA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made: list[Server] = []
    try:
        yield made
    finally:
        for server in made:
            for client in server.clients:
                client.close()
            server.end()
        for pid in pids_of(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Server:
    """One server.

    Args:
        home: of the platform.
        prefix: a command that runs the server, and its arguments before the server's own.
        forks: take warm parents from a fork server.
        settings: others, by name.
    """

    def __init__(
        self,
        home: Path,
        *,
        runs_jobs: bool = True,
        prefix: Sequence[str] = (),
        forks: bool = True,
        **settings: Any,
    ) -> None:
        self.home = home
        self._prefix = prefix
        self._forks = forks
        # These machines are busy with other tests, so what they measure of a job says nothing about it.
        self._flags = {
            "home": str(home),
            "port": 0,
            "runs_jobs": runs_jobs,
            "measured_speed_s": None,
            **settings,
        }
        self._process: subprocess.Popen[str] | None = None
        self.told: list[str] = []
        self.secret: str | None = None
        self.url = ""
        self.clients: list[httpx.Client] = []

    def start(self) -> None:
        """Start it and wait until it says where it answers; the first one makes the admin's token."""
        process = self.spawn()
        assert process.stdout is not None
        while not any("legato login http" in line for line in self.told):
            line = process.stdout.readline()
            assert line, f"the server has ended: {self.told}, {self.log()}"
            self.told.append(line.rstrip("\n"))
        self.url = self.told[0].partition(" answers at ")[2].partition(",")[0]
        first = self.home / "first-login.txt"
        if first.exists():
            self.secret = next(line.strip() for line in first.read_text().splitlines() if "lgt_" in line)

    def spawn(self) -> subprocess.Popen[str]:
        """Start its process and wait for nothing."""
        self.told = []
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        program = PROGRAM
        if self._forks:
            fork_server.prepare(variables_of_parent(pass_on(environment), {}, "/", "/"))
            program = f"{fork_server.begin_guest()}fork_server.enter_drivers()\n{PROGRAM}"
        with (self.home.parent / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-c", program, json.dumps(self._flags)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        return self._process

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log(self) -> str:
        return (self.home.parent / "server.log").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end, and return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        out, _ = self._process.communicate(timeout=LIMIT_S)
        self.told += out.splitlines()
        return self._process.returncode

    def kill(self) -> None:
        """Kill it as the machine would."""
        self.stop(signal.SIGKILL)

    def end(self) -> None:
        """Kill it if it runs, and close its output, also if it has ended with its host."""
        if self._process is not None and self._process.stdout is not None and not self._process.stdout.closed:
            self.kill()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None


class Asker:
    """Asks a server with the token of the admin."""

    def __init__(self, server: Server, secret: str | None = None) -> None:
        secret = secret or server.secret
        assert secret is not None
        authority = server.home / "tls/authority.pem"
        self.http = httpx.Client(
            base_url=f"{server.url}/api/v1",
            timeout=LIMIT_S,
            headers={"Authorization": f"Bearer {secret}"},
            verify=make_client_context(authority.read_text()) if server.url.startswith("https") else True,
        )
        self.secret = secret
        server.clients.append(self.http)

    def at(self, server: Server) -> Asker:
        """Ask another server, or one that was started again."""
        return Asker(server, self.secret)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, want: int = 200, **headers: str) -> Any:
        answer = self.http.post(path, json=body, headers=headers) if body is not None else self.http.post(path)
        assert answer.status_code == want, answer.text
        return answer.json()

    def wait(self, path: str, condition: Callable[[Any], bool], limit_s: float = LIMIT_S) -> Any:
        """Ask again and again until the answer is as it should be."""
        deadline = time.monotonic() + limit_s
        while True:
            found = self.get(path)
            if condition(found):
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.1)

    @contextlib.contextmanager
    def follow(self, path: str, **headers: str) -> Iterator[Iterator[dict[str, str]]]:
        """Follow a stream: its messages, until it ends or is cut off."""
        with self.http.stream("GET", path, headers={"Accept": "text/event-stream", **headers}) as answer:
            assert answer.status_code == 200, answer.read()
            yield self._messages(answer)

    @staticmethod
    def _messages(answer: httpx.Response) -> Iterator[dict[str, str]]:
        message: dict[str, str] = {}
        with contextlib.suppress(httpx.TransportError):
            for line in answer.iter_lines():
                if not line and message:
                    yield message
                    message = {}
                name, _, value = line.partition(": ")
                if name and value:
                    message[name] = value


def pids_of(home: Path) -> set[int]:
    """Return all processes that work for jobs of a platform: drivers, warm parents and workers."""
    mark = f"{home}/jobs/".encode()
    found = set()
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if mark in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def wait_until(condition: Callable[[], bool], told: str, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, told
        time.sleep(0.05)
