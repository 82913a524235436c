"""Many open consoles on one server: how late an event comes, and what they cost the server.

Each has a session of its own, asks by cookie, and holds one stream of all events, as a page in a browser does; then
each also asks for the first 100 jobs after an event, as that page does: what comes within a quarter of a second is
answered by one question, and the next question waits for the answer to the last. They run in one process, which
competes with the server for the cores. The time of the processor is the server's alone, as the system counts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.jobs import BenchmarkError, Say, scratch
from benchmarks.load import make_row, make_submission
from benchmarks.platform import Platform, platform

_MANY: Final = 1e9
_LIMIT_S: Final = 120.0
_GATHER_S: Final = 0.25
_NUM_JOBS: Final = 100
_SUBMIT_EVERY_S: Final = 0.5
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 2**20


def measure(*, quick: bool, say: Say) -> Iterator[dict[str, Any]]:
    """Yield one row per figure."""
    num_consoles, num_events, idle_s = (50, 5, 3.0) if quick else (500, 40, 30.0)
    with (
        scratch() as directory,
        platform(directory / "platform", slots=1, requests_per_s=_MANY, requests_burst=10**9) as server,
    ):
        for index in range(_NUM_JOBS):
            there = make_submission(f"there-{index}")
            server.client.submit(*there.pop("program"), **there)
        for asks in (False, True):
            found = asyncio.run(_open(server, num_consoles, num_events, idle_s, asks=asks))
            yield from _tell(found, num_consoles, num_events, asks=asks)
            say(
                f"{num_consoles} consoles{', which ask,' if asks else ''}: {statistics.median(found['delays_s']):.3f} s"
            )


def _tell(found: dict[str, Any], num_consoles: int, num_events: int, *, asks: bool) -> Iterator[dict[str, Any]]:
    delays_s = sorted(found["delays_s"])
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


async def _open(server: Platform, num_consoles: int, num_events: int, idle_s: float, *, asks: bool) -> dict[str, Any]:
    """Open consoles, let things happen, and return how late they heard of it and what that cost."""
    before_bytes = _read_memory(server.pid)
    async with contextlib.AsyncExitStack() as stack:
        # One for each: a client looks through all its connections for each request.
        lines = [await stack.enter_async_context(_open_line(server.url)) for _ in range(num_consoles + 1)]
        for line in lines[1:]:
            (await line.post("/session", json={"token": server.token})).raise_for_status()
        began: dict[str, float] = {}
        arrived: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        connected = asyncio.Semaphore(0)
        consoles = [asyncio.create_task(_watch(line, arrived, connected, asks=asks)) for line in lines[1:]]
        try:
            for _ in consoles:
                await connected.acquire()
            grown_bytes = _read_memory(server.pid) - before_bytes
            idle = await _measure_idle(server.pid, idle_s)
            spent_s, since = _read_cpu_s(server.pid), time.monotonic()
            for index in range(num_events):
                await asyncio.sleep(max(since + index * _SUBMIT_EVERY_S - time.monotonic(), 0.0))
                moment = time.monotonic()
                answer = await lines[0].post(
                    "/jobs", json=make_submission(f"seen-{index}"), headers={"Authorization": f"Bearer {server.token}"}
                )
                began[answer.raise_for_status().json()["id"]] = moment
            delays_s = []
            for _ in range(num_events * num_consoles):
                job, at = await asyncio.wait_for(arrived.get(), _LIMIT_S)
                delays_s.append(at - began[job])
            busy = (_read_cpu_s(server.pid) - spent_s) / (time.monotonic() - since)
        finally:
            for console in consoles:
                console.cancel()
            await asyncio.gather(*consoles, return_exceptions=True)
    memory_bytes = _read_memory(server.pid)
    return {"delays_s": delays_s, "busy": busy, "idle": idle, "grown_bytes": grown_bytes, "bytes": memory_bytes}


async def _watch(
    line: httpx.AsyncClient, arrived: asyncio.Queue[tuple[str, float]], connected: asyncio.Semaphore, *, asks: bool
) -> None:
    """Be one console: tell when it has each event, or the answer to what it asks because of it."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_follow(line, heard, connected))
        while True:
            jobs = [await heard.get()]
            if asks:
                await asyncio.sleep(_GATHER_S)
                jobs += [heard.get_nowait() for _ in range(heard.qsize())]
                (await line.get("/jobs", params={"limit": 100})).raise_for_status()
            for job in jobs:
                arrived.put_nowait((job, time.monotonic()))


async def _follow(line: httpx.AsyncClient, heard: asyncio.Queue[str], connected: asyncio.Semaphore) -> None:
    accept = {"Accept": "text/event-stream"}
    async with line.stream("GET", "/events", params={"after": "now"}, headers=accept) as stream:
        connected.release()
        async for text in stream.aiter_lines():
            event = json.loads(text[6:]) if text.startswith("data: ") else {}
            if event.get("kind") == "stage":
                heard.put_nowait(event["job"])
    raise BenchmarkError("A stream of events ended by itself.")


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
