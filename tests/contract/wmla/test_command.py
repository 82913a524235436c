"""dlicmd.py against the real server's REST interface for WMLA: both must agree."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import structlog
from tests.unit.compat.wmla.rest.asking import PASSWORD, Console
from tests.unit.server.platform import Platform, make_template

from legato.cli.platform.server import find_plugins
from legato.compat.wmla import names
from legato.compat.wmla.tools import dlicmd


class Done(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


Do = Callable[..., Done]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_template(tmp_path_factory.mktemp("template") / "legato.db")


@pytest.fixture
def console(tmp_path: Path, template: Path, request: pytest.FixtureRequest) -> Iterator[Console]:
    structlog.configure(
        processors=[structlog.processors.KeyValueRenderer()],
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    settings = getattr(request, "param", {})
    with Platform(tmp_path / "platform", template, plugins=find_plugins, **settings).running() as platform:
        yield Console(platform)
    structlog.reset_defaults()


@pytest.fixture
def do(console: Console, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Do:
    """Run a command as ann, who is logged on."""
    (tmp_path / "home").mkdir()
    (tmp_path / "here/mnist/sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    Path("mnist/main.py").write_text("print('hello')\n")
    Path("mnist/sub/part.py").write_text("")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DLICMD_REST_HOST", console.platform.url)
    for name in ("DLICMD_REST_PORT", "DLICMD_USERNAME", "DLICMD_PASSWORD", "DLICMD_JWT_TOKEN"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Done:
        code = dlicmd.main(words)
        return Done(code, *capsys.readouterr())

    assert run("--logon", "--username", "ann", "--password", PASSWORD).code == 0
    return run


SUBMIT = ("--exec-start", "edtPyTorch", "--model-dir", "mnist", "--model-main", "main.py")


def submit(do: Do, *words: str) -> str:
    """Submit, and cut the id out of the output as scripts do: from the first brace on."""
    done = do(*SUBMIT, *words)
    assert done.code == 0, done.err
    told = json.loads(done.out[done.out.index("{") :])
    assert told["execId"] == told["appId"]
    return str(told["appId"])


def test_the_server_hands_out_this_very_file(console: Console) -> None:
    answer = console.platform.http.get("/ui/tools/dlicmd.py")
    assert answer.status_code == 200
    assert answer.content == Path(dlicmd.__file__).read_bytes()


def test_logging_on_and_off(do: Do, console: Console) -> None:
    assert do("--exec-get-all").code == 0
    assert do("--logon", "--username", "ann", "--password", "wrong")[:2] == (
        dlicmd.NOT_LOGGED_ON,
        "Authentication error. The request was denied.\n",
    )
    token = dlicmd.read_keys()[console.platform.url]
    assert do("--logoff").code == 0
    assert do("--exec-get-all").out == "Unable to find token from cookies. Please logon first.\n"
    # The token is revoked on the server, not only removed from the file.
    assert do("--exec-get-all", "--jwt-token", token).out == "Authentication error. The request was denied.\n"
    assert do("--exec-get-all", "--username", "ann", "--password", PASSWORD).code == 0
    assert do("--logon", "--jwt-token", console.platform.secrets["ann"]).code == 0
    assert do("--exec-get-all").code == 0


def test_a_submission_arrives_unchanged(do: Do, console: Console) -> None:
    odd = ["--title", 'it\'s  a "test"\n', "", "$HOME;ls *", "--", "\\", "--numWorker", "9"]
    words = ["--numWorker", "2", "--workerDeviceNum=2", "--msd-env", "KEY=a b", "--msd-priority", "77"]
    job = submit(
        do, *words, "--appName", "my app", "--cs-datastore-meta", "type=fs,data_path=digits", "--lr", "1", "--", *odd
    )
    record = console.platform.get(f"jobs/{job}")
    spec = console.platform.get(f"jobs/{job}/spec")
    assert (record["min_workers"], record["max_workers"], record["is_elastic"], record["priority"]) == (1, 4, True, 77)
    assert spec["program"] == [names.LAUNCHER, "_submitted_code/mnist/main.py", "--lr", "1", *odd]
    assert spec["environment"]["KEY"] == "a b"
    assert spec["environment"]["DATA_DIR"].endswith("/data/digits")
    code = console.platform.home / "code" / record["code"] / "_submitted_code/mnist"
    assert (code / "main.py").read_text() == "print('hello')\n" and (code / "sub/part.py").exists()


def test_a_single_file_arrives(do: Do, console: Console) -> None:
    Path("train.py").write_text("pass\n")
    done = do(
        "--exec-start", "tensorflow", "--appName", "my-tf-app", "--workerDeviceType", "cpu", "--model-main", "train.py"
    )
    assert (
        done.code == 0 and done.err.startswith("Notice: --workerDeviceType is ignored: ") and done.err.count("\n") == 1
    )
    job = json.loads(done.out.partition("Content size: 5.0B\n")[2])["appId"]
    assert console.platform.get(f"jobs/{job}/spec")["program"] == [names.LAUNCHER, "_submitted_code/train/train.py"]


def test_options_without_effect_are_reported_once(do: Do) -> None:
    done = do("--exec-start", "PyTorch", "--numWorker", "3", "--numPs", "1", *SUBMIT[2:])
    assert done.code == 0
    assert "Notice: --numPs is ignored" in done.err and "more than one worker" in done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--exec-start", "edtPytorch", *SUBMIT[2:]), "Did you mean edtPyTorch?"),
        ((*SUBMIT, "--ig", "nowhere"), "Error 400: Instance group name nowhere not found."),
        ((*SUBMIT, "--numWorker", "many"), "whole number"),
        ((*SUBMIT, "--msd-env", "LEGATO_X=1"), "LEGATO_X"),
        (("--exec-start", "PyTorch", "--numWorker", "1"), "--model-main"),
        (("--exec-get", "j-0000000000"), "There is no execution"),
        (("--exec-stop", "nothing"), "There is no execution"),
        (("--exec-trainresult", "j-0000000000"), "There is no execution"),
        (("--app-get", "j-0000000000"), "There is no execution or application"),
        (("--rp-get", "nowhere"), "There is no resource plan"),
        (("--k8s-obj-get-all", "configmap"), "The types are pod and paralleljob"),
        (("--exec-get-all", "--query-args", "state=BUSY"), "There is no state BUSY"),
    ],
)
def test_refusals_say_what_to_do(words: tuple[str, ...], told: str, do: Do) -> None:
    done = do(*words)
    assert done.code == dlicmd.REFUSED
    assert told in done.err and done.err.startswith("Error 4") and done.err.count("\n") == 1
    assert "{" not in done.out


@pytest.mark.parametrize("console", [{"upload_max_bytes": 2**16, "upload_max_file_bytes": 2**16}], indirect=True)
def test_a_directory_that_is_too_large_is_reported_with_the_limit(do: Do) -> None:
    Path("mnist/data.bin").write_bytes(os.urandom(4 * 2**20))
    done = do(*SUBMIT)
    assert done.code == dlicmd.REFUSED, done.err
    assert done.err.startswith("Error 413: The upload has more than ") and "data directory" in done.err


def test_a_running_job_shows_in_all_tables(do: Do, console: Console) -> None:
    job = submit(do, "--numWorker", "3")
    assert json.loads(do("--exec-get", job).out)["state"] == "PENDING_CRD_SCHEDULER"
    console.start(job, "node/0", "node/1")
    (head, row) = [line.split() for line in do("--exec-get-all").out.splitlines()]
    shown = dict(zip(head, row, strict=True))
    assert (shown["id"], shown["submit_user"], shown["framework"], shown["type"]) == (
        job,
        "ann",
        "edtPyTorch",
        "ELASTIC",
    )
    assert (shown["state"], shown["num"]) == ("RUNNING", "3")
    (head, row) = [line.split() for line in do("--app-get-all").out.splitlines()]
    shown = dict(zip(head, row, strict=True))
    assert (shown["id"], shown["consumer"], shown["pri"], shown["gpu"]) == (job, "default", "5000", "2")
    assert json.loads(do("--app-get", job).out)["used_gpu"] == 2
    assert do("--app-history-get-all").out.count("\n") == 1
    console.platform.end(job)
    assert do("--app-get-all").out.count("\n") == 1
    assert do("--app-history-get-all").out.count("\n") == 2
    assert do("--app-wait", job)[:2] == (0, f"{job} FINISHED 0s\n")
    assert do("--exec-get-all", "--query-args", "state=FINISHED&limit=5", "-o", "custom-columns=id,state").out == (
        f"{'id'.ljust(len(job))}  state\n{job}  FINISHED\n"
    )


def test_logs_and_result_come_back(do: Do, console: Console) -> None:
    job = submit(do)
    console.start(job, "node/0")
    console.write(job, "driver/events.jsonl", "")
    log = f"work/{names.LOG}/{names.executor_id(job, 1)}.host"
    console.write(job, f"{log}/{names.OUT_FILE}", "Test loss: 0.1\nTest accuracy: 0.9\n")
    console.write(job, f"{log}/{names.ERR_FILE}", "a warning\n")
    console.write(job, "logs/worker-0.log", "Test loss: 0.1\na warning\n")
    assert do("--exec-trainoutlogs", job).out == "Test loss: 0.1\nTest accuracy: 0.9\n"
    assert do("--exec-trainerrlogs", job).out == "a warning\n"
    for command in ("--exec-outlogs", "--app-outlogs", "--exec-errlogs", "--app-launcherlogs"):
        done = do(command, job)
        assert done.code == 0, done.err
        assert done.out.startswith("======== driver ")
    assert "Error 404" in do("--exec-trainresult", job).err
    console.write(job, f"work/{names.MODEL}/train/model_epoch_final.pth", b"weights")
    done = do("--exec-trainresult", job)
    name = done.out.removeprefix("Train result is saved to ").rstrip("\n")
    assert (done.code, done.err) == (0, "") and name.startswith("dlpd-model") and name.endswith(".zip")
    with zipfile.ZipFile(io.BytesIO(Path(name).read_bytes())) as archive:
        assert archive.read("model/train/model_epoch_final.pth") == b"weights"


def test_stopping_and_deleting(do: Do, console: Console) -> None:
    first, second, third = (submit(do) for _ in range(3))
    theirs = console.submit(who="ben")["id"]
    assert do("--exec-stop", first) == (0, f"Stop exec {first} succeed. HTTP:204 \n", "")
    assert json.loads(do("--exec-get", first).out)["state"] == "KILLED"
    assert do("--exec-delete", first) == (0, f"Delete exec {first} succeed. HTTP:204 \n", "")
    assert do("--exec-get", first).code == dlicmd.REFUSED
    assert do("--app-stop", second)[:2] == (0, f"Stop app {second} succeed. HTTP:204 \n")
    assert do("--app-wait", second)[0] == dlicmd.NOT_FINISHED
    everybody = ("--username", "admin", "--jwt-token", console.platform.secrets["admin"])
    assert do("--app-stop-all", *everybody) == (0, "", "")
    assert do("--app-stop-all").out == f"Stop app {third} succeed. HTTP:204 \n"
    assert do("--exec-delete-all") == (0, "Execs are deleted\n", "")
    assert do("--exec-get-all").out.splitlines()[1:] == []
    left = do("--exec-get-all", *everybody).out.splitlines()[1:]
    assert [line.split()[0] for line in left] == [theirs]
    assert console.platform.get(f"jobs/{theirs}", who="ben")["stage"] == "queued"


SWEEP = {
    "--exec-get-all": dlicmd.DONE,
    "--dl-frameworks": dlicmd.DONE,
    "--status": dlicmd.DONE,
    "--app-get-all": dlicmd.DONE,
    "--app-history-get-all": dlicmd.DONE,
    "--app-analyze": dlicmd.DONE,
    "--app-stop-all": dlicmd.DONE,
    "--rp-get-all": dlicmd.DONE,
    "--rp-get default": dlicmd.DONE,
    "--rp-delete default": dlicmd.REFUSED,  # only admins may
    "--pj-get-all": dlicmd.DONE,
    "--k8s-obj-get-all pod": dlicmd.DONE,
}


@pytest.mark.parametrize("line", SWEEP)
def test_every_other_command_has_an_answer(line: str, do: Do) -> None:
    done = do(*line.split())
    assert done.code == SWEEP[line], done.err
    assert bool(done.err) == bool(done.code)


def test_frameworks_are_listed_by_name(do: Do) -> None:
    assert {"edtPyTorch", "PyTorch", "distPyTorch"} <= {one["name"] for one in json.loads(do("--dl-frameworks").out)}
