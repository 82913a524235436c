"""The Python of a job: how it is found, and what is said of one with which workers cannot run."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from legato.core.errors import UsageError
from legato.core.version import __version__
from legato.engines.interpreter import check_python, find_python, variables_of_python

GOOD: dict[str, Any] = {
    "python": [3, 12, 1],
    "torch": "2.9.0+cpu",
    "legato": __version__,
    "capability": "AVX2",
    "installed": ["torchvision"],
}


def make_stand_in(folder: Path, output: str, code: int = 0) -> Path:
    """Make an executable that stands for a Python: it prints something and ends."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho a banner\necho '{output}'\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_an_executable_and_the_folder_of_an_environment_are_found(tmp_path: Path) -> None:
    (tmp_path / "env" / "bin").mkdir(parents=True)
    python = make_stand_in(tmp_path / "env" / "bin", "")
    assert find_python(str(tmp_path / "env")) == find_python(str(python)) == python
    link = tmp_path / "link"
    link.symlink_to(python)
    assert find_python(str(link)) == link, "an environment is known by its link to the executable"


@pytest.mark.parametrize(
    ("name", "told"),
    [("nowhere", "no such file or folder"), ("empty", "the folder has no bin/python"), ("text", "not an executable")],
)
def test_what_is_no_python_is_refused_with_what_to_give(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").touch(mode=0o644)
    with pytest.raises(UsageError, match=f"{told}.*Give the path of a Python executable"):
        find_python(str(tmp_path / name))


def test_a_python_that_fits_is_accepted_and_says_which_packages_it_has(tmp_path: Path) -> None:
    python = make_stand_in(tmp_path, json.dumps(GOOD))
    assert check_python(python, {}, capability="avx2", packages=["torchvision", "mine"]) == ("torchvision",)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"python": [3, 8, 10]}, "it is Python 3.8.10, and Legato needs 3.11 or later. .*python3.11 -m venv"),
        (
            {"torch": None, "missing": "torch", "error": "ModuleNotFoundError: No module named 'torch'"},
            r"it has no torch \(Python 3.12.1\). Install them: .*/python -m pip install 'legato\[train\]==",
        ),
        ({"torch": None, "error": "OSError: libgomp.so.1"}, "torch cannot be imported: OSError: libgomp.so.1"),
        ({"torch": "2.4.1"}, "it has torch 2.4.1, and Legato needs 2.8 or later"),
        ({"legato": None, "missing": "legato", "error": "ModuleNotFoundError: x"}, "it has no Legato"),
        ({"legato": "0.0.1"}, f"it has Legato 0.0.1, and this one is {__version__}. Install them: "),
        ({"error": "ImportError: cannot import name 'x'"}, "a worker cannot be started with it: ImportError"),
        ({"capability": "DEFAULT"}, "uses the instruction set DEFAULT, and the job asks for avx2"),
    ],
)
def test_a_python_that_does_not_fit_is_refused_with_what_to_install(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    python = make_stand_in(tmp_path, json.dumps(GOOD | changes))
    with pytest.raises(UsageError, match=told):
        check_python(python, {}, capability="avx2")


def test_a_program_that_is_no_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be run \(exit code 3\): it is broken"):
        check_python(make_stand_in(tmp_path, "it is broken", 3), {})


def test_an_environment_without_packages_is_refused(tmp_path: Path) -> None:
    venv.create(tmp_path / "env")
    with pytest.raises(UsageError, match="it has no torch"):
        check_python(find_python(str(tmp_path / "env")), {})


def test_programs_of_a_job_find_its_environment_and_not_that_of_legato(tmp_path: Path) -> None:
    own = {"PATH": "/usr/bin", "VIRTUAL_ENV": sys.prefix, "CONDA_PREFIX": "/conda", "PYTHONHOME": "/x", "A": "1"}
    python = tmp_path / "env" / "bin" / "python"
    path = f"{python.parent}:/usr/bin"
    assert variables_of_python(python, own) == {"PATH": path, "A": "1"}
    (tmp_path / "env" / "conda-meta").mkdir(parents=True)
    conda = {"CONDA_PREFIX": str(tmp_path / "env"), "CONDA_DEFAULT_ENV": "env"}
    assert variables_of_python(python, own) == {"PATH": path, "A": "1"} | conda
