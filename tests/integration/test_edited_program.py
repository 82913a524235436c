"""A program that is edited while it runs: workers that come later run what the first ones ran, or are refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.integration.harness import (
    PROGRAMS,
    Act,
    Stage,
    World,
    after_event,
    at_step,
    do_all,
    nothing,
    run_alone,
    scale,
    with_members,
)

PROGRAM = """
import importlib
import torch
from common import pace, tell
from part import RATE
import legato

run = legato.elastic(global_batch_size=8, micro_batch_size=2, seed=1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE * importlib.import_module("plug" + "in").FACTOR)
run.prepare(model, optimizer)
inputs = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
for _ in run.epochs(10):
    for batch, targets in run.batches(data):
        pace(run)
        run.backward(torch.nn.functional.mse_loss(model(batch), targets) * 1.0)
        optimizer.step()
        optimizer.zero_grad()
tell(run, model, optimizer)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    folder.mkdir()
    for name in ("common.py", "slot_locks.py"):
        shutil.copy(PROGRAMS / name, folder)
    (folder / "part.py").write_text("RATE = 0.01\n")
    (folder / "plugin.py").write_text("FACTOR = 1.0\n")
    (folder / "train.py").write_text(PROGRAM)
    return folder


def edit(path: Path, old: str, new: str) -> Callable[[World], None]:
    def do(_: World) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return do


def test_workers_that_join_run_the_program_with_which_the_job_began(stage: Stage, program: Path) -> None:
    want = run_alone(str(program / "train.py"))
    edits = do_all(edit(program / "train.py", "* 1.0", "* 3.0"), edit(program / "part.py", "0.01", "0.5"))
    plan = [Act(at_step(3), do_all(edits, scale(2)), "edited"), Act(with_members(2), nothing, "both train")]
    stage.run(program / "train.py", workers=(1, 2, 1), plan=plan).check(want, finishers=2)


def test_a_worker_that_has_loaded_another_text_is_refused_by_the_name_of_the_file(stage: Stage, program: Path) -> None:
    want = run_alone(str(program / "train.py"))
    edited = edit(program / "plugin.py", "1.0", "2.0")
    plan = [Act(at_step(3), do_all(edited, scale(2)), "edited"), Act(after_event("refused"), nothing, "refused")]
    result = stage.run(program / "train.py", workers=(1, 2, 1), plan=plan)
    result.check(want, finishers=1, errors=["worker 1"])
    (refused,) = result.of_kind("refused")
    assert "its file plugin.py is" in refused["reason"], refused
