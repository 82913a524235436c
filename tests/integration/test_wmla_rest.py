"""Jobs with a fixed number of workers, submitted as users of WMLA do, on a real server."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.integration.serving import LIMIT_S, Asker, Server, servers_of, wait_until

DLI = "/platform/rest/deeplearning/v1"
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
    Path(os.environ["RESULT_DIR"], "model").mkdir()
    Path(os.environ["RESULT_DIR"], "model", "last.txt").write_text(os.environ["LEGATO_WORKER"])
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    data = tmp_path / "data"
    (data / "mine").mkdir(parents=True)
    settings = {"slots": 4, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", wmla_data_root=str(data), **settings))
        made[0].start()
        yield made[0]


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

    def submit(self, args: str, program: str) -> dict[str, Any]:
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

    def wait_for_end(self, job: str) -> str:
        wait_until(lambda: self.state(job) not in ("SUBMITTED", "RUNNING"), f"{job} does not end", 2 * LIMIT_S)
        return self.state(job)


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
@pytest.mark.soak
def test_a_gang_that_loses_a_worker_fails_and_is_retried_as_a_whole(server: Server) -> None:
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
