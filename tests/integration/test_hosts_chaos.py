"""Jobs on three hosts, of which any crashes, hangs or is cut off at random while processes are killed.

Once it is one job whose driver has no server, and once a pool with a server, pool agents and two jobs. Each result is
that of an undisturbed run, each step is recorded once, and no slot ever has two live workers. The seed is printed;
``--soak-seed`` repeats it. ``--soak-schedule`` takes the printed schedule, or what is left of it when lines are removed
to find those that matter. Processes are reached at another point each time, so a schedule repeats what happens but not
its exact moments.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.hosts.bed import Hosts
from tests.hosts.schedules import JOB, POOL, draw, parse
from tests.integration import on_hosts, pool_on_hosts
from tests.integration.harness import PROGRAMS, Reference, Stage
from tests.integration.on_hosts import SLOTS_OF_HOST, JobOnHosts, find_doubled, find_held
from tests.integration.pool_on_hosts import PoolOnHosts
from tests.tiers import examples

NUM_ACTS = 8
NUM_ACTS_OF_POOL = 6
MAX_WORKERS = SLOTS_OF_HOST * 3
NUM_SCHEDULES = max(examples(3) // 10, 1)
PROGRAM = ("vision.py", "--epochs", "60")
PROGRAMS_OF_POOL = (PROGRAM, ("text.py", "--epochs", "60"))


def play(hosts: Hosts, stage: Stage, reference: Reference, schedule: str, seed: int) -> None:
    want = reference.of(*PROGRAM)
    job = JobOnHosts(hosts, stage, PROGRAM, random.Random(seed))
    result = job.run(parse(schedule))
    print("\n".join(job.story))
    assert not find_doubled(stage.reins)
    result.check(want, has_all_losses=False)


def play_with_pool(
    hosts: Hosts, stage: Stage, reference: Reference, schedule: str, *programs: tuple[str, ...], **options: float
) -> None:
    wanted = [reference.of(*program) for program in programs]
    pool = PoolOnHosts(hosts, stage, **options)
    pool.begin()
    for program, want in zip(programs, wanted, strict=True):
        pool.submit(*program, num_steps=want.num_steps)
    pool.play(parse(schedule))
    results = pool.end()
    print("\n".join(pool.story))
    assert not find_doubled(stage.reins)
    for result, want in zip(results, wanted, strict=True):
        result.check(want, has_all_losses=False)


def choose(request: pytest.FixtureRequest, number: int, **drawn: Any) -> tuple[str, int]:
    """Return the schedule that the options ask for, and its seed; both are printed."""
    said = request.config.getoption
    seed = (secrets.randbits(32) if said("--soak-seed") is None else said("--soak-seed")) + number
    drawn["num_acts"] = said("--soak-events") or drawn["num_acts"]
    schedule = said("--soak-schedule") or "; ".join(map(str, draw(seed, hosts=3, **drawn)))
    print(f"hosts: --soak-seed {seed} --soak-schedule '{schedule}'")
    return schedule, seed


@pytest.mark.timeout(0)
@pytest.mark.soak
@pytest.mark.parametrize("number", range(NUM_SCHEDULES))
def test_hosts_come_and_go(
    hosts: Hosts, stage: Stage, reference: Reference, request: pytest.FixtureRequest, number: int
) -> None:
    schedule, seed = choose(
        request, number, num_acts=NUM_ACTS, max_workers=MAX_WORKERS, lease_s=on_hosts.LEASE_S, kinds=JOB
    )
    play(hosts, stage, reference, schedule, seed)


@pytest.mark.timeout(0)
@pytest.mark.soak
@pytest.mark.parametrize("number", range(NUM_SCHEDULES))
def test_hosts_of_a_pool_come_and_go(
    hosts: Hosts, stage: Stage, reference: Reference, request: pytest.FixtureRequest, number: int
) -> None:
    schedule, _ = choose(
        request, number, num_acts=NUM_ACTS_OF_POOL, max_workers=MAX_WORKERS, lease_s=pool_on_hosts.LEASE_S, kinds=POOL
    )
    play_with_pool(hosts, stage, reference, schedule, *PROGRAMS_OF_POOL)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_host_of_a_server_is_cut_off_and_crashes(hosts: Hosts, stage: Stage, reference: Reference) -> None:
    """All that is on it, the server, the driver, workers and the store, is out of reach or gone, and comes back."""
    schedule = "then cut h1 3; then crash h1 0.2"
    play_with_pool(hosts, stage, reference, schedule, ("vision.py", "--epochs", "10"), seconds_of_act=4.0)


def test_a_second_live_worker_in_a_slot_is_noticed(tmp_path: Path) -> None:
    marks: list[list[str]] = []
    with contextlib.ExitStack() as stack:
        for slot in ("h1/0", "h1/1", "h1/0"):
            hold = "import sys, slot_locks; slot_locks.hold_slot(); print(flush=True); sys.stdin.read()"
            variables = {"LEGATO_TEST_REINS": str(tmp_path), "LEGATO_TEST_SLOT": slot, "PYTHONPATH": str(PROGRAMS)}
            worker = subprocess.Popen(
                [sys.executable, "-c", hold],
                env={**os.environ, **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"\n"
            marks.append(find_doubled(tmp_path))
    assert marks == [[], [], ["mark-doubled-h1-0"]]
    assert find_held(tmp_path) == [], "the locks end with the processes"
