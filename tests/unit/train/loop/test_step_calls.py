"""What a step costs besides the program's own passes, counted in calls of Legato's functions."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import TensorDataset

import legato

STEP = 40  # Legato measures itself in earlier ones
SOURCES = str(Path(legato.__file__).parent)


def count_calls(num_micro_batches: int) -> int:
    """Return how many of Legato's functions one step of a worker that trains alone calls."""
    run = legato.elastic(global_batch_size=num_micro_batches, micro_batch_size=1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run.prepare(model, optimizer)
    data = TensorDataset(torch.ones(2 * STEP * num_micro_batches, 3), torch.ones(2 * STEP * num_micro_batches, 1))
    num_calls = 0

    def count(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal num_calls
        num_calls += event == "call" and frame.f_code.co_filename.startswith(SOURCES)

    for inputs, targets in run.batches(data):
        run.backward(mse_loss(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()
        if run.stepped:
            sys.setprofile(count if run.step == STEP else None)
    assert num_calls > 0
    return num_calls


@pytest.mark.parametrize(("num_micro_batches", "limit"), [(1, 170), (8, 580)])
def test_a_step_makes_few_calls(num_micro_batches: int, limit: int) -> None:
    assert count_calls(num_micro_batches) <= limit
