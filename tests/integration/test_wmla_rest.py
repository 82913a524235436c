"""A program of WMLA through its REST on a real server: it grows, shrinks and ends as its users know it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import signal
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tests.integration.serving import LIMIT_S, Asker, Server, pids_of, wait_until

DLI = "/platform/rest/deeplearning/v1"
CONDUCTOR = "/platform/rest/conductor/v1"
PROGRAM = """
import argparse, os, time
from pathlib import Path
import torch
from torch.utils.data import TensorDataset
from fabric_model import FabricModel

arguments = argparse.ArgumentParser()
arguments.add_argument("--epochs", type=int)
epochs = arguments.parse_args().epochs
go = Path(os.environ["DATA_DIR"]) / "go"

def datasets():
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, (x.sum(1) > 0).long())
    return data, data

def loss(output, target):
    if not go.exists():
        time.sleep(0.05)
    return torch.nn.functional.cross_entropy(output, target)

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
FabricModel(model, datasets, loss, torch.optim.SGD(model.parameters(), lr=0.1)).train(epochs, 4, 4)
"""


GANG = """
import os, signal, sys, time
from pathlib import Path
import torch
import torch.distributed as dist

print("begun")
dist.init_process_group("gloo")
rank = dist.get_rank()
number = torch.tensor([10.0 ** rank])
dist.all_reduce(number)
print(f"rank {rank} of {dist.get_world_size()}: {number.item():g} for {sys.argv[1:]}")
mark = Path(os.environ["DATA_DIR"]) / os.environ["DLI_EXECID"]
if "--dies" in sys.argv and not mark.exists():
    if rank == 1:
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)
dist.destroy_process_group()
if rank == 1:
    Path(os.environ["RESULT_DIR"], "model", "last.txt").write_text(os.environ["LEGATO_WORKER"])
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in [name for name in os.environ if name.startswith("LEGATO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    data = tmp_path / "data"
    (data / "mine").mkdir(parents=True)
    settings = {"slots": 4, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
    made = Server(tmp_path / "home", wmla_data_root=str(data), **settings)
    made.start()
    yield made
    for client in made.clients:
        client.close()
    if made.is_running:
        made.kill()
    for pid in pids_of(tmp_path / "home"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def pack(program: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        info = tarfile.TarInfo("tiny/main.py")
        info.size = len(program.encode())
        tar.addfile(info, io.BytesIO(program.encode()))
    return made.getvalue()


class Notebook:
    """A user of WMLA."""

    def __init__(self, server: Server) -> None:
        headers = {"X-Auth-Token": server.secret or ""}
        self.http = httpx.Client(base_url=server.url, headers=headers, timeout=LIMIT_S)
        server.clients.append(self.http)

    def submit(self, args: str, program: str = PROGRAM) -> dict[str, Any]:
        files = {"file": ("tiny.modelDir.tar", pack(program))}
        answer = self.http.post(f"{DLI}/execs", params={"args": args, "sigName": "default"}, files=files)
        assert answer.is_success, answer.text
        record: dict[str, Any] = answer.json()
        return record

    def get(self, path: str, **query: str) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def state(self, job: str) -> str:
        found: str = self.get(f"{DLI}/execs/{job}")["state"]
        return found

    def gpuslots(self) -> list[int]:
        return [one["gpuslots"] for one in self.get(f"{CONDUCTOR}/instances/default/applications", state="RUNNING")]

    def wait_for_end(self, job: str) -> str:
        wait_until(lambda: self.state(job) not in ("SUBMITTED", "RUNNING"), f"{job} does not end", 2 * LIMIT_S)
        return self.state(job)

    def weights(self, job: str) -> str:
        answer = self.http.get(f"{DLI}/execs/{job}/result")
        assert int(answer.headers["Content-Disposition"].split("size=")[1]) == len(answer.content)
        with zipfile.ZipFile(io.BytesIO(answer.content)) as packed:
            (name,) = [one for one in packed.namelist() if one.endswith("model_epoch_final.pth")]
            state = torch.load(io.BytesIO(packed.read(name)), weights_only=True)
        digest = hashlib.sha256()
        for value in state.values():
            digest.update(value.numpy().tobytes())
        return digest.hexdigest()


@pytest.mark.timeout(400)
def test_a_program_grows_and_shrinks_under_its_users_eyes(server: Server, tmp_path: Path) -> None:
    notebook, admin = Notebook(server), Asker(server)
    args = "--exec-start edtPyTorch --cs-datastore-meta type=fs,data_path=mine --model-main main.py --model-dir tiny"
    record = notebook.submit(f"{args} --edt-options maxWorkers=1 --epochs 40")
    job = record["id"]
    wait_until(lambda: notebook.gpuslots() == [1], "it does not start", 2 * LIMIT_S)
    for num_slots in (4, 2):
        admin.post(f"jobs/{job}/resize", {"min_workers": num_slots, "max_workers": num_slots})
        wait_until(lambda: notebook.gpuslots() == [num_slots], f"it never has {num_slots} slots")  # noqa: B023
        admin.wait(f"jobs/{job}", lambda found: found["progress"] and found["progress"]["num_workers"] == num_slots)  # noqa: B023
    (application,) = notebook.get(f"{DLI}/scheduler/applications", applicationid=job)
    present = [one["id"] for one in application["executors"] if one["state"] == "RUNNING"]
    assert len(present) == 2
    assert len(application["executors"]) >= 4
    (tmp_path / "data/mine/go").touch()
    assert notebook.wait_for_end(job) == "FINISHED"

    alone = notebook.submit(f"{args} --edt-options maxWorkers=1 --epochs 40")["id"]
    assert notebook.wait_for_end(alone) == "FINISHED"
    assert notebook.weights(job) == notebook.weights(alone)

    log = notebook.get(f"{DLI}/execs/{job}/log")
    assert len([line for line in log.splitlines() if "Train,\tTimestamp: " in line]) > 0
    stdout = notebook.http.get(f"{DLI}/scheduler/applications/{job}/driver/logs/stdout").text
    assert "--------START TRAINING--------" in stdout
    assert "--------END TRAINING: completed epoch 40" in stdout
    path = f"{CONDUCTOR}/instances/default/applications/{record['submissionId']}/{present[0]}/logs/stdout/download"
    assert notebook.http.get(path).is_success


@pytest.mark.timeout(300)
def test_a_program_that_is_no_python_shows_its_users_where(server: Server) -> None:
    notebook = Notebook(server)
    job = notebook.submit("--exec-start edtPyTorch --model-main main.py", "import os\n/* no Python */\n")["id"]
    assert notebook.wait_for_end(job) == "ERROR"
    errors = notebook.get(f"{DLI}/execs/{job}/log", logType="errlog")
    assert "SyntaxError" in errors
    assert "/* no Python */" in errors
    assert "main.py" in errors


def printed(notebook: Notebook, job: str) -> list[str]:
    text: str = notebook.get(f"{DLI}/execs/{job}/log")
    return text.splitlines()


@pytest.mark.timeout(300)
def test_the_workers_of_a_gang_find_one_another(server: Server) -> None:
    notebook = Notebook(server)
    args = "--exec-start distPyTorch --cs-datastore-meta type=fs,data_path=mine --model-main main.py --numWorker 3"
    job = notebook.submit(f"{args} --epochs 2", GANG)["id"]
    assert notebook.wait_for_end(job) == "FINISHED", notebook.get(f"{DLI}/execs/{job}/log", logType="errlog")
    assert printed(notebook, job) == ["begun", "rank 0 of 3: 111 for ['--epochs', '2']"]
    (application,) = notebook.get(f"{DLI}/scheduler/applications", applicationid=job)
    assert len(application["executors"]) == 3
    for number in (1, 2, 3):
        out = notebook.http.get(f"{DLI}/scheduler/applications/{job}/executor/{number}/logs/stdout").text
        assert f"rank {number - 1} of 3: 111" in out


@pytest.mark.timeout(400)
def test_a_gang_that_loses_one_fails_as_a_whole_and_is_tried_again_as_a_whole(server: Server) -> None:
    notebook, admin = Notebook(server), Asker(server)
    args = "--exec-start distPyTorch --cs-datastore-meta type=fs,data_path=mine --model-main main.py --numWorker 2"
    lost = notebook.submit(f"{args} --dies", GANG)["id"]
    assert notebook.wait_for_end(lost) == "ERROR"
    for path in (f"{DLI}/execs/{lost}/log?logType=errlog", f"{DLI}/scheduler/applications/{lost}/driver/logs/stderr"):
        assert "A worker of this job is gone, and worker 2 has come in its place." in notebook.http.get(path).text
    assert "worker 2 has come in its place" in notebook.get(f"{DLI}/execs/{lost}")["reason"]

    spec, record = admin.get(f"jobs/{lost}/spec"), admin.get(f"jobs/{lost}")
    wanted = {name: spec[name] for name in ("program", "environment")}
    wanted |= {name: record[name] for name in ("code", "is_elastic", "max_workers", "labels")}
    again = admin.post("jobs", {**wanted, "name": "again", "max_retries": 1}, want=201)["id"]
    admin.wait(f"jobs/{again}", lambda found: found["stage"] in ("succeeded", "failed"), 3 * LIMIT_S)
    found = admin.get(f"jobs/{again}")
    assert (found["stage"], found["attempt"]) == ("succeeded", 2), found["reason"]
    assert printed(notebook, again) == 2 * ["begun", "rank 0 of 2: 11 for ['--dies']"]
    with zipfile.ZipFile(io.BytesIO(notebook.http.get(f"{DLI}/execs/{again}/result").content)) as packed:
        assert packed.namelist() == ["model/last.txt"]
