"""A platform of its own for a measurement or a test: a server as `legato up` starts it, and a client of it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.jobs import BenchmarkError
from legato.client.client import Client
from legato.system.hosts import find_own_file

_LIMIT_S: Final = 60.0
_POLL_S: Final = 0.02
_HOLDING: Final = ("starting", "running", "pausing", "stopping")


class Platform:
    """A server on this machine, which may be killed and started again; its jobs do not mind.

    Args:
        home: an empty directory for it.
        slots: of its pool.
        prefix: a command that runs the server, and its arguments before the server's own.
        settings: others, by name; see docs/settings.md.

    Attributes:
        url: where it answers, from the first start on.
        token: of its administrator.
        client: of that one.
        environment: for commands that use it.
    """

    def __init__(self, home: Path, *, slots: int, prefix: Sequence[str] = (), **settings: object) -> None:
        self._home = home
        self._prefix = prefix
        self._settings = {"home": home, "port": 0, "slots": slots, **settings}
        self._output = home / "server.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = self.token = ""

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            BenchmarkError: it does not.
        """
        said = {f"LEGATO_{name.upper()}": str(value) for name, value in self._settings.items()}
        with self._output.open("ab") as file:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-m", "legato.cli", "up"],
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **said},
            )
        self._wait_until_up(self._process)
        if self._settings["port"] == 0:
            self._settings["port"] = urlsplit(self.url).port
            self.client = Client(self.url, self.token)
            self.environment = {
                **os.environ,
                "LEGATO_HOME": str(self._home),
                "LEGATO_SERVER": self.url,
                "LEGATO_TOKEN": self.token,
            }

    @property
    def pid(self) -> int:
        """The server's process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill the server; what it runs, runs on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Stop whatever still runs, then the server."""
        assert self._process is not None
        try:
            if self.url:
                left = list(self.client.jobs(limit=None, stage=_HOLDING))
                for job in left:
                    job.stop(now=True)
                for job in left:
                    job.wait(_LIMIT_S)
                self.client.close()
        finally:
            self._process.terminate()
            self._process.wait(_LIMIT_S)

    def _wait_until_up(self, process: subprocess.Popen[bytes]) -> None:
        shared = find_own_file(self._home, "server.json")  # with PostgreSQL, machines may share the home
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline and process.poll() is None:
            where = shared if shared.exists() else self._home / "server.json"
            known = json.loads(where.read_bytes()) if where.exists() else {"pid": None}
            first = self._home / "first-login.txt"
            found = re.search(r"lgt_\w+", first.read_text()) if first.exists() else None
            if known["pid"] == process.pid and found is not None:
                self.url, self.token = known["url"], found.group()
                return
            time.sleep(_POLL_S)
        process.kill()
        process.wait()
        raise BenchmarkError(f"The server did not start: {self._output.read_text().strip()[-500:]}")


@contextlib.contextmanager
def platform(home: Path, *, slots: int, prefix: Sequence[str] = (), **settings: object) -> Iterator[Platform]:
    """Run a `Platform` in a directory that is made for it."""
    home.mkdir(mode=0o700)  # a server refuses a directory that others read and that holds more than a platform
    running = Platform(home, slots=slots, prefix=prefix, **settings)
    running.start()
    try:
        yield running
    finally:
        running.close()
