"""Trains until it is stopped, and writes down when things happened, on the clock that all processes of a machine share.

The first argument is a JSON object: model, micro_batches (of a step), micro_batch_size, directory.
"""

# ruff: noqa: E402, I001 -- the first thing to do is to look at the clock
from __future__ import annotations

import time

_BEGUN = time.monotonic()

import json
import sys
from pathlib import Path

import legato
import torch
from torch.nn.functional import cross_entropy

from benchmarks.diary import DiaryWriter
from benchmarks.models import make_data, make_model


def main() -> None:
    case = json.loads(sys.argv[1])
    diary = DiaryWriter(Path(case["directory"]))
    diary.note("begun", _BEGUN)
    run = legato.elastic(
        global_batch_size=case["micro_batches"] * case["micro_batch_size"], micro_batch_size=case["micro_batch_size"]
    )
    model = make_model(case["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    data = make_data(8192)
    diary.note("built", time.monotonic())
    entered = loaded = False
    for _ in run.epochs(1_000_000):
        if not entered:
            entered = True
            diary.note("entered", time.monotonic())
        for inputs, targets in run.batches(data):
            if not loaded:
                loaded = True
                diary.note("loaded", time.monotonic())
            loss = cross_entropy(model(inputs.to(run.device)), targets.to(run.device))
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped:
                diary.note("step", time.monotonic(), step=run.step, num_workers=run.num_workers)


main()
