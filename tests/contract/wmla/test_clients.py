"""Clients for WMLA's interface against the real server with a control loop that the test runs.

Each client sends the requests of notebooks and scripts of one release, in their order, and knows nothing of Legato.
"""

from __future__ import annotations

import csv
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from tests.unit.server.platform import ADMIN, LIMIT_S, NOW, Platform, make_template

from legato.cli.platform.server import find_plugins
from legato.compat.wmla.names import ELOG_FILE, ERR_FILE, OUT_FILE, driver_id, executor_id
from legato.control.records import Queue
from legato.control.stages import Stage

DLI = "/platform/rest/deeplearning/v1"
CONDUCTOR = "/platform/rest/conductor/v1"
USER, PASSWORD = "ann", "correct horse"
ELOG = "".join(
    f"[2026-01-01 00:00:0{step}] Train,\tTimestamp: {step},\tGlobal steps: {step},\tIteration: {step},\t"
    f"Loss: {1 / step:.5f},\tAccuracy: 0.25000\n"
    for step in (1, 2, 3)
)
MODEL = os.urandom(100_000)

Turn = Callable[[], None]
"""Lets the world continue by one stroke, where a user's program would sleep."""


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory(), cache_logger_on_first_use=False)
    made = Platform(tmp_path / "home", make_template(tmp_path / "legato.db"), plugins=find_plugins)
    made.store.accounts.set_password(USER, PASSWORD, ADMIN, NOW)
    made.store.queues.put(Queue(name="wml-ig-edt"), ADMIN, NOW)
    with made.running():
        yield made
    structlog.reset_defaults()


def pack(folder: Path) -> bytes:
    """Pack as the notebooks do: with gzip, whatever the file's name is, and with the folder's name on top."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        tar.add(folder, arcname=folder.name)
    return made.getvalue()


@pytest.fixture
def model_directory(tmp_path: Path) -> Path:
    folder = tmp_path / "pytorch_edt"
    folder.mkdir()
    (folder / "pytorch_mnist_EDT.py").write_text("print('trains')\n")
    (folder / "elog.py").write_text("")
    return folder


def live(platform: Platform, end: Stage = Stage.SUCCEEDED) -> Turn:
    """Return a function that moves the only job of a platform on: it waits, trains on 1, 4 and 2 slots, and ends."""

    def strokes() -> Iterator[None]:
        yield
        job = platform.get("jobs", who="admin")["items"][0]["id"]
        platform.lead(4)
        platform.write(job, stage=Stage.STARTING, granted=("node/0",), reason="starts")
        yield
        platform.write(job, stage=Stage.RUNNING, reason="trains")
        log = platform.directory(job) / "work/log"
        for process in (driver_id(job), executor_id(job, 1)):
            folder = log / f"{process}.node"
            folder.mkdir(parents=True)
            (folder / OUT_FILE).write_text("--------START TRAINING--------\n")
            (folder / ERR_FILE).write_text("")
        (log / f"{driver_id(job)}.node" / ELOG_FILE).write_text(ELOG)
        yield
        platform.write(job, granted=("node/1", "node/2", "node/3"), reason="grows")
        yield
        platform.write(job, closed=("node/2", "node/3"), reason="shrinks")
        yield
        trained = platform.directory(job) / "work/model/train"
        trained.mkdir(parents=True)
        (trained / "model_epoch_final.pth").write_bytes(MODEL)
        platform.end(job, end)
        while True:
            yield

    going = strokes()
    return lambda: next(going)


def check_result(content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as packed:
        assert packed.read("model/train/model_epoch_final.pth") == MODEL


def test_a_notebook_of_1_2_watches_gpuslots(platform: Platform, model_directory: Path) -> None:
    turn = live(platform)
    headers = {"Accept": "application/json"}
    auth = (USER, PASSWORD)
    with httpx.Client(base_url=platform.url, headers=headers, auth=auth, timeout=LIMIT_S) as notebook:
        assert notebook.get(f"{CONDUCTOR}/auth/logon").is_success
        names = [one["name"] for one in notebook.get(f"{DLI}/execs/frameworks").json()]
        assert "edtPyTorch" in names
        args = (
            "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=pytorch-mnist \n"
            "        --model-dir pytorch_edt --edt-options maxWorkers=4 \n"
            "        --model-main pytorch_mnist_EDT.py --epochs 15 "
        )
        files = {"file": ("pytorch_edt.modelDir.tar", pack(model_directory))}
        answer = notebook.post(f"{DLI}/execs", params={"sigName": "wml-ig-edt", "args": args}, files=files)
        assert answer.is_success, answer.text
        batch = answer.json()
        watched: list[int] = []
        state = batch["state"]
        for _ in range(20):
            state = notebook.get(f"{DLI}/execs/{batch['id']}").json()["state"]
            if state not in ("SUBMITTED", "RUNNING"):
                break
            for application in notebook.get(
                f"{CONDUCTOR}/instances/{batch['sigId']}/applications", params={"state": "RUNNING"}
            ).json():
                assert application["driver"]["id"] == batch["submissionId"]
                watched.append(application["gpuslots"])
            turn()
        assert state == "FINISHED"
        assert watched == [1, 4, 2]
        path = f"{CONDUCTOR}/instances/{batch['sigId']}/applications/{batch['submissionId']}/logs/stdout/download"
        assert notebook.get(path, headers={"Accept": "application/octet-stream"}).text.startswith("--------START")
        log = notebook.get(f"{DLI}/execs/{batch['id']}/log").json()
        rows = list(csv.reader(io.StringIO(log.replace(":", ","))))
        assert [(int(row[6]), int(row[8]), float(row[10])) for row in rows] == [(1, 1, 1), (2, 2, 0.5), (3, 3, 0.33333)]
        result = notebook.get(f"{DLI}/execs/{batch['id']}/result", headers={"Accept": "application/octet-stream"})
        assert int(result.headers["Content-Disposition"].split("size=")[1]) == len(result.content)
        check_result(result.content)


def test_a_notebook_of_2_and_later_polls_until_it_is_over(platform: Platform, model_directory: Path) -> None:
    turn = live(platform)
    answer = httpx.get(f"{platform.url}/auth/v1/logon", auth=(USER, PASSWORD), timeout=LIMIT_S)
    headers = {"Accept": "application/json", "X-Auth-Token": answer.json()["accessToken"]}
    with httpx.Client(base_url=f"{platform.url}{DLI}", headers=headers, timeout=LIMIT_S) as notebook:
        args = (
            "--exec-start edtPyTorch --cs-datastore-meta type=fs --numWorker 4 "
            "--model-main pytorch_mnist_EDT.py --model-dir pytorch_edt"
        )
        files = {"file": ("pytorch_edt.modelDir.tar", pack(model_directory))}
        record = notebook.post("/execs", params={"args": args}, files=files).json()
        # Notebooks make a table of one row of the record.
        assert not [value for value in record.values() if isinstance(value, dict | list) or value is None]
        seen = []
        while True:
            state = notebook.get(f"/execs/{record['id']}").json()["state"]
            seen.append(state)
            if state not in ("PENDING_CRD_SCHEDULER", "SUBMITTED", "RUNNING"):
                break
            turn()
        assert seen == ["PENDING_CRD_SCHEDULER"] * 3 + ["RUNNING"] * 3 + ["FINISHED"]
        application: Any = notebook.get(f"/scheduler/applications/{record['id']}").json()
        assert application["driver"]["state"] == "FINISHED"
        stdout = notebook.get(f"/scheduler/applications/{record['id']}/driver/logs/stdout?lastlines=10").text
        assert stdout == "--------START TRAINING--------\n"
        stderr = notebook.get(f"/scheduler/applications/{record['appId']}/executor/1/logs/stderr?lastlines=10")
        assert (stderr.status_code, stderr.text) == (200, "")
        check_result(notebook.get(f"/execs/{record['id']}/result").content)
        assert notebook.delete(f"/execs/{record['id']}").status_code == 204
        assert notebook.get(f"/execs/{record['id']}").status_code == 404
    assert httpx.post(f"{platform.url}/auth/v1/logoff", headers=headers, timeout=LIMIT_S).is_success


@pytest.mark.parametrize(("end", "want"), [(Stage.SUCCEEDED, "FINISHED"), (Stage.FAILED, "ERROR")])
def test_a_self_test_ends_with_every_end(platform: Platform, model_directory: Path, end: Stage, want: str) -> None:
    turn = live(platform, end)
    token = httpx.get(f"{platform.url}/auth/v1/logon", auth=(USER, PASSWORD), timeout=LIMIT_S).json()["accessToken"]
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{platform.url}{DLI}", headers=headers, timeout=LIMIT_S) as script:
        args = "--exec-start disttensorflow --numWorker 1 --model-main pytorch_mnist_EDT.py --model-dir pytorch_edt"
        files = {"file": ("pytorch_edt.modelDir.tar", pack(model_directory))}
        application = script.post("/execs/", params={"args": args}, files=files).json()["appId"]
        for _ in range(20):
            state = script.get(f"/execs/{application}").json()["state"]
            if "FINISHED" in state or "ERROR" in state:
                break
            turn()
        assert state == want
        assert "START TRAINING" in script.get(f"/execs/{application}/log", params={"logType": "outlog"}).json()
