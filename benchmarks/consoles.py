"""Many open consoles on one server: how late an event comes, and what they cost the server.

Each has a token of its own, fifty of one user, and holds one stream of all events, as a page in a browser does; then
each also asks for the first 100 jobs after an event, as that page does: what comes within a quarter of a second is
answered by one question, and the next question waits for the answer to the last. They run in one process, which
competes with the server for the cores, so they read and write plain sockets: a library for HTTP would take longer than
the server. The time of the processor is the server's alone, as the system counts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from benchmarks.jobs import BenchmarkError, Say, scratch
from benchmarks.load import LIMITS, make_row, make_submission
from benchmarks.platform import Platform, platform

_LIMIT_S: Final = 120.0
_GATHER_S: Final = 0.25
_NUM_JOBS: Final = 100
_CONSOLES: Final = 50  # of one user
_SUBMIT_EVERY_S: Final = 1.0
_TARGET_MS: Final = 500.0
_BLOCK_BYTES: Final = 2**18
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 2**20


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per figure."""
    num_consoles, num_events, idle_s = (50, 5, 3.0) if quick else (500, 40, 30.0)
    with (
        scratch() as directory,
        platform(directory / "platform", slots=1, **LIMITS) as server,
    ):
        for index in range(_NUM_JOBS):
            there = make_submission(f"there-{index}")
            server.client.submit(*there.pop("program"), **there)
        secrets = make_tokens(server, num_consoles)
        for asks in (False, True):
            found = asyncio.run(_open(server, secrets, num_events, idle_s, asks=asks))
            yield from _tell(found, num_consoles, num_events, asks=asks)
            say(
                f"{num_consoles} consoles{', which ask,' if asks else ''}: {statistics.median(found['delays_s']):.3f} s"
            )


def _tell(found: dict[str, Any], num_consoles: int, num_events: int, *, asks: bool) -> Iterator[dict[str, Any]]:
    delays_s, answers_s = sorted(found["delays_s"]), sorted(found["answers_s"])
    late_s = delays_s[min(int(0.99 * len(delays_s)), len(delays_s) - 1)]
    what = f"{num_consoles} consoles" + (", each asks for 100 jobs after an event" if asks else "")
    pace = f"{num_events} submissions, one every {_SUBMIT_EVERY_S:g} s"
    until = (
        f"a console has its answer, after it has gathered events for {1e3 * _GATHER_S:g} ms"
        if asks
        else "a console has its event"
    )
    yield make_row(
        f"{what}: delay", 1e3 * statistics.median(delays_s), "ms", ".0f", None, more_is_better=False,
        told=f"from a submission's request until {until}; median of {len(delays_s):,}, 99 % within "
        f"{1e3 * late_s:.0f} ms, the last after {1e3 * delays_s[-1]:.0f} ms; {pace}",
    )  # fmt: skip
    if asks:
        yield make_row(
            f"{what}: answer", 1e3 * answers_s[int(0.99 * len(answers_s))], "ms", ".0f", _TARGET_MS,
            more_is_better=False,
            told=f"from a console's request until it has the whole answer; 99 % of {len(answers_s):,} requests, median "
            f"{1e3 * statistics.median(answers_s):.0f} ms, the last after {1e3 * answers_s[-1]:.0f} ms",
        )  # fmt: skip
        yield make_row(
            f"{what}: an answer's share", 1e3 * found["busy_s"] / len(answers_s), "ms", ".2f", None,
            more_is_better=False, told="CPU time of the server per answer, with the streams and submissions",
        )  # fmt: skip
    yield make_row(
        f"{what}: processor", 100 * found["busy"], "%", ".0f", None, more_is_better=False,
        told="CPU time of the server, of one core, during the submissions; "
        f"{100 * found['idle']:.1f} % without submissions",
    )  # fmt: skip
    if not asks:
        yield make_row(
            f"{what}: memory", found["grown_bytes"] / num_consoles / 1024, "KiB", ".0f", None, more_is_better=False,
            told=f"additional memory of the server for each console; it has {found['bytes'] / _MIB:.0f} MiB in total",
        )  # fmt: skip


async def _open(
    server: Platform, secrets: Sequence[str], num_events: int, idle_s: float, *, asks: bool
) -> dict[str, Any]:
    """Open consoles, let things happen, and return how late they heard of it and what that cost."""
    num_consoles, before_bytes = len(secrets), _read_memory(server.pid)
    async with contextlib.AsyncExitStack() as stack:
        line = await stack.enter_async_context(_open_line(server.url))
        began: dict[str, float] = {}
        answers_s: list[float] = []
        arrived: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        connected = asyncio.Semaphore(0)
        asking = answers_s if asks else None
        # A console that fails ends the measurement, with its error: otherwise its events would be waited for in vain.
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        consoles = [tasks.create_task(_watch(server.url, secret, arrived, connected, asking)) for secret in secrets]
        async with asyncio.timeout(_LIMIT_S):
            for _ in consoles:
                await connected.acquire()
        grown_bytes = _read_memory(server.pid) - before_bytes
        idle = await _measure_idle(server.pid, idle_s)
        spent_s, since = _read_cpu_s(server.pid), time.monotonic()
        for index in range(num_events):
            await asyncio.sleep(max(since + index * _SUBMIT_EVERY_S - time.monotonic(), 0.0))
            moment = time.monotonic()
            answer = await line.post(
                "/jobs", json=make_submission(f"seen-{index}"), headers={"Authorization": f"Bearer {server.token}"}
            )
            began[answer.raise_for_status().json()["id"]] = moment
        delays_s = []
        for _ in range(num_events * num_consoles):
            job, at = await asyncio.wait_for(arrived.get(), _LIMIT_S)
            delays_s.append(at - began[job])
        busy_s = _read_cpu_s(server.pid) - spent_s
        busy = busy_s / (time.monotonic() - since)
        for console in consoles:
            console.cancel()
    memory_bytes = _read_memory(server.pid)
    found = {"delays_s": delays_s, "answers_s": answers_s, "busy_s": busy_s, "busy": busy, "idle": idle}
    return {**found, "grown_bytes": grown_bytes, "bytes": memory_bytes}


async def _watch(
    url: str,
    secret: str,
    arrived: asyncio.Queue[tuple[str, float]],
    connected: asyncio.Semaphore,
    answers_s: list[float] | None,
) -> None:
    """Be one console: tell when it has each event, or the answer to what it asks because of it."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    line: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_follow(url, secret, heard, connected))
        while True:
            jobs = [await heard.get()]
            if answers_s is not None:
                await asyncio.sleep(_GATHER_S)
                jobs += [heard.get_nowait() for _ in range(heard.qsize())]
                asked = time.monotonic()
                # Not before: the server closes a connection whose first request does not come within half a minute.
                reader, writer = line = line or await _connect(url)
                writer.write(_make_request(url, secret, "/jobs?limit=100", "application/json"))
                await reader.readexactly(await _read_head(reader))
                answers_s.append(time.monotonic() - asked)
            for job in jobs:
                arrived.put_nowait((job, time.monotonic()))


async def _follow(url: str, secret: str, heard: asyncio.Queue[str], connected: asyncio.Semaphore) -> None:
    reader, writer = await _connect(url)
    writer.write(_make_request(url, secret, "/events?after=now", "text/event-stream"))
    await _read_head(reader)
    connected.release()
    while line := await reader.readline():
        # Each message is one chunk, whose line of data is JSON.
        event = json.loads(line[6:]) if line.startswith(b"data: ") else {}
        if event.get("kind") == "stage":
            heard.put_nowait(event["job"])
    raise BenchmarkError("A stream of events ended by itself.")


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    where = urlsplit(url)
    return await asyncio.open_connection(where.hostname, where.port, limit=_BLOCK_BYTES)


def _make_request(url: str, secret: str, path: str, accept: str) -> bytes:
    fields = {"Host": urlsplit(url).netloc, "Authorization": f"Bearer {secret}", "Accept": accept}
    lines = (f"GET /api/v1{path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", "")
    return "\r\n".join(lines).encode()


async def _read_head(reader: asyncio.StreamReader) -> int:
    """Read the header of an answer, and return the length of its body. 0: of a stream, which has none."""
    status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    if " 200 " not in status:
        raise BenchmarkError(f"A console was answered with {status}.")
    lengths = [field.partition(":")[2] for field in fields if field.lower().startswith("content-length:")]
    return int(lengths[0]) if lengths else 0


def make_tokens(server: Platform, number: int) -> list[str]:
    """Create users who see everything, and return so many tokens of theirs."""
    secrets: list[str] = []
    headers = {"Authorization": f"Bearer {server.token}"}
    with httpx.Client(base_url=f"{server.url}/api/v1", headers=headers, timeout=_LIMIT_S) as line:
        for index in range(number):
            user = f"viewer-{index // _CONSOLES}"
            if index % _CONSOLES == 0:
                line.post("/users", json={"name": user, "role": "viewer"}).raise_for_status()
            made = line.post("/tokens", json={"user": user, "name": f"console-{index}"}).raise_for_status()
            secrets.append(made.json()["secret"])
    return secrets


def _open_line(url: str) -> httpx.AsyncClient:
    # Without the certificates of the world, which each client would load.
    return httpx.AsyncClient(base_url=f"{url}/api/v1", timeout=_LIMIT_S, verify=False)


async def _measure_idle(pid: int, for_s: float) -> float:
    before_s, since = _read_cpu_s(pid), time.monotonic()
    await asyncio.sleep(for_s)
    return (_read_cpu_s(pid) - before_s) / (time.monotonic() - since)


def _read_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _read_memory(pid: int) -> int:
    resident = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(resident) * os.sysconf("SC_PAGE_SIZE")
