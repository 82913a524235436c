"""The kernel in which notebooks of WMLA find the modules that they import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import legato
from legato.compat.wmla.notebook.kernel import find_environment


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    path = str(Path(legato.__file__).parents[1])
    given = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run([sys.executable, *map(str, words)], env=given, capture_output=True, text=True, timeout=100)


def test_it_is_written_to_the_right_place_and_under_its_name(tmp_path: Path) -> None:
    done = run("-m", "legato.compat.wmla.notebook", "--prefix", tmp_path, "--name", "python3")
    assert done.returncode == 0, done.stderr
    spec = json.loads((tmp_path / "share/jupyter/kernels/python3/kernel.json").read_text())
    assert spec["argv"][0] == sys.executable
    assert spec["display_name"] == "Python 3 (Legato, as WMLA)"
    first, second, *rest = spec["env"]["PYTHONPATH"].split(os.pathsep)
    assert first.endswith("wmla/notebook/site") and second.endswith("wmla/site")
    assert str(Path(legato.__file__).parents[1]) in rest, "what was on the path stays there"


def test_a_place_that_cannot_be_written_to_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("-m", "legato.compat.wmla.notebook", "--prefix", tmp_path / "file")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Cannot write the kernel: ")


def test_all_that_notebooks_import_is_there() -> None:
    code = (
        "import fabric_model, pyedt.fabric_model, callbacks, emetrics, edtcallback, elog\n"
        "import os, sys; sys.path.insert(0, os.path.join(os.environ['FABRIC_HOME'], 'libs', 'fabric.zip'))\n"
        "print(fabric_model.FabricModel.__module__, fabric_model.FabricModel is pyedt.fabric_model.FabricModel)"
    )
    done = run("-c", code, **find_environment({"PYTHONPATH": str(Path(legato.__file__).parents[1])}))
    assert done.stdout == "legato.compat.wmla.notebook.model True\n", done.stderr
