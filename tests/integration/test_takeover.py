"""Servers on two hosts with one PostgreSQL and one home: what happens to one of them is no loss of a job.

A job trains on both hosts and on a third one, which has an agent. The host of the server that leads crashes, or is cut
off: the other server takes the job over, with the workers that still train. The result stays that of an undisturbed
run, and each step is recorded once.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import fork_server
from tests.contract.store.servers import find_programs, run_postgres
from tests.hosts.bed import DISK, Command, Hosts
from tests.integration.serving import LIMIT_S, ROOT, Asker, Server, servers_of, wait_until
from tests.integration.test_pool_agents import check_done, driver_of, nodes_of, num_workers, submit

from legato.control.settings import Settings
from legato.driver.journal import JobDirectory
from legato.server.serving import upgrade_store

PROGRAM = ROOT / "tests/integration/programs/slow.py"
EPOCHS = 60
MICRO_BATCH_SIZE = 1  # a third worker makes the job faster
PORT = 8765


class Servers:
    """Servers on the first two hosts, and an agent on the third one."""

    def __init__(self, hosts: Hosts, home: Path, database_url: str, made: list[Server]) -> None:
        self.hosts, self.home, self._database_url, self._made = hosts, home, database_url, made
        self._secret: str | None = None
        self._agents: list[Command] = []

    def start(self, host: int, **settings: Any) -> Server:
        """Start the server of a host."""
        hosts = self.hosts
        server = Server(
            self.home,
            prefix=hosts.command_on(host, []),
            forks=False,
            **{
                "database_url": self._database_url,
                "host": "0.0.0.0",
                "port": PORT,
                "allowed_hosts": [hosts.address(host), "localhost"],
                "allow_jobs_as_server": True,
                "allow_plain_agents": True,
                "network": hosts.address(host).rpartition(".")[0] + ".0/24",
                "slots": 1,
                "lease_s": 4,
                "loop_interval_s": 0.2,
                "stability_s": 0.2,
                "cooldown_factor": 0,
                **settings,
            },
        )
        self._made.append(server)
        server.start()
        server.url = self.url(host)
        self._secret = self._secret or server.secret
        return server

    def upgrade(self) -> None:
        """Bring the tables of the database to this release, as before its first server starts."""
        upgrade_store(Settings(database_url=self._database_url))

    def url(self, host: int) -> str:
        return f"http://{self.hosts.address(host)}:{PORT}"

    def ask(self, server: Server) -> Asker:
        return Asker(server, self._secret)

    def start_agent(self, ask: Asker, host: int) -> None:
        """Let a host join with an agent, which knows both servers."""
        token = ask.post("join-tokens", {}, 201)["secret"]
        words = ["agent", "--connect", f"{self.url(1)},{self.url(2)}", "--slots", "1", "--home", f"{DISK}/home"]
        command = [sys.executable, "-m", "legato.cli", *words, "--token-file", "-"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        with (self.home.parent / "agent.log").open("ab") as log:
            agent = self.hosts.popen(host, command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
        self._agents.append(agent)
        assert agent.stdin is not None
        with agent.stdin as given:
            given.write(token.encode())

    def end(self) -> None:
        """End all that runs on the hosts, and show what a failed test needs."""
        for host in self.hosts.numbers:
            self.hosts.crash(host)
        for server in self._made:
            if not server.is_running:
                server.stop()
        for agent in self._agents:
            agent.wait()
        files = [self.home.parent / "server.log", self.home.parent / "agent.log"]
        for file in [*files, *self.home.glob("jobs/*/driver.log"), *self.home.glob("jobs/*/events.jsonl")]:
            print(f"-- {file}\n{file.read_text()[-6000:] if file.exists() else ''}")


@pytest.fixture
def servers(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(servers_of(tmp_path / "home", monkeypatch))
        url = stack.enter_context(run_postgres(programs, hosts.head)).format("postgres")
        servers = Servers(hosts, tmp_path / "home", url, made)
        servers.upgrade()
        stack.callback(servers.end)
        yield servers


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program computes without anything of a platform."""
    file = tmp_path_factory.mktemp("alone") / "result"
    environment = {**os.environ, "LEGATO_SEED": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(PROGRAM), str(EPOCHS), str(file), "0", "/none", str(MICRO_BATCH_SIZE)]
    done = fork_server.run(command, env=environment)
    assert done.returncode == 0, done.stderr
    return file.read_text()


def make_program(tmp_path: Path, step_s: float = 0.1) -> list[str]:
    slow = str(tmp_path / "slow")
    return ["train.py", str(EPOCHS), str(tmp_path / "result"), str(step_s), slow, str(MICRO_BATCH_SIZE)]


def driver_node(servers: Servers, job: str) -> str:
    """Return on which machine the job's driver was started last."""
    return str(json.loads((servers.home / "jobs" / job / "driver-process.json").read_bytes())["node"])


def pause(servers: Servers, server: Server, number: int) -> None:
    """Send a signal to the server's process on its host; the processes of jobs do not get it."""
    for process in servers.hosts.pids(1):
        with contextlib.suppress(OSError):
            if b"serving import serve" in Path(f"/proc/{process}/cmdline").read_bytes():
                os.kill(process, number)


def leads(server: Server) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return "leading" in httpx.get(f"{server.url}/readyz", timeout=LIMIT_S).text
    return False


def begin(servers: Servers, tmp_path: Path, step_s: float = 0.1) -> tuple[Server, Server, Asker, str]:
    """Start both servers and a job that trains on all three hosts. Return a user who asks the second server."""
    first = servers.start(1)
    wait_until(lambda: leads(first), "the first server does not lead")
    second = servers.start(2)
    ask = servers.ask(second)
    servers.start_agent(ask, 3)
    ask.wait("slots", lambda found: sum(slot["is_free"] for slot in found["items"]) == 3)
    job = submit(ask, tmp_path, 3, program=make_program(tmp_path, step_s))
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 3 and step_of(found) > 2)
    assert nodes_of(ask, job) == {"h1", "h2", "h3"}
    return first, second, ask, job


def show_ps(servers: Servers, host: int) -> str:
    """Return what ``legato ps`` writes on a host, whose home says where its server is and who logs in."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "LEGATO_HOME": str(servers.home), "COLUMNS": "1000"}
    return servers.hosts.run_on(host, sys.executable, "-m", "legato.cli", "ps", env=environment)


def events_of(servers: Servers, job: str, kind: str, *, after: str | None = None) -> list[str]:
    """Return the reasons of the job's events of a kind; with ``after``: of those after the first one of that kind."""
    events = [json.loads(line) for line in (servers.home / "jobs" / job / "events.jsonl").read_text().splitlines()]
    if after is not None:
        events = events[[event["kind"] for event in events].index(after) :]
    return [event["reason"] for event in events if event["kind"] == kind]


def step_of(job: Any) -> int:
    return (job["progress"] or {}).get("step") or 0


def trains_on(ask: Asker, job: str, *, workers: int = 3) -> None:
    """Wait until the job has trained further than now, with so many workers."""
    step = step_of(ask.wait(f"jobs/{job}", lambda found: step_of(found) > 0))
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == workers and step_of(found) > step + 2)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_another_machine_takes_over_all_workers_of_a_server_that_hangs_and_gives_them_back_when_it_stops(
    servers: Servers, tmp_path: Path, weights: str
) -> None:
    first, second, ask, job = begin(servers, tmp_path)
    drivers = driver_node(servers, job)
    assert drivers == "h1"
    # The driver on its machine lives, and has all workers: it finds that it does not lead any more.
    pause(servers, first, signal.SIGSTOP)
    wait_until(lambda: leads(second), "no server takes over")
    wait_until(lambda: driver_node(servers, job) == "h2", "no driver is started")
    wait_until(lambda: events_of(servers, job, "adopted") != [], "no driver takes over")
    trains_on(ask, job)
    assert "another driver has taken over" in (servers.home / "jobs" / job / "driver.log").read_text().lower()
    pause(servers, first, signal.SIGCONT)
    ask_first = servers.ask(first)
    assert not leads(first)
    assert second.stop() == 0
    wait_until(lambda: driver_node(servers, job) == "h1", "the first server does not take over")
    trains_on(ask_first, job)
    assert events_of(servers, job, "fenced") == events_of(servers, job, "lost") == [], "no worker was lost"
    check_done(ask_first, servers.home, tmp_path, job, weights, epochs=EPOCHS)
    assert [one["attempt"] for one in ask_first.get(f"jobs/{job}/attempts")["items"]] == [1]


@pytest.mark.timeout(600)
@pytest.mark.soak
@pytest.mark.parametrize("outage", ["crash", "cut"])
def test_another_machine_takes_over_when_that_of_the_leading_server_crashes_or_is_cut_off(
    servers: Servers, tmp_path: Path, weights: str, outage: str
) -> None:
    first, second, ask, job = begin(servers, tmp_path, step_s=0.5)
    for host in (1, 2):
        assert job in show_ps(servers, host)
    began = time.monotonic()
    if outage == "crash":
        servers.hosts.crash(1)
    else:
        servers.hosts.cut(1)
    wait_until(lambda: leads(second), "no server takes over")
    print(f"the second server leads after {time.monotonic() - began:.1f} s")
    # If the driver of the machine that is cut off has gone on with the worker there, the job waits for that one.
    wait_until(lambda: events_of(servers, job, "adopted") + events_of(servers, job, "held") != [], "no driver begins")
    print(f"the next driver leads after {time.monotonic() - began:.1f} s")
    assert driver_node(servers, job) == "h2"
    if outage == "crash" or not events_of(servers, job, "held"):
        trains_on(ask, job, workers=2)
        # The driver that is cut off may have given up the worker of another host in its last moment.
        fenced = events_of(servers, job, "fenced", after="adopted")
        assert len(fenced) == 1 and "node h1 is lost" in fenced[0]
    if outage == "crash":
        servers.hosts.boot(1)
        first = servers.start(1)
    else:
        servers.hosts.heal(1)
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 3, limit_s=180)
    assert nodes_of(ask, job) == {"h1", "h2", "h3"}
    assert leads(second) and not leads(first)
    for host in (1, 2):
        assert job in show_ps(servers, host)
    check_done(ask, servers.home, tmp_path, job, weights, epochs=EPOCHS)
    assert [one["attempt"] for one in ask.get(f"jobs/{job}/attempts")["items"]] == [1]


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_workers_train_on_without_a_server_and_a_driver_for_the_limit_and_then_save(
    servers: Servers, tmp_path: Path, weights: str
) -> None:
    ask = servers.ask(servers.start(1))
    for host in (2, 3):
        servers.start_agent(ask, host)
    ask.wait("slots", lambda found: sum(slot["is_free"] for slot in found["items"]) == 3)
    assert ask.http.post("nodes/h1/drain", json={"reason": "only the server is there"}).status_code == 204
    ask.wait("slots", lambda found: sum(slot["is_free"] for slot in found["items"]) == 2)
    job = submit(ask, tmp_path, 2, program=make_program(tmp_path, step_s=0.3))
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2 and step_of(found) > 2)

    step = step_of(ask.get(f"jobs/{job}"))
    servers.hosts.crash(1)
    saved = servers.home / "jobs" / job / "checkpoints"
    wait_until(lambda: any(saved.glob("step-*.legato")), "the workers save no checkpoint", limit_s=120)
    (file,) = saved.glob("step-*.legato")
    last = int(file.stem.partition("-")[2])
    assert last > step + 50, "they have trained on until then"
    losses = [json.loads(line) for line in (servers.home / "jobs" / job / "losses.jsonl").read_text().splitlines()]
    recorded = max(max(each["step"]) for each in losses)
    servers.hosts.boot(1)
    ask = servers.ask(servers.start(1))
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2, limit_s=120)
    # The checkpoint has the loss of its own step, so the next driver records that.
    check_done(ask, servers.home, tmp_path, job, weights, epochs=EPOCHS, unrecorded=range(recorded + 1, last))
    assert [one["attempt"] for one in ask.get(f"jobs/{job}/attempts")["items"]] == [1]


@pytest.mark.timeout(600)
@pytest.mark.soak
def test_a_server_that_is_replaced_while_a_job_trains_on_agents_disturbs_no_process_of_the_job(
    servers: Servers, tmp_path: Path, weights: str
) -> None:
    first = servers.start(1)
    ask = servers.ask(first)
    for host in (2, 3):
        servers.start_agent(ask, host)
    ask.wait("slots", lambda found: sum(slot["is_free"] for slot in found["items"]) == 3)
    job = submit(ask, tmp_path, 3, program=make_program(tmp_path))
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 3 and step_of(found) > 2)
    before = {host: set(servers.hosts.pids(host)) for host in (2, 3)}
    driver = driver_of(servers.home, job)
    assert first.stop() == 0
    servers.upgrade()
    directory = JobDirectory(servers.home / "jobs" / job)

    def find_step() -> int:
        last = directory.read_last_committed()
        return 0 if last is None else last.step

    step = find_step()
    wait_until(lambda: find_step() > step + 5, "nothing trains without a server")
    ask = servers.ask(servers.start(1))
    trains_on(ask, job)
    assert driver_of(servers.home, job) == driver, "the driver leads on"
    assert all(pids <= set(servers.hosts.pids(host)) for host, pids in before.items()), "agents and workers run on"
    assert ask.http.post("nodes/h3/drain", json={"reason": "the new server decides"}).status_code == 204
    trains_on(ask, job, workers=2)
    assert ask.http.post("nodes/h3/resume").status_code == 204
    trains_on(ask, job)
    assert job in show_ps(servers, 1)
    assert events_of(servers, job, "fenced") == events_of(servers, job, "lost") == [], "no worker was lost"
    check_done(ask, servers.home, tmp_path, job, weights, epochs=EPOCHS)
    assert [one["attempt"] for one in ask.get(f"jobs/{job}/attempts")["items"]] == [1]
