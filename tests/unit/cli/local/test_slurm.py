"""What a job does when Slurm ends it: which signals count, when it is started again, and the exit code."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from legato.cli.local import slurm as slurm_jobs
from legato.cli.local.slurm import SlurmWatch, find_again, prepare
from legato.cli.main import _free_name
from legato.cli.terminal.display import Screen
from legato.cli.terminal.job_view import Ending
from legato.clusters import slurm
from legato.clusters.slurm import Allocation
from legato.clusters.ssh import Hosts, parse_hosts
from legato.core.errors import UsageError
from legato.driver.journal import JobDirectory

ALLOCATION = Allocation(job="42", number="42", node_list="a,b", slots={"a": 1, "b": 1}, is_batch=True, may_requeue=True)


class Told:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def show_message(self, text: str, *, problem: bool = False) -> None:
        self.messages.append(text)


class Cluster:
    """Stands for Slurm: what it was asked, and what it answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requeued: list[str] = []
        self.refusal: str | None = None
        self.preempted: list[bool] = []
        monkeypatch.setattr(slurm, "requeue", self._requeue)
        monkeypatch.setattr(slurm, "is_preempted", lambda _: self.preempted.pop(0) if self.preempted else False)
        monkeypatch.setattr(slurm_jobs, "_ASK_EVERY_S", 0.0)

    def _requeue(self, allocation: Allocation) -> str | None:
        self.requeued.append(allocation.job)
        return self.refusal


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def make_ending(**changes: Any) -> Ending:
    fields: dict[str, Any] = {
        "name": "train-42", "outcome": "stopped", "reason": "", "exit_code": 0, "step": 20, "num_steps": 100,
        "from_step": 10, "elapsed_s": 1.0, "counts": Counter(), "saved": "", "directory": Path("d"),
    }  # fmt: skip
    return Ending(**{**fields, **changes})


def make_watch(tmp_path: Path, **changes: Any) -> SlurmWatch:
    allocation = msgspec.structs.replace(ALLOCATION, **changes)
    watch = SlurmWatch(allocation, JobDirectory(tmp_path / "train-42"), cast("Screen", Told()))
    watch.on_signal = lambda name: None
    return watch


def test_of_several_signals_the_first_one_stops_the_job(tmp_path: Path, cluster: Cluster) -> None:
    watch, heard = make_watch(tmp_path), []
    watch.on_signal = heard.append
    for name in ("SIGUSR1", "SIGTERM", "SIGTERM"):
        watch.note_signal(name)
    assert heard == ["SIGUSR1"]
    assert watch.conclude(make_ending()) == 75
    assert cluster.requeued == ["42"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ({"outcome": "succeeded"}, 0),
        ({"outcome": "failed", "exit_code": 4}, 4),
        ({"exit_code": 1}, 1),  # its checkpoint could not be written
    ],
)
def test_a_job_that_leaves_nothing_to_go_on_with_is_not_started_again(
    tmp_path: Path, cluster: Cluster, ending: dict[str, Any], code: int
) -> None:
    watch = make_watch(tmp_path)
    watch.note_signal("SIGUSR1")
    assert watch.conclude(make_ending(**ending)) == code
    assert cluster.requeued == []


def test_a_job_that_a_user_stops_is_not_started_again(tmp_path: Path, cluster: Cluster) -> None:
    assert make_watch(tmp_path).conclude(make_ending()) == 0
    assert cluster.requeued == []


@pytest.mark.parametrize(
    ("changes", "ending", "want"),
    [
        ({"is_batch": False}, {}, "no script of sbatch began it"),
        ({"may_requeue": False}, {}, "submitted with --no-requeue"),
        ({"num_restarts": 1}, {}, "did not find the files of its last run"),
        ({}, {"step": 10}, "trained no step in this run"),
        ({}, {"step": None, "from_step": None}, "trained no step in this run"),
    ],
)
def test_a_job_that_would_run_in_a_circle_is_not_started_again(
    tmp_path: Path,
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    ending: dict[str, Any],
    want: str,
) -> None:
    watch = make_watch(tmp_path, **changes)
    watch.note_signal("SIGUSR1")
    assert watch.conclude(make_ending(**ending)) == 75
    assert cluster.requeued == []
    told = capsys.readouterr().err
    assert "Slurm does not start job 42 again: " in told and want in told
    assert "legato run --name train-42" in told


def test_a_node_that_does_not_see_the_directory_is_named_and_prevents_a_new_start(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = make_watch(tmp_path)
    watch.note_private_disk("b")
    watch.note_signal("SIGUSR1")
    watch.conclude(make_ending())
    assert cluster.requeued == [] and "node b does not see the job's directory" in capsys.readouterr().err


def test_what_slurm_says_about_a_new_start_is_passed_on(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.refusal = "Cannot ask Slurm: 'scontrol requeue 42' failed: Access denied"
    watch = make_watch(tmp_path)
    watch.note_signal("SIGUSR1")
    assert watch.conclude(make_ending()) == 75
    assert "Slurm does not start job 42 again: Cannot ask Slurm" in capsys.readouterr().err


def test_a_preempted_job_waits_for_its_end_and_leaves_the_new_start_to_slurm(
    tmp_path: Path, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.preempted = [True, True, True]
    watch = make_watch(tmp_path)
    watch.note_signal("SIGTERM")
    assert watch.conclude(make_ending()) == 75
    assert cluster.preempted == [] and cluster.requeued == []
    assert "waiting until Slurm ends job 42" in capsys.readouterr().err


def test_a_job_is_taken_over_only_in_its_own_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = Hosts(parse_hosts("a"))
    assert find_again("x", None) is None and find_again("x", hosts) is hosts
    now = msgspec.structs.replace(ALLOCATION, node_list="a", slots={"a": 1})
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setattr(slurm, "find_allocation", lambda _: now)
    assert find_again("x", ALLOCATION) is now, "a node may have failed since"
    for job in ("43", ""):
        monkeypatch.setenv("SLURM_JOB_ID", job)
        now = msgspec.structs.replace(now, job=job)
        with pytest.raises(UsageError, match="--jobid=42 --overlap --pty legato attach x"):
            find_again("x", ALLOCATION)


def test_a_training_that_slurm_starts_again_waits_for_its_last_driver_and_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path))
    again = msgspec.structs.replace(ALLOCATION, num_restarts=1)
    last = JobDirectory.of("train-42")
    last.lock()
    assert _free_name(Path("train.py"), ALLOCATION) == "train-42-2", "another training of the same job has this name"
    assert _free_name(Path("train.py"), again) == "train-42"
    monkeypatch.setattr(slurm_jobs.time, "sleep", lambda _: last.unlock())
    prepare(JobDirectory.of("train-42"), again)
    told = capsys.readouterr().err
    assert "waiting until the last driver of job 'train-42' has ended" in told
    assert "has nothing of its last run" in told, "it left no journal"
    assert not last.is_locked()
