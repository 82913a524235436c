"""A job on three hosts, of which any crashes, hangs or is cut off at random while its processes are killed.

The result stays that of an undisturbed run, each step is recorded once, and no slot ever has two live workers. The seed
is printed; ``--soak-seed`` repeats it. ``--soak-schedule`` takes the printed schedule, or what is left of it when lines
are removed to find those that matter. Processes are reached at another point each time, so a schedule repeats what
happens but not its exact moments.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from tests.hosts.bed import Hosts
from tests.hosts.schedules import draw, parse
from tests.integration.harness import PROGRAMS, Reference, Stage
from tests.integration.on_hosts import LEASE_S, JobOnHosts, find_doubled, find_held
from tests.tiers import examples

NUM_ACTS = 8
NUM_SCHEDULES = max(examples(3) // 10, 1)
PROGRAM = ("vision.py", "--epochs", "60")


def play(hosts: Hosts, stage: Stage, reference: Reference, schedule: str, seed: int) -> None:
    want = reference.of(*PROGRAM)
    job = JobOnHosts(hosts, stage, PROGRAM, random.Random(seed))
    result = job.run(parse(schedule))
    print("\n".join(job.story))
    assert not find_doubled(stage.reins)
    result.check(want, has_all_losses=False)


@pytest.mark.timeout(0)
@pytest.mark.soak
@pytest.mark.parametrize("number", range(NUM_SCHEDULES))
def test_hosts_come_and_go(
    hosts: Hosts, stage: Stage, reference: Reference, request: pytest.FixtureRequest, number: int
) -> None:
    said = request.config.getoption
    seed = (secrets.randbits(32) if said("--soak-seed") is None else said("--soak-seed")) + number
    acts = draw(seed, said("--soak-events") or NUM_ACTS, hosts=3, max_workers=6, lease_s=LEASE_S)
    schedule = said("--soak-schedule") or "; ".join(map(str, acts))
    print(f"hosts: --soak-seed {seed} --soak-schedule '{schedule}'")
    play(hosts, stage, reference, schedule, seed)


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
