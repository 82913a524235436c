"""Trains some steps, plain or by Legato, and writes down the most memory that it had at one time.

The first argument is a JSON object: side (``plain`` or ``ours``), model, micro_batches (of a step), directory,
precision.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from benchmarks.devices import make_autocast, peak_mb
from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model

_NUM_STEPS = 5


def main() -> None:
    case = json.loads(sys.argv[1])
    num_samples = _NUM_STEPS * case["micro_batches"] * MICRO_BATCH_SIZE
    device = train(case, num_samples) if case["side"] == "ours" else train_plain(case, num_samples)
    name = f"{case['side']}-{os.environ.get('LEGATO_WORKER', 'alone')}.json"
    Path(case["directory"], name).write_text(json.dumps({"peak_mb": peak_mb(device)}))


def train(case: dict[str, object], num_samples: int) -> torch.device:
    """Train as a worker."""
    import legato

    run = legato.elastic(
        global_batch_size=int(str(case["micro_batches"])) * MICRO_BATCH_SIZE, micro_batch_size=MICRO_BATCH_SIZE
    )
    model = make_model(str(case["model"]))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    autocast = make_autocast(case, run.device)
    for _ in run.epochs(1):
        for inputs, targets in run.batches(make_data(num_samples)):
            with autocast():
                loss = cross_entropy(model(inputs.to(run.device)), targets.to(run.device))
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    return run.device


def train_plain(case: dict[str, object], num_samples: int) -> torch.device:
    """Train by a plain loop."""
    device = torch.device("cpu" if os.environ["LEGATO_DEVICE"] == "cpu" else "cuda:0")
    model = make_model(str(case["model"])).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    autocast = make_autocast(case, device)
    inputs, targets = make_data(num_samples).tensors
    for number, start in enumerate(range(0, num_samples, MICRO_BATCH_SIZE), start=1):
        part = slice(start, start + MICRO_BATCH_SIZE)
        with autocast():
            loss = cross_entropy(model(inputs[part].to(device)), targets[part].to(device))
        loss.backward()
        if number % int(str(case["micro_batches"])) == 0:
            optimizer.step()
            optimizer.zero_grad()
    return device


main()
