"""A platform whose server, drivers and workers are killed at random while jobs come: nothing is lost, nothing doubled.

``--soak-seed`` repeats the seed that is printed, ``--soak-events`` sets how many jobs and disturbances there are.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.jobs import PROGRAMS
from benchmarks.platform import Platform, platform

from legato.client.jobs import Job

PROGRAM = PROGRAMS / "slow_digits.py"
EPOCHS, WAIT_S = 3, 0.002
SLOTS = 4
NUM_EVENTS = 9
NUM_SEEDS = 2  # enough to tell jobs from one another
LIMIT_S = 240.0
ENDED = ("succeeded", "failed", "stopped")
HASH = re.compile(r"weights sha256 (\w{64})")


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    for name in [name for name in os.environ if name.startswith("LEGATO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with platform(tmp_path / "platform", slots=SLOTS, stability_s=0.5, loop_interval_s=0.2) as made:
        yield made


def weights_alone(seed: int) -> str:
    """Return the hash of the weights that the program computes without anything of a platform."""
    told = subprocess.run(
        [sys.executable, PROGRAM, str(EPOCHS), "0", str(seed)], check=True, capture_output=True, text=True
    )
    return found_in(told.stdout)


def seed_of(number: int) -> int:
    """Return the seed of the job that comes with a disturbance."""
    return number // 3 % NUM_SEEDS


def found_in(text: str) -> str:
    (found,) = set(HASH.findall(text))
    return str(found)


def home_of(running: Platform) -> Path:
    return Path(running.environment["LEGATO_HOME"])


def processes_of(running: Platform) -> dict[int, str]:
    """Return all processes that work for jobs of the platform: drivers, warm parents, workers, loaders."""
    mark = f"{home_of(running)}/jobs/".encode()
    found = {}
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            number = int(process.name)
            told = (process / "cmdline").read_bytes()
            if mark in told or mark in (process / "environ").read_bytes():
                found[number] = told.replace(b"\0", b" ").decode()
    return found


def kill_server(running: Platform, _: random.Random) -> bool:
    running.kill()
    running.start()
    return True


def kill_driver(running: Platform, dice: random.Random) -> bool:
    return kill_one([pid for pid, told in processes_of(running).items() if "driver_process" in told], dice)


def kill_worker(running: Platform, dice: random.Random) -> bool:
    jobs = [job.id for job in running.client.jobs(stage="running")]
    told = subprocess.run(
        [sys.executable, "-m", "legato.cli", "status", dice.choice(jobs or ["none"]), "--local", "-o", "json"],
        env=running.environment,
        capture_output=True,
        check=False,
    )
    # A job whose driver is dead at this moment tells of none.
    workers = json.loads(told.stdout).get("workers", []) if told.returncode == 0 else []
    return kill_one([worker["pid"] for worker in workers if worker["pid"]], dice)


def kill_one(pids: list[int], dice: random.Random) -> bool:
    """Kill one of some processes; returns whether there was one to kill."""
    if not pids:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(dice.choice(pids), signal.SIGKILL)
    return True


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)


def wait_for_news(running: Platform) -> None:
    """Wait until something has happened on the platform, so that disturbances meet different moments."""
    known = look(running)
    wait_until(lambda: look(running) != known, "something happens")
    wait_until(
        lambda: (
            any(stage == "running" for stage, *_ in look(running)) or all(stage in ENDED for stage, *_ in look(running))
        ),
        "a job runs",
    )


def look(running: Platform) -> list[tuple[str, int, int | None]]:
    return [
        (job.stage, job.num_slots, job.progress.step if job.progress else None)
        for job in running.client.jobs(limit=None)
    ]


@pytest.mark.timeout(900)
@pytest.mark.soak
def test_chaos(running: Platform, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--soak-seed")
    seed = secrets.randbits(32) if seed is None else seed
    num_events = request.config.getoption("--soak-events") or NUM_EVENTS
    print(f"chaos: --soak-seed {seed} --soak-events {num_events}")
    dice = random.Random(seed)
    jobs: list[Job] = []
    for number in range(num_events):
        if number % 3 == 0:
            bounds = {"min_workers": 1, "max_workers": dice.randint(1, SLOTS)}
            job = running.client.submit(
                PROGRAM.name, EPOCHS, WAIT_S, seed_of(number), directory=PROGRAMS, name=f"job-{number}", **bounds
            )
            jobs.append(job)
        wait_for_news(running)
        ways = dice.sample([kill_server, kill_driver, kill_worker], 3)
        done = next(way.__name__ for way in ways if way(running, dice))
        print(f"chaos: {number}: {done}")
    for job in jobs:
        job.wait(LIMIT_S)

    told = {job.name: (job.stage, job.reason) for job in jobs}
    assert all(stage == "succeeded" for stage, _ in told.values()), told
    assert sorted(job.id for job in running.client.jobs(limit=None)) == sorted(job.id for job in jobs)
    want = [weights_alone(seed) for seed in range(NUM_SEEDS)]
    for job in jobs:
        logs = "".join(line.text + "\n" for line in job.logs())
        assert found_in(logs) == want[seed_of(int(job.name.removeprefix("job-")))], job.name
    wait_until(lambda: all(slot.is_free for slot in running.client.slots()), "all slots are free")
    wait_until(lambda: not processes_of(running), f"no process is left: {processes_of(running)}")
