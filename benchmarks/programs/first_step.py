"""Trains one step, with Legato or as a plain loop, and writes the time of its end into a file.

``first_step.py legato|plain FILE``: the time is seconds since the epoch, which the parent compares with its own.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(320, 8), torch.randn(320, 1))
how, file = sys.argv[1], Path(sys.argv[2])


def note() -> None:
    """Write the present time, if no other worker has."""
    try:
        with file.open("x") as opened:
            opened.write(f"{time.time()}\n")
    except FileExistsError:
        pass


if how == "plain":
    for inputs, targets in DataLoader(data, batch_size=32):
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
        note()
        break
else:
    import legato

    run = legato.elastic(global_batch_size=32, micro_batch_size=8)
    run.prepare(model, optimizer)
    for _ in run.epochs(1):
        for inputs, targets in run.batches(data):
            optimizer.zero_grad()
            run.backward(mse_loss(model(inputs), targets))
            optimizer.step()
            if run.stepped and run.step == 1:
                note()
