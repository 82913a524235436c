"""One job on several hosts, with an agent on each and its driver on one of them, and what happens to it.

The job's directory is on a disk that the hosts share; each agent's is on its host's own. What ends is started again: an
agent on its host, as a service would be, and the driver on any host that is up, as a server would start it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.hosts.bed import DISK, Command, Hosts
from tests.hosts.driving import Plan
from tests.hosts.schedules import OUTAGES, ROLES, Act
from tests.integration.harness import NAME, PROGRAMS, Result, Stage

from legato.agent.orders import AgentOrder, write_agent_order
from legato.core.spec import JobSpec
from legato.driver.journal import Outcome
from legato.engines.agents import PATH, RECORD, AgentsRecord

SLOTS_OF_HOST: Final = 2
LEASE_S: Final = 8.0
SILENCE_LIMIT_S: Final = 2.0
LIMIT_S: Final = 150.0
"""Until the job trains again after everything is well again. It is never needed on a machine that is not overloaded."""

_PORT: Final = 4500
_TOKEN: Final = "token-of-the-agents"
_ROOT: Final = Path(__file__).parents[2]
_SECONDS_OF_ACT: Final = 12.0


class JobOnHosts:
    """A job from its start to its end.

    Args:
        hosts: that are up.
        stage: of the job; its folder is on a disk that the hosts share.
        program: in ``programs``, with its arguments.
        dice: chooses where drivers are started.
    """

    def __init__(self, hosts: Hosts, stage: Stage, program: tuple[str, ...], dice: random.Random) -> None:
        self._hosts, self._stage, self._dice = hosts, stage, dice
        self._folder = stage.home.parent / "on-hosts"
        self._folder.mkdir()
        self.max_workers = SLOTS_OF_HOST * len(hosts.numbers)
        self._spec = JobSpec(
            name=NAME,
            program=(str(PROGRAMS / program[0]), *program[1:]),
            directory=str(self._folder),
            max_workers=self.max_workers,
            num_workers=self.max_workers,
            heartbeat_limit_s=3.0,
            join_patience_s=1.0,
            checkpoint_every="5steps",
            max_deaths=100,
            max_breaks=100,
        )
        nodes = {hosts.name(host): SLOTS_OF_HOST for host in hosts.numbers}
        plan = Plan(self._spec, str(stage.home), _PORT, nodes, LEASE_S, SILENCE_LIMIT_S, str(self._folder))
        (self._folder / "plan.json").write_bytes(msgspec.json.encode(plan))
        (self._folder / "wanted").write_text(str(self.max_workers))
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)])}
        self._driver: Command | None = None
        self._driver_host = 0
        self._cut: set[int] = set()
        self._split: set[int] = set()
        self._frozen: set[int] = set()
        self._due: list[tuple[float, Callable[[], None], str]] = []
        self._began = time.monotonic()
        self._acts_left = 0
        self.story: list[str] = []

    # ------------------------------------------------------------ the whole life

    def run(self, acts: list[Act]) -> Result:
        """Run the job to its end, while a schedule happens."""
        self._prepare_agents()
        self._acts_left = len(acts)
        self._wait_until(self._trains(2), "the job trains")
        for number, act in enumerate(acts):
            if not act.at_once:
                self._wait_until(lambda: not self._due, "hosts are back")
                self._wait_until(self._trains(2), "the job trains again")
            self._acts_left = len(acts) - number
            self._happen(act)
        self._wait_until(lambda: not self._due, "hosts are back")
        self._wait_until(self._trains(2), "the job trains again")
        self._acts_left = 0
        self._wait_until(lambda: self.outcome is not None, "the job ends")
        outcome = self.outcome
        assert outcome is not None
        self._note(f"the job ends: {outcome}")
        self._wait_until(lambda: not find_held(self._stage.reins), "no worker is left", supervised=False)
        self._end()
        return self._stage.collect(outcome)

    def _end(self) -> None:
        for host in self._hosts.numbers:
            self._hosts.crash(host)
        if self._driver is not None:
            self._driver.wait()

    @property
    def outcome(self) -> Outcome | None:
        journal = self._stage.directory.read_journal("") if self._stage.directory.journal_file.exists() else None
        return None if journal is None else journal.outcome

    # ------------------------------------------------------------ what happens

    def _happen(self, act: Act) -> None:
        self._note(f"{act}")
        if act.kind == "scale":
            (self._folder / "wanted.new").write_text(act.targets[0])
            (self._folder / "wanted.new").replace(self._folder / "wanted")
        elif act.kind == "worker":
            members = [worker for worker in self._status().get("workers", []) if worker["phase"] == "member"]
            if members:
                worker = members[int(act.targets[0]) % len(members)]
                self._kill_on(_number(worker["slot"].partition("/")[0]), worker["pid"])
        elif act.kind == "driver":
            if self._driver is not None:
                self._driver.kill()
        elif act.kind == "agent":
            for pid in self._agents_of(self._host_of(act.targets[0])):
                os.kill(pid, signal.SIGKILL)
        else:
            hosts = {self._host_of(target) for target in act.targets}
            self._begin_outage(act.kind, {host for host in hosts if self._hosts.is_up(host)} - self._frozen, act)

    def _begin_outage(self, kind: str, hosts: set[int], act: Act) -> None:
        def end() -> None:
            if kind == "crash":
                for host in hosts:
                    self._hosts.boot(host)
            elif kind == "freeze":
                self._frozen.difference_update(hosts)
                for host in hosts:
                    self._hosts.thaw(host)
            else:
                (self._cut if kind == "cut" else self._split).difference_update(hosts)
            self._wire()

        assert kind in OUTAGES
        for host in hosts:
            if kind == "crash":
                self._hosts.crash(host)
            elif kind == "freeze":
                self._frozen.add(host)
                self._hosts.freeze(host)
        if kind in ("cut", "split"):
            (self._cut if kind == "cut" else self._split).update(hosts)
            self._wire()
        names = ",".join(map(self._hosts.name, sorted(hosts)))
        self._due.append((time.monotonic() + act.seconds, end, f"{kind} of {names or 'no host'} is over"))

    def _wire(self) -> None:
        """Bring the network to what it should be."""
        up = {host for host in self._hosts.numbers if self._hosts.is_up(host)}
        if whole := up - self._cut - self._split:
            self._hosts.heal(*whole)
        if split := (up & self._split) - self._cut:
            self._hosts.heal(*split)
            self._hosts.split(sorted(split))
        if cut := up & self._cut:
            self._hosts.cut(*cut)

    def _host_of(self, target: str) -> int:
        if target not in ROLES:
            return _number(target)
        status = self._status()
        found = self._driver_host
        if target == "store":
            found = _number(status.get("store") or "") or found
        elif target == "first":
            slots = [worker["slot"] for worker in status.get("workers", []) if worker["rank"] == 0]
            found = _number(slots[0].partition("/")[0]) if slots else found
        self._note(f"  {target} is on {self._hosts.name(found)}")
        return found

    def _kill_on(self, host: int, pid: int) -> None:
        """Kill the process that has this id on its host."""
        for found in self._hosts.pids(host):
            try:
                status = Path(f"/proc/{found}/status").read_text()
            except OSError:
                continue
            (ids,) = [line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")]
            if int(ids[-1]) == pid:
                os.kill(found, signal.SIGKILL)

    # ------------------------------------------------------------ keeping it going

    def _prepare_agents(self) -> None:
        directory = self._stage.directory
        directory.path.mkdir(parents=True)
        (directory.path / RECORD).write_bytes(msgspec.json.encode(AgentsRecord(_TOKEN)))
        urls = tuple(f"ws://{self._hosts.address(host)}:{_PORT}{PATH}" for host in self._hosts.numbers)
        for host in self._hosts.numbers:
            order = AgentOrder(
                job=NAME,
                node=self._hosts.name(host),
                urls=urls,
                token=_TOKEN,
                address=self._hosts.address(host),
                num_slots=SLOTS_OF_HOST,
            )
            write_agent_order(self._hosts.disk(host) / "agent", order)

    def _agents_of(self, host: int) -> list[int]:
        found = []
        for pid in self._hosts.pids(host):
            try:
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"legato.agent.process" in command:
                found.append(pid)
        return found

    def _supervise(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._due if entry[0] <= now]:
            self._due.remove(entry)
            self._note(entry[2])
            entry[1]()
        for host in self._hosts.numbers:
            if self._hosts.is_up(host) and host not in self._frozen and not self._agents_of(host):
                with (self._folder / f"agent-{host}.log").open("ab") as log:
                    agent = [sys.executable, "-m", "legato.agent.process", f"{DISK}/agent"]
                    self._popen(host, agent, log).wait()
        if self._driver is None or self._driver.poll() is not None:
            self._start_driver()
        self._pace()

    def _start_driver(self) -> None:
        if self.outcome is not None:
            return
        up = [host for host in self._hosts.numbers if self._hosts.is_up(host) and host not in self._frozen]
        well = [host for host in up if host not in self._cut | self._split] or up
        if not well:
            return
        if self._driver is not None:
            self._note(f"  the driver has ended with {self._driver.returncode}")
        self._driver_host = self._dice.choice(well)
        self._note(f"  a driver starts on {self._hosts.name(self._driver_host)}")
        with (self._folder / "driver.log").open("ab") as log:
            command = [sys.executable, "-m", "tests.hosts.driving", str(self._folder / "plan.json")]
            self._driver = self._popen(self._driver_host, command, log)

    def _popen(self, host: int, command: list[str], log: Any) -> Command:
        return self._hosts.popen(
            host, command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=_ROOT, env=self._environment
        )

    def _pace(self) -> None:
        """Let the steps that are left last as long as the acts that are left."""
        status = self._status()
        left = max((status.get("num_steps") or 100) - (status.get("step") or 0), 1)
        waiting_s = self._acts_left * _SECONDS_OF_ACT + sum(max(due - time.monotonic(), 0.0) for due, *_ in self._due)
        pace = min(max(waiting_s / left, 0.05), 1.0) if self._acts_left else 0.0
        (self._stage.reins / "pace.new").write_text(str(pace))
        (self._stage.reins / "pace.new").replace(self._stage.reins / "pace")

    # ------------------------------------------------------------ looking

    def _status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self._folder / "status.json").read_bytes()))
        except FileNotFoundError:
            return {}

    def _trains(self, num_steps: int) -> Callable[[], bool]:
        """Whether the job has trained so many steps from now; from fewer, if it resumed a checkpoint meanwhile."""
        lowest = self._status().get("step") or 0

        def holds() -> bool:
            nonlocal lowest
            step = self._status().get("step") or 0
            lowest = min(lowest, step)
            return step >= lowest + num_steps or self.outcome is not None

        return holds

    def _wait_until(self, condition: Callable[[], bool], what: str, *, supervised: bool = True) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if supervised:
                self._supervise()
            if find_doubled(self._stage.reins):
                pytest.fail(f"two workers in one slot: {find_doubled(self._stage.reins)}\n{self.tell()}")
            if time.monotonic() > deadline:
                pytest.fail(f"waited {LIMIT_S:g} s in vain until {what}\n{self.tell()}")
            time.sleep(0.05)

    def tell(self) -> str:
        """Return everything there is to read, for the message of a failed test."""
        logs = [f"-- {path.name}\n{path.read_text()[-6000:]}" for path in sorted(self._folder.glob("*.log"))]
        self._end()
        result = self._stage.collect(self.outcome or Outcome("none", -1, "no end"))
        status = {name: value for name, value in self._status().items() if name != "events"}
        return "\n".join([*self.story, f"status: {status}", *logs, dataclasses.replace(result, left_over=[]).story()])

    def _note(self, text: str) -> None:
        step = self._status().get("step")
        self.story.append(f"{time.monotonic() - self._began:7.2f} step {step}: {text}")


def find_doubled(reins: Path) -> list[str]:
    """Return the slots in which a worker was started beside a live one, which must never happen."""
    return sorted(path.name for path in reins.glob("mark-doubled-*"))


def find_held(reins: Path) -> list[str]:
    """Return the slots in which a worker lives."""
    held = []
    for path in reins.glob("slot-*"):
        with path.open("r+b") as lock:
            try:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                held.append(path.name)
    return held


def _number(name: str) -> int:
    return int(name.removeprefix("h") or 0)
