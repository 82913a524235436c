"""Blocks of our steps and blocks of DistributedDataParallel's, turn by turn, in the same processes.

The first argument is a JSON object: see `benchmarks.step_time.Case`. It may also have ``backend``, of the other side,
and ``precision``, such as ``bfloat16``.
"""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import legato
from benchmarks.devices import make_autocast, read_clock
from benchmarks.models import MICRO_BATCH_SIZE, make_data, make_model

_NUM_SAMPLES = 8192


class Peer:
    """DistributedDataParallel with the cheapest data path there is: slices of tensors that are in memory."""

    def __init__(self, case: dict[str, Any], rank: int, data: Any, rendezvous: Path, device: torch.device) -> None:
        self._num_micro_batches = case["micro_batches_per_worker"]
        self._device, self._autocast = device, make_autocast(case, device)
        store = dist.FileStore(str(rendezvous), case["workers"])  # type: ignore[attr-defined]
        dist.init_process_group(case.get("backend", "gloo"), store=store, rank=rank, world_size=case["workers"])
        torch.manual_seed(0)
        self._model = DistributedDataParallel(make_model(case["model"]).to(device))
        self._optimizer = torch.optim.Adam(self._model.parameters(), lr=1e-3)
        self._inputs, self._targets = data.tensors
        self._offset = rank * MICRO_BATCH_SIZE

    def step(self) -> None:
        for micro_batch in range(self._num_micro_batches):
            start = self._offset
            self._offset = (self._offset + MICRO_BATCH_SIZE) % (_NUM_SAMPLES - MICRO_BATCH_SIZE)
            inputs = self._inputs[start : start + MICRO_BATCH_SIZE].to(self._device)
            targets = self._targets[start : start + MICRO_BATCH_SIZE].to(self._device)
            is_last = micro_batch == self._num_micro_batches - 1
            with contextlib.nullcontext() if is_last else self._model.no_sync():
                with self._autocast():
                    loss = cross_entropy(self._model(inputs), targets)
                (loss / self._num_micro_batches if self._num_micro_batches > 1 else loss).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()


class Blocks:
    """Takes the time of both sides' steps, in blocks that begin together on all ranks."""

    def __init__(self, case: dict[str, Any], peer: Peer, device: torch.device) -> None:
        self._device = device
        self._num_blocks, self._steps_per_block = int(case["blocks"]), int(case["steps_per_block"])
        self._peer = peer
        self._num_steps = 0
        self.ours: list[list[float]] = []
        self.theirs: list[list[float]] = []

    @property
    def done(self) -> bool:
        return len(self.ours) > self._num_blocks

    def begin(self) -> None:
        dist.barrier()
        self.ours.append([])
        self._last = read_clock(self._device)

    def note_step(self) -> None:
        now = read_clock(self._device)
        self.ours[-1].append(now - self._last)
        self._last = now
        if len(self.ours[-1]) < self._steps_per_block:
            return
        dist.barrier()
        self.theirs.append([])
        last = read_clock(self._device)
        for _ in range(self._steps_per_block):
            self._peer.step()
            now = read_clock(self._device)
            self.theirs[-1].append(now - last)
            last = now
        self.begin()


def main() -> None:
    case = json.loads(sys.argv[1])
    num_micro_batches = case["micro_batches_per_worker"] * case["workers"]
    run = legato.elastic(
        global_batch_size=num_micro_batches * MICRO_BATCH_SIZE,
        micro_batch_size=MICRO_BATCH_SIZE,
        reduction=case["reduction"],
    )
    model = make_model(case["model"])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.prepare(model, optimizer)
    autocast = make_autocast(case, run.device)
    data = make_data(_NUM_SAMPLES)
    blocks: Blocks | None = None
    directory = Path(case["directory"])
    for _ in run.epochs(1_000_000):
        for inputs, targets in run.batches(data):
            if blocks is None:
                rank = run.rank
                peer = Peer(case, rank, data, directory / "rendezvous", run.device)
                blocks = Blocks(case, peer, run.device)
                blocks.begin()
            with autocast():
                loss = cross_entropy(model(inputs.to(run.device)), targets.to(run.device))
            run.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if run.stepped:
                blocks.note_step()
                if blocks.done:
                    # The first block on each side warms up; the last one of ours was only begun.
                    measured = {"ours": blocks.ours[1:-1], "theirs": blocks.theirs[1:]}
                    (directory / f"rank-{rank}.json").write_text(json.dumps(measured))
                    dist.barrier()
                    # Here, and not at the end of the epochs, where a checkpoint would be written.
                    sys.exit()


main()
