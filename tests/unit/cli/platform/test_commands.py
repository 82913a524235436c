"""The requests, the output and the exit code of each command, and what it refuses."""

from __future__ import annotations

import functools
import importlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import tarfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import typer.main
from tests.unit.cli.conftest import Call
from tests.unit.client.platform import NOW, TOKEN, URL, Platform, stream

from legato.cli import main
from legato.cli.platform import attach, completion, login, sharing
from legato.cli.terminal.formatting import render_clock
from legato.client import servers
from legato.client.retries import NotTrusted
from legato.client.servers import KnownServers, Server, find_file, read_known
from legato.control.store.usage import KEPT_S
from legato.core.errors import UsageError
from legato.driver.journal import JobDirectory, JobJournal, Outcome
from legato.system.certificates import make_authority
from legato.system.tls import fingerprint

SPEC = {"max_workers": 4, "num_workers": 1}


@pytest.fixture
def job(platform: Platform) -> dict[str, Any]:
    return platform.add_job(1)


@pytest.fixture
def script(place: Path) -> str:
    (place / "here" / "train.py").write_text("print('hello')\n")
    return "train.py"


def sent(platform: Platform, number: int = -1) -> dict[str, Any]:
    return json.loads(platform.requests[number].content)


def follow(platform: Platform, job: str, *messages: Any, log: Any = ()) -> None:
    """Let a job send these messages when a client follows it."""
    platform.streams[f"/jobs/{job}/logs"] = deque([stream(*log, ("end", {}, None))])
    platform.streams[f"/jobs/{job}/events"] = deque([stream(*messages, ("end", {}, None))])


def stage(seq: int, to: str, reason: str) -> Any:
    event = {"seq": seq, "time": NOW, "kind": "stage", "reason": reason, "job": "j", "attempt": 1}
    return "stage", event | {"detail": {"to": to}}, str(seq)


def line(worker: int, text: str) -> Any:
    return "log", {"log": f"worker-{worker}", "text": text}, f"worker-{worker}=1"


# ---------------------------------------------------------------- submit


def test_submit_says_what_flags_say(platform: Platform, call: Call, script: str) -> None:
    platform.add_queue("night")
    flags = [
        *("--workers", "2..4", "--name", "mnist", "-q", "night", "-p", "7000", "-l", "team=vision", "-l", "run=1"),
        *("-e", "DATA=/data", "--retries", "2", "--max-time", "12h", "--threads", "2", "--micro-batches", "16"),
        *(
            "--data",
            "/mnt/digits",
            "--seed",
            "7",
            "--checkpoint-every",
            "1epochs",
            "--keep",
            "5",
            "--heartbeat-limit",
            "7",
            "--collective-limit",
            "600",
            "--key",
            "k",
            "--parameter",
            "rate=0.5",
            "--param",
            "wide",
            "--framework",
            "legato",
            "--detach",
        ),
    ]
    code, out, _ = call("submit", *flags, script, "--", "--epochs", "3", "-w", "x")
    assert (code, out) == (
        0,
        "legato: job 'mnist' is submitted as j-0000000001. To watch it: legato attach j-0000000001.\n",
    )
    body = sent(platform)
    assert body == {
        "name": "mnist",
        "program": ["train.py", "--epochs", "3", "-w", "x"],
        "code": body["code"],
        "min_workers": 2,
        "max_workers": 4,
        "queue": "night",
        "priority": 7000,
        "labels": {"team": "vision", "run": "1"},
        "environment": {"DATA": "/data"},
        "data": "/mnt/digits",
        "seed": 7,
        "max_retries": 2,
        "max_run_s": 43200.0,
        "num_threads": 2,
        "num_micro_batches": 16,
        "checkpoint_every": "1epochs",
        "keep": 5,
        "heartbeat_limit_s": 7.0,
        "collective_limit_s": 600.0,
        "parameters": {"rate": 0.5, "wide": True},
        "framework": "legato",
    }
    assert platform.requests[-1].headers["idempotency-key"] == "k"
    call("submit", "-d", "--static", "--max-workers", "3", "--directory", "/work", "far.py", "a")
    assert sent(platform) == {
        "name": "far",
        "program": ["far.py", "a"],
        "directory": "/work",
        "max_workers": 3,
        "is_elastic": False,
    }


def test_a_large_upload_is_reported_before_it_begins(platform: Platform, call: Call, script: str) -> None:
    assert call("submit", "-d", script)[2] == "", "little code"
    for number in range(1000):
        Path(f"{number}.txt").touch()
    told = "legato: uploading 1001 files, "
    assert call("submit", "-d", script)[2].startswith(told)
    assert call("submit", "-d", script)[2] == "", "it is there already"
    assert call("submit", "-d", "-o", "json", script)[2] == ""
    Path("noise.bin").write_bytes(os.urandom(11 * 2**20))
    (err,) = call("submit", "-d", script)[2].splitlines()
    assert err.startswith(
        "legato: uploading 1002 files, 11.0 MiB packed. To leave out files that the program does not need"
    )


JOB_FILE = """
name: mnist
program: train.py --epochs 20
workers: 1..4
code: src
priority: 6000
labels: {team: vision, run: 7, big: true}
framework: legato
parameters: {rate: 0.1, wide: true, title: a b, deep: 3}
environment: {DATA: /data}
"""


def test_what_an_answer_warns_of_is_printed_but_not_among_the_results(
    platform: Platform, call: Call, script: str
) -> None:
    call("submit", "-d", script)
    for flags in ([], ["-o", "json"]):
        platform.faults.append(lambda _, do: do())  # the code is there already
        platform.warn("memory is not limited here \x1b[2J")
        _, out, err = call("submit", "-d", *flags, script)
        assert err == "legato: memory is not limited here ?[2J\n"
        assert "not limited" not in out


def test_submit_reads_a_file_and_flags_win(platform: Platform, call: Call, place: Path) -> None:
    (place / "project" / "src").mkdir(parents=True)
    (place / "project" / "src" / "train.py").write_text("")
    (place / "project" / "job.yaml").write_text(JOB_FILE)
    flags = ("-p", "9000", "-l", "team=audio", "--parameter", "deep=4")
    call("submit", "-d", *flags, "../project/job.yaml", "--", "--lr", "1")
    body = sent(platform)
    assert (body["program"], body["priority"]) == (["train.py", "--epochs", "20", "--lr", "1"], 9000)
    assert (body["min_workers"], body["max_workers"]) == (1, 4)
    assert body["labels"] == {"team": "audio", "run": "7", "big": "true"}
    assert body["environment"] == {"DATA": "/data"}
    assert body["parameters"] == {"rate": 0.1, "wide": True, "title": "a b", "deep": 4}
    assert body["framework"] == "legato"
    with tarfile.open(fileobj=io.BytesIO(platform.code[body["code"]])) as tar:
        assert tar.getnames() == ["train.py"]
    (place / "project" / "job.yaml").write_text("program: [src/train.py, 3]\ndirectory: /work\n")
    call("submit", "-d", "../project/job.yaml")
    assert sent(platform) == {"name": "train", "program": ["src/train.py", "3"], "directory": "/work"}
    (place / "project" / "job.yaml").write_text("program: [src/train.py]\n")
    call("submit", "-d", "../project/job.yaml")
    assert sent(platform)["program"] == ["src/train.py"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", "it must be a list of 'field: value'"),
        ("- a", "it must be a list of 'field: value'"),
        ("a: [", "Cannot read 'job.yaml'"),
        ("program: train.py\nmax_worker: 3", "no field 'max_worker'. Did you mean max_workers?"),
        ("program: train.py\nworkers: 4\nmax_workers: 4", "Use one of the two ways"),
        ("program: train.py\nworkers: many", "Cannot read the number of workers 'many'"),
        ("name: x", "Cannot read 'program'"),
        ("program: {a: b}", "Cannot read 'program'"),
        ("program: 'a \"b'", "Cannot read 'program'"),
        ("program: train.py\nlabels: [a]", "Cannot read 'labels'"),
        ("program: train.py\nparameters: {a: [1]}", "Cannot read 'parameters'"),
        ("program: nowhere.py", "there is no such file"),
    ],
)
def test_a_file_that_is_no_job_is_refused(platform: Platform, call: Call, script: str, text: str, want: str) -> None:
    Path("job.yaml").write_text(text)
    code, out, err = call("submit", "job.yaml")
    assert (code, out) == (2, "")
    assert want in err
    assert platform.requests == []


def test_submit_follows_the_job_to_its_end(platform: Platform, call: Call, script: str) -> None:
    follow(
        platform,
        "j-0000000001",
        stage(1, "queued", "submitted by 'anna'"),
        ("granted", {**stage(2, "", "starts with 2 slots")[1], "kind": "granted"}, "2"),
        ("decision", {**stage(3, "", "starts with 2 slots")[1], "kind": "decision"}, "3"),
        stage(4, "starting", "starts with 2 slots"),
        stage(5, "failed", "worker 0 died"),
        log=[line(0, "epoch 0\nepoch 1\n")],
    )
    platform.faults.extend([None, None])  # the code

    def end(request: httpx.Request, do: Any) -> httpx.Response:
        answer = do()
        platform.jobs["j-0000000001"] |= {"stage": "failed", "reason": "worker 0 died", "exit_code": 7}
        return answer

    platform.faults.append(end)
    code, out, err = call("submit", script)
    assert code == 7
    assert set(out.splitlines()) == {
        "legato: job 'train' is submitted as j-0000000001. Ctrl-C stops watching; the job keeps running.",
        "epoch 0",
        "epoch 1",
        "legato: 14:13:20 queued    submitted by 'anna'",
        "legato: 14:13:20 decided   starts with 2 slots",
        "legato: 14:13:20 failed    worker 0 died",
    }
    assert err == (
        "legato: job 'train' has failed: worker 0 died.\n"
        "legato: all logs: 'legato logs j-0000000001'; the driver's log: 'legato logs j-0000000001 --driver'.\n"
    )


def test_ctrl_c_stops_watching_and_never_stops_the_job(
    platform: Platform, call: Call, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(attach, "_show", interrupt)
    code, out, err = call("attach", "mnist")
    assert (code, out) == (0, "")
    assert err == (
        "legato: detached; job 'mnist' keeps running. To watch it again: legato attach j-0000000001. "
        "To stop it: legato stop j-0000000001.\n"
    )
    assert {request.method for request in platform.requests} == {"GET"}


def test_the_end_of_following_is_reported(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    follow(platform, job["id"])
    platform.streams[f"/jobs/{job['id']}/logs"] = deque(
        [
            httpx.Response(
                403,
                json={
                    "type": "urn:legato:problem:forbidden",
                    "title": "",
                    "status": 403,
                    "detail": "Your token was revoked. Log in.",
                },
            )
        ]
    )
    code, _, err = call("attach", "mnist")
    assert (code, err) == (2, "legato: Your token was revoked. Log in.\n")
    follow(platform, job["id"])
    platform.streams[f"/jobs/{job['id']}/logs"] = deque([httpx.Response(500, json={})])
    code, _, err = call("attach", "mnist")
    assert code == 1
    assert err.endswith("The job keeps running. To watch it again: legato attach j-0000000001.\n")


@pytest.mark.parametrize(
    ("stage", "exit_code", "want"),
    [("succeeded", 0, 0), ("stopped", 0, 0), ("stopped", 130, 130), ("stopped", None, 1), ("failed", None, 1)],
)
def test_attach_and_wait_end_as_the_job_did(
    platform: Platform, call: Call, job: dict[str, Any], stage: str, exit_code: int | None, want: int
) -> None:
    platform.jobs[job["id"]] |= {"stage": stage, "exit_code": exit_code}
    follow(platform, job["id"])
    assert call("attach", "mnist")[0] == want
    assert call("wait", "mnist")[0] == want


def test_the_worker_of_rank_0_speaks() -> None:
    told: list[Any] = []

    class Told:
        def __init__(self, kind: str, worker: int | None, view: int | None = None) -> None:
            self.seq, self.kind, self.worker, self.view = len(told) + 1, kind, worker, view

    def tell(kind: str, worker: int | None, view: int | None = None) -> None:
        told.append(Told(kind, worker, view))

    now = 0.0
    speaker = attach.Speaker(lambda after: told[after:], lambda: now)
    for worker in (0, 1, 2):
        tell("started", worker)
    assert [speaker.speaks(worker) for worker in (2, 1, 0)] == [False, False, True]
    for worker in (1, 0, 2):
        tell("joined", worker, 1)
    now = 2.0
    assert [speaker.speaks(worker) for worker in (0, 1)] == [True, False]
    # Worker 0 dies; the others form the next view, with a new worker. The last output of worker 0 is shown too.
    tell("died", 0)
    tell("started", 3)
    for worker in (2, 3, 1):
        tell("joined", worker, 2)
    now = 4.0
    assert [speaker.speaks(worker) for worker in (3, 1, 0, 2)] == [False, True, True, False]
    # It is paused and continues with others.
    tell("stopped", None)
    tell("started", 4)
    tell("joined", 4, 1)
    assert speaker.speaks(4)
    # A later user sees the output from the present rank 0 on.
    late = attach.Speaker(lambda after: told[after:], lambda: now)
    assert [late.speaks(worker) for worker in (0, 1, 4)] == [False, False, True]


# ---------------------------------------------------------------- change


def test_set(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    platform.add_queue("night")
    platform.jobs[job["id"]]["labels"] = {"old": "1"}
    flags = ["--priority", "8000", "--queue", "night", "--workers", "2..3", "-l", "team=vision", "-l", "old="]
    assert call("set", "mnist", *flags)[1] == (
        "Job 'mnist': priority 5000 → 8000, queue default → night, labels old=1 → team=vision, workers 1..4 → 2..3 "
        "(version 4).\n"
    )
    assert "it has these values already" in call("set", "mnist", "-p", "8000")[1]
    code, _, err = call("set", "mnist", "-p", "1", "--if-version", "3")
    assert code == 2
    assert 'not "3"' in err
    assert call("set", "mnist", "-p", "1", "--if-version", "5")[0] == 0
    assert "notes none → lr too high" in call("set", "mnist", "--notes", "lr too high")[1]
    assert call("set", "mnist", "--notes", "")[1].startswith("Job 'mnist': notes lr too high → none")
    assert "notes none → a?[2Jb c (version" in call("set", "mnist", "--notes", "a\x1b[2Jb\nc")[1]


def test_pause_and_resume(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    assert call("pause", "mnist")[1] == (
        "Job 'mnist' saves its state and frees its slots. To resume it: legato resume mnist.\n"
    )
    platform.jobs[job["id"]]["stage"] = "running"
    platform.waited = lambda: platform.move(job["id"], "paused", "saved")
    assert call("pause", "mnist", "--wait")[1].startswith("Job 'mnist' is paused.")
    platform.waited = lambda: platform.move(job["id"], "running", "it trains")
    assert call("resume", "mnist", "--wait")[1] == "Job 'mnist' runs again, with 2 slots.\n"


def test_scale_and_set_while_a_job_starts(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    platform.jobs[job["id"]]["stage"] = "starting"
    assert "It is starting; the change takes effect when it trains." in call("scale", "mnist", "3")[1]
    assert (
        "(version 5). It is starting; the change takes effect when it trains.\n"
        in call("set", "mnist", "--workers", "2..3")[1]
    )
    assert "It is starting" not in call("set", "mnist", "--priority", "7")[1]


def test_scale_and_stop(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    assert call("scale", "mnist", "3")[1] == (
        "Job 'mnist' may have 1..3 workers now (it had 1..4). To see how many it gets: legato explain mnist.\n"
    )
    assert sent(platform) == {"max_workers": 3}
    call("scale", "mnist", "2..6")
    assert sent(platform) == {"min_workers": 2, "max_workers": 6}
    call("scale", "mnist", "1")
    assert sent(platform) == {"min_workers": 1, "max_workers": 1}, "the minimum goes down with it"
    platform.jobs[job["id"]] |= {"is_elastic": False, "min_workers": 2, "max_workers": 2}
    call("scale", "mnist", "4")
    assert sent(platform) == {"min_workers": 4, "max_workers": 4}
    assert call("stop", "mnist")[1].startswith("Job 'mnist' stops after the current step, with a checkpoint.")
    platform.jobs[job["id"]]["stage"] = "running"
    platform.waited = lambda: platform.move(job["id"], "stopped", "as asked", 0)
    assert call("stop", "mnist", "--now", "--wait")[1] == "Job 'mnist' is stopped.\n"
    assert [json.loads(one.content) for one in platform.requests if one.url.path.endswith("stop")][-1] == {"now": True}


def test_wait_for_a_time(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    code, _, err = call("wait", "mnist", "--timeout", "5s")
    assert (code, err) == (124, "legato: Job 'mnist' is running after 5 s: its driver reports that it trains.\n")
    assert call("wait", "mnist", "--until", "running")[:2] == (
        0,
        "Job 'mnist' is running: its driver reports that it trains.\n",
    )


def test_clone(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    out = call("clone", "mnist", "--name", "again", "--workers", "8")[1]
    assert (
        out == "Job 'again' (j-0000000002) is submitted as a clone of j-0000000001. "
        "To watch it: legato attach j-0000000002.\n"
    )
    assert sent(platform) == {"name": "again", "max_workers": 8}
    platform.specs[job["id"]]["parameters"] = {"rate": 0.1, "wide": True}
    had = job["labels"]
    call("clone", job["id"], "--parameter", "rate=0.5", "-l", "team=audio", "--seed", "7", "--max-time", "1h")
    assert sent(platform) == {
        "parameters": {"rate": 0.5, "wide": True},
        "labels": {**had, "team": "audio"},
        "seed": 7,
        "max_run_s": 3600.0,
    }


def test_logs(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    platform.logs = {"driver": "it starts\n", "worker-0": "a\nb\n", "worker-1": "c\n"}
    assert call("logs", "mnist")[1] == "0 | a\n0 | b\n1 | c\n"
    assert call("logs", "mnist", "-k", "0", "--tail", "1")[1] == "b\n"
    assert call("logs", "mnist", "--driver")[1] == "it starts\n"
    platform.streams[f"/jobs/{job['id']}/logs"] = deque([stream(line(1, "d\n"), ("end", {}, None))])
    assert call("logs", "mnist", "-f")[1] == "1 | d\n"


def test_following_events(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    def again() -> None:
        platform.streams["/jobs/j-0000000001/events"] = deque([stream(stage(1, "running", "so"), ("end", {}, None))])

    again()
    assert call("events", "mnist", "-f")[1] == "14:13:20  stage     running: so\n"
    again()
    assert json.loads(call("events", "mnist", "-f", "-o", "json")[1])["reason"] == "so"
    platform.streams["/events"] = deque([stream(stage(1, "running", "so"), ("end", {}, None))])
    call("events", "-f")
    assert platform.asked()[-1] == "GET /api/v1/events?after=now"


def test_download(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    platform.files = {"work/a.txt": b"a", "work/out/b.txt": b"bb", "checkpoints/step-7.legato": b"ccc"}
    assert (
        call("download", "mnist")[1]
        == "3 files of job 'mnist' are in 'mnist' (later uploads of code skip this folder).\n"
    )
    assert Path("mnist/work/out/b.txt").read_text() == "bb"
    assert call("download", "mnist", "work/a.txt", "--to", ".")[1] == "1 file of job 'mnist' is in '.'.\n"
    code, _, err = call("download", "mnist")
    assert code == 2
    assert err.endswith("exists already. Choose another place, or overwrite with --overwrite.\n")
    assert call("download", "mnist", "--overwrite")[0] == 0
    assert [row.split()[0] for row in call("download", "mnist", "--list")[1].splitlines()] == [
        *("PATH", "checkpoints/", "work/")
    ]
    platform.canned["checkpoints"] = {"items": []}
    assert "no checkpoint yet" in call("download", "mnist", "--checkpoint")[2]
    newest = {"step": 7, "path": "checkpoints/step-7.legato", "num_bytes": 3, "modified_at": NOW}
    platform.canned["checkpoints"] = {"items": [newest]}
    written = json.loads(call("download", "mnist", "--checkpoint", "--to", "ck", "-o", "json")[1])
    assert written == ["ck/step-7.legato"]


# ---------------------------------------------------------------- queues and people


def test_queues_are_changed(platform: Platform, call: Call) -> None:
    out = call("queues", "set", "night", "--weight", "2", "--ceiling", "8", "--closed", "--member", "ann")[1]
    assert out.splitlines()[1].split() == ["night", "2", "0", "8", "0", "0", "0", "ann"]
    call("queues", "set", "night", "--ceiling", "none", "--no-members")
    assert (platform.queues["night"]["ceiling"], platform.queues["night"]["members"]) == (None, [])
    assert call("queues", "delete", "night")[1] == "Queue 'night' is deleted.\n"


def test_people(platform: Platform, call: Call) -> None:
    out = call("users", "add", "ben", "--password-stdin", given="geheim-1234\n")[1]
    assert out == "User 'ben' is added, with the role 'user', and can log in with the password.\n"
    assert "needs a token: 'legato tokens add NAME --user eve'" in call("users", "add", "eve", "--role", "viewer")[1]
    assert call("users", "set", "eve", "--disable")[1] == "User 'eve' is disabled.\n"
    assert "has the role 'admin'" in call("users", "set", "eve", "--enable", "--role", "admin")[1]
    assert [row.split()[:3] for row in call("users")[1].splitlines()[1:]] == [
        ["ben", "user", "yes"],
        ["eve", "admin", "no"],
    ]
    assert "is set" in call("users", "password", "ben", "--password-stdin", given="other-5678\n")[1]
    assert platform.password == "other-5678"
    platform.canned["/audit"] = {
        "items": [
            {"id": 1, "time": NOW, "who": "anna", "action": "user.create", "target": "ben", "detail": {"role": "user"}}
        ],
        "after": None,
    }
    assert call("audit")[1].splitlines()[1].endswith("anna  user.create  ben     role: user")
    call("users", "add", "anna")
    told = call("users", "password", "--password-stdin", given="other-5678\n")
    assert told[1] == "Your password is set, and your tokens are revoked. Log in again with 'legato login'.\n"


def test_a_token_is_shown_once_and_alone(platform: Platform, call: Call) -> None:
    code, out, err = call("tokens", "add", "ci", "--days", "30")
    assert (code, out) == (0, "lgt_fresh\n")
    assert "'ci'" in err
    assert platform.token_body == {"name": "ci", "days": 30.0}
    given = ("--user", "ben", "--role", "viewer", "--password-stdin")
    call("tokens", "add", "ci", *given, given="correct horse\n")
    assert platform.token_body == {"name": "ci", "user": "ben", "role": "viewer", "password": "correct horse"}
    listed = call("tokens")[1]
    assert "lgt_" not in listed
    assert call("tokens", "revoke", "t-0000000001")[1] == "Token 'ci' (t-0000000001) of 'anna' is revoked.\n"


SHARE = {
    "queue": "night",
    "weight": 2.0,
    "floor": 0,
    "ceiling": None,
    "fair": 2.6666,
    "held": 4,
    "borrowed": 1.3333,
    "wanted": 8,
}


def test_how_the_pool_is_shared(platform: Platform, call: Call) -> None:
    unknown = SHARE | {"queue": "day", "ceiling": 3, "fair": None, "borrowed": None}
    platform.canned["/pool/shares"] = {"items": [SHARE, unknown]}
    assert [row.split() for row in call("shares")[1].splitlines()[1:]] == [
        ["night", "2", "0", "none", "2.67", "4", "1.33", "8"],
        ["day", "2", "0", "3", "-", "4", "-", "8"],
    ]
    assert json.loads(call("shares", "-o", "json")[1])[1] == unknown
    use = {"queue": "day", "user": "ben", "slot_s": 7200.0, "num_slots": 0.5, "part": 0.25, "recent_slots": 2.5}
    use |= {"weight": 0.5}
    more = use | {"user": "ann", "slot_s": 21_600.0, "num_slots": 1.5, "part": 0.75, "recent_slots": None, "weight": 1}
    platform.canned["/pool/use"] = {"items": [use, more]}
    assert [row.split() for row in call("shares", "--over", "4h")[1].splitlines()[1:]] == [
        ["day", "ann", "6.0", "1.5", "75%", "-", "1"],
        ["day", "ben", "2.0", "0.5", "25%", "2.5", "0.5"],
    ]
    platform.canned["/pool/use"] = {"items": []}
    assert call("shares", "--over", "7d")[1] == "No user has used a slot in that time.\n"
    code, _, error = call("shares", "--over", "59m")
    assert code == 2 and "the use in 59m: use is counted by hour. Write --over 1h or more." in error
    code, _, error = call("shares", "--over", "91d")
    assert code == 2 and "the use in 91d: use is kept for 90 days. Write --over 90d or less." in error
    assert sharing._KEPT_S == KEPT_S
    platform.canned["/moves"] = {"items": []}
    assert call("moves")[1] == "No job got or gave up a GPU in that time.\n"
    move = {"time": NOW, "slot": "node/1", "from_job": None, "from_title": "anna/a", "to_job": None, "to_title": None}
    later = {"reason": "", "to_title": "ben/b", "taken_at": NOW + 60}
    both = {"taken_reason": "grows"}
    free = {"from_title": None}
    moves = [move | {"reason": "shrinks"}, move | later, move | later | {"reason": "shrinks"} | both]
    platform.canned["/moves"] = {"items": [*moves, move | later | free | both]}
    head, *rows = (
        re.split(r"  +", row.strip()) for row in call("moves", "--since", "8h", "--limit", "7")[1].splitlines()
    )
    assert head == ["ASKED", "SLOT", "FROM", "TO", "TAKEN", "REASON"]
    assert [row[1:] for row in rows] == [
        ["node/1", "anna/a", "-", "-", "shrinks"],
        ["node/1", "anna/a", "ben/b", taken := render_clock(NOW + 60, NOW)],
        ["node/1", "anna/a", "ben/b", taken, "shrinks; ben/b grows"],
        ["node/1", "free", "ben/b", taken, "grows"],
    ]
    assert [row[0] == "-" for row in rows] == [False, False, False, True]
    asked = platform.requests[-1].url.params
    assert (float(asked["since"]), asked["limit"]) == (NOW - 8 * 3600, "7")


def test_the_timeline_of_slots(platform: Platform, call: Call) -> None:
    lines = [
        {"key": "j-1", "title": "anna/a", "times": [NOW - 7200, NOW - 3600], "slots": [4, 1]},
        {"key": None, "title": None, "times": [NOW - 1800], "slots": [2]},
        {"key": "", "title": "", "times": [], "slots": []},
    ]
    told = {"since": NOW - 7200, "until": NOW, "num_slots": {"times": [], "values": []}, "items": lines}
    platform.canned["/timeline"] = told
    rows = [row.split() for row in call("timeline", "--since", "2h", "--by", "project", "a", "b")[1].splitlines()[1:]]
    assert [row[:-1] for row in rows] == [
        ["anna/a", "1", "4", "1", "5.00"],
        ["others", "2", "2", "2", "1.00"],
        ["no", "project", "0", "0", "0", "0.00"],
    ]
    assert (rows[0][-1][0], rows[0][-1][-1], len(rows[0][-1])) == ("█", "▁", 24)
    asked = platform.requests[-1].url.params
    assert (float(asked["since"]), asked["by"], asked.get_list("job")) == (NOW - 7200, "project", ["a", "b"])
    platform.add_job(5, owner="bob", name="mnist")
    call("timeline", "bob/mnist", "c")
    assert platform.requests[-1].url.params.get_list("job") == ["j-0000000005", "c"]
    assert json.loads(call("timeline", "-o", "json")[1]) == told
    platform.canned["/timeline"] = told | {"items": []}
    assert call("timeline")[1] == "No job held a GPU in that time.\n"
    assert "Write job or owner or queue or project" in call("timeline", "--by", "node")[2]


def test_what_another_queue_would_mean(platform: Platform, call: Call) -> None:
    platform.add_queue("night")
    reason = "in the end anna/a 2 → 1"
    platform.canned["/queues/plan"] = {"effects": [], "shares": [SHARE], "reason": reason}
    assert call("queues", "plan", "night", "--weight", "2", "--ceiling", "none")[1].splitlines()[-1] == reason
    assert sent(platform) == {"queues": [{"name": "night", "weight": 2.0, "floor": 0, "ceiling": None}]}
    call("queues", "plan", "new", "--floor", "1")
    assert sent(platform) == {"queues": [{"name": "new", "floor": 1}]}
    assert json.loads(call("queues", "plan", "night", "-o", "json")[1])["reason"] == reason


def test_logs_from_a_time_on(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    below = f"/jobs/{job['id']}/logs"
    platform.logs = {"worker-0": "early\nlate\n", "worker-1": "first\nlater\n", "driver": "it starts\n"}
    for log, offset in (("worker-0", 6), ("worker-1", 6), ("driver", 0)):
        platform.canned[f"{below}/{log}/at"] = {"offset": offset, "time": NOW - 600}
    assert call("logs", "mnist", "--since", "10m")[1] == "0 | late\n1 | later\n"
    times = [float(one.url.params["time"]) for one in platform.requests if one.url.path.endswith("/at")]
    assert times == [NOW - 600] * 2
    assert call("logs", "mnist", "-k", "1", "--since", "10m")[1] == "later\n"
    assert call("logs", "mnist", "--driver", "--since", "10m")[1] == "it starts\n"
    for more in (("--follow",), ("--tail", "3"), ("--search", "a")):
        assert "--since cannot be combined with other options" in call("logs", "mnist", "--since", "10m", *more)[2]
    assert "it is for jobs of a platform" in call("logs", "mnist", "--local", "--since", "10m")[2]


def test_logs_are_searched(platform: Platform, call: Call, job: dict[str, Any]) -> None:
    below = f"/jobs/{job['id']}/logs"
    platform.canned[below] = {
        "items": [{"log": name, "num_bytes": 1, "modified_at": NOW} for name in ("driver", "worker-3")]
    }
    line = {"offset": 0, "time": None, "level": "error", "text": "it broke"}
    for log in ("worker-3", "driver"):
        platform.canned[f"{below}/{log}/search"] = {"items": [line | {"text": f"{log} broke"}], "after": None, "end": 9}
    assert call("logs", job["id"], "--search", "Broke", "--level", "warning")[1] == "3 | worker-3 broke\n"
    asked = platform.requests[-1].url.params
    assert (asked["contains"], asked["level"], asked["after"]) == ("Broke", "warning", "0")
    assert call("logs", job["id"], "--level", "error", "--driver")[1] == "driver broke\n"
    for flags in (["--follow"], ["--tail", "3"]):
        code, _, err = call("logs", job["id"], "--search", "x", *flags)
        assert code == 2 and "cannot be combined with --follow or --tail" in err
    code, _, err = call("logs", job["id"], "--level", "loud")
    assert code == 2 and "Cannot read the level 'loud'" in err
    code, _, err = call("logs", "mine", "--local", "--search", "x")
    assert code == 2 and "are for jobs of a platform" in err


@pytest.mark.parametrize("has_browser", [True, False])
def test_the_console_is_opened_where_the_user_sees_it(
    platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch, has_browser: bool
) -> None:
    opened: list[str] = []

    def open_page(url: str) -> bool:
        opened.append(url)
        return has_browser

    monkeypatch.setattr("webbrowser.open", open_page)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    platform.canned["/session/links"] = {"code": "lgc_once", "expires_at": NOW + 3600}
    code, out, err = call("console")
    assert (code, out, opened) == (0, f"{URL}/#/welcome?code=lgc_once\n", [f"{URL}/#/welcome?code=lgc_once"])
    assert TOKEN not in out + err
    assert ("is opened in your browser" in err) is has_browser and "It works once, until" in err
    assert call("console", "--no-browser")[1] == out
    monkeypatch.delenv("DISPLAY")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert call("console")[1] == out
    assert len(opened) == 1


# ---------------------------------------------------------------- which platform


def test_login_with_a_token(platform: Platform, call: Call) -> None:
    out = call("login", URL, "--name", "prod", "--token-stdin", given=f"{TOKEN}\n")[1]
    assert out == (f"You are logged in to {URL} as 'anna' (admin). It is now the current platform (--server prod).\n")
    known = read_known(find_file())
    assert (known.current, known.servers["prod"].token) == ("prod", TOKEN)
    call("config", "use", "test")
    assert call("config", "servers")[1] == (
        "   NAME  USER  ADDRESS\n*  test  anna  http://platform.test\n   prod  anna  http://platform.test\n"
    )
    assert TOKEN not in call("config", "servers", "-o", "json")[1]


def test_login_with_a_password_and_out_again(platform: Platform, call: Call) -> None:
    platform.say("unauthenticated", 401, "Cannot log in: the name or the password is wrong.")
    code, _, err = call("login", URL, "--user", "anna", "--password-stdin", given="wrong\n")
    assert (code, err.splitlines()[-1]) == (2, "legato: Cannot log in: the name or the password is wrong.")
    # The fake platform knows one token; it accepts the new one once.
    platform.faults.extend([None, lambda request, do: httpx.Response(200, json={"name": "anna", "role": "user"})])
    call("login", URL, "--user", "anna", "--password-stdin", given="right\n")
    server = read_known(find_file()).servers["test"]
    assert (server.token, server.token_id) == ("lgt_fresh", "t-0000000001")
    platform.faults.append(lambda request, do: httpx.Response(200, json=platform.tokens["t-0000000001"]))
    assert call("logout")[1] == f"'test' ({URL}) is forgotten, and its token is revoked.\n"
    assert platform.asked()[-1] == "DELETE /api/v1/tokens/t-0000000001"
    assert read_known(find_file()).servers == {}
    assert "You have not used 'legato login URL'" in call("logout")[2]


def test_a_token_that_is_refused_is_not_kept(platform: Platform, call: Call) -> None:
    before = find_file().read_text()
    code, out, err = call("login", URL, "--token-stdin", given="lgt_wrong\n")
    assert (code, out) == (2, "")
    assert "does not know the token" in err
    assert find_file().read_text() == before
    assert "lgt_wrong" not in err


def test_login_finds_the_platform_of_this_machine(platform: Platform, call: Call, place: Path) -> None:
    (place / "home").mkdir()
    (place / "home" / "server.json").write_text('{"url": "http://127.0.0.1:8765", "pid": 1}')
    call("login", "--token-stdin", given=f"{TOKEN}\n")
    assert read_known(find_file()).servers["here"].url == "http://127.0.0.1:8765"


def test_the_user_who_runs_the_platform_of_this_machine_is_logged_in(
    platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_file().unlink()
    assert call("users")[0] == 2
    monkeypatch.setattr(servers, "find_local", lambda *_: Server(url=URL, token=TOKEN, user="anna"))
    assert call("users")[0] == 0
    assert call("users", "--server", "current")[0] == 0, "also under the name of the current one"
    code, out, _ = call("login", URL)
    assert code == 0 and f"You are logged in to {URL} as 'anna'" in out
    (known,) = read_known(find_file()).servers.values()
    assert (known.url, known.token, known.user) == (URL, None, "anna"), "the token is the server's to replace"
    assert call("users")[0] == 0


def test_a_device_is_known_again_at_the_next_login(platform: Platform, call: Call) -> None:
    devices: list[str | None] = []

    def note(request: httpx.Request, do: Any) -> httpx.Response:
        devices.append(request.headers.get("X-Legato-Device"))
        answer: httpx.Response = do()
        answer.headers["X-Legato-Device"] = "lgd_1"
        return answer

    for _ in range(2):
        platform.faults.extend([note, lambda request, do: httpx.Response(200, json={"name": "anna", "role": "user"})])
        code, _, err = call("login", URL, "--user", "anna", "--password-stdin", given="right\n")
        assert code == 0, err
    assert devices == [None, "lgd_1"]


def test_a_password_in_the_clear_is_warned_of(platform: Platform, call: Call) -> None:
    assert "is not encrypted" in call("login", URL, "--token-stdin", given=f"{TOKEN}\n")[2]


def test_a_server_is_chosen_for_one_command(platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "There is no server 'nowhere' here. Known: test." in call("ps", "--server", "nowhere")[2]
    assert "There is no token for the server at https://a.b" in call("ps", "--server", "https://a.b")[2]
    monkeypatch.setenv("LEGATO_SERVER", "test")
    assert call("ps", "--server", "current")[0] == 0


@pytest.mark.parametrize(
    "command",
    [["login", URL], ["login", URL, "-u", "anna"], ["users", "password"]],
)
def test_nothing_is_asked_without_a_terminal(platform: Platform, call: Call, command: list[str]) -> None:
    code, out, err = call(*command, given="anything\n")
    assert (code, out) == (2, "")
    assert "there is no terminal. Use --" in err


# ---------------------------------------------------------------- which job


@pytest.fixture
def local(place: Path) -> JobDirectory:
    """An ended job of this machine, from another directory, with the name of a job of the platform."""
    directory = JobDirectory.of("mnist")
    directory.path.mkdir(parents=True)
    write_journal(directory, "/elsewhere")
    (directory.path / "logs").mkdir()
    (directory.path / "logs" / "worker-0.log").write_text("local\n")
    return directory


def write_journal(directory: JobDirectory, where: str) -> None:
    from legato.core.spec import JobSpec

    spec = JobSpec(name=directory.path.name, program=("a.py",), directory=where, **SPEC)
    directory.write_journal(JobJournal(spec=spec, token="t", outcome=Outcome("stopped", 0, "Ctrl-C")))


def test_which_job_is_meant(platform: Platform, call: Call, local: JobDirectory, place: Path) -> None:
    platform.logs = {"worker-0": "of the platform\n"}
    platform.add_job(1)

    def meant(*flags: str, name: str = "mnist") -> str:
        return call("logs", name, *flags)[1]

    assert meant() == "0 | of the platform\n", "the one here is over, and began elsewhere"
    assert meant("--local") == "0 | local\n"
    write_journal(local, str(place / "here"))
    assert meant() == "0 | of the platform\n", "the one here began in this directory, but the other has not ended"
    ended_at = local.journal_file.stat().st_mtime
    platform.jobs["j-0000000001"] |= {"stage": "succeeded", "submitted_at": ended_at - 60}
    assert meant() == "0 | local\n", "it began in this directory, and ended after the other was submitted"
    platform.jobs["j-0000000001"]["submitted_at"] = ended_at + 60
    assert meant() == "0 | of the platform\n", "it was submitted later"
    assert meant("--server", "test") == meant("--server", "current") == "0 | of the platform\n"
    assert meant(name="j-0000000001") == "0 | of the platform\n"
    write_journal(local, "/elsewhere")
    local.lock()
    try:
        assert meant() == "0 | local\n", "it runs"
    finally:
        local.unlock()
    platform.jobs.clear()
    assert meant() == "0 | local\n", "the platform has none"
    find_file().unlink()
    assert meant() == "0 | local\n", "no platform is known"


def test_if_the_platform_does_not_answer_the_error_names_local(
    platform: Platform, call: Call, local: JobDirectory
) -> None:
    platform.refuse_connection(100)
    code, _, err = call("logs", "mnist")
    assert code == 1
    assert err.rstrip().endswith("To use the job 'mnist' of this machine, add --local.")


def test_the_directory_of_a_job_of_the_platform_is_not_taken_for_one_of_this_machine(
    platform: Platform, call: Call, place: Path
) -> None:
    """On the server's machine both kinds lie side by side, but only the platform commands its drivers."""
    job = platform.add_job(1)
    directory = JobDirectory.of(job["id"])
    directory.lock()
    try:
        assert call("stop", job["id"])[1].startswith("Job 'mnist' stops after the current step, with a checkpoint.")
    finally:
        directory.unlock()
    assert platform.jobs[job["id"]]["stage"] == "stopping"


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["scale", "mnist", "1..2", "--local"], "its bounds are fixed at its start"),
        (["stop", "mnist", "--wait", "--local"], "--wait is for jobs of a platform"),
        (["logs", "mnist", "--driver", "--local"], "--driver is for jobs of a platform"),
        (["logs", "mnist", "--tail", "3", "-f", "--local"], "Cannot combine --tail and --follow"),
        (["logs", "mnist", "--local", "--server", "test"], "--local and --server exclude each other"),
        (["status", "--server", "test"], "legato ps --server …"),
    ],
)
def test_what_only_one_of_the_two_has(
    platform: Platform, call: Call, local: JobDirectory, arguments: list[str], want: str
) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert want in err


def test_jobs_of_the_platform_are_none_of_this_machine(platform: Platform, call: Call, local: JobDirectory) -> None:
    """The platform stores its jobs in the same home, but lists of local jobs do not contain them."""
    of_platform = JobDirectory.of("j-37efnd0001")
    of_platform.path.mkdir(parents=True)
    write_journal(of_platform, "/elsewhere")
    assert [job["name"] for job in json.loads(call("status", "-o", "json")[1])] == ["mnist"]
    assert completion.complete_jobs("j") == []
    for arguments in (["status", "none", "--local"], ["stop", "none", "--local"]):
        code, _, err = call(*arguments)
        assert (code, "j-37efnd0001" in err, "mnist" in err) == (2, False, True)


def test_the_last_lines_of_a_job_of_this_machine(platform: Platform, call: Call, local: JobDirectory) -> None:
    (local.logs / "worker-0.log").write_text("a\nb\nc\n")
    (local.logs / "worker-1.log").write_text("d\n")
    assert call("logs", "mnist", "--local", "--tail", "2")[1] == "0 | b\n0 | c\n1 | d\n"
    assert call("logs", "mnist", "--local", "--tail", "1", "-k", "0")[1] == "c\n"
    assert call("logs", "mnist", "--local", "--tail", "0")[1] == ""


@pytest.mark.parametrize("command", ["explain", "show", "pause"])
def test_a_job_of_this_machine_is_named_with_the_way_to_it(
    platform: Platform, call: Call, local: JobDirectory, command: str
) -> None:
    want = " This machine has a job 'mnist' that 'legato run' started. To see it: legato status mnist\n"
    code, _, err = call(command, "mnist")
    assert code == 2
    assert err == f"legato: There is no job 'mnist' that you may see. 'legato ps' lists yours.{want}"
    find_file().unlink()
    assert call(command, "mnist")[2].endswith(want)


# ---------------------------------------------------------------- refusals


JOB_COMMANDS = (
    *("show", "explain", "pause", "resume", "wait", "clone", "events", "attempts", "metrics", "download"),
    *("status", "attach", "logs", "stop"),
)


@pytest.mark.parametrize(
    "command", [[name, "minst"] for name in JOB_COMMANDS] + [["scale", "minst", "2"], ["set", "minst", "-p", "1"]]
)
def test_an_unknown_job_is_refused_by_every_command(
    platform: Platform, call: Call, job: Any, command: list[str]
) -> None:
    code, out, err = call(*command)
    assert (code, out) == (2, "")
    assert err == "legato: There is no job 'minst' that you may see. 'legato ps' lists yours. Did you mean 'mnist'?\n"


@pytest.mark.parametrize("command", JOB_COMMANDS)
def test_every_command_takes_a_job_by_owner_and_name(platform: Platform, call: Call, command: str) -> None:
    """As ``legato explain`` and other commands name jobs. A job of this machine never has such a name."""
    platform.add_job(7, owner="anna", name="mnist")
    code, _, err = call(command, "anna/minst")
    assert code == 2
    assert err == (
        "legato: There is no job 'anna/minst' that you may see. 'legato ps --all' lists those that you may. "
        "Did you mean 'anna/mnist'?\n"
    )


@pytest.mark.parametrize("command", ["status", "show", "stop"])
def test_a_job_of_another_user_is_meant_by_owner_and_name(
    platform: Platform, call: Call, local: JobDirectory, command: str
) -> None:
    platform.add_job(8, owner="bob", name="mnist")
    platform.add_job(9, owner="anna", name="mnist")
    code, _, err = call(command, "bob/mnist")
    assert (code, err) == (0, "")
    assert any(path.startswith("/jobs/j-0000000008") or "owner=bob" in path for path in platform.asked())
    assert not any("j-0000000009" in path for path in platform.asked())


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["submit", "nowhere.py"], "Cannot submit 'nowhere.py': there is no such file"),
        (["submit", "nowhere.yaml"], "Cannot submit 'nowhere.yaml': there is no such file"),
        (["submit", "--workers", "4..2", "SCRIPT"], "the minimum is above the maximum. Write '2..4'."),
        (["submit", "--workers", "0..2", "SCRIPT"], "the number is below 1. Write '1..2', or more."),
        (["down"], "To stop the platform, press Ctrl-C where 'legato up' runs; its jobs keep running."),
        (["submti", "SCRIPT"], "There is no command 'submti'. Did you mean 'submit'? 'legato --help' lists all."),
        (["ps", "--queue", "defalt"], "There is no queue 'defalt' that you may see. Did you mean 'default'?"),
        (["submit", "--workers", "4", "--max-workers", "4", "SCRIPT"], "cannot be combined with --min-workers"),
        (["submit", "--env", "DATA", "SCRIPT"], "Cannot read the variable 'DATA'"),
        (["submit", "--label", "team", "SCRIPT"], "Cannot read the label 'team'"),
        (["submit", "--max-time", "long", "SCRIPT"], "Cannot read the longest time 'long'"),
        (["submit", "--max-time", "5", "SCRIPT"], "Write a number and a unit, such as 90s"),
        (["submit", "--seed", "luck", "SCRIPT"], "Cannot read the seed 'luck'"),
        (["submit", "--priority", "high", "SCRIPT"], "Cannot read the priority 'high'"),
        (["submit", "--queue", "none", "-d", "SCRIPT"], "There is no queue 'none'"),
        (["submit", "--max-workers", "0", "-d", "SCRIPT"], "--max-workers 0 is below 1"),
        (["submit", "--code", "nowhere", "SCRIPT"], "is not in 'nowhere'"),
        (["plan", "--workers", "x"], "Cannot read the number of workers 'x'"),
        (["ps", "--stage", "done"], "Cannot read the stage 'done'. Write one of queued"),
        (["ps", "--label", "team"], "Cannot read the label 'team'"),
        (["ps", "--limit", "many"], "Cannot read the limit 'many'"),
        (["ps", "-o", "xml"], "Cannot read the output format 'xml'"),
        (["set", "mnist"], "no change is given"),
        (["set", "mnist", "--queue", "day"], "There is no queue 'day'"),
        (["set", "mnist", "--workers", "0"], "below 1"),
        (["resume", "mnist"], "Cannot resume job 'mnist': it is running"),
        (
            ["scale", "mnist", "0"],
            "it needs at least 1. To end it: legato stop mnist. To free the slots of a platform's job: legato pause",
        ),
        (["scale", "mnist", "two"], "Cannot read the number of workers 'two'"),
        (["wait", "mnist", "--timeout", "soon"], "Cannot read the timeout 'soon'"),
        (["wait", "mnist", "--until", "done"], "Cannot read the stage 'done'"),
        (["clone", "mnist", "--workers", "a"], "Cannot read the number of workers 'a'"),
        (["events", "--training"], "--training needs a job"),
        (["events", "mnist", "-f", "-o", "csv"], "--follow cannot write CSV"),
        (["metrics", "mnist", "nothing"], "has no metric 'nothing'"),
        (
            ["download", "mnist", "/etc/passwd"],
            "Cannot download '/etc/passwd': it begins with '/'. Give a path such as work/model.pt",
        ),
        (["download", "mnist", "work/no"], "There is no file 'work/no'"),
        (["download", "mnist", "--list", "--checkpoint"], "Leave one of the"),
        (["download", "mnist", "a", "b", "--list"], "Cannot list several folders at once"),
        (["top", "--every", "0"], "Cannot update every 0 s"),
        (["usage", "--since", "long"], "Cannot read the beginning 'long'"),
        (["queues", "set", "a", "--ceiling", "high"], "Cannot read the ceiling 'high'"),
        (["queues", "set", "a", "--member", "a", "--no-members"], "Use one of them"),
        (["queues", "delete", "nothing"], "There is no queue 'nothing'"),
        (["users", "add", "x", "--role", "god"], "Cannot read the role 'god'"),
        (["users", "set", "x"], "no change is given"),
        (["users", "set", "zoe", "--disable"], "There is no user 'zoe'"),
        (["users", "password", "zoe", "--password-stdin"], "standard input is empty"),
        (["tokens", "add", "x", "--days", "long"], "Cannot read the days 'long'"),
        (["tokens", "revoke", "t-1"], "There is no token 't-1' of yours"),
        (["login", "ftp://a.b"], "as the address of a server"),
        (["login", "--token-stdin", "--user", "a"], "either a token or a password, not both"),
        (["login", "--password-stdin"], "--password-stdin needs --user"),
        (["logout", "nowhere"], "Cannot log out of 'nowhere'"),
        (["config", "use", "nowhere"], "There is no server 'nowhere' here. Known: test."),
        (["config", "show", "--server", "test", "--home", "x"], "Leave one of the"),
        (["config", "show", "--set", "port"], "Cannot read the setting 'port'"),
        (["config", "show", "--set", "prot=1"], "there is no setting prot. Did you mean port?"),
        (["up", "--set", "port=1", "--port", "2"], "The setting port is given twice"),
        (["up", "--port", "many"], "--port must be a whole number (got 'many')"),
        (["up", "--config", "nowhere.toml"], "there is no such file"),
        (["server", "--policy", "best"], "--policy must be 'fair', 'priority', 'fifo' or 'throughput' (got 'best')"),
        (["server", "upgrade", "--database-url", "mysql://a"], "Cannot"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(
    platform: Platform, call: Call, job: Any, script: str, arguments: list[str], want: str
) -> None:
    empty: dict[str, list[Any]] = {"step": [], "epoch": [], "view": [], "time": []}
    platform.canned["metrics"] = {"series": [], "steps": empty}
    code, out, err = call(*[script if part == "SCRIPT" else part for part in arguments])
    assert (code, out) == (2, "")
    assert want in err
    assert err.startswith("legato: ")
    assert err.count("\n") == 1


def test_a_server_that_cannot_be_reached_is_reported_soon(platform: Platform, call: Call) -> None:
    platform.refuse_connection(1000)
    code, out, err = call("ps")
    assert (code, out) == (1, "")
    assert err.startswith(f"legato: Cannot reach the server at {URL}: Connection refused.")
    assert platform.time.now <= 2


@pytest.mark.parametrize("options", [("--user", "ann"), ()], ids=["password", "token"])
def test_a_log_in_asks_for_no_secret_if_the_server_is_away(
    platform: Platform, call: Call, options: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "ask_secret", lambda *_: pytest.fail("it asks"))
    platform.refuse_connection(1000)
    code, out, err = call("login", "https://other.test", *options)
    assert (code, out) == (1, "") and err.startswith("legato: Cannot reach the server at https://other.test")


def test_login_trusts_an_unknown_authority_only_if_the_user_knows_its_fingerprint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url, authority = "https://gpu.test:8765", make_authority("Legato CA", 1_800_000_000.0).certificate
    known, pin = KnownServers(), fingerprint(authority)
    is_own, answers, asked = [True], [False, True], []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return answers.pop(0)

    def refuse(*_: Any) -> None:
        if is_own[0]:
            raise NotTrusted("Cannot reach the server safely")

    monkeypatch.setattr(login, "_check_reachable", refuse)
    monkeypatch.setattr(login, "_fetch_authority", lambda _: authority)
    monkeypatch.setattr(login.typer, "confirm", confirm)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    with pytest.raises(UsageError, match="Nothing was sent to it"):
        login._find_authority(url, None, known, None)
    assert login._find_authority(url, None, known, None) == authority
    assert len(asked) == 2
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(UsageError, match=f"legato login {url} --ca {pin}"):
        login._find_authority(url, None, known, None)

    assert login._find_authority(url, ":".join(pin[at : at + 2] for at in range(0, 64, 2)).upper(), known, None)
    with pytest.raises(UsageError, match=f"fingerprint {'0' * 64}: it shows {pin}. Another program may answer"):
        login._find_authority(url, "0" * 64, known, None)
    (tmp_path / "ca.pem").write_text(authority)
    assert login._find_authority(url, str(tmp_path / "ca.pem"), known, None) == authority
    with pytest.raises(UsageError, match="--ca needs TLS"):
        login._find_authority("http://gpu.test", pin, known, None)

    # What a user has trusted once, and the server of this machine, need no question.
    once = known.with_server("gpu", Server(url=url, token="t", ca="once"))
    assert login._find_authority(url, None, once, None) == "once"
    assert login._find_authority(url, None, known, Server(url=url, token="t", ca="here")) == "here"
    is_own[0] = False
    assert login._find_authority(url, None, known, None) is None, "the system knows it"


def test_no_server_is_known(platform: Platform, call: Call) -> None:
    find_file().unlink()
    for command in ("ps", "top", "queues", "users"):
        code, out, err = call(command)
        assert (code, out) == (2, "")
        assert (
            err == "legato: No server is known. Log in with 'legato login URL', or start one here with 'legato up'.\n"
        )


# ---------------------------------------------------------------- settings


def test_settings_are_shown_with_where_they_come_from(
    platform: Platform, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEGATO_SLOTS", "3")
    monkeypatch.setenv("LEGATO_DATABASE_URL", "postgresql://ann:geheim@db/legato")
    rows = json.loads(call("config", "show", "--set", "port=1", "-o", "json")[1])
    shown = {row["name"]: (row["value"], row["from"]) for row in rows}
    assert shown["slots"] == (3, "environment")
    assert shown["port"] == (1, "flag")
    assert shown["policy"] == ("fair", "default")
    assert "geheim" not in call("config", "show")[1]
    platform.canned["/config"] = {"items": [{"name": "port", "value": 8765, "meaning": "port to listen on"}]}
    assert call("config", "show", "--server", "test", "-o", "wide")[1] == (
        "NAME  VALUE  FROM        MEANING\nport  8765   the server  port to listen on\n"
    )


def test_up_serves_with_the_settings_that_were_said(call: Call, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[Any] = []
    monkeypatch.setattr("legato.server.serving.serve", lambda settings, _sockets, **how: served.append((settings, how)))
    call("up", "--port", "0", "--slots", "4", "--set", "stability_s=2", "--policy", "fifo")
    call("server", "--api-only", "--host", "0.0.0.0", "--port", "0")
    (settings, how), (other, how_other) = served
    assert (settings.port, settings.slots, settings.stability_s, settings.policy) == (0, 4, 2.0, "fifo")
    assert (other.host, how["runs_jobs"], how_other["runs_jobs"]) == ("0.0.0.0", True, False)
    assert how["say"] is not None


# ---------------------------------------------------------------- the whole


@functools.cache
def commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(main.app)
    context = typer.Context(group)
    return {name: group.get_command(context, name) for name in group.list_commands(context)}


@pytest.mark.parametrize("name", commands())
def test_every_command_helps(call: Call, name: str) -> None:
    code, out, _ = call(name, "--help")
    assert code == 0
    assert "Example:  legato" in out
    for below in getattr(commands()[name], "commands", {}):
        assert "Example:  legato" in call(name, below, "--help")[1]


def test_every_command_of_a_module_is_in_the_index() -> None:
    for name, commands in main.MODULES.items():
        module = importlib.import_module(name)
        groups = [group.info.name for group in getattr(module, "GROUPS", ())]
        assert {*groups, *(entry.name for entry in module.ENTRIES)} == set(commands)


def loaded_by(code: str) -> set[str]:
    program = f"import sys; {code}; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(main.__file__).parents[2])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    names = done.stdout.splitlines()[-1].split()
    return {*names, *(name.partition(".")[0] for name in names)}


HEAVY = {
    "torch",
    "numpy",
    "pandas",
    "fastapi",
    "starlette",
    "uvicorn",
    "sqlalchemy",
    "alembic",
    "pydantic",
    "cloudpickle",
}


def test_commands_load_no_more_than_they_need() -> None:
    ps = "from legato.cli.platform import jobs; from legato.cli.terminal import cards, columns\n"
    ps += "from legato.client.client import Client"
    assert not HEAVY & loaded_by(ps)
    shown = "from legato.cli.platform import jobs; from legato.cli.terminal import columns, output\n"
    shown += "import os; os.environ |= {'FORCE_COLOR': '1', 'TERM': 'xterm', 'COLUMNS': '20'}\n"
    shown += "output.write_list(['b ' * 30], output.Output.table, [columns.Column('A', str), columns.Column('B', str)])"
    # Rich's own table lays out a hundred rows in 70 ms.
    unneeded = {"rich.table", "rich.live", "rich.progress", "rich.markdown", "rich.pretty", "rich.traceback"}
    assert not (HEAVY | unneeded) & (loaded := loaded_by(shown))
    assert {"rich.console", "rich.text"} <= loaded
    everything = "; ".join(f"import {module}" for module in main.MODULES)
    assert not {*HEAVY, "httpx"} & loaded_by(everything)


def test_plain_options_are_read_without_pydantic(call: Call, platform: Platform, tmp_path: Path) -> None:
    program = "import contextlib, sys; from legato.cli import main; sys.argv = ['legato', {}]\n"
    program += "with contextlib.suppress(SystemExit): main.main()\nprint('pydantic' in sys.modules)"
    environment = {**os.environ, "LEGATO_HOME": str(tmp_path), "HOME": str(tmp_path)}

    def run(*words: str) -> tuple[str, str]:
        command = [sys.executable, "-c", program.format(", ".join(map(repr, words)))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout, done.stderr

    loads, refused = run("ps", "--limit", "7", "--server", "nowhere")
    assert loads == "False\n"
    assert "nowhere" in refused
    assert run("verify", "no.py", "--", "--epochs", "1")[0] == "False\n"
    platform.add_job(1)
    assert call("ps", "--limit", "x")[2] == "legato: Cannot read the limit 'x'. Write a whole number, such as 100.\n"
    assert call("ps", "--limit", "1")[0] == 0


def test_the_list_of_commands_loads_none_of_them(call: Call) -> None:
    listing = "import contextlib, io, sys; from legato.cli import main; sys.argv = ['legato', '--help']\n"
    listing += "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit): main.main()"
    program = f"{listing}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    # Commands of a single machine are registered in the main module.
    assert not {*main.MODULES, "pydantic", "httpx", "ssl"} & loaded
    shown = call("--help")[1]
    for name, short in itertools.chain.from_iterable(commands.items() for commands in main.MODULES.values()):
        assert re.search(rf"^  {name} +{re.escape(short[:40])}", shown, re.MULTILINE), name


def test_completion_offers_what_there_is_and_is_silent(platform: Platform, call: Call, local: JobDirectory) -> None:
    platform.add_job(1)
    platform.add_job(2, name="bert")
    assert completion.complete_jobs("m") == ["mnist"]
    assert completion.complete_jobs("") == ["mnist", "bert"]
    assert completion.complete_platform_jobs("b") == ["bert"]
    assert completion.complete_queues("d") == ["default"]
    assert completion.complete_stages("ru") == ["running"]
    assert completion.complete_servers("") == ["test", "current"]
    platform.refuse_connection(100)
    assert completion.complete_jobs("") == ["mnist"]
    assert platform.time.now == 0
    find_file().write_text("{")
    assert completion.complete_queues("") == completion.complete_servers("") == []
