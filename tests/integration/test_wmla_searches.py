"""Hyperparameter searches as users of WMLA start them in notebooks, with requests, on a real server."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from tests.integration.serving import LIMIT_S, Server, servers_of

DLI = "/platform/rest/deeplearning/v1"
# The loss is smallest at lr = 0.1; a longer training halves it.
PLAIN = """
import json, os, sys

config = json.loads(open("config.json").read())
again = os.path.join(os.environ["RESULT_DIR"], "_submitted_code", "tiny", "config.json")
assert json.loads(open(again).read()) == config
rate, epochs = float(config["lr"]), int(config.get("epochs", "1"))
print("arguments", sys.argv[1:], "config", json.dumps(config))
values = [{"step": at + 1, "loss": abs(rate - 0.1) + 1.0 / (at + 1)} for at in range(epochs)]
with open("{}/val_dict_list.json".format(os.environ["RESULT_DIR"]), "w") as f:
    json.dump(values, f)
"""
ELASTIC = """
import json, os, sys
import torch
from torch.utils.data import TensorDataset

sys.path.insert(0, os.path.join(os.environ["FABRIC_HOME"], "libs", "fabric.zip"))
from fabric_model import FabricModel

config = json.load(open("config.json"))

class Logger:
    tests = []
    def log_train_metrics(self, loss, acc, completed_batch, worker=0): pass
    def log_test_metrics(self, loss, acc, completed_batch, worker=0):
        self.tests.append({"step": completed_batch, "loss": loss})
    def on_train_end(self):
        json.dump(self.tests, open(os.environ["RESULT_DIR"] + "/val_dict_list.json", "w"))

def datasets():
    x = torch.arange(64.0).reshape(64, 1) / 64
    return TensorDataset(x, 2 * x), TensorDataset(x, 2 * x)

torch.manual_seed(0)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
FabricModel(model, datasets, torch.nn.functional.mse_loss, optimizer, driver_logger=Logger()).train(2, 8, 2)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("searches") / "home"
    settings = {"slots": 4, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
    with pytest.MonkeyPatch.context() as monkeypatch, servers_of(home, monkeypatch) as made:
        made.append(Server(home, **settings))
        made[0].start()
        yield made[0]


class Notebook:
    """A notebook with a session of requests."""

    def __init__(self, server: Server) -> None:
        self.session = requests.Session()
        self.session.headers.update({"X-Auth-Token": server.secret or "", "Accept": "application/json"})
        self.base = server.url + DLI

    def start(self, program: str, args: str, search: dict[str, Any], *, group: str | None = "default") -> Any:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            info = tarfile.TarInfo("tiny/main.py")
            info.size = len(program)
            tar.addfile(info, io.BytesIO(program.encode()))
        packed.seek(0)
        model = {"args": f"{args} --model-main main.py --model-dir tiny"} | (
            {} if group is None else {"sigName": group}
        )
        files = {"file": ("tmp.modelDir.tar", packed)}
        data = {"data": json.dumps({"modelSpec": model, **search})}
        answer = self.session.post(f"{self.base}/hypersearch", data=data, files=files, timeout=LIMIT_S)
        assert answer.ok, answer.text
        return answer.json()

    def wait(self, name: str) -> Any:
        """Poll as the notebooks do, while the state is one of the two that they know."""
        end = time.monotonic() + 3 * LIMIT_S
        while True:
            answer = self.session.get(f"{self.base}/hypersearch/{name}", timeout=LIMIT_S)
            assert answer.ok, answer.text
            found = answer.json()
            if found["state"] not in ("SUBMITTED", "RUNNING"):
                return found
            assert time.monotonic() < end, found
            time.sleep(0.3)  # between polls


def algorithm(name: str, number: int, parallel: int = 2, **more: Any) -> dict[str, Any]:
    limits = {"maxRunTime": 60, "maxJobNum": number, "maxParalleJobNum": parallel}
    return {"algorithm": name, **limits, "objectiveMetric": "loss", "objective": "minimize", **more}


RATE = {"name": "lr", "type": "Range", "dataType": "DOUBLE", "minDbVal": 0.001, "maxDbVal": 0.1}


@pytest.mark.timeout(300)
def test_a_notebook_searches_the_parameters_of_a_plain_program(server: Server) -> None:
    notebook = Notebook(server)
    search = {"algoDef": algorithm("Random", 3), "hyperParams": [RATE]}
    name = notebook.start(PLAIN, "--exec-start PyTorch --gpuPerWorker 1 --batch 7", search)
    assert "-hpo-" in name
    found = notebook.wait(name)
    assert (found["state"], found["progress"], found["complete"], found["failed"]) == ("FINISHED", "3/3", 3, 0), found
    by_value = {}
    for one in found["experiments"]:
        assert (one["state"], [each["dataType"] for each in one["hyperParams"]]) == ("FINISHED", ["double"])
        rate = float(one["hyperParams"][0]["fixedVal"])
        assert one["metricVal"] == abs(rate - 0.1) + 1.0
        by_value[one["metricVal"]] = one
        job = notebook.session.get(f"{notebook.base}/execs/{one['appId']}", timeout=LIMIT_S).json()
        assert job["state"] == "FINISHED"
        log = notebook.session.get(f"{notebook.base}/execs/{one['appId']}/log", timeout=LIMIT_S).json()
        assert log.strip() == f"arguments ['--batch', '7'] config {json.dumps({'lr': rate})}"
    assert found["best"] == by_value[min(by_value)]
    listed = notebook.session.get(f"{notebook.base}/hypersearch", timeout=LIMIT_S).json()
    assert [(one["hpoName"], one["state"]) for one in listed] == [(name, "FINISHED")]


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_hyperband_trains_the_best_trials_again_with_more_epochs(server: Server) -> None:
    notebook = Notebook(server)
    settings = [{"name": "ResourceName", "value": "epochs"}, {"name": "ResourceValue", "value": "4"}]
    made = algorithm("Hyperband", -1, 4, hyperbandEta=2.0, algoParams=settings)
    answer = notebook.start(PLAIN, "--exec-start PyTorch", {"algoDef": made, "hyperParams": [RATE]}, group=None)
    found = notebook.wait(answer["uid"])
    assert found["state"] == "FINISHED", found
    trials = [{each["name"]: each["fixedVal"] for each in one["hyperParams"]} for one in found["experiments"]]
    assert [one["epochs"] for one in trials] == ["1"] * 4 + ["2"] * 2 + ["4"] + ["2"] * 3 + ["4"] + ["4"] * 3
    values = [one["metricVal"] for one in found["experiments"]]
    best = sorted(range(4), key=values.__getitem__)
    assert [one["lr"] for one in trials[4:7]] == [trials[at]["lr"] for at in (*best[:2], best[0])]


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_experiments_of_an_elastic_program_give_the_loss_of_its_logger(server: Server) -> None:
    notebook = Notebook(server)
    experiments = [
        {"id": at, "hyperParams": [{"name": "lr", "dataType": "DOUBLE", "fixedVal": str(rate)}]}
        for at, rate in ((3, 0.01), (5, 0.3))
    ]
    search = {"algoDef": algorithm("ExperimentGridSearch", 2), "experiments": experiments}
    found = notebook.wait(notebook.start(ELASTIC, "--exec-start edtPyTorch --edt-options maxWorkers=2", search))
    assert found["state"] == "FINISHED", found
    assert [one["id"] for one in found["experiments"]] == [3, 5]
    first, second = (one["metricVal"] for one in found["experiments"])
    assert 0 < second < first
    assert found["best"]["id"] == 5


@pytest.mark.timeout(300)
@pytest.mark.soak
def test_a_program_that_writes_no_value_fails_and_its_reason_says_what_to_write(server: Server) -> None:
    notebook = Notebook(server)
    name = notebook.start(
        "print('done')", "--exec-start PyTorch", {"algoDef": algorithm("Tpe", 4, 1), "hyperParams": [RATE]}
    )
    found = notebook.wait(name)
    assert found["state"] == "FAILED"
    assert "has written no RESULT_DIR/val_dict_list.json" in found["reason"]
    assert [one["state"] for one in found["experiments"]] == ["ERROR"] * 3
    assert notebook.session.delete(f"{notebook.base}/hypersearch/{name}", timeout=LIMIT_S).status_code == 204
    assert notebook.session.get(f"{notebook.base}/hypersearch/{name}", timeout=LIMIT_S).status_code == 404
