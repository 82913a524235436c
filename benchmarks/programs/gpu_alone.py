"""Blocks of one worker's steps and blocks of a plain loop's, in turn, in one process.

The plain loop has two sides: with the same deterministic operations as ours, and as torch comes. The first argument is
a JSON object: model, micro_batches (of a step), blocks, steps_per_block, file, precision, compiled.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

import legato
from benchmarks.devices import make_autocast, read_clock
from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model

_NUM_SAMPLES = 8192


class Plain:
    """A plain loop with gradient accumulation, with the cheapest data path there is."""

    def __init__(self, case: dict[str, Any], data: Any, device: torch.device, *, deterministic: bool) -> None:
        self._num_micro_batches, self._device = case["micro_batches"], device
        self._is_deterministic = deterministic
        self._autocast = make_autocast(case, device)
        torch.manual_seed(0)
        model = make_model(case["model"]).to(device)
        self._optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        self._model = torch.compile(model) if case.get("compiled") else model
        self._inputs, self._targets = data.tensors
        self._offset = 0
        self.times: list[float] = []

    def run_block(self, num_steps: int) -> None:
        """Take the mean time of some steps."""
        if self._device.type == "cuda":
            torch.use_deterministic_algorithms(self._is_deterministic)
        began = read_clock(self._device)
        for _ in range(num_steps):
            self._step()
        self.times.append((read_clock(self._device) - began) / num_steps)
        if self._device.type == "cuda":
            torch.use_deterministic_algorithms(True)

    def _step(self) -> None:
        for _ in range(self._num_micro_batches):
            start = self._offset
            self._offset = (self._offset + MICRO_BATCH_SIZE) % (_NUM_SAMPLES - MICRO_BATCH_SIZE)
            inputs = self._inputs[start : start + MICRO_BATCH_SIZE].to(self._device)
            targets = self._targets[start : start + MICRO_BATCH_SIZE].to(self._device)
            with self._autocast():
                loss = cross_entropy(self._model(inputs), targets)
            (loss / self._num_micro_batches).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()


def main() -> None:
    case = json.loads(sys.argv[1])
    num_steps = case["steps_per_block"]
    run = legato.elastic(global_batch_size=case["micro_batches"] * MICRO_BATCH_SIZE, micro_batch_size=MICRO_BATCH_SIZE)
    device, autocast = run.device, make_autocast(case, run.device)
    model = make_model(case["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    compute = torch.compile(model) if case.get("compiled") else model
    data = make_data(_NUM_SAMPLES)
    plain = {name: Plain(case, data, device, deterministic=name == "plain") for name in ("plain", "usual")}
    ours: list[float] = []
    began, num_done = read_clock(device), 0
    for _ in run.epochs(1_000_000):
        for inputs, targets in run.batches(data, pin_memory=True):
            with autocast():
                loss = cross_entropy(compute(inputs.to(device)), targets.to(device))
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            num_done += run.stepped
            if num_done < num_steps or not run.stepped:
                continue
            ours.append((read_clock(device) - began) / num_steps)
            for side in plain.values():
                side.run_block(num_steps)
            # The first block of each side warms up.
            if len(ours) > case["blocks"]:
                found = {"ours": ours[1:], **{name: side.times[1:] for name, side in plain.items()}}
                Path(case["file"]).write_text(json.dumps(found))
                sys.exit()
            began, num_done = read_clock(device), 0


main()
