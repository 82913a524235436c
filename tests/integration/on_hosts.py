"""What happens to several hosts while jobs train on them, and the life of one job there, whose driver has no server.

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
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.hosts.bed import Command, Hosts
from tests.hosts.driving import JOB_AGENT, Plan, command_of_agent, command_of_driver, prepare
from tests.hosts.schedules import OUTAGES, ROLES, Act
from tests.integration.harness import NAME, PROGRAMS, Result, Stage

from legato.core.spec import JobSpec
from legato.driver.journal import Outcome

SLOTS_OF_HOST: Final = 2
LEASE_S: Final = 8.0
SILENCE_LIMIT_S: Final = 2.0
LIMIT_S: Final = 150.0
"""Until jobs train again after everything is well again. It is never needed on a machine that is not overloaded."""

_ROOT: Final = Path(__file__).parents[2]


class OnHosts(ABC):
    """Plays a schedule on hosts, and starts again what ends.

    Args:
        hosts: that are up.
        folder: for logs, on a disk that the hosts share.
        reins: of the programs (``programs/common.py``).
        seconds_of_act: for how long the programs still train while an act is to come.
    """

    def __init__(self, hosts: Hosts, folder: Path, reins: Path, *, seconds_of_act: float) -> None:
        self._hosts, self._folder, self._reins = hosts, folder, reins
        self._seconds_of_act = seconds_of_act
        folder.mkdir()
        paths = [str(_ROOT), str(_ROOT / "src"), *filter(None, sys.path)]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self._cut: set[int] = set()
        self._split: set[int] = set()
        self._frozen: set[int] = set()
        self._due: list[tuple[float, Callable[[], None], str]] = []
        self._began = time.monotonic()
        self._acts_left = 0
        self.story: list[str] = []

    # ------------------------------------------------------------ what jobs it has

    @abstractmethod
    def _supervise_processes(self) -> None:
        """Start again what has ended."""

    @abstractmethod
    def _trains(self, num_steps: int) -> Callable[[], bool]:
        """Whether each job has trained so many steps from now, or has ended."""

    @abstractmethod
    def _steps_left(self) -> int:
        """Return how many steps the job that ends first has left, at least 1."""

    @abstractmethod
    def _members(self) -> list[tuple[str, int]]:
        """Return slot and process of each worker that trains."""

    @abstractmethod
    def _find_role(self, role: str) -> int:
        """Return the host that has a role."""

    @abstractmethod
    def _happen_else(self, act: Act) -> None:
        """Do what depends on how the jobs run."""

    @abstractmethod
    def _describe(self) -> str:
        """Return how far the jobs are, in some words."""

    @abstractmethod
    def tell(self) -> str:
        """End everything, and return all there is to read, for the message of a failed test."""

    # ------------------------------------------------------------ playing

    def play(self, acts: list[Act]) -> None:
        """Let a schedule happen to jobs that train. Returns when the jobs train again after it."""
        self._acts_left = len(acts)
        self._wait_until(self._trains(2), "the jobs train")
        for number, act in enumerate(acts):
            if not act.at_once:
                self._wait_until_well()
            self._acts_left = len(acts) - number
            self._happen(act)
        self._wait_until_well()
        self._acts_left = 0

    def _wait_until_well(self) -> None:
        self._wait_until(lambda: not self._due, "all outages are over")
        self._wait_until(self._trains(2), "the jobs train again")

    def _wait_until(self, condition: Callable[[], bool], what: str, *, supervised: bool = True) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            if supervised:
                self._supervise()
            if find_doubled(self._reins):
                pytest.fail(f"two workers in one slot: {find_doubled(self._reins)}\n{self.tell()}")
            if time.monotonic() > deadline:
                pytest.fail(f"waited {LIMIT_S:g} s in vain until {what}\n{self.tell()}")
            time.sleep(0.05)

    def _supervise(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._due if entry[0] <= now]:
            self._due.remove(entry)
            self._note(entry[2])
            entry[1]()
        self._supervise_processes()
        self._pace()

    def _pace(self) -> None:
        """Let the steps that are left last as long as the acts that are left."""
        left_s = sum(max(due - time.monotonic(), 0.0) for due, *_ in self._due)
        waiting_s = self._acts_left * self._seconds_of_act + left_s
        pace = min(max(waiting_s / self._steps_left(), 0.05), 1.0) if self._acts_left else 0.0
        (self._reins / "pace.new").write_text(str(pace))
        (self._reins / "pace.new").replace(self._reins / "pace")

    def _note(self, text: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:7.2f} {self._describe()}: {text}")

    # ------------------------------------------------------------ what happens

    def _happen(self, act: Act) -> None:
        self._note(f"{act}")
        if act.kind == "worker":
            if members := self._members():
                slot, pid = members[int(act.targets[0]) % len(members)]
                self._kill_on(number_of(slot.partition("/")[0]), pid)
        elif act.kind == "agent":
            for pid in self._processes_of(self._host_of(act.targets[0]), JOB_AGENT):
                os.kill(pid, signal.SIGKILL)
        elif act.kind in OUTAGES:
            hosts = {self._host_of(target) for target in act.targets}
            self._begin_outage(act.kind, {host for host in hosts if self._hosts.is_up(host)} - self._frozen, act)
        else:
            self._happen_else(act)

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
        self._end_later(act, end, f"{kind} of {names or 'no host'}")

    def _end_later(self, act: Act, end: Callable[[], None], what: str) -> None:
        self._due.append((time.monotonic() + act.seconds, end, f"{what} is over"))

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
            return number_of(target)
        found = self._find_role(target)
        self._note(f"  {target} is on {self._hosts.name(found)}")
        return found

    # ------------------------------------------------------------ processes

    def _can_start_on(self, host: int) -> bool:
        return self._hosts.is_up(host) and host not in self._frozen

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

    def _processes_of(self, host: int, text: str) -> list[int]:
        """Return the processes of a host whose command contains a text."""
        return [pid for pid, command in self._commands_on(host) if text in command]

    def _commands_on(self, host: int) -> Iterator[tuple[int, str]]:
        """Yield the processes of a host with their commands; words are separated by spaces."""
        for pid in self._hosts.pids(host):
            try:
                yield pid, Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue

    def _popen(self, host: int, command: list[str], log: str) -> Command:
        with (self._folder / log).open("ab") as file:
            return self._hosts.popen(
                host, command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, cwd=_ROOT, env=self._environment
            )

    def _read_logs(self) -> list[str]:
        return [f"-- {path.name}\n{path.read_text()[-6000:]}" for path in sorted(self._folder.glob("*.log"))]


class JobOnHosts(OnHosts):
    """A job from its start to its end.

    Args:
        hosts: that are up.
        stage: of the job; its folder is on a disk that the hosts share.
        program: in ``programs``, with its arguments.
        dice: chooses where drivers are started.
        address: of a host, at which the others reach it. None: its IPv4 address.
    """

    def __init__(
        self,
        hosts: Hosts,
        stage: Stage,
        program: tuple[str, ...],
        dice: random.Random,
        address: Callable[[int], str] | None = None,
    ) -> None:
        super().__init__(hosts, stage.home.parent / "on-hosts", stage.reins, seconds_of_act=12.0)
        self._stage, self._dice = stage, dice
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
        plan = Plan(self._spec, str(stage.home), nodes, LEASE_S, SILENCE_LIMIT_S, str(self._folder))
        prepare(hosts, plan, address)
        self._driver: Command | None = None
        self._driver_host = 0

    def run(self, acts: list[Act], look: Callable[[], None] | None = None) -> Result:
        """Run the job to its end, while a schedule happens; ``look`` is called once, while all workers train."""
        if look is not None:
            self._acts_left = 1
            self._wait_until(lambda: len(self._members()) == self.max_workers, "all workers train")
            look()
        self.play(acts)
        self._wait_until(lambda: self.outcome is not None, "the job ends")
        outcome = self.outcome
        assert outcome is not None
        self._note(f"the job ends: {outcome}")
        self._wait_until(lambda: not find_held(self._reins), "no worker is left", supervised=False)
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

    def _happen_else(self, act: Act) -> None:
        if act.kind == "scale":
            (self._folder / "wanted.new").write_text(act.targets[0])
            (self._folder / "wanted.new").replace(self._folder / "wanted")
        elif self._driver is not None:
            assert act.kind == "driver"
            self._driver.kill()

    def _find_role(self, role: str) -> int:
        status, found = self._status(), self._driver_host
        if role == "store":
            return number_of(status.get("store") or "") or found
        slots = [worker["slot"] for worker in status.get("workers", []) if worker["rank"] == 0]
        return number_of(slots[0].partition("/")[0]) if role == "first" and slots else found

    def _members(self) -> list[tuple[str, int]]:
        workers = self._status().get("workers", [])
        return [(worker["slot"], worker["pid"]) for worker in workers if worker["phase"] == "member"]

    # ------------------------------------------------------------ keeping it going

    def _supervise_processes(self) -> None:
        for host in self._hosts.numbers:
            if self._can_start_on(host) and not self._processes_of(host, JOB_AGENT):
                self._popen(host, command_of_agent(), f"agent-{host}.log").wait()
        if self._driver is None or self._driver.poll() is not None:
            self._start_driver()

    def _start_driver(self) -> None:
        if self.outcome is not None:
            return
        up = [host for host in self._hosts.numbers if self._can_start_on(host)]
        well = [host for host in up if host not in self._cut | self._split] or up
        if not well:
            return
        if self._driver is not None:
            self._note(f"  the driver has ended with {self._driver.returncode}")
        self._driver_host = self._dice.choice(well)
        self._note(f"  a driver starts on {self._hosts.name(self._driver_host)}")
        self._driver = self._popen(self._driver_host, command_of_driver(self._folder), "driver.log")

    # ------------------------------------------------------------ looking

    def _status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self._folder / "status.json").read_bytes()))
        except FileNotFoundError:
            return {}

    def _steps_left(self) -> int:
        status = self._status()
        return max((status.get("num_steps") or 100) - (status.get("step") or 0), 1)

    def _trains(self, num_steps: int) -> Callable[[], bool]:
        """Whether the job has trained so many steps from now; from fewer, if it resumed a checkpoint meanwhile."""
        lowest = self._status().get("step") or 0

        def holds() -> bool:
            nonlocal lowest
            step = self._status().get("step") or 0
            lowest = min(lowest, step)
            return step >= lowest + num_steps or self.outcome is not None

        return holds

    def _describe(self) -> str:
        return f"step {self._status().get('step')}"

    def tell(self) -> str:
        self._end()
        result = self._stage.collect(self.outcome or Outcome("none", -1, "no end"))
        status = {name: value for name, value in self._status().items() if name != "events"}
        told = dataclasses.replace(result, left_over=[]).story()
        return "\n".join([*self.story, f"status: {status}", *self._read_logs(), told])


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


def number_of(name: str) -> int:
    """Return the number of a host; 0 for an empty name."""
    return int(name.removeprefix("h") or 0)
