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

import msgspec
import pytest
from tests.hosts.bed import DISK, Hosts
from tests.hosts.driving import Plan
from tests.integration.harness import NAME, PROGRAMS, Stage

from legato.agent.orders import AgentOrder, write_agent_order
from legato.core.spec import JobSpec
from legato.engines.agents import PATH, RECORD
from legato.engines.agents_record import AgentsRecord

ROOT = Path(__file__).parents[2]
PORT, TOKEN = 4500, "token-of-the-agents"
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
        plan = Plan(spec, str(stage.home), PORT, {"h2": 1, "h1": 1}, 60.0, 30.0, str(folder), has_private_disks=True)
        (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        (folder / "wanted").write_text("2")
        self.directory.path.mkdir(parents=True)
        (self.directory.path / RECORD).write_bytes(msgspec.json.encode(AgentsRecord(TOKEN)))
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        for host in (1, 2):
            url = f"ws://{hosts.address(1)}:{PORT}{PATH}"
            address, node = hosts.address(host), hosts.name(host)
            order = AgentOrder(job=NAME, node=node, urls=(url,), token=TOKEN, address=address, num_slots=1)
            write_agent_order(hosts.disk(host) / "agent", order)
            self.start_agent(host)
            hosts.rate(host, MBIT)
        driver = [sys.executable, "-m", "tests.hosts.driving", str(folder / "plan.json")]
        with (folder / "driver.log").open("ab") as log:
            self.driver = hosts.popen(1, driver, env=self._environment, stdout=log, stderr=log)

    def start_agent(self, host: int) -> None:
        """Start an agent; the command ends at once."""
        command = [sys.executable, "-m", "legato.agent.process", f"{DISK}/agent"]
        self.hosts.run_on(host, *command, env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

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
