"""A real PostgreSQL for the tests: the installed server, started as an ordinary user, gone with the tests."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

START_LIMIT_S = 60.0
PORT = 5432
PR_SET_PDEATHSIG = 1
ORDINARY_USERS = ("postgres", "nobody")


def find_programs() -> Path | None:
    """Return the directory of the server's programs, None if no server is installed."""
    found = shutil.which("initdb")
    if found is not None and shutil.which("postgres") is not None:
        return Path(found).resolve().parent
    installed = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/postgres")]
    return max(installed, default=None, key=lambda path: int(path.parent.name))


def ordinary_user() -> str | None:
    """Return the user to become, because the server refuses to run as root; None: we are ordinary."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ORDINARY_USERS if name in names)


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGQUIT)


@contextmanager
def run_postgres(programs: Path, address: str = "") -> Iterator[str]:
    """Run a server and yield the beginning of URLs: append the name of a database.

    Args:
        programs: their directory.
        address: to listen on, so that test hosts reach it. "": only processes of this machine do.
    """
    user = ordinary_user()
    home = Path(tempfile.mkdtemp(prefix="legato-postgres-"))
    data = home / "data"
    data.mkdir(mode=0o700)
    if user is not None:
        for path in (home, data):
            shutil.chown(path, user)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
    try:
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "legato", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            check=True,
            capture_output=True,
            user=user,
            env=environment,
            cwd=home,
        )
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host all all 10.0.0.0/8 trust\n")
        # No fsync: the tests kill programs, not the machine.
        options = [
            "-k",
            str(home),
            "-h",
            address,
            "-p",
            str(PORT),
            "-c",
            "fsync=off",
            "-c",
            "max_connections=200",
            "-c",
            "shared_buffers=32MB",
        ]
        with (home / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, *options],
                stdout=log,
                stderr=log,
                user=user,
                env=environment,
                cwd=home,
                preexec_fn=die_with_parent,  # noqa: PLW1509 -- it must not outlive tests that are killed
            )
        try:
            wait_until_ready(programs, home, server)
            yield f"postgresql://legato@{address}:{PORT}/{{}}" if address else f"postgresql://legato@/{{}}?host={home}"
        finally:
            server.send_signal(signal.SIGQUIT)
            server.wait(timeout=30)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def wait_until_ready(programs: Path, home: Path, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while subprocess.run([programs / "pg_isready", "-q", "-h", str(home)]).returncode != 0:
        assert server.poll() is None, (home / "log").read_text()
        assert time.monotonic() < deadline, "PostgreSQL does not start"
        time.sleep(0.05)
