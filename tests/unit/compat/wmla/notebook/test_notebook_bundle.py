"""The objects of a notebook arrive on the platform unchanged, or an error says why not."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests import fork_server

import legato
from legato.compat.wmla.fabric import model as model_of_programs
from legato.compat.wmla.notebook.notebook_bundle import PROGRAM, NotebookBundle, make_files, open_bundle
from legato.core.errors import MismatchError, UsageError


def datasets() -> tuple[Any, Any]:
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    return data, data


def make_given() -> dict[str, Any]:
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return {
        "model": model,
        "datasets_function": datasets,
        "loss_function": torch.nn.functional.cross_entropy,
        "optimizer": optimizer,
    }


def put(files: dict[str, bytes], directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        (directory / name).write_bytes(content)
    return directory


def send(given: dict[str, Any], directory: Path, folder: Path | None = None, **asked: Any) -> Path:
    return put(make_files(NotebookBundle(given, asked), folder or Path(__file__).parent), directory)


def test_the_optimizer_in_the_job_has_the_parameters_of_the_model_there(tmp_path: Path) -> None:
    given = make_given()
    given["callbacks"] = [given["model"]]
    found = open_bundle(send(given, tmp_path, epoch_number=2))
    model, optimizer = found.given["model"], found.given["optimizer"]
    assert model is not given["model"]
    assert [id(one) for one in optimizer.param_groups[0]["params"]] == [id(one) for one in model.parameters()]
    assert found.given["callbacks"][0] is model
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), given["model"].parameters(), strict=True))
    assert found.asked == {"epoch_number": 2}


def test_a_job_trains_as_a_program_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"epoch_number": 2, "batch_size": 4, "engines_number": 3, "num_dataloader_threads": 0}
    directory = send(make_given(), tmp_path / "sent", **asked)
    for name in [name for name in os.environ if name.startswith("LEGATO_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LEGATO_DEVICE", "cpu")
    folders = [tmp_path / name for name in ("job", "program")]
    for folder in folders:
        folder.mkdir()
    # In the result directory, which does not have the module of the functions.
    path = {"PYTHONPATH": str(Path(legato.__file__).parents[1]), "RESULT_DIR": str(folders[0])}
    command = [sys.executable, str(directory / PROGRAM)]
    done = fork_server.run(command, cwd=folders[0], env={**os.environ, **path}, timeout=100)
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("RESULT_DIR", str(folders[1]))
    monkeypatch.setattr(model_of_programs, "_has_trained", False)
    model_of_programs.FabricModel(**make_given()).train(**asked)
    mine, theirs = (torch.load(folder / "model/train/model_epoch_final.pth") for folder in folders)
    start = make_given()["model"].state_dict()
    assert not torch.equal(mine["0.weight"], start["0.weight"])
    assert all(torch.equal(mine[name], theirs[name]) for name in mine | theirs)


@pytest.fixture
def helper(tmp_path: Path) -> Iterator[ModuleType]:
    """A module in the notebook's folder, which the notebook has imported."""
    (tmp_path / "nets_of_mine.py").write_text("FACTOR = 3\n\ndef times(x):\n    return FACTOR * x\n")
    spec = importlib.util.spec_from_file_location("nets_of_mine", tmp_path / "nets_of_mine.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nets_of_mine"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["nets_of_mine"]


def test_modules_beside_the_notebook_are_sent_and_others_must_be_installed(tmp_path: Path, helper: ModuleType) -> None:
    beside = send({"loss": helper.times}, tmp_path / "beside", folder=tmp_path)
    elsewhere = send({"loss": helper.times}, tmp_path / "elsewhere")
    # Another process, without the notebook's modules.
    program = tmp_path / "program/open.py"
    program.parent.mkdir()
    program.write_text(
        "from pathlib import Path\n"
        "from legato.compat.wmla.notebook.notebook_bundle import open_bundle\n"
        f"print(open_bundle(Path({str(beside)!r})).given['loss'](14))\n"
        f"open_bundle(Path({str(elsewhere)!r}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(legato.__file__).parents[1])}
    done = fork_server.run([sys.executable, str(program)], cwd="/", env=environment, timeout=100)
    assert done.stdout == "42\n", done.stderr
    assert "needs the module 'nets_of_mine', which is not installed on the platform" in done.stderr


def test_an_object_that_cannot_be_sent_is_named(tmp_path: Path) -> None:
    given = make_given() | {"driver_logger": threading.Lock(), "fn_test": threading.Lock()}
    with pytest.raises(UsageError) as caught:
        send(given, tmp_path)
    assert "driver_logger: cannot pickle '_thread.lock' object; fn_test: cannot pickle" in str(caught.value)
    assert "loss_function" not in str(caught.value)


def test_a_notebook_of_another_python_gets_an_error(tmp_path: Path) -> None:
    directory = send(make_given(), tmp_path)
    said = json.loads((directory / "versions.json").read_text())
    assert said["packages"]["torch"].startswith(torch.__version__.partition("+")[0])
    (directory / "versions.json").write_text(json.dumps(said | {"python": "2.7"}))
    with pytest.raises(MismatchError, match=r"The notebook has Python 2\.7, but the platform has Python 3\."):
        open_bundle(directory)


def test_another_torch_is_reported_also_as_the_cause_of_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = send(make_given(), tmp_path)
    said = json.loads((directory / "versions.json").read_text())
    # The local part of a version does not matter.
    said["packages"]["torch"] = torch.__version__.partition("+")[0] + "+cu999"
    (directory / "versions.json").write_text(json.dumps(said))
    open_bundle(directory)
    assert capsys.readouterr().err == ""
    said["packages"]["torch"] = "1.0.0"
    (directory / "versions.json").write_text(json.dumps(said))
    open_bundle(directory)
    assert "packages differ from the platform's: torch 1.0.0 in the notebook, 2." in capsys.readouterr().err
    content = (directory / "model.pickle").read_bytes()
    (directory / "model.pickle").write_bytes(content[: len(content) // 2])
    with pytest.raises(
        MismatchError, match=r"cannot be read: .*Different packages may be the cause: torch 1.0.0 in the notebook"
    ):
        open_bundle(directory)
