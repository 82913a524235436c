"""The client and the server agree: every call is made, every answer is understood, every refusal is the right error."""

from __future__ import annotations

import datetime as dt
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.contract.client.conftest import NewClient
from tests.unit.server.platform import NOW, Platform
from typer.testing import CliRunner

from legato.api import jobs, outputs, people, pool, projects
from legato.cli import main
from legato.client.client import Client
from legato.client.connection import Line
from legato.client.jobs import Job
from legato.client.servers import Server
from legato.client.submission import JobOptions
from legato.control.stages import ENDED, Stage
from legato.core.errors import Conflict, Forbidden, KeyReused, NotFound, StaleVersion, Unauthenticated, UsageError
from legato.server import answers
from legato.server.bodies import Submission
from legato.system.decoding import decode

LIMIT_S = 20.0
EVERYTHING: JobOptions = {
    "gpus_per_worker": 2,
    "gpu_type": "A100",
    "node_labels": {"site": "x"},
    "name": "whole",
    "max_workers": 4,
    "min_workers": 2,
    "is_elastic": True,
    "queue": "default",
    "priority": 6000,
    "labels": {"team": "vision"},
    "max_retries": 1,
    "max_run_s": 3600.0,
    "environment": {"WORD": "text"},
    "data": "/data",
    "seed": 7,
    "num_threads": 2,
    "cpu_capability": "avx2",
    "num_micro_batches": 16,
    "checkpoint_every": "1epochs",
    "keep": 5,
    "heartbeat_limit_s": 7.0,
    "collective_limit_s": 600.0,
    "memory_bytes": 2**30,
    "num_cpus": 1.5,
    "python": sys.executable,
    "must_limit": False,
    "parameters": {"rate": 0.5, "wide": True, "title": "a b", "epochs": 3},
    "framework": "legato",
}


@pytest.fixture
def job(ann: Client) -> Job:
    return ann.submit("train.py", directory="/work", name="mnist", max_workers=2)


@pytest.fixture
def running(platform: Platform, job: Job) -> Job:
    platform.lead()
    platform.start(job.id, "node/0", "node/1")
    return job.refresh()


def write_files(platform: Platform, job: str) -> Path:
    home = platform.directory(job)
    (home / "work" / "out").mkdir(parents=True)
    (home / "work" / "out" / "a b#?.bin").write_bytes(bytes(range(256)) * 4000)
    (home / "work" / "train.py").write_text("print()\n")
    (home / "checkpoints").mkdir()
    (home / "checkpoints" / "step-00000007.legato").write_bytes(b"ccc")
    (home / "logs" / "worker-0.log").write_text("epoch 0\nepöch 1\n")
    (home / "logs" / "worker-1.log").write_text("epoch 0\n")
    (home / "driver.log").write_text("it starts\n")
    (home / "metrics.jsonl").write_text(
        '{"index":0,"step":1,"epoch":0,"time":1.0,"values":{"loss":2.5}}\n'
        '{"index":1,"step":2,"epoch":0,"time":2.0,"values":{"loss":1.5,"accuracy":0.5}}\n'
    )
    (home / "ledger.jsonl").write_text('{"step":1,"epoch":0,"view":1,"time":1.0}\n')
    (home / "events.jsonl").write_text(
        '{"seq":1,"time":1.0,"kind":"started","level":"info","reason":"worker 0 starts","worker":0}\n'
        '{"seq":2,"time":1.0,"kind":"joined","level":"info","reason":"worker 0 is in view 1","worker":0,"view":1}\n'
    )
    return home


RECORDS = [
    record
    for module in (jobs, outputs, people, pool, projects)
    for record in vars(module).values()
    if isinstance(record, type) and issubclass(record, msgspec.Struct) and record.__module__ == module.__name__
]


def test_the_stages_are_the_same() -> None:
    assert ENDED == jobs.ENDED
    assert tuple(Stage) == jobs.STAGES


def test_a_job_has_the_same_fields_here_and_there(platform: Platform) -> None:
    assert set(JobOptions.__annotations__) == set(Submission.model_fields) - {"program", "code", "directory"}
    schemas = platform.get("openapi.json")["components"]["schemas"]
    # Schemas that the server restricts have separate names.
    own = {"Definition": "DefinitionTold", "File": "Entry", "Framework": "FrameworkTold", "JobRecord": "Job"}
    for record in RECORDS:
        if record is not pool.QueueSettings:
            name = own.get(record.__name__) or answers._PUBLISHED.get(record.__name__, record.__name__)
            published = set(schemas[name]["properties"])
            # A client asks for the attempts of one job, so its records do not name the job.
            assert published - {"job"} == set(record.__struct_fields__) - {"job"}, name


def test_a_client_reads_what_a_newer_server_answers(ann: Client, platform: Platform, job: Job) -> None:
    told = platform.get(f"jobs/{job.id}") | {"stage": "hibernating", "mood": "calm"}
    assert decode(msgspec.json.encode(told), jobs.JobRecord).stage == "hibernating"
    told = platform.get("me") | {"role": "auditor", "mood": "calm"}
    assert decode(msgspec.json.encode(told), people.Me).role == "auditor"


def test_every_option_of_a_job_arrives(ann: Client) -> None:
    assert set(EVERYTHING) == set(JobOptions.__annotations__)
    job = ann.submit("train.py", "--epochs", 3, directory="/work", **EVERYTHING)
    told = msgspec.to_builtins(job.record) | msgspec.to_builtins(job.spec())
    assert {name: told[name] for name in EVERYTHING} == EVERYTHING
    assert (list(told["program"]), told["directory"]) == (["train.py", "--epochs", "3"], "/work")
    assert (job.stage, job.record.version, job.record.submitted_at) == ("queued", 1, NOW)
    plan = ann.plan(**EVERYTHING)
    assert (plan.starts, plan.slots_now) == ("later", 0)


def test_code_is_sent_once(ann: Client, platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print('hello')\n")
    monkeypatch.chdir(tmp_path / "project")
    first, second = ann.submit("train.py"), ann.submit("train.py")
    assert first.record.code == second.record.code
    assert first.id != second.id
    assert (platform.home / "code" / str(first.record.code) / "train.py").read_text() == "print('hello')\n"

    def train() -> None:
        print("hello")

    made = ann.submit(train, name="by-function")
    assert made.spec().program == ("legato_function.py",)
    assert (platform.home / "code" / str(made.record.code) / "legato_function.pickle").is_file()


def test_the_same_key_makes_one_job(ann: Client) -> None:
    first = ann.submit("train.py", directory="/work", key="nightly")
    assert ann.submit("train.py", directory="/work", key="nightly").id == first.id
    with pytest.raises(KeyReused):
        ann.submit("other.py", directory="/work", key="nightly")
    assert len(ann.jobs()) == 1


def test_jobs_are_listed(ann: Client, client_of: NewClient, platform: Platform) -> None:
    for number in range(5):
        ann.submit("train.py", directory="/w", name=f"job-{number}", labels={"parity": str(number % 2)})
    assert [job.name for job in ann.jobs(limit=2)] == ["job-4", "job-3"]
    assert [job.name for job in ann.jobs(labels={"parity": "1"}, order="oldest", limit=None)] == ["job-1", "job-3"]
    assert [job.name for job in ann.jobs(stage=["queued", "running"], owner="ann", queue="default", name="job-2")] == [
        "job-2"
    ]
    assert ann.jobs(stage="paused") == []
    assert len(client_of("eye").jobs()) == 5
    assert client_of("ben").job("job-4").record.owner == "ann", "the queue is open to him"


def test_a_job_is_changed(ann: Client, admin: Client, platform: Platform, running: Job) -> None:
    admin.set_queue("night")
    running.set(priority=7000, queue="night", labels={"team": "vision"}, min_workers=1, max_workers=3)
    assert (running.record.priority, running.record.queue, running.record.max_workers) == (7000, "night", 3)
    assert running.set(labels={"team": None}).record.labels == {}
    assert running.resize(4, 2).record.min_workers == 2
    stale = ann.job(running.id)
    running.set(priority=1)
    with pytest.raises(StaleVersion):
        stale.set(priority=2, only_if_unchanged=True)
    assert running.pause().stage == "pausing"
    with pytest.raises(Conflict, match="Cannot resume job 'mnist': it is being paused"):
        running.resume()
    platform.write(running.id, stage=Stage.PAUSED, closed=("node/0", "node/1"), reason="saved")
    assert running.resume().stage == "queued"
    assert running.stop().stage == "stopped"
    made = running.clone(name="again", max_workers=2, min_workers=1)
    assert (made.name, made.record.max_workers, made.stage) == ("again", 2, "queued")


def test_refusals_are_the_right_errors(ann: Client, client_of: NewClient, platform: Platform, job: Job) -> None:
    for ask in (
        lambda: ann.job("nothing"),
        lambda: ann.queue("nothing"),
        lambda: ann.submit("a", directory="/", queue="x"),
    ):
        with pytest.raises(NotFound):
            ask()
    with pytest.raises(UsageError, match="max_workers"):
        ann.submit("a.py", directory="/w", max_workers=0)
    with pytest.raises(UsageError, match=r"body.priority"):
        ann.submit("a.py", directory="/w", priority="high")  # type: ignore[arg-type]
    with pytest.raises(Forbidden, match="belongs to 'ann'"):
        client_of("ben").job(job.id).stop()
    with pytest.raises(Forbidden):
        client_of("eye").submit("a.py", directory="/w")
    with pytest.raises(Forbidden):
        ann.add_user("eve")
    stranger = Client.on(Line(Server(url=platform.url, token="lgt_wrong")))
    with pytest.raises(Unauthenticated, match="legato login"):
        stranger.jobs()
    stranger.close()


def test_waiting_ends_with_the_job(platform: Platform, running: Job) -> None:
    ended = threading.Timer(0.3, lambda: (platform.end(running.id), platform.services.feed.poke()))
    ended.start()
    assert running.wait(LIMIT_S).stage == "succeeded"
    ended.join()
    assert running.exit_code == 0
    with pytest.raises(Conflict, match="will not be running any more"):
        running.wait(LIMIT_S, until=("running",))


def test_waiting_has_an_end(job: Job) -> None:
    with pytest.raises(TimeoutError, match="is queued after"):
        job.wait(0.2)


def test_events_are_followed_to_the_end(ann: Client, platform: Platform, running: Job) -> None:
    seen: list[jobs.Event] = []
    follower = threading.Thread(target=lambda: seen.extend(running.events(follow=True)))
    follower.start()
    platform.end(running.id)
    platform.services.feed.poke()
    follower.join(LIMIT_S)
    assert not follower.is_alive()
    moves = [event.detail["to"] for event in seen if event.kind == "stage" and event.detail]
    assert moves == ["queued", "starting", "running", "succeeded"]
    assert [event.seq for event in running.events()] == [event.seq for event in seen]
    assert list(running.events(after=seen[-1].seq)) == list(running.events(after="now")) == []
    assert ann.last_event() == seen[-1].seq
    assert {event.seq for event in seen} <= {event.seq for event in ann.events()}


def test_logs_are_read_and_followed(platform: Platform, running: Job) -> None:
    home = write_files(platform, running.id)
    assert [(line.worker, line.text) for line in running.logs()] == [(0, "epoch 0"), (0, "epöch 1"), (1, "epoch 0")]
    assert [line.text for line in running.logs(worker=0, tail=1)] == ["epöch 1"]
    assert [line.text for line in running.logs(driver=True)] == ["it starts"]
    with pytest.raises(NotFound):
        list(running.logs(worker=7))
    seen: list[str] = []
    follower = threading.Thread(target=lambda: seen.extend(map(str, running.logs(follow=True, worker=0, tail=1))))
    follower.start()
    deadline = time.monotonic() + LIMIT_S
    while not seen and time.monotonic() < deadline:
        time.sleep(0.01)
    with (home / "logs" / "worker-0.log").open("a") as log:
        log.write("later\nno end")
    platform.end(running.id)
    follower.join(LIMIT_S)
    assert seen == ["epöch 1", "later", "no end"]


def test_the_outputs_of_a_job(platform: Platform, running: Job, tmp_path: Path, client_of: NewClient) -> None:
    home = write_files(platform, running.id)
    assert running.series().steps.view == (1,)
    assert running.metrics("loss")["loss"].tolist() == [2.5, 1.5]
    assert [event.kind for event in running.training_events()] == ["started", "joined"]
    assert list(running.training_events(after=2)) == []
    [checkpoint] = running.checkpoints()
    assert (checkpoint.step, checkpoint.num_bytes) == (7, 3)
    assert {file.path for file in running.files("work", recursive=True)} >= {"work/train.py", "work/out"}
    running.download(tmp_path / "all")
    assert (tmp_path / "all" / "work" / "out" / "a b#?.bin").read_bytes() == bytes(range(256)) * 4000
    assert [path.name for path in running.download(tmp_path / "one", checkpoint.path)] == ["step-00000007.legato"]
    assert (home / "journal.json").exists() is False
    with pytest.raises(NotFound):
        running.download(tmp_path / "none", "journal.json")
    with pytest.raises(Forbidden, match="may hold secrets"):
        client_of("ben").job(running.id).files()


def test_a_job_is_explained(platform: Platform, running: Job, ann: Client) -> None:
    told = running.explain()
    assert told.job == running.id
    assert any("is running" in sentence for sentence in told.sentences)
    [attempt] = running.attempts()
    assert (attempt.attempt, attempt.outcome) == (1, None)
    assert {allocation.slot for allocation in running.allocations()} == {"node/0", "node/1"}


def test_the_pool(ann: Client, client_of: NewClient, running: Job) -> None:
    pool = ann.pool()
    assert (pool.num_slots, pool.num_free, pool.jobs["running"]) == (2, 0, 1)
    assert [node.name for node in ann.nodes()] == ["node"]
    assert {slot.job for slot in ann.slots()} == {running.id}
    assert [allocation.job for allocation in ann.allocations(since=NOW - 10, until=NOW + 10)] == [running.id] * 2
    assert [usage.owner for usage in ann.usage(since=NOW - 10, until=NOW + 10)] == ["ann"]
    assert [queue.name for queue in ann.queues()] == ["default"]
    assert ann.queue("default").num_slots == 2
    assert ann.version().api == ("v1",)


def test_queues(admin: Client) -> None:
    made = admin.set_queue("night", weight=2, floor=1, ceiling=8, is_open=False, members=["ann"])
    assert (made.weight, made.floor, made.ceiling, made.is_open, made.members) == (2, 1, 8, False, ("ann",))
    changed = admin.set_queue("night", weight=3, ceiling="none")
    assert (changed.weight, changed.floor, changed.ceiling, changed.members) == (3, 1, None, ("ann",))
    admin.delete_queue("night")
    with pytest.raises(NotFound):
        admin.queue("night")


def test_people(admin: Client, ann: Client, platform: Platform) -> None:
    assert ann.me() == people.Me(name="ann", role="user")
    assert admin.add_user("eve", "viewer", password="geheim-1234").has_password
    assert admin.change_user("eve", role="user").role == "user"
    assert admin.user("eve").disabled_at is None
    made = ann.log_in("eve", "geheim-1234")
    assert made.token.user == "eve"
    eve = Client.on(Line(Server(url=platform.url, token=made.secret)))
    assert eve.me().name == "eve"
    eve.set_password("other-5678")
    with pytest.raises(Unauthenticated):
        eve.me()
    eve.close()
    with pytest.raises(Unauthenticated):
        ann.log_in("eve", "geheim-1234")
    token = ann.add_token("ci", days=7).token
    assert token.expires_at == NOW + 7 * 86400
    assert ann.add_token("usual").token.expires_at == NOW + 90 * 86400
    assert ann.revoke_token(token.id).revoked_at == NOW
    assert {one.name for one in ann.tokens()} == {"test", "ci", "usual"}
    assert [share.queue for share in ann.shares()] == ["default"]
    assert all(one.position <= one.num_waiting for one in ann.waiting())
    planned = admin.plan_queues([{"name": "night", "weight": 5.0}])
    assert planned.effects == () and {share.weight for share in planned.shares} == {1.0, 5.0}
    link = ann.link_to_console()
    assert link.url.startswith(f"{platform.url}/#/welcome?code=lgc_") and link.expires_at == NOW + 3600
    assert link.url.partition("=")[2] not in repr(link)
    code = {"code": link.url.partition("=")[2]}
    assert platform.ask("POST", "session", code, who=None).json()["name"] == "ann"
    assert {user.name for user in admin.users()} >= {"admin", "ann", "eve"}
    audit = admin.audit(limit=3)
    assert len(audit) == 3
    assert audit[0].action
    assert {setting.name for setting in admin.config()} >= {"home", "port"}


def test_the_commands_ask_the_real_server(
    platform: Platform, running: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(platform, running.id)
    monkeypatch.setenv("LEGATO_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("LEGATO_SERVER", platform.url)
    monkeypatch.setenv("LEGATO_TOKEN", platform.secrets["admin"])
    monkeypatch.chdir(tmp_path)
    later = dt.datetime.fromtimestamp(NOW + 60, dt.UTC).isoformat()
    for command, want in (
        (["ps", "-o", "wide"], "2 of 1..2"),
        (["show", "mnist"], "running"),
        (["explain", "mnist"], "is running"),
        (["status", "mnist"], "ann/mnist"),
        (["events", "mnist"], "its workers train"),
        (["events", "mnist", "--training"], "worker 0 is in view 1"),
        (["events"], "slot"),
        (["attempts", "mnist"], "ATTEMPT"),
        (["timeline", "--until", later], "ann/mnist"),
        (["timeline", "mnist", "--by", "queue", "--until", later], "default"),
        (["logs", "mnist", "--worker", "0", "--since", "2d"], "epoch 0"),
        (["metrics", "mnist"], "accuracy"),
        (["logs", "mnist", "--tail", "1"], "0 | epöch 1"),
        (["download", "mnist", "--list"], "checkpoints/"),
        (["download", "mnist", "--checkpoint"], "1 file"),
        (["top"], "node  AA"),
        (["pool"], "running=1"),
        (["pool", "-o", "json"], '"num_slots": 2'),
        (["nodes"], "node"),
        (["slots"], "ann/mnist"),
        (["usage"], ""),
        (["queues"], "default"),
        (["users"], "eye"),
        (["tokens"], "first-start"),
        (["console", "--no-browser"], "/#/welcome?code=lgc_"),
        (["audit"], "job.submit"),
        (["config", "show", "--server", "current"], "No server is known"),
        (["config", "show", "--server", platform.url], "the server"),
        (["plan", "--workers", "1..2"], "would"),
        (["set", "mnist", "--priority", "6000"], "5000 → 6000"),
        (["scale", "mnist", "1"], "1..1"),
        (["submit", "-d", "--directory", "/w", "train.py"], "is submitted as"),
        (["clone", "mnist", "--parameter", "rate=1", "--seed", "7"], "as a clone of"),
        (["pause", "train"], "is paused"),
        (["stop", "train"], "is stopped"),
        (["wait", "train"], "was stopped"),
    ):
        result = CliRunner().invoke(main.app, command)
        refused = "No server" in want
        # It was stopped before it ever ran.
        code = 2 if refused else 1 if command[0] == "wait" else 0
        assert result.exit_code == code, (command, result.output)
        assert want in (result.stderr if refused else result.stdout), command
