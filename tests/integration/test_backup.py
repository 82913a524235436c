"""A bad night: a platform is backed up while a job trains, is lost, and comes back under another path."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import fork_server
from tests.contract.store.servers import find_programs, run_postgres
from tests.integration.serving import ROOT, Asker, Server, pids_of, servers_of, wait_until
from tests.tiers import first_now

from legato.client.packing import pack

PROGRAM = ROOT / "tests/integration/programs/slow.py"
EPOCHS, STEP_S = 40, 0.3  # a minute and a half: longer than what happens to it meanwhile
SETTINGS = {"slots": 2, "loop_interval_s": 0.2, "stability_s": 0.2}


def legato(*words: object) -> str:
    done = subprocess.run([sys.executable, "-m", "legato.cli", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program computes without anything of a platform."""
    file = tmp_path_factory.mktemp("alone") / "result"
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")}
    done = fork_server.run([sys.executable, str(PROGRAM), str(EPOCHS), str(file)], env=environment)
    assert done.returncode == 0, done.stderr
    return file.read_text()


@pytest.fixture(params=first_now(["sqlite", "postgresql"]))
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[dict[str, str]]]:
    """The settings of the store that is lost, and of the one that takes its place."""
    if request.param == "sqlite":
        yield [{}, {}]
        return
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with run_postgres(programs) as url:
        import psycopg

        with psycopg.connect(url.format("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE other")
        yield [{"database_url": url.format(name)} for name in ("postgres", "other")]


def submit(ask: Asker, tmp_path: Path) -> str:
    (tmp_path / "slow").touch()
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_bytes(PROGRAM.read_bytes())
    packed = pack(tmp_path / "code")
    assert ask.http.put(f"code/{packed.sha256}", content=packed.content).status_code == 201
    body = {
        "name": "mnist",
        "program": ["train.py", str(EPOCHS), "result", str(STEP_S), str(tmp_path / "slow")],
        "code": packed.sha256,
        "max_workers": 2,
        "checkpoint_every": "5steps",
        "environment": {"OWN": f"{tmp_path}/home/data"},
    }
    return str(ask.post("jobs", body, 201)["id"])


def step_of(job: Any) -> int:
    return (job["progress"] or {}).get("step") or 0


@pytest.mark.timeout(300)
def test_a_job_goes_on_exactly_in_a_platform_that_was_restored_elsewhere(
    databases: list[dict[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    home, new = tmp_path / "home", tmp_path / "elsewhere" / "new"
    new.parent.mkdir()
    old_store, new_store = databases
    flags = [f"--database-url={url}" for url in old_store.values()]
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(servers_of(home, monkeypatch))
        server = Server(home, **SETTINGS, **old_store)
        made.append(server)
        if flags:
            legato("server", "upgrade", "--home", home, *flags)
        server.start()
        ask = Asker(server)
        job = submit(ask, tmp_path)
        ask.wait(f"jobs/{job}", lambda found: step_of(found) > 10)
        told = legato("server", "backup", tmp_path / "backup", "--home", home, *flags)
        assert "contains 1 jobs" in told
        reached = step_of(ask.get(f"jobs/{job}"))
        ask.wait(f"jobs/{job}", lambda found: step_of(found) > reached)
        # The bad night: everything stops at once, and the disk is gone.
        server.kill()
        for pid in pids_of(home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not pids_of(home), "processes are left")
        shutil.rmtree(home)

        flags = [f"--database-url={url}" for url in new_store.values()]
        told = legato("server", "restore", tmp_path / "backup", "--home", new, *flags)
        assert "with 1 jobs, of which 1 resume" in told
        others = stack.enter_context(servers_of(new, monkeypatch))
        restored = Server(new, **SETTINGS, **new_store)
        restored.secret = server.secret
        others.append(restored)
        restored.start()
        ask = Asker(restored)
        found = ask.get(f"jobs/{job}")
        assert found["stage"] in ("starting", "running")
        ask.wait(f"jobs/{job}", lambda found: step_of(found) > 10)
        (tmp_path / "slow").unlink()
        ended = ask.wait(f"jobs/{job}", lambda found: found["ended_at"] is not None, limit_s=120)
        assert (ended["stage"], ended["num_retries"]) == ("succeeded", 0), ended
        assert (new / "jobs" / job / "work/result").read_text() == weights
        events = (new / "jobs" / job / "events.jsonl").read_text()
        assert "checkpoint" in events, "it went on from a checkpoint, not from the beginning"
        assert not home.exists(), "nothing was written to the old path"
        (attempt,) = ask.get(f"jobs/{job}/attempts")["items"]
        assert attempt["outcome"] == "succeeded"
