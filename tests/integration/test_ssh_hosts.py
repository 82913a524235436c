"""``legato run --hosts``: agents that are started by ssh, and the result of one machine."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.hosts.bed import DISK, Hosts
from tests.hosts.ssh import Ssh
from tests.integration.serving import wait_until

from legato.driver.journal import JobDirectory

ROOT = Path(__file__).parents[2]
PROGRAM = str(ROOT / "examples" / "digits_elastic.py")
DIGEST = re.compile(r"weights sha256 ([0-9a-f]{64})")


LOADERS = """
import torch, legato

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 512
    def __getitem__(self, index):
        return torch.full((20000,), float(index)), index % 2

run = legato.elastic(global_batch_size=64, micro_batch_size=16, seed=0)
model = torch.nn.Linear(20000, 2)
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
for epoch in run.epochs(2):
    for inputs, targets in run.batches(Data(), num_workers=2):
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
"""


SLOW = """
import time, torch, legato

run = legato.elastic(global_batch_size=8, micro_batch_size=4, seed=0)
model = torch.nn.Linear(4, 2)
model, optimizer = run.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
data = torch.utils.data.TensorDataset(torch.zeros(8 * STEPS, 4), torch.zeros(8 * STEPS, dtype=torch.int64))
for inputs, targets in run.batches(data):
    time.sleep(0.02)
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def legato(
    home: Path, ssh: Path | None, *arguments: str, code: int = 0, limit_s: float = 100.0, cwd: Path = ROOT
) -> str:
    """Run ``legato run --plain``, and return everything that it wrote."""
    before = [] if ssh is None else [str(ssh)]
    environment = {
        **os.environ,
        "LEGATO_HOME": str(home),
        "LEGATO_DEVICE": "cpu",
        "PATH": os.pathsep.join([*before, os.environ["PATH"]]),
    }
    command = [sys.executable, "-m", "legato.cli", "run", "--plain", *arguments]
    with subprocess.Popen(
        command, env=environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            told, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            told, _ = process.communicate()
    assert process.returncode == code, told
    return told


def digest_of(told: str) -> str:
    (found,) = set(DIGEST.findall(told))
    return str(found)


@pytest.fixture
def fake_ssh(tmp_path: Path) -> Path:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "ssh").symlink_to(Path(__file__).with_name("fake_ssh"))
    return tmp_path / "programs"


def test_hosts_give_the_result_of_one_machine_and_a_wrong_one_is_named(tmp_path: Path, fake_ssh: Path) -> None:
    alone = legato(tmp_path / "alone", None, "--workers", "1", PROGRAM)
    hosts = ("--hosts", "a:2,b:2,nowhere:1", "--initial-workers", "4", "--workers", "1..5")
    told = legato(tmp_path / "home", fake_ssh, *hosts, "--name", "digits", PROGRAM)
    assert digest_of(told) == digest_of(alone)
    for slot in ("a/0", "a/1", "b/0", "b/1"):
        assert f"starts in slot {slot}" in told
    assert "the machine nowhere cannot be used: ssh: Could not resolve hostname nowhere" in told
    assert "4 workers" in told, "all of them train"


def test_without_a_number_of_workers_each_slot_of_the_hosts_gets_one(tmp_path: Path, fake_ssh: Path) -> None:
    told = legato(tmp_path, fake_ssh, "--hosts", "a:2,b", PROGRAM)
    assert {slot for slot in ("a/0", "a/1", "b/0", "b/1") if f"starts in slot {slot}" in told} == {"a/0", "a/1", "b/0"}


def test_no_host_that_can_be_used_ends_the_run_with_each_reason(tmp_path: Path, fake_ssh: Path) -> None:
    told = legato(tmp_path, fake_ssh, "--hosts", "x:1,y:1", PROGRAM, code=2)
    assert "no machine can be used" in told
    assert "x: ssh: Could not resolve hostname x" in told and "y: ssh: Could not resolve hostname y" in told


@pytest.mark.soak
def test_too_few_hosts_for_the_minimum_end_the_run_with_the_reason_of_each(tmp_path: Path, fake_ssh: Path) -> None:
    told = legato(tmp_path, fake_ssh, "--hosts", "a:1,x:1", "--workers", "2..2", PROGRAM, code=2)
    assert "its only slots are a/0, fewer than its minimum of 2" in told
    assert "the machine x cannot be used: ssh: Could not resolve hostname x" in told


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (("--hosts", "a:1,b:1", "--workers", "3"), "its slots are enough for 2"),
        (("--hosts", "a,b:1", "--workers", "1026"), "its slots are enough for 1025"),
        (("--hosts", "a:1", "--gpus-per-worker", "2"), "no host of --hosts a:1 has so many slots"),
        (("--hosts", "a:1", "--network", "eth0"), "Cannot read the network 'eth0'"),
        (
            (
                "--network",
                "10.0.0.0/24",
            ),
            "Cannot use --network without --hosts",
        ),
    ],
)
def test_wrong_options_are_refused_before_anything_starts(
    tmp_path: Path, fake_ssh: Path, arguments: tuple[str, ...], want: str
) -> None:
    assert want in legato(tmp_path, fake_ssh, *arguments, PROGRAM, code=2)
    assert not (tmp_path / "jobs").exists()


@pytest.mark.soak
def test_two_hosts_of_private_disks_are_reached_by_a_real_ssh(hosts: Hosts, ssh: Ssh, tmp_path: Path) -> None:
    alone = legato(tmp_path / "alone", None, "--workers", "1", PROGRAM)
    told = legato(tmp_path / "home", ssh.programs, "--hosts", "h1:2,h2:2", "--name", "digits", PROGRAM)
    assert digest_of(told) == digest_of(alone)
    assert "starts in slot h1/0" in told and "starts in slot h2/1" in told
    assert (hosts.disk(2) / "agents" / "h2").is_dir(), f"the agent used {DISK}"


@pytest.mark.soak
def test_files_that_the_program_writes_on_hosts_come_to_the_job_and_a_resumed_job_finds_them(
    hosts: Hosts, ssh: Ssh, tmp_path: Path
) -> None:
    project = tmp_path / "mine" / "project"
    project.mkdir(parents=True)
    (project / "writes.py").write_bytes((ROOT / "tests/integration/programs/writes.py").read_bytes())
    for host in (1, 2):
        hosts.run_on(host, "mount", "-t", "tmpfs", "none", str(project.parent))
    told = legato(tmp_path / "home", ssh.programs, "--hosts", "h1:1,h2:1", "--name", "w", "writes.py", "2", cwd=project)
    results = tmp_path / "home" / "jobs" / "w" / "results"
    assert f"wrote on h1 into {results}" in told, told
    assert {path.name for path in results.iterdir()} == {
        *("metrics.csv", "config.json", "out", "same.txt", "of-0.txt", "of-1.txt")
    }
    assert [path.name for path in project.iterdir()] == ["writes.py"]
    before = (results / "metrics.csv").read_text()
    words = ("--resume", "--hosts", "h2:1", "--name", "w", "writes.py", "4")
    told = legato(tmp_path / "home", ssh.programs, *words, cwd=project)
    assert (results / "metrics.csv").read_text().startswith(before), told
    assert (results / "metrics.csv").read_text().count("\n") == 4, told
    assert "other versions" not in told
    agents = hosts.disk(2) / "agents" / "h2"
    wait_until(lambda: not list(agents.iterdir()), "files of the job are left on the host")


@pytest.mark.soak
def test_two_hosts_that_have_only_ipv6_train_with_the_same_result(hosts: Hosts, ssh: Ssh, tmp_path: Path) -> None:
    config = ssh.config.read_text()
    for host in hosts.numbers:
        config = config.replace(f"{hosts.address(host)}\n", f"{hosts.address_6(host)}\n")
        hosts.run_on(host, "ip", "address", "delete", f"{hosts.address(host)}/24", "dev", "eth0")
    ssh.config.write_text(config)
    alone = legato(tmp_path / "alone", None, "--workers", "1", PROGRAM)
    told = legato(tmp_path / "home", ssh.programs, "--hosts", "h1:1,h2:1", PROGRAM)
    assert digest_of(told) == digest_of(alone)
    assert "worker 1 is in view 1" in told or "worker 0 is in view 1" in told


@pytest.mark.soak
def test_a_host_that_has_only_ipv6_among_hosts_with_ipv4_is_named_and_the_others_train(
    hosts: Hosts, ssh: Ssh, tmp_path: Path
) -> None:
    ssh.config.write_text(ssh.config.read_text().replace(f"{hosts.address(1)}\n", f"{hosts.address_6(1)}\n"))
    hosts.run_on(1, "ip", "address", "delete", f"{hosts.address(1)}/24", "dev", "eth0")
    for host in (2, 3):
        hosts.run_on(host, "ip", "-6", "route", "add", "blackhole", f"{hosts.address_6(1)}/128")
    alone = legato(tmp_path / "alone", None, "--workers", "1", PROGRAM)
    told = legato(tmp_path / "home", ssh.programs, "--hosts", "h1:1,h2:1,h3:1", PROGRAM)
    assert digest_of(told) == digest_of(alone)
    named = f"the job continues without node h1: node h1 announces the IPv6 address {hosts.address_6(1)}"
    assert named in " ".join(told.split()), told
    assert "first view of 2 workers" in told and "could not connect" not in told, told


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_of_hosts_that_cannot_reach_one_another_one_trains_and_both_are_named_with_what_to_open(
    hosts: Hosts, ssh: Ssh, tmp_path: Path
) -> None:
    for host, other in ((1, 2), (2, 1)):
        hosts.run_on(host, "ip", "route", "add", "blackhole", f"{hosts.address(other)}/32")
    told = legato(tmp_path, ssh.programs, "--hosts", "h1:1,h2:1", PROGRAM, limit_s=250)
    assert "the job continues without node h2: worker" in told and "digits succeeded" in told.replace("_elastic", "")
    pairs = "worker 1 on node h2 could not connect view 1 to worker 0 on node h1"
    assert pairs in told or "worker 0 on node h1 could not connect view 1 to worker 1 on node h2" in told
    assert "on all TCP ports above 1024" in told and "--network" in told


@pytest.mark.soak
def test_a_host_whose_agent_is_killed_gets_another_agent_and_trains_on(hosts: Hosts, ssh: Ssh, tmp_path: Path) -> None:
    program = tmp_path / "slow.py"
    program.write_text(SLOW.replace("STEPS", "400"))
    job = JobDirectory(tmp_path / "jobs" / "slow")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(legato, tmp_path, ssh.programs, "--hosts", "h1:1,h2:1", str(program))
        while not running.done() and ((last := job.read_last_committed()) is None or last.step < 20):
            time.sleep(0.1)
        for pid in hosts.pids(2):
            if b"legato.agent.process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
        told = running.result()
    assert "2 workers" in told and "is given up" not in told and "no workers lost" in told, told


@pytest.mark.soak
def test_a_host_with_a_full_disk_is_named_and_the_other_one_trains(hosts: Hosts, ssh: Ssh, tmp_path: Path) -> None:
    hosts.run_on(2, "mount", "-t", "tmpfs", "-o", "size=4k", "none", DISK)
    told = legato(tmp_path, ssh.programs, "--hosts", "h1:1,h2:1", PROGRAM)
    assert "the machine h2 cannot be used: its agent cannot be started: The disk with" in told
    assert "succeeded" in told


@pytest.mark.soak
def test_a_host_with_too_little_shared_memory_for_loaders_is_named(hosts: Hosts, ssh: Ssh, tmp_path: Path) -> None:
    hosts.run_on(2, "mount", "-o", "remount,size=64k", "/dev/shm")
    program = tmp_path / "train.py"
    program.write_text(LOADERS)
    told = legato(tmp_path, ssh.programs, "--hosts", "h1:1,h2:1", str(program), code=1)
    assert "/dev/shm of machine h2" in told and "--shm-size" in told


class Runs:
    """``legato run --hosts`` in the background, and other commands on its job, which is slow while ``slow`` exists."""

    def __init__(self, folder: Path, ssh: Ssh) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "LEGATO_HOME": str(folder / "home"),
            "LEGATO_DEVICE": "cpu",
            "PATH": os.pathsep.join([str(ssh.programs), os.environ["PATH"]]),
        }
        (folder / "slow").touch()
        self.job = JobDirectory(folder / "home" / "jobs" / "slow")

    @contextlib.contextmanager
    def start(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """Run a command of ``legato``, and wait for its end."""
        log = self.folder / f"{words[0]}.log"
        with (
            log.open("w") as file,
            subprocess.Popen(
                [sys.executable, "-m", "legato.cli", *words],
                env=self.environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                text=True,
            ) as process,
        ):
            try:
                yield process
                process.wait(timeout=100)
            finally:
                process.kill()
                print(f"$ legato {' '.join(words)}", log.read_text(), sep="\n")

    def run(self, hosts: str, *words: str) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
        """Run the job on hosts."""
        program = str(ROOT / "tests/integration/programs/slow.py")
        arguments = [program, "20", str(self.folder / "result"), "0.1", str(self.folder / "slow"), "1"]
        return self.start("run", "--plain", "--hosts", hosts, "--name", "slow", *words, *arguments)

    def await_steps(self, nodes: set[str], *commands: subprocess.Popen[str]) -> None:
        """Wait until workers on exactly these hosts have trained further than now."""
        first = self.step

        def trains() -> bool:
            assert all(command.poll() is None for command in commands), "it has ended"
            journal = self.job.read_journal("")
            view = None if journal is None or journal.snapshot is None else journal.snapshot.current
            if journal is None or journal.snapshot is None or view is None:
                return False
            slots = {journal.snapshot.slots.get(worker, "") for worker in view.workers}
            return {slot.partition("/")[0] for slot in slots} == nodes and self.step > first + 3

        wait_until(trains, f"nothing trains on {nodes}")

    @property
    def step(self) -> int:
        last = self.job.read_last_committed()
        return 0 if last is None else last.step


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_job_is_stopped_resumed_on_other_hosts_and_taken_over_there_with_the_same_result(
    hosts: Hosts, ssh: Ssh, tmp_path: Path
) -> None:
    runs = Runs(tmp_path, ssh)
    with runs.run("h1:1,h2:1") as running:
        runs.await_steps({"h1", "h2"}, running)
        with runs.start("stop", "slow") as stopping:
            pass
        assert stopping.returncode == 0
    assert running.returncode == 0, "stopped with a checkpoint"
    stopped_at = runs.step
    with runs.run("h2:1,h3:1", "--resume") as running:
        runs.await_steps({"h2", "h3"}, running)
        running.kill()
    with runs.start("attach", "slow") as attached:
        runs.await_steps({"h2", "h3"}, attached)
        (tmp_path / "slow").unlink()
    assert attached.returncode == 0
    assert f"at step {stopped_at}." in (tmp_path / "run.log").read_text(), "it went on from the checkpoint"
    assert "adopted 2 workers" in (tmp_path / "attach.log").read_text(), "the same workers trained on"
    program = str(ROOT / "tests/integration/programs/slow.py")
    command = [sys.executable, program, "20", str(tmp_path / "alone"), "0", "/none", "1"]
    subprocess.run(command, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}, check=True)
    assert (tmp_path / "result").read_text() == (tmp_path / "alone").read_text()
