"""Failing programs and submissions of WMLA's users: the state, the message and the logs that they need."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator

import pytest
from benchmarks.platform import Platform
from tests.acceptance.conftest import PASSWORD, USER
from tests.acceptance.users import DLI, LIMIT_S, Notebook

START = "--exec-start edtPyTorch --model-dir insects --model-main main.py"
PROGRAM = """
import torch
from fabric_model import FabricModel

def get_datasets():
    x = torch.arange(32.0)[:, None]
    data = torch.utils.data.TensorDataset(x, (x[:, 0] > 16).long())
    return data, data

def loss(outputs, targets):
    seen.append(len(outputs))
    if len(seen) > 6:
        raise ValueError("the label 7 is not known")
    return torch.nn.functional.cross_entropy(outputs, targets)

seen = []
model = torch.nn.Linear(1, 2)
edt = FabricModel(model, get_datasets, loss, torch.optim.SGD(model.parameters(), lr=0.01))
edt.train(4, 8, 2, validation_freq=0)
"""


@pytest.fixture
def notebook(wmla: Platform) -> Iterator[Notebook]:
    made = Notebook(wmla, (USER, PASSWORD))
    yield made
    made.http.close()


def tar(*entries: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    """Pack files, and further entries."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as packed:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                packed.addfile(entry)
            else:
                info = tarfile.TarInfo(entry[0])
                info.size = len(entry[1])
                packed.addfile(info, io.BytesIO(entry[1]))
    return made.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def run(notebook: Notebook, server: Platform, program: str) -> str:
    """Run a program until it has succeeded or failed, and return the execution's id."""
    answer = notebook.send(START, tar(("insects/main.py", program.encode())))
    assert answer.is_success, answer.text
    job = str(answer.json()["id"])
    server.client.job(job).wait(LIMIT_S)
    return job


def logs(notebook: Notebook, job: str) -> tuple[str, str, str]:
    """Return the three places where a user looks for an error."""
    return (
        notebook.log(job, "errlog"),
        notebook.read(f"{DLI}/scheduler/applications/{job}/driver/logs/stderr"),
        notebook.read(f"{DLI}/scheduler/applications/{job}/executor/1/logs/stderr", lastlines="50"),
    )


def test_a_program_that_is_no_python(notebook: Notebook, wmla: Platform) -> None:
    job = run(notebook, wmla, "import os\n/* a comment of C */\n")
    record = notebook.get(f"{DLI}/execs/{job}")
    assert record["state"] == "ERROR"
    assert "SyntaxError" in record["reason"]
    for told in logs(notebook, job):
        assert "_submitted_code/insects/main.py" in told
        assert "\n    /* a comment of C */\n" in told
        assert told.rstrip().splitlines()[-1] == "SyntaxError: invalid syntax"
        assert "legato" not in told.partition("File")[2], "nothing but the program's own"


def test_a_program_that_dies_in_its_second_epoch(notebook: Notebook, wmla: Platform) -> None:
    job = run(notebook, wmla, PROGRAM)
    record = notebook.get(f"{DLI}/execs/{job}")
    assert record["state"] == "ERROR"
    assert "ValueError: the label 7 is not known" in record["reason"]
    for told in logs(notebook, job):
        assert 'main.py", line 13, in loss' in told
        assert told.rstrip().splitlines()[-1] == "ValueError: the label 7 is not known"
    lines = notebook.read(f"{DLI}/scheduler/applications/{job}/driver/logs/stdout").splitlines()
    assert [line for line in lines if line.startswith("save models")] == ["save models for epoch 1"]
    assert notebook.log(job).count("Train,") == 6
    assert sorted(notebook.result(job)) == [
        f"model/train/model_epoch_1{ending}" for ending in (".pth", "_optimizer_state.pth")
    ]


def test_a_program_that_never_trains(notebook: Notebook, wmla: Platform) -> None:
    job = run(notebook, wmla, PROGRAM.partition("edt.train")[0] + "print('that is all')\n")
    assert notebook.state(job) == "FINISHED"
    assert "that is all\n" in notebook.log(job, "outlog")
    for told in logs(notebook, job):
        assert told == "legato: main.py ended without a call of FabricModel.train(): it trained nothing.\n"
    assert notebook.log(job) == ""
    answer = notebook.http.get(f"{DLI}/execs/{job}/result")
    assert (answer.status_code, answer.text[:11]) == (404, "Error 404: ")


MAIN = ("insects/main.py", b"")


@pytest.mark.parametrize(
    ("args", "content", "told"),
    [
        pytest.param(*case, id=name)
        for name, *case in (
            ("framework", START.replace("edtPyT", "edtPyt"), tar(MAIN), "Framework edtPytorch not found."),
            ("main", START.replace("main.py", "mian.py"), tar(MAIN), "mian.py"),
            ("main elsewhere", START.replace("main.py", "../main.py"), tar(MAIN), "../main.py"),
            ("group", f"{START} --ig wml-ig-etd", tar(MAIN), "Instance group name wml-ig-etd not found."),
            ("consumer", f"{START} --consumer unknown", tar(MAIN), "Consumer unknown not found."),
            ("link", START, tar(MAIN, link("insects/data", "/etc")), "insects/data"),
            ("link up", START, tar(MAIN, link("insects/data", "../../..")), "insects/data"),
            ("hard link", START, tar(MAIN, link("insects/a.py", "insects/main.py", tarfile.LNKTYPE)), "insects/a.py"),
            ("absolute", START, tar(MAIN, ("/tmp/insects/x.py", b"")), "/tmp/insects/x.py"),
            ("up", START, tar(MAIN, ("insects/../../x.py", b"")), "insects/../../x.py"),
            ("torn", START, tar(MAIN)[:40], "damaged"),
            ("nothing", START, None, "The upload is empty"),
        )
    ],
)
def test_a_submission_that_is_refused(notebook: Notebook, args: str, content: bytes | None, told: str) -> None:
    before = notebook.get(f"{DLI}/execs")
    answer = notebook.send(args, content)
    assert answer.status_code == 400
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.text.startswith("Error 400: ")
    assert told in answer.text
    assert len(answer.text.splitlines()) == 1
    assert notebook.get(f"{DLI}/execs") == before, "nothing was started"
