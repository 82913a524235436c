"""A pool of three hosts, and what happens to it: a server on host 1, pool agents on the others, jobs by its REST API.

Each host has a disk of its own: host 1 has the server's home, the others the files of their agents. What ends is
started again on its host, as a service would be.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from tests.hosts.bed import DISK, Command, Hosts
from tests.hosts.schedules import Act
from tests.integration.harness import PROGRAMS, Result, Stage
from tests.integration.on_hosts import SLOTS_OF_HOST, OnHosts, find_held

from legato.client.packing import pack_files
from legato.core.errors import LegatoError
from legato.driver.journal import JobDirectory, JobJournal, Outcome
from legato.engines.agents import RECORD
from legato.engines.agents_record import read_record

LIMITS: Final = {"away_limit_s": 6.0, "stop_limit_s": 4.0}
"""Of the jobs: for how long workers train without a driver, and have to end."""
LEASE_S: Final = sum(LIMITS.values())
"""Of the jobs' agents (`legato.control.drivers.process.find_lease_s`)."""

_SPEC: Final = {**LIMITS, "join_patience_s": 1.0, "max_deaths": 100, "max_breaks": 100}
_PORT: Final = 8000
_HOME: Final = f"{DISK}/home"
_SERVER: Final = 1
_ASK_LIMIT_S: Final = 2.0
_ENDED: Final = ("succeeded", "failed", "stopped")
_SETTINGS: Final = (
    "loop_interval_s=0.2",
    "stability_s=0.5",
    "cooldown_factor=0",
    "measured_speed_s=none",
    "allow_jobs_as_server=true",
    "allow_plain_agents=true",
)


@dataclasses.dataclass
class _Job:
    """A job of the pool.

    Attributes:
        id: of it.
        directory: where this process sees its files.
        num_steps: when it ends.
    """

    id: str
    directory: JobDirectory
    num_steps: int

    def read_journal(self) -> JobJournal | None:
        # While its host is down, or an attempt begins, it may be missing.
        with contextlib.suppress(LegatoError, OSError):
            return self.directory.read_journal("")
        return None

    def read_members(self) -> list[tuple[str, int]]:
        """Return slot and process of each member of the view in force."""
        journal, record = self.read_journal(), None
        with contextlib.suppress(LegatoError):
            record = read_record(self.directory.path / RECORD)
        if journal is None or journal.snapshot is None or journal.snapshot.current is None or record is None:
            return []
        pids = {worker: pid for node in record.nodes.values() for worker, pid in node.workers.items() if pid}
        workers = [worker for worker in journal.snapshot.current.workers if worker in pids]
        return [(journal.snapshot.slots[worker], pids[worker]) for worker in workers]

    @property
    def step(self) -> int:
        committed = self.directory.read_last_committed()
        return 0 if committed is None else committed.step


class PoolOnHosts(OnHosts):
    """A pool from its start to the end of its jobs.

    Args:
        hosts: that are up.
        stage: its folder is on a disk that the hosts share.
        seconds_of_act: as in `OnHosts`.
    """

    def __init__(self, hosts: Hosts, stage: Stage, *, seconds_of_act: float = 15.0) -> None:
        super().__init__(hosts, stage.home.parent / "pool", stage.reins, seconds_of_act=seconds_of_act)
        for name in [name for name in self._environment if name.startswith("LEGATO_")]:
            del self._environment[name]  # those of the test
        self._stage = stage
        self._url = f"http://{hosts.address(_SERVER)}:{_PORT}"
        self._secret = ""
        self._joins: dict[int, str] = {}
        self._server: Command | None = None
        self._server_stays_away = False
        self._agents: dict[int, Command] = {}
        self._leaving: set[int] = set()
        self._asked: list[tuple[str, Any]] = []
        self._jobs: list[_Job] = []
        self._num_scaled = 0

    # ------------------------------------------------------------ the whole life

    def begin(self) -> None:
        """Start the server, and let the other hosts join its pool."""
        self._supervise_processes()
        login = self._hosts.disk(_SERVER) / "home/first-login.txt"
        self._wait_until(lambda: login.exists() and "lgt_" in login.read_text(), "the server has begun")
        self._secret = next(line.strip() for line in login.read_text().splitlines() if "lgt_" in line)
        self._wait_until(lambda: self._get("slots") is not None, "the server answers")
        for host in self._hosts.numbers:
            if host != _SERVER:
                self._joins[host] = self._post("join-tokens", {})["secret"]
        self._wait_until(self._is_whole, "all hosts have joined")

    def submit(self, program: str, *arguments: str, num_steps: int) -> None:
        """Submit a job of a program in ``programs``."""
        names = (program, "common.py", "slot_locks.py")
        packed = pack_files({name: (PROGRAMS / name).read_bytes() for name in names})
        self._http("PUT", f"code/{packed.sha256}", content=packed.content).raise_for_status()
        body = {
            "name": program.removesuffix(".py"),
            "program": [program, *arguments],
            "code": packed.sha256,
            "min_workers": 1,
            "max_workers": self.num_slots,
            "checkpoint_every": "5steps",
            "heartbeat_limit_s": 3.0,
        }
        made = self._post("jobs", body)["id"]
        self._jobs.append(_Job(made, JobDirectory(self._hosts.disk(_SERVER) / "home/jobs" / made), num_steps))

    def end(self) -> list[Result]:
        """Wait for the end of all jobs, and return their results in the order in which they were submitted.

        All slots are free then, and no process is left but the server and the pool agents.
        """
        self._wait_until(lambda: all(self._stage_of(job) in _ENDED for job in self._jobs), "the jobs end")
        self._note(f"the jobs end: {[self._stage_of(job) for job in self._jobs]}")
        self._wait_until(lambda: not find_held(self._reins), "no worker is left")
        self._wait_until(self._is_whole, "all slots are free")
        self._wait_until(lambda: not self._left_over(), "no process is left")
        self._note("all slots are free, and no process is left")
        self.close()
        return [self._stage.collect(self._outcome_of(job), job.directory) for job in self._jobs]

    def close(self) -> None:
        """End everything."""
        for host in self._hosts.numbers:
            self._hosts.crash(host)
        for process in (self._server, *self._agents.values()):
            if process is not None:
                process.wait()

    @property
    def num_slots(self) -> int:
        return SLOTS_OF_HOST * len(self._hosts.numbers)

    def _stage_of(self, job: _Job) -> str:
        return str((self._get(f"jobs/{job.id}") or {}).get("stage"))

    def _outcome_of(self, job: _Job) -> Outcome:
        journal = job.read_journal()
        return Outcome("none", -1, "no end") if journal is None or journal.outcome is None else journal.outcome

    def _is_whole(self) -> bool:
        """Whether all hosts are in the pool, and no job uses them."""
        slots, nodes = self._get("slots"), self._get("nodes")
        return (
            slots is not None
            and nodes is not None
            and [slot["is_free"] for slot in slots["items"]] == [True] * self.num_slots
            and [node["agent"]["state"] for node in nodes["items"] if node["agent"]] == ["ready"] * len(self._joins)
        )

    def _left_over(self) -> list[str]:
        kept = ("tests.hosts.pooling server", "--connect")
        return [
            command
            for host in self._hosts.numbers
            for _, command in self._commands_on(host)
            if command and not any(text in command for text in kept)
        ]

    # ------------------------------------------------------------ what happens

    def _happen_else(self, act: Act) -> None:
        if act.kind == "scale":
            # The jobs take turns.
            running = [job for job in self._jobs if not self._has_ended(job)] or self._jobs
            self._num_scaled += 1
            job = running[self._num_scaled % len(running)]
            self._ask_until_done(f"jobs/{job.id}/resize", {"max_workers": int(act.targets[0])})
        elif act.kind == "driver":
            for pid in self._processes_of(_SERVER, "tests.hosts.pooling driver"):
                os.kill(pid, signal.SIGKILL)
        elif act.kind == "server":
            self._kill_server(act)
        else:
            host = self._host_of(act.targets[0])
            {"pool": self._kill_agent, "drain": self._drain, "leave": self._leave}[act.kind](host, act)

    def _kill_server(self, act: Act) -> None:
        def end() -> None:
            self._server_stays_away = False

        self._server_stays_away = True
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        self._end_later(act, end, "the absence of the server")

    def _kill_agent(self, host: int, _: Act) -> None:
        if host in self._agents:
            self._agents[host].kill()

    def _drain(self, host: int, act: Act) -> None:
        name = self._hosts.name(host)
        self._ask_until_done(f"nodes/{name}/drain", {"reason": "the schedule"})
        self._end_later(act, lambda: self._ask_until_done(f"nodes/{name}/resume", None), f"draining {name}")

    def _leave(self, host: int, act: Act) -> None:
        if host in self._agents and self._agents[host].poll() is None:
            self._leaving.add(host)
            self._agents[host].send_signal(signal.SIGINT)
        # The agent ends when no job uses its host any more; then it is started again.
        self._end_later(act, lambda: self._leaving.discard(host), f"the absence of {self._hosts.name(host)}")

    def _find_role(self, role: str) -> int:
        found = _SERVER
        for job in self._jobs:
            journal = job.read_journal()
            view = None if journal is None or journal.snapshot is None else journal.snapshot.current
            if view is None or not view.members or role == "driver":
                continue
            address = view.rendezvous.rpartition(":")[0] if role == "store" else view.members[0].host
            found = next((host for host in self._hosts.numbers if self._hosts.address(host) == address), found)
            break
        return found

    def _members(self) -> list[tuple[str, int]]:
        return [member for job in self._jobs for member in job.read_members()]

    # ------------------------------------------------------------ keeping it going

    def _supervise_processes(self) -> None:
        if self._can_start_on(_SERVER) and not self._server_stays_away and not _runs(self._server):
            self._note("  the server starts")
            self._server = self._popen(_SERVER, self._command_of_server(), "server.log")
        for host, token in self._joins.items():
            if self._can_start_on(host) and not _runs(self._agents.get(host)) and host not in self._leaving:
                self._note(f"  the pool agent of {self._hosts.name(host)} starts")
                (self._folder / f"token-{host}").write_text(token)
                self._agents[host] = self._popen(host, self._command_of_agent(host), f"agent-{host}.log")
        while self._asked and self._is_done(*self._asked[0]):
            del self._asked[0]

    def _command_of_server(self) -> list[str]:
        arguments = ["--home", _HOME, "--host", self._hosts.address(_SERVER), "--port", str(_PORT)]
        arguments += ["--slots", str(SLOTS_OF_HOST)]
        arguments += [word for setting in _SETTINGS for word in ("--set", setting)]
        spec = msgspec.json.encode(_SPEC).decode()
        return [sys.executable, "-m", "tests.hosts.pooling", "server", spec, str(self._reins), *arguments]

    def _command_of_agent(self, host: int) -> list[str]:
        words = ["agent", "--connect", self._url, "--name", self._hosts.name(host), "--slots", str(SLOTS_OF_HOST)]
        words += ["--home", f"{DISK}/agent", "--token-file", str(self._folder / f"token-{host}")]
        return [sys.executable, "-m", "legato.cli", *words]

    # ------------------------------------------------------------ asking the server

    def _http(self, method: str, path: str, **options: Any) -> httpx.Response:
        shown = {"Authorization": f"Bearer {self._secret}"}
        return httpx.request(method, f"{self._url}/api/v1/{path}", headers=shown, timeout=_ASK_LIMIT_S, **options)

    def _get(self, path: str) -> Any:
        """Return an answer; None while the server cannot be reached."""
        with contextlib.suppress(httpx.TransportError):
            answer = self._http("GET", path)
            return answer.json() if answer.is_success else None
        return None

    def _post(self, path: str, body: Any) -> Any:
        answer = self._http("POST", path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def _ask_until_done(self, path: str, body: Any) -> None:
        """Ask the server to change something, as soon as it can be reached."""
        self._asked.append((path, body))

    def _is_done(self, path: str, body: Any) -> bool:
        if not self._can_start_on(_SERVER) or _SERVER in self._cut | self._split:
            return False
        with contextlib.suppress(httpx.TransportError):
            answer = self._http("POST", path, **({} if body is None else {"json": body}))
            # 409: the job has ended meanwhile.
            assert answer.is_success or answer.is_server_error or answer.status_code == 409, (path, answer.text)
            return not answer.is_server_error
        return False

    # ------------------------------------------------------------ looking

    def _has_ended(self, job: _Job) -> bool:
        return self._outcome_of(job).exit_code >= 0

    def _steps_left(self) -> int:
        return max(min((job.num_steps - job.step for job in self._jobs), default=1), 1)

    def _trains(self, num_steps: int) -> Callable[[], bool]:
        before = [job.step for job in self._jobs]

        def holds() -> bool:
            return all(
                job.step >= step + num_steps or self._has_ended(job)
                for job, step in zip(self._jobs, before, strict=True)
            )

        return holds

    def _describe(self) -> str:
        return f"steps {'+'.join(str(job.step) for job in self._jobs) or '-'}"

    def tell(self) -> str:
        told = [f"{job.id}: {self._get(f'jobs/{job.id}')}" for job in self._jobs]
        told += [f"{path}: {self._get(path)}" for path in ("slots", "nodes")]
        left = [f"processes: {self._left_over()}"]
        self.close()
        for job in self._jobs:
            result = self._stage.collect(self._outcome_of(job), job.directory)
            told += [f"== {job.id}", dataclasses.replace(result, left_over=[]).story()]
            told += [_read_end(path) for path in job.directory.path.glob("*.log")]
        return "\n".join([*self.story, *told, *left, *self._read_logs(), *self._read_agents()])

    def _read_agents(self) -> list[str]:
        return [
            _read_end(path)
            for host in self._hosts.numbers
            for path in sorted(self._hosts.disk(host).rglob("agent.log"))
        ]


def _runs(process: Command | None) -> bool:
    return process is not None and process.poll() is None


def _read_end(path: Path) -> str:
    return f"-- {path}\n{path.read_text()[-6000:]}"
