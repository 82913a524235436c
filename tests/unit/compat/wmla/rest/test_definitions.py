"""Training definitions of programs for WMLA: their framework is recognised, and names of its documents are known."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.compat.wmla.rest.asking import Console
from tests.unit.server.test_projects import make, upload

FABRIC = "import torch\nfrom fabric_model import FabricModel\n"


def define(console: Console, source: str, **fields: Any) -> Any:
    platform = console.platform
    project = make(platform, "projects", name="MNIST")
    code = upload(platform, pytorch_mnist_EDT_py=source, net_py="from pyedt.fabric_model import FabricModel\n")
    body = {"name": "EDT", "command": "pytorch_mnist_EDT.py --epochs 2", "code": code, **fields}
    return make(platform, f"projects/{project['id']}/definitions", **body)


@pytest.mark.parametrize(
    ("source", "framework"),
    [
        (FABRIC, "edtPyTorch"),
        ("import torch\nimport net\n", "edtPyTorch"),
        ("import tensorflow as tf\nfrom fabric_model import FabricModel\n", "edtTensorflow"),
        ("import elasticai_api\n", "elasticdl"),
        ("import torch\n# from fabric_model import FabricModel\n", "legato"),
    ],
)
def test_the_framework_is_recognised_from_what_the_program_imports(
    console: Console, source: str, framework: str
) -> None:
    made = define(console, source)
    assert made["framework"] == framework
    assert "notice" not in made


def test_the_name_of_a_document_is_known_and_the_notice_says_what_really_runs(console: Console) -> None:
    made = define(console, FABRIC, framework="pytorch-onnx 1.1-py 3.6")
    assert made["framework"] == "edtPyTorch"
    assert made["notice"].startswith("'pytorch-onnx 1.1-py 3.6' runs here with torch ")
    names = {one["name"] for one in console.platform.get("frameworks")["items"]}
    assert {"legato", "edtPyTorch", "pytorch-onnx 1.1-py 3.6"} <= names


def test_a_framework_that_is_given_is_not_replaced(console: Console) -> None:
    assert define(console, FABRIC, framework="legato")["framework"] == "legato"


def test_a_job_may_name_a_runtime_of_a_document_too(console: Console) -> None:
    platform = console.platform
    code = upload(platform, pytorch_mnist_EDT_py=FABRIC)
    job = {"name": "seed", "program": ["pytorch_mnist_EDT.py"], "code": code, "max_workers": 4}
    answer = platform.ask("POST", "jobs", {**job, "framework": "pytorch-onnx 1.1-py 3.6"})
    assert answer.status_code == 201, answer.text
    assert platform.get(f"jobs/{answer.json()['id']}/spec")["framework"] == "edtPyTorch"
    assert answer.headers["X-Legato-Warning"].startswith("'pytorch-onnx 1.1-py 3.6' runs here with torch ")
    refused = platform.ask("POST", "jobs", {**job, "framework": "pytorch-onxx"})
    assert refused.status_code == 422 and "There is no framework 'pytorch-onxx' here." in refused.text


@pytest.mark.parametrize(
    ("source", "framework"),
    [(FABRIC, "edtPyTorch"), ("import elasticai_api\n", "elasticdl"), (f"import legato\n{FABRIC}", None)],
)
def test_a_submission_without_a_framework_is_recognised_and_a_warning_says_so(
    console: Console, source: str, framework: str | None
) -> None:
    platform = console.platform
    code = upload(platform, pytorch_mnist_EDT_py=source)
    job = {"name": "seed", "program": ["pytorch_mnist_EDT.py"], "code": code, "max_workers": 4}
    answer = platform.ask("POST", "jobs", job)
    assert answer.status_code == 201, answer.text
    assert platform.get(f"jobs/{answer.json()['id']}/spec")["framework"] == (framework or "legato")
    warning = answer.headers.get("X-Legato-Warning", "")
    assert warning.startswith(f"The program imports a module of '{framework}'") is (framework is not None)
    own = platform.ask("POST", "jobs", {**job, "name": "own", "framework": "legato"})
    assert platform.get(f"jobs/{own.json()['id']}/spec")["framework"] == "legato"
    assert "X-Legato-Warning" not in own.headers


def test_a_sweep_may_name_a_runtime_of_a_document_too(console: Console) -> None:
    platform = console.platform
    code = upload(platform, pytorch_mnist_EDT_py=FABRIC)
    job = {"program": ["pytorch_mnist_EDT.py"], "code": code, "max_workers": 4, "framework": "pytorch-onnx 1.1-py 3.6"}
    sweep = {
        "name": "rates",
        "metric": {"name": "loss", "direction": "minimize"},
        "parameters": {"lr": {"low": 0.001, "high": 0.1}},
        "num_trials": 2,
        "job": job,
    }
    answer = platform.ask("POST", "sweeps", sweep)
    assert answer.status_code == 201, answer.text
    assert answer.headers["X-Legato-Warning"].startswith("'pytorch-onnx 1.1-py 3.6' runs here with torch ")
    (stored,) = platform.store.sweeps.list_running()
    assert "edtPyTorch" in str(stored.template), stored.template
    refused = platform.ask("POST", "sweeps", {**sweep, "name": "other", "job": {**job, "framework": "pytorch-onxx"}})
    assert refused.status_code == 422 and "There is no framework 'pytorch-onxx' here." in refused.text
