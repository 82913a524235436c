"""What one server with the embedded store bears: submissions, a long queue, many who follow the events.

No job runs: each needs two slots, and the pool has one. Clients run in processes of their own and compete with the
server for the same cores.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.client
import itertools
import json
import os
import pty
import statistics
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from benchmarks.jobs import BenchmarkError, Say, scratch
from benchmarks.platform import Platform, platform
from legato.control.records import NewJob
from legato.control.roles import Asker, Role
from legato.control.store import open_store

_TARGET_PER_S: Final = 400.0
_TARGET_PS_S: Final = 0.2
_NUM_CLIENTS: Final = 8
# All clients have one address here, some one user, and they ask within milliseconds.
LIMITS: Final[dict[str, Any]] = {
    "requests_per_s": 1e9,
    "requests_burst": 10**9,
    "max_requests_of_address": 10**6,
    "max_requests_of_user": 10**6,
}
_LIMIT_S: Final = 120.0
_PS: Final = (sys.executable, "-m", "legato.cli", "ps")
_SCREEN: Final = (40, 120)  # lines and columns
_BLOCK_BYTES: Final = 2**16
_FILE: Final = Path(__file__)


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per load."""
    num_jobs, num_followers = (500, 50) if quick else (10_000, 500)
    with scratch() as directory:
        rate = _submit_to_store(directory / "alone.db", num_jobs)
    yield make_row(
        "submissions to the store alone", rate, "/s", ".0f", None, more_is_better=True,
        told="no HTTP, one thread, nothing else running; SQLite, synchronous writes",
    )  # fmt: skip
    say(f"{rate:.0f} submissions/s to the store alone")
    with scratch() as directory, platform(directory / "platform", slots=1, **LIMITS) as server:
        used_s = _read_cpu_s(server.pid)
        rate, kept = _submit_many(server, num_jobs)
        cpu_ms = 1e3 * (_read_cpu_s(server.pid) - used_s) / num_jobs
        if kept != num_jobs:
            raise BenchmarkError(f"{num_jobs} jobs were submitted, and {kept} are there.")
        yield make_row(
            "submissions, each on disk when answered", rate, "/s", ".0f", _TARGET_PER_S, more_is_better=True,
            told=f"{num_jobs:,} by {_NUM_CLIENTS} clients at once, SQLite, synchronous writes",
        )  # fmt: skip
        yield make_row(
            "a submission: processor", cpu_ms, "ms", ".2f", None, more_is_better=False,
            told="CPU time of the server for each of these submissions, with its control loop",
        )  # fmt: skip
        say(f"{rate:.0f} submissions/s, {cpu_ms:.2f} ms of CPU time each")
        environment = _as_installed(server, directory)
        for where, time_it in (("into a pipe", _time_ps), ("on a terminal", _time_ps_on_terminal)):
            time_it(environment)  # which compiles
            took_s = [time_it(environment) for _ in range(5 if quick else 20)]
            yield make_row(
                f"`legato ps`, {where}", statistics.median(took_s), "s", ".2f", _TARGET_PS_S, more_is_better=False,
                told=f"whole command, from its start to its end, with {num_jobs:,} queued jobs; median",
            )  # fmt: skip
            say(f"ps {where} in {statistics.median(took_s):.2f} s")
        answers_s = [_time_list(server) for _ in range(5 if quick else 20)]
        yield make_row(
            "`GET /jobs`, the first 100", 1e3 * statistics.median(answers_s), "ms", ".0f", None,
            more_is_better=False, told="answer alone, on an open connection; median",
        )  # fmt: skip
        delays_s = asyncio.run(_follow(server, num_followers))
        yield make_row(
            f"{num_followers} followers of the events", max(delays_s), "s", ".2f", None, more_is_better=False,
            told="from a submission's request to the last follower that has its event",
        )  # fmt: skip
        say(f"{num_followers} followers: the last one after {max(delays_s):.2f} s")


def make_row(
    what: str, value: float, unit: str, form: str, target: float | None, *, more_is_better: bool, told: str
) -> dict[str, Any]:
    """Return one figure of a load; ``form``: how its number is written."""
    return {
        "what": what,
        "value": value,
        "unit": unit,
        "format": form,
        "target": target,
        "more_is_better": more_is_better,
        "told": told,
    }


def _submit_to_store(file: Path, num_jobs: int) -> float:
    """Submit jobs without a server; returns submissions per second."""
    asker = Asker("admin", Role.ADMIN)
    new = NewJob(name="load", spec={"program": ["train.py"], "directory": "/"}, min_workers=2, max_workers=2)
    with open_store(f"sqlite:///{file}") as store:
        store.tokens.create_first(time.time())
        began = time.monotonic()
        for _ in range(num_jobs):
            store.jobs.submit(new, asker, time.time())
        return num_jobs / (time.monotonic() - began)


def make_submission(name: str) -> dict[str, Any]:
    """Return the body of a submission whose job waits without end: it needs two slots."""
    # The server looks whether the program is there; it is never run.
    return {
        "name": name,
        "program": [_FILE.name],
        "directory": str(_FILE.parent),
        "is_elastic": False,
        "max_workers": 2,
    }


def _submit_many(server: Platform, num_jobs: int) -> tuple[float, int]:
    """Submit jobs from several processes; returns submissions per second, and how many jobs there are then."""
    shares = [num_jobs // _NUM_CLIENTS + (index < num_jobs % _NUM_CLIENTS) for index in range(_NUM_CLIENTS)]
    where = itertools.repeat((server.url, server.token))
    with concurrent.futures.ProcessPoolExecutor(_NUM_CLIENTS) as pool:
        list(pool.map(_submit_share, where, [1] * _NUM_CLIENTS))  # so that all are up
        began = time.monotonic()
        list(pool.map(_submit_share, where, shares))
        took_s = time.monotonic() - began
    kept = sum(1 for _ in server.client.jobs(limit=None)) - _NUM_CLIENTS
    return num_jobs / took_s, kept


def _read_cpu_s(process: int) -> float:
    """Return the CPU time of all threads of a process."""
    threads = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _submit_share(where: tuple[str, str], num_jobs: int) -> None:
    # The plainest client there is, so that little of the cores goes to the clients.
    url, token = where
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    line = http.client.HTTPConnection(urlsplit(url).netloc, timeout=_LIMIT_S)
    for index in range(num_jobs):
        line.request("POST", "/api/v1/jobs", json.dumps(make_submission(f"load-{index}")), headers)
        answer = line.getresponse()
        told = answer.read()
        if answer.status != HTTPStatus.CREATED:
            raise BenchmarkError(f"A submission was answered with {answer.status}: {told[:200]!r}.")
    line.close()


def _as_installed(server: Platform, directory: Path) -> dict[str, str]:
    """Return the environment of a command whose modules are compiled, as those that pip installs are."""
    environment = server.environment | {"PYTHONPYCACHEPREFIX": str(directory / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _time_ps(environment: dict[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(_PS, env=environment, check=True, capture_output=True)
    return time.monotonic() - began


def _time_ps_on_terminal(environment: dict[str, str]) -> float:
    end, child = pty.openpty()
    termios.tcsetwinsize(child, _SCREEN)
    with os.fdopen(end, "rb", buffering=0) as screen:
        began = time.monotonic()
        process = subprocess.Popen(_PS, env=environment | {"TERM": "xterm-256color"}, stdin=child, stdout=child)
        os.close(child)
        with contextlib.suppress(OSError):  # as a terminal says that the other end is closed
            while screen.read(_BLOCK_BYTES):
                pass
        if process.wait(_LIMIT_S) != 0:
            raise BenchmarkError(f"'legato ps' has ended with {process.returncode} on a terminal.")
        return time.monotonic() - began


def _time_list(server: Platform) -> float:
    began = time.monotonic()
    server.client.jobs(limit=100)
    return time.monotonic() - began


async def _follow(server: Platform, num_followers: int) -> list[float]:
    """Let followers connect, submit one job, and return for each how long its event took to come."""
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {server.token}", "Accept": "text/event-stream"}
    connected = asyncio.Semaphore(0)
    async with httpx.AsyncClient(base_url=f"{server.url}/api/v1", limits=limits, timeout=_LIMIT_S) as line:

        async def follow() -> float:
            async with line.stream("GET", "/events", params={"after": "now"}, headers=headers) as stream:
                stream.raise_for_status()
                connected.release()
                async for text in stream.aiter_lines():
                    if text == "event: stage":
                        return time.monotonic()
            raise BenchmarkError("A stream of events ended by itself.")

        followers = [asyncio.create_task(follow()) for _ in range(num_followers)]
        async with asyncio.timeout(_LIMIT_S):
            for _ in followers:
                await connected.acquire()
        began = time.monotonic()
        answer = await line.post(
            "/jobs", json=make_submission("followed"), headers=headers | {"Accept": "application/json"}
        )
        answer.raise_for_status()
        arrived = await asyncio.gather(*followers)
    return [at - began for at in arrived]
