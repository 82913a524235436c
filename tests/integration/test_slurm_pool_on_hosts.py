"""A server whose machines are pilots of a real Slurm on three hosts: demand, preemption, time limits, and losses."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.hosts.bed import Hosts
from tests.hosts.slurm import Slurm, why_no_slurm
from tests.integration.cluster_program import DIGEST, PROGRAM, train_alone
from tests.integration.readable import open_the_way
from tests.integration.two_users import EPOCHS, SharedCluster, share

from legato.client.client import Client
from legato.client.connection import Line
from legato.client.packing import pack_files
from legato.client.servers import Server
from legato.core.errors import LegatoError

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

LIMIT_S: Final = 240.0
PORT: Final = 8765
# A server that looks more often, so that the tests take less time.
SERVER: Final = """
import sys
from legato.clusters.slurm_pool import SlurmCluster
from legato.server import pilot_owners, pilots
SlurmCluster.observe_every_s = 1.0
pilots.ROUND_S = 1.0
pilot_owners.SETTLE_S = 5.0
pilot_owners.FIRST_PAUSE_S = 5.0
from legato.cli.main import main
sys.argv = ["legato", "server"]
main()
"""


WITHOUT: Final = """
import sys
class Finder:
    def find_spec(self, name, *_):
        if name == "{0}":
            raise ModuleNotFoundError("No module named '{0}'")
sys.meta_path.insert(0, Finder())
"""


class Pool:
    """A server with a section ``[slurm]`` on the head of a bed, and those who ask it."""

    def __init__(self, slurm: Slurm, hosts: Hosts, folder: Path, prefix: Sequence[str] = ()) -> None:
        self.slurm, self.hosts, self._prefix = slurm, hosts, prefix
        self.users: tuple[str, ...] = ("allow_jobs_as_server = true",)
        self.home = folder / "home"
        self.home.mkdir()
        self.gate = folder / "gate"
        self._url = f"http://{hosts.head}:{PORT}"
        self._process: subprocess.Popen[bytes] | None = None
        self._secret = ""

    def start(self, **changes: object) -> None:
        """Start the server, with these changes of its section."""
        section: dict[str, object] = {
            "partition": "low", "time": "2:00:00", "slots": 2, "cpus": 2, "max_agents": 2, "idle_s": 10,
            "options": ["--exclusive"], "setup": "export LEGATO_DEVICE=cpu", "url": self._url,
            "folder": str(self.home.parent), **changes,
        }  # fmt: skip
        lines = [
            f'host = "{self.hosts.head}"', f"port = {PORT}", "slots = 0", *self.users,
            "allow_plain_agents = true", "stability_s = 0.5", "cooldown_factor = 0", "loop_interval_s = 0.5",
            'measured_speed_s = "none"', "[slurm]",
        ]  # fmt: skip
        lines += [f"{name} = {json.dumps(value)}" for name, value in section.items()]
        (self.home / "legato.toml").write_text("\n".join(lines))
        with (self.home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._prefix, sys.executable, "-c", SERVER], env=self.slurm.environment, stdout=log, stderr=log
            )
        login = self.home / "first-login.txt"
        self.wait(lambda: login.exists() and "lgt_" in login.read_text(), "the server has begun")
        self._secret = next(line.strip() for line in login.read_text().splitlines() if "lgt_" in line)
        self.wait(lambda: self.get("nodes") is not None, "the server answers")

    @property
    def login(self) -> dict[str, str]:
        """Variables with which commands use the server as its administrator."""
        return {"LEGATO_SERVER": self._url, "LEGATO_TOKEN": self._secret}

    def kill(self) -> None:
        """Crash the server."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def ask(self, method: str, path: str, **given: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._secret}"}
        return httpx.request(method, f"{self._url}/api/v1/{path}", headers=headers, timeout=10, **given)

    def get(self, path: str) -> Any:
        with contextlib.suppress(httpx.HTTPError):
            answer = self.ask("GET", path)
            return answer.json() if answer.status_code == 200 else None
        return None

    def submit(self, name: str = "train", sleep_s: float = 0.25, epochs: int = 8, max_workers: int = 4) -> str:
        packed = pack_files({"train.py": PROGRAM.encode()})
        self.ask("PUT", f"code/{packed.sha256}", content=packed.content).raise_for_status()
        body = {
            "name": name, "program": ["train.py", str(sleep_s), str(epochs), str(self.gate)], "code": packed.sha256,
            "min_workers": 1, "max_workers": max_workers, "heartbeat_limit_s": 3.0,
        }  # fmt: skip
        answer = self.ask("POST", "jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def make_python(self, without: str) -> str:
        """Return a Python that is this one, without a module."""
        file = self.home.parent / "python"
        folder = self.home.parent / "without"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(WITHOUT.format(without))
        file.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
        file.chmod(0o755)
        return str(file)

    def job(self, job: str) -> Any:
        return self.get(f"jobs/{job}") or {}

    def num_workers(self, job: str) -> int:
        return ((self.job(job).get("progress") or {}).get("num_workers")) or 0

    def step(self, job: str) -> int:
        return ((self.job(job).get("progress") or {}).get("step")) or 0

    def explain(self, job: str) -> str:
        return " ".join((self.get(f"jobs/{job}/explain") or {}).get("sentences", ()))

    def pilots(self) -> dict[str, Any]:
        """Node → pilot, as the server shows them."""
        found = self.get("clusters")
        return {one["node"]: one for one in found["items"][0]["pilots"]} if found and found["items"] else {}

    def trouble(self) -> str:
        """Return why the cluster gives no machines, as the server shows it."""
        found = (self.get("clusters") or {"items": ()})["items"]
        return str(found[0]["trouble"] or "") if found else "no cluster"

    def nodes(self) -> dict[str, Any]:
        found = (self.get("nodes") or {"items": ()})["items"]
        return {one["name"]: one for one in found if one["name"].startswith("slurm-")}

    def queue(self) -> list[str]:
        """Number and state of each pilot, as Slurm shows them."""
        return self.slurm.run("squeue", "--noheader", "--format=%i %T %r %j").splitlines()

    def outputs(self) -> dict[str, str]:
        """Return what each pilot has written, by node."""
        return {file.stem: file.read_text() for file in (self.home / "pilots").glob("*.log")}

    def digest(self, job: str) -> str:
        logs = (self.home / "jobs" / job / "logs").glob("worker-*.log*")
        (found,) = {each for log in logs for each in DIGEST.findall(log.read_text(errors="replace"))}
        return str(found)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {LIMIT_S:g} s: {what}\n{self.describe()}"
            time.sleep(0.2)

    def describe(self) -> str:
        """Return what there is, for a test that has failed."""
        log = (self.home / "server.log").read_text()[-6000:]
        outputs = [f"{name}: {told[-1500:]}" for name, told in self.outputs().items()]
        queue: Any = ""
        with contextlib.suppress(subprocess.SubprocessError):
            queue = self.queue()
        shown = [self.get(path) for path in ("jobs", "nodes", "clusters")]
        return "\n".join((log, *outputs, str(queue), json.dumps(shown)[-4000:], self.slurm.logs()[-4000:]))

    def wait_for_end(self, job: str) -> None:
        """Wait for the end of a job, which does not wait in its steps any more."""
        self.gate.touch()
        self.wait(lambda: self.job(job).get("stage") in ("succeeded", "failed", "stopped"), "the job ends")
        assert self.job(job)["stage"] == "succeeded", self.describe()


@contextlib.contextmanager
def open_pool(hosts: Hosts, prefix: Sequence[str] = ()) -> Iterator[Pool]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as folder:
        environment = {"LEGATO_HOME": f"{folder}/home", "LEGATO_DEVICE": "cpu"}
        slurm = Slurm(hosts, Path(folder), environment, prefix=prefix)
        made = Pool(slurm, hosts, Path(folder), prefix)
        try:
            slurm.start()
            yield made
        finally:
            made.stop()
            slurm.stop()


@pytest.fixture
def pool(hosts: Hosts) -> Iterator[Pool]:
    with open_pool(hosts) as opened:
        yield opened


Alone = Callable[[int], str]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """Return the SHA-256 of an undisturbed run of so many epochs on this machine."""
    return lambda num_epochs: train_alone(tmp_path_factory.mktemp("alone"), num_epochs)


def test_demand_brings_pilots_and_idle_ones_are_given_back(pool: Pool, alone: Alone) -> None:
    pool.start()
    assert pool.queue() == []
    job = pool.submit(sleep_s=1.0)
    pool.wait(lambda: "2 machines of Slurm are on their way" in pool.explain(job), "the reason says what comes")
    pool.wait(lambda: pool.num_workers(job) == 4, "the job trains on two pilots")
    assert "on their way" not in pool.explain(job)
    assert set(pool.nodes()) == {"slurm-1", "slurm-2"}
    assert all(one["labels"] == {"legato.cluster": "slurm"} for one in pool.nodes().values())
    # No secret is on a command line or in the environment of a job.
    for number in (line.split()[0] for line in pool.queue()):
        assert "lgj_" not in pool.slurm.run("scontrol", "show", "job", number)
    # The signal before the time limit reaches the agent, which leaves by itself.
    first = pool.pilots()["slurm-1"]["id"]
    pool.slurm.run("scancel", "--signal=USR1", "--batch", first)
    pool.wait(lambda: "(SIGUSR1)" in pool.outputs()["slurm-1"], "the agent has the signal")
    pool.wait(lambda: pool.slurm.state_of(first) == "COMPLETED", "its pilot has ended by itself")
    pool.wait_for_end(job)
    assert pool.job(job)["attempt"] == 1
    pool.wait(lambda: pool.queue() == [], "Slurm has its nodes back")
    pool.wait(lambda: pool.nodes() == {}, "the server has forgotten the machines")
    assert pool.digest(job) == alone(8)


class Shared(SharedCluster):
    """The pool, for two users."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.home, self.gate = pool.home, pool.gate

    def server(self) -> Server:
        return Server(url=self._pool.login["LEGATO_SERVER"], token=self._pool.login["LEGATO_TOKEN"])

    def wait(self, condition: Callable[[], object], what: str) -> None:
        self._pool.wait(condition, what)

    def kill(self, node: str, pid: int) -> None:
        self._pool.hosts.run_on(self._host_of(node), "kill", "-9", str(pid))

    def preempt(self) -> None:
        slurm = self._pool.slurm
        high = slurm.submit("--partition=high", "--nodes=2", "--exclusive", script="sleep 2")
        self.wait(lambda: any("(SIGTERM)" in told for told in self._pool.outputs().values()), "pilots are preempted")
        (job, *_) = self._pool.get("jobs?stage=queued&stage=running")["items"]
        self.wait(lambda: "in the queue of Slurm: " in self._pool.explain(job["id"]), "legato explain has Slurm's word")
        self.wait(lambda: slurm.state_of(high) == "COMPLETED", "the other job has ended")

    def crash(self, node: str) -> None:
        self._pool.hosts.crash(self._host_of(node))

    def _host_of(self, node: str) -> int:
        places = self._pool.slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%N %j").split("\n")
        name = next(place.split()[0] for place in places if place.endswith(f".{node}"))
        return next(host for host in self._pool.hosts.numbers if self._pool.hosts.name(host) == name)


@pytest.mark.every_share
def test_two_users_share_four_slots_and_lose_no_step_whatever_happens_to_machines(pool: Pool, alone: Alone) -> None:
    pool.start()
    share(Shared(pool), alone(EPOCHS))


def test_a_refused_pilot_a_crash_a_controller_that_is_away_and_a_time_limit(pool: Pool, alone: Alone) -> None:
    pool.start(partition="none")
    job = pool.submit(sleep_s=2.0)
    pool.wait(lambda: "refuses new machines: Invalid partition name" in pool.explain(job), "the refusal is shown")
    pool.stop()
    pool.start()
    pool.wait(lambda: pool.num_workers(job) == 4, "the job trains on two pilots")
    before = set(pool.queue())
    pool.kill()
    pool.slurm.stop_controller()
    pool.start()
    pool.wait(lambda: "Nothing changes until it answers" in pool.trouble(), "the outage is shown")
    step = pool.step(job)
    pool.wait(lambda: pool.step(job) > step + 1, "the job trains on")
    assert pool.num_workers(job) == 4
    pool.slurm.start_controller()
    pool.wait(lambda: pool.trouble() == "" and len(pool.pilots()) == 2, "Slurm answers again")
    assert set(pool.queue()) == before
    # The time limit of one pilot is near: another one comes first, then jobs leave the old one.
    first = pool.pilots()["slurm-1"]["id"]
    pool.slurm.shorten(first, 240)
    pool.wait(lambda: "slurm-3" in pool.nodes(), "a third pilot has joined")
    assert pool.num_workers(job) == 4
    pool.wait(lambda: "slurm-1" not in pool.nodes(), "the old pilot has left")
    assert pool.slurm.state_of(first) == "COMPLETED"
    pool.wait_for_end(job)
    assert pool.job(job)["attempt"] == 1
    assert pool.digest(job) == alone(8)


def test_a_test_of_the_cluster_trains_on_one_machine_and_says_what_is_wrong(pool: Pool) -> None:
    pool.start()
    found = run_test(pool)
    assert (found["state"], found["is_clean"]) == ("passed", True), found["told"]
    assert "and 2 workers trained 10 steps there." in found["told"]
    assert pool.queue() == []
    assert pool.nodes() == {}
    # Idle machines of the pool are all that holds the nodes.
    pool.stop()
    pool.start(min_agents=2, max_agents=4)
    pool.wait(lambda: len(pool.nodes()) == 2, "idle machines hold both nodes")
    found = run_test(pool)
    assert (found["state"], found["is_clean"]) == ("passed", True), found["told"]
    pool.wait(lambda: set(pool.nodes()) == {"slurm-1", "slurm-2"}, "the pool has two machines again")
    pool.stop()
    pool.start()
    pool.wait(lambda: pool.queue() == [], "Slurm has its nodes back")
    # Ctrl-C gives the machine back, too.
    watched = begin_test(pool)
    pool.wait(lambda: "slurm-test" in pool.pilots(), "the machine is asked for")
    watched.send_signal(signal.SIGINT)
    watched.communicate(timeout=LIMIT_S)
    assert watched.returncode == 130
    pool.wait(lambda: pool.queue() == [] and "slurm-test" not in pool.pilots(), "Slurm has its node back")
    pool.wait(lambda: pool.get("clusters")["items"][0]["test"]["is_clean"], "the server has noted it")
    for changes, told in (
        ({"partition": "none"}, "Slurm refuses a machine: Invalid partition name specified; correct account"),
        ({"python": "/none/python"}, "No such file or directory; install Legato on a disk that the machines see"),
        ({"python": pool.make_python("torch")}, "install torch in the Python of the machines"),
        ({"url": f"http://{pool.hosts.head}:9"}, "let the machines reach the server's port"),
    ):
        pool.stop()
        pool.start(**changes)
        found = run_test(pool)
        assert (found["state"], found["is_clean"]) == ("failed", True), found["told"]
        assert told in found["told"]
        assert pool.queue() == []


def begin_test(pool: Pool) -> subprocess.Popen[str]:
    pool.wait(lambda: pool.trouble() == "", "the server has seen the cluster")
    # A shell lets its background programs ignore Ctrl-C, and they their children.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "legato.cli"]
    command += ["clusters", "test", "slurm", "-o", "json"]
    environment = {**pool.slurm.environment, **pool.login}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_test(pool: Pool) -> Any:
    told, errors = begin_test(pool).communicate(timeout=LIMIT_S)
    assert told, f"{errors}\n{pool.describe()}"
    return json.loads(told)


SYSTEM_USERS: Final = {"anna": "daemon", "ben": "games"}


@pytest.mark.skipif(os.geteuid() != 0, reason="PILOTS OF SEVERAL USERS ARE NOT TESTED: run the tests as root")
def test_each_user_has_pilots_of_their_own_also_after_a_restart_of_the_server(hosts: Hosts, alone: Alone) -> None:
    with open_pool(hosts, open_the_way()) as pool:
        folder = pool.home.parent
        folder.chmod(0o755)
        disk = folder / "disk"
        disk.mkdir()
        disk.chmod(0o1777)
        pairs = ", ".join(f'"{user}={system}"' for user, system in SYSTEM_USERS.items())
        pool.users = ('run_jobs_as = "submitter"', f"job_users = [{pairs}]")
        pool.start(folder=str(disk), max_agents=3, max_agents_per_user=1)
        program = folder / "program"
        program.mkdir()
        (program / "train.py").write_text(PROGRAM)
        with contextlib.ExitStack() as stack:
            jobs = {name: submit_as(name, pool, program, stack) for name in SYSTEM_USERS}
            with pytest.raises(LegatoError, match="has no system user 'carol'"):
                submit_as("carol", pool, program, stack)
        pool.wait(lambda: all(pool.num_workers(job) == 2 for job in jobs.values()), "both jobs train")
        before = list_owned(pool)
        names = {name.rpartition(".")[2]: user for user, name, _ in before}
        assert names == {"slurm-anna-1": "daemon", "slurm-ben-1": "games"}
        assert {name: node["labels"]["legato.owner"] for name, node in pool.nodes().items()} == {
            "slurm-anna-1": "anna",
            "slurm-ben-1": "ben",
        }
        assert find_users_of_workers(jobs.values()) == set(SYSTEM_USERS.values())
        told = run_test(pool)["told"]
        assert "Legato cannot ask Slurm for a machine: the server's machine has no system user 'admin'" in told
        for name, system in SYSTEM_USERS.items():
            about = (pool.home / "user-pilots" / str(pwd.getpwnam(system).pw_uid)).stat()
            assert (about.st_uid, about.st_mode & 0o777) == (pwd.getpwnam(system).pw_uid, 0o700), name
        # A job of one user with the name of a pilot of another one is no pilot, and is ended as its own user.
        fake = next(name for _, name, _ in before if name.endswith("anna-1"))
        other = ["setpriv", "--reuid=games", "--regid=games", "--clear-groups"]
        script = folder / "fake.sh"
        script.write_text("#!/bin/sh\nsleep 600\n")
        command = [*other, "sbatch", "--parsable", f"--job-name={fake}", "--output=/dev/null", "--chdir=/", str(script)]
        number = pool.slurm.run(*command).strip()
        pool.kill()
        steps = {job: pool.step(job) for job in jobs.values()}
        pool.start(folder=str(disk), max_agents=3, max_agents_per_user=1)
        pool.wait(lambda: all(pool.step(job) > steps[job] for job in steps), "both train on")
        pool.wait(lambda: pool.slurm.state_of(number) == "CANCELLED", "the job with a false name has ended")
        assert [one for one in list_owned(pool) if one[2] != number] == before
        assert {node: pilot["owner"] for node, pilot in pool.pilots().items()} == {
            "slurm-anna-1": "anna",
            "slurm-ben-1": "ben",
        }
        want = alone(8)
        for job in jobs.values():
            pool.wait_for_end(job)
            assert (pool.job(job)["attempt"], pool.digest(job)) == (1, want)
        pool.wait(lambda: pool.queue() == [], "Slurm has its nodes back")


def submit_as(name: str, pool: Pool, program: Path, stack: contextlib.ExitStack) -> str:
    """Submit a job as a new user; returns its id."""

    def connect(token: str) -> Client:
        line = Line(Server(url=pool.login["LEGATO_SERVER"], token=token))
        return stack.enter_context(contextlib.closing(Client.on(line)))

    admin = connect(pool.login["LEGATO_TOKEN"])
    admin.add_user(name)
    user = connect(admin.add_token("test", user=name, role="user").secret)
    arguments = ("0.5", "8", str(pool.gate))
    return user.submit(program / "train.py", *arguments, name=f"of-{name}", min_workers=1, max_workers=2).id


def list_owned(pool: Pool) -> list[tuple[str, str, str]]:
    """Return system user, name and number of each job, as Slurm shows them."""
    lines = pool.slurm.run("squeue", "--noheader", "--format=%u|%j|%i").splitlines()
    return sorted((user, name, number) for user, name, number in (line.split("|") for line in lines))


def find_users_of_workers(jobs: Iterable[str]) -> set[str]:
    """Return the system users as whom the workers of jobs run on this machine, whose hosts are namespaces."""
    found, marks = set(), [job.encode() for job in jobs]
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError, KeyError):
            if (process / "comm").read_text().startswith("legato-w") and any(
                mark in (process / "environ").read_bytes() for mark in marks
            ):
                found.add(pwd.getpwuid(process.stat().st_uid).pw_name)
    return found
