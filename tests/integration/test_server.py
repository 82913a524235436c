"""A real server with real jobs: stopped, killed, started again, taken over; the jobs notice nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests import fork_server
from tests.contract.store.servers import find_programs, run_postgres
from tests.integration.serving import LIMIT_S, ROOT, Asker, Server, pids_of, servers_of, wait_until

from legato.client.packing import pack
from legato.control.settings import Settings
from legato.server.serving import upgrade_store

PROGRAM = ROOT / "tests/integration/programs/slow.py"
EPOCHS, WAIT_S = 24, 0.25  # 192 steps, so no less than 48 s, unless the test lets it go before
SETTINGS = {"slots": 2, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}

NewServer = Callable[..., Server]


@pytest.fixture
def new_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewServer]:
    with servers_of(tmp_path / "home", monkeypatch) as made:

        def new(**settings: Any) -> Server:
            made.append(Server(tmp_path / "home", **{**SETTINGS, **settings}))
            return made[-1]

        yield new


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program computes without anything of a platform."""
    file = tmp_path_factory.mktemp("alone") / "result"
    environment = {**os.environ, "LEGATO_SEED": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT / "src")}
    done = fork_server.run([sys.executable, str(PROGRAM), str(EPOCHS), str(file)], env=environment)
    assert done.returncode == 0, done.stderr
    return file.read_text()


def submit(ask: Asker, tmp_path: Path, want: int = 201) -> str:
    """Upload the program and submit it; it is slow until `hurry`."""
    (tmp_path / "slow").touch()
    folder = tmp_path / "code"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_bytes(PROGRAM.read_bytes())
    packed = pack(folder)
    uploaded = ask.http.put(f"code/{packed.sha256}", content=packed.content)
    assert uploaded.status_code in (200, 201), uploaded.text
    body = {
        "name": "mnist",
        "program": ["train.py", str(EPOCHS), "result", str(WAIT_S), str(tmp_path / "slow")],
        "code": packed.sha256,
        "max_workers": 2,
    }
    made: str = ask.post("jobs", body | {"seed": 3}, want, **{"Idempotency-Key": "one"})["id"]
    return made


def hurry(tmp_path: Path) -> None:
    """Let the program come to its end: everything that the test does to its server has happened."""
    (tmp_path / "slow").unlink()


def num_steps(home: Path, job: str) -> int:
    """How many steps are written down, without asking a server."""
    file = home / "jobs" / job / "ledger.jsonl"
    return len(file.read_bytes().splitlines()) if file.exists() else 0


def trains(job: Any) -> bool:
    return job["stage"] == "running" and (job["progress"] or {}).get("step") is not None


def seqs(messages: list[dict[str, str]]) -> list[int]:
    return [int(message["id"]) for message in messages if "id" in message]


def check_done(ask: Asker, home: Path, job: str, weights: str) -> None:
    """Check that a job ended as if nothing had happened to its server."""
    ended = ask.wait(f"jobs/{job}", lambda found: found["ended_at"] is not None, limit_s=120)
    assert (ended["stage"], ended["exit_code"], ended["num_retries"]) == ("succeeded", 0, 0), ended
    digest = ask.http.get(f"jobs/{job}/files/work/result").text
    assert digest == weights
    (loss,) = ask.get(f"jobs/{job}/metrics")["series"]
    assert (loss["name"], loss["source"]) == ("loss", "backward"), "the program logs nothing itself"
    assert loss["step"] == list(range(1, EPOCHS * 8 + 1)), "each step once, although servers were killed"
    held = ask.get(f"jobs/{job}/allocations")["items"]
    assert all(one["until"] is not None for one in held)
    assert [slot["is_free"] for slot in ask.get("slots")["items"]] == [True, True]
    wait_until(lambda: pids_of(home) == set(), "processes are left over")


@pytest.mark.timeout(300)
def test_a_server_that_is_stopped_and_killed(new_server: NewServer, tmp_path: Path, weights: str) -> None:
    """One job, three lives of its server: the first ends politely, the second is killed, the third sees the end."""
    server = new_server()
    home = server.home
    server.start()
    ask = Asker(server)
    job = submit(ask, tmp_path)
    # The user who runs the server is logged in on its machine, without a token copied anywhere.
    environment = {**os.environ, "LEGATO_HOME": str(home), "XDG_CONFIG_HOME": str(tmp_path / "none")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    listed = subprocess.run(
        [sys.executable, "-c", "from legato.cli.main import main; main()", "ps", "-o", "json"],
        check=True,
        capture_output=True,
        env=environment,
    )
    assert [found["id"] for found in json.loads(listed.stdout)] == [job]
    ask.wait(f"jobs/{job}", trains)
    pids = pids_of(home)
    with ask.follow(f"jobs/{job}/events") as messages:
        first = [next(messages) for _ in range(3)]
        assert server.stop() == 0
        first += list(messages)
    assert server.told[-1] == "Legato has stopped. 1 job keeps running; the next start finds it."
    assert not (home / "server.json").exists()
    assert "end" not in {message["event"] for message in first}, "the job has not ended, only the server"
    assert pids <= pids_of(home), "driver and workers run on"
    done = num_steps(home, job)
    wait_until(lambda: num_steps(home, job) > done, "it does not train without a server")

    before = (home / "first-login.txt").read_text()
    server.start()
    assert "lgt_" not in str(server.told)
    assert (home / "first-login.txt").read_text() == before, "there is one first start"
    ask = ask.at(server)
    ask.wait("pool", lambda pool: pool["summary"] is not None)
    ask.wait(f"jobs/{job}", lambda found: (found["progress"] or {}).get("step", 0) > done)
    with ask.follow(f"jobs/{job}/events", **{"Last-Event-ID": first[-1]["id"]}) as messages:
        server.kill()
        second = list(messages)
    assert pids <= pids_of(home)
    done = num_steps(home, job)
    wait_until(lambda: num_steps(home, job) > done, "it does not train without a server")

    server.start()
    hurry(tmp_path)
    ask = ask.at(server)
    last = second[-1]["id"] if second else first[-1]["id"]
    with ask.follow(f"jobs/{job}/events", **{"Last-Event-ID": last}) as messages:
        third = list(messages)
    assert third[-1]["event"] == "end"
    told = seqs([*first, *second, *third])
    assert told == sorted(set(told)), "each event once, in order"
    stored = [event["seq"] for event in ask.get(f"jobs/{job}/events")["items"]]
    assert told == stored, "none was left out"
    check_done(ask, home, job, weights)
    (attempt,) = ask.get(f"jobs/{job}/attempts")["items"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, "succeeded"), "it was adopted, not run again"
    assert submit(ask, tmp_path, want=200) == job, "the same request makes no second job, in no life of the server"
    assert server.stop(signal.SIGINT) == 0


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_pause_resume_and_logs_while_servers_come_and_go(new_server: NewServer, tmp_path: Path, weights: str) -> None:
    server = new_server()
    server.start()
    ask = Asker(server)
    job = submit(ask, tmp_path)
    ask.wait(f"jobs/{job}", trains)
    ask.post(f"jobs/{job}/pause")
    server.kill()
    server.start()
    ask = ask.at(server)
    paused = ask.wait(f"jobs/{job}", lambda found: found["stage"] == "paused")
    assert paused["num_slots"] == 0
    assert ask.get(f"jobs/{job}/checkpoints")["items"], "its state is saved"
    wait_until(lambda: pids_of(server.home) == set(), "a paused job has no process")
    ask.post(f"jobs/{job}/resume")
    ask.wait(f"jobs/{job}", trains)
    server.kill()
    server.start()
    ask = ask.at(server)
    with ask.follow(f"jobs/{job}/logs?log=driver") as messages:
        hurry(tmp_path)
        told = list(messages)
    assert told[-1]["event"] == "end"
    assert "The job succeeded" in "".join(json.loads(one["data"])["text"] for one in told if one["event"] == "log")
    check_done(ask, server.home, job, weights)
    assert [one["outcome"] for one in ask.get(f"jobs/{job}/attempts")["items"]] == ["paused", "succeeded"]


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_another_server_takes_over(new_server: NewServer, tmp_path: Path, weights: str) -> None:
    """Two servers on one PostgreSQL: one decides, the other answers; the one that decides is killed."""
    programs = find_programs()
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed; CI must have it")
        pytest.skip("PostgreSQL is not installed: SERVERS THAT TAKE OVER ARE NOT TESTED")
    with run_postgres(programs) as url:
        where = {"database_url": url.format("postgres"), "lease_s": 2}
        refused = new_server(**where).spawn()
        told, _ = refused.communicate(timeout=LIMIT_S)
        assert refused.returncode == 2 and "it has no tables" in told and "legato server upgrade" in told
        migrate(where["database_url"])
        first, second, answers_only = new_server(**where), new_server(**where), new_server(runs_jobs=False, **where)
        first.start()
        second.start()
        answers_only.start()
        secret = first.secret
        ask = Asker(answers_only, secret)
        wait_until(lambda: "leading" in ready(first), "no server decides")
        assert "following" in ready(second) and "following" in ready(answers_only)
        job = submit(ask, tmp_path)
        ask.wait(f"jobs/{job}", trains)
        pids = pids_of(first.home)
        first.kill()
        wait_until(lambda: "leading" in ready(second), "no server takes over")
        assert pids <= pids_of(first.home)
        hurry(tmp_path)
        check_done(ask, first.home, job, weights)
        assert [one["attempt"] for one in ask.get(f"jobs/{job}/attempts")["items"]] == [1]
        owners = [event["reason"] for event in ask.get("events")["items"] if event["kind"] == "lease"]
        assert len(owners) == 2 and " runs the control loop, after " in owners[1]
        # A polite end gives the lease up: the next one need not wait for it.
        assert second.stop() == 0
        wait_until(lambda: "late" in ready(answers_only), "the lease was not given up")
        assert answers_only.stop() == 0


def migrate(url: str) -> None:
    upgrade_store(Settings(database_url=url))


def ready(server: Server) -> str:
    return httpx.get(f"{server.url}/readyz", timeout=LIMIT_S).text


def test_a_second_server_on_the_same_directory_is_refused(new_server: NewServer) -> None:
    server = new_server()
    server.start()
    second = new_server().spawn()
    told, _ = second.communicate(timeout=LIMIT_S)
    assert second.returncode == 2
    assert told.startswith("refused: Cannot start: another server runs on")
    told = json.loads((server.home / "server.json").read_bytes())
    assert told["url"] == server.url
    server.kill()
    server.start()
    assert Asker(server, server.secret).get("me")["name"] == "admin", "a killed one does not keep others out"
