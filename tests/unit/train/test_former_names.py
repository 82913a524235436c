"""Names that stored jobs and running processes have, of modules that have others now."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import legato

OLD_PROCESS = """
import sys, types
import legato.train.loop.elastic
# As in a process that loaded these modules before the upgrade: they have their former names alone.
for name in [name for name in sys.modules if name.startswith("legato.train.") and name.count(".") == 3]:
    module = sys.modules.pop(name)
    former = {"step_guards": "gates", "membership_client": "cohort", "reporting": "telling"}
    short = name.rpartition(".")[2]
    sys.modules["legato.train." + former.get(short, short)] = module
old = sys.modules["legato.train.elastic"]
job = sys.modules["legato.train.job"]
from legato.train.trainer import Trainer
import legato.train.loop.elastic, legato.train.process.job
assert sys.modules["legato.train.loop.elastic"] is old
assert sys.modules["legato.train.process.job"] is job
assert sys.modules[Trainer.__module__].elastic is old.elastic
print("the same")
"""


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("legato.train.worker", "main"),
        ("legato.train.command", "main"),
        ("legato.train.warm_parent", "main"),
        ("legato.train.trainer", "Trainer"),
        ("legato.train.callback", "Callback"),
        ("legato.train.weights", "load_weights"),
        ("legato.processes", "kill_marked"),
        ("legato.control.driver_process", "main"),
        ("legato.compat.wmla.notebook.parcel", "train_parcel"),
        ("legato.compat.elasticdl.master", "make_guest"),
    ],
)
def test_what_is_stored_by_a_former_name_is_found(name: str, function: str) -> None:
    assert callable(getattr(importlib.import_module(name), function))


def test_a_process_that_began_before_the_upgrade_keeps_its_modules() -> None:
    done = subprocess.run([sys.executable, "-c", OLD_PROCESS], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("the same\n", "")


def test_the_former_place_of_run_as_runs_it_without_legato() -> None:
    file = Path(legato.__file__).with_name("run_as.py")
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(file)], input="{}", capture_output=True, text=True, timeout=60
    )
    assert "KeyError: 'uid'" in done.stderr
