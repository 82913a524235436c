"""Submissions: the forms of a request, the job that it becomes, and refusals before the job starts."""

from __future__ import annotations

import ast
import bz2
import contextlib
import io
import json
import lzma
import socket
import tarfile
import threading
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from tests.tiers import examples
from tests.unit.compat.wmla.rest.asking import CONDUCTOR, DLI, MNIST, MODEL, Console, check_error, make_tar
from tests.unit.compat.wmla.rest.conftest import NewConsole
from tests.unit.server.platform import LIMIT_S

from legato.compat.wmla.names import LAUNCHER
from legato.compat.wmla.rest import bundles, submitting
from legato.compat.wmla.rest.imports import find_imports, make_launcher
from legato.engines.cgroups import CONTROLLERS, Place, Support
from legato.engines.imports import imported_packages
from legato.server import launches
from legato.uploads import receiving

MAIN = "_submitted_code/mnist/main.py"
JSON = {"Content-Type": "application/json"}
WORDS = [
    *(
        "--numWorker",
        "2",
        "--msd-env",
        "A=b",
        "--appName",
        "a b",
        "'a",
        '"',
        "--",
        "--epochs",
        "--ig",
        "default",
        "nobody",
    ),
    *("--edt-options", "x=1,maxWorkers=2", "--msd-priority", "--model-dir", "m", "../m", "\u00e4", "\n", "--exclusive"),
]


def spec(console: Console, record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = console.platform.get(f"jobs/{record['id']}/spec")
    return found


def job(console: Console, record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = console.platform.get(f"jobs/{record['id']}")
    return found


def code(console: Console, record: dict[str, Any]) -> dict[str, bytes]:
    """Return the unpacked code of a job, by path."""
    root = console.platform.home / "code" / job(console, record)["code"]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def num_jobs(console: Console) -> int:
    return len(console.get("/execs"))


# ---------------------------------------------------------------- the job


def test_the_record_of_later_releases_is_flat(console: Console) -> None:
    record = console.submit()
    assert {
        *("id", "args", "submissionId", "creator", "state", "appId", "schedulerUrl", "modelFileOwnerName", "workDir"),
        *("appName", "createTime", "elastic", "nameSpace", "numWorker", "framework"),
    } <= set(record)
    assert all(isinstance(value, str | int | float | bool) for value in record.values())
    assert record["state"] == "SUBMITTED"
    assert record["args"] == MNIST
    assert (record["elastic"], record["numWorker"], record["framework"]) == (True, 4, "edtPyTorch")
    assert record["createTime"].endswith("Z")
    assert "sigId" not in record


def test_the_record_of_1_2_releases(console: Console) -> None:
    console.add_queue("wml-ig-edt")
    for record in (
        console.submit(MNIST, sigName="wml-ig-edt"),
        console.submit(MNIST + " --ig wml-ig-edt"),
    ):
        assert {
            *("userName", "sigName", "sigId", "id", "args", "submissionId", "appId", "masterURL", "state"),
            "executionUserName",
        } <= set(record)
        assert (record["sigName"], record["userName"]) == ("wml-ig-edt", "ann")
        assert record["submissionId"].startswith("driver-")
        assert job(console, record)["queue"] == "wml-ig-edt"
        assert spec(console, record)["environment"]["SPACE_ID"] == "wml-ig-edt"
        # Releases 1.2.x have no other name for this state.
        assert console.get(f"/execs/{record['id']}")["state"] == "SUBMITTED"


def test_an_elastic_job(console: Console) -> None:
    record = console.submit(MNIST + " --msd-env EDT_PULL_FAILED_LIMITS=3 --msd-priority 7000 --appName my-run")
    found, work = job(console, record), spec(console, record)
    assert (found["is_elastic"], found["min_workers"], found["max_workers"]) == (True, 1, 4)
    assert (found["name"], found["priority"], found["queue"]) == ("my-run", 7000, "default")
    assert work["program"] == [LAUNCHER, MAIN, "--epochs", "3"]
    data = console.platform.home / "data"
    want = {
        "DLI_DATA_FS": str(data),
        "DATA_DIR": str(data / "pytorch-mnist"),
        "FABRIC_BACKEND": "pytorch",
        "DLI_IS_ELASTIC": "true",
        "EDT_PULL_FAILED_LIMITS": "3",
        "DLI_SUBMIT_USERNAME": "ann",
        "WMLA_MAX_WORKERS": "4",
        "SPACE_ID": "default",
    }
    assert want.items() <= work["environment"].items()
    assert "WMLA_NWORKER" not in work["environment"]


def test_static_jobs(console: Console) -> None:
    gang = console.submit("--exec-start distPyTorch --numWorker 2 --workerDeviceNum 2 --model-main main.py -- --lr 0.1")
    found, work = job(console, gang), spec(console, gang)
    assert (found["is_elastic"], found["min_workers"], found["max_workers"]) == (False, 4, 4)
    assert (work["environment"]["WMLA_NWORKER"], work["environment"]["WMLA_WORKER_NDEVICE"]) == ("4", "1")
    assert work["program"] == [LAUNCHER, MAIN, "--lr", "0.1"]
    single = console.send("--exec-start PyTorch --numWorker 2 --model-main main.py", [("a.tar", MODEL)])
    assert job(console, single.json())["max_workers"] == 1
    assert "more than one worker" in single.headers["x-wmla-notice"]


def test_the_code_is_laid_out_with_its_launcher(console: Console) -> None:
    files = code(console, console.submit())
    assert sorted(files) == [
        MAIN.replace("main.py", "elog.py"),
        MAIN,
        "_submitted_code/mnist/sub/a.txt",
        LAUNCHER,
    ]
    assert files[MAIN] == b"print('hello')\n"
    launcher = files[LAUNCHER].decode()
    compile(launcher, LAUNCHER, "exec")
    assert "compat/wmla/site/launch.py" in launcher


IMPORTS = b"""
import os, tensorflow as tf, scipy.stats
import keras; import never_found
  from sklearn.datasets import load_digits
from fabric_model import FabricModel
from . import near
import net, data, class, 1x, a-b, \xff
from os import system as import_all
(((((
"""


@pytest.mark.parametrize(
    ("framework", "want"), [("edtPyTorch", ["os", "scipy.stats", "sklearn.datasets"]), ("tensorflow", [])]
)
def test_the_launcher_names_the_programs_imports(console: Console, framework: str, want: list[str]) -> None:
    sent = {"mnist/main.py": IMPORTS, "mnist/net.py": b"import pandas\n", "mnist/lib/data/__init__.py": b""}
    args = f"--exec-start {framework} --model-main main.py --model-dir mnist"
    tree = ast.parse(code(console, console.submit(args, make_tar(sent)))[LAUNCHER])
    (branch,) = [one for one in tree.body if isinstance(one, ast.If)] or [None]
    found = [] if branch is None else [ast.unparse(one).removeprefix("import ") for one in branch.body]
    assert found == want
    if branch is not None:
        assert ast.unparse(branch.test) == "False"
    one_file = console.send(f"--exec-start {framework} --model-main main.py", [("main.py", IMPORTS)]).json()
    text = code(console, one_file)[LAUNCHER].decode()
    assert ("import scipy.stats\n" in text) == bool(want)


def test_the_platform_finds_the_programs_imports_in_the_launcher(tmp_path: Path) -> None:
    (tmp_path / LAUNCHER).write_bytes(make_launcher(find_imports("import msgspec, os\nfrom httpx import Client\n")))
    assert set(imported_packages(tmp_path / LAUNCHER)) >= {"msgspec", "httpx"}
    assert "os" not in imported_packages(tmp_path / LAUNCHER)


def test_the_same_files_are_stored_once_with_and_without_gzip(console: Console) -> None:
    files = {"mnist/main.py": b"a = 1\n"}
    first = console.submit(content=make_tar(files))
    second = console.submit(content=make_tar(files, gzips=False))
    assert job(console, first)["code"] == job(console, second)["code"]


@pytest.mark.parametrize(
    ("files", "args", "want"),
    [
        # A single program.
        ([("train.py", b"")], "--model-main train.py", ["_submitted_code/train/train.py"]),
        ([("train.py", b"")], "", ["_submitted_code/train/train.py"]),
        # A program and its files.
        (
            [("train.py", b""), ("elog.py", b"")],
            "--model-main train.py --model-dir m",
            ["_submitted_code/m/elog.py", "_submitted_code/m/train.py"],
        ),
        # A model directory without its top folder, and another file.
        (
            [("extra.json", b""), ("net.modelDir.tar", make_tar({"a.py": b"", "./b/c.py": b""}))],
            "--model-main b/c.py",
            ["_submitted_code/net/a.py", "_submitted_code/net/b/c.py", "_submitted_code/net/extra.json"],
        ),
        # An archive whose folder has another name than --model-dir: the folder's name is used.
        (
            [("x.modelDir.tar", make_tar({"resnet/a.py": b""}, gzips=False))],
            "--model-main a.py --model-dir other",
            ["_submitted_code/resnet/a.py"],
        ),
        # The main file with the folder's name before it.
        ([("x.tar.gz", make_tar({"r/a.py": b""}))], "--model-main r/a.py", ["_submitted_code/r/a.py"]),
        # An archive that was packed on a Mac.
        (
            [("m.modelDir.tar", make_tar({"._r": b"", "r/._a.py": b"", "r/a.py": b"", "__MACOSX/._r": b""}))],
            "--model-main a.py --model-dir r",
            [f"_submitted_code/{path}" for path in ("._r", "__MACOSX/._r", "r/._a.py", "r/a.py")],
        ),
        # File names that clients invent.
        ([("C:\\my\\train.py", b"")], "--model-main train.py", ["_submitted_code/train/train.py"]),
    ],
)
def test_layouts(console: Console, files: list[tuple[str, bytes]], args: str, want: list[str]) -> None:
    answer = console.send(f"--exec-start PyTorch {args}", files)
    assert answer.status_code == 200, answer.text
    assert [path for path in sorted(code(console, answer.json())) if path != LAUNCHER] == sorted(want)


def test_a_program_on_the_machines_needs_nothing_sent(console: Console) -> None:
    answer = console.send("--exec-start PyTorch --model-main /programs/a.py --n 1", [])
    assert answer.status_code == 200, answer.text
    assert spec(console, answer.json())["program"] == [LAUNCHER, "/programs/a.py", "--n", "1"]
    assert list(code(console, answer.json())) == [LAUNCHER]


def test_the_form_field_data(console: Console) -> None:
    spec_of_nodes = {"nodes": {"num_nodes": 3, "mem": {"size": "4G"}, "gpu": {"num_gpu": 2}, "cpu": {"units": 1}}}
    data = json.dumps({"args": MNIST, "hardwareSpec": spec_of_nodes, "dataSource": [{"type": "fs"}]})
    answer = console.send(None, [("mnist.modelDir.tar", MODEL)], data={"data": data})
    assert answer.status_code == 200, answer.text
    assert answer.json()["numWorker"] == 6
    assert "dataSource" in answer.headers["x-wmla-notice"]
    # The query has precedence over the form.
    both = console.send("--exec-start PyTorch --model-main main.py", [("m.tar", MODEL)], data={"data": data})
    assert both.json()["framework"] == "PyTorch"
    alone = console.ask("POST", "/execs", json={"args": "--exec-start PyTorch --model-main /a.py"})
    assert alone.status_code == 200


def test_slashes_and_blanks_do_not_matter(console: Console) -> None:
    args = "  --exec-start   edtPyTorch\n --model-main main.py\t--model-dir 'mnist' -- 'a b'  \n"
    answer = console.ask("POST", "//execs/", params={"args": args}, files=[("file", ("mnist.modelDir.tar", MODEL))])
    assert answer.status_code == 200, answer.text
    assert answer.json()["args"] == args
    assert spec(console, answer.json())["program"][2:] == ["a b"]


def test_options_without_effect_are_named_in_one_line(console: Console) -> None:
    answer = console.send(MNIST + " --workerMemory 4G --exclusive --edt-options \u00e4=1", [("mnist.tar", MODEL)])
    notice = answer.headers["x-wmla-notice"]
    assert notice.startswith("Accepted, but without effect here: --workerMemory, --exclusive, --edt-options ")
    assert "\n" not in notice
    assert "\u00e4." in console.get(f"/execs/{answer.json()['id']}")["notice"]
    assert "Memory and cores are not reserved; --workerMemoryLimit and --workerCPULimit limit a worker." in notice
    assert console.submit()["notice"] == ""


def test_a_word_like_an_option_is_passed_to_the_program_and_reported(console: Console) -> None:
    answer = console.send(MNIST + " --numWoker 4 --workerMemory 4G -- --numWroker 5", [("mnist.tar", MODEL)])
    notice = answer.json()["notice"]
    assert notice == answer.headers["x-wmla-notice"]
    assert notice == (
        "Accepted, but without effect here: --workerMemory. --numWoker is passed to the program; did you mean "
        "--numWorker?"
        " Memory and cores are not reserved; --workerMemoryLimit and --workerCPULimit limit a worker."
    )
    assert spec(console, answer.json())["program"][2:] == ["--epochs", "3", "--numWoker", "4", "--numWroker", "5"]


def test_limits_that_cannot_be_enforced_are_reported_and_the_job_runs(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = MNIST.replace(",data_path=pytorch-mnist", "") + " --workerMemoryLimit 8G --workerCPULimit 500m"
    console.platform.lead()
    console.platform.loop.starts_drivers = True
    monkeypatch.setattr(launches, "find_support", lambda: Support({}, "no control groups are mounted"))
    answer = console.send(f"{args} --exclusive", [("mnist.tar", MODEL)])
    told = (
        "Accepted, but without effect here: --exclusive. The job runs without its limits of memory and CPU cores: this "
        "machine cannot limit memory and cpu of a job: no control groups are mounted"
    )
    assert answer.headers["x-wmla-notice"].startswith(told)
    assert console.get(f"/execs/{answer.json()['id']}")["notice"] == answer.headers["x-wmla-notice"]
    found = spec(console, answer.json())
    assert (found["memory_bytes"], found["num_cpus"], found["must_limit"]) == (8 * 2**30, 0.5, False)
    places = {name: Place(2, Path("/sys/fs/cgroup")) for name in CONTROLLERS}
    monkeypatch.setattr(launches, "find_support", lambda: Support(places, ""))
    assert "x-wmla-notice" not in console.send(args, [("mnist.tar", MODEL)]).headers


def test_a_guessed_program_is_reported(console: Console) -> None:
    args = "--exec-start PyTorch --model-dir mnist"
    files = {"mnist/sub/train.py": b"", "mnist/config.json": b"{}", "mnist/sub/._x.py": b"", "__MACOSX/mnist/y.py": b""}
    guessed = console.send(args, [("mnist.modelDir.tar", make_tar(files))])
    assert guessed.headers["x-wmla-notice"] == (
        "Without --model-main the program is mnist/sub/train.py, the only one in the upload."
    )
    assert spec(console, guessed.json())["program"] == [LAUNCHER, "_submitted_code/mnist/sub/train.py"]
    two = console.send(args, [("mnist.tar", make_tar(files | {"mnist/a.py": b""}))])
    check_error(two, 400, "directory, which has: mnist/a.py, mnist/sub/train.py.")
    check_error(console.send(args, []), 400, "no --model-main FILE")
    assert console.send(f"{args} --model-main train.py", [("train.py", b"")]).json()["notice"] == ""


def test_a_job_has_the_name_of_its_programs_folder(console: Console) -> None:
    args = "--exec-start PyTorch --model-main main.py"
    for said in (args, f"{args} --model-dir mnist", f"{args} --model-dir ../other"):
        record = console.submit(said)
        assert (job(console, record)["name"], record["appName"]) == ("mnist", "SingleNodePytorchTrain-ann")
    assert job(console, console.send(args, [("main.py", b"")]).json())["name"] == "main"
    # As dlicmd.py sends a single file.
    assert job(console, console.send(f"{args} --model-dir m", [("main.py", b"")]).json())["name"] == "m"
    absolute = "--exec-start PyTorch --model-main /programs/train.py"
    assert job(console, console.send(absolute, []).json())["name"] == "train"
    assert job(console, console.send(f"{absolute} --appName 'my run'", []).json())["name"] == "my-run"


def test_missing_data_are_reported_but_a_program_may_make_them(console: Console) -> None:
    root = console.platform.home / "data"
    console.platform.lead()
    console.platform.loop.starts_drivers = True
    answer = console.send(MNIST, [("mnist.tar", MODEL)])
    assert answer.is_success, answer.text
    assert f"DATA_DIR={root / 'pytorch-mnist'} does not exist yet" in answer.headers["x-wmla-notice"]
    assert spec(console, answer.json())["data"] is None, "else its workers would be refused"
    assert num_jobs(console) == 1
    # Legato does not check the root of all data, nor a DATA_DIR that the user has set.
    for said in (MNIST.replace(",data_path=pytorch-mnist", ""), MNIST + " --msd-env DATA_DIR=/elsewhere"):
        assert "does not exist" not in console.send(said, [("mnist.tar", MODEL)]).headers.get("x-wmla-notice", "")
    (root / "pytorch-mnist").mkdir(parents=True)
    answer = console.send(MNIST, [("mnist.tar", MODEL)])
    assert "does not exist" not in answer.headers.get("x-wmla-notice", "")
    found = spec(console, answer.json())
    assert found["data"] == found["environment"]["DATA_DIR"] == str(root / "pytorch-mnist")
    # As in WMLA, an absolute path is also relative to the root of all data.
    absolute = console.submit(MNIST.replace("=pytorch-mnist", "=/pytorch-mnist"))
    assert spec(console, absolute)["environment"]["DATA_DIR"] == str(root / "pytorch-mnist")
    # Other errors are refused as before.
    check_error(console.send(MNIST + " --msd-env 1x=2", [("mnist.tar", MODEL)]), 400, "1x")


def test_variables_are_shown_to_no_other_user(console: Console) -> None:
    record = console.submit(MNIST + " --msd-env API_KEY=hunter2")
    assert spec(console, record)["environment"]["API_KEY"] == "hunter2"
    for who in ("ann", "admin", "eye"):
        shown = console.ask("GET", f"/execs/{record['id']}", who=who).text
        assert "API_KEY=***" in shown
        assert "hunter2" not in shown
        assert "hunter2" not in console.platform.ask("GET", f"jobs/{record['id']}", who=who).text


def test_a_long_argument_string_is_returned_completely(console: Console) -> None:
    args = MNIST + " " + " ".join(f"--option-{number} value" for number in range(100))
    assert console.submit(args)["args"] == args


@settings(max_examples=examples(20), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example("--edt-options 'a\r\nSet-Cookie: x=1'")
@example("--appName 'a\x1bb' 'c\nd' --msd-label '\x7f'")
@example("\ud800")
@example("--msd-env A=\x0b")
@given(some.text(max_size=30) | some.lists(some.sampled_from(WORDS), max_size=6).map(" ".join))
def test_any_argument_string_is_accepted_or_refused(shared: Console, text: str) -> None:
    said = f"--exec-start PyTorch --model-main /programs/a.py {text}"
    answer = shared.ask("POST", "/execs", content=json.dumps({"args": said}), headers=JSON)
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 200:
        notice = answer.headers.get("x-wmla-notice", "")
        assert "set-cookie" not in answer.headers
        assert notice.isprintable()
        job = answer.json()["id"]
        assert shared.get(f"/execs/{job}")["id"] == job
        assert shared.ask("DELETE", f"/execs/{job}").status_code == 204
    else:
        check_error(answer, 400)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (None, "There are no arguments"),
        ("--model-main main.py", "no --exec-start"),
        ("--exec-start edtPytorch --model-main main.py", "Framework edtPytorch not found. Did you mean edtPyTorch"),
        ("--exec-start edtPyTorch --model-main missing.py", "'missing.py' is not in the upload, which has: mnist/"),
        ("--exec-start edtPyTorch", "no --model-main"),
        ("--exec-start edtPyTorch --model-main ../main.py", "points outside"),
        ("--exec-start edtPyTorch --model-main main.py --ig X", "Error 400: Instance group name X not found."),
        ("--exec-start edtPyTorch --model-main main.py --ig ../jobs", "Instance group name ../jobs not found."),
        ("--exec-start edtPyTorch --model-main main.py --consumer X", "Consumer X not found."),
        ("--exec-start edtPyTorch --model-main main.py --numWorker x", "--numWorker"),
        ("--exec-start edtPyTorch --model-main main.py --msd-priority 10001", "10001"),
        ("--exec-start edtPyTorch --model-main 'main.py", "not closed"),
        ("--exec-start edtPyTorch --user-cmd -- ls", "--user-cmd is not supported"),
    ],
)
def test_arguments_that_cannot_be_used(shared: Console, args: str | None, told: str) -> None:
    check_error(shared.send(args, [("mnist.modelDir.tar", MODEL)]), 400, told)
    assert num_jobs(shared) == 0


def test_an_unknown_group_in_the_query(shared: Console) -> None:
    answer = shared.send(MNIST, [("mnist.modelDir.tar", MODEL)], sigName="X")
    assert answer.text == "Error 400: Instance group name X not found. You may use default."
    assert num_jobs(shared) == 0


def test_an_unknown_group_is_reported_with_those_that_the_user_may_use(console: Console) -> None:
    console.add_queue("wml-ig-edt")
    console.add_queue("wml-secret", is_open=False)
    want = "Instance group name wml-ig-etd not found. Did you mean 'wml-ig-edt'? You may use default, wml-ig-edt."
    assert console.send(MNIST + " --ig wml-ig-etd", [("m.tar", MODEL)]).text == f"Error 400: {want}"
    check_error(console.send(MNIST + " --consumer x", [("m.tar", MODEL)]), 400, "Consumer x not found. You may use def")
    path = "/instances/wml-ig-etd"
    for tail in ("", "/applications"):
        assert console.ask("GET", path + tail, base=CONDUCTOR).text == f"Error 404: {want}"
    for number in range(30):
        console.add_queue(f"q{number:02}")
    told = check_error(console.send(MNIST + " --ig '\u00e4'", [("m.tar", MODEL)]), 400)
    assert "q18 and 12 more." in told and "secret" not in told


def test_an_empty_upload_is_refused(shared: Console) -> None:
    check_error(shared.send(MNIST, []), 400, "The upload is empty")


def entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (make_tar({"mnist/main.py": b"", "mnist/../../x.py": b""}), "points outside of the model directory"),
        (make_tar({"mnist/main.py": b"", "/etc/passwd": b""}), "points outside of the model directory"),
        (make_tar({"mnist/main.py": b"", "mnist/a\\b": b""}), "points outside of the model directory"),
        (make_tar({"mnist/main.py": b""}, entries=(entry("mnist/l", tarfile.SYMTYPE, "/etc"),)), "link"),
        (make_tar({"mnist/main.py": b""}, entries=(entry("mnist/l", tarfile.LNKTYPE, "mnist/main.py"),)), "link"),
        (make_tar({"mnist/main.py": b""}, entries=(entry("mnist/p", tarfile.FIFOTYPE),)), "special file"),
        (make_tar({"mnist/main.py": b"", "mnist/zeros": b"\0" * 3_000_000}), "too large"),
        (make_tar({}, entries=(entry("mnist", tarfile.DIRTYPE),)), "no file"),
        (make_tar({"mnist/main.py": b"x" * 2000})[:-40], "damaged"),
        (b"not a tar file at all", "damaged"),
        (make_tar({"mnist/" + "n" * 300: b"", "mnist/main.py": b""}), "cannot be used for a file"),
        (make_tar({"mnist/main.py": b"", "mnist/MAIN.py": b""}), "MAIN.py"),
    ],
    # Without ids, pytest would name the cases by these bytes, which contain the time.
    ids=["up", "absolute", "backslash", "symlink", "link", "pipe", "bomb", "empty", "cut", "text", "long", "case"],
)
def test_malicious_archives_are_refused(shared: Console, content: bytes, told: str) -> None:
    before = set((shared.platform.home / "code").iterdir())
    check_error(shared.send(MNIST, [("mnist.modelDir.tar", content)]), 400, told)
    assert num_jobs(shared) == 0
    assert set((shared.platform.home / "code").iterdir()) - before <= {shared.platform.home / "code/.lock"}


def make_zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        packed.writestr("mnist/main.py", "print('hello')\n")
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("mnist.zip", make_zip(), "'mnist.zip' is a zip file, which Legato does not unpack. Send a tar file"),
        ("mnist.modelDir.tar", make_zip(), "Cannot unpack 'mnist.modelDir.tar': it is a zip file. Send a tar file"),
        ("mnist.tar.bz2", bz2.compress(make_tar({"mnist/main.py": b""}, gzips=False)), "is packed with bzip2, which"),
        ("mnist.tar.xz", lzma.compress(make_tar({"mnist/main.py": b""}, gzips=False)), "is packed with xz, which"),
        ("mnist.7z", b"7z\xbc\xaf\x27\x1c" + b"\0" * 99, "is a 7z file, which"),
    ],
    ids=["zip", "zip called tar", "bzip2", "xz", "7z"],
)
def test_other_kinds_of_archives_are_named(shared: Console, name: str, content: bytes, told: str) -> None:
    for args in (MNIST, "--exec-start PyTorch"):
        text = check_error(shared.send(args, [(name, content)]), 400, told)
        assert "tar -czf NAME.modelDir.tar FOLDER" in text
    assert num_jobs(shared) == 0


def test_packed_files_beside_a_program_are_its_own(console: Console) -> None:
    record = console.send("--exec-start PyTorch", [("main.py", b""), ("data.zip", make_zip())]).json()
    assert "_submitted_code/main/data.zip" in code(console, record)


def test_a_tar_header_that_would_fill_the_memory_is_refused(shared: Console) -> None:
    header = tarfile.TarInfo("x")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 200_000
    content = header.tobuf() + b"n" * 200_000 + b"\0" * 10_000
    check_error(shared.send(MNIST, [("mnist.modelDir.tar", content)]), 400, "extended header of more than")


@pytest.mark.parametrize(
    "described",
    [
        {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"},  # its list of sparse parts is as long as its content
        {"GNU.sparse.map": "0,1"},
        {"GNU.sparse.size": "1", "GNU.sparse.offset": "0", "GNU.sparse.numbytes": "1"},
        None,  # in GNU's format, the list continues as long as a block says that another one follows
    ],
)
def test_lists_of_holes_are_refused_before_they_are_read(shared: Console, described: dict[str, str] | None) -> None:
    content = b"1000000000\n" + b"1\n" * 10**5
    entry = tarfile.TarInfo("mnist/main.py")
    entry.size, entry.pax_headers = len(content), described or {}
    entry.type = tarfile.REGTYPE if described else tarfile.GNUTYPE_SPARSE
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(entry, io.BytesIO(content))
    check_error(shared.send(MNIST, [("mnist.modelDir.tar", raw.getvalue())]), 400, "is sparse")


def test_a_notice_is_no_longer_than_clients_read(console: Console) -> None:
    many = ",".join(f"{number}=" for number in range(3000))
    answer = console.send(f"{MNIST} --edt-options {many}", [("mnist.tar", MODEL)])
    assert 200 < len(answer.headers["x-wmla-notice"]) <= 1000, answer.text[:200]
    assert len(answer.json()["notice"]) <= 1000


def test_descriptions_of_descriptions(shared: Console) -> None:
    link = tarfile.TarInfo("x")
    link.type, link.size = tarfile.GNUTYPE_LONGNAME, 1
    content = (link.tobuf() + b"n" + b"\0" * 511) * 3000 + tarfile.TarInfo("mnist/main.py").tobuf() + b"\0" * 1024
    check_error(shared.send(MNIST, [("mnist.modelDir.tar", content)]), 400, "damaged")


def test_the_limit_of_files_holds_for_all_archives_together(
    new_console: NewConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, read = new_console(upload_max_files=5), []
    real = bundles._read_archive
    monkeypatch.setattr(bundles, "_read_archive", lambda *given: (read.append(given), real(*given))[1])
    one = make_tar({"mnist/main.py": b"", **{f"mnist/{number}": b"" for number in range(2)}})
    check_error(console.send(MNIST, [(f"{n}.modelDir.tar", one) for n in range(9)]), 400, "it has more than 5 files")
    assert len(read) == 2, "no more is read than may be"


@pytest.mark.parametrize("name", ["", "..", "/", "a/"])
def test_odd_names_of_files(shared: Console, name: str) -> None:
    answer = shared.send("--exec-start PyTorch --model-main x.py", [(name, b"")])
    check_error(answer, 400)


def test_more_than_may_be_sent(new_console: NewConsole) -> None:
    console = new_console(upload_max_bytes=1000, upload_max_unpacked_bytes=500, upload_max_file_bytes=500)
    check_error(console.send(MNIST, [("mnist.tar", b"x" * 3_000_000)]), 413, "more than")

    def trickle() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.py"\r\n\r\n'
        yield from (b"x" * 1000 for _ in range(3000))

    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = console.ask("POST", "/execs", params={"args": MNIST}, content=trickle(), headers=kind)
    check_error(answer, 413, "more than")
    check_error(
        console.send(MNIST, [("mnist.tar", make_tar({"m/main.py": b"x" * 900}))]),
        400,
        "too large: it has more than",
    )
    check_error(console.send("--exec-start PyTorch", [("main.py", b"x" * 900)]), 400, "too large")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("multipart/form-data", b""),
        ("multipart/form-data; boundary=b", b"no form"),
        ("multipart/form-data; boundary=b", b'--b\r\nContent-Disposition: form-data; name="file"\r\n\r\n'),
        ("multipart/form-data; boundary=b", b"--b\r\n" + b"a: b\r\n" * 100_000),
        ("application/json", b"{"),
        ("application/json", b"[]"),
        ("application/json", b'{"a":' * 100_000),
        ("application/json", b"\xff"),
        ("text/odd", b"x"),
    ],
)
def test_bodies_that_are_no_form(shared: Console, kind: str, content: bytes) -> None:
    answer = shared.ask("POST", "/execs", params={"args": MNIST}, content=content, headers={"Content-Type": kind})
    check_error(answer, 400)
    assert num_jobs(shared) == 0


@pytest.mark.parametrize(
    "nodes", [{"num_nodes": 0}, {"num_nodes": "x"}, {"num_nodes": True}, {"num_nodes": 10**9}, {"gpu": {"num_gpu": -1}}]
)
def test_impossible_hardware_is_refused(shared: Console, nodes: Any) -> None:
    data = {"data": json.dumps({"hardwareSpec": {"nodes": nodes}})}
    check_error(shared.send(MNIST, [("mnist.tar", MODEL)], data=data), 400, "hardwareSpec")


def test_users_without_permission_cannot_submit(console: Console) -> None:
    console.add_queue("closed", is_open=False)
    check_error(console.send(MNIST, [("mnist.tar", MODEL)], who="eye"), 403)
    # For a user who is not a member, a queue does not exist.
    answer = console.send(MNIST + " --ig closed", [("mnist.tar", MODEL)])
    assert answer.text == "Error 400: Instance group name closed not found. You may use default."
    assert num_jobs(console) == 0


def test_a_large_model_directory_is_not_held_in_memory(console: Console, tmp_path: Path) -> None:
    import random

    noise = random.Random(1).randbytes(40_000_000)
    made = tmp_path / "large.tar"
    with tarfile.open(made, "w") as tar:
        for name, content in (("mnist/main.py", b""), ("mnist/weights", noise)):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    del noise
    with made.open("rb") as file:
        tracemalloc.start()
        answer = console.ask("POST", "/execs", params={"args": MNIST}, files=[("file", ("mnist.modelDir.tar", file))])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert answer.status_code == 200, answer.text
    assert peak < 20_000_000


def stall(console: Console, who: str) -> socket.socket:
    """Begin a submission, and stop sending in the middle."""
    host, _, port = console.platform.url.partition("://")[2].partition(":")
    opened = socket.create_connection((host, int(port)), timeout=LIMIT_S)
    opened.sendall(
        f"POST {DLI}/execs?args=--exec-start HTTP/1.1\r\nHost: {host}\r\nX-Auth-Token: {console.platform.secrets[who]}"
        "\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n--b".encode()
    )
    return opened


def wait_for_refusal(console: Console, who: str, status: int) -> str:
    """Wait until a submission is refused: then the plugin has received the stalled ones."""
    pause = threading.Event()
    for _ in range(600):
        answer = console.send("--exec-start nothing", [("main.py", b"")], who=who)
        if answer.status_code == status:
            assert int(answer.headers["retry-after"]) > 0
            return answer.text
        pause.wait(0.05)
    raise AssertionError(answer.text)


def test_stalled_submissions_delay_no_other_user(console: Console) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(contextlib.closing(stall(console, "ben")))
        told = wait_for_refusal(console, "ben", 429)
        assert told.startswith("Error 429: 'ben' is already sending 8 submissions at once.")
        console.submit()
    wait_for_refusal_to_end(console)


def wait_for_refusal_to_end(console: Console) -> None:
    pause = threading.Event()
    for _ in range(600):
        if console.send(MNIST, [("mnist.modelDir.tar", MODEL)], who="ben").status_code == 200:
            return
        pause.wait(0.05)
    raise AssertionError("the room of those who went was not given back")


def test_the_number_of_submissions_of_all_users_is_limited(
    new_console: NewConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitting, "Arrivals", lambda what: receiving.Arrivals(what, most=1))
    console = new_console()
    with contextlib.closing(stall(console, "ben")):
        told = wait_for_refusal(console, "ann", 503)
        assert told == "Error 503: The server already receives 1 submissions at once. Try again in a moment."


def test_a_submission_that_goes_silent_is_given_up(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "IDLE_LIMIT_S", 0.05)
    with contextlib.closing(stall(console, "ben")) as opened:
        told = b"".join(iter(lambda: opened.recv(1 << 16), b"")).decode()
    assert told.startswith("HTTP/1.1 408") and "Error 408: The client sent no byte for 0.05 s." in told


def test_an_environment_has_the_python_that_the_operator_gave_its_name(new_console: NewConsole, tmp_path: Path) -> None:
    console = new_console(interpreters=(f"dlipy3={tmp_path}",))
    sent = [("mnist.modelDir.tar", MODEL)]
    found = console.send(MNIST.replace("--numWorker", "--conda-env-name dlipy3 --numWorker"), sent)
    assert spec(console, found.json())["python"] == str(tmp_path)
    assert "--conda-env-name" not in found.headers.get("x-wmla-notice", "")
    other = console.send(MNIST.replace("--numWorker", "--msd-image-name powerai --numWorker"), sent)
    assert spec(console, other.json())["python"] is None
    assert "without effect here: --msd-image-name" in other.headers["x-wmla-notice"]


@pytest.mark.parametrize("option", ["--data-source []", "--cs-rmq-meta amqp://host", "--cs-url-meta https://host/x"])
def test_data_that_are_no_files_of_the_machines_are_refused(shared: Console, option: str) -> None:
    answer = shared.send(MNIST.replace("--numWorker", f"{option} --numWorker"), [("mnist.modelDir.tar", MODEL)])
    assert answer.status_code == 400
    assert "Programs read their data from the file system of the machines" in answer.text


def test_a_data_source_of_another_type_is_refused(shared: Console) -> None:
    data = json.dumps({"args": MNIST, "dataSource": [{"type": "connection_asset"}]})
    answer = shared.send(None, [("mnist.modelDir.tar", MODEL)], data={"data": data})
    assert answer.status_code == 400
    assert "Data of type 'connection_asset' are not supported" in answer.text
