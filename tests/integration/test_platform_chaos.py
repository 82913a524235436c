"""A platform that is disturbed at random while jobs come: nothing is lost, nothing doubled, each result is exact.

Servers, drivers, workers and warm parents are killed or stopped for a while (SIGSTOP), jobs are paused, resumed and
resized. Once on each database and in each mode of ``run_jobs_as``; without root only in the mode ``server``.
``--soak-seconds`` sets for how long, or ``--soak-events`` how many disturbances there are; ``--soak-seed`` repeats the
seed that is printed.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.jobs import PROGRAMS
from benchmarks.platform import Platform, platform
from tests.contract.store.servers import find_programs, run_postgres
from tests.integration.readable import open_the_way

from legato.client.jobs import Job
from legato.control.drivers import process as driver_process
from legato.control.settings import read_settings
from legato.core.errors import LegatoError
from legato.server.serving import upgrade_store

PROGRAM = PROGRAMS / "slow_digits.py"
EPOCHS, WAIT_S = 3, 0.002
SLOTS = 4
MAX_OPEN = 4
NUM_EVENTS = 12
NUM_SEEDS = 2  # enough to tell jobs from one another
LIMIT_S = 300.0
STOPPED_S = (0.5, 8.0)  # some longer than a worker may be silent
ENDED = ("succeeded", "failed", "stopped")
HASH = re.compile(r"weights sha256 (\w{64})")
NOT_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="JOBS WITH USERS OF THEIR OWN ARE NOT TESTED: run the tests as root"
)
MODES = ["server", pytest.param("submitter", marks=NOT_ROOT), pytest.param("pool", marks=NOT_ROOT)]
SETTINGS_OF_MODES: dict[str, dict[str, object]] = {"submitter": {"job_users": "admin=daemon"}}


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> Iterator[dict[str, object]]:
    """The settings of a store."""
    if request.param == "sqlite":
        yield {}
        return
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with run_postgres(programs) as url:
        yield {"database_url": url.format("postgres"), "lease_s": 2}


@pytest.fixture(params=MODES)
def running(
    request: pytest.FixtureRequest, store: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Platform]:
    for name in [name for name in os.environ if name.startswith("LEGATO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    prefix = [] if request.param == "server" else open_the_way()
    mode = {"run_jobs_as": request.param, **SETTINGS_OF_MODES.get(request.param, {})}
    # Not in `tmp_path`, into which other system users may not look.
    folder = Path(tempfile.mkdtemp(prefix="legato-chaos-"))
    folder.chmod(0o755)
    num_failed = request.session.testsfailed
    try:
        if store:
            upgrade_store(read_settings(None, {"home": str(tmp_path), **store}))
        settings = {"stability_s": 0.5, "loop_interval_s": 0.2, "worker_memory_bytes": 2**31, **store, **mode}
        with platform(folder / "platform", slots=SLOTS, prefix=prefix, **settings) as made:
            yield made
    finally:
        if request.session.testsfailed > num_failed:
            print(f"chaos: what the platform left is in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def weights_alone(seed: int) -> str:
    """Return the hash of the weights that the program computes without anything of a platform."""
    told = subprocess.run(
        [sys.executable, PROGRAM, str(EPOCHS), "0", str(seed)], check=True, capture_output=True, text=True
    )
    return found_in(told.stdout)


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


def records_of(running: Platform) -> list[dict[str, Any]]:
    """Return what the warm parents of all jobs have written down: themselves and their workers."""
    found = []
    for file in (home_of(running) / "jobs").rglob("engine.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(file.read_bytes()))
    return found


def workers_of(running: Platform) -> list[int]:
    return [
        entry["pid"]
        for record in records_of(running)
        for entry in record["workers"].values()
        if entry["exit_code"] is None
    ]


def drivers_of(running: Platform) -> list[int]:
    return [pid for pid, told in processes_of(running).items() if f" -m {driver_process.__name__} " in told]


def kill_server(running: Platform, _: random.Random) -> bool:
    running.kill()
    running.start()
    return True


def kill_driver(running: Platform, dice: random.Random) -> bool:
    return send(drivers_of(running), signal.SIGKILL, dice)


def kill_worker(running: Platform, dice: random.Random) -> bool:
    return send(workers_of(running), signal.SIGKILL, dice)


def kill_warm_parent(running: Platform, dice: random.Random) -> bool:
    return send([record["pid"] for record in records_of(running) if record["pid"]], signal.SIGKILL, dice)


def stop_worker(running: Platform, dice: random.Random) -> bool:
    return hold(workers_of(running), dice)


def stop_driver(running: Platform, dice: random.Random) -> bool:
    return hold(drivers_of(running), dice)


def stop_warm_parent(running: Platform, dice: random.Random) -> bool:
    return hold([record["pid"] for record in records_of(running) if record["pid"]], dice)


def stop_server(running: Platform, dice: random.Random) -> bool:
    return hold([running.pid], dice)


def pause_job(running: Platform, dice: random.Random) -> bool:
    return ask(running, ("running",), lambda job: job.pause(), dice)


def resume_job(running: Platform, dice: random.Random) -> bool:
    return ask(running, ("paused",), lambda job: job.resume(), dice)


def resize_job(running: Platform, dice: random.Random) -> bool:
    most = dice.randint(1, SLOTS)
    return ask(
        running, ("queued", "starting", "running"), lambda job: job.resize(max_workers=most, min_workers=1), dice
    )


WAYS = {
    kill_server: 2,
    kill_driver: 3,
    kill_worker: 4,
    kill_warm_parent: 2,
    stop_worker: 2,
    stop_driver: 1,
    stop_warm_parent: 1,
    stop_server: 1,
    pause_job: 2,
    resume_job: 3,
    resize_job: 4,
}
"""What may happen, and how often."""


def draw(dice: random.Random) -> list[Callable[[Platform, random.Random], bool]]:
    """Return all ways in a random order, the more frequent ones rather in front."""
    return sorted(WAYS, key=lambda way: dice.random() ** (1 / WAYS[way]), reverse=True)


def ask(running: Platform, stages: tuple[str, ...], act: Callable[[Job], Any], dice: random.Random) -> bool:
    """Ask something for a job in one of some stages; returns whether there was one, and it was not too late."""
    jobs = [job for stage in stages for job in running.client.jobs(stage=stage)]
    if not jobs:
        return False
    try:
        act(dice.choice(jobs))
    except LegatoError:
        return False  # it has moved on meanwhile
    return True


def send(pids: list[int], number: signal.Signals, dice: random.Random) -> bool:
    """Send a signal to one of some processes; returns whether there was one."""
    if not pids:
        return False
    try:
        os.kill(dice.choice(pids), number)
    except ProcessLookupError:
        return False
    return True


def hold(pids: list[int], dice: random.Random) -> bool:
    """Stop one of some processes for a while, as a machine that swaps does; returns whether there was one."""
    if not pids:
        return False
    pid = dice.choice(pids)
    try:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(dice.uniform(*STOPPED_S))  # the disturbance itself: nothing is waited for
    except ProcessLookupError:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    return True


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.1)


def wait_for_news(running: Platform) -> None:
    """Wait until something has happened on the platform, so that disturbances meet different moments."""
    known = look(running)
    wait_until(lambda: look(running) != known or is_quiet(running), "something happens")
    wait_until(lambda: any(stage == "running" for stage, *_ in look(running)) or is_quiet(running), "a job runs")


def is_quiet(running: Platform) -> bool:
    """Whether nothing can happen any more unless a user asks for it."""
    return all(stage in (*ENDED, "paused") for stage, *_ in look(running))


def look(running: Platform) -> list[tuple[str, int, int | None]]:
    return [
        (job.stage, job.num_slots, job.progress.step if job.progress else None)
        for job in running.client.jobs(limit=None)
    ]


@pytest.mark.timeout(0)
@pytest.mark.soak
def test_chaos(
    running: Platform, request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    said = request.config.getoption
    seed = secrets.randbits(32) if said("--soak-seed") is None else said("--soak-seed")
    limit_s = said("--soak-seconds")
    num_events = said("--soak-events") or (NUM_EVENTS if limit_s is None else sys.maxsize)
    print(f"chaos: --soak-seed {seed}")
    dice = random.Random(seed)
    counts: Counter[str] = Counter()
    jobs: list[Job] = []
    began = time.monotonic()
    while counts.total() < num_events and (limit_s is None or time.monotonic() - began < limit_s):
        if not jobs or (
            len(jobs) - sum(stage in ENDED for stage, *_ in look(running)) < MAX_OPEN and dice.random() < 0.5
        ):
            number = len(jobs)
            # Without checkpoints a job whose workers are all lost six times before it gets further is given up.
            bounds = {"min_workers": 1, "max_workers": dice.randint(1, SLOTS), "checkpoint_every": "5steps"}
            seed_of_job = number % NUM_SEEDS
            job = running.client.submit(
                PROGRAM.name, EPOCHS, WAIT_S, seed_of_job, directory=PROGRAMS, name=f"job-{number}", **bounds
            )
            jobs.append(job)
        wait_for_news(running)
        done = next(way.__name__ for way in draw(dice) if way(running, dice))
        counts[done] += 1
        print(f"chaos: {counts.total()}: {done}")
    while not all(stage in ENDED for stage, *_ in look(running)):
        resume_job(running, dice)
        time.sleep(0.2)
        assert time.monotonic() - began < (limit_s or 0) + 6 * LIMIT_S, look(running)

    ended = list(running.client.jobs(limit=None))
    told = {job.name: (job.stage, job.reason) for job in ended}
    assert all(stage == "succeeded" for stage, _ in told.values()), told
    assert sorted(job.id for job in ended) == sorted(job.id for job in jobs)
    want = [weights_alone(seed) for seed in range(NUM_SEEDS)]
    for job in jobs:
        logs = "".join(line.text + "\n" for line in job.logs())
        assert found_in(logs) == want[int(job.name.removeprefix("job-")) % NUM_SEEDS], job.name
    wait_until(lambda: all(slot.is_free for slot in running.client.slots()), "all slots are free")
    wait_until(lambda: not processes_of(running), f"no process is left: {processes_of(running)}")
    minutes = (time.monotonic() - began) / 60
    figures = ", ".join(f"{name} {number}" for name, number in sorted(counts.items()))
    record_property("soak", f"{request.node.name}, seed {seed}: {len(jobs)} jobs exact in {minutes:.0f} min; {figures}")
