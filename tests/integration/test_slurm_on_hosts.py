"""``legato run`` in jobs of a real Slurm on three hosts: time limits, preemption, lost nodes, and equal weights."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.hosts.bed import Hosts
from tests.hosts.slurm import Slurm, why_no_slurm
from tests.integration.cluster_program import DIGEST, PROGRAM, train_alone

from legato.cli.local.hosts import SLURM_FILE

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

ROOT: Final = Path(__file__).parents[2]
LIMIT_S: Final = 240.0
NODES: Final = ("--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1")
STEP: Final = re.compile(r"step (\d+)/\d+")


@pytest.fixture
def slurm(hosts: Hosts) -> Iterator[Slurm]:
    if reason := why_no_slurm():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(PROGRAM)
        made = Slurm(hosts, Path(folder), {"LEGATO_HOME": f"{folder}/home", "LEGATO_DEVICE": "cpu"})
        try:
            made.start()
            yield made
        finally:
            made.stop()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The SHA-256 of an undisturbed run on this machine."""
    return train_alone(tmp_path_factory.mktemp("alone"), 8)


def digest_of(told: str) -> str:
    (found,) = set(DIGEST.findall(told))
    return str(found)


def run_command(slurm: Slurm, *options: str) -> str:
    folder = slurm.environment["LEGATO_HOME"].removesuffix("/home")
    words = ("exec", sys.executable, "-m", "legato.cli", "run", "--plain", *options, f"{folder}/train.py", "0.25", "8")
    return " ".join(words)


def wait_until(condition: Callable[[], object], slurm: Slurm, job: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{slurm.output_of(job)}\n{slurm.logs()}"
        time.sleep(0.2)


def wait_for_text(slurm: Slurm, job: str, text: str, *, times: int = 1) -> None:
    wait_until(lambda: len(re.findall(text, slurm.output_of(job))) >= times, slurm, job)


def wait_for_end(slurm: Slurm, job: str) -> str:
    wait_until(lambda: slurm.state_of(job) not in ("PENDING", "RUNNING", "COMPLETING"), slurm, job)
    return slurm.state_of(job)


def test_a_job_that_its_time_limit_ends_goes_on_with_the_next_sample(slurm: Slurm, alone: str) -> None:
    limits = ("--time=2", "--signal=B:USR1@60", "--requeue")
    job = slurm.submit(*NODES, *limits, script=run_command(slurm).replace("0.25", "1.2"))
    wait_for_text(slurm, job, "1 of Slurm: nodes h1, h2, 2 CPU slots each")
    wait_for_text(slurm, job, STEP.pattern)
    # From the login node, whose home is that of the nodes.
    status = subprocess.run(
        [sys.executable, "-m", "legato.cli", "status", f"train-{job}", "-o", "json"],
        env=slurm.environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert '"num_workers": 4' in status.stdout.replace('":4', '": 4')
    wait_for_text(slurm, job, r"Slurm is about to end the job \(SIGUSR1\)")
    wait_for_text(slurm, job, f"Slurm starts job {job} again")
    wait_for_text(slurm, job, "Resumed from")
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=10")
    assert wait_for_end(slurm, job) == "COMPLETED"
    assert digest_of(slurm.output_of(job)) == alone


def test_a_preempted_job_saves_in_its_grace_time_and_goes_on_when_slurm_starts_it_again(
    slurm: Slurm, alone: str
) -> None:
    job = slurm.submit(*NODES, script=run_command(slurm))
    wait_for_text(slurm, job, STEP.pattern)
    slurm.submit("--partition=high", "--nodes=3", "--exclusive", script="true")
    wait_for_text(slurm, job, r"Slurm is about to end the job \(SIGTERM\)")
    wait_for_text(slurm, job, "Resumed from")
    assert wait_for_end(slurm, job) == "COMPLETED"
    told = slurm.output_of(job)
    assert f"waiting until Slurm ends job {job}" in told
    assert digest_of(told) == alone


def test_a_cancelled_job_leaves_a_checkpoint_with_which_another_one_goes_on(slurm: Slurm, alone: str) -> None:
    job = slurm.submit(*NODES, script=run_command(slurm, "--name", "mine"))
    wait_for_text(slurm, job, STEP.pattern)
    slurm.run("scancel", job)
    assert wait_for_end(slurm, job) == "CANCELLED"
    assert "stopped: SIGTERM from Slurm" in slurm.output_of(job) and "legato run --name mine" in slurm.output_of(job)
    following = slurm.submit("--nodes=3", script=run_command(slurm, "--name", "mine"))
    assert wait_for_end(slurm, following) == "COMPLETED"
    assert "steps in this run, from step" in slurm.output_of(following)
    assert digest_of(slurm.output_of(following)) == alone


def test_a_job_without_kill_trains_on_when_a_node_crashes(slurm: Slurm, hosts: Hosts, alone: str) -> None:
    job = slurm.submit("--nodes=3", "--no-kill", script=run_command(slurm))
    wait_for_text(slurm, job, STEP.pattern)
    hosts.crash(3)
    wait_for_text(slurm, job, DIGEST.pattern)  # the job then waits for what may run on the lost node
    told = slurm.output_of(job)
    assert "node h3 is lost" in told and "resumes" not in told
    assert digest_of(told) == alone


@pytest.mark.parametrize("crashed", [1, 2], ids=["the driver's node", "another node"])
def test_a_job_whose_node_crashes_goes_on_with_other_nodes(
    slurm: Slurm, hosts: Hosts, alone: str, crashed: int
) -> None:
    job = slurm.submit(*NODES, script=run_command(slurm, "--checkpoint-every", "5steps"))
    wait_for_text(slurm, job, STEP.pattern)
    hosts.crash(crashed)
    wait_for_text(slurm, job, "h3, 2 CPU slots each")
    wait_for_text(slurm, job, DIGEST.pattern)  # the job then waits for what may run on the lost node
    told = slurm.output_of(job)
    assert "Resumed from" in told
    assert digest_of(told) == alone


def test_an_agent_that_is_killed_is_started_again_by_a_new_step(slurm: Slurm, hosts: Hosts, alone: str) -> None:
    job = slurm.submit(*NODES, script=run_command(slurm, "--checkpoint-every", "5steps"))
    wait_for_text(slurm, job, STEP.pattern)
    (lock,) = Path(slurm.environment["LEGATO_HOME"], "agents", "h2").glob("*/agent.lock")
    hosts.run_on(2, "kill", "-9", lock.read_text().split()[0])
    wait_for_text(slurm, job, "starts in slot h2/0", times=2)
    slurm.run("scontrol", "requeue", job)
    wait_for_text(slurm, job, "Resumed from")
    assert wait_for_end(slurm, job) == "COMPLETED"
    assert digest_of(slurm.output_of(job)) == alone


def test_a_node_without_a_step_is_named_with_the_words_of_slurm_and_the_others_train(
    slurm: Slurm, hosts: Hosts, alone: str, tmp_path: Path
) -> None:
    begin = tmp_path / "begin"
    script = f"touch {begin}.waits; until [ -e {begin} ]; do sleep 0.1; done\n{run_command(slurm)}"
    job = slurm.submit(*NODES, "--no-kill", script=script)
    wait_until(Path(f"{begin}.waits").exists, slurm, job)
    slurm.stop_node(2)
    begin.touch()
    wait_for_text(slurm, job, "the machine h2 cannot be used: Slurm runs no step there: ")
    assert wait_for_end(slurm, job) == "COMPLETED"
    assert digest_of(slurm.output_of(job)) == alone


def test_a_home_that_nodes_do_not_share_is_named_and_the_job_is_not_requeued(slurm: Slurm, hosts: Hosts) -> None:
    job = slurm.submit(*NODES, script=f"export LEGATO_HOME=/dev/shm/home\n{run_command(slurm)}")
    wait_for_text(slurm, job, STEP.pattern)
    assert Path(f"/dev/shm/home/jobs/train-{job}", SLURM_FILE).exists() is False, "the disk is the node's own"
    assert f"node h2 does not see /dev/shm/home/jobs/train-{job}" in slurm.output_of(job)
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    assert wait_for_end(slurm, job) == "FAILED"
    assert f"does not start job {job} again: node h2 does not see the job's directory" in slurm.output_of(job)
