"""The client as programs use it: scripts and functions, waiting, following, changing, downloading."""

from __future__ import annotations

import functools
import io
import json
import subprocess
import sys
import tarfile
from collections import deque
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.client import carried
from tests.unit.client.platform import NOW, Platform, stream

from legato.api.pool import Node
from legato.client import dataframes
from legato.client.client import Client
from legato.client.downloads import DOWNLOAD_MARK
from legato.client.jobs import Job
from legato.client.lists import Listing
from legato.client.packing import pack
from legato.core.errors import Conflict, KeyReused, NotFound, ServerError, Unavailable, UsageError
from legato.system.scripts import PYTHON


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
def client(platform: Platform) -> Client:
    return platform.client()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "src" / "deep.py").write_text("print('deep')\n")
    monkeypatch.chdir(folder)
    return folder


def unpack(platform: Platform, sha256: str) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(platform.code[sha256])) as tar:
        return {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]


def body(request: httpx.Request) -> dict[str, Any]:
    return json.loads(request.content)


# ---------------------------------------------------------------- submit


def test_a_script_is_sent_with_the_present_directory_and_its_code_once(
    client: Client, platform: Platform, project: Path
) -> None:
    job = client.submit("train.py", "--epochs", 3, max_workers=4, labels={"team": "vision"})
    assert job.stage == "queued"
    sent = body(platform.requests[-1])
    assert sent == {
        "name": "train",
        "program": ["train.py", "--epochs", "3"],
        "code": sent["code"],
        "max_workers": 4,
        "labels": {"team": "vision"},
    }
    assert set(unpack(platform, sent["code"])) == {"train.py", "src/deep.py"}
    client.submit(project / "src" / "deep.py", name="other")
    assert body(platform.requests[-1])["program"] == ["src/deep.py"]
    assert [asked.split()[0] for asked in platform.asked()] == ["GET", "PUT", "POST", "GET", "POST"]


def test_a_script_elsewhere_is_sent_with_its_own_folder(
    client: Client, platform: Platform, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    client.submit(project / "src" / "deep.py")
    sent = body(platform.requests[-1])
    assert sent["program"] == ["deep.py"]
    assert set(unpack(platform, sent["code"])) == {"deep.py"}


@pytest.mark.parametrize("program", ["src/deep.py", "deep.py"])
def test_a_folder_that_is_named_is_sent(client: Client, platform: Platform, project: Path, program: str) -> None:
    client.submit(program, code="src")
    sent = body(platform.requests[-1])
    assert sent["program"] == ["deep.py"]
    assert set(unpack(platform, sent["code"])) == {"deep.py"}


def test_code_that_is_there_and_directories_need_no_upload(client: Client, platform: Platform, project: Path) -> None:
    sha256 = client.upload(pack(project))
    platform.requests.clear()
    client.submit("train.py", code=sha256)
    assert body(platform.requests[0])["code"] == sha256
    client.submit("nowhere.py", directory="/work")
    assert body(platform.requests[1]) == {"name": "nowhere", "program": ["nowhere.py"], "directory": "/work"}
    assert len(platform.requests) == 2


@pytest.mark.parametrize("words", [["bash", "run.sh"], ["./run.sh", "a b"], ["nvidia-smi"]], ids=len)
def test_words_of_a_framework_are_sent_unchanged(
    client: Client, platform: Platform, project: Path, words: list[str]
) -> None:
    (project / "src" / "run.sh").write_text("echo\n")
    client.submit(*words, framework="command", code="src")
    sent = body(platform.requests[-1])
    assert (sent["program"], sent["framework"]) == (words, "command")
    assert set(unpack(platform, sent["code"])) == {"deep.py", "run.sh"}
    client.submit(*words, framework="command")
    assert set(unpack(platform, body(platform.requests[-1])["code"])) == {"train.py", "src/deep.py", "src/run.sh"}


def test_code_that_the_server_deletes_meanwhile_is_sent_again(
    client: Client, platform: Platform, project: Path
) -> None:
    forget = lambda request, do: (platform.code.clear(), do())[1]  # noqa: E731
    platform.faults.extend([None, None, forget])
    client.submit("train.py")
    assert [asked.split()[0] for asked in platform.asked()] == ["GET", "PUT", "POST", "GET", "GET", "PUT", "POST"]
    with pytest.raises(NotFound, match="no queue 'night'"):
        client.submit("train.py", queue="night")


def test_the_same_key_makes_one_job(client: Client, platform: Platform, project: Path) -> None:
    first = client.submit("train.py", key="nightly")
    assert client.submit("train.py", key="nightly").id == first.id
    with pytest.raises(KeyReused):
        client.submit("train.py", "--other", key="nightly")


@pytest.mark.parametrize(
    ("arguments", "options", "want"),
    [
        (["nowhere.py"], {}, "Cannot submit 'nowhere.py': there is no such file"),
        (["src"], {}, "it is a directory"),
        (["train.py"], {"code": "src"}, "is not in 'src'"),
        (["train.py"], {"code": "src", "directory": "/a"}, "both code and directory"),
        (["train.py"], {"max_worker": 3}, "no such field. Did you mean max_workers?"),
        (["train.py"], {"max_workers": 0}, "max_workers=0 is below 1"),
        ([print], {"directory": "/a"}, "a function is uploaded"),
        ([print], {"framework": "command"}, "a function with framework 'command'"),
        (["bash", "train.sh"], {"framework": "command", "code": "nowhere"}, "'nowhere'"),
        (["link.py"], {}, r"is a link.*\.legatoignore"),
        (["ignored.py"], {}, r"'ignored.py': .legatoignore excludes it"),
    ],
)
def test_what_cannot_be_submitted_is_reported(
    client: Client, project: Path, arguments: list[Any], options: dict[str, Any], want: str
) -> None:
    if arguments == ["link.py"]:
        (project / "link.py").symlink_to("/etc/passwd")
    if arguments == ["ignored.py"]:
        (project / "ignored.py").write_text("")
        (project / ".legatoignore").write_text("ignored.py\n")
    with pytest.raises(UsageError, match=want):
        client.submit(*arguments, **options)


@pytest.mark.parametrize("options", [{}, {"framework": "wmla"}], ids=["script", "framework"])
def test_a_script_with_a_syntax_error_is_not_sent(
    client: Client, platform: Platform, project: Path, options: dict[str, Any]
) -> None:
    (project / "train.py").write_text("import legato\nprint('hi'\nrun = legato.elastic()\n")
    with pytest.raises(UsageError) as caught:
        client.submit("train.py", code=".", **options)
    assert str(caught.value).splitlines() == [
        "Cannot submit 'train.py': it has a syntax error.",
        '  File "train.py", line 2',
        "    print('hi'",
        "         ^",
        "SyntaxError: '(' was never closed",
    ]
    assert platform.asked() == ["GET /version"]
    for python in ("3.99", None):
        platform.python = python
        client.submit("train.py", code=".", **options)  # only the server's Python knows
    platform.python = PYTHON
    client.submit("train.py", code=".", python="/opt/python3.99/bin/python", **options)


def test_the_home_of_a_platform_is_not_sent(client: Client, platform: Platform, project: Path) -> None:
    (project / "home").mkdir()
    (project / "home" / "home-id").write_text("x")
    (project / "home" / "train.py").write_text("")
    client.submit("train.py")
    assert set(unpack(platform, body(platform.requests[-1])["code"])) == {"train.py", "src/deep.py"}
    with pytest.raises(UsageError, match="'home' is the home of a platform"):
        client.submit("home/train.py")


def test_no_home_directory_is_sent_by_mistake(
    client: Client, platform: Platform, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(project))
    with pytest.raises(UsageError, match="would upload all of it"):
        client.submit("train.py")
    with pytest.raises(UsageError, match=r"Cannot submit 'bash' from .*: Legato would upload all of it"):
        client.submit("bash", "train.sh", framework="command")
    assert platform.requests == []
    client.submit("train.py", code=project)


# ---------------------------------------------------------------- functions


def call(platform: Platform, sent: dict[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    for name, content in unpack(platform, sent["code"]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    program = [sys.executable, *sent["program"]]
    return subprocess.run(program, cwd=folder, capture_output=True, text=True, timeout=60, env={"PATH": ""})


def test_a_function_is_called_elsewhere(client: Client, platform: Platform, tmp_path: Path) -> None:
    told = "closed over"

    def train(epochs: int, rate: float = 1.0) -> None:
        print(told, epochs, rate, carried.double(epochs))

    client.submit(functools.partial(train, rate=0.5), 3, max_workers=2)
    sent = body(platform.requests[-1])
    assert (sent["name"], sent["program"], sent["max_workers"]) == ("train", ["legato_function.py"], 2)
    # This module, and the module of its package that it imports, are not installed there: they are sent too.
    done = call(platform, sent, tmp_path)
    assert (done.stdout, done.stderr) == ("closed over 3 0.5 6\n", "")


def test_a_function_with_a_folder_imports_from_it(client: Client, platform: Platform, project: Path) -> None:
    (project / "mine.py").write_text("WORD = 'from the folder'\n")

    def train() -> None:
        import mine  # type: ignore[import-not-found]

        print(mine.WORD)

    from legato.client import functions

    platform_files = functions.make_files(train, (), has_folder=False)
    assert set(platform_files) == {"legato_function.py", "legato_function.pickle"}
    sys.modules["__main__"].train = train  # type: ignore[attr-defined]
    train.__module__ = "__main__"
    client.submit(train, code=".")
    sent = body(platform.requests[-1])
    assert "train.py" in unpack(platform, sent["code"])
    (project / "there").mkdir()
    done = call(platform, sent, project / "there")
    assert (done.stdout, done.stderr) == ("from the folder\n", "")


def test_a_function_of_another_python_is_refused_there(client: Client, platform: Platform, tmp_path: Path) -> None:
    client.submit(print, "hello")
    sent = body(platform.requests[-1])
    files = unpack(platform, sent["code"])
    assert call(platform, sent, tmp_path).stdout == "hello\n"
    other = files["legato_function.py"].replace(str(sys.version_info[:2]).encode(), b"(3, 7)")
    (tmp_path / "legato_function.py").write_bytes(other)
    done = subprocess.run([sys.executable, "legato_function.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "made by Python 3.7" in done.stderr


def test_a_function_that_cannot_be_sent_is_reported(client: Client, tmp_path: Path) -> None:
    with (tmp_path / "data").open("w") as stream:
        with pytest.raises(UsageError, match=r"Cannot send function 'write'.*Open files"):
            client.submit(stream.write, "x")
        with pytest.raises(UsageError, match="Cannot send function 'print'"):
            client.submit(print, stream)


def test_a_name_that_legato_needs_is_refused(client: Client, project: Path) -> None:
    (project / "legato_function.py").write_text("")
    with pytest.raises(UsageError, match=r"'legato_function.py' is a name that Legato needs"):
        client.submit(print, "x", code=".")


# ---------------------------------------------------------------- look


def test_jobs_come_in_pages(client: Client, platform: Platform) -> None:
    for number in range(1, 2502):
        platform.add_job(number, name=f"job-{number}", stage="queued" if number % 2 else "running")
    assert [job.name for job in client.jobs(limit=3)] == ["job-2501", "job-2500", "job-2499"]
    assert len(client.jobs()) == 100
    platform.requests.clear()
    assert len(client.jobs(limit=None, order="oldest")) == 2501
    assert len(platform.requests) == 3
    assert len(client.jobs(limit=None, stage="queued")) == 1251
    assert len(client.jobs(limit=None, stage=["queued", "running"], name="job-1")) == 1111


def test_jobs_are_chosen_by_what_is_given(client: Client, platform: Platform) -> None:
    platform.add_job(1, labels={"team": "vision", "run": "1=a"})
    platform.add_job(2, owner="bob", labels={"team": "vision"})
    assert [job.id for job in client.jobs(labels={"team": "vision", "run": "1=a"})] == ["j-0000000001"]
    assert [job.id for job in client.jobs(owner="bob", queue="default")] == ["j-0000000002"]


def test_a_job_by_name_is_the_newest(client: Client, platform: Platform) -> None:
    platform.add_job(1)
    platform.add_job(2)
    job = client.job("mnist")
    assert (job.id, job.name, job.stage, job.num_slots, job.exit_code) == ("j-0000000002", "mnist", "running", 2, None)
    assert (job.has_ended, job.progress and job.progress.step) == (False, 120)
    assert repr(job) == "<Job j-0000000002 anna/mnist: running>"
    with pytest.raises(NotFound, match="There is no job 'minst'"):
        client.job("minst")


def test_a_job_by_owner_and_name_is_the_newest_of_this_user(client: Client, platform: Platform) -> None:
    for number, owner, name in ((1, "bob", "mnist"), (2, "bob", "mnist"), (3, "bob", "mnist-2"), (4, "anna", "mnist")):
        platform.add_job(number, owner=owner, name=name)
    assert client.job("bob/mnist").id == "j-0000000002"
    assert client.job("anna/mnist").id == "j-0000000004"
    for wrong in ("bob/mni", "carl/mnist", "bob/", "/mnist", "bob/mnist/", "/", "anna/mnist-2", "../mnist"):
        with pytest.raises(NotFound, match=f"There is no job '{wrong}' that you may see"):
            client.job(wrong)


def test_waiting_until_it_ends(client: Client, platform: Platform) -> None:
    job = client.job(platform.add_job(1)["id"])
    platform.add_event("decision", "of before", job.id)
    platform.add_event("decision", "of before", job.id)
    ends = iter([None, None, ("succeeded", "it has done all its steps", 0)])
    platform.waited = lambda: (end := next(ends)) and platform.move(job.id, *end)
    assert job.wait() is job
    assert (job.stage, job.exit_code, platform.time.now) == ("succeeded", 0, 3.0)
    # Events from before the first request on, so that none is missed; an older event does not end the wait.
    asked = [asked.partition("events?")[2] for asked in platform.asked() if "events?" in asked]
    assert asked == ["after=now&limit=1", *[f"after={after}&limit=500&wait=30.0" for after in (2, 2, 2)]]
    assert client.job(job.id).wait(timeout_s=0).stage == "succeeded"


def test_waiting_has_an_end(client: Client, platform: Platform) -> None:
    platform.add_job()
    with pytest.raises(TimeoutError, match="Job 'mnist' is running after 5 s"):
        client.job("mnist").wait(5)
    assert platform.time.now == 5.0


def test_waiting_for_another_stage(client: Client, platform: Platform) -> None:
    platform.add_job(stage="queued")
    job = client.job("mnist")
    platform.waited = lambda: platform.move(job.id, "running", "it trains")
    assert job.wait(until=("running",)).stage == "running"
    platform.waited = lambda: platform.move(job.id, "failed", "worker 0 died", 1)
    with pytest.raises(Conflict, match="will not be paused any more: it failed: worker 0 died"):
        job.wait(until=("paused",))


def test_events_that_are_there(client: Client, platform: Platform) -> None:
    platform.add_job()
    for number in range(1203):
        platform.add_event("decision", f"the {number}th", "j-0000000001" if number % 2 else "j-0000000009", num_slots=2)
    assert len(list(client.events())) == 1203
    assert [event.seq for event in client.job("mnist").events(after=1198)] == [1200, 1202]
    assert list(client.job("mnist").events(after="now")) == []
    platform.canned["training"] = [
        {"seq": 1, "time": NOW, "kind": "started", "level": "info", "reason": "worker 0 is started", "worker": 0}
    ]
    assert [event.worker for event in client.job("mnist").training_events()] == [0]


def test_logs_that_are_there(client: Client, platform: Platform) -> None:
    platform.add_job()
    platform.logs = {"driver": "it starts\n", "worker-0": "a\r\nbä\nno end", "worker-1": "c\n"}
    job = client.job("mnist")
    for piece in (2**22, 1, 2, 3):
        platform.canned["max_bytes"] = piece
        if piece == 2**22:
            assert [(line.worker, str(line)) for line in job.logs()] == [(0, "a"), (0, "bä"), (1, "c"), (0, "no end")]
        assert [line.text for line in job.logs(driver=True)] == ["it starts"]
    platform.canned.clear()
    assert [line.text for line in job.logs(worker=0, tail=2)] == ["bä", "no end"]
    with pytest.raises(
        NotFound, match=r"no log 'worker-7', or it does not exist yet\. There are: driver, worker-0, worker-1\."
    ):
        list(job.logs(worker=7))
    platform.logs = {f"worker-{number}": "" for number in range(12)}
    with pytest.raises(NotFound, match=r"There are: worker-2, .*, worker-11 and 2 before them\."):
        list(job.logs(worker=99))
    platform.logs = {}
    with pytest.raises(NotFound, match="There are no logs yet; try again later"):
        list(job.logs(driver=True))
    with pytest.raises(UsageError, match="choose one"):
        job.logs(worker=7, driver=True)


def test_logs_are_followed_line_by_line(client: Client, platform: Platform) -> None:
    platform.add_job()
    path = "/jobs/j-0000000001/logs"
    platform.streams[path] = deque(
        [
            stream(("log", {"log": "worker-0", "text": "a\nb\u2028eg"}, "worker-0=9"), breaks=True),
            stream(
                ("log", {"log": "worker-1", "text": "c\n"}, "worker-0=9,worker-1=2"),
                ("log", {"log": "worker-0", "text": "in\nlast"}, "worker-0=16"),
                ("end", {}, None),
            ),
        ]
    )
    told = [(line.log, line.text) for line in client.job("mnist").logs(follow=True, tail=5)]
    assert told == [("worker-0", "a"), ("worker-1", "c"), ("worker-0", "b\u2028egin"), ("worker-0", "last")]
    assert platform.requests[-1].headers["last-event-id"] == "worker-0=9"
    assert platform.asked()[1] == f"GET /api/v1{path}?tail=5"


def test_metrics_as_a_table(client: Client, platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    platform.add_job()
    accuracy = {"name": "accuracy", "step": [10, 20], "epoch": [0, 1], "time": [1.0, 2.0], "value": [0.5, None]}
    loss = {"name": "loss", "step": [10, 10, 15], "epoch": [0, 0, 0], "time": [1.0, 1.1, 1.5], "value": [3.0, 2.0, 1.0]}
    steps = {"step": [1], "epoch": [0], "view": [1], "time": [0.5]}
    platform.canned["metrics"] = {"series": [accuracy, loss], "steps": steps}
    job = client.job("mnist")
    frame = job.metrics("loss", "accuracy")
    assert platform.asked()[-1].endswith("metrics?name=loss&name=accuracy&points=10000&steps=false")
    assert list(frame.index) == [10, 15, 20]
    assert list(frame.columns) == ["epoch", "time", "accuracy", "loss"]
    assert frame["loss"].fillna(-1).tolist() == [2.0, 1.0, -1]
    assert frame["accuracy"].fillna(-1).tolist() == [0.5, -1, -1]
    platform.canned["metrics"] = {"series": [], "steps": steps}
    assert job.metrics().empty
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install pandas.*job\.series\(\)"):
        job.metrics()
    assert job.series().steps.view == (1,)


# ---------------------------------------------------------------- change


def test_changes(client: Client, platform: Platform) -> None:
    platform.add_job()
    platform.add_queue("night")
    job = client.job("mnist")
    assert job.resize(3).record.max_workers == 3
    assert job.resize(2, 2).record.min_workers == 2
    job.set(priority=7000, queue="night", labels={"team": "vision"})
    assert (job.record.priority, job.record.queue, job.record.labels) == (7000, "night", {"team": "vision"})
    assert job.set(labels={"team": None}).record.labels == {}
    assert job.set(notes="lr too high").record.notes == "lr too high"
    assert job.pause().stage == "pausing"
    with pytest.raises(Conflict, match="it is pausing"):
        job.pause()
    platform.move(job.id, "paused", "saved")
    assert job.resume().stage == "queued"
    assert job.stop(now=True).stage == "stopped"
    assert job.record.stop_now
    with pytest.raises(Conflict, match="it has ended"):
        job.set(priority=1)
    with pytest.raises(NotFound, match="no queue 'day'"):
        client.job(platform.add_job(2)["id"]).set(queue="day")


def test_a_change_of_another_user_is_not_overwritten(client: Client, platform: Platform) -> None:
    platform.add_job()
    mine, theirs = client.job("mnist"), client.job("mnist")
    theirs.set(priority=9000)
    with pytest.raises(Conflict, match="it was changed"):
        mine.set(priority=1000, only_if_unchanged=True)
    assert mine.refresh().set(priority=1000, only_if_unchanged=True).record.priority == 1000


def test_a_clone(client: Client, platform: Platform) -> None:
    platform.add_job()
    job = client.job("mnist").clone(name="again", max_workers=2)
    assert (job.name, job.record.max_workers, job.stage) == ("again", 2, "queued")
    with pytest.raises(UsageError, match="no such field"):
        job.clone(workers=3)  # type: ignore[call-arg]


# ---------------------------------------------------------------- bring files here


@pytest.fixture
def job(client: Client, platform: Platform) -> Job:
    platform.add_job()
    platform.files = {
        "work/train.py": b"print()\n",
        "work/out/a b#?.bin": bytes(range(256)) * 100,
        "work/out/deep/é.txt": b"x",
        "metrics.jsonl": b"{}\n",
    }
    return client.job("mnist")


def test_all_files_of_a_job(job: Job, platform: Platform, tmp_path: Path) -> None:
    written = job.download(tmp_path / "here")
    assert {str(path.relative_to(tmp_path / "here")): path.read_bytes() for path in written} == platform.files
    assert written[0].stat().st_mtime == NOW
    assert [file.path for file in job.files()] == ["metrics.jsonl", "work"]


@pytest.mark.parametrize("max_entries", [10_000, 2])
def test_a_folder_or_a_file_of_it(job: Job, platform: Platform, tmp_path: Path, max_entries: int) -> None:
    platform.canned["max_entries"] = max_entries
    written = job.download(tmp_path, "work/out/")
    assert [str(path.relative_to(tmp_path)) for path in written] == ["out/a b#?.bin", "out/deep/é.txt"]
    assert job.download(tmp_path, "work/train.py") == [tmp_path / "train.py"]


def test_nothing_is_overwritten_unless_asked(job: Job, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    with pytest.raises(UsageError, match=r"train\.py' exists already.*overwrite=True"):
        job.download(tmp_path, "work/train.py")
    assert (tmp_path / "train.py").read_text() == "mine"
    job.download(tmp_path, "work/train.py", overwrite=True)
    assert (tmp_path / "train.py").read_bytes() == b"print()\n"


def test_what_was_downloaded_is_not_uploaded(job: Job, client: Client, platform: Platform, project: Path) -> None:
    job.download(project / "mnist")
    job.download(project / "mnist", "work/out")
    (project / "empty").mkdir()
    job.download(project / "empty", "metrics.jsonl")
    job.download(project, "work/out")
    assert pack(project).names == ("src/deep.py", "train.py")
    assert sorted(str(path.parent.relative_to(project)) for path in project.rglob(DOWNLOAD_MARK)) == [
        *("empty", "mnist", "out")
    ], "the topmost that is new, once; not the project, where things are"
    assert "work/train.py" in pack(project / "mnist").names, "who goes there means it"
    with pytest.raises(UsageError, match=r"'mnist' was made by 'legato download'.*delete 'mnist/\.legato-download'"):
        client.submit("mnist/work/train.py")
    (project / "mnist" / DOWNLOAD_MARK).unlink()
    client.submit("mnist/work/train.py")
    assert "mnist/work/train.py" in pack(project).names
    assert not any(DOWNLOAD_MARK in name for name in pack(project).names)


def test_a_folder_in_which_something_lies_is_not_marked(job: Job, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    job.download(tmp_path, "work/train.py")
    assert pack(tmp_path).names == ("mine.txt", "train.py")
    assert not (tmp_path / DOWNLOAD_MARK).exists()


def test_what_is_not_there_and_what_is_empty(job: Job, platform: Platform, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file 'work/nothing'"):
        job.download(tmp_path, "work/nothing")
    platform.files.clear()
    with pytest.raises(UsageError, match="it contains no file"):
        job.download(tmp_path)


def test_a_download_goes_on_where_it_broke(job: Job, platform: Platform, tmp_path: Path) -> None:
    name = "work/out/a b#?.bin"
    content = platform.files[name]

    def break_after(num_bytes: int, etag: str) -> Any:
        def fault(request: httpx.Request, do: Any) -> httpx.Response:
            whole = do()

            def broken() -> Any:
                yield whole.content[:num_bytes]
                raise httpx.ReadError("")

            headers = {**whole.headers, "etag": etag}
            return httpx.Response(whole.status_code, headers=headers, content=broken())

        return fault

    same = job._line.send("GET", f"/jobs/{job.id}/files/work/out/a%20b%23%3F.bin").headers["etag"]
    platform.requests.clear()
    platform.faults.extend([None, break_after(1000, same), break_after(500, same)])
    [written] = job.download(tmp_path, name)
    assert written.read_bytes() == content
    assert [request.headers.get("range") for request in platform.requests[1:]] == [None, "bytes=1000-", "bytes=1500-"]


@pytest.mark.parametrize("num_bytes", [100, 5000])
def test_a_file_that_changes_while_it_is_downloaded_is_downloaded_again(
    job: Job, platform: Platform, tmp_path: Path, num_bytes: int
) -> None:
    def change(request: httpx.Request, do: Any) -> httpx.Response:
        old = do()
        platform.files["work/train.py"] = b"new" * num_bytes

        def broken() -> Any:
            yield b"o" * 1000
            raise httpx.ReadError("")

        return httpx.Response(200, headers={"etag": old.headers["etag"]}, content=broken())

    platform.faults.extend([None, change])
    [written] = job.download(tmp_path, "work/train.py")
    assert written.read_bytes() == b"new" * num_bytes


def test_a_download_that_fails_leaves_nothing_half_done(job: Job, platform: Platform, tmp_path: Path) -> None:
    platform.faults.append(None)
    platform.refuse_connection(1000)
    with pytest.raises(Unavailable):
        job.download(tmp_path, "work/train.py")
    assert list(tmp_path.iterdir()) == []


def test_code_comes_whole_or_not_at_all(client: Client, platform: Platform, project: Path, tmp_path: Path) -> None:
    sha256 = client.upload(pack(project))
    target = tmp_path / "new" / "code.zip"

    def broken(request: httpx.Request, do: Any) -> httpx.Response:
        def tell() -> Any:
            yield do().content[:100]
            raise httpx.ReadError("")

        return httpx.Response(200, headers=do().headers, content=tell())

    platform.faults.append(broken)
    platform.refuse_connection(1000)
    with pytest.raises(Unavailable):
        client.download_code(sha256, target)
    assert list(target.parent.iterdir()) == []
    platform.faults.clear()
    platform.faults.append(broken)
    assert client.download_code(sha256, target) == target
    assert target.read_bytes() == platform.code[sha256]
    target.write_text("mine")
    with pytest.raises(UsageError, match=r"code\.zip' exists already.*overwrite=True"):
        client.download_code(sha256, target)
    assert target.read_text() == "mine"
    client.download_code(sha256, str(target), overwrite=True)
    assert target.read_bytes() == platform.code[sha256]
    with pytest.raises(UsageError, match="Cannot write"):
        client.download_code(sha256, target.parent, overwrite=True)
    with pytest.raises(NotFound):
        client.download_code("0" * 64, tmp_path / "none.zip")
    assert {path.name for path in tmp_path.rglob("*") if path.suffix in (".zip", ".part")} == {"code.zip"}


@pytest.mark.parametrize("name", ["../evil", "work/../../evil", "/etc/evil", "work/./../../evil"])
def test_no_file_is_written_outside(job: Job, platform: Platform, tmp_path: Path, name: str) -> None:
    item = {"path": name, "kind": "file", "num_bytes": 1, "modified_at": NOW}
    platform.canned["/jobs/j-0000000001/files"] = {"items": [item], "is_complete": True}
    platform.files[name] = b"x"
    (tmp_path / "to").mkdir()
    for path in ("", "work"):
        with pytest.raises((ServerError, ValueError)):
            job.download(tmp_path / "to", path)
    assert [path.name for path in tmp_path.rglob("*")] == ["to"]


def test_a_path_that_cannot_be_written_is_reported(job: Job, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Cannot write"):
        job.download(tmp_path / "file", "work/train.py")


# ---------------------------------------------------------------- the pool, people, notebooks


def test_the_pool(client: Client, platform: Platform) -> None:
    told = {"policy": "fair", "num_slots": 4, "num_usable": 4, "num_free": 0, "num_leaving": 1, "summary": None}
    platform.canned["/pool"] = told | {"jobs": {"running": 2}}
    platform.canned["/nodes"] = {"items": [{"name": "<n1>", "num_slots": 4, "num_usable": 4, "num_free": 0}]}
    platform.canned["/usage"] = {"items": []}
    assert client.pool().jobs == {"running": 2}
    nodes = client.nodes()
    assert nodes == [Node(name="<n1>", num_slots=4, num_usable=4, num_free=0)]
    assert nodes.to_pandas()["name"].tolist() == ["<n1>"]
    assert "&lt;n1&gt;" in nodes._repr_html_()
    client.usage(since=NOW)
    assert platform.asked()[-1].endswith(f"usage?since={NOW}")
    assert "2 running" in client._repr_html_()


def test_a_queue_is_changed_without_losing_the_rest(client: Client, platform: Platform) -> None:
    platform.add_queue("night", weight=2.0, floor=1, ceiling=8, is_open=False, members=["anna"])
    queue = client.set_queue("night", weight=3)
    assert (queue.weight, queue.floor, queue.ceiling, queue.is_open, queue.members) == (3, 1, 8, False, ("anna",))
    assert client.set_queue("night", ceiling="none", members=[]).ceiling is None
    assert client.set_queue("new").is_open
    client.delete_queue("new")
    with pytest.raises(NotFound):
        client.queue("new")


def test_people(client: Client, platform: Platform) -> None:
    client.add_user("ben", "viewer")
    assert client.change_user("ben", role="user", is_disabled=True).disabled_at == NOW
    client.set_password("geheim1234", "ben")
    assert platform.password == "geheim1234"
    made = client.add_token("ci", days=7)
    assert platform.token_body == {"name": "ci", "days": 7}
    client.add_token("ci", password="correct horse")
    assert platform.token_body == {"name": "ci", "password": "correct horse"}
    assert client.revoke_token(made.token.id).revoked_at == NOW
    assert [user.name for user in client.users()] == ["ben"]
    assert len(client.tokens()) == 2


def test_a_notebook_shows_what_others_wrote_as_text(client: Client, platform: Platform) -> None:
    platform.add_job(name="mnist", reason="<script>alert(1)</script>")
    job = client.job("mnist")
    for shown in (job._repr_html_(), client.jobs()._repr_html_()):
        assert "mnist" in shown
        assert "2 of 1..4" in shown
        assert "<script>" not in shown
    assert Listing([])._repr_html_() == "<i>none</i>"


def test_a_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        dataframes.need_pandas()
