"""``legato run`` inside an allocation of Slurm, with a ``srun`` that starts agents on this machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIGEST = re.compile(r"weights sha256 ([0-9a-f]{64})")
LIMIT_S = 100.0

PROGRAM = """
import hashlib, os, time
import torch, legato

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, index):
        return torch.full((8,), float(index)) / 256, index % 2

run = legato.elastic(global_batch_size=32, micro_batch_size=8, seed=0)
model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.2), torch.nn.Linear(4, 2))
model, optimizer = run.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))
for epoch in run.epochs(8):
    for inputs, targets in run.batches(Data()):
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(float(os.environ.get("TURN_S", "0")))
weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
print("weights sha256", hashlib.sha256(weights).hexdigest())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path / "train.py"


@pytest.fixture
def slurm(tmp_path: Path) -> Mapping[str, str]:
    """Variables of a script in job 42 of a Slurm with the nodes a, b and one that cannot be used."""
    for name in ("srun", "scontrol"):
        (tmp_path / "programs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "programs" / name).symlink_to(Path(__file__).with_name("fake_slurm"))
    (tmp_path / "steps").mkdir()
    return {
        "PATH": f"{tmp_path / 'programs'}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_ID": "42",
        "SLURM_JOB_NODELIST": "a,b,gone",
        "SLURM_TASKS_PER_NODE": "2(x2),1",
        "SLURM_NTASKS": "5",
        "FAKE_REQUEUED": str(tmp_path / "requeued"),
        "FAKE_STEPS": str(tmp_path / "steps"),
    }


@contextmanager
def legato(home: Path, variables: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "LEGATO_HOME": str(home), "LEGATO_DEVICE": "cpu", **variables}
    command = [sys.executable, "-m", "legato.cli", "run", "--plain", *arguments]
    with subprocess.Popen(
        command, env=environment, cwd=home.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def train(home: Path, variables: Mapping[str, str], *arguments: str, code: int = 0) -> str:
    with legato(home, variables, *arguments) as process:
        told, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == code, told
    return told


def train_until_saved(process: subprocess.Popen[str]) -> str:
    """Return the output up to the first checkpoint."""
    assert process.stdout is not None
    told = ""
    for line in process.stdout:
        told += line
        if " saved " in line:
            return told
    raise AssertionError(told)


def digest_of(told: str) -> str:
    (found,) = set(DIGEST.findall(told))
    return str(found)


SLOWLY = {"TURN_S": "0.05"}
"""There are steps left when a signal comes."""
NETWORK = ("--network", "127.0.0.0/8")


def test_a_time_limit_ends_with_a_checkpoint_and_the_requeued_job_goes_on_with_the_next_sample(
    tmp_path: Path, program: Path, slurm: Mapping[str, str]
) -> None:
    alone = train(tmp_path / "alone", {}, str(program))
    arguments = (*NETWORK, "--checkpoint-every", "5steps", str(program))
    with legato(tmp_path / "home", {**slurm, **SLOWLY}, *arguments) as process:
        told = train_until_saved(process)
        process.send_signal(signal.SIGUSR1)
        told += process.communicate(timeout=LIMIT_S)[0]
    assert process.returncode == 75, told
    assert "job 42 of Slurm: nodes a (2 CPU slots), b (2 CPU slots), gone (1 CPU slot)" in told
    assert "Unable to create step for job 42: Requested node configuration is not available" in told
    for slot in ("a/0", "a/1", "b/0", "b/1"):
        assert f"starts in slot {slot}" in told
    assert "Slurm is about to end the job (SIGUSR1): stopping after this step, with a checkpoint" in told
    assert (tmp_path / "requeued").read_text() == "42" and "Slurm starts job 42 again" in told
    again = train(tmp_path / "home", {**slurm, "SLURM_RESTART_COUNT": "1"}, *arguments)
    assert "job 'train-42' resumes where it ended" in again and "steps in this run, from step" in again
    assert digest_of(again) == digest_of(alone)
    assert not list((tmp_path / "home" / "agents").glob("*/*")), "agents delete their files before their steps end"


@pytest.mark.soak
def test_a_signal_to_a_step_reaches_the_driver_and_a_job_that_a_user_cancels_is_not_requeued(
    tmp_path: Path, program: Path, slurm: Mapping[str, str]
) -> None:
    variables = {**slurm, **SLOWLY}
    with legato(tmp_path / "home", variables, *NETWORK, "--checkpoint-every", "5steps", str(program)) as process:
        told = train_until_saved(process)
        for node in ("b", "a"):  # each of them reports it, and the job stops once
            os.kill(int((tmp_path / "steps" / node).read_text()), signal.SIGTERM)
        told += process.communicate(timeout=LIMIT_S)[0]
    assert process.returncode == 75, told
    assert "Slurm is about to end the job (SIGTERM)" in told and "stopped: SIGTERM from Slurm" in told
    assert not (tmp_path / "requeued").exists()
    assert "legato run --name train-42" in told


@pytest.mark.parametrize(
    ("changes", "arguments", "want"),
    [
        ({}, ("--workers", "9"), "job 42 of Slurm: its slots are enough for 5"),
        ({}, ("--slurm", "--hosts", "a:1"), "Cannot use --hosts and --slurm together"),
        ({"SLURM_STEP_NUM_TASKS": "4"}, (), "Cannot run in a step of 4 tasks"),
        ({"SLURM_HET_SIZE": "2"}, (), "it is heterogeneous"),
        ({"SLURM_JOB_ID": ""}, ("--slurm",), "this is no allocation of Slurm"),
    ],
)
def test_what_cannot_train_in_an_allocation_is_refused_before_anything_starts(
    tmp_path: Path,
    program: Path,
    slurm: Mapping[str, str],
    changes: Mapping[str, str],
    arguments: tuple[str, ...],
    want: str,
) -> None:
    assert want in train(tmp_path / "home", {**slurm, **changes}, *arguments, str(program), code=2)
    assert not (tmp_path / "home" / "jobs").exists()
