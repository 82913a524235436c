"""Blocks of our steps and blocks of a plain loop's, turn by turn, in the same processes; nothing is sent in the latter.

The first argument is a JSON object: see `benchmarks.micro_batches.Case`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import legato
from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model

_NUM_SAMPLES = 8192


class Plain:
    """The same training as one writes it without Legato: shuffled rows of tensors in memory, gradients accumulated."""

    def __init__(self, case: dict[str, Any], data: Any) -> None:
        self._num_micro_batches = case["micro_batches"] // case["workers"]
        self._model = make_model(case["model"])
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=1e-3)
        self._inputs, self._targets = data.tensors
        self._rows = torch.randperm(_NUM_SAMPLES).split(MICRO_BATCH_SIZE)
        self._next = 0

    def step(self) -> None:
        for _ in range(self._num_micro_batches):
            rows = self._rows[self._next]
            self._next = (self._next + 1) % len(self._rows)
            inputs, targets = self._inputs.index_select(0, rows), self._targets.index_select(0, rows)
            loss = cross_entropy(self._model(inputs), targets)
            (loss / self._num_micro_batches if self._num_micro_batches > 1 else loss).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()


def main() -> None:
    case = json.loads(sys.argv[1])
    num_blocks, steps_per_block = case["blocks"], case["steps_per_block"]
    run = legato.elastic(
        global_batch_size=case["micro_batches"] * MICRO_BATCH_SIZE, micro_batch_size=MICRO_BATCH_SIZE, num_threads=1
    )
    model = make_model(case["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    data = make_data(_NUM_SAMPLES)
    plain = Plain(case, data)
    ours: list[float] = []
    theirs: list[float] = []
    num_steps = 0
    began = 0.0
    for _ in run.epochs(1_000_000):
        for inputs, targets in run.batches(data, num_workers=0):
            began = began or time.perf_counter()
            run.backward(cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            num_steps += run.stepped
            if not run.stepped or num_steps % steps_per_block:
                continue
            ended = time.perf_counter()
            ours.append((ended - began) / steps_per_block)
            for _ in range(steps_per_block):
                plain.step()
            theirs.append((time.perf_counter() - ended) / steps_per_block)
            if len(ours) > num_blocks:
                # The first block on each side warms up.
                measured = {"ours": ours[1:], "theirs": theirs[1:]}
                (Path(case["directory"]) / f"rank-{run.rank}.json").write_text(json.dumps(measured))
                sys.exit()
            # The other worker may still be in its plain loop: this step waits for it, and is not measured.
            began = 0.0


main()
