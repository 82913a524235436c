"""What killed pilots leave on a machine: the next pilot of the pool there removes it, and nothing else."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from tests.unit.agent.test_pool_agent import run

from legato.agent import leftovers, pool_agent
from legato.agent.orders import AgentOrder
from legato.agent.pool_agent import PoolAgent
from legato.agent.process import LOCK_FILE

HERE = os.uname().nodename
LEAVE = {"orders": [], "beat_every_s": 0.0, "secret": "s"}


def make_pilot(agents: Path, node: str, host: str = HERE, *, age_s: float = 3700) -> Path:
    """Make the folder of a pilot with the file of a job; returns the file."""
    job = agents / node / "j-1-abc/work"
    job.mkdir(parents=True)
    (agents / node / ".pool.lock").write_text(host)
    (job / "weights.pt").write_text("large")
    for path in (agents / node / ".pool.lock", job.parent, *job.parent.iterdir()):
        os.utime(path, (time.time() - age_s,) * 2)
    return job / "weights.pt"


def hold(lock: Path) -> int:
    held = os.open(lock, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    return held


def test_a_pilot_removes_what_dead_pilots_of_its_host_left_and_touches_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = tmp_path / "agents"
    dead, recent = make_pilot(agents, "slurm-1"), make_pilot(agents, "slurm-6", age_s=3500)
    same_name = make_pilot(agents, "b", age_s=0)
    interrupted = make_pilot(agents, ".gone-1234")
    runs, job_runs, elsewhere = (make_pilot(agents, node) for node in ("slurm-2", "slurm-3", "slurm-4"))
    (agents / "slurm-4/.pool.lock").write_text("another-host")
    os.utime(agents / "slurm-4/.pool.lock", (0, 0))
    unknown = make_pilot(agents, "slurm-5", host="")
    just_ended = make_pilot(agents, "slurm-7")
    os.utime(agents / "slurm-7/j-1-abc/work")  # the server was away for long, and the job trained on
    held = [hold(agents / "slurm-2/.pool.lock"), hold(agents / "slurm-3/j-1-abc" / LOCK_FILE)]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (agents / "link").symlink_to(outside)
    (same_name.parent / "link").symlink_to(outside)

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=LEAVE)

    def is_clean(_: list[str]) -> bool:
        return not dead.exists() and not any(path.name.startswith(".gone-") for path in agents.iterdir())

    begun = time.time()

    run(tmp_path, monkeypatch, answer, is_clean, is_pilot=True)
    assert not interrupted.exists()
    assert all(path.exists() for path in (recent, just_ended, runs, job_runs, elsewhere, unknown, outside / "kept"))
    # A pilot takes nothing over from one of its name, whose files stay for an hour too.
    assert not same_name.exists() and len(list(agents.glob(".ended-*/j-1-abc/work/weights.pt"))) == 1
    assert (agents / "b/.pool.lock").stat().st_mtime >= begun - 1
    assert (agents / "b/.pool.lock").read_text() == HERE  # so the next pilot knows that it was here
    for each in held:
        os.close(each)
    # An agent that no cluster has started removes nothing of others, and keeps its own files.
    mine = make_pilot(agents, "slurm-1")
    said = run(tmp_path, monkeypatch, answer, bool)
    assert said[0].startswith("This machine is node b")
    assert mine.exists() and runs.exists()


def test_pilots_take_turns_so_none_moves_the_folder_of_another_that_begins(tmp_path: Path) -> None:
    with leftovers.take_turn(tmp_path), (tmp_path / ".turn.lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / ".turn.lock").open() as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("chosen", ["", "/tmp", "/site/scratch"])
def test_temporary_files_of_jobs_are_in_the_folder_of_the_pilot_unless_the_cluster_chooses_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    monkeypatch.setenv("TMPDIR", chosen)
    folders: list[str | None] = []
    monkeypatch.setattr(pool_agent, "_MAX_SCRATCH_PATH", 1000)

    def start(*_: object, env: dict[str, str] | None = None, **__: object) -> None:
        folders.append(None if env is None else env["TMPDIR"])

    order = AgentOrder(job="j-1", node="b", urls=("wss://h/agent",), token="t", address="10.0.0.3")
    for is_pilot in (True, False):
        agent = PoolAgent("https://h", "b", token="lgj_t", num_slots=1, home=tmp_path, is_pilot=is_pilot, say=print)
        agent._folder.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(subprocess, "run", start)
        asyncio.run(agent._apply(httpx.AsyncClient(), order))
        monkeypatch.setattr(pool_agent, "_MAX_SCRATCH_PATH", len(str(agent._folder / pool_agent.SCRATCH)))
        assert agent._make_scratch() == (None if folders[-1] is None else Path(folders[-1]))
        monkeypatch.setattr(pool_agent, "_MAX_SCRATCH_PATH", len(str(agent._folder / pool_agent.SCRATCH)) - 1)
        assert agent._make_scratch() is None
    own = None if chosen == "/site/scratch" else str(tmp_path / "agents/b/scratch")
    assert folders == [own, None]
    assert (agent._folder / pool_agent.SCRATCH).is_dir() is (own is not None)
