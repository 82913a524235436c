"""A job on hosts with private disks and slow links: large checkpoints travel beside the training, and come whole."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.hosts.bed import Hosts
from tests.hosts.driving import Plan, command_of_agent, command_of_driver, prepare
from tests.integration.harness import NAME, PROGRAMS, Stage

from legato.core.spec import JobSpec

ROOT = Path(__file__).parents[2]
MBIT = 40.0
CHECKPOINT_BYTES = 12 * 2**20
NUM_STEPS = 300
LIMIT_S = 300.0


class Job:
    """A job whose rank 0 is on host 2, and its driver on host 1; 1 worker on each."""

    def __init__(self, hosts: Hosts, stage: Stage) -> None:
        self.hosts, self.directory = hosts, stage.directory
        folder = stage.home.parent / "on-hosts"
        folder.mkdir()
        spec = JobSpec(
            name=NAME,
            program=(str(PROGRAMS / "heavy.py"), str(NUM_STEPS), str(CHECKPOINT_BYTES)),
            directory=str(folder),
            max_workers=2,
            num_workers=2,
            checkpoint_every="20steps",
            keep=2,
        )
        plan = Plan(spec, str(stage.home), {"h2": 1, "h1": 1}, 60.0, 30.0, str(folder), has_private_disks=True)
        prepare(hosts, plan)
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        for host in (1, 2):
            self.start_agent(host)
            hosts.rate(host, MBIT)
        with (folder / "driver.log").open("ab") as log:
            self.driver = hosts.popen(1, command_of_driver(folder), env=self._environment, stdout=log, stderr=log)

    def start_agent(self, host: int) -> None:
        """Start an agent; the command ends at once."""
        self.hosts.run_on(
            host, *command_of_agent(), env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill_agent(self, host: int) -> None:
        for pid in self.hosts.pids(host):
            if b"legato.agent.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def part(self) -> int:
        """How much of a checkpoint that is not complete has come."""
        return sum(path.stat().st_size for path in self.directory.checkpoints.glob(".step-*.part"))

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        lines = self.directory.events_file.read_text().splitlines() if self.directory.events_file.exists() else []
        return [event for event in map(json.loads, lines) if event["kind"] in kinds]


def wait_until(job: Job, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline and job.driver.poll() is None
        time.sleep(0.01)


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("step-*.legato")}


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_a_large_checkpoint_starves_no_heartbeat_and_survives_its_agent(hosts: Hosts, stage: Stage) -> None:
    job = Job(hosts, stage)
    wait_until(job, lambda: job.part() > CHECKPOINT_BYTES // 4)
    job.kill_agent(2)
    before = job.part()
    job.start_agent(2)
    wait_until(job, lambda: job.events("saved") != [])
    assert before >= CHECKPOINT_BYTES // 4
    assert job.driver.wait(LIMIT_S) == 0
    assert job.events("lost", "fenced", "died", "broken") == [], "nothing was late"
    there, here = digests(hosts.disk(2) / "agent" / "checkpoints"), digests(job.directory.checkpoints)
    last = f"step-{NUM_STEPS:08d}.legato"
    assert here[last] == there[last]
    saved = [event["reason"].rpartition(" at ")[2] for event in job.events("saved")]
    assert all(path.startswith(str(job.directory.checkpoints)) for path in saved), saved
    # Each checkpoint was sent at most once, and what was on the way when the agent died.
    assert hosts.bytes_sent(2) < (len(saved) + 1) * CHECKPOINT_BYTES * 1.3 + NUM_STEPS * 10**6
