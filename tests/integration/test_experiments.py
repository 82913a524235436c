"""Experiments on a real server: programs of several frameworks, trained, shared, compared, stopped."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import ROOT, Asker, Server, servers_of, wait_until

FABRIC = """
import argparse, os
import torch
import torch.nn.functional as F
from fabric_model import FabricModel
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--rate", type=float, required=True)
options = parser.parse_args()
images, digits = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
images = images.float() / 16
print("data", os.environ["DATA_DIR"], os.environ["DLI_SUBMIT_USERNAME"])


def get_datasets():
    return TensorDataset(images[:1500], digits[:1500]), TensorDataset(images[1500:], digits[1500:])


model = torch.nn.Linear(64, 10)
FabricModel(model, get_datasets, F.cross_entropy, torch.optim.SGD(model.parameters(), lr=options.rate)).train(
    options.epochs, 32, 2
)
"""
NODE = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
number = torch.tensor([10.0 ** dist.get_rank()])
dist.all_reduce(number)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {number.item():g} for {sys.argv[1:]}", flush=True)
dist.destroy_process_group()
"""
SHELL = """#!/bin/bash
echo "begun in $(basename "$PWD") with $* and $COLOUR and <b>\\e[31m"
[ "$1" = fail ] && exit 7
trap 'echo saved; exit 0' TERM
while [ "$1" = wait ]; do sleep 0.05; done
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    (tmp_path / "data").mkdir()
    settings = {"slots": 4, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", **settings))
        made[0].start()
        yield made[0]


def upload(asker: Asker, **files: str) -> str:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        for name, text in files.items():
            info = zipfile.ZipInfo(name.replace("__", "/").replace("_dot_", "."))
            info.external_attr = 0o100755 << 16
            packed.writestr(info, text)
    sha256 = hashlib.sha256(content.getvalue()).hexdigest()
    kind = {"Content-Type": "application/octet-stream"}
    answer = asker.http.put(f"code/{sha256}", content=content.getvalue(), headers=kind)
    assert answer.is_success, answer.text
    return sha256


def define(asker: Asker, project: Any, name: str, command: str, code: str, **fields: Any) -> Any:
    body = {"name": name, "command": command, "code": code, **fields}
    return asker.post(f"projects/{project['id']}/definitions", body, 201)


def run(asker: Asker, project: Any, name: str, *definitions: Any, **fields: Any) -> list[Any]:
    body = {"name": name, "definitions": [one["id"] for one in definitions], **fields}
    experiment = asker.post(f"projects/{project['id']}/experiments", body, 201)
    made: list[Any] = asker.post(f"experiments/{experiment['id']}/runs", {}, 201)["items"]
    return made


def wait_for_end(asker: Asker, job: Any) -> Any:
    return asker.wait(f"jobs/{job['id']}", lambda found: found["stage"] in ("succeeded", "failed", "stopped"), 200)


def read_log(asker: Asker, job: Any, worker: int = 0) -> str:
    return asker.http.get(f"jobs/{job['id']}/logs/worker-{worker}").text


@pytest.mark.timeout(400)
@pytest.mark.soak
def test_an_experiment_of_two_frameworks_is_trained(server: Server, tmp_path: Path) -> None:
    admin = Asker(server)
    project = admin.post("projects", {"name": "Digits"}, 201)
    names = [one["name"] for one in admin.get("frameworks")["items"]]
    assert names[:5] == ["legato", "command", "edtPyTorch", "edtTensorflow", "elasticdl"]
    own = upload(admin, train_dot_py=(ROOT / "examples/digits_elastic.py").read_text())
    theirs = upload(admin, model__main_dot_py=FABRIC)
    elastic = {"distributed": "elastic", "max_nodes": 4}
    one = define(admin, project, "Own", "python3 train.py", own, parameters={"epochs": 3}, **elastic)
    two = define(
        admin,
        project,
        "Theirs",
        "python main.py --rate 0.1",
        theirs,
        framework="edtPyTorch",
        parameters={"epochs": 2},
        **elastic,
    )
    first, second = run(admin, project, "Both", one, two, data=str(tmp_path / "data"))
    for job in (first, second):
        found = wait_for_end(admin, job)
        assert found["stage"] == "succeeded", (found["reason"], read_log(admin, job))
        assert found["reason"] == "the program ran to its end"
    assert "loss" in [series["name"] for series in admin.get(f"jobs/{second['id']}/metrics")["series"]]
    assert f"data {tmp_path}/data admin" in read_log(admin, second)
    assert "weights sha256" in read_log(admin, first)
    files = {file["path"] for file in admin.get(f"jobs/{second['id']}/files", recursive="true")["items"]}
    assert {"work/_submitted_code/model/main.py", "work/model/train/model_epoch_final.pth"} <= files
    # It is one of WMLA's too.
    listed = admin.http.get(
        f"{server.url}/platform/rest/deeplearning/v1/execs", headers={"X-Auth-Token": server.secret or ""}
    ).json()
    assert [(record["id"], record["framework"], record["state"]) for record in listed] == [
        (second["id"], "edtPyTorch", "FINISHED")
    ]


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_plain_commands(server: Server) -> None:
    admin = Asker(server)
    project = admin.post("projects", {"name": "Commands"}, 201)
    code = upload(admin, run_dot_sh=SHELL, src__node_dot_py=NODE)

    def command(name: str, line: str, **fields: Any) -> Any:
        return define(admin, project, name, line, code, framework="command", **fields)

    two = {"distributed": "static", "max_nodes": 2, "parameters": {"rate": -0.5}}
    jobs = run(
        admin,
        project,
        "All",
        command("waits", "./run.sh wait", environment={"COLOUR": "green"}),
        command("fails", "bash run.sh fail 'two words'", parameters={"x": 1}),
        command("gang", "python src/node.py", **two),
    )
    waits, fails, gang = jobs
    failed, met = wait_for_end(admin, fails), wait_for_end(admin, gang)
    assert (failed["stage"], failed["exit_code"]) == ("failed", 7)
    assert "begun in work with fail two words --x 1 and  and <b>" in read_log(admin, fails)
    assert met["stage"] == "succeeded", met["reason"]
    told = sorted(read_log(admin, gang, worker).strip() for worker in (0, 1))
    assert told == [f"rank {rank} of 2: 11 for ['--rate=-0.5']" for rank in (0, 1)]
    wait_until(lambda: "and green" in read_log(admin, waits), "it does not begin")
    wait_until(lambda: admin.get(f"jobs/{waits['id']}")["stage"] == "running", "it is not known to run")
    job = admin.get(f"jobs/{waits['id']}")
    assert (job["reason"], job["progress"]["num_workers"], job["progress"]["step"]) == ("its workers work", 1, None)
    admin.post(f"jobs/{waits['id']}/stop")
    stopped = wait_for_end(admin, waits)
    assert stopped["stage"] == "stopped", stopped["reason"]
    assert read_log(admin, waits).splitlines()[-1] == "saved"
    # A clone continues to know where it came from, and takes other parameters.
    body = {"parameters": {"x": 2}}
    clone = admin.post(f"jobs/{fails['id']}/clone", body, 201)
    assert (clone["parent"], clone["definition"]) == (fails["id"], fails["definition"])
    assert wait_for_end(admin, clone)["exit_code"] == 7
    assert "fail two words --x 2" in read_log(admin, clone)
