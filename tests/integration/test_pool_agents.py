"""A server with machines that have agents: jobs train on all of them, and notice nothing when one comes or goes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server
from tests.integration.serving import LIMIT_S, ROOT, Asker, Server, pids_of, servers_of, wait_until
from tests.ports import find_port

from legato.client.packing import pack

PROGRAM = ROOT / "tests/integration/programs/slow.py"
EPOCHS, WAIT_S = 48, 0.25
SETTINGS = {"slots": 1, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}


class Machine:
    """A machine of the pool: its agent as a process, with a home of its own, and for root with a disk of its own.

    Args:
        home: for its files.
        name: in the pool.
        num_slots: of the CPU.
        prefix: of its command.
        words: further arguments of its command.
    """

    def __init__(
        self, home: Path, name: str, num_slots: int, prefix: Sequence[str] = (), words: Sequence[str] = ()
    ) -> None:
        self.home, self.name, self._num_slots = home, name, num_slots
        self._prefix, self._words = prefix, words
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, server: Server, token: str | None = None, without: Path | None = None) -> None:
        """Start the agent; with a token, it joins the pool. ``without``: a folder that this machine does not have."""
        self.home.mkdir(exist_ok=True)
        words = ["agent", "--connect", server.url, "--name", self.name, "--slots", str(self._num_slots)]
        words += ["--home", str(self.home), *self._words]
        hidden: list[str] = []
        if os.geteuid() == 0:
            # A disk of its own: it sees nothing of the server's home.
            hide = f'mount -t tmpfs none "{server.home}" && exec "$@"'
            if without is not None:
                hide = f'mount -t tmpfs none "{without.parent}" && {hide}'
            hidden = ["unshare", "--mount", "sh", "-c", hide, "sh"]
        if token is not None:
            (self.home / "token").write_text(token)
            words += ["--token-file", str(self.home / "token")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        command = [*self._prefix, sys.executable, "-m", "legato.cli", *words]
        if not self._prefix:  # nothing else, such as another user, is to begin before it
            fork_server.prepare_parents(by_agents=True)
            command = fork_server.command_of("legato.cli", *words, starts_agents=True)
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*hidden, *command],
                stdout=log,
                stderr=log,
                env=environment,
            )

    def show(self, folder: Path) -> None:
        """Give the machine the folder that it did not have."""
        assert self._process is not None
        subprocess.run(["nsenter", "-t", str(self._process.pid), "-m", "umount", folder.parent], check=True)

    def log(self) -> str:
        return (self.home / "log").read_text()

    def stop(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(LIMIT_S)

    def pids(self) -> set[int]:
        """The processes of this machine's jobs: agents, warm parents, workers."""
        mark = f"{self.home}/agents/".encode()
        found = set()
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (process / "cmdline").read_bytes():
                    found.add(int(process.name))
        return found

    def crash(self) -> None:
        """Kill all processes of the machine at once."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Server, Callable[[str, int], Machine]]]:
    machines: list[Machine] = []
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", **SETTINGS, port=find_port()))

        def new(name: str, num_slots: int) -> Machine:
            machines.append(Machine(tmp_path / name, name, num_slots))
            return machines[-1]

        try:
            yield made[0], new
        finally:
            for machine in machines:
                machine.crash()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program computes without anything of a platform."""
    file = tmp_path_factory.mktemp("alone") / "result"
    environment = {**os.environ, "LEGATO_SEED": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")}
    done = fork_server.run([sys.executable, str(PROGRAM), str(EPOCHS), str(file)], env=environment)
    assert done.returncode == 0, done.stderr
    return file.read_text()


def join(ask: Asker, server: Server, machine: Machine, without: Path | None = None) -> None:
    """Let a machine join the pool, and wait until its slots can be used."""
    machine.start(server, ask.post("join-tokens", {}, 201)["secret"], without)
    ask.wait("slots", lambda found: any(slot["node"] == machine.name and slot["is_free"] for slot in found["items"]))


def submit(ask: Asker, tmp_path: Path, num_workers: int, wait_s: float = WAIT_S, **more: Any) -> str:
    """Upload the program and submit it; it is slow until the file ``slow`` is gone."""
    (tmp_path / "slow").touch()
    folder = tmp_path / "code"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_bytes(PROGRAM.read_bytes())
    packed = pack(folder)
    assert ask.http.put(f"code/{packed.sha256}", content=packed.content).status_code in (200, 201)
    program = ["train.py", str(EPOCHS), str(tmp_path / "result"), str(wait_s), str(tmp_path / "slow")]
    body = {"name": "mnist", "program": program, "code": packed.sha256, "max_workers": num_workers, "seed": 3}
    made: str = ask.post("jobs", body | more, 201)["id"]
    return made


def num_workers(job: Any) -> int:
    return (job["progress"] or {}).get("num_workers") or 0


def nodes_of(ask: Asker, job: str) -> set[str]:
    held = ask.get(f"jobs/{job}/allocations")["items"]
    return {one["slot"].rpartition("/")[0] for one in held if one["until"] is None}


def driver_of(home: Path, job: str) -> int | None:
    with contextlib.suppress(OSError):
        return int(json.loads((home / "jobs" / job / "driver.json").read_bytes())["pid"])
    return None


def state_of(ask: Asker, node: str) -> str | None:
    found = {each["name"]: each for each in ask.get("nodes")["items"]}
    return None if node not in found or found[node]["agent"] is None else found[node]["agent"]["state"]


def check_done(
    ask: Asker,
    home: Path,
    tmp_path: Path,
    job: str,
    weights: str,
    *,
    epochs: int = EPOCHS,
    unrecorded: Collection[int] = (),
) -> None:
    """Let a job come to its end, and check it. ``unrecorded``: the steps that no driver received."""
    (tmp_path / "slow").unlink(missing_ok=True)
    ended = ask.wait(f"jobs/{job}", lambda found: found["ended_at"] is not None, limit_s=150)
    assert (ended["stage"], ended["exit_code"], ended["num_retries"]) == ("succeeded", 0, 0), ended
    assert (tmp_path / "result").read_text() == weights
    (loss,) = ask.get(f"jobs/{job}/metrics")["series"]
    assert loss["step"] == [step for step in range(1, epochs * 8 + 1) if step not in unrecorded], "each step once"
    wait_until(lambda: pids_of(home) == set(), "processes are left over")


@pytest.mark.timeout(300)
def test_a_job_grows_onto_machines_that_join_and_shrinks_off_one_that_is_drained(
    pool: tuple[Server, Callable[[str, int], Machine]], tmp_path: Path, weights: str
) -> None:
    server, new = pool
    server.start()
    ask = Asker(server)
    b, c = new("b", 1), new("c", 2)
    join(ask, server, b)
    job = submit(ask, tmp_path, 4)
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2)
    assert len(nodes_of(ask, job)) == 2
    join(ask, server, c)
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 4)
    assert {"b", "c"} < nodes_of(ask, job)

    assert ask.http.post("nodes/b/drain", json={"reason": "a new disk"}).status_code == 204
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) in (2, 3))
    wait_until(lambda: "b" not in nodes_of(ask, job), "the job keeps a drained machine")
    (slot,) = [slot for slot in ask.get("slots")["items"] if slot["node"] == "b"]
    assert slot["unusable_reason"] == "admin drains its machine: a new disk"
    assert state_of(ask, "b") == "drained"

    # Without a server, the job trains on; the machines find the next server.
    server.kill()
    server.start()
    ask = ask.at(server)
    assert ask.http.post("nodes/b/resume").status_code == 204
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 4)

    # A restart of the agent, such as `systemctl restart` makes it, takes no worker away.
    workers, num_joins = c.pids(), c.log().count("This machine is node c")
    assert c.stop(signal.SIGTERM) == 0, c.log()
    assert "its jobs train on" in c.log()
    c.start(server)
    wait_until(lambda: c.log().count("This machine is node c") > num_joins, "the agent does not come back")
    assert (num_workers(ask.get(f"jobs/{job}")), c.pids()) == (4, workers)

    assert c.stop(signal.SIGINT) == 0, c.log()
    assert "No job uses this machine any more." in c.log()
    assert state_of(ask, "c") == "left"
    check_done(ask, server.home, tmp_path, job, weights)
    assert [one["attempt"] for one in ask.get(f"jobs/{job}/attempts")["items"]] == [1]


@pytest.mark.timeout(300)
def test_a_machine_that_crashes_costs_no_step_and_comes_back_under_its_name(
    pool: tuple[Server, Callable[[str, int], Machine]], tmp_path: Path, weights: str
) -> None:
    server, new = pool
    server.start()
    ask = Asker(server)
    b = new("b", 1)
    join(ask, server, b)
    job = submit(ask, tmp_path, 2)
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2)

    # The next driver finds the workers of both machines.
    workers = b.pids()
    driver = driver_of(server.home, job)
    assert driver is not None
    os.kill(driver, signal.SIGKILL)
    wait_until(lambda: driver_of(server.home, job) not in (None, driver), "no driver is started again")
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2)
    assert workers <= b.pids(), "no process has ended"

    b.crash()
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 1)
    b.start(server)
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2, limit_s=120)
    check_done(ask, server.home, tmp_path, job, weights)


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="a machine with another disk needs root")
@pytest.mark.timeout(300)
def test_a_machine_without_the_data_is_left_out_for_that_job_until_it_is_repaired(
    pool: tuple[Server, Callable[[str, int], Machine]], tmp_path: Path, weights: str
) -> None:
    server, new = pool
    server.start()
    ask = Asker(server)
    data = tmp_path / "disk" / "data"
    data.mkdir(parents=True)
    b, c = new("b", 1), new("c", 2)
    join(ask, server, b, without=data)
    job = submit(ask, tmp_path, 4, wait_s=1.0, data=str(data))

    def why() -> str:
        return json.dumps(ask.get(f"jobs/{job}/explain"))

    refusal = f"node b has refused it: it has no data directory '{data}'"
    wait_until(lambda: refusal in why(), "the reason does not name the machine")
    join(ask, server, c)
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 2)  # of three; with 4 micro-batches, 3 are no faster
    wait_until(lambda: refusal in why(), "the reason does not name the machine any more")
    assert nodes_of(ask, job) >= {"c"} and "b" not in nodes_of(ask, job)

    b.show(data)
    assert ask.http.post("nodes/b/drain", json={"reason": "its disk"}).status_code == 204
    ask.wait("slots", lambda found: any(each["node"] == "b" and each["unusable_since"] for each in found["items"]))
    assert ask.http.post("nodes/b/resume").status_code == 204
    ask.wait(f"jobs/{job}", lambda found: num_workers(found) == 4, limit_s=120)
    check_done(ask, server.home, tmp_path, job, weights)
