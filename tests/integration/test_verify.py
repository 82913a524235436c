"""``legato verify`` as it is typed: real jobs with one worker, and with workers that join, leave and are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.integration.harness import LIMIT_S
from tests.tiers import first_now

PROGRAM = """
import sys
import torch, legato

run = legato.elastic(global_batch_size=12, micro_batch_size=2)
layers = [torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters())
run.prepare(model, optimizer)
data = torch.utils.data.TensorDataset(torch.randn(48, 4))
for epoch in run.epochs(100):
    for (inputs,) in run.batches(data):
        shift = run.rank if sys.argv[1:] == ["rank"] else 0
        run.backward((model(inputs) + shift).square().mean())
        optimizer.step()
        optimizer.zero_grad()
"""


MAKES_A_MODULE = """
import os, pathlib
pathlib.Path("made.py").write_text(f"process = {os.getpid()}")
import made
"""


@pytest.mark.parametrize(("how", "steps"), first_now([("right", 8), ("rank", 20)], several=True))
def test_a_program_is_verified_and_nothing_is_left_behind(how: str, steps: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "legato.cli", "verify", f"--steps={steps}", "train.py", "--", how]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "LEGATO_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=3 * LIMIT_S, check=False
    )
    if how == "right":
        assert (done.returncode, done.stdout[:31]) == (0, f"The same after each of {steps} steps,"), done
        assert "worker 0 died: killed by SIGKILL" in done.stderr
    else:
        # The others join behind step 3, and until then rank 0 trains alone.
        assert done.returncode == 1, done
        told, *causes = done.stdout.splitlines()
        assert told.startswith(
            "The result depends on the workers: a run with one worker and one with several differ at step"
        )
        assert "in the loss, parameter 0.weight" in told and causes[1].startswith("  - run.rank")
        step = int(told.partition("at step ")[2].partition(",")[0])
        assert 4 <= step <= 6
    # torch may have made a cache of its own there.
    assert not list((tmp_path / "tmp").glob("legato*")) and not (tmp_path / "home").exists()


@pytest.mark.soak
def test_a_program_whose_joiners_are_refused_ends(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MAKES_A_MODULE + PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "legato.cli", "verify", "--steps=8", "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=3 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 3, done
    assert "runs something different from the others: its file made.py is" in done.stderr
    assert done.stderr.endswith("legato: the runs could not be compared. A worker could not take part.\n")
