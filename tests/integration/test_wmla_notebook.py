"""The tutorial for WMLA's users as a notebook, which Jupyter runs against a real server: by REST and by FabricModel."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.serving import ROOT, Asker, Server, servers_of

from legato.compat.wmla.notebook.kernel import NAME, install_kernel

NOTEBOOK = ROOT / "examples/wmla_tutorial.ipynb"
PASSWORD = "a password for the tutorial"
LIMIT_S = 240
RUN = """
import sys
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    NotebookClient(notebook, timeout=int(sys.argv[2]), resources={"metadata": {"path": sys.argv[3]}}).execute()
finally:
    nbformat.write(notebook, sys.argv[1])
"""
PACED = """
import time

def loss_function(outputs, targets):
    if torch.is_grad_enabled() and not os.path.exists({go!r}):
        time.sleep(0.05)
    return F.nll_loss(outputs, targets)

edt = FabricModel(model, get_datasets, loss_function, optimizer)
"""
ALONE = """
import contextlib
from legato.compat.wmla.fabric.model import FabricModel as Alone

os.environ |= {{"RESULT_DIR": {results!r}, "LEGATO_DEVICE": "cpu"}}
torch.manual_seed(1)
alone = Net()
Alone(alone, get_datasets, F.nll_loss, torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)).train(3, 16, 4)
assert not torch.equal(alone.out.weight, Net().out.weight)
assert all(torch.equal(value, model.state_dict()[name]) for name, value in alone.state_dict().items())
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    data = tmp_path / "data"
    settings = {"slots": 4, "loop_interval_s": 0.2, "stability_s": 0.2, "cooldown_factor": 0}
    with servers_of(tmp_path / "home", monkeypatch) as made:
        made.append(Server(tmp_path / "home", wmla_data_root=str(data), **settings))
        made[0].start()
        yield made[0]


def prepare(tmp_path: Path) -> Path:
    """Write the notebook with a last training that the test can slow down, and the same training in one process."""
    notebook = json.loads(NOTEBOOK.read_text())
    (place,) = [index for index, cell in enumerate(notebook["cells"]) if cell["id"] == "train"]
    for index, name, source in (
        (place, "paced", PACED.format(go=str(tmp_path / "go"))),
        (len(notebook["cells"]) + 1, "alone", ALONE.format(results=str(tmp_path / "alone"))),
    ):
        cell = {"cell_type": "code", "id": name, "metadata": {}, "execution_count": None, "outputs": []}
        notebook["cells"].insert(index, {**cell, "source": source})
    path = tmp_path / "tutorial.ipynb"
    path.write_text(json.dumps(notebook).replace("/tmp", str(tmp_path)))
    return path


def outputs_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    cells = json.loads(path.read_text())["cells"]
    return {cell["id"]: cell["outputs"] for cell in cells if cell["cell_type"] == "code"}


def text_of(outputs: list[dict[str, Any]]) -> str:
    told = [one["text"] if "text" in one else [*one.get("data", {}).get("text/plain", ""), "\n"] for one in outputs]
    return "".join("".join(one) for one in told)


@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.skipif(importlib.util.find_spec("nbclient") is None, reason="nbclient is not installed")
@pytest.mark.soak
def test_the_tutorial_from_beginning_to_end(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Asker(server)
    admin.post("users", {"name": "ann", "role": "user", "password": PASSWORD}, want=201)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    install_kernel(prefix=str(tmp_path))
    path = prepare(tmp_path)
    environment = {
        **os.environ,
        "JUPYTER_PATH": str(tmp_path / "share/jupyter"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "WMLA_HOST": server.url,
        "WMLA_USER": "ann",
        "WMLA_PASSWORD": PASSWORD,
    }
    command = [sys.executable, "-c", RUN, str(path), str(LIMIT_S), str(tmp_path)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            resize(admin, running)
            (tmp_path / "go").touch()
            _, errors = running.communicate(timeout=LIMIT_S)
        finally:
            running.kill()
    outputs = outputs_of(path)
    assert running.returncode == 0, errors + "".join(map(text_of, outputs.values()))

    shared = text_of(outputs["share"])
    assert "FINISHED" in shared
    # The long training gives up slots, and gets them back.
    rows = re.findall(r"^\d+ +(\d) +(\d)$", shared, re.MULTILINE)
    assert rows[0] == rows[-1] == ("4", "0") and ("2", "2") in rows, shared
    assert "attachment;filename=dlpd-model-" in text_of(outputs["result"])
    assert "argument --epochs: invalid int value: 'many'" in text_of(outputs["debug"])

    told = text_of(outputs["train"])
    (name,) = re.findall(r"^Job (wmla-ann-notebook-\d+) finishes with state FINISHED\.$", told, re.MULTILINE)
    (job,) = admin.get("jobs", name=name)["items"]
    assert " - Using pytorch backend.\n" in told
    assert re.search(r"^Waiting the job to stop\.\.\.$", told, re.MULTILINE)
    assert re.search(r"^-{8}END TRAINING: completed 270 iterations in [\d.]+ seconds\.-{8}$", told, re.MULTILINE)
    (chart,) = [one for one in outputs["train"] if one["output_type"] == "display_data"]
    assert "image/png" in chart["data"]
    upper, lower = "".join(chart["data"]["text/plain"]).splitlines()
    assert re.fullmatch(r"train loss: [\d.]+ test loss: [\d.]+", upper)
    assert re.fullmatch(r"avg steps per sec: [\d.]+ gpus: 3", lower)
    assert f"Save model:  {tmp_path}/{job['id']}.zip\n" in text_of(outputs["after"])
    assert (tmp_path / f"{job['id']}.zip").is_file()
    assert float(text_of(outputs["after"]).splitlines()[-1]) > 0.8


def resize(admin: Asker, running: subprocess.Popen[str]) -> None:
    """Let the notebook's job shrink to one worker and grow to three while it trains."""

    def find() -> dict[str, Any] | None:
        assert running.poll() is None, running.stderr.read() if running.stderr else ""
        found = [job for job in admin.get("jobs", label="wmla.type=NOTEBOOK")["items"] if job["stage"] == "running"]
        return found[0] if found else None

    admin.wait("jobs", lambda _: find() is not None, LIMIT_S)
    job = find()
    assert job is not None
    for number in (1, 3):
        admin.post(f"jobs/{job['id']}/resize", {"min_workers": number, "max_workers": number})
        admin.wait(
            f"jobs/{job['id']}",
            lambda found: found["progress"] and found["progress"]["num_workers"] == number,  # noqa: B023
        )


def test_the_notebook_is_stored_without_outputs() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
    assert notebook["metadata"]["kernelspec"]["name"] == NAME
